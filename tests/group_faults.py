"""A density of mixed models made wrong on purpose, for negative controls."""

import numpy as np

from svrhmc.exact import marginal
from svrhmc.whitening.groups import GroupVariables
from svrhmc.whitening.outer import Outer


def without_jacobian(monkeypatch):
    """Leave log |K|, K² = 1/(1 + τ²d), out of the log-determinant of the variables, for one term of one column."""
    plain = GroupVariables.energies

    def energies(self, z):
        f, gradient = plain(self, z)
        phi, slope, _ = self.bend(z[:, self.model.inner_dim :] @ self.mixing.T)
        ratio = np.exp(2 * phi) * self.model.curvature(self.w).blocks[0][0, 0]
        gradient[:, self.model.inner_dim :] -= (ratio / (1 + ratio)).sum(axis=1, keepdims=True) * slope
        return f - 0.5 * np.log1p(ratio).sum(axis=1), gradient

    monkeypatch.setattr(GroupVariables, "energies", energies)


def without_outer_determinant(monkeypatch):
    """Leave log |Q(θ)| of the outer coordinates out: its value, and its derivative by θ."""
    plain = Outer.backpropagate

    def backpropagate(self, at, theta, by_y, by_theta):
        value, by_z = plain(self, at, theta, by_y, by_theta)
        plain(self, at._replace(z=np.zeros_like(at.z)), theta, by_y, without := np.zeros_like(by_theta))
        by_theta -= without
        return np.zeros_like(value), by_z

    monkeypatch.setattr(Outer, "backpropagate", backpropagate)


def jacobian_of_scales_twice(monkeypatch):
    """Count dτ/d log τ = τ twice, in the weights of proposals for the scales of a Gaussian model.

    (Without it the law would be improper, as the density of log τ would not fall where τ → 0.)
    """
    plain = marginal.log_weights

    def log_weights(space, s, freedom, log_density=None):
        model, phi = space.model, space.phi(s)[0]
        places = [term.theta.start + a for term in model.terms for a in range(term.width)]
        return plain(space, s, freedom, log_density) + phi[:, places].sum(axis=1)

    monkeypatch.setattr(marginal, "log_weights", log_weights)

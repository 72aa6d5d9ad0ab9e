"""svrhmc: samples from π(x) ∝ exp(−(1/n) Σ fᵢ(x)), above all posteriors over many rows of data."""

from svrhmc import distances, dynamics, gradients, targets, theory
from svrhmc.errors import DivergenceError, TraceFileError
from svrhmc.samplers import Sampler, hmc, lmc, sg_hmc, sgld, sgld_cv, svr_hmc, svrg_ubu, vr_sgld
from svrhmc.trace import Summary, Trace

__version__ = "0.1.0"

__all__ = [
    "DivergenceError",
    "Sampler",
    "Summary",
    "Trace",
    "TraceFileError",
    "distances",
    "dynamics",
    "gradients",
    "hmc",
    "lmc",
    "sg_hmc",
    "sgld",
    "sgld_cv",
    "svr_hmc",
    "svrg_ubu",
    "targets",
    "theory",
    "vr_sgld",
]

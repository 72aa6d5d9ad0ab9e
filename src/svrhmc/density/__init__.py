"""Densities that are sampled, π ∝ e⁻ᶠ: what they are made of, their modes, and whether they are proper."""

"""Priors: terms of the log density that depend on coefficients alone."""

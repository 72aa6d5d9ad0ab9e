"""From a target to numbers that are known to be right: mode, whitening, choice of a sampler, draws, and a verdict."""

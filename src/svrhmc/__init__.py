"""svrhmc: samples from π(x) ∝ exp(−(1/n) Σ fᵢ(x)), above all posteriors over many rows of data."""

from svrhmc import distances, dynamics, exact, gradients, targets, theory, whitening
from svrhmc.core.errors import CheckpointError, DivergenceError, PosteriorFileError, TraceFileError, UnstableStepError
from svrhmc.core.version import VERSION
from svrhmc.fitting import fit
from svrhmc.posterior import Posterior, sample
from svrhmc.samplers import (
    Sampler,
    cv_hmc,
    hmc,
    lmc,
    saga_hmc,
    saga_ld,
    saga_ubu,
    sg_hmc,
    sgld,
    sgld_cv,
    svr_hmc,
    svrg_ubu,
    vr_sgld,
)
from svrhmc.trace import Summary, Trace

__version__ = VERSION

__all__ = [
    "CheckpointError",
    "DivergenceError",
    "Posterior",
    "PosteriorFileError",
    "Sampler",
    "Summary",
    "Trace",
    "TraceFileError",
    "UnstableStepError",
    "cv_hmc",
    "distances",
    "dynamics",
    "exact",
    "fit",
    "gradients",
    "hmc",
    "lmc",
    "saga_hmc",
    "saga_ld",
    "saga_ubu",
    "sample",
    "sg_hmc",
    "sgld",
    "sgld_cv",
    "svr_hmc",
    "svrg_ubu",
    "targets",
    "theory",
    "vr_sgld",
    "whitening",
]

"""svrhmc: samples from π(x) ∝ exp(−(1/n) Σ fᵢ(x)), above all posteriors over many rows of data."""

from importlib.util import find_spec as _find_spec
from typing import Any

# isort: off
from svrhmc.core import processes as _processes  # noqa: F401 - first of all: from here on the command may be interrupted

# isort: on
from svrhmc import compare as _former_compare  # before the function of that name, which it would hide
from svrhmc import data, distances, dynamics, exact, gradients, targets, theory, whitening
from svrhmc.core.errors import (
    BudgetError,
    CheckpointError,
    DataError,
    DivergenceError,
    PosteriorFileError,
    TraceFileError,
    UndefinedDensityError,
    UnstableStepError,
    VerdictError,
    VerdictWarning,
    WorkersError,
)
from svrhmc.core.summaries import Summary
from svrhmc.core.version import VERSION
from svrhmc.fitting import design, fit
from svrhmc.posterior import Posterior, sample
from svrhmc.reporting import report
from svrhmc.results.comparison import compare
from svrhmc.sampler_comparison import compare_samplers
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
from svrhmc.trace import Trace

__version__ = VERSION

__all__ = [
    "BudgetError",
    "CheckpointError",
    "DataError",
    "DivergenceError",
    "Posterior",
    "PosteriorFileError",
    "Sampler",
    "Summary",
    "Trace",
    "TraceFileError",
    "UndefinedDensityError",
    "UnstableStepError",
    "VerdictError",
    "VerdictWarning",
    "WorkersError",
    "compare",
    "compare_samplers",
    "cv_hmc",
    "data",
    "design",
    "distances",
    "dynamics",
    "exact",
    "fit",
    "gradients",
    "hmc",
    "lmc",
    "report",
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

vars(compare).update(compare=_former_compare.compare, Curve=_former_compare.Curve)  # former names, deprecated

_ESTIMATORS = (  # of `svrhmc.estimators`, which needs scikit-learn and is loaded where one is asked for
    "BayesianLogisticRegression",
    "BayesianNegativeBinomialRegression",
    "BayesianPoissonRegression",
    "BayesianRegression",
)
if _find_spec("sklearn"):
    __all__ += _ESTIMATORS


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        from svrhmc import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'svrhmc' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ESTIMATORS})

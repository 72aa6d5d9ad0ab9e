"""Advice to users: what to change about a model, in the words of the function that they called, and warnings in Python,
which reach users who never print a posterior.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

import numpy as np

from svrhmc.core.errors import DataError, VerdictWarning
from svrhmc.results.base import PosteriorData
from svrhmc.sampling.certificate import Certificate

_PACKAGE = __name__.partition(".")[0]


@dataclass(frozen=True)
class Advice:
    """What to try, in the words of the functions that take arrays and a target; other entry points have other words.

    curve: how a column {name} gets another form than a straight line. curves: the same for all columns together.
    narrower: what to do where a prior is too wide for so many coefficients.
    prior, noise: what to do about a prior, or a noise, that contradicts the data. link: where another one is taken.
    words: this entry point's words, by those in the errors of targets. columns: the columns that `curve` can name, as
    they are written here; None where it can name all.
    """

    curve: str = "columns of its square, its logarithm or splines beside {name}"
    curves: str = "products, logarithms or splines of columns as further columns"
    prior: str = (
        "Take a wider prior, bring columns and y to a scale of about 1, or use svrhmc.fit, whose priors follow the data"
    )
    noise: str = "leave the noise unknown: targets.glm(X, y, 'gaussian'), or svrhmc.fit"
    narrower: str = "a narrower prior, as there are many coefficients for so few rows"
    link: str = "another link (svrhmc.targets.families.bernoulli('probit'))"
    words: Mapping[str, str] = field(default_factory=dict)
    columns: Mapping[str, str] | None = None

    def of_column(self, name: str) -> str:
        """What to try for a single column whose effect is curved."""
        if self.columns is None:
            return self.curve.format(name=name)
        return self.curve.format(name=self.columns[name]) if name in self.columns else self.curves

    def named(self, sentence: str, names: Sequence[str] = ()) -> str:
        """A sentence in the words of this entry point, with the names of columns instead of their numbers."""
        for elsewhere, here in self.words.items():
            sentence = sentence.replace(elsewhere, here)

        def by_name(numbers: re.Match[str]) -> str:
            return ", ".join(repr(names[int(number)]) for number in numbers[0].split(", ") if int(number) < len(names))

        return re.sub(r"(?<=\bcolumn )\d+|(?<=\bcolumns )\d+(, \d+)*", by_name, sentence) if names else sentence

    @contextmanager
    def speaking(self, names: Sequence[str]) -> Iterator[None]:
        """A context whose errors are raised in the words of this entry point. names: of the columns of the target."""
        try:
            yield
        except (ValueError, DataError) as error:
            sentence = self.named(str(error), names)
            if type(error) not in (ValueError, DataError) or sentence == str(error):
                raise
            raise type(error)(sentence) from error


_PRIOR = "Take a wider prior, or leave it out: then it follows the scale of the data"
_WORDS = {
    "give prior_precision > 0 or a prior": "give a prior that is not flat, or leave prior out",
    "prior_precision must be": "the precision of the prior must be",
    "give prior_precision > 0": "give a prior that is not flat",
    "give a larger prior_precision": "give a narrower prior",
}
_NARROWER = (
    "a narrower prior, as there are many coefficients for so few rows "
    "(prior=svrhmc.targets.priors.LearntScale() learns how narrow)"
)
ARRAYS = Advice(narrower=_NARROWER, prior=_PRIOR, noise="leave noise_variance out", words=_WORDS)


def of_formula(columns: Mapping[str, str], smooths: bool = True) -> Advice:
    """Advice for models with a formula. columns: names as the formula writes them. smooths: whether s(x) works."""
    smooth, smooth_of_x = ("s({name}) or ", "s(x) or ") if smooths else ("", "")
    return Advice(
        curve=f"{smooth}bs({{name}}, df=4) in the formula",
        curves=f"interactions, {smooth_of_x}bs(x, df=4) of columns x in the formula",
        narrower=_NARROWER,
        prior=_PRIOR,
        noise="leave noise_variance out",
        link="another link (in Python, family=svrhmc.targets.families.bernoulli('probit'))",
        words=_WORDS,
        columns=columns,
    )


def warn_user(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line outside of this package from which it was called."""
    frame: FrameType | None = sys._getframe(1)
    level = 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


def warn_of_verdict(posterior: PosteriorData, category: type[Exception] = VerdictWarning) -> None:
    """Warn unless the verdict is that the reported numbers are right, and there are as many draws as were asked for; an
    error instead where the category is one.
    """
    if sentence := open_verdict(posterior):
        if not issubclass(category, Warning):
            raise category(sentence)
        warn_user(sentence, category)


def open_verdict(posterior: PosteriorData) -> str:
    """Why the reported numbers are not known to be right, or that there are too few draws; "" where neither is so."""
    certificate = posterior.certificate
    beginning = f"The verdict on this posterior is {certificate.verdict!r}"
    if not certificate.passed:
        return f"{beginning}: {certificate.because().rstrip('.')}. {_remedy(posterior)}"
    if posterior.complete:
        return ""
    return (
        f"{beginning}, but the run ended before there were as many draws as asked for: there are "
        f"{posterior.ess.min():,.0f} effective ones of some coordinate. Give a larger budget where there is one, or "
        "ask for fewer draws."
    )


def _remedy(posterior: PosteriorData) -> str:
    certificate: Certificate = posterior.certificate
    if certificate.verdict == "unjudged":
        return "To know whether its means and sds are right, leave out certificate=False."
    if certificate.verdict == "refuted":
        return "Do not use its means and sds: let method=None choose a sampler, or accept more by a larger tolerance."
    if posterior.tails is not None and np.isinf(posterior.tails).any():
        return "Do not use its numbers: there is no posterior that they are those of."
    if posterior.tails is not None:
        return "Do not rely on its sds: report quantiles (posterior.interval()), which are those of the draws."
    if posterior.stopped:
        return "Do not rely on its means and sds: give a larger budget, or none."
    if certificate.draws_needed is not None:
        return f"Do not rely on its means and sds: ask for draws={certificate.draws_needed}, or for a larger tolerance."
    return "Do not rely on its means and sds."

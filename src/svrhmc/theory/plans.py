"""A plan: what a run that reaches an accuracy is, what it costs, and what it promises."""

from __future__ import annotations

from dataclasses import dataclass

from svrhmc.samplers import Sampler
from svrhmc.theory.bounds import Bound
from svrhmc.theory.problem import Problem


@dataclass(frozen=True)
class Plan:
    """A run that reaches the accuracy. `sampler` is ready to run; `w2` is the distance that `rule` promises.

    Where the paper gives only an order of magnitude, only `gradient_evaluations` has a value, and `order` is true.
    """

    method: str
    rule: str
    accuracy: float
    problem: Problem
    gradient_evaluations: float
    assumes: str
    sampler: Sampler | None = None
    steps: int | None = None
    w2: float | None = None
    bound: Bound | None = None

    @property
    def order(self) -> bool:
        """True where only an order of magnitude is known."""
        return self.sampler is None

    @property
    def step_size(self) -> float | None:
        """η."""
        return None if self.sampler is None else self.sampler.dynamics.step_size

    @property
    def batch_size(self) -> int | None:
        """B; n for full gradients."""
        if self.sampler is None:
            return None
        return self.sampler.gradient.recipe(self.problem).rows_of_estimate

    @property
    def epoch_length(self) -> int | None:
        """m, for samplers with snapshots."""
        recipe = None if self.sampler is None else self.sampler.gradient.recipe(self.problem)
        return recipe.period if recipe is not None and recipe.reference == "snapshot" else None

    @property
    def passes(self) -> float:
        """Gradient evaluations over n."""
        return self.gradient_evaluations / self.problem.n

    def __str__(self) -> str:
        head = f"{self.method.upper()} to W₂ ≤ {self.accuracy:g} by rule {self.rule!r}"
        rows: list[tuple[str, str]] = []
        if self.sampler is not None:
            rows = [("step_size", f"{self.step_size:.4g}"), ("batch_size", f"{self.batch_size:,}")]
            if self.epoch_length is not None:
                rows.append(("epoch_length", f"{self.epoch_length:,}"))
            rows.append(("steps", f"{self.steps:,}"))
        rows += [
            ("gradient evaluations", f"{self.gradient_evaluations:.4g}" + (" (an order only)" if self.order else "")),
            ("data passes", f"{self.passes:.4g}"),
        ]
        if self.w2 is not None:
            rows.append(("W₂ promised", f"{self.w2:.4g}"))
        body = "\n".join(f"  {name:<21} {value}" for name, value in rows)
        return f"{head}\n{body}\n  {self.assumes}"

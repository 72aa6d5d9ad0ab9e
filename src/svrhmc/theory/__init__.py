"""The paper's theory, made usable: bounds, plans, Table 1, and exact laws on quadratics."""

from svrhmc.theory.bounds import (
    Bound,
    Condition,
    Constants,
    PathBounds,
    bound,
    constants,
    diffusion_bounds,
    energy_bounds,
    recursion_bound,
    repaired_bound,
)
from svrhmc.theory.complexity import (
    Comparison,
    Complexity,
    OtherRate,
    Regime,
    Term,
    boundaries,
    compare,
    complexity,
    crossings,
    general_complexity,
    optimal_step,
    other_rates,
    regimes,
    regularisation_distance,
)
from svrhmc.theory.moments import Law, law, laws, stationary
from svrhmc.theory.planning import Plan, plan
from svrhmc.theory.problem import Problem
from svrhmc.theory.recursion import UnsettledError

__all__ = [
    "Bound",
    "Comparison",
    "Complexity",
    "Condition",
    "Constants",
    "Law",
    "OtherRate",
    "PathBounds",
    "Plan",
    "Problem",
    "Regime",
    "Term",
    "UnsettledError",
    "bound",
    "boundaries",
    "compare",
    "complexity",
    "constants",
    "crossings",
    "diffusion_bounds",
    "energy_bounds",
    "general_complexity",
    "law",
    "laws",
    "optimal_step",
    "other_rates",
    "plan",
    "recursion_bound",
    "regimes",
    "regularisation_distance",
    "repaired_bound",
    "stationary",
]

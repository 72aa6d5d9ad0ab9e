"""The paper's theory, made usable: bounds, plans, Table 1, and exact laws on quadratics."""

from svrhmc.theory.bounds import Bound, Condition, Constants, bound, constants, repaired_bound
from svrhmc.theory.complexity import (
    Comparison,
    Complexity,
    Regime,
    Term,
    boundaries,
    compare,
    complexity,
    crossings,
    regimes,
)
from svrhmc.theory.general import OtherRate, general_complexity, other_rates, regularisation_distance
from svrhmc.theory.lemmas import PathBounds, diffusion_bounds, energy_bounds, recursion_bound
from svrhmc.theory.moments import Law, law, laws, stationary
from svrhmc.theory.planning import plan
from svrhmc.theory.plans import Plan
from svrhmc.theory.problem import Problem
from svrhmc.theory.settled import UnsettledError
from svrhmc.theory.steps import optimal_step

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

"""The paper's theory, made usable: bounds, plans, Table 1, and exact laws on quadratics."""

from svrhmc.theory.bounds import Bound, Condition, Constants, bound, constants, repaired_bound
from svrhmc.theory.complexity import Comparison, Complexity, Regime, boundaries, compare, complexity, crossings, regimes
from svrhmc.theory.general import regularisation_distance
from svrhmc.theory.moments import Law, law, laws, stationary
from svrhmc.theory.planning import plan
from svrhmc.theory.plans import Plan
from svrhmc.theory.problem import Problem
from svrhmc.theory.settled import UnsettledError

__all__ = [
    "Bound",
    "Comparison",
    "Complexity",
    "Condition",
    "Constants",
    "Law",
    "Plan",
    "Problem",
    "Regime",
    "UnsettledError",
    "bound",
    "boundaries",
    "compare",
    "complexity",
    "constants",
    "crossings",
    "law",
    "laws",
    "plan",
    "regimes",
    "regularisation_distance",
    "repaired_bound",
    "stationary",
]

"""What is known of rows that came as arrays, or as a data frame without a formula: for those who export the model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from svrhmc.core.arrays import Indices
from svrhmc.core.serialise import part
from svrhmc.tables.groups import GroupDesign, groups_from_array


@part
@dataclass(frozen=True, eq=False)
class ArrayDesign:
    """response: its name, where it has one. classes: of y, in their order. group_terms: the columns of groups, as
    `svrhmc.tables.groups` writes them. matrix: whether the columns have no names, and stand in one matrix.
    """

    response: str = ""
    classes: tuple[str, ...] = ()
    group_terms: Indices | None = None
    matrix: bool = False

    def require_sound(self) -> None:
        """Refuse terms that are none."""
        groups_from_array(self.group_terms)

    @cached_property
    def groups(self) -> tuple[GroupDesign, ...]:
        """The columns of groups."""
        return tuple(groups_from_array(self.group_terms))

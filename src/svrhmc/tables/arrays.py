"""What an export needs to know of rows that were given as arrays, or as a data frame without a formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from svrhmc.core.arrays import Indices
from svrhmc.core.serialise import part
from svrhmc.tables.groups import GroupDesign, groups_from_array


@part
@dataclass(frozen=True, eq=False)
class ArrayDesign:
    """response: its name, or "". classes: the classes of y, in order. group_terms: the columns of groups, as written by
    `svrhmc.tables.groups`. matrix: whether the columns have no names, and are given as one matrix.
    """

    response: str = ""
    classes: tuple[str, ...] = ()
    group_terms: Indices | None = None
    matrix: bool = False

    def require_sound(self) -> None:
        """Raise an error if the stored terms cannot be read."""
        groups_from_array(self.group_terms)

    @cached_property
    def groups(self) -> tuple[GroupDesign, ...]:
        """The columns of groups."""
        return tuple(groups_from_array(self.group_terms))

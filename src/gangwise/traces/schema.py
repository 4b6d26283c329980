"""What a CSV file of a trace must hold: its columns, and rules over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl


def value(column: str) -> pl.Expr:
    """The value of a column, for the rule of a :class:`Check`."""
    import polars as pl

    return pl.col(column)


@dataclass(frozen=True)
class Column:
    """What a column must hold.

    Parameters
    ----------
    name : str
    number : bool
        A finite number from ``least`` to ``most``; otherwise text.
    whole : bool
        The number must be whole, though it may be written as ``1.0``.
    least, most : float
        Numbers beyond are refused; by default negative ones, and what no quantity or time in a
        trace reaches.
    empty : bool
        Whether a field may be empty: a missing number is null, a missing text is empty.
    pattern : str
        A regular expression that a whole text must match, unless it is empty and may be.
    needed : bool
        Whether a file without the column is refused.
    also : tuple of str
        Other spellings of the name that are in use.
    """

    name: str
    number: bool = True
    whole: bool = False
    least: float = 0.0
    most: float = 1e12
    empty: bool = False
    pattern: str = ""
    needed: bool = True
    also: tuple[str, ...] = ()


class Check(NamedTuple):
    """A rule over columns that are needed: rows for which ``broken()`` is true break it."""

    reason: str
    columns: tuple[str, ...]
    broken: Callable[[], pl.Expr]


@dataclass(frozen=True)
class Schema:
    """What a file must hold.

    Parameters
    ----------
    name : str
        What the file is, for messages.
    columns : tuple of Column
    header : bool
        Whether the first line names the columns (in any order); without one, fields are in the
        order of ``columns``.
    separator : str
    json : bool
        Every line is a JSON object; a column named ``a.b`` is field ``b`` of object ``a``.
    absent : tuple of str
        Columns that the header of a fuller table has and that of this one must not.
    unique : str
        The column whose values must differ; of equal ones the first row is used.
    checks : tuple of Check
    """

    name: str
    columns: tuple[Column, ...]
    header: bool = True
    unique: str = ""
    checks: tuple[Check, ...] = ()
    separator: str = ","
    json: bool = False
    absent: tuple[str, ...] = ()

    def place(self, header: Sequence[str]) -> dict[str, int]:
        """Where each column of the schema stands in a header; absent ones are left out."""
        found: dict[str, int] = {}
        for column in self.columns:
            for spelling in (column.name, *column.also):
                if spelling in header and column.name not in found:
                    found[column.name] = header.index(spelling)
        return found

    def matches(self, header: Sequence[str]) -> bool:
        """Whether a header has every column that is needed, and none that must be absent."""
        found = self.place(header)
        return all(column.name in found for column in self.columns if column.needed) and not any(
            name in header for name in self.absent
        )

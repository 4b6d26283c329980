"""Array types, one name for each kind of number, checks of arrays that users give, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, Union, get_args, get_origin

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import GangwiseError, ScenarioError, UnknownName
from gangwise.core.registry import types_of

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]

Positive = Annotated[float, "(0, inf)"]
NonNegative = Annotated[float, "[0, inf)"]
OneOrMore = Annotated[float, "[1, inf)"]
Share = Annotated[float, "[0, 1]"]
PositiveShare = Annotated[float, "(0, 1]"]
NonNegativeInt = Annotated[int, "[0, inf)"]
PositiveInt = Annotated[int, "[1, inf)"]
"""Numbers with the interval that they lie in, which :class:`Checked` looks at."""


def read_only(array: npt.NDArray[Any]) -> Any:
    """Read-only contiguous view of the same numbers: the one kind of array that kernels are given.

    Kernels are compiled anew for arrays that can be written, or have gaps.
    """
    # A view: the caller's own array stays writable.
    view = np.ascontiguousarray(array).view()
    view.setflags(write=False)
    return view


def frozen(given: npt.ArrayLike, kind: type = np.float64, ndim: int = 0) -> Any:
    """Read-only copy of what a user gave."""
    return read_only(np.array(given, dtype=kind, order="C", ndmin=ndim))


def keep(owner: object, **fields: Any) -> None:
    """Set fields of a frozen dataclass while it is made."""
    for name, value in fields.items():
        # A frozen dataclass refuses plain assignment, in ``__post_init__`` as well.
        object.__setattr__(owner, name, value)


def first(bad: npt.ArrayLike) -> Any:
    """Index of the first true value, a tuple of them in a table; None where all are false."""
    places = np.argwhere(bad)
    if not len(places):
        return None
    return int(places[0, 0]) if places.shape[1] == 1 else tuple(places[0].tolist())


def check_amount(amounts: npt.NDArray[Any], what: Callable[[Any], str]) -> None:
    """Raise ScenarioError unless all are finite, zero or larger; ``what`` names one by its index.

    >>> check_amount(np.array([1.0, -2.0]), lambda r: f"capacity of server {r}")
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: capacity of server 1 is -2.0; it must be a finite number, \
zero or larger
    """
    if (at := first(~(np.isfinite(amounts) & (amounts >= 0)))) is not None:
        raise ScenarioError(
            f"{what(at)} is {amounts[at]}; it must be a finite number, zero or larger"
        )


@cache
def _ends(interval: str) -> list[float]:
    return [float(end) for end in interval[1:-1].split(",")]


def check_numbers(interval: str, **numbers: Any) -> None:
    """Raise ScenarioError unless numbers lie in an interval, such as ``(0, 1]``; ranges must rise.

    >>> check_numbers("[0, 1)", epsilon=0.5, rate=(0.2, 0.9))
    >>> check_numbers("(0, inf)", alpha=0.3, floor=0.0)
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: floor is 0.0; it must lie in (0, inf)
    """
    low, high = _ends(interval)
    # Plain comparisons: jobs are drawn and checked in every slot, one number at a time.
    for name, number in numbers.items():
        several = np.ravel(number).tolist() if isinstance(number, np.ndarray) else number
        values = several if isinstance(several, list | tuple) else [several]
        least = low
        for v in values:
            at_open_end = (v == low and interval[0] == "(") or (v == high and interval[-1] == ")")
            if not least <= v <= high or at_open_end:  # NaN is in no interval
                rising = " and rise" if len(values) > 1 else ""
                raise ScenarioError(f"{name} is {number}; it must lie in {interval}{rising}")
            # A range must rise, so that each number is the least that the next may be.
            least = v


@cache
def _rules(kind: Any) -> list[tuple[str, bool, Any, int]]:
    """Fields with an interval or choices: name, whether it may be None, these, how many numbers."""
    rules, hints = list[tuple[str, bool, Any, int]](), types_of(kind, annotated=True)
    for name in (field.name for field in fields(kind)):
        union = get_origin(hints[name]) in (Union, UnionType)
        types = get_args(hints[name]) if union else (hints[name],)
        for part in types:
            if get_origin(part) is Literal:
                rules.append((name, NoneType in types, get_args(part), 0))
            elif get_origin(part) is Annotated and isinstance(get_args(part)[1], str):
                number, interval = get_args(part)
                rules.append((name, NoneType in types, interval, len(get_args(number))))
    return rules


class Checked:
    """Base of dataclasses whose fields keep to their types: an interval, or ``Literal`` choices.

    ScenarioError for a number outside its interval, UnknownName for a choice that there is not.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Half(Checked):
    ...     share: Share = 0.5
    >>> Half(share=2.0)
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: share is 2.0; it must lie in [0, 1]
    """

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, optional, allowed, size in _rules(kind):
            value = getattr(self, name)
            if optional and value is None:
                continue
            if not isinstance(allowed, str):
                if value not in allowed:
                    raise UnknownName(f"value of {name}", value, allowed)
            elif (len(value) if isinstance(value, list | tuple) else 0) != size:
                raise ScenarioError(f"{name} is {value}; it must be {size or 'one'} number(s)")
            else:
                check_numbers(allowed, **{name: value})


def check_names(names: tuple[str, ...], count: int, kind: str) -> tuple[str, ...]:
    """Names of so many things of a kind, numbers where none are given.

    >>> check_names((), 2, "job type")
    ('job-type-0', 'job-type-1')

    Raises ScenarioError where there are more or fewer, or two alike.
    """
    names = tuple(names) or tuple(f"{kind.replace(' ', '-')}-{i}" for i in range(count))
    if len(names) != count:
        raise ScenarioError(f"{len(names)} {kind} names are given; there are {count}")
    if len(set(names)) < count:
        twice = next(name for name, n in Counter(names).items() if n > 1)
        raise ScenarioError(f"{kind} name {twice!r} is used twice")
    return names


class Tabular(Protocol):
    """Protocol of what has a table: a class defines its columns, or makes the frame itself.

    Tools that read Arrow take it as it is: ``pyarrow.table(it)``, ``duckdb.from_arrow(it)``.
    """

    def columns(self) -> Mapping[str, Any]:
        """The table's columns by name, of one length."""
        return {name: column.to_numpy() for name, column in self.to_polars().to_dict().items()}

    def to_polars(self) -> pl.DataFrame:
        import polars as pl  # late: many have tables, few are asked for them, and it takes 0.15 s

        return pl.DataFrame(dict(self.columns()))

    def to_pandas(self) -> Any:
        """The table for pandas; raises GangwiseError without pandas."""
        try:
            import pandas
        except ImportError as error:
            raise GangwiseError("to_pandas needs pandas: pip install pandas") from error
        # By lists: polars' own way to pandas needs pyarrow, which is no dependency.
        return pandas.DataFrame(self.to_polars().to_dict(as_series=False))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The table in Arrow's C stream interface, which pyarrow, DuckDB and others read."""
        return self.to_polars().__arrow_c_stream__(requested_schema)


def numbered(values: Ints) -> tuple[Ints, Ints]:
    """Distinct values in order, and the place of each row's among them [J].

    As ``np.unique(..., return_inverse=True)``; sorted only where their range is much wider than
    they are many, else counted at a tenth of the time.

    >>> numbered(np.array([7, -1, 7]))
    (array([-1,  7]), array([1, 0, 1]))
    """
    low, high = (int(values.min()), int(values.max())) if values.size else (0, 1)
    if low == high:  # as columns are that few logs fill
        return np.array([low]), np.zeros(values.size, dtype=np.int64)
    if high - low >= 4 * values.size:
        return np.unique(values, return_inverse=True)
    present = np.zeros(high - low + 1, dtype=bool)
    present[values - low] = True
    return np.flatnonzero(present) + low, (np.cumsum(present) - 1)[values - low]


def distinct_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """Distinct pairs [2, K] of two columns [J], in order, and the place of each row's [J].

    As ``np.unique(..., axis=1)``, which sorts records, at a tenth of the time.

    >>> pairs, place = distinct_pairs(np.array([3, -1, 3]), np.array([5, 0, 4]))
    >>> pairs.tolist(), place.tolist()
    ([[-1, 3, 3], [0, 4, 5]], [2, 0, 1])
    """
    (a, of_a), (b, of_b) = (numbered(column) for column in (first, second))
    # One whole number for each pair, in the order of pairs;
    # places are small, so that it cannot overflow.
    pairs, place = numbered(of_a * b.size + of_b)
    return np.stack([a[pairs // b.size], b[pairs % b.size]]), place

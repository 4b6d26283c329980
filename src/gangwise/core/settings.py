"""What users set: checks and limits, memory for it, TOML and JSON, dates on the clock of a log."""

from __future__ import annotations

import json
import math
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from gangwise.core.arrays import Floats, check_numbers
from gangwise.core.errors import ScenarioError, UnknownName

LARGEST_COUNT = 1_000_000
"""Most job types, servers, machines or jobs: the largest clusters have a tenth of it."""

MOST_SEEDS = 100_000
MOST_LETTERS = 200
GIB = 2**30

Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
SlotCount = Annotated[int, Field(gt=0, le=1_000_000_000)]
Name = Annotated[str, Field(max_length=MOST_LETTERS)]


def within(interval: str) -> AfterValidator:
    """A range of which both ends lie in an interval, in order."""

    def check(value: tuple[float, float], info: ValidationInfo) -> tuple[float, float]:
        check_numbers(interval, **{str(info.field_name): value})
        return value

    return AfterValidator(check)


PositiveRange = Annotated[tuple[float, float], within("(0, inf)")]

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int | None:
    """Bytes of memory that machine and control group allow this process; None where unknown."""
    limits = []
    with suppress(AttributeError, ValueError, OSError):  # not on this system
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CGROUPS:
        try:
            # Containers see the memory of the whole machine;
            # their own limit is the control group's.
            limits.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return min(limits, default=None)


def require_memory(needed: float, what: str, remedy: str) -> None:
    """Raise ScenarioError when this machine lacks so many bytes.

    ``what`` needs them, and the error suggests to ask for ``remedy``.

    >>> require_memory(1e6, "a run of 1000 slots", "fewer slots")
    >>> require_memory(1e30, "a run of 10**28 slots", "fewer slots")
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: a run of 10**28 slots needs ... GiB of memory, ...
    """
    available = machine_memory()
    if available is not None and needed > available:
        raise ScenarioError(
            f"{what} needs {needed / GIB:,.0f} GiB of memory, this machine has "
            f"{available / GIB:,.0f}; ask for {remedy}"
        )


def require_count(name: str, value: object, most: int = LARGEST_COUNT, least: int = 1) -> None:
    """Raise ScenarioError unless a value is a whole number within limits.

    >>> require_count("steps", 1.5)
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: steps is 1.5; it must be a whole number from 1 to 1000000
    """
    is_whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not (is_whole and least <= int(value) <= most):  # type: ignore[call-overload]  # has __index__
        raise ScenarioError(f"{name} is {value}; it must be a whole number from {least} to {most}")


def require_seeds(seeds: object) -> tuple[int, ...]:
    """Seeds as whole numbers, each once, in their order; a number alone says how many.

    >>> require_seeds([3, 7, 3]), require_seeds(3)
    ((3, 7), (0, 1, 2))
    >>> require_seeds("12")
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: seeds are '12'; give a list of whole numbers, such as [3, 7]
    """
    how = "give a list of whole numbers, such as [3, 7]"
    if hasattr(seeds, "__index__") and not isinstance(seeds, bool):
        seeds = range(int(seeds))
    if isinstance(seeds, str | bytes) or not isinstance(seeds, Iterable):
        raise ScenarioError(f"seeds are {seeds!r}; {how}")
    # One more than allowed is enough to know: the iterable may have no end.
    listed = list(islice(seeds, MOST_SEEDS + 1))
    if len(listed) > MOST_SEEDS:
        raise ScenarioError(f"at most {MOST_SEEDS} seeds")
    for seed in listed:
        if not hasattr(seed, "__index__") or isinstance(seed, bool) or seed < 0:
            raise ScenarioError(f"seed {seed!r} is not a whole number of 0 or more; {how}")
    # dict.fromkeys keeps the order, which a set would not.
    return tuple(dict.fromkeys(int(seed) for seed in listed))


class StrictSettings(BaseModel):
    """Settings, of which none is unknown and none is changed."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Group(StrictSettings):
    """Servers or nodes of a file that have the same devices."""

    name: Name
    count: Count = 1
    devices: dict[str, float]

    @property
    def names(self) -> list[str]:
        """The name, or ``name-0``, ``name-1``, … of several."""
        return [self.name] if self.count == 1 else [f"{self.name}-{i}" for i in range(self.count)]


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn what is wrong with a file into a ScenarioError that names it and the entry at fault."""
    try:
        yield
    except ValidationError as error:
        # One fault at a time: others often follow from it.
        first = error.errors()[0]
        where = "".join(f"{part}." for part in first["loc"])[:-1]
        raise ScenarioError(f"{path}: {where + ': ' if where else ''}{first['msg']}") from error
    except (ScenarioError, UnknownName) as error:
        raise ScenarioError(f"{path}: {error}") from error


BYTES = 480  # memory of a job type on a server: ten numbers for each of six kinds of devices

ModelT = TypeVar("ModelT", bound=BaseModel)


def checked(model: type[ModelT], name: str, given: Mapping[str, Any]) -> ModelT:
    """Settings of the scenario ``name``, checked.

    Raises UnknownName for a setting that does not exist; ScenarioError for a value that makes no
    sense, with the setting's name.
    """
    try:
        settings = model(**given)
        # Problems are as large as job types times servers, before anything is drawn.
        cells = getattr(settings, "job_types", 1) * (getattr(settings, "servers", None) or 1)
        require_memory(
            BYTES * cells, f"scenario {name!r} of {cells} job types times servers", "fewer of them"
        )
        return settings
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"])
        if fault["type"] == "extra_forbidden":
            names = list(model.model_fields)
            raise UnknownName(f"setting of scenario {name!r}", place, names) from error
        at = f"{place}: " if place else ""
        raise ScenarioError(f"scenario {name!r}: {at}{fault_text(fault)}") from error


def fault_text(fault: Mapping[str, Any]) -> str:
    """What pydantic found wrong with a value, and the value.

    >>> fault_text({"msg": "Input should be greater than 0", "input": -1})
    'must be greater than 0, not -1'
    """
    message = str(fault["msg"]).removeprefix("Value error, ")
    message = message.replace("Field required", "is missing")
    if not message.startswith("Input should be "):
        return message
    return f"must be {message.removeprefix('Input should be ')}, not {str(fault['input'])[:80]}"


def require_options(given: Mapping[str, object], known: type) -> None:
    """Raise TypeError, as a call does, for a keyword that is no field of ``known``, a TypedDict."""
    if unknown := given.keys() - known.__annotations__.keys():
        names = ", ".join(known.__annotations__)
        raise TypeError(f"there is no option {min(unknown)!r}; there are {names}")


# Text: TOML, and JSON, which has no word for NaN and Infinity


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises ScenarioError with the file and the line at fault."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: this is no TOML file: {error}") from error


def toml_text(document: Mapping[str, Any]) -> str:
    """A document as TOML: tables and lists of tables one level deep, the rest inline.

    >>> print(toml_text({"cap": [{"most": 2.0, "only": ["a"]}], "start": {"latency": 1.5}}))
    [[cap]]
    most = 2.0
    only = ["a"]
    <BLANKLINE>
    [start]
    latency = 1.5
    """
    plain, blocks = [], []
    for key, value in document.items():
        tables = list(value) if isinstance(value, list | tuple) else [value]
        if not tables or not all(isinstance(table, Mapping) for table in tables):
            plain.append(f"{toml_key(key)} = {toml_value(value)}")
            continue
        heading = f"[{toml_key(key)}]" if isinstance(value, Mapping) else f"[[{toml_key(key)}]]"
        for table in tables:
            lines = [f"{toml_key(name)} = {toml_value(item)}" for name, item in table.items()]
            # Plain entries come before all tables: behind one they would belong to it.
            blocks.append("\n".join([heading, *lines]))
    return "\n\n".join(["\n".join(plain)] * bool(plain) + blocks)


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    # JSON's strings, numbers and truth values are TOML's but for DEL, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def finite(value: Any) -> Any:
    """A value of numbers, text, mappings and lists, with None for what is not finite.

    >>> finite({"low": float("nan"), "ends": (1.5, float("inf"))})
    {'low': None, 'ends': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: Any) -> str:
    r"""JSON as machines and people read it; what is not finite is null.

    >>> json_text([float("inf")])
    '[\n  null\n]'
    """
    return json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)


DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 86400
UNIX = 1e8  # a log whose first second is later than this counts in Unix time


@dataclass(frozen=True)
class Clock:
    """Clock of a log: Unix time of its time 0, and a zone, or seconds that it is ahead of UTC."""

    epoch: float
    zone: str = "UTC"

    @cached_property
    def tz(self) -> tzinfo:
        """The zone; raises ScenarioError for one that this computer does not know."""
        # Some logs give their distance from UTC in seconds instead of a zone.
        if self.zone.lstrip("+-").isdecimal():
            return timezone(timedelta(seconds=int(self.zone)))
        try:
            return UTC if self.zone == "UTC" else ZoneInfo(self.zone)
        except (ValueError, KeyError, OSError) as error:
            raise ScenarioError(
                f"there is no time zone {self.zone!r} here; give one such as 'Europe/Stockholm' "
                "(package tzdata has them all), or seconds ahead of UTC"
            ) from error

    def date(self, at: float) -> datetime:
        """Local date of a time of the log."""
        return datetime.fromtimestamp(self.epoch + at, self.tz)

    def at(self, date: datetime) -> float:
        """Time of the log at a date, which is local where it has no zone of its own."""
        return (date if date.tzinfo else date.replace(tzinfo=self.tz)).timestamp() - self.epoch

    def ahead(self, times: Floats) -> Floats:
        """Seconds by which local clocks are ahead of where they were at the log's time 0."""
        # Clocks change on half hours of Unix time: a zone is asked once for each of them. A log may
        # begin at any second, so that its own hours would miss the change by up to an hour.
        halves, half_of = np.unique((self.epoch + times) // 1800, return_inverse=True)
        dates = (self.date(0.0), *(datetime.fromtimestamp(1800 * n, self.tz) for n in halves))
        zones = [date.utcoffset() or timedelta(0) for date in dates]
        return np.array([(zone - zones[0]).total_seconds() for zone in zones[1:]])[half_of]

    @property
    def monday(self) -> float:
        """Seconds from a Monday, 0:00 local time as it was then, to the log's time 0."""
        date = self.date(0.0)
        return date.weekday() * DAY + (date.hour * 60 + date.minute) * 60 + date.second

    @classmethod
    def of(cls, clock: Clock | None, first: float) -> Clock | None:
        """The clock that a log gives, or Unix time where its first time can be nothing else."""
        return clock or (cls(0.0) if first > UNIX else None)

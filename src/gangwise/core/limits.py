"""Limits of sizes, and memory that is estimated before it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated

from pydantic import Field

from gangwise.core.errors import ScenarioError

LARGEST_COUNT = 1_000_000
"""Most job types, servers, machines or jobs: the largest clusters have a tenth of it."""

MOST_SEEDS = 100_000
MOST_LETTERS = 200
GIB = 2**30

Count = Annotated[int, Field(gt=0, le=LARGEST_COUNT)]
SlotCount = Annotated[int, Field(gt=0, le=1_000_000_000)]
Name = Annotated[str, Field(max_length=MOST_LETTERS)]

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def machine_memory() -> int | None:
    """Bytes of memory that machine and control group allow this process; None where unknown."""
    found = []
    with suppress(AttributeError, ValueError, OSError):  # not on this system
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for name in _CGROUPS:
        try:
            found.append(int(Path(name).read_text()))
        except (OSError, ValueError):  # there is none, or it says "max"
            continue
    return min(found, default=None)


def require_memory(needed: float, what: str, remedy: str) -> None:
    """Raise ScenarioError when this machine lacks so many bytes.

    ``what`` needs them, and the error suggests to ask for ``remedy``.

    >>> require_memory(1e6, "a run of 1000 slots", "fewer slots")
    >>> require_memory(1e30, "a run of 10**28 slots", "fewer slots")
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: a run of 10**28 slots needs ... GiB of memory, ...
    """
    there = machine_memory()
    if there is not None and needed > there:
        raise ScenarioError(
            f"{what} needs {needed / GIB:,.0f} GiB of memory, this machine has "
            f"{there / GIB:,.0f}; ask for {remedy}"
        )


def require_count(name: str, value: object, most: int = LARGEST_COUNT, least: int = 1) -> None:
    """Raise ScenarioError unless a value is a whole number within limits.

    >>> require_count("steps", 1.5)
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: steps is 1.5; it must be a whole number from 1 to 1000000
    """
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not (whole and least <= int(value) <= most):  # type: ignore[call-overload]  # has __index__
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
    found = list(islice(seeds, MOST_SEEDS + 1))
    if len(found) > MOST_SEEDS:
        raise ScenarioError(f"at most {MOST_SEEDS} seeds")
    for seed in found:
        if not hasattr(seed, "__index__") or isinstance(seed, bool) or seed < 0:
            raise ScenarioError(f"seed {seed!r} is not a whole number of 0 or more; {how}")
    return tuple(dict.fromkeys(int(seed) for seed in found))

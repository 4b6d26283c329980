"""What a synthetic twin is made of: distributions in a few numbers, kinds of machines, arrivals.

The numbers of each twin are data, in ``NAME.toml`` beside this module, with their sources.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import UnknownName

HOUR, DAY = 3600.0, 86400.0
NAMES = ("alibaba-gpu-v2020", "alibaba-gpu-v2023", "alibaba-v2018", "google-2011")


class Cdf(NamedTuple):
    """A distribution on the numbers from 0 by a few points of its distribution function.

    ``shares[i]`` of the probability is at most ``values[i]``. Between the points the distribution
    function is linear in the logarithm of the value; what ``shares`` leave at either end has the
    first or the last value.
    """

    values: tuple[float, ...]
    shares: tuple[float, ...]

    @classmethod
    def of(cls, points: Sequence[tuple[float, float]]) -> Cdf:
        """From points (value, share)."""
        return cls(*zip(*points))

    def draw(self, rng: np.random.Generator, size: int, *, whole: bool = False) -> Floats:
        """Draw, shape [size]; ``whole`` numbers keep their shares at the points exactly.

        >>> few = Cdf((0, 1, 8), (0.25, 0.5, 1)).draw(np.random.default_rng(0), 10_000, whole=True)
        >>> [float((few <= bound).mean().round(1)) for bound in (0, 1, 2, 4, 8)]
        [0.3, 0.5, 0.7, 0.8, 1.0]
        """
        u, values = rng.random(size), np.array(self.values, dtype=np.float64)
        least = 0.5 if whole else values[values > 0].min(initial=1.0) / 2
        drawn = np.exp(np.interp(u, self.shares, np.log(np.maximum(values, least))))
        if whole:
            drawn = np.ceil(drawn - 1e-9)
        return np.where(u <= self.shares[0], values[0], drawn)


class Kind(NamedTuple):
    """So many equal machines; the GPUs are all of a model."""

    number: int
    model: str
    cpu: float
    mem: float
    gpu: float = 0.0


class Arrivals(NamedTuple):
    """When jobs arrive: gaps drawn one by one, stretched by the hour, the weekday and the day.

    ``gaps`` are in any unit, since only their ratios count; None for exponential ones, a Poisson
    process. ``hours`` are the relative rates of the 24 hours of a day,
    the first at time 0, and ``weekdays`` of seven days; empty for equal ones. ``spread`` is the
    standard deviation of the logarithm of a factor that each day draws.
    """

    gaps: Cdf | None = None
    hours: Sequence[float] = ()
    weekdays: Sequence[float] = ()
    spread: float = 0.0

    def draw(self, rng: np.random.Generator, per_day: float, days: float) -> Floats:
        """Times in seconds, ascending, from 0 to ``days``.

        >>> steady = Arrivals(Cdf((1.0,), (1.0,))).draw(np.random.default_rng(0), 4, 2.1)
        >>> steady / 3600
        array([ 6., 12., 18., 24., 30., 36., 42., 48.])
        """
        at = np.arange(int(np.ceil(days * 24)))
        rate = _relative(self.hours, at) * _relative(self.weekdays, at // 24)
        factor = np.exp(self.spread * rng.standard_normal(int(np.ceil(days))))
        rate *= (factor / np.exp(self.spread**2 / 2))[at // 24] * per_day / 24
        # A process of rate 1 is drawn, and its times are mapped to those at which so many jobs are
        # expected to have come.
        edges = np.append(at.astype(np.float64), days * 24) * HOUR
        passed = np.concatenate([[0.0], np.cumsum(rate * np.diff(edges) / HOUR)])
        mean = self.gaps.draw(np.random.default_rng(0), 100_000).mean() if self.gaps else 1.0
        time = np.zeros(0)
        while not len(time) or time[-1] < passed[-1]:
            size = int(passed[-1] / 4) + 64
            more = self.gaps.draw(rng, size) / mean if self.gaps else rng.exponential(1.0, size)
            time = np.concatenate([time, np.cumsum(more) + (time[-1] if len(time) else 0.0)])
        arrived: Floats = np.interp(time[time < passed[-1]], passed, edges)
        return arrived


@dataclass(frozen=True)
class Calibration:
    """The numbers that the twin of a trace is drawn from, and what it is good for."""

    name: str  # registered name of the trace
    units: Mapping[str, str]  # of ``cpu``, ``mem`` and ``gpu``
    machines: tuple[Kind, ...]  # all of them, as published
    arrivals: Arrivals
    jobs_per_day: float  # with all of the machines
    tables: Mapping[str, Any]  # numbers of its requests, see :mod:`gangwise.traces.twins.drawing`
    reproduces: str
    leaves_out: str
    days: float  # length by default
    servers: int | None = None  # so many by default; None for all of the machines
    whole: bool = True  # times are whole seconds
    # Settings of its own: the name of each, and what it is.
    options: Mapping[str, str] = field(default_factory=dict)
    # The distance to the real trace that tests allow, by quantity; empty when there is nothing to
    # test against.
    within: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(kind.number for kind in self.machines)


@cache
def calibration(name: str) -> Calibration:
    """What the twin of a trace is drawn from.

    Raises
    ------
    UnknownName
        For a trace without a twin.
    """
    if name not in NAMES:
        raise UnknownName("twin", name, list(NAMES))
    known = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))
    machines = tuple(Kind(*kind) for kind in known.pop("machines"))
    arrivals = known.pop("arrivals", {})
    if "gaps" in arrivals:
        arrivals["gaps"] = Cdf.of(arrivals["gaps"])
    return Calibration(name, machines=machines, arrivals=Arrivals(**arrivals), **known)


def servers_of(machines: Sequence[Kind], servers: int) -> pl.DataFrame:
    """Servers, each kind with its share of them, to the nearest whole number.

    >>> servers_of([Kind(3, "T4", 96, 512, 2), Kind(1, "", 32, 64)], 8)["model"].to_list()
    ['T4', 'T4', 'T4', 'T4', 'T4', 'T4', '', '']
    """
    exact = np.array([kind.number for kind in machines], dtype=np.float64)
    exact *= servers / exact.sum()
    counts = np.floor(exact + 1e-9).astype(np.int64)
    short = servers - int(counts.sum())
    counts[np.argsort(-(exact - counts), kind="stable")[:short]] += 1
    row = np.arange(1, servers + 1)
    data: dict[str, Any] = {"row": row, "name": [f"server-{i:05d}" for i in row]}
    data["model"] = np.repeat([kind.model for kind in machines], counts)
    for name in ("cpu", "mem", "gpu"):
        data[name] = np.repeat([float(getattr(kind, name)) for kind in machines], counts)
    return pl.DataFrame(data)


def choose(rng: np.random.Generator, weights: Sequence[float] | Floats, size: int) -> Ints:
    """Indices, each with a probability in proportion to its weight, shape [size]."""
    p = np.asarray(weights, dtype=np.float64)
    drawn: Ints = rng.choice(len(p), size, p=p / p.sum())
    return drawn


def counted(rng: np.random.Generator, rows: Sequence[Sequence[float]], size: int) -> Floats:
    """Rows drawn by their last number, how often each was counted; the others, [size, columns]."""
    table = np.array(rows, dtype=np.float64)
    drawn: Floats = table[choose(rng, table[:, -1], size), :-1]
    return drawn


def _relative(rates: Sequence[float], at: Ints) -> Floats:
    if not rates:
        return np.ones(len(at))
    return np.asarray(rates, dtype=np.float64)[at % len(rates)] / float(np.mean(rates))

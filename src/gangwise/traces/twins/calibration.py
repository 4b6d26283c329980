"""What a synthetic twin is made of: distributions in a few numbers, kinds of machines, arrivals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.arrays import Floats, Ints

HOUR, DAY = 3600.0, 86400.0


class Cdf(NamedTuple):
    """A distribution on the numbers from 0 by a few points of its distribution function.

    ``shares[i]`` of the probability is at most ``values[i]``. Between the points the distribution
    function is linear in the logarithm of the value; what ``shares`` leave at either end has the
    first or the last value.
    """

    values: tuple[float, ...]
    shares: tuple[float, ...]

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


class Shape(NamedTuple):
    """A request and how often it was counted."""

    cpu: float
    mem: float
    gpu: float
    number: int


class Arrivals(NamedTuple):
    """When jobs arrive: gaps drawn one by one, stretched by the hour, the weekday and the day.

    ``gaps`` are in any unit, since only their ratios count; None for exponential ones, a Poisson
    process. ``hours`` are the relative rates of the 24 hours of a day,
    the first at time 0, and ``weekdays`` of seven days; empty for equal ones. ``spread`` is the
    standard deviation of the logarithm of a factor that each day draws.
    """

    gaps: Cdf | None = None
    hours: tuple[float, ...] = ()
    weekdays: tuple[float, ...] = ()
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
    """How the twin of a trace is drawn, and what it is good for.

    Attributes
    ----------
    name : str
        Registered name of the trace.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``.
    machines : tuple of Kind
        All of them, as published.
    arrivals : Arrivals
    jobs_per_day : float
        With all of the machines.
    servers : int or None
        So many by default; None for all of the machines.
    days : float
        Length by default.
    requests : callable
        ``requests(rng, created, **options)`` gives the rows of ``jobs`` for jobs that arrive at the
        times ``created``: ``at`` (number of the job, from 0), ``created``, ``lifetime`` (from
        creation on), ``cpu``, ``mem``, ``gpu``, ``models``, and where the format has them
        ``tasks``, ``wait``, ``name`` and ``after``.
    whole : bool
        Times are whole seconds.
    options : mapping of str to str
        Settings of its own: the name of each, and what it is.
    reproduces, leaves_out : str
    within : mapping of str to float
        The distance to the real trace that tests allow, by quantity; empty when there is nothing to
        test against.
    """

    name: str
    units: Mapping[str, str]
    machines: tuple[Kind, ...]
    arrivals: Arrivals
    jobs_per_day: float
    requests: Callable[..., pl.DataFrame]
    reproduces: str
    leaves_out: str
    days: float
    servers: int | None = None
    whole: bool = True
    options: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many machines there are in all."""
        return sum(kind.number for kind in self.machines)


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


def choose(rng: np.random.Generator, weights: Sequence[float], size: int) -> Ints:
    """Indices, each with a probability in proportion to its weight, shape [size]."""
    p = np.asarray(weights, dtype=np.float64)
    drawn: Ints = rng.choice(len(p), size, p=p / p.sum())
    return drawn


def typical(rng: np.random.Generator, shapes: Sequence[Shape], size: int) -> Floats:
    """Requests among those that are counted, shape [size, 3]."""
    asked = np.array([shape[:3] for shape in shapes], dtype=np.float64)
    chosen: Floats = asked[choose(rng, [shape.number for shape in shapes], size)]
    return chosen


def _relative(rates: Sequence[float], at: Ints) -> Floats:
    if not rates:
        return np.ones(len(at))
    return np.asarray(rates, dtype=np.float64)[at % len(rates)] / float(np.mean(rates))

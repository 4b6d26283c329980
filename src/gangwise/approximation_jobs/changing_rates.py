"""More rate processes: Markov-modulated, replayed from measurements, machines that come and go.

See :mod:`.rates` for what every process keeps to.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.processes import RateStream
from gangwise.approximation_jobs.rates import BLOCK, BlockStream, Rates, machine_count
from gangwise.core.errors import ScenarioError

__all__ = ["MarkovRates", "MeasuredRates", "Removals"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class MarkovRates:
    """Each machine is in one of S states, which change slot by slot as a Markov chain.

    Parameters
    ----------
    machines : int
    transition : array of shape [S, S]
        Probability of the next slot's state (column), given this slot's (row).
    low, high : array of shape [S]
        In state s the rate is uniform in this range.

    Examples
    --------
    >>> process = MarkovRates(3, [[0.9, 0.1], [0.3, 0.7]], [0.8, 0.0], [0.8, 0.0])
    >>> process.stationary, process.means
    (array([0.75, 0.25]), array([0.6, 0.6, 0.6]))
    """

    machines: int
    transition: Floats
    low: Floats
    high: Floats

    def __post_init__(self) -> None:
        machine_count(self.machines)
        transition = np.array(self.transition, dtype=np.float64, ndmin=2)
        low, high = (np.array(a, dtype=np.float64, ndmin=1) for a in (self.low, self.high))
        S = low.size
        if transition.shape != (S, S) or high.shape != (S,):
            raise ScenarioError(
                f"transition has shape {transition.shape}; low and high have {S} and {high.size} "
                "states"
            )
        if not ((transition >= 0).all() and np.allclose(transition.sum(axis=1), 1, atol=1e-9)):
            raise ScenarioError("every row of transition must be probabilities that sum to 1")
        if not ((low >= 0) & (low <= high) & (high <= 1)).all():
            raise ScenarioError("rates need 0 ≤ low ≤ high ≤ 1 in every state")
        for name, value in (("transition", transition), ("low", low), ("high", high)):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """M."""
        return self.machines

    @property
    def stationary(self) -> Floats:
        """Stationary distribution, shape [S]; of a chain with several, the least squares one."""
        S = self.low.size
        rows = np.vstack([self.transition.T - np.eye(S), np.ones(S)])
        found = np.linalg.lstsq(rows, np.append(np.zeros(S), 1.0), rcond=None)[0]
        return np.asarray(np.round(np.clip(found, 0.0, 1.0), 15))

    @property
    def means(self) -> Floats:
        """Expected rates, shape [M]."""
        return np.full(self.machines, float(self.stationary @ (self.low + self.high) / 2))

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation, in the stationary distribution."""
        return _MarkovStream(self, rng)


class _MarkovStream(BlockStream):
    def __init__(self, process: MarkovRates, rng: np.random.Generator):
        super().__init__(process.machines)
        self.process, self.rng = process, rng
        first = np.cumsum(process.stationary)
        last = process.low.size - 1
        u = rng.random(process.machines)
        self.state: Ints = np.minimum(np.searchsorted(first, u, side="right"), last)
        self.below = np.cumsum(process.transition, axis=1)[:, :-1]

    def block(self) -> Floats:
        p = self.process
        u = self.rng.random((BLOCK, 2, p.size))
        rates = np.empty((BLOCK, p.size))
        for t in range(BLOCK):
            low, high = p.low[self.state], p.high[self.state]
            rates[t] = low + u[t, 0] * (high - low)
            self.state = (u[t, 1][:, None] >= self.below[self.state]).sum(axis=1)
        return rates


@dataclass(frozen=True, eq=False)
class MeasuredRates:
    """Rates replayed from measurements; each machine begins at its own place and goes round.

    Parameters
    ----------
    machines : int
    table : array of shape [slots, W]
        Rates that W workers had, in work per slot. Machine i replays worker i mod W.
    shift : bool
        Begin at a uniformly drawn row per machine; otherwise at the first row.

    Examples
    --------
    >>> process = MeasuredRates(3, [[0.5, 1.0], [0.7, 0.0]], shift=False)
    >>> process.stream(np.random.default_rng(0)).draw(3)
    array([[0.5, 1. , 0.5],
           [0.7, 0. , 0.7],
           [0.5, 1. , 0.5]])
    """

    machines: int
    table: Floats
    shift: bool = True

    def __post_init__(self) -> None:
        machine_count(self.machines)
        table = np.array(self.table, dtype=np.float64, ndmin=2)
        if table.ndim != 2 or 0 in table.shape or not ((table >= 0) & (table <= 1)).all():
            raise ScenarioError(
                "measured rates are a table of slots by workers, within [0, 1]; its shape is "
                f"{table.shape}"
            )
        table.setflags(write=False)
        object.__setattr__(self, "table", table)

    @property
    def size(self) -> int:
        """M."""
        return self.machines

    @property
    def means(self) -> Floats:
        """Means over the table, shape [M]."""
        column = np.arange(self.machines) % self.table.shape[1]
        return np.asarray(self.table.mean(axis=0)[column])

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""
        return _MeasuredStream(self, rng)


class _MeasuredStream(BlockStream):
    def __init__(self, process: MeasuredRates, rng: np.random.Generator):
        super().__init__(process.machines)
        self.process = process
        rows, columns = process.table.shape
        M = process.machines
        self.at = rng.integers(0, rows, M) if process.shift else np.zeros(M, dtype=np.int64)
        self.column = np.arange(M) % columns

    def block(self) -> Floats:
        rows = (self.at + np.arange(BLOCK)[:, None]) % len(self.process.table)
        self.at = (self.at + BLOCK) % len(self.process.table)
        return np.asarray(self.process.table[rows, self.column])


@dataclass(frozen=True, eq=False)
class Removals:
    """Machines that disappear and return: while a machine is away its rate is zero.

    Parameters
    ----------
    base : Rates
        The rates of machines that are there; they go on while a machine is away.
    mean_present, mean_away : float
        Means, in slots, of the geometric lengths of being there and of being away; one or more.

    Notes
    -----
    Nobody is told. A task on a machine that is away is paid for and does no work, which is how a
    policy finds out.

    Examples
    --------
    >>> from gangwise.approximation_jobs.rates import UniformRates
    >>> Removals(UniformRates([1.0], [1.0]), mean_present=300, mean_away=100).means
    array([0.75])
    """

    base: Rates
    mean_present: float = 2000.0
    mean_away: float = 200.0

    def __post_init__(self) -> None:
        for name in ("mean_present", "mean_away"):
            if not (np.isfinite(getattr(self, name)) and getattr(self, name) >= 1):
                raise ScenarioError(f"{name} is {getattr(self, name)}; it is at least one slot")

    @property
    def size(self) -> int:
        """M."""
        return self.base.size

    @property
    def present(self) -> float:
        """Share of the slots in which a machine is there."""
        return self.mean_present / (self.mean_present + self.mean_away)

    @property
    def means(self) -> Floats:
        """Expected rates, shape [M]."""
        return self.present * self.base.means

    def stream(self, rng: np.random.Generator) -> RateStream:
        """Start one realisation."""
        return _RemovalStream(self, rng)


@dataclass
class _RemovalStream(BlockStream):
    process: Removals
    rng: np.random.Generator
    base: RateStream = field(init=False)
    here: Mask = field(init=False)

    def __post_init__(self) -> None:
        super().__init__(self.process.size)
        self.base = self.process.base.stream(self.rng.spawn(1)[0])
        self.here = self.rng.random(self.process.size) < self.process.present

    def block(self) -> Floats:
        p = self.process
        u, here = self.rng.random((BLOCK, p.size)), np.empty((BLOCK, p.size))
        for t in range(BLOCK):
            here[t] = self.here
            leave = 1 / p.mean_present
            self.here = self.here ^ (u[t] < np.where(self.here, leave, 1 / p.mean_away))
        return self.base.draw(BLOCK) * here

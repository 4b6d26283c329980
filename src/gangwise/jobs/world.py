"""Where true rates come from: a drawn world, and measured tables.

The drawn world: node n of generation g runs job j of type l at

    rate = speed_g · exp(A[l, g] + E[l, n] + U[j]) · (straggler at the time? straggling : 1)

with A, E, U normal. Labels tell ``speed_g``; all else is hidden. Everything is drawn from (seed,
what), so that two schedulers under one seed meet the same world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.traces.formats.measured_speeds import GavelThroughputs, MiniBatchTime
from gangwise.traces.formats.measured_speeds import Job as GavelJob


class Drawn(NamedTuple):
    """One world.

    Attributes
    ----------
    jobs : Jobs
        Those given, with the limits drawn.
    nodes : Nodes
        Their declared rates are the generations' speeds.
    conditions : Conditions
        What is hidden.
    generation : ndarray [N]
    stragglers : ndarray [N]
        Who straggles at time 0.
    """

    jobs: Jobs
    nodes: Nodes
    conditions: Conditions
    generation: Ints
    stragglers: Bools


@dataclass(frozen=True)
class DrawnWorld:
    """Generations × affinity × stragglers × noise.

    Parameters
    ----------
    speeds, shares : sequence of float
        Rate of each generation, and its share of the nodes.
    affinity, residual, noise : float
        Standard deviations of log rates: of (job type, generation), (job type, node) and job.
    stragglers, straggling : float
        Share of the nodes, and what is left of their rate.
    spell : float
        Mean seconds for which a straggler is one; others become it as often as keeps their share.
        inf: always the same nodes.
    limits : (float, float)
        Requested limit ÷ run time, uniform between these.

    Examples
    --------
    >>> print(DrawnWorld().told())
    drawn world: 3 generations of rate 1, 0.6, 0.35 in shares 0.4, 0.35, 0.25; affinity 0.2, ...
    """

    speeds: Sequence[float] = (1.0, 0.6, 0.35)
    shares: Sequence[float] = (0.4, 0.35, 0.25)
    affinity: float = 0.2
    residual: float = 0.03
    noise: float = 0.1
    stragglers: float = 0.06
    straggling: float = 0.5
    spell: float = math.inf
    limits: tuple[float, float] = (1.0, 5.0)

    def __post_init__(self) -> None:
        if len(self.speeds) != len(self.shares) or not self.speeds:
            raise ScenarioError("give one share for each speed")
        if min(self.speeds) <= 0 or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ScenarioError("speeds must be positive; shares are zero or more and sum to 1")
        if min(self.affinity, self.residual, self.noise) < 0:
            raise ScenarioError("affinity, residual and noise are standard deviations, 0 or more")
        if not (0 <= self.stragglers < 1 and self.straggling > 0 and self.spell > 0):
            raise ScenarioError("stragglers is a share below 1; straggling and spell are positive")
        if not 0 < self.limits[0] <= self.limits[1]:
            raise ScenarioError(f"limits is {self.limits}; it must be two factors, in order")

    @classmethod
    def alike(cls) -> DrawnWorld:
        """One generation: what differs is stragglers and residuals."""
        return cls(speeds=(1.0,), shares=(1.0,))

    def told(self) -> str:
        """All that is drawn, in a line."""

        def row(values: Sequence[float]) -> str:
            return ", ".join(f"{v:g}" for v in values)

        s = "s" if len(self.speeds) > 1 else ""
        moving = "" if math.isinf(self.spell) else f", each for {self.spell / 3600:g} h on average"
        return (
            f"drawn world: {len(self.speeds)} generation{s} of rate {row(self.speeds)} in shares "
            f"{row(self.shares)}; affinity {self.affinity:g}, residual {self.residual:g}, job "
            f"noise {self.noise:g} (sd of log rates); {100 * self.stragglers:g} % stragglers at "
            f"{self.straggling:g} of their rate{moving}; limits {row(self.limits)} times the work"
        )

    def capacity(self, nodes: int, devices: int) -> float:
        """Work per second of all devices as their labels say, what a load is a share of."""
        counts = np.bincount(self._generations(nodes), minlength=len(self.speeds))
        return float(devices * (counts * np.asarray(self.speeds)).sum())

    def _generations(self, nodes: int) -> Ints:
        """Generation of each node before they are shuffled; what is left over joins the first."""
        counts = np.floor(np.asarray(self.shares) * nodes + 1e-9).astype(np.int64)
        counts[0] += nodes - counts.sum()
        return np.repeat(np.arange(counts.size), counts)

    def draw(self, jobs: Jobs, nodes: int, devices: Mapping[str, float], seed: int) -> Drawn:
        """Nodes n0, n1, … with ``devices`` each, limits and hidden rates for ``jobs``."""
        rng = np.random.default_rng([seed, 17])
        L, J, G = len(jobs.types), len(jobs), len(self.speeds)
        generation = rng.permutation(self._generations(nodes))
        a = rng.normal(0.0, self.affinity, (L, G))
        e = rng.normal(0.0, self.residual, (L, nodes))
        slow = np.zeros(nodes, dtype=bool)
        slow[rng.permutation(nodes)[: round(self.stragglers * nodes)]] = True
        noise = np.exp(rng.normal(0.0, self.noise, J))
        limit = jobs.run * rng.uniform(*self.limits, J)
        log_speed = np.log(np.asarray(self.speeds))[generation]
        factors = [(0.0, int(n), self.straggling) for n in np.flatnonzero(slow)]
        if math.isfinite(self.spell) and self.stragglers > 0:
            horizon = float(jobs.submit.max(initial=0.0)) * 1.5 + 10 * self.spell
            factors += self._spells(slow, horizon, np.random.default_rng([seed, 18]))
        made = Nodes.of(
            Node(f"n{n}", devices, {"generation": f"g{g}"}, float(self.speeds[g]))
            for n, g in enumerate(generation.tolist())
        )
        conditions = Conditions(
            rates=np.exp(log_speed[None, :] + a[:, generation] + e), noise=noise, factors=factors
        )
        return Drawn(replace(jobs, limit=limit), made, conditions, generation, slow)

    def _spells(
        self, slow: Bools, horizon: float, rng: np.random.Generator
    ) -> list[tuple[float, int, float]]:
        """Who straggles from when: exponential spells, stationary from the start."""
        between = self.spell * (1 - self.stragglers) / self.stragglers
        changes = []
        for n, now_slow in enumerate(slow.tolist()):
            time = 0.0
            while True:
                time += float(rng.exponential(self.spell if now_slow else between))
                if time >= horizon:
                    break
                now_slow = not now_slow
                changes.append((time, n, self.straggling if now_slow else 1.0))
        return changes


def rescaled(jobs: Jobs, load: float, capacity: float) -> Jobs:
    """Submissions stretched so that all work takes ``load`` of a capacity while they come.

    Parameters
    ----------
    capacity : float
        Devices × rate, as :meth:`DrawnWorld.capacity` gives it. Devices are those of the first
        device type.
    """
    if not load > 0 or not capacity > 0 or len(jobs) < 2:
        raise ScenarioError("load and capacity must be positive, and two jobs or more")
    demand = np.array([shape.demand[0] / 1000 for shape in jobs.shapes])[jobs.shape]
    work = float((jobs.run * jobs.tasks * demand).sum())
    first, last = float(jobs.submit[0]), float(jobs.submit[-1])
    if last <= first:
        raise ScenarioError("all jobs are submitted at one instant; there is nothing to stretch")
    stretch = work / (load * capacity) / (last - first)
    return replace(jobs, submit=(jobs.submit - first) * stretch)


def throughput_rates(
    table: GavelThroughputs, jobs: Sequence[GavelJob], models: Sequence[str]
) -> Floats:
    """Rates [L, N] of measured jobs on nodes of GPU ``models``: 1 on each job's fastest model.

    Raises
    ------
    ScenarioError
        For a job that does not run on a model that some node has.
    """
    rates = np.empty((len(jobs), len(models)))
    for l, job in enumerate(jobs):
        known = {m: table.throughput[m, job] for m in table.models if (m, job) in table.throughput}
        missing = sorted(set(models) - set(known))
        if missing:
            raise ScenarioError(f"{job.name} on {job.gpus} GPUs was not measured on {missing[0]}")
        rates[l] = [known[m] / max(known.values()) for m in models]
    return rates


def measured_factors(
    trace: MiniBatchTime, job: str, nodes: int, seconds: float, horizon: float
) -> list[tuple[float, int, float]]:
    """Factors on nodes' rates that replay measured iteration times in their recorded order.

    Node n goes as worker n mod W of the training job did: 1 is the mean speed of all workers, and
    all start at the same recorded iteration, so that workers that slowed down together still do.
    Speeds are means over as many iterations as last ``seconds``, taking a mean iteration as one
    second; the record starts anew when it ends.
    """
    speeds = [worker.speed for worker in trace.workers if worker.job == job]
    if not speeds:
        known = ", ".join(sorted(trace.tables))
        raise ScenarioError(f"there is no training job {job!r}; known are {known}")
    block = max(int(seconds), 1)
    length = min(speed.size for speed in speeds) // block
    if length == 0:
        raise ScenarioError(f"{job} has fewer iterations than {block}; take fewer seconds")
    table = np.stack([s[: length * block].reshape(length, block).mean(axis=1) for s in speeds])
    table /= table.mean()
    steps = math.ceil(horizon / seconds)
    return [
        (step * seconds, n, float(table[n % len(speeds), step % length]))
        for step in range(steps)
        for n in range(nodes)
    ]

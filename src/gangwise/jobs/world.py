"""Hidden worlds of true rates: drawn, or from measured tables.

:func:`world_of` makes a :class:`World` from its name: ``unlike``, ``like``, ``drifting``,
``measured:FILE``, with arguments after a colon or a comma. Two schedulers under one seed meet the
same world.

The drawn world: node n of generation g runs job j of type l at

    rate = speed_g · exp(A[l, g] + E[l, n] + U[j]) · (straggler at the time? straggling : 1)

with A, E, U normal. Labels give ``speed_g``; all else is hidden.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from gangwise.core import arrays
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.registry import parse
from gangwise.jobs.distance import USUAL, Distance, levels_of
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.logs.formats.training import GavelJob, GavelThroughputs


class HiddenWorld(NamedTuple):
    jobs: Jobs  # those given, with the limits drawn
    nodes: Nodes  # their declared rates are the generations' speeds
    conditions: Conditions  # what is hidden
    generation: Ints  # [N]
    stragglers: Bools  # [N] who straggles at time 0


@dataclass(frozen=True)
class DrawnWorld(arrays.Checked):
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
    apart, unlike : float
        Mean over job types of the time that a gang of 8 tasks takes longer across the cluster,
        as a share, and standard deviation of its logarithm. It grows evenly with the level of
        distance, and by a tenth with each factor e of tasks.
    rack, block : int
        Nodes of a rack and racks of a block, of nodes that are drawn.

    Examples
    --------
    >>> print(DrawnWorld().describe())
    drawn world: 3 generations of rate 1, 0.6, 0.35 in shares 0.4, 0.35, 0.25; affinity 0.2, ...
    """

    speeds: Sequence[float] = (1.0, 0.6, 0.35)
    shares: Sequence[float] = (0.4, 0.35, 0.25)
    affinity: arrays.NonNegative = 0.2
    residual: arrays.NonNegative = 0.03
    noise: arrays.NonNegative = 0.1
    stragglers: Annotated[float, "[0, 1)"] = 0.06
    straggling: arrays.Positive = 0.5
    spell: Annotated[float, "(0, inf]"] = math.inf
    limits: Annotated[tuple[float, float], "(0, inf)"] = (1.0, 5.0)
    apart: arrays.NonNegative = 0.0
    unlike: arrays.NonNegative = 1.0
    rack: arrays.PositiveInt = 8
    block: arrays.PositiveInt = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.speeds) != len(self.shares) or not self.speeds:
            raise ScenarioError("give one share for each speed")
        if min(self.speeds) <= 0 or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ScenarioError("speeds must be positive; shares are zero or more and sum to 1")

    @property
    def digests(self) -> Mapping[str, str]:
        return {}  # it reads no file

    def describe(self) -> str:
        """What is drawn and assumed, in one line."""
        s = "s" if len(self.speeds) > 1 else ""
        moving = "" if math.isinf(self.spell) else f", each for {self.spell / 3600:g} h on average"
        return (
            f"drawn world: {len(self.speeds)} generation{s} of rate {_row(self.speeds)} in shares "
            f"{_row(self.shares)}; affinity {self.affinity:g}, residual {self.residual:g}, job "
            f"noise {self.noise:g} (sd of log rates); {100 * self.stragglers:g} % stragglers at "
            f"{self.straggling:g} of their rate{moving}{self._distance()}; limits of "
            f"{_range(self.limits)} times the work"
        )

    def _distance(self) -> str:
        if not self.apart:
            return ""
        return (
            f"; gangs of 8 take {100 * self.apart:g} % longer across the cluster (mean over job "
            f"types, sd of logs {self.unlike:g}), less in a block or rack; racks of {self.rack} "
            f"nodes, blocks of {self.block} racks"
        )

    def capacity(self, nodes: int, devices: int) -> float:
        """Work per second of all devices, as the labels of their nodes say."""
        return float(devices * np.asarray(self.speeds)[_generations(self.shares, nodes)].sum())

    def draw(self, jobs: Jobs, nodes: int, devices: Mapping[str, float], seed: int) -> HiddenWorld:
        """Nodes n0, n1, … with ``devices`` each; limits and hidden rates for ``jobs``."""
        # Streams: 17 nodes and rates, 18 spells, 19 distance; each is drawn alone.
        rng = np.random.default_rng([seed, 17])
        # Shuffled, so that first-fit has no fast nodes in front.
        generation = rng.permutation(_generations(self.shares, nodes))
        made = Nodes.of(
            Node(f"n{n}", devices, {"generation": f"g{g}"}, float(self.speeds[g]))
            for n, g in enumerate(generation.tolist())
        )
        if self.apart:
            made = self._in_racks(made)
        drawn = self.hide(jobs, made, generation, seed, rng)
        return drawn._replace(jobs=_limited(jobs, self.limits, rng))

    def hide(
        self, jobs: Jobs, nodes: Nodes, generation: Ints, seed: int, rng: Any = None
    ) -> HiddenWorld:
        """Hidden rates for jobs and nodes that are there; their declared rates are the speeds."""
        rng = rng or np.random.default_rng([seed, 17])
        # Everything is always drawn, in this order: a seed must go on meaning the same world.
        L, N = len(jobs.types), len(nodes)
        a = rng.normal(0.0, self.affinity, (L, len(self.speeds)))
        e = rng.normal(0.0, self.residual, (L, N))
        slow = np.zeros(N, dtype=bool)
        slow[rng.permutation(N)[: round(self.stragglers * N)]] = True
        # One factor a job, on all nodes alike: u of the learner's model.
        noise = np.exp(rng.normal(0.0, self.noise, len(jobs)))
        log_speed = np.log(nodes.declared(jobs.types))
        factors = [(0.0, int(n), self.straggling) for n in np.flatnonzero(slow)]
        if math.isfinite(self.spell) and self.stragglers > 0:
            # Jobs end after the last submission: half as long again, and ten spells.
            horizon = float(jobs.submit.max(initial=0.0)) * 1.5 + 10 * self.spell
            factors += self._spells(slow, horizon, np.random.default_rng([seed, 18]))
        conditions = Conditions(
            rates=np.exp(log_speed + a[:, generation] + e), noise=noise, factors=factors
        )
        if self.apart:
            distance = self._overheads(levels_of(nodes), L, np.random.default_rng([seed, 19]))
            conditions = replace(conditions, distance=distance)
        return HiddenWorld(jobs, nodes, conditions, generation, slow)

    def _in_racks(self, nodes: Nodes) -> Nodes:
        # Nodes in their order fill one rack after the other, and racks one block after the other.
        racks = np.arange(len(nodes)) // self.rack
        places = zip(nodes.labels, racks.tolist())
        return replace(
            nodes,
            labels=tuple(
                {**labels, "rack": f"r{r}", "block": f"b{r // self.block}"} for labels, r in places
            ),
        )

    def _overheads(self, levels: tuple[str, ...], L: int, rng: np.random.Generator) -> Distance:
        """What distance costs each job type, its mean over types being ``apart``."""
        # exp(σ z − σ²/2) has mean 1, so that `apart` is the mean over job types.
        top = self.apart * np.exp(self.unlike * rng.normal(size=L) - self.unlike**2 / 2)
        of_level = np.linspace(0.0, 1.0, len(levels) + 2)
        # Growth is per factor e of tasks; `apart` is of gangs of USUAL tasks, hence the log.
        growth = 0.1 * top[:, None] * of_level
        return Distance(levels, top[:, None] * of_level - growth * math.log(USUAL), growth)

    def _spells(
        self, slow: Bools, horizon: float, rng: np.random.Generator
    ) -> list[tuple[float, int, float]]:
        """Who straggles from when: exponential spells, stationary from the start."""
        # Stationary: share of time slow = spell / (spell + between).
        between = self.spell * (1 - self.stragglers) / self.stragglers
        changes = []
        for n, now_slow in enumerate(slow.tolist()):
            time = 0.0
            # Exponential times have no memory, so the first spell may begin at 0.
            while True:
                time += float(rng.exponential(self.spell if now_slow else between))
                if time >= horizon:
                    break
                now_slow = not now_slow
                changes.append((time, n, self.straggling if now_slow else 1.0))
        return changes


@dataclass(frozen=True)
class MeasuredWorld(arrays.Checked):
    """Nodes of measured GPU models: Gavel's throughputs.

    A job type of the log stands for a training job of the table, drawn among those that were
    measured on all models with as many GPUs as most jobs of the type ask for (the next smaller
    number that was measured). Its work is the log's run time, on the model where it is fastest.
    Labels give the model; what they declare is the geometric mean of all measured jobs there.

    Parameters
    ----------
    file : path
        As of :class:`~gangwise.logs.formats.training.GavelThroughputs`.
    shares : sequence of float
        Of the nodes, by model, the oldest first.
    limits : (float, float)
        Requested limit ÷ run time, uniform between these.
    apart : bool
        Whether gangs on several nodes are as slow as workers spread over servers were measured.
    """

    file: str
    shares: Sequence[float] = (0.25, 0.35, 0.4)
    limits: Annotated[tuple[float, float], "(0, inf)"] = (1.0, 5.0)
    apart: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.shares) != 3 or min(self.shares) < 0 or abs(sum(self.shares) - 1) > 1e-9:
            raise ScenarioError("shares are of k80, p100, v100: zero or more, and sum to 1")

    @cached_property
    def table(self) -> GavelThroughputs:
        return GavelThroughputs(Path(self.file))

    @cached_property
    def measured(self) -> dict[int, list[GavelJob]]:
        """Jobs measured on all models, by their number of GPUs."""
        table = self.table
        able: dict[int, list[GavelJob]] = {}
        for job in table.jobs:
            if all((m, job) in table.throughput for m in table.models):
                able.setdefault(job.gpus, []).append(job)
        if not able:
            raise ScenarioError(f"{self.file}: no job was measured on all of {table.models}")
        return able

    @cached_property
    def declared(self) -> Floats:
        """What labels declare of each model [3]: the geometric mean over all these jobs."""
        every = [job for jobs in self.measured.values() for job in jobs]
        rates = throughput_rates(self.table, every, self.table.models)
        return np.asarray(np.exp(np.log(rates).mean(axis=0)))

    @property
    def digests(self) -> Mapping[str, str]:
        return dict(self.table.digests)

    def describe(self) -> str:
        every = sum(map(len, self.measured.values()))
        models = ", ".join(m.upper() for m in self.table.models)
        return (
            f"measured rates of {every} training jobs on {models} ({self.table.path.name}), "
            f"in shares {_row(self.shares)} of the nodes; labels declare {_row(self.declared)}; "
            "assumed: which training job a job type of the log is (drawn), its work (the log's run "
            f"time where it is fastest), limits of {_range(self.limits)} times the work (drawn)"
        )

    def capacity(self, nodes: int, devices: int) -> float:
        return float(devices * self.declared[_generations(self.shares, nodes)].sum())

    def draw(self, jobs: Jobs, nodes: int, devices: Mapping[str, float], seed: int) -> HiddenWorld:
        rng = np.random.default_rng([seed, 17])
        model = rng.permutation(_generations(self.shares, nodes))
        counts = np.array(sorted(self.measured))
        # As many GPUs as most jobs of the type ask for, of the first device type.
        asked = np.array([shape.demand[0] / 1000 for shape in jobs.shapes])[jobs.shape] * jobs.tasks
        chosen = []
        for l in range(len(jobs.types)):
            sizes, times = np.unique(asked[jobs.type == l], return_counts=True)
            size = float(sizes[np.argmax(times)]) if sizes.size else 1.0
            # The largest measured number that is not above; the smallest where all are above.
            gpus = int(counts[max(int(np.searchsorted(counts, size, side="right")) - 1, 0)])
            among = self.measured[gpus]
            chosen.append(among[int(rng.integers(len(among)))])
        names = [self.table.models[m] for m in model.tolist()]
        made = Nodes.of(
            Node(f"n{n}", devices, {"gpu-model": names[n]}, float(self.declared[m]))
            for n, m in enumerate(model.tolist())
        )
        limited = _limited(jobs, self.limits, rng)
        conditions = Conditions(rates=throughput_rates(self.table, chosen, names))
        if self.apart:
            conditions = replace(conditions, distance=self._overheads(chosen))
        return HiddenWorld(limited, made, conditions, model, np.zeros(nodes, dtype=bool))

    def _overheads(self, jobs: Sequence[GavelJob]) -> Distance:
        """Time spread over servers ÷ time on one, less 1: the geometric mean over models."""
        if not self.table.apart:
            raise ScenarioError(f"{self.file} has no throughputs of workers spread over servers")
        overhead = np.zeros((len(jobs), 2))
        for l, job in enumerate(jobs):
            both = [m for m in self.table.models if (m, job) in self.table.apart]
            ratios = [self.table.throughput[m, job] / self.table.apart[m, job] for m in both]
            if job.gpus > 1 and ratios:
                # Faster when spread is noise of the measurement, and would make distance a gain.
                overhead[l, 1] = max(float(np.exp(np.log(ratios).mean())) - 1.0, 0.0)
        return Distance((), overhead, np.zeros_like(overhead))


World = DrawnWorld | MeasuredWorld
WORLDS: Mapping[str, tuple[type[World], Mapping[str, Any]]] = {
    "unlike": (DrawnWorld, {}),
    "like": (DrawnWorld, {"speeds": (1.0,), "shares": (1.0,)}),
    "drifting": (DrawnWorld, {"spell": 43200.0}),
    "apart": (DrawnWorld, {"speeds": (1.0,), "shares": (1.0,), "stragglers": 0.0, "apart": 0.3}),
    "measured": (MeasuredWorld, {}),
}
"""Worlds by name: three generations; like nodes of which some straggle; stragglers that change;
like nodes in racks, where gangs pay for being apart; measured GPU models."""


def world_of(name: str) -> World:
    """The world of a name, with arguments: ``like:stragglers=0.1``, ``measured:FILE,shares=…``.

    Raises
    ------
    UnknownName
        For a world or an argument that does not exist.
    ScenarioError
        For a value that makes no sense, or where no file is named.

    Examples
    --------
    >>> world_of("like:stragglers=0.1").stragglers
    0.1
    >>> world_of("measured")
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: world measured: name its file, as in measured:PATH
    """
    word, _, options = name.strip().partition(":")
    if word not in WORLDS:
        raise UnknownName("world", word, list(WORLDS))
    make, preset = WORLDS[word]
    settings: dict[str, Any] = dict(preset)
    if make is MeasuredWorld:
        # The file comes first, without a key; all behind it are options with one.
        settings["file"], _, options = options.partition(",")
        if not settings["file"] or "=" in settings["file"]:
            raise ScenarioError(f"world {word}: name its file, as in {word}:PATH")
    accepted = list(make.__dataclass_fields__)
    for key, value in parse(f"{word}:{options}")[1].items():
        if key not in accepted:
            raise UnknownName(f"argument of world {word!r}", key, accepted)
        settings[key] = value
    try:
        return make(**settings)
    except TypeError as error:
        raise ScenarioError(f"world {word!r} with {settings}: {error}") from error


def _row(values: Sequence[float] | Floats) -> str:
    return ", ".join(f"{v:.3g}" for v in values)


def _range(ends: tuple[float, float]) -> str:
    return " to ".join(f"{v:.3g}" for v in ends)


def _limited(jobs: Jobs, limits: tuple[float, float], rng: np.random.Generator) -> Jobs:
    """Jobs with requested limits drawn as multiples of their run times."""
    # A view of one value: all limits are asked for.
    every = np.broadcast_to(True, (len(jobs),))
    return replace(jobs, limit=jobs.run * rng.uniform(*limits, len(jobs)), requested=every)


def _generations(shares: Sequence[float], nodes: int) -> Ints:
    """Generation of each node before they are shuffled; what is left over joins the first."""
    # 1e-9, since in binary 0.29 × 100 is 28.999…
    counts = np.floor(np.asarray(shares) * nodes + 1e-9).astype(np.int64)
    counts[0] += nodes - counts.sum()
    return np.repeat(np.arange(counts.size), counts)


def rescaled(jobs: Jobs, load: float, capacity: float) -> Jobs:
    """Submissions stretched so that all work takes ``load`` of a capacity while they come.

    ``capacity`` is devices of the first device type × rate, as :meth:`DrawnWorld.capacity` has it.
    """
    if not load > 0 or not capacity > 0 or len(jobs) < 2:
        raise ScenarioError("load and capacity must be positive, and two jobs or more")
    demand = np.array([shape.demand[0] / 1000 for shape in jobs.shapes])[jobs.shape]
    work = float((jobs.run * jobs.tasks * demand).sum())
    return stretched(jobs, work / (load * capacity))


def stretched(jobs: Jobs, span: float) -> Jobs:
    """Submissions from 0 to ``span``, in the proportions that they have."""
    begin, end = (float(jobs.submit[i]) for i in (0, -1))
    if end <= begin:
        raise ScenarioError("all jobs are submitted at one instant; there is nothing to stretch")
    submit = (jobs.submit - begin) * (span / (end - begin))
    # A job is withdrawn after having waited for as long as in the log.
    # inf − anything stays inf: jobs that were not withdrawn are left alone.
    return replace(jobs, submit=submit, withdrawn=submit + (jobs.withdrawn - jobs.submit))


def throughput_rates(
    table: GavelThroughputs, jobs: Sequence[GavelJob], models: Sequence[str]
) -> Floats:
    """Rates [L, N] of jobs measured on all models, on nodes of ``models``: 1 on the fastest."""
    rates = np.empty((len(jobs), len(models)))
    for l, job in enumerate(jobs):
        measured = {m: table.throughput[m, job] for m in table.models}
        rates[l] = [measured[m] / max(measured.values()) for m in models]
    return rates

"""What is played, under which rules, and what came of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs import kernels
from gangwise.jobs.books import Books
from gangwise.jobs.choice import ByRate
from gangwise.jobs.model import Account, Conditions, Jobs, Nodes
from gangwise.jobs.scheduler import Composed

NONE = np.zeros(0)


@dataclass(frozen=True)
class Options:
    """Rules of a simulation that are no scheduler's to choose.

    Attributes
    ----------
    enforced : bool
        Whether jobs are killed at their requested limit.
    limits : {"wall-clock", "work"}
        What a limit is: seconds of the clock, as in Slurm, or seconds at rate 1.
    checkpoint : float
        Seconds of work between checkpoints; a failure loses what was done since the last one.
        inf: everything, 0: nothing.
    restart : float
        Seconds that a job cut short needs at its next start before it works on.
    measured_after : float
        Seconds after its start at which a job's rates are measured; once more at its end.
    """

    enforced: bool = False
    limits: Literal["wall-clock", "work"] = "wall-clock"
    checkpoint: float = math.inf
    restart: float = 0.0
    measured_after: float = 60.0


@dataclass(frozen=True, eq=False)
class Schedule:
    """What happened.

    Attributes
    ----------
    start, end : ndarray [J]
        Seconds: first start, and end; NaN for what never came to it.
    last_start : ndarray [J]
        Start of the last attempt, the only one of most jobs.
    phase : ndarray [J]
        As in :mod:`gangwise.jobs.kernels`: finished, killed, cancelled, waiting, set aside, …
    attempts : ndarray [J]
    lost : ndarray [J]
        Device-seconds (of the dominant device type) lost to failures and restarts.
    reserved : ndarray [J]
        EASY: the earliest start promised to the job while it was first in line; inf for none.
    piece_from, piece_count, piece_node, piece_tasks : ndarray
        Last attempt of job j: pieces ``piece_from[j] … + piece_count[j]``.
    cuts : dict of ndarray
        Attempts cut short: ``job``, ``begun``, ``end``, ``why`` (0 node failed, 1 preempted) and
        their pieces ``from``, ``node``, ``tasks``.
    counts : dict
        instants, rounds, tests, kills, requeues, preemptions, cancellations.
    seconds : float
        Wall-clock spent: in the scheduler alone (plain), or in all (compiled).
    account : Account
        Jobs that could not be played on these nodes.
    told : str
        What was played, in a line.
    """

    jobs: Jobs
    nodes: Nodes
    start: Floats
    end: Floats
    last_start: Floats
    phase: npt.NDArray[np.int8]
    attempts: Ints
    lost: Floats
    reserved: Floats
    piece_from: Ints
    piece_count: Ints
    piece_node: Ints
    piece_tasks: Ints
    cuts: dict[str, npt.NDArray[Any]]
    counts: dict[str, int]
    seconds: float
    account: Account
    told: str

    def placed(self, j: int) -> list[tuple[int, int]]:
        """Nodes of job j's last attempt, and tasks on each."""
        p, c = self.piece_from[j], self.piece_count[j]
        return list(zip(self.piece_node[p : p + c].tolist(), self.piece_tasks[p : p + c].tolist()))


@dataclass(frozen=True, eq=False)
class Tables:
    """Arrays that both engines play from."""

    jobs: Jobs
    nodes: Nodes
    options: Options
    conditions: Conditions
    aside: npt.NDArray[np.bool_]
    account: Account
    work: Floats
    doomed: npt.NDArray[np.bool_]
    demand: Ints  # [S, K] over the nodes' device types
    fraction: Ints
    whole: Ints
    per_node: Ints
    constraint: Ints
    dominant: Ints
    allowed: npt.NDArray[np.bool_]  # [C, N]
    log_rates: Floats
    log_noise: Floats
    event_time: Floats
    event_node: Ints
    event_kind: Ints
    event_value: Floats
    wants: Ints

    @classmethod
    def of(cls, jobs: Jobs, nodes: Nodes, conditions: Conditions, options: Options) -> Tables:
        """Bring jobs onto nodes: what can never run there is set aside, and said."""
        J, N, K, S = len(jobs), len(nodes), len(nodes.devices), len(jobs.shapes)
        missing = {k for k in jobs.devices if k not in nodes.devices}
        demand = np.zeros((S, K), dtype=np.int64)
        unknown = np.zeros(S, dtype=bool)
        for s, shape in enumerate(jobs.shapes):
            for k, amount in zip(jobs.devices, shape.demand):
                if k in missing:
                    unknown[s] |= amount > 0
                else:
                    demand[s, nodes.devices.index(k)] = amount
        most = int(jobs.tasks.max(initial=1))
        if most * int(demand.max(initial=1)) >= 2**62 // max(N, 1):
            raise ScenarioError(
                "amounts of devices are too large to be counted in thousandths; "
                "give memory in a larger unit"
            )
        per_node = np.array([s.per_node or most for s in jobs.shapes], dtype=np.int64)
        fraction = np.zeros(S, dtype=np.int64)
        whole = np.zeros(S, dtype=np.int64)
        odd = np.zeros(S, dtype=bool)
        if nodes.shared is not None:
            of_shared = demand[:, nodes.devices.index(nodes.shared)]
            fraction = np.where(of_shared < 1000, of_shared, 0)
            whole = np.where(of_shared >= 1000, of_shared // 1000, 0)
            odd = (of_shared > 1000) & (of_shared % 1000 != 0)
        asked = list(dict.fromkeys(s.constraint for s in jobs.shapes))
        allowed = np.array(
            [[all(has.get(k) == v for k, v in c) for has in nodes.labels] for c in asked],
            dtype=bool,
        ).reshape(len(asked), N)
        constraint = np.array([asked.index(s.constraint) for s in jobs.shapes], dtype=np.int64)

        # How many tasks of each shape the empty cluster takes.
        books = Books.opened(nodes)
        room = np.zeros(S, dtype=np.int64)
        total = np.maximum(nodes.capacity.sum(axis=0), 1)
        dominant = np.argmax(demand / total, axis=1).astype(np.int64) if S else constraint
        for s, shape in enumerate(jobs.shapes):
            if not unknown[s] and not odd[s] and demand[s].any():
                there = shape._replace(demand=tuple(demand[s].tolist()))
                room[s] = int(np.minimum(books.fits(there), most).sum())
        bad_type = unknown[jobs.shape]
        bad_part = odd[jobs.shape] & ~bad_type
        large = (jobs.tasks > room[jobs.shape]) & ~bad_type & ~bad_part
        set_aside = {}
        for bad, reason in (
            (bad_type, f"that ask for {' or '.join(sorted(missing))}, which no node has"),
            (bad_part, f"that ask for a broken number of {nodes.shared} above 1"),
            (large, "larger than the cluster, or than its nodes with the labels asked for"),
        ):
            if bad.any():
                set_aside[reason] = jobs.row[bad]
        aside = bad_type | bad_part | large
        noted = {}
        keep = ~aside[jobs.after]
        if not keep.all():
            noted["dependencies on jobs that were set aside: dropped"] = int((~keep).sum())
        wants = np.broadcast_to(np.int64(0), (J,))
        if keep.size:
            behind = np.repeat(np.arange(J), np.diff(jobs.after_from))
            wants = np.bincount(behind[keep], minlength=J)

        work, doomed = jobs.run, np.zeros(J, dtype=bool)
        if options.enforced and options.limits == "work":
            doomed = jobs.run > jobs.limit
            work = np.minimum(jobs.run, jobs.limit)
        log_rates, log_noise = np.zeros((0, 0)), NONE
        varied = (
            conditions.rates is not None
            or conditions.noise is not None
            or len(conditions.factors) > 0
        )
        if varied:
            wanted = (len(jobs.types), N)
            rates = np.ones(wanted) if conditions.rates is None else np.asarray(conditions.rates)
            noise = np.ones(J) if conditions.noise is None else np.asarray(conditions.noise)
            if rates.shape != wanted or noise.shape != (J,):
                raise ScenarioError(
                    f"rates are {rates.shape} and noise {noise.shape}; they must be [L, N] = "
                    f"{wanted} and [J] = {(J,)}"
                )
            if not ((rates > 0).all() and (noise > 0).all() and np.isfinite(rates).all()):
                raise ScenarioError("a rate is not positive; a node that stands still is down")
            log_rates, log_noise = np.log(rates), np.log(noise)
        happens = [(float(t), kernels.DOWN, int(n), 0.0) for t, n in conditions.downs]
        happens += [(float(t), kernels.DRAIN, int(n), 0.0) for t, n in conditions.drains]
        happens += [(float(t), kernels.UP, int(n), 0.0) for t, n in conditions.ups]
        for t, n, factor in conditions.factors:
            if factor <= 0:
                raise ScenarioError(f"node {n} has a factor of {factor} at {t} s; it must be > 0")
            happens.append((float(t), kernels.FACTOR, int(n), math.log(factor)))
        for t, _, n, _ in happens:
            if not (0 <= n < N and math.isfinite(t) and t >= 0):
                raise ScenarioError(f"an event at {t} s of node {n}: there are {N} nodes")
        for t, j in conditions.cancels:
            if not (0 <= j < J and math.isfinite(t) and t >= 0):
                raise ScenarioError(f"job {j} is cancelled at {t} s: there are {J} jobs")
        withdrawn = [(t, j) for t, j in conditions.cancels if not aside[j]]
        happens += [(float(t), kernels.CANCEL, int(j), 0.0) for t, j in withdrawn]
        happens.sort(key=lambda e: e[0])
        return cls(
            jobs,
            nodes,
            options,
            conditions,
            aside,
            Account(J, set_aside, noted),
            work,
            doomed,
            demand,
            fraction,
            whole,
            per_node,
            constraint,
            dominant,
            allowed,
            log_rates,
            log_noise,
            np.array([e[0] for e in happens]),
            np.array([e[2] for e in happens], dtype=np.int64),
            np.array([e[1] for e in happens], dtype=np.int64),
            np.array([e[3] for e in happens]),
            wants,
        )

    def told(self, name: str, engine: str) -> str:
        """What is played, in a line."""
        o = self.options
        killed = "killed at" if o.enforced else "not killed at"
        unit = "wall-clock" if o.limits == "wall-clock" else "seconds at rate 1"
        return f"{name}, {engine}; limits are {unit}, jobs are {killed} them"


def name_of(scheduler: Any) -> str:
    """What a scheduler is called in a result."""
    if not isinstance(scheduler, Composed):
        return type(scheduler).__name__
    choice = getattr(scheduler.choice, "name", type(scheduler.choice).__name__)
    if isinstance(scheduler.choice, ByRate):
        rates = scheduler.choice.rates
        choice = {"labels": "label"}.get(rates, rates) if isinstance(rates, str) else "learned"
    queue = getattr(scheduler.queue, "name", type(scheduler.queue).__name__)
    return f"{queue}+{scheduler.backfilling}+{choice}"

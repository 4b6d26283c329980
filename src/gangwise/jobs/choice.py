"""Choices of nodes: first-fit, best-fit, worst-fit, fgd, and by rates; beliefs about rates.

Tasks of a gang are placed one after another, each by the rule on what is then free; all or none.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.jobs import fit_kernels, kernels, rate_kernels, schedule, tenancy
from gangwise.jobs.books import Books, Piece, Rate, of_groups
from gangwise.jobs.distance import Apart, Near, believe_costs, level_on, nearest
from gangwise.jobs.model import Job, Nodes, Shape
from gangwise.jobs.rate_kernels import LABELS, MEANS, SHARED, Beliefs, Constants

UNLABELLED = Constants(f=0.3, e=0.2)
"""Priors where nodes declare nothing, so that they may differ by much."""


class SlowNode(NamedTuple):
    """A node that is slower than its label says."""

    node: str
    slower: float  # share of the rate that is missing: 0.48 at 52 % of what its kind does
    low: float  # 95 % credible interval of it
    high: float


class KnownNode(NamedTuple):
    """Beliefs about one node: f given a, and residuals by job type."""

    generation: str
    f: tuple[float, float, float]  # mean at a = 0, variance, when last seen
    of_type: dict[str, tuple[float, float, float]]  # slope on a, sum and count of residuals

    @classmethod
    def of(cls, b: Beliefs, n: int, types: Sequence[str], generation: str) -> KnownNode:
        columns = zip(types, b.f_slope[:, n], b.e_sum[:, n], b.e_count[:, n], strict=True)
        of_type = {name: (float(h), float(s), float(c)) for name, h, s, c in columns}
        f = float(b.f_mean[n]), float(b.f_var[n]), float(b.f_time[n])
        return cls(generation, f, of_type)

    def put(self, b: Beliefs, n: int, types: Sequence[str]) -> None:
        b.f_mean[n], b.f_var[n], b.f_time[n] = self.f
        for l, name in enumerate(types):
            if name in self.of_type:
                b.f_slope[l, n], b.e_sum[l, n], b.e_count[l, n] = self.of_type[name]


@dataclass
class Rates:
    """Base of learners: nodes and job types by name, and the compiled state.

    Parameters
    ----------
    constants : Constants
        What is assumed of rates, and the constants of decisions.
    generation : str, optional
        Label of nodes whose values are generations, such as ``gpu-model``. Without, nodes that
        declare the same rates are one generation.
    """

    constants: Constants = field(default_factory=Constants)
    generation: str | None = None
    state: Beliefs | None = field(default=None, init=False, repr=False)
    nodes: tuple[str, ...] = field(default=(), repr=False)
    types: tuple[str, ...] = field(default=(), repr=False)
    generations: tuple[str, ...] = field(default=(), repr=False)
    _away: dict[str, KnownNode] = field(default_factory=dict, init=False, repr=False)
    kind: ClassVar[int] = LABELS

    def __post_init__(self) -> None:
        c = self.constants
        bad = [k for k, v in c._asdict().items() if not (math.isfinite(v) and v >= 0)]
        if bad:
            raise ScenarioError(f"{bad[0]} is {getattr(c, bad[0])}; it must be zero or more")
        if c.a <= 0 or c.epsilon <= 0 or c.memory <= 0:
            raise ScenarioError("a, epsilon and memory must be positive")

    def beliefs(self, nodes: Nodes, job_types: Sequence[str]) -> Beliefs:
        """State for these nodes and job types; what was learned of those known before stays."""
        named = [repr(rate) for rate in nodes.rates]
        if self.generation is not None:
            named = [str(l.get(self.generation, "")) for l in nodes.labels]
        # Generations keep their numbers; new ones come behind.
        # A generation without nodes is kept: its numbers index arrays of what was learned.
        generations = tuple(dict.fromkeys([*self.generations, *named]))
        generation = np.array([generations.index(name) for name in named], dtype=np.int64)
        devices = np.zeros(len(generations))
        # The device type of which the cluster has most stands for its size.
        counted = nodes.capacity[:, np.argmax(nodes.capacity.sum(axis=0))] / 1000.0
        np.add.at(devices, generation, counted)
        labels = np.log(nodes.declared(job_types))
        state = rate_kernels.no_beliefs(
            self.kind, labels, generation, len(generations), self.constants, devices
        )
        if (former := self.state) is not None:
            for n, name in enumerate(self.nodes):  # of those that leave it is kept for their return
                label = self.generations[former.generation[n]]
                self._away[name] = KnownNode.of(former, n, self.types, label)
            self._keep(state, former, tuple(job_types))
            # A node that comes back is remembered if it is of the same kind as before.
            stayed = set(self.nodes)
            for n, name in enumerate(nodes.names):
                memory = self._away.pop(name, None)
                alike = memory is not None and memory.generation == generations[generation[n]]
                if memory is not None and (alike or name in stayed):
                    memory.put(state, n, tuple(job_types))
            _refer_to_generations(state)
        self.state, self.nodes, self.types = state, nodes.names, tuple(job_types)
        self.generations = generations
        return state

    def _keep(self, new: Beliefs, old: Beliefs, types: tuple[str, ...]) -> None:
        """Copy beliefs about generations, and about job types that are still there."""
        # Job types have other numbers now; those that are gone are forgotten.
        place = {name: l for l, name in enumerate(types)}
        l_old = [l for l, name in enumerate(self.types) if name in place]
        l_new = [place[self.types[l]] for l in l_old]
        G = old.a_mean.shape[0]
        for g in range(G):
            new.a_mean[g, l_new] = old.a_mean[g, l_old]
            # μ and Σ are cut to the job types that are left, which is exact: marginals of a normal.
            new.a_cov[g][np.ix_(l_new, l_new)] = old.a_cov[g][np.ix_(l_old, l_old)]
        new.release[:G] = old.release
        new.backlog[:G] = old.backlog
        new.release_time[:] = old.release_time
        new.ratio[:], new.seen[:] = old.ratio, old.seen
        new.needs[l_new] = old.needs[l_old]

    def _bound(self) -> Beliefs:
        if self.state is None:
            raise ScenarioError("no nodes yet: call beliefs(nodes, job_types) first")
        return self.state

    def observe(
        self, job_type: str, nodes: Sequence[str], rates: Sequence[float], now: float = 0.0
    ) -> None:
        """Learn from one gang: its ranks ran on ``nodes`` at ``rates``, work per second."""
        state = self._bound()
        l = _index("job type", job_type, self.types)
        at = np.array([_index("node", name, self.nodes) for name in nodes], dtype=np.int64)
        if len(rates) != at.size or not all(r > 0 and math.isfinite(r) for r in rates):
            raise ScenarioError(f"{at.size} nodes have the rates {list(rates)}; one each, above 0")
        logs = np.log(np.asarray(rates, dtype=np.float64))
        rate_kernels.observe(state, l, at, logs, at.size, True, now, at.size)

    def estimate(self, job_type: str, now: float = 0.0) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the log rate on every node, both [N]."""
        state = self._bound()
        mean, sd = np.empty(len(self.nodes)), np.empty(len(self.nodes))
        rate_kernels.believe(state, _index("job type", job_type, self.types), now, mean, sd)
        return mean, sd

    def slow_nodes(self, by: float = 0.05) -> list[SlowNode]:
        """Nodes more than ``by`` slower than their kind; none where nothing is shared."""
        return []


@dataclass
class Labels(Rates):
    """Declared rates are believed; only how much of its limit a job needs is learned."""

    kind: ClassVar[int] = LABELS


@dataclass
class MeanRates(Rates):
    """A mean per (job type, node), with ESDP's index v̂ + √(ln(t + 1) / 2n), ESDP (9) and (10).

    t counts the gangs observed. Channels never used come first, so that every job type is tried
    on every node: L × N cold starts, which is what this loses by.
    """

    kind: ClassVar[int] = MEANS


@dataclass
class SharedFactors(Rates):
    """log rate = log label + a[type, generation] + f[node] + e[type, node] + u[job] + ε.

    Exact posterior means and variances of a and f, from recursive least squares
    (:mod:`gangwise.jobs.rate_kernels`); e shrunk residual means. An innovation beyond three
    standard deviations widens f[node] by 0.4 first, so that stragglers and healing are found at
    once.

    Examples
    --------
    >>> from gangwise.jobs.model import Nodes
    >>> rates = SharedFactors()
    >>> state = rates.beliefs(Nodes.alike(8, {"gpu": 8}), ["train"])
    >>> for _ in range(5):
    ...     for n in range(8):
    ...         rates.observe("train", [f"n{n}"], [0.5 if n == 3 else 1.0])
    >>> [(s.node, round(s.slower, 2)) for s in rates.slow_nodes()]
    [('n3', 0.49)]
    """

    kind: ClassVar[int] = SHARED

    def slow_nodes(self, by: float = 0.05) -> list[SlowNode]:
        """Nodes that are surely (97.5 %) more than ``by`` slower than their kind; worst first."""
        mean, sd = self.node_factors()
        slow = []
        for name, m, s in zip(self.nodes, mean.tolist(), sd.tolist(), strict=True):
            # Even the upper end of the 95 % interval is more than ``by`` below its kind.
            if m + 1.96 * s < math.log1p(-by):
                low, high = 1 - math.exp(m + 1.96 * s), 1 - math.exp(m - 1.96 * s)
                slow.append(SlowNode(name, 1 - math.exp(m), low, high))
        return sorted(slow, key=lambda node: -node.slower)

    def node_factors(self) -> tuple[Floats, Floats]:
        """Posterior mean and standard deviation of f [N]."""
        b = self._bound()
        return b.f_mean - b.f_shift, np.sqrt(b.f_var + b.f_extra)


def _index(kind: str, name: str, known: tuple[str, ...]) -> int:
    if name not in known:
        raise UnknownName(kind, name, list(known))
    return known.index(name)


def _refer_to_generations(b: Beliefs) -> None:
    """Bring h·μ, Σh and h·Σh up to date with the a of each node's generation."""
    # What a tells of a node is f's slope times the mean of its generation's a.
    slope = np.ascontiguousarray(b.f_slope.T)
    cross = np.einsum("nij,nj->ni", b.a_cov[b.generation], slope)
    b.f_shift[:] = (slope * b.a_mean[b.generation]).sum(axis=1)
    b.f_cross[:] = cross.T
    b.f_extra[:] = (slope * cross).sum(axis=1)


Tasks = list[tuple[int, int]]


class Choice(Protocol):
    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Nodes and tasks on them for the whole gang, in the order of choosing; None if no room."""


def pieces_of(choice: Any, job: Job, chosen: Tasks, books: Books) -> tuple[Piece, ...]:
    """Tasks on nodes with their shared devices: by the choice's own rule, if it has one."""
    own: Any = getattr(choice, "tell_apart", None)
    if own is None:
        return books.tell_apart(job.shape, chosen)
    return tuple(own(job.shape, chosen, books))


def placed(
    choice: Any, job: Job, books: Books, now: float, ups: Sequence[Bools] = ()
) -> tuple[Tasks, tuple[Piece, ...]] | None:
    """Nodes and tasks of a gang by a choice, and its pieces; None for no room.

    Groups of unlike tasks are placed one after another, in the order of ``shape.groups``, each as
    a gang beside those before it. Where this finds no room, each takes the first nodes; where that
    finds none, all ways are searched. ``ups`` are the nodes that each group may use [N], where not
    all that are up.
    """
    if not job.shape.groups:
        chosen = choice.place(job, replace(books, up=ups[0]) if ups else books, now)
        return None if chosen is None else (chosen, pieces_of(choice, job, chosen, books))
    # Where the choice leaves no room for a later group, the first nodes may.
    for by in (choice, FirstFit()):
        trial, tasks_of, pieces = books.copy(), Tasks(), list[Piece]()
        for i, (tasks, shape) in enumerate(job.shape.groups):
            group = replace(job, tasks=tasks, shape=shape)
            view = replace(trial, up=ups[i]) if ups else trial
            # A group may start on no node of those before it.
            if job.apart:
                view = replace(view, up=view.up.copy())
                view.up[[n for n, _ in tasks_of]] = False
            chosen = by.place(group, view, now)
            if chosen is None:
                break
            group_pieces = pieces_of(by, group, chosen, trial)
            trial.take(shape, group_pieces)
            # Unlike groups share nodes, so each must see what the one before it took.
            tasks_of += chosen
            pieces += group_pieces
        else:
            return tasks_of, tuple(pieces)
    chosen = books.search(job.shape, ups, job.apart)
    return (chosen, books.tell_apart(job.shape, chosen)) if chosen else None


def main_group(job: Job, books: Books) -> int:
    """Place among its groups of the one that holds most devices of the dominant type."""
    kind = books.dominant(job.shape)
    return int(np.argmax([tasks * shape.demand[kind] for tasks, shape in job.groups]))


def fill(tasks: int, fits: Ints, order: Iterable[int]) -> Tasks:
    """Tasks on nodes in order, each filled before the next; fewer where there is no more room."""
    chosen: Tasks = []
    for n in order:
        if tasks <= 0:
            break
        if fits[n] > 0:
            chosen.append((int(n), min(int(fits[n]), tasks)))
            tasks -= chosen[-1][1]
    return chosen


def left_over(shape: Shape, books: Books, sign: int, tasks: int = 0) -> Floats:
    """Score of each node in best-fit (sign −1) and worst-fit (+1) after so many tasks [N].

    ::

        sign × Σₖ free[n, k] ÷ C[k]  −  K × Σ over k of which the task asks nothing of
                                            ((node n has some) + (some of it is free))

    over the K device types; C[k] is the largest node's amount. Nodes with GPUs are so kept from
    tasks without, first of all where GPUs are free. Terms are added in the order of device types,
    as :func:`gangwise.jobs.fit_kernels.left_over` does, for ties.
    """
    K = len(shape.demand)
    largest = np.maximum(books.capacity.max(axis=0), 1)
    score = np.zeros(len(books.free))
    for k, d in enumerate(shape.demand):
        free = books.free[:, k] - tasks * d
        score += sign * (free / largest[k])
        # Spares nodes that have what this task does not ask for, first of all where it is free.
        if d == 0:
            score -= K * ((books.capacity[:, k] > 0).astype(np.int64) + (free > 0))
    return score


def best_nodes(
    job: Job, books: Books, worth: Callable[[], Floats], among: Bools | None = None
) -> Tasks | None:
    """Nodes (of those among) by falling worth [N], each filled before the next; None for no room.

    Ties go to the first node.
    """
    fits = books.fits(job.shape)
    if among is not None:
        fits = np.where(among, fits, 0)
    if int(fits.sum()) < job.tasks:
        return None
    room = np.flatnonzero(fits)
    return fill(job.tasks, fits, room[np.argsort(-worth()[room], kind="stable")])


def best_fit(job: Job, books: Books, among: Bools | None = None) -> Tasks | None:
    """The nodes (of those among) with least left over, as :func:`left_over` has it.

    Of groups of unlike tasks, ``among`` concerns the one that holds most devices.
    """
    if job.shape.groups:
        ups = [books.up] * len(job.shape.groups)
        if among is not None:
            ups[main_group(job, books)] = books.up & among
        chosen = placed(BestFit(), job, books, 0.0, ups)
        return None if chosen is None else chosen[0]
    return best_nodes(job, books, lambda: left_over(job.shape, books, -1), among)


class Worth(ABC):
    """Base of choices that prefer nodes by a number; override :meth:`worth`."""

    @abstractmethod
    def worth(self, job: Job, books: Books, now: float) -> Floats:
        """See :func:`gangwise.jobs.rate_kernels.score`."""

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Best nodes first, each filled before the next."""
        return best_nodes(job, books, lambda: self.worth(job, books, now))


@dataclass
class FirstFit(Worth):
    """First-fit: nodes in their order."""

    name: ClassVar[str] = "first-fit"

    def worth(self, job: Job, books: Books, now: float) -> Floats:
        return -np.arange(len(books.free), dtype=np.float64)


@dataclass
class BestFit(Worth):
    """The node with least left over, of all device types (:func:`left_over`)."""

    name: ClassVar[str] = "best-fit"

    def worth(self, job: Job, books: Books, now: float) -> Floats:
        return left_over(job.shape, books, -1)


@dataclass
class WorstFit:
    """The node with most left over, of all device types (:func:`left_over`), for each task anew."""

    name: ClassVar[str] = "worst-fit"

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        fits: Ints = books.fits(job.shape)
        if int(fits.sum()) < job.tasks:
            return None
        # Scores after 0, 1, 2, … tasks on each node: a task changes the score of its own node
        # alone.
        # No node gets more than its room, so scores beyond that are not needed.
        least = min(job.tasks, int(fits.max()))
        scores = np.stack([left_over(job.shape, books, 1, tasks) for tasks in range(least)])
        score = np.where(fits > 0, scores[0], -np.inf)
        count: Counter[int] = Counter()
        for _ in range(job.tasks):
            n = int(np.argmax(score))
            count[n] += 1
            score[n] = scores[count[n], n] if count[n] < min(fits[n], least) else -np.inf
        return list(count.items())


@dataclass
class FGD:
    """Fragmentation gradient descent (Weng et al., *Beware of Fragmentation*, ATC 2023).

    F_n = Σ_m w_m × what is free of node n's shared devices that a task of class m cannot use: all
    of it where the task cannot run there or asks for no such device, otherwise what is free of
    devices with less than it asks of one. Each task goes to the node, and on it to the device,
    where F_n grows least. As in the authors' scheduler, whose scores are whole percents, growths
    are told apart in steps: of 1/25 of a device for the mean task, rounded up. Ties go to the
    fullest device and the first node. Without steps the rule packs worse: docs/jobs/filling.md.

    Parameters
    ----------
    classes : sequence of (Shape, tasks), optional
        The workload: classes of tasks and how many there are. By default the tasks submitted so
        far, which is all that a live scheduler knows.
    """

    classes: tuple[tuple[Shape, int], ...] = ()
    name: ClassVar[str] = "fgd"
    _seen: dict[Shape, int] = field(default_factory=dict, init=False, repr=False)
    _jobs: set[str] = field(default_factory=set, init=False, repr=False)

    def __post_init__(self) -> None:
        self._seen = dict(self.classes)

    def take_in(self, books: Books) -> None:
        if self.classes:
            return
        for event in books.events:
            if event.kind == "submitted" and event.job and event.job.id not in self._jobs:
                self._jobs.add(event.job.id)
                for tasks, shape in event.job.groups:
                    self._seen[shape] = self._seen.get(shape, 0) + tasks

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Nodes chosen task by task, on a copy of the books."""
        trial = books.copy()
        count: dict[int, int] = {}
        single = job.shape._replace(per_node=0)
        # `per_node` is counted here over the whole gang, not by `fits` for one task.
        for _ in range(job.tasks):
            able = trial.fits(single) > 0
            if job.shape.per_node:
                able[[n for n, c in count.items() if c >= job.shape.per_node]] = False
            if not able.any():
                return None
            # Nodes do not interact, so only the growth on each counts; ties go to the first.
            steps, mask = self._growth(single, trial, able)
            n = int(np.argmin(steps))
            trial.take(single, [(n, 1, int(mask[n]))])
            count[n] = count.get(n, 0) + 1
        return list(count.items())

    def tell_apart(self, shape: Shape, tasks: Tasks, books: Books) -> tuple[Piece, ...]:
        """Shared devices of tasks placed on nodes: nodes do not interact, so each by itself."""

        def device(trial: Books, n: int) -> int:
            return int(self._growth(shape, trial, np.arange(len(trial.up)) == n)[1][n])

        return books.tell_apart(shape, tasks, device)

    def _growth(self, shape: Shape, books: Books, able: Bools) -> tuple[Ints, Ints]:
        """Steps by which F grows with one more task on each node that is able, and its devices [N].

        The most steps there are on other nodes. ``books`` are copies that may be tried on.
        """
        if books.nodes.shared is None:
            raise ScenarioError("fgd looks at single devices: build Nodes with shared='gpu'")
        # A shape that was not counted yet has weight 0.
        shapes = list(dict.fromkeys([*self._seen, shape]))
        # Only the counts are of this call; kernels fill the other fields of the memo.
        memo = np.zeros(len(shapes), dtype=kernels.MEMO)
        memo["seen"][: len(self._seen)] = list(self._seen.values())
        room = kernels.FreeDevices(books.free, books.device, np.zeros_like(books.free))
        steps = np.full(able.size, np.iinfo(np.int64).max)
        mask = np.zeros(able.size, dtype=np.int64)
        cluster = schedule.cluster_of(books.nodes, shapes, 1)
        fit_kernels.growths(cluster, memo, room, shapes.index(shape), able, steps, mask)
        return steps, mask


@dataclass
class ByRate(Worth):
    """Nodes by rates: those of labels, the true ones, or learned ones.

    Parameters
    ----------
    rates : {"labels", "oracle"} or learner
        A learner has ``beliefs(nodes, job_types)``, which gives the state of
        :mod:`gangwise.jobs.rate_kernels`.
    waits : bool
        Whether a gang may wait for better nodes.
    look : float
        Seconds between looks at running jobs, which are measured again and may move; inf for none.
    near : Near, optional
        What is believed of distance: gangs then go where they run fastest together.
    """

    rates: Any = "labels"
    waits: bool = False
    look: float = math.inf
    near: Near | None = None
    name: ClassVar[str] = "label"
    walled: bool = field(default=False, init=False, repr=False)
    state: Any = field(default=None, init=False, repr=False)
    _types: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _truth: Any = field(default=None, init=False, repr=False)
    _factor: Any = field(default=None, init=False, repr=False)
    _apart: Any = field(default=None, init=False, repr=False)

    def resize(self, nodes: Nodes, job_types: tuple[str, ...]) -> None:
        # The job types of the beliefs before, which find their rows in the new ones.
        former = (self.state.near, tuple(self._types)) if self.state and self.near else None
        self._types = {name: l for l, name in enumerate(job_types)}
        learner = Labels() if isinstance(self.rates, str) else self.rates
        # Labels tell nothing of how much of its limit a job needs; slower nodes come last anyway.
        # Under limits of the clock a slow node may cost a job its end.
        walled = self.walled and self.rates != "labels"
        near = None if self.near is None else self.near.beliefs(nodes, job_types, former)
        self.state = learner.beliefs(nodes, job_types)._replace(walled=walled, near=near)

    def reveal(self, log_rates: Floats, log_factor: Floats, apart: Apart | None) -> None:
        """The oracle alone is shown the truth about rates: by the simulation, nowhere else."""
        self._apart = apart
        self._truth = log_rates if log_rates.size else None
        self._factor = log_factor

    def believed(self, job: Job, now: float) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log rates [N]."""
        assert self.state is not None, "resize comes first"
        l = self._types[job.job_type]
        mean, sd = self.state.labels[l].copy(), np.zeros(self.state.labels.shape[1])
        if self.rates == "oracle":
            mean[:] = 0.0 if self._truth is None else self._truth[l] + self._factor
        elif self.rates != "labels":
            rate_kernels.believe(self.state, l, now, mean, sd)
        return mean, sd

    def worth(self, job: Job, books: Books, now: float) -> Floats:
        """See :func:`gangwise.jobs.rate_kernels.score`."""
        # The oracle gets its beliefs from the truth, every other rule from the state.
        mean, sd = self.believed(job, now)
        free = books.free[:, books.dominant(job.shape)] / 1000.0
        out = np.empty_like(mean)
        request = rate_kernels.JobRequest(self._types[job.job_type], books.size(job), job.limit)
        rate_kernels.score(self.state, request, mean, sd, free, out)
        return out

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Best nodes first, each filled before the next; with ``near``, of the best domain."""
        if self.near is None:
            return super().place(job, books, now)
        fits = books.fits(job.shape)
        if int(fits.sum()) < job.tasks:
            return None
        worth, domain = self.worth(job, books, now), self.state.near.domain
        among = nearest(job.tasks, fits, worth, self.costs(job), domain)
        return best_nodes(job, books, lambda: worth, among)

    def costs(self, job: Job) -> Floats:
        """Log slowdown of a gang at each level of distance [H + 1], as believed."""
        if self.rates != "oracle":
            tasks = job.tasks * job.shape.size
            believe_costs(self.state.near, self._types[job.job_type], tasks)
            return np.array(self.state.near.cost)
        if self._apart is None:
            return np.zeros(len(self.state.near.mean) + 1)
        # The factor is on the rate, the cost on the logarithm of time: hence the sign.
        return np.asarray(-np.log(self._apart.factor[self._apart.of_job[job.row]]))

    def slower(self, job: Job, chosen: Iterable[tuple[int, ...]]) -> float:
        """Log slowdown of a gang by the distance of the nodes chosen, as believed."""
        if self.near is None:
            return 0.0
        return float(self.costs(job)[level_on(self.state.near.domain, [p[0] for p in chosen])])

    def holds_off(self, job: Job, chosen: Tasks, books: Books, waiting: int, now: float) -> float:
        """Seconds to wait for better nodes than those chosen; 0 to start."""
        if not self.waits:
            return 0.0
        mean, _ = self.believed(job, now)
        # A gang is as fast as its slowest node.
        slowest = min((n for n, _ in chosen), key=lambda n: mean[n])
        request = self._request(job, books)
        allowed, waited = tenancy.allowed_on(books.nodes, job.shape), now - job.submitted
        seconds = float(
            rate_kernels.wait(self.state, request, slowest, mean, allowed, waiting, waited, now)
        )
        patience = self.state.constants.patience
        if seconds > 0.0 or self.near is None or waited > patience - 1.0:
            return seconds
        alone = math.exp(-mean[slowest]) * rate_kernels.remaining(self.state, job.limit, 0.0)
        near = self._waits_near(job, chosen, books, waiting, alone)
        return float(patience - waited) if near else 0.0

    def _waits_near(
        self, job: Job, chosen: Tasks, books: Books, waiting: int, alone: float
    ) -> bool:
        """Whether a gang waits for nearer nodes, see :func:`.start_kernels.waits_near`."""
        c, near, costs = self.state.constants, self.state.near, self.costs(job)
        level, released = level_on(near.domain, [n for n, _ in chosen]), 0.0
        # Added one by one, in the order of the kernels: np.sum adds in pairs and rounds otherwise.
        for amount in self.state.release.tolist():
            released += amount
        if level == 0 or released <= 0.0:
            return False
        devices = job.shape.demand[books.dominant(job.shape)] / 1000.0
        # Seconds until one more device is released for this gang, those waiting served first.
        dear = c.price * (1.0 + c.crowd * waiting) * devices / released
        most = min(job.shape.per_node or job.tasks, job.tasks)
        fits, demand = np.minimum(books.fits(job.shape), most), np.array(job.shape.demand)
        holds = (books.capacity[:, demand > 0] // demand[demand > 0]).min(axis=1)
        able = tenancy.allowed_on(books.nodes, job.shape) & books.up
        holds = np.where(able, np.minimum(holds, most), 0)
        # From the nearest level up: h = 0 is a node, the next are racks and blocks.
        for h in range(level):
            gain = alone * (math.exp(costs[level]) - math.exp(costs[h]))
            domain_of = np.arange(fits.size) if h == 0 else near.domain[h - 1]
            room_in, free = np.bincount(domain_of, holds), np.bincount(domain_of, fits)
            # Domains that could hold the gang when empty and cannot now.
            able, total = (room_in >= job.tasks) & (free < job.tasks), int(holds.sum())
            lacks = (job.tasks - free[able]).astype(np.int64)
            if gain > 0.0 and any(
                dear * lack * total / size < gain
                for lack, size in zip(lacks.tolist(), room_in[able].astype(np.int64).tolist())
            ):
                return True
        return False

    def _request(self, job: Job, books: Books) -> rate_kernels.JobRequest:
        devices = job.shape.demand[books.dominant(job.shape)] / 1000.0
        return rate_kernels.JobRequest(self._types[job.job_type], job.tasks * devices, job.limit)

    def moves(
        self,
        job: Job,
        pieces: Any,
        chosen: Tasks,
        seen: float,
        done: float,
        restart: float,
        now: float,
    ) -> bool:
        """Whether a job running on ``pieces`` at the rate ``seen`` had better move."""
        mean, sd = self.believed(job, now)
        caution = self.state.constants.caution
        # There by what is sure, here by what is believed: a move has to be worth it.
        current = min(float(mean[n]) for n, _, _ in pieces) - self.slower(job, pieces)
        candidate = min(float(mean[n] - caution * sd[n]) for n, _ in chosen)
        candidate -= self.slower(job, chosen)
        rate, new_rate = math.log(seen), math.log(seen) + candidate - current
        return bool(rate_kernels.migrate(self.state, job.limit, done, rate, new_rate, restart))

    def rate(self, job: Job, chosen: Tasks, now: float) -> float:
        """Believed rate of a gang on nodes."""
        mean, _ = self.believed(job, now)
        return math.exp(min(float(mean[n]) for n, _ in chosen) - self.slower(job, chosen))

    def observe(self, rate: Rate) -> None:
        if self.rates == "labels":
            return
        l, nodes = self._types[rate.job.job_type], np.array(rate.nodes, dtype=np.int64)
        logs = np.array([math.log(r) for r in rate.rates])
        tasks = rate.job.tasks * rate.job.shape.size
        rate_kernels.observe(self.state, l, nodes, logs, len(nodes), rate.first, rate.time, tasks)
        # Work at the rate of the slowest rank, at which the gang went.
        work = (rate.time - rate.begun) * min(rate.rates)
        # How much of its limit a job of this type works, which is how long to expect of others.
        if rate.ended:
            rate_kernels.finished(self.state, rate.job.limit, work, rate.time)
        # A restart keeps a job from doing a whole limit's work: what it needs is not known.
        if self.walled and (rate.ended or rate.time >= rate.begun + rate.job.limit):
            rate_kernels.needed(self.state, l, rate.job.limit, work, not rate.ended)

    def take_in(self, books: Books) -> None:
        """Read the submissions and the devices given back since the last round."""
        if self.rates == "labels":
            return
        for event in books.events:
            job, time = event.job, event.time
            if job is None:
                continue
            # A requeued job is submitted again later than its submission: it was routed before.
            if self.waits and event.kind == "submitted" and time == job.submitted:
                mean, _ = self.believed(job, time)
                rate_kernels.submitted(self.state, self._request(job, books), mean, time)
            if event.released:
                kind = books.dominant(job.shape)
                # Devices given back per generation: how often better nodes come free.
                for shape, pieces in of_groups(job.shape, event.pieces):
                    for n, tasks, _ in pieces:
                        amount = tasks * (shape.demand[kind] / 1000.0)
                        rate_kernels.released(self.state, n, amount, time)

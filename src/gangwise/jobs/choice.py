"""Which nodes: first-fit, best-fit, worst-fit, and by believed rates.

Tasks of a gang are placed one after another, each by the rule on what is then free; all or none.
"""

from __future__ import annotations

import heapq
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs import rate_kernels
from gangwise.jobs.books import Books, Rate
from gangwise.jobs.model import Job, Nodes, Shape
from gangwise.jobs.rates import Labels

Tasks = list[tuple[int, int]]


class Choice(Protocol):
    """A choice of nodes."""

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Nodes and tasks on them for the whole gang, in the order of choosing; None if no room."""


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


def best_fit(job: Job, books: Books, among: Bools | None = None) -> Tasks | None:
    """The fullest nodes (of those among) that hold the whole gang, None if none do.

    Fullest is least free of the job's dominant device type; ties go to the first.
    """
    fits = books.fits(job.shape)
    if among is not None:
        fits = np.where(among, fits, 0)
    if int(fits.sum()) < job.tasks:
        return None
    room = np.flatnonzero(fits)
    free = books.free[room, books.dominant(job.shape)]
    return fill(job.tasks, fits, room[np.argsort(free, kind="stable")])


class Worth(ABC):
    """Base of choices that prefer nodes by a number; override :meth:`worth`."""

    @abstractmethod
    def worth(self, job: Job, books: Books, now: float) -> Floats:
        """Worth of each node for a task [N], larger is better; ties go to the first."""

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Best nodes first, each filled before the next."""
        fits = books.fits(job.shape)
        if int(fits.sum()) < job.tasks:
            return None
        room = np.flatnonzero(fits)
        order = np.argsort(-self.worth(job, books, now)[room], kind="stable")
        return fill(job.tasks, fits, room[order])


@dataclass
class FirstFit(Worth):
    """Nodes in their order."""

    name: ClassVar[str] = "first-fit"

    def worth(self, job: Job, books: Books, now: float) -> Floats:
        """The earlier the better."""
        return -np.arange(len(books.free), dtype=np.float64)


@dataclass
class BestFit:
    """The node with least free of the job's dominant device type."""

    name: ClassVar[str] = "best-fit"

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """The fuller the better."""
        return best_fit(job, books)


@dataclass
class WorstFit:
    """The node with most free of the job's dominant device type, for each task anew."""

    name: ClassVar[str] = "worst-fit"

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Task by task."""
        fits: Ints = books.fits(job.shape)
        if int(fits.sum()) < job.tasks:
            return None
        kind = books.dominant(job.shape)
        heap = [(-int(books.free[n, kind]), int(n)) for n in np.flatnonzero(fits)]
        heapq.heapify(heap)
        count: dict[int, int] = {}
        for _ in range(job.tasks):
            free, n = heap[0]
            count[n] = count.get(n, 0) + 1
            if count[n] == fits[n]:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (free + job.shape.demand[kind], n))
        return list(count.items())


@dataclass
class FGD:
    """Fragmentation gradient descent (Weng et al., *Beware of Fragmentation*, ATC 2023).

    A shared device's free part is a fragment for a task that does not fit on its node, or asks
    for more of one device than is free of it. Each task goes to the node where fragments, over
    the tasks seen so far, grow least.
    """

    name: ClassVar[str] = "fgd"
    _seen: dict[Shape, int] = field(default_factory=dict, init=False, repr=False)
    _jobs: set[str] = field(default_factory=set, init=False, repr=False)

    def take_in(self, books: Books) -> None:
        """Count what is asked for."""
        for event in books.events:
            if event.kind == "submitted" and event.job and event.job.id not in self._jobs:
                self._jobs.add(event.job.id)
                shape = event.job.shape
                self._seen[shape] = self._seen.get(shape, 0) + event.job.tasks

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """Task by task, on a copy of the books."""
        trial = books.copy()
        count: dict[int, int] = {}
        one = job.shape._replace(per_node=0)
        for _ in range(job.tasks):
            best, least = -1, 0
            fits = trial.fits(one)
            before = self._fragments(trial)
            after = trial.copy()
            for n in np.flatnonzero(fits > 0):
                if job.shape.per_node and count.get(int(n), 0) >= job.shape.per_node:
                    continue
                after.take(one, trial.tell_apart(one, [(int(n), 1)]))
            after_all = self._fragments(after)
            for n in np.flatnonzero(fits > 0):
                if job.shape.per_node and count.get(int(n), 0) >= job.shape.per_node:
                    continue
                grows = int(after_all[n] - before[n])
                if best < 0 or grows < least:
                    best, least = int(n), grows
            if best < 0:
                return None
            trial.take(one, trial.tell_apart(one, [(best, 1)]))
            count[best] = count.get(best, 0) + 1
        return list(count.items())

    def _fragments(self, books: Books) -> Ints:
        """Of each node [N]; one task on each was tried at once, for they do not interact."""
        if books.nodes.shared is None:
            raise ScenarioError("fgd looks at single devices: build Nodes with shared='gpu'")
        k = books.nodes.devices.index(books.nodes.shared)
        total = np.zeros(len(books.free), dtype=np.int64)
        for shape, tasks in self._seen.items():
            able = books.fits(shape._replace(constraint=())) > 0
            lost = np.where(books.device < min(shape.demand[k], 1000), books.device, 0)
            total += tasks * np.where(able, lost.sum(axis=1), books.device.sum(axis=1))
        return total


@dataclass
class ByRate(Worth):
    """Nodes by what is believed of their rates: labels, the true ones, or learned ones.

    Parameters
    ----------
    rates : {"labels", "oracle"} or learner
        A learner has ``beliefs(nodes, job_types)``, which gives the state of
        :mod:`gangwise.jobs.rate_kernels`.
    waits : bool
        Whether a gang may wait for better nodes.
    look : float
        Seconds between looks at running jobs, which are measured again and may move; inf for none.
    """

    rates: Any = "labels"
    waits: bool = False
    look: float = math.inf
    name: ClassVar[str] = "label"
    state: Any = field(default=None, init=False, repr=False)
    _types: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _labels: Floats | None = field(default=None, init=False, repr=False)
    _truth: Any = field(default=None, init=False, repr=False)
    _factor: Any = field(default=None, init=False, repr=False)

    def resize(self, nodes: Nodes, job_types: tuple[str, ...]) -> None:
        """Bind to nodes and job types."""
        self._types = {name: l for l, name in enumerate(job_types)}
        self._labels = np.log(nodes.declared(job_types))
        learner = Labels() if isinstance(self.rates, str) else self.rates
        self.state = learner.beliefs(nodes, job_types)

    def reveal(self, log_rates: Floats, log_factor: Floats) -> None:
        """The oracle alone is shown the true rates: by the simulation, nowhere else."""
        self._truth = log_rates if log_rates.size else None
        self._factor = log_factor

    def believed(self, job: Job, now: float) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log rates [N]."""
        assert self._labels is not None, "resize comes first"
        l = self._types[job.job_type]
        mean, sd = self._labels[l].copy(), np.zeros(self._labels.shape[1])
        if self.rates == "oracle":
            mean[:] = 0.0 if self._truth is None else self._truth[l] + self._factor
        elif self.rates != "labels":
            rate_kernels.believe(self.state, l, now, mean, sd)
        return mean, sd

    def worth(self, job: Job, books: Books, now: float) -> Floats:
        """As :func:`gangwise.jobs.rate_kernels.score` has it."""
        mean, sd = self.believed(job, now)
        kind = books.dominant(job.shape)
        free = books.free[:, kind] / 1000.0
        size = job.tasks * job.shape.demand[kind] / 1000.0
        out = np.empty_like(mean)
        rate_kernels.score(self.state, job.limit, size, mean, sd, free, out)
        return out

    def holds_off(self, job: Job, chosen: Tasks, books: Books, waiting: int, now: float) -> float:
        """Seconds to wait for better nodes than those chosen; 0 to start."""
        if not self.waits:
            return 0.0
        mean, _ = self.believed(job, now)
        slowest = min((n for n, _ in chosen), key=lambda n: mean[n])
        devices = job.shape.demand[books.dominant(job.shape)] / 1000.0
        return float(
            rate_kernels.wait(
                self.state,
                self._types[job.job_type],
                job.tasks,
                devices,
                job.limit,
                slowest,
                mean,
                waiting,
                now - job.submitted,
                now,
            )
        )

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
        here = min(float(mean[n]) for n, _, _ in pieces)
        there = min(float(mean[n] - caution * sd[n]) for n, _ in chosen)
        other = math.log(seen) + there - here
        return bool(
            rate_kernels.migrate(
                self.state,
                self._types[job.job_type],
                job.limit,
                done,
                math.log(seen),
                other,
                restart,
            )
        )

    def rate(self, job: Job, chosen: Tasks, now: float) -> float:
        """Believed rate of a gang on nodes."""
        mean, _ = self.believed(job, now)
        return math.exp(min(float(mean[n]) for n, _ in chosen))

    def observe(self, rate: Rate) -> None:
        """Learn from a measurement."""
        if self.rates == "labels":
            return
        nodes = np.array(rate.nodes, dtype=np.int64)
        logs = np.array([math.log(r) for r in rate.rates])
        rate_kernels.observe(
            self.state,
            self._types[rate.job.job_type],
            nodes,
            logs,
            len(nodes),
            rate.first,
            rate.time,
        )
        if rate.ended:
            work = (rate.time - rate.begun) * min(rate.rates)
            rate_kernels.finished(self.state, rate.job.limit, work, rate.time)

    def take_in(self, books: Books) -> None:
        """Hear what was given back, and submitted, since the last round."""
        if self.rates == "labels":
            return
        for event in books.events:
            job = event.job
            if self.waits and job and event.kind == "submitted" and event.time == job.submitted:
                devices = job.shape.demand[books.dominant(job.shape)] / 1000.0
                mean, _ = self.believed(job, event.time)
                l = self._types[job.job_type]
                rate_kernels.submitted(
                    self.state, l, job.tasks, devices, job.limit, mean, event.time
                )
            if event.released and event.job:
                devices = event.job.shape.demand[books.dominant(event.job.shape)] / 1000.0
                for n, tasks, _ in event.pieces:
                    rate_kernels.released(self.state, n, tasks * devices, event.time)

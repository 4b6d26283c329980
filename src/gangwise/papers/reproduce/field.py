"""What others published in this field, played again: its scenarios, see ``papers/field.toml``."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import UnknownName
from gangwise.jobs.gavel import water_filling
from gangwise.jobs.metrics import spread
from gangwise.jobs.model import Conditions, Jobs
from gangwise.papers.reproduce.filling import Filling, drop_recorded_times, with_gpus
from gangwise.study.replay_scenario import ReplayInstance, ReplayScenario, only_jobs
from gangwise.study.runs import Rows

# RLScheduler (Zhang et al., SC 2020)


@dataclass(frozen=True)
class Picked:
    """An order of RLScheduler's environment: who was picked starts before anyone else is picked.

    Time goes on until the picked job has room, whatever comes meanwhile. With ``backfilling``,
    others start first come, first served, if they fit and are due to end before the picked job was
    due to have room when it was picked. Keys do not change with time: ``wfp3`` and ``unicep`` wait
    from −1 − submission, since the environment takes a start that is not known yet for −1.
    """

    order: str
    backfilling: bool = False

    def keys(self, jobs: Jobs) -> list[Any]:
        """Key of each job, the smallest first; times are those of the log."""
        s, r, n, wait = jobs.submit, jobs.limit, jobs.tasks, -1 - jobs.submit
        columns = {
            "fcfs": s,
            "sjf": r,
            "f1": np.log10(np.maximum(r, 0.1)) * n + 870 * np.log10(np.maximum(s, 0.1)),
            "wfp3": -((wait / r) ** 3) * n,
            "unicep": -(wait + 1e-15) / (np.log2(n + 1e-15) * r),
        }
        if self.order not in columns:
            raise UnknownName("order of RLScheduler's environment", self.order, list(columns))
        return [*zip(columns[self.order].tolist(), s.tolist(), strict=True)]

    def start(self, jobs: Jobs, processors: int) -> Floats:
        """Seconds at which each job starts [J]; a task is a processor."""
        begun = np.full(len(jobs), np.nan)
        submit, run, limit = jobs.submit.tolist(), jobs.run.tolist(), jobs.limit.tolist()
        size, keys = jobs.tasks.tolist(), self.keys(jobs)
        queue, running, arrived = [0], list[int](), 1
        free, now = processors, submit[0]

        def event() -> None:
            """Go on to the next submission or end; of both at once, to the submission."""
            nonlocal free, now, arrived
            running.sort(key=lambda j: begun[j] + run[j])
            end = begun[running[0]] + run[running[0]] if running else math.inf
            if arrived < len(jobs) and submit[arrived] <= end:
                now = max(now, submit[arrived])
                queue.append(arrived)
                arrived += 1
            else:
                now, free = max(now, end), free + size[running.pop(0)]

        def begin(j: int) -> None:
            nonlocal free
            begun[j], free = now, free - size[j]
            running.append(j)
            queue.remove(j)

        while queue:
            picked = min(queue, key=keys.__getitem__)
            room, due = free, now
            for j in sorted(running, key=lambda j: begun[j] + limit[j]):
                if room >= size[picked]:
                    break
                room, due = room + size[j], begun[j] + limit[j]
            while size[picked] > free:
                if self.backfilling:
                    for j in sorted(queue):
                        if now + limit[j] < due and size[j] <= free:
                            begin(j)
                event()
            begin(picked)
            while not queue and arrived < len(jobs):
                event()
        return begun


class Sequences(ReplayScenario):
    """Seed s plays the s-th of RLScheduler's sequences of consecutive jobs, from an empty cluster.

    Their first rows are drawn by NumPy's ``RandomState`` from the first eight bytes of the SHA-512
    of their seed, 1, as Gym does it.
    """

    name = "sequences"
    length = 1024

    @property
    def drawn(self) -> bool:
        return True

    def _draw(self, seed: int, keep: Any) -> ReplayInstance:
        digest = hashlib.sha512(b"1").digest()[:8]
        rng = np.random.RandomState(np.frombuffer(digest, dtype="<u4"))
        most, row = len(self.jobs) - self.length - 1, np.arange(len(self.jobs))
        begin = rng.randint(self.length, most, size=seed + 1)[seed]
        jobs = only_jobs(self.jobs, (row >= begin) & (row < begin + self.length))
        return ReplayInstance(jobs, self.log.nodes, Conditions())

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "length": self.length}

    def fidelity(self) -> list[str]:
        line = f"sequences of {self.length:,} consecutive jobs, each from an empty cluster"
        return [f"{line}: {super().fidelity()[0]}"]

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        jobs, nodes, _ = self.draw(seed)
        processors = int(nodes.capacity.sum() // 1000)
        if isinstance(decider, Picked):
            rows, start = Rows(), decider.start(jobs, processors)
            took = start + jobs.run - jobs.submit
            slow = np.maximum(took / np.maximum(jobs.run, 10.0), 1.0)
            for name, value in (spread("completion", took) | spread("slowdown", slow)).items():
                rows.add(name, value)
        else:
            rows = super().replay(decider, seed, slots, label)
            start = rows["job.start"][1]
        whole = processors * (start.max() - jobs.submit[0])
        work = float((jobs.run * jobs.tasks).sum())
        rows.add("utilisation until the last start", work / whole)
        return rows


# Gaussier, Glesser, Reis and Trystram (SC 2015)


class Doubled(ReplayScenario):
    """A log whose jobs ask for twice the time that they asked for."""

    name = "doubled"

    def draw(self, seed: int, keep: Any = None) -> ReplayInstance:
        played = super().draw(seed, keep)
        return played._replace(jobs=replace(played.jobs, limit=2 * played.jobs.limit))

    def fidelity(self) -> list[str]:
        return [f"every request is doubled: {super().fidelity()[0]}"]


# FGD (Weng et al., ATC 2023)


@dataclass(frozen=True)
class Fills:
    """A choice of nodes, one of :data:`gangwise.papers.reproduce.filling.POLICIES`."""

    choice: str


class Unallocated:
    """A cluster with GPUs is filled with the jobs of a trace in random order; none ends.

    Per cent of the GPUs that are not allocated when 100 % and 130 % of them were asked for.
    """

    name = "unallocated"
    family = "jobs"
    slots = 1
    deciders: ClassVar[Literal["policy", "scheduler"]] = "scheduler"
    objective = "unallocated at 130 %"
    minimise = True

    def __init__(self, source: str) -> None:
        self.source = Path(source)

    @cached_property
    def log(self) -> Any:
        return drop_recorded_times(self.source)

    def describe(self) -> dict[str, Any]:
        return {"source": self.source.name, "files": dict(self.log.played.digests)}

    def fidelity(self) -> list[str]:
        return [f"{self.source.name}: jobs in random order, times play no part, none ends"]

    def replay(self, decider: Fills, seed: int, slots: int, label: str) -> Rows:
        filled = Filling(self.log.jobs, with_gpus(self.log.nodes), seed).play(decider.choice)
        rows = Rows()
        rows.add("unallocated at 100 %", 100 - np.interp(100, filled.arrived, filled.allocated))
        rows.add("unallocated at 130 %", 100 - filled.allocated[-1])
        return rows


# Gavel (Narayanan et al., OSDI 2020)


class Entities(Unallocated):
    """Fig. 11's first jobs on nine GPUs: throughputs over those with equal shares.

    Entities of weights 1, 2 and 3 have six jobs each, which weigh 1 and 2 in turn. Throughputs on
    the three kinds of GPUs are sorted draws of Python's generator of seed 0.
    """

    name, objective, minimise = "entities", "total", False

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs

    def describe(self) -> dict[str, Any]:
        return {"jobs": self.jobs}

    def fidelity(self) -> list[str]:
        return ["shares of time are computed, and no time passes"]

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        drawn, j, ones = random.Random(0), np.arange(self.jobs), np.ones(self.jobs, np.int64)
        rates = np.array([sorted(drawn.random() for _ in range(3)) for _ in j])
        part = np.where(j % 2 == 0, 1.0, 2.0)
        arguments = ones, np.ones(self.jobs), np.full(3, 3.0), j // 6, np.arange(1.0, 4.0), part
        level = (rates * water_filling(rates, *arguments)).sum(axis=1) / rates.mean(axis=1)
        rows = Rows()
        for name, value in [("least", min(level)), ("total", sum(level)), *enumerate(level)]:
            rows.add(str(name), value)
        return rows

"""The rounds of Gavel's simulator (OSDI 2020), and Shockwave's jobs in them (NSDI 2023).

Time passes in rounds: who runs in the next is chosen by shares of time, which a policy computes.
Shockwave plays its rivals in Gavel's simulator, on jobs that adapt their batch size as they learn.
"""

from __future__ import annotations

import copy
import hashlib
import math
import random
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError, UnknownName
from gangwise.jobs.gavel import allocation
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import fresh
from gangwise.jobs.simulation import simulate_jobs
from gangwise.logs.formats.training import GavelJob, GavelThroughputs
from gangwise.papers.gangs.placement import Constraints, solved
from gangwise.papers.reproduce.field import Entities
from gangwise.study.runs import Rows

Shares = Callable[[list[int], float], Floats]
"""Shares of time [A, kinds] of the jobs that are in the system, at a time."""


@dataclass
class Work:
    """Jobs in rounds: submission, steps that remain, steps a second on each kind, GPUs of each."""

    submit: Sequence[float]
    remaining: list[float]
    pace: list[list[float]]
    gpus: Sequence[int]

    def advance(self, job: int, steps: float, seconds: float) -> bool:
        """Enter the steps of a round; whether the job is over."""
        self.remaining[job] -= steps
        return self.remaining[job] <= 0

    def adapt(self, active: Sequence[int]) -> None:
        """Let jobs ask for another batch size, at the end of a round."""


@dataclass(frozen=True)
class Rounds:
    """The rounds of Gavel's simulator (§5), under max-min shares or a policy of Shockwave's.

    A round is of ``seconds``, or ends when the last job in it has done its whole steps. Shares are
    computed anew where jobs came or ended, ``between`` seconds after the last time at the earliest;
    before its first a job does not start, though GPUs are kept for it. V100s are given out first,
    then P100s and K80s, each by share over the part of that kind's time since then, by the time
    that is still due, by share; to jobs without a share as well, if there are enough. So where
    there are fewer jobs than V100s, all run there, under any policy. Where nothing runs, the next
    round begins with a submission. A job that did not run in the round before loses ``restart``
    seconds of a full one.
    """

    seconds: float = 360.0
    between: float = 1920.0
    restart: float = 0.0
    policy: str = "max-min"

    def end(self, jobs: Jobs, speed: Floats, room: int) -> Floats:
        """Seconds at which each job ends [J], at ``speed`` steps a second [L, kind], best first."""

        def shares(active: list[int], clock: float) -> Floats:
            share = np.zeros((len(active), speed.shape[1]))
            if len(active) <= room:
                # With a best GPU for everybody there is nothing to share.
                share[:, 0] = 1.0
                return share
            kinds, kind_of, count = np.unique(jobs.type[active], False, True, True)
            arguments = speed[kinds], count, np.ones(len(kinds)), np.full(3, float(room))
            return allocation(*arguments, "max-min")[kind_of]

        work = (jobs.run * speed[jobs.type, 0]).tolist()
        alone = Work(jobs.submit.tolist(), work, speed[jobs.type].tolist(), [1] * len(jobs))
        return self.play(alone, [room] * speed.shape[1], shares)

    def play(self, work: Work, room: Sequence[int], shares: Shares) -> Floats:
        """Seconds at which each job ends [J], on ``room`` GPUs of each kind."""
        J, kinds = len(work.submit), len(room)
        submit, end, rounds = [*map(float, work.submit), math.inf], np.zeros(J), 0
        active, ran, holding, changed = list[int](), set[int](), np.zeros(J, np.bool_), False
        (share, received, due), spent = np.zeros((3, J, kinds)), np.zeros(kinds)
        clock, shared, submitted = 0.0, -math.inf, 0
        while active or submitted < J:
            if rounds and not ran:
                coming = submit[submitted] if submitted < J else shared + self.between
                clock = max(clock, coming)
            while submit[submitted] <= clock:
                active.append(submitted)
                submitted, changed = submitted + 1, True
            # At time 0 their clock of shares counts as not begun.
            if changed and (clock - shared >= self.between or shared == 0.0):
                # What a job was due since the last shares and did not receive is carried over.
                running = [j for j in active if holding[j]]
                due[running] += share[running] * (clock - shared) - (
                    received[running] - self.seconds / 2
                )
                # Every job counts as having had half a round, so that none has had nothing.
                received[active], holding[active] = self.seconds / 2, True
                share[active] = shares(active, clock)
                changed, shared = False, clock
                spent = received[active].sum(axis=0)
            begun, before, ran, over = clock, ran, set(), set()
            for j, g in _placed(work, room, active, (share * spent, received, due, share)):
                if not holding[j]:
                    continue
                steps = min(work.remaining[j], math.floor(self.seconds * work.pace[j][g]))
                finish = begun + steps / work.pace[j][g]
                seconds = finish - begun
                # A round that is cut short is a job's last, and loses nothing.
                if rounds and j not in before and seconds > self.seconds - 5 and self.restart:
                    steps = int(steps * ((seconds - self.restart) / seconds))
                    seconds -= self.restart
                if work.advance(j, steps, seconds):
                    over.add(j)
                ran.add(j)
                end[j], clock = finish, max(clock, finish)
                received[j, g] += seconds
                spent[g] += seconds
            active = [j for j in active if j not in over]
            changed |= bool(over)
            rounds += 1
            work.adapt(active)
        return end


def _placed(
    work: Work, room: Sequence[int], active: list[int], order: tuple[Floats, Floats, Floats, Floats]
) -> list[tuple[int, int]]:
    """Jobs of the next round, and the kind of GPU on which each runs."""
    if sum(work.gpus[j] for j in active) <= room[0]:
        return [(j, 0) for j in active]
    ahead, received, due, share = order
    rows, placed = np.array(active), list[tuple[int, int]]()
    for g, free in enumerate(room):
        # Priority of a job on a kind: its share over the part of the kind's time that it had.
        priority = ahead[rows, g] / np.maximum(received[rows, g], 1.0)
        for j in rows[np.lexsort((-share[rows, g], -due[rows, g], -priority))].tolist():
            if work.gpus[j] <= free:
                free -= work.gpus[j]
                placed.append((j, g))
        taken = {j for j, _ in placed}
        rows = np.array([j for j in rows.tolist() if j not in taken], dtype=np.int64)
    return placed


# Gavel's jobs

TABLES = tomllib.loads(
    Path(__file__).with_name("papers").joinpath("adapting.toml").read_text("utf-8")
)
BATCHES: dict[str, list[int]] = TABLES["batches"]
TRAINED = [f"{model} (batch size {n})" for model, of in BATCHES.items() for n in of]
TRAINED += ["A3C", "CycleGAN"]
"""Gavel's job types in the order in which its simulator chooses among them."""


class Arrivals(Entities):
    """Jobs of one GPU as Gavel's simulator draws them, on 36 GPUs each of three kinds.

    They come as a Poisson process, one in ``gap`` seconds. On a V100 a fifth takes 10³ to 10⁴
    minutes and the others 10^1.5 to 10³, log-uniform. Measured are jobs 4,000 to 4,999 of those
    ``played``.
    """

    name, objective, minimise = "arrivals", "completion, s", True

    def __init__(self, source: str, gap: float, draws: int, played: tuple[int, int]) -> None:
        self.source, self.gap, self.draws, self.played = Path(source), gap, draws, played

    @cached_property
    def table(self) -> GavelThroughputs:
        return GavelThroughputs(self.source)

    def describe(self) -> dict[str, Any]:
        drawn = {"gap": self.gap, "draws": self.draws, "played": list(self.played)}
        return {**drawn, "files": dict(self.table.digests)}

    def fidelity(self) -> list[str]:
        return [f"jobs {self.played[0]:,} to {self.played[1] - 1:,} that Gavel's simulator draws"]

    def drawn(self) -> Jobs:
        drawn, gaps = random.Random(self.draws + 2), random.Random(self.draws + 3)
        submit, run, kind = [0.0], list[float](), list[str]()
        for _ in range(self.played[1]):
            drawn.random()  # how many GPUs, of which one is taken here
            spread = (3, 4) if drawn.random() >= 0.8 else (1.5, 3)
            run.append(60 * 10 ** drawn.uniform(*spread))
            kind.append(drawn.choice(TRAINED))
            submit.append(submit[-1] - math.log(1 - gaps.random()) * self.gap)
        at = slice(*self.played)
        return Jobs.of(submit[:-1][at], run[at], 1, {"gpu": 1}, type=kind[at])

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        jobs, rows = self.drawn(), Rows()
        models = self.table.models[::-1]
        speed = np.array(
            [[self.table.throughput[m, GavelJob(t, 1)] for m in models] for t in jobs.types]
        )
        if isinstance(decider, Rounds):
            end = decider.end(jobs, speed, 36)
        else:
            rates = speed / speed[:, :1]
            declared = [dict(zip(jobs.types, rate, strict=True)) for rate in rates.T.tolist()]
            nodes = Nodes.of(
                Node(model, {"gpu": 36}, {"model": model}, rate)
                for model, rate in zip(models, declared, strict=True)
            )
            world = Conditions(rates=rates)
            end = simulate_jobs(jobs, nodes, fresh(decider), world, Options(restart=0.0)).end
        took = (end - jobs.submit)[4000 - self.played[0] : 5000 - self.played[0]].mean()
        rows.add("completion, s", took)
        rows.add("completion, h", took / 3600)
        return rows


# Shockwave's jobs

SAMPLES: dict[str, int] = TABLES["samples"]
LARGEST = {model: batches[-1] for model, batches in BATCHES.items()} | {"Transformer": 128}


def _doubled_at(model: str, first: int, gpus: int) -> list[int]:
    """Epochs at which a job that follows the gradient noise scale doubles its batch."""
    epochs: list[int] = TABLES["doubled"].get(model, {}).get(str(gpus), {}).get(str(first), [])
    return epochs


def _epochs(steps: float, model: str, batch: int) -> int:
    return math.ceil(steps / math.ceil(SAMPLES[model] / batch))


def _is_critical(model: str, first: int, epoch: int) -> bool:
    """Whether Accordion keeps the first batch size, for gradients change fast."""
    match model:
        case "LM":
            return epoch < 10
        case "Recommendation":
            return epoch < (30 if first <= 1024 else 40 if first == 2048 else 10)
        case "ResNet-50":
            return epoch % 30 < 10
    return epoch < (20 if first == 256 else 10) or 150 <= epoch < 160 or 250 <= epoch < 260


def _batches(model: str, first: int, gpus: int, mode: str, epochs: int) -> list[int]:
    """Batch size of each epoch as users expect it, by which long jobs are ended."""
    largest = LARGEST[model]
    if mode == "gns":
        doubled = _doubled_at(model, first, gpus)
        sizes = [min(first << sum(e >= at for at in doubled), largest) for e in range(epochs)]
        # In its file of phases the last epoch is not doubled, unless in the first of them.
        return [*sizes[:-1], first] if len(doubled) > 1 and epochs > doubled[1] else sizes
    if mode == "accordion" and model != "Transformer":
        late = {*range(60, 70), *range(80, 90)} if model == "Recommendation" else set[int]()
        kept = (
            e <= 0.3 * epochs or e in late or _is_critical(model, first, e) for e in range(epochs)
        )
        return [first if keep else largest for keep in kept]
    return [first] * epochs


class Adapting(Work):
    """Shockwave's jobs, on GPUs of one kind.

    A job asks for another batch size by the epochs that it has completed, and has it from the end
    of its next round on; its steps are counted anew so that whole epochs remain. One that ran for
    half as long again as its epochs take is ended.
    """

    def __init__(self, file: Path, speed: dict[GavelJob, float]) -> None:
        fields = [line.split("\t") for line in file.read_text().splitlines()]
        if any(len(row) != 12 for row in fields):
            raise TraceError("expected twelve fields in each row, as Shockwave writes them", file)
        self.speed, self.mode = speed, [row[7] for row in fields]
        self.model = [row[0].split()[0] for row in fields]
        self.batch = [int(row[0].rstrip(")").split()[-1]) for row in fields]
        self.first, self.asked = list(self.batch), list(self.batch)
        self.steps, self.done = [int(row[5]) for row in fields], [0.0] * len(fields)
        gpus, submit = [int(row[6]) for row in fields], [float(row[11]) for row in fields]
        pace = [[self._pace(j, gpus[j], n)] for j, n in enumerate(self.batch)]
        super().__init__(submit, list(map(float, self.steps)), pace, gpus)
        self.run = [0.0] * len(fields)
        self.longest = [1.5 * int(sum(self._expected(j))) for j in range(len(fields))]

    def only(self, job: int) -> Adapting:
        """One of the jobs, submitted at 0."""
        for name, values in vars(self).items():
            if isinstance(values, list):
                setattr(self, name, values[job : job + 1])
        self.submit = [0.0]
        return self

    def _pace(self, j: int, gpus: int, batch: int) -> float:
        return self.speed.get(GavelJob(f"{self.model[j]} (batch size {batch})", gpus), 0.0)

    def _expected(self, j: int) -> Floats:
        model, gpus = self.model[j], self.gpus[j]
        epochs = _epochs(self.steps[j], model, self.first[j])
        sizes = _batches(model, self.first[j], gpus, self.mode[j], epochs)
        return np.array([SAMPLES[model] / n / self._pace(j, gpus, n) for n in sizes])

    def advance(self, job: int, steps: float, seconds: float) -> bool:
        self.run[job] += seconds
        self.done[job] += steps
        over = self.done[job] >= self.steps[job] or self.run[job] > int(self.longest[job])
        model, old, new = self.model[job], self.batch[job], self.asked[job]
        pace = self._pace(job, self.gpus[job], new)
        self.asked[job] = old
        if new != old and pace:
            epochs, whole = _epochs(self.steps[job], model, old), math.ceil(SAMPLES[model] / new)
            done = _epochs(self.done[job], model, old) * whole
            steps_left = math.ceil(self.steps[job] * (1 / (new / old)))
            if _epochs(steps_left, model, new) != epochs:
                steps_left = whole * epochs
            self.steps[job], self.done[job] = steps_left, done
            self.batch[job] = self.asked[job] = new
            self.pace[job] = [pace]
        self.remaining[job] = self.steps[job] - self.done[job]
        return over

    def adapt(self, active: Sequence[int]) -> None:
        for j in active:
            model, batch, first = self.model[j], self.batch[j], self.first[j]
            largest, epoch = LARGEST[model], _epochs(self.done[j], model, batch)
            if first == largest:
                continue
            if self.mode[j] == "accordion" and model != "Transformer":
                critical = _is_critical(model, first, epoch)
                if batch == first and not critical:
                    self.asked[j] = largest
                elif batch != first and critical:
                    self.asked[j] = first
            elif self.mode[j] == "gns" and batch < largest:
                # It looks an epoch ahead, and doubles once in a round.
                doubled = _doubled_at(model, first, self.gpus[j])
                if first << sum(epoch + 1 >= at for at in doubled) > batch:
                    self.asked[j] = 2 * batch


class Rivals:
    """Shares of time on one kind of GPU under the policies that Shockwave is compared with.

    Where many shares are as good, theirs are what their solver happens to give: a point inside of
    the optimal face. Ours is that of HiGHS's interior-point method without crossover.
    """

    POLICIES = "gandiva-fair", "allox", "max-min", "throughput", "makespan", "finish-time"

    def __init__(self, policy: str, work: Work, room: int) -> None:
        if policy not in self.POLICIES:
            raise UnknownName("rival of Shockwave", policy, self.POLICIES)
        self.compute = getattr(self, policy.replace("-", "_"))
        self.work, self.room, self.alone = work, room, dict[int, float]()
        self.last = dict[int, tuple[float, float]]()  # of each job: AlloX's share; steps, pace

    def __call__(self, active: list[int], clock: float) -> Floats:
        work = self.work
        gpus = np.array([work.gpus[j] for j in active], dtype=np.float64)
        pace = np.array([work.pace[j][0] for j in active])
        # Seconds of work, not steps: jobs differ in what a step takes.
        left = np.array([work.remaining[j] for j in active]) / pace
        age = clock - np.array([work.submit[j] for j in active])
        return np.asarray(self.compute(active, gpus, pace, left, age))[:, None]

    def gandiva_fair(self, active: list[int], gpus: Floats, *_: Floats) -> Floats:
        return np.full(gpus.size, min(1.0, self.room / gpus.size))

    def max_min(self, active: list[int], gpus: Floats, *_: Floats) -> Floats:
        """The largest t with g x ≥ t for each job."""
        t = gpus.size  # the column after those of the shares
        rows = [(np.array([i, t]), np.array([-g, 1.0]), 0.0) for i, g in enumerate(gpus)]
        return self._inside(np.append(np.zeros(t), 1.0), gpus, rows=rows)

    def throughput(self, active: list[int], gpus: Floats, pace: Floats, *_: Floats) -> Floats:
        """The largest Σ pace x."""
        return self._inside(pace, gpus)

    def makespan(
        self, active: list[int], gpus: Floats, pace: Floats, left: Floats, age: Floats
    ) -> Floats:
        """Some shares by which all could end within T, the least T but for 5 %, by bisection."""
        # Nothing ends before the longest job does, or before all GPUs have done all the work.
        needed, low, high = max(left.max(), gpus @ left / self.room), 100.0, 1e6
        while 1.05 * low < high:
            middle = (low + high) / 2
            low, high = (low, middle) if middle >= needed else (middle, high)
        return self._inside(np.zeros(gpus.size), gpus, least=left / high)

    def finish_time(
        self, active: list[int], gpus: Floats, pace: Floats, left: Floats, age: Floats
    ) -> Floats:
        """The least max ρ (Themis): time to the end over that with an equal part of the GPUs."""
        part = np.minimum(self.room / gpus.size / gpus, 1.0)
        steps = left * pace
        for i, j in enumerate(active):  # what a job has done, at its equal part of that time
            before, rate = self.last.get(j, (steps[i], 1.0))
            self.alone[j] = self.alone.get(j, 0.0) + (before - steps[i]) / rate
            self.last[j] = steps[i], pace[i] * part[i]
        isolated = np.array([self.alone[j] for j in active]) + left / part

        def least(ratio: float) -> Floats:
            time = ratio * isolated - age
            return np.where(time > 0, left / np.maximum(time, 1e-9), np.inf)

        low, high = 0.0, 1e6
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            shares = least(middle)
            fits = shares.max() <= 1 and gpus @ shares <= self.room
            low, high = (low, middle) if fits else (middle, high)
        return self._inside(np.zeros(gpus.size), gpus, least=least(high))

    def allox(
        self, active: list[int], gpus: Floats, pace: Floats, left: Floats, age: Floats
    ) -> Floats:
        """Least sum of completions, as if every job had one GPU; a job of one GPU keeps it."""
        # Jobs with a whole share keep it: AlloX moves none of them.
        share = np.array([self.last.get(j, (0.0, 0.0))[0] for j in active])
        free = self.room - int((share == 1.0).sum())
        rows = np.flatnonzero(share != 1.0)
        # The oldest fifth, or as many as there are GPUs.
        rows = rows[np.argsort(-age[rows], kind="stable")][: max(int(0.2 * rows.size), free)]
        # A job that ends as the k-th from the last on its GPU is waited for k times.
        turns = np.repeat(np.arange(1, rows.size + 1), free)
        if turns.size:
            chosen, columns = linear_sum_assignment(turns * left[rows, None] + age[rows, None])
            # On each GPU the one with the most turns runs first, and alone has a share.
            order = np.lexsort((-(columns // free), columns % free))
            _, first = np.unique(columns[order] % free, return_index=True)
            begins = rows[chosen[order[first]]]
            share[begins] = 1.0 / gpus[begins]
        self.last = {j: (share[i], 0.0) for i, j in enumerate(active)}
        return share

    def _inside(
        self, gain: Floats, gpus: Floats, least: Floats | float = 0.0, rows: Sequence[Any] = ()
    ) -> Floats:
        """Shares in [least, 1] that fit, of the largest gain; the last of more columns is free."""
        columns, jobs = gain.size, np.arange(gpus.size)
        fit = [(jobs, gpus, float(self.room)), *rows]
        upper = np.where(np.arange(columns) < gpus.size, 1.0, np.inf)
        options = {"solver": "ipm", "run_crossover": "off", "presolve": "off"}
        bounds = np.zeros(columns) + least, upper
        h = solved(gain, bounds, Constraints.of(fit), options)
        shares: Floats = np.array(h.getSolution().col_value)
        return np.clip(shares[: gpus.size], 0.0, 1.0)


class Adapted(Entities):
    """Shockwave's 120 jobs of 1, 2 and 4 GPUs on 32, in rounds of two minutes.

    Schedulers of gangwise play them as jobs that take as long as alone in such rounds: all GPUs
    are alike, so nothing that a scheduler does changes a job's phases.
    """

    name, objective, minimise = "adapted", "makespan, s", True
    GPUS = 32

    def __init__(self, source: str) -> None:
        self.source = Path(source)

    @cached_property
    def table(self) -> GavelThroughputs:
        return GavelThroughputs(self.source.with_name("tacc_throughputs.json"))

    def work(self) -> Adapting:
        speed = self.table.throughput
        return Adapting(
            self.source, {job: v for (model, job), v in speed.items() if model == "v100"}
        )

    def describe(self) -> dict[str, Any]:
        jobs = hashlib.sha256(self.source.read_bytes()).hexdigest()
        return {"files": {self.source.name: jobs, **self.table.digests}}

    def fidelity(self) -> list[str]:
        return ["jobs adapt their batch size at the epochs that Shockwave's authors measured"]

    def alone(self, rounds: Rounds) -> Jobs:
        """The jobs with the time that each takes alone, from its start."""
        work, run = self.work(), list[float]()
        for j in range(len(work.submit)):
            row = copy.deepcopy(work).only(j)
            run.append(float(rounds.play(row, [self.GPUS], Rivals("gandiva-fair", row, 32))[0]))
        submit = np.array(work.submit)
        return Jobs.of(submit, run, work.gpus, {"gpu": 1}, type=work.model)

    def replay(self, decider: Any, seed: int, slots: int, label: str) -> Rows:
        rows, work = Rows(), self.work()
        if isinstance(decider, Rounds):
            end = decider.play(work, [self.GPUS], Rivals(decider.policy, work, self.GPUS))
        else:
            jobs, nodes = self.alone(Rounds(120, 1000)), Nodes.alike(8, {"gpu": 4})
            end = simulate_jobs(jobs, nodes, fresh(decider), Conditions(), Options()).end
        rows.add("makespan, s", end.max())
        rows.add("completion, s", (end - np.array(work.submit)).mean())
        return rows

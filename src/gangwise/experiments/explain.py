"""Why a finished run decided as it did: one slot of a policy, one job of a scheduler.

The run is played again up to there, from its seed, and compared with what is stored. The
explanation follows from problem, observation, feedback and decision, so any policy has one: who
came, who got what and where, what one more unit was worth to those who got it and to the next in
line. A policy's method ``explain(observation)`` adds a sentence of its own; a scheduler's
``explain(job)`` says why a job waited in every round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from gangwise.approximation_jobs.problem import ApproximationProblem, slopes_at
from gangwise.core.errors import ScenarioError, StoreError, UnknownName
from gangwise.core.json_text import finite
from gangwise.core.registry import create
from gangwise.core.simulation import Simulation
from gangwise.experiments.compare import COMPARISON, Comparison, is_comparison
from gangwise.experiments.replay import NAME as REPLAY
from gangwise.experiments.replay import Replayed
from gangwise.experiments.store import Store
from gangwise.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.gain_overhead.ascent import Ascent
from gangwise.gain_overhead.offline import solve
from gangwise.gain_overhead.problem import GainOverheadProblem
from gangwise.gangs.problem import GangPlacementProblem, GangProblem
from gangwise.jobs.books import Ask, Books, EventKind, Explanation, Place, Preempt
from gangwise.jobs.choice import ByRate
from gangwise.jobs.kernels import RUNNING
from gangwise.jobs.model import Job
from gangwise.jobs.schedule import Tables
from gangwise.jobs.scheduler import Composed, fresh
from gangwise.jobs.simulation import JobSimulation

SERVERS = 4  # at most so many servers, channels or machines are listed of a job
CONTESTED = 3  # at so many places the runner-up is named


@dataclass
class Explained:
    """What explains a decision.

    ``about`` is what was played: scenario, decider, seed, slot or job, and numbers of the whole;
    ``rows`` has a row for each job type, or job, or for each time that something changed.
    """

    about: Mapping[str, Any]
    rows: list[dict[str, Any]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        about = {"format": "gangwise-explain-1", **self.about}
        found: dict[str, Any] = finite({**about, "rows": self.rows, "sentences": self.sentences})
        return found


def explain_slot(
    folder: Path | str, slot: int, policy: str = "", seed: int | None = None
) -> Explained:
    """What a policy decided in a slot (from 0) of a finished run, and why.

    ``folder`` is of a comparison or of ``gangwise run``. By default it is the best policy and the
    first seed.

    Raises UnknownName for a policy that is not in the results; StoreError when the folder holds no
    such run, or playing it again earns something else.
    """
    comparison = _comparison(folder)
    policy = policy or comparison.table()[0].policy
    seed = _require_played("policy", policy, comparison.policies, seed, comparison.seeds)
    if not 0 <= slot < comparison.slots:
        raise ScenarioError(
            f"slot {slot} was not played; the slots are 0 to {comparison.slots - 1}"
        )
    asked = dict(zip(comparison.policies, comparison.results.experiment["policies"]))
    try:
        decider = create("policy", asked.get(policy, policy))
    except (UnknownName, ScenarioError) as error:
        raise StoreError(
            f"{policy!r} was given as an object in Python, or has gone, so that it cannot be "
            f"played again from a folder: {error}"
        ) from error
    instance = comparison.scenario.instance(seed)
    simulation = _Remembering(instance, decider, slot + 1, seed)
    while simulation.slot <= slot:
        simulation.step()
    stored, reward = comparison.runs[policy, seed].rewards[slot], simulation.rewards[slot]
    if reward != stored:
        raise StoreError(
            f"played again, slot {slot} of {policy} earns {reward!r}, and {stored!r} is stored: "
            "the folder was made by other code"
        )
    out = Explained(
        {
            "scenario": comparison.scenario.name,
            "family": instance.family,
            "policy": policy,
            "seed": seed,
            "slot": slot,
            "reward": float(reward),
            "metrics": dict(zip(simulation.environment.metrics, simulation.metrics[slot].tolist())),
        }
    )
    problem = simulation.environment.problem
    explain = next((f for kind, f in FAMILIES.items() if isinstance(problem, kind)), None)
    if explain is None:
        out.sentences.append(f"It decided {np.array2string(simulation.decision, threshold=50)}.")
    else:
        explain(out, problem, simulation)
    if simulation.own_words:
        out.sentences.append(f"In its own words: {simulation.own_words}")
    return out


def _require_played(
    kind: str, name: str, names: Sequence[str], seed: int | None, seeds: Sequence[int]
) -> int:
    if name not in names:
        raise UnknownName(f"{kind} in these results", name, list(names))
    seed = seeds[0] if seed is None else seed
    if seed not in seeds:
        known = ", ".join(map(str, seeds))
        raise ScenarioError(f"seed {seed} was not played; the seeds are {known}")
    return seed


def _comparison(folder: Path | str) -> Comparison:
    plans = Store(folder).plans()
    for name in (COMPARISON, "run", *plans):
        if name in plans and name != REPLAY and is_comparison(Path(folder), name):
            return Comparison.open(folder, name)
    raise StoreError(
        f"{folder} has no runs with every slot: a folder of gangwise compare or run has; for jobs "
        "of a replay, give --job"
    )


class _Remembering(Simulation):
    """A simulation that keeps what its policy saw, decided and learned in the last slot.

    ``seen`` counts and sums, by channel or machine, the values that feedback has brought.
    """

    own_words = ""

    def step(self) -> None:
        policy = self.policy
        own = getattr(policy, "explain", None)
        if not hasattr(self, "seen"):
            self.seen: dict[int, tuple[int, float]] = {}

        def decide(observation: Any) -> Any:
            self.observation, decision = observation, policy.decide(observation)
            self.decision = np.array(decision, copy=True)
            self.own_words = str(own(observation)) if own is not None else ""
            return decision

        def learn(feedback: Any) -> None:
            for each in feedback if self.slot < self.slots - 1 else ():
                places = getattr(each, "channels", getattr(each, "machines", ()))
                values = getattr(each, "utilities", getattr(each, "rates", ()))
                for place, value in zip(np.asarray(places).tolist(), np.asarray(values).tolist()):
                    n, total = self.seen.get(place, (0, 0.0))
                    self.seen[place] = n + 1, total + value
            policy.learn(feedback)

        watched: Any = SimpleNamespace(timing=policy.timing, decide=decide, learn=learn)
        self.policy = watched
        try:
            super().step()
        finally:
            self.policy = policy

    def arrivals(self) -> Any:
        """The arrivals of the last slot, which a policy that reserves did not see."""
        return np.asarray(self.environment.observe(self.slot - 1, "react").arrivals)

    def means(self, places: int) -> tuple[Any, Any]:
        found = [self.seen.get(place, (0, math.nan)) for place in range(places)]
        count, total = (np.array(each) for each in zip(*found))
        return count, total / np.maximum(count, 1)


def _explain_shares(out: Explained, p: GainOverheadProblem, simulation: _Remembering) -> None:
    arrivals, y = simulation.arrivals(), simulation.decision
    came, devices, servers = np.flatnonzero(arrivals), p.cluster.devices, p.cluster.servers
    state = Ascent(p, y * (arrivals[p.channels.job_type] != 0)[:, None])
    state.slope(arrivals.astype(np.float64), arrivals)
    marginal, room = state.gradient, p.upper - y > 1e-9
    for l in came:
        mine = np.flatnonzero(p.channels.job_type == l)
        one = np.zeros_like(arrivals)
        one[l] = 1
        alone = p.reward(one, np.where((p.channels.job_type == l)[:, None], y, 0.0))
        order = mine[np.argsort(-y[mine].sum(axis=1), kind="stable")]
        used = [e for e in order if y[e].sum() > 1e-9]
        held = zip(devices, y[mine].sum(axis=0), p.upper[mine].sum(axis=0))
        out.rows.append(
            {
                "job type": p.job_types[l],
                "got": ", ".join(f"{h:.3g} of {w:.3g} {k}" for k, h, w in held if w > 0),
                "on": _places([(servers[p.channels.server[e]], y[e].sum()) for e in used]),
                "gain": alone.gain,
                "overhead": alone.overhead,
                "reward": alone.reward,
                "one more unit": float(marginal[mine][room[mine]].max(initial=-math.inf)),
            }
        )
    out.rows.sort(key=lambda row: -row["reward"])
    contested, idle = [], 0
    for r in range(p.cluster.capacity.shape[0]):
        there = np.arange(p.channels.starts[r], p.channels.starts[r + 1])
        there = there[arrivals[p.channels.job_type[there]] != 0]
        for k in range(len(devices)):
            left = p.cluster.capacity[r, k] - y[there, k].sum()
            wanting = there[room[there, k]]
            if wanting.size == 0 or p.cluster.capacity[r, k] == 0:
                continue
            second = int(wanting[np.argmax(marginal[wanting, k])])
            if left > 1e-6 * p.cluster.capacity[r, k]:
                idle += marginal[second, k] > 1e-6
                continue
            held = there[y[there, k] > 1e-9]
            held = held[held != second]
            if held.size:
                last = int(held[np.argmin(marginal[held, k])])
                contested.append((marginal[second, k] - marginal[last, k], r, k, last, second))
    contested.sort(reverse=True)
    for gap, r, k, last, second in contested[:CONTESTED]:
        a, b = (p.job_types[p.channels.job_type[e]] for e in (last, second))
        verdict = (
            f"moving some would earn {gap:.3g} a unit more"
            if gap > 1e-3
            else "the two are worth the same at the margin"
            if gap > -1e-3
            else f"{a} keeps it by {-gap:.3g}"
        )
        out.sentences.append(
            f"On {p.cluster.servers[r]} all {p.cluster.capacity[r, k]:g} {devices[k]} are taken: "
            f"the last unit is worth {marginal[last, k]:.3g} to {a}; the runner-up, {b}, has "
            f"{y[second, k]:.3g} of {p.upper[second, k]:.3g} and would gain "
            f"{marginal[second, k]:.3g} from one more; {verdict}."
        )
    if idle:
        out.sentences.append(
            f"In {idle} places devices are idle though one more unit would have earned something."
        )
    best = solve(p, arrivals).value if came.size else 0.0
    share = f", {100 * out.about['reward'] / best:.1f} % of it" if best > 0 else ""
    out.sentences.append(f"The best decision for these arrivals earns {best:.4g}{share}.")


def _places(places: list[tuple[str, float]]) -> str:
    shown = ", ".join(f"{name} {amount:.3g}" for name, amount in places[:SERVERS])
    more = len(places) - SERVERS
    return (shown or "nowhere") + (f", {more} more" if more > 0 else "")


def _explain_channels(
    out: Explained, p: FluctuatingSpeedsProblem, simulation: _Remembering
) -> None:
    x, arrivals = np.asarray(simulation.decision) != 0, simulation.arrivals()
    plays, mean = simulation.means(p.E)
    left = p.cluster.capacity - x @ p.requests
    for l in np.flatnonzero(arrivals):
        mine = np.flatnonzero(p.channels.job_type == l)
        on, off = mine[x[mine]], mine[~x[mine]]
        known = [
            f"{p.cluster.servers[p.channels.server[e]]} "
            + (f"{mean[e]:.3f} in {plays[e]}" if plays[e] else "never tried")
            for e in on[:SERVERS]
        ]
        tried = off[plays[off] > 0]
        next_best = int(tried[np.argmax(mean[tried])]) if tried.size else -1
        out.rows.append(
            {
                "job type": p.job_types[l],
                "channels": int(on.size),
                "on (mean so far, times used)": ", ".join(known) or "none",
                "best left out": "none that was tried"
                if next_best < 0
                else f"{p.cluster.servers[p.channels.server[next_best]]} {mean[next_best]:.3f} "
                f"in {plays[next_best]}",
                "never tried": int((plays[mine] == 0).sum()),
            }
        )
    everyone = p.available(arrivals) & ~x
    able = everyone & (p.requests <= left + p.tolerance).all(axis=1)
    fresh_ones = int((x & (plays == 0)).sum())
    if fresh_ones:
        out.sentences.append(f"{fresh_ones} of {int(x.sum())} channels are tried the first time.")
    dearer = [e for e in np.flatnonzero(everyone & (plays > 0)) if not able[e]]
    worst = np.flatnonzero(x & (plays > 0)).tolist()
    if dearer and worst:
        second = max(dearer, key=lambda e: mean[e])
        last = min(worst, key=lambda e: mean[e])
        why = (
            "a mean so far says otherwise: it explores, or weighs devices"
            if mean[second] > mean[last]
            else "the means so far agree"
        )
        least, other = p.name(int(last)), p.name(int(second))
        out.sentences.append(
            f"The least of those used is {least}, {mean[last]:.3f} in {plays[last]} uses; "
            f"the runner-up, for which no devices are left, {other}, {mean[second]:.3f} "
            f"in {plays[second]}: {why}."
        )
    if able.any():
        out.sentences.append(
            f"{int(able.sum())} channels of jobs that came are off though there are devices."
        )
    limits = ", ".join(
        f"{a:.4g} of {c:.4g} {k}"
        for a, c, k in zip(p.cluster.capacity - left, p.cluster.capacity, p.cluster.devices)
    )
    out.sentences.append(f"Taken: {limits}.")


def _explain_gangs(out: Explained, p: GangPlacementProblem, simulation: _Remembering) -> None:
    arrivals, placement = simulation.arrivals(), np.asarray(simulation.decision)
    gain = overhead = None
    if isinstance(p, GangProblem):
        gain, overhead = p.by_job_type(placement)
    left = p.cluster.capacity - p.handed_out(placement)
    for l in np.flatnonzero(arrivals):
        tasks = np.flatnonzero(p.task_job_type == l)
        placed = placement[tasks][placement[tasks] >= 0]
        servers, count = np.unique(placed, return_counts=True)
        on = sorted(zip(count.tolist(), (p.cluster.servers[r] for r in servers)), reverse=True)
        row: dict[str, Any] = {
            "job type": p.job_types[l],
            "tasks": f"{placed.size} of {tasks.size}, at least {p.minimum[l]}",
            "on": _places([(name, float(n)) for n, name in on]),
        }
        if gain is not None and overhead is not None:
            row |= {"gain": float(gain[l]), "overhead": float(overhead[l])}
        out.rows.append(row)
        if placed.size == 0:
            free, room = left.copy(), 0
            for q in tasks:
                for r in np.flatnonzero(p.fits[q]):
                    if (p.task_requests[q] <= free[r] + 1e-9).all():
                        free[r] -= p.task_requests[q]
                        room += 1
                        break
            enough = room >= p.minimum[l]
            out.sentences.append(
                f"{p.job_types[l]} stays out: on what is left there is room for {room} of its "
                f"tasks, one after the other, and it needs {p.minimum[l]}"
                + ("; it was left out though it fits." if enough else ".")
            )


def _explain_machines(out: Explained, p: ApproximationProblem, simulation: _Remembering) -> None:
    jobs, decision = simulation.observation.jobs, np.asarray(simulation.decision)
    rows, seen = jobs.rows, simulation.seen
    slope = slopes_at(jobs, rows, np.maximum(jobs.work[rows], 1e-3)) if rows.size else rows
    cheapest = float(p.prices[simulation.observation.available].min(initial=math.inf))
    for row, worth in zip(rows.tolist(), np.asarray(slope).tolist()):
        mine = decision[row] != 0 if decision.ndim == 2 else decision == row
        machines = np.flatnonzero(mine)
        rates = [seen[i][1] / seen[i][0] for i in machines.tolist() if i in seen]
        left = float(jobs.budget[row] - jobs.cost[row])
        named = [(p.machines[i], float(p.prices[i])) for i in machines.tolist()]
        out.rows.append(
            {
                "job": str(getattr(jobs.jobs[row], "id", row)),
                "machines": int(machines.size),
                "on (price)": _places(named),
                "cost": float(p.prices[machines].sum()),
                "budget left": left,
                "slots left": int(jobs.deadline[row]) - simulation.observation.slot,
                "mean rate": float(np.mean(rates)) if rates else None,
                "one more unit of work": worth,
            }
        )
        if not machines.size and left < cheapest:
            out.sentences.append(
                f"Job {out.rows[-1]['job']} gets nothing: the cheapest machine costs "
                f"{cheapest:.3g} and {left:.3g} of its budget is left."
            )
    out.rows.sort(key=lambda row: -row["one more unit of work"])
    served = [row for row in out.rows if row["machines"]]
    waiting = [row for row in out.rows if not row["machines"] and row["budget left"] >= cheapest]
    if served and waiting:
        last, second = served[-1], waiting[0]
        out.sentences.append(
            f"Of those served, more work is worth least to job {last['job']}, "
            f"{last['one more unit of work']:.3g}; the runner-up, job {second['job']}, would have "
            f"{second['one more unit of work']:.3g}, can pay, and gets no machine."
        )
    busy = int((decision.any(axis=0) if decision.ndim == 2 else decision >= 0).sum())
    out.sentences.append(f"{busy} of {p.M} machines work.")


FAMILIES: dict[type, Callable[[Explained, Any, _Remembering], None]] = {
    GainOverheadProblem: _explain_shares,
    FluctuatingSpeedsProblem: _explain_channels,
    GangPlacementProblem: _explain_gangs,
    ApproximationProblem: _explain_machines,
}


def explain_job(
    folder: Path | str, job: str, scheduler: str = "", seed: int | None = None
) -> Explained:
    """Why a job, by its id in the log, of a finished replay waited, and where it was placed.

    By default it is the first scheduler and the first seed.

    Raises UnknownName for a job or a scheduler that is not there; StoreError when the folder holds
    no replay, or playing it again starts the job at another time.
    """
    replayed = Replayed.open(folder)
    scheduler = scheduler or str(replayed.schedulers[0])
    seed = _require_played("scheduler", scheduler, replayed.schedulers, seed, replayed.seeds)
    scenario = replayed.scenarios[scheduler]
    played = scenario.draw(seed)
    ids = [str(name) for name in played.jobs.id]
    if job not in ids:
        raise UnknownName("job", job, ids[:1000])
    j = ids.index(job)
    decider = fresh(create("scheduler", replayed.scheduler_of(scheduler)))
    options = scenario.options
    if isinstance(decider, Composed):
        decider.limits, decider.restart = options.limits, options.restart
    tables = Tables.of(played.jobs, played.nodes, played.conditions, options)
    simulation = _Following(tables, decider, job)
    while simulation.step() and simulation.jobs[j]["phase"] <= RUNNING:
        continue
    outcome = replayed.outcomes[scheduler][list(replayed.seeds).index(seed)]
    start, end = float(outcome.start[j]), float(outcome.end[j])
    first = float(simulation.schedule().start[j])
    if not (first == start or (math.isnan(first) and math.isnan(start))):
        raise StoreError(
            f"played again, job {job} starts at {first:g} s, and {start:g} s is stored: the folder "
            "was made by other code"
        )
    submitted = float(played.jobs.submit[j])
    out = Explained(
        {
            "scenario": scenario.settings.source,
            "scheduler": scheduler,
            "seed": seed,
            "job": job,
            "submitted": submitted,
            "start": start,
            "end": end,
            "waiting": start - submitted,
        },
        simulation.job_rows,
    )
    shape, n = played.jobs.shapes[played.jobs.shape[j]], int(played.jobs.tasks[j])
    demand = zip(shape.demand, played.jobs.devices)
    asks = " + ".join(f"{amount / 1000:g} {kind}" for amount, kind in demand if amount)
    if math.isnan(start):
        since = " and never started."
    elif math.isnan(end):
        since = f", started {_duration(start - submitted)} later and has not ended."
    else:
        since = f", started {_duration(start - submitted)} later"
        since += f" and ended {_duration(end - start)} after that."
    out.sentences = [
        f"Job {job}, {n} task{'s' * (n != 1)} of {asks}, was submitted at {_seconds(submitted)}"
        + since,
        *simulation.sentences,
    ]
    return out


class _Following(JobSimulation):
    def __init__(self, tables: Tables, scheduler: Any, job: str):
        super().__init__(tables, scheduler)
        self.job, self.job_rows = job, list[dict[str, Any]]()
        self.sentences: list[str] = []
        self._last = ""

    def _decisions(self, now: float) -> list[Any]:
        before = self.books.copy()
        asked = next((each for each in self.waiting if each.id == self.job), None)
        actions = super()._decisions(now)
        mine = [each for each in actions if getattr(each, "job", None) == self.job]
        for action in mine:
            if isinstance(action, Place) and asked is not None:
                others = [a for a in actions if isinstance(a, Place) and a is not action]
                self._placed(asked, action, before, others, now)
            elif isinstance(action, Preempt):
                self._note(now, "preempted", "the scheduler takes it off its nodes")
            elif isinstance(action, Ask):
                self._note(now, "holds off", f"to be looked at again by {_seconds(action.at)}")
        placed = {each.job for each in actions if isinstance(each, Place)}
        if asked is not None and self.job not in placed:
            self._waits(self.scheduler.explain(self.job), now, placed)
        return actions

    def _note(self, now: float, what: str, why: str, **more: Any) -> None:
        self.job_rows.append({"at": now, "what": what, "why": why, **more})

    def _waits(self, reason: Explanation, now: float, placed: set[str]) -> None:
        if reason.constraint == self._last:
            return
        self._last = reason.constraint
        names = ", ".join(sorted(placed)[:SERVERS])
        room = f"; room for a task on {', '.join(reason.nodes[:SERVERS])}" if reason.nodes else ""
        freed = f"; the end of {', '.join(reason.frees[:SERVERS])} would let it start"
        self._note(
            now,
            "waits",
            reason.constraint + room + (freed if reason.frees else ""),
            until=reason.until,
            expected=reason.start,
            started_instead=names,
        )

    def _placed(
        self, job: Job, action: Place, books: Books, others: list[Place], now: float
    ) -> None:
        self._last = ""
        names = books.nodes.names
        fits = books.fits(job.shape)
        chosen = {n for n, _ in action.tasks}
        where = ", ".join(f"{names[n]} ({c})" for n, c in action.tasks[:SERVERS])
        rest = [int(n) for n in np.argsort(-fits, kind="stable") if fits[n] and n not in chosen]
        self._note(now, "starts", f"on {where}", until=None, expected=None, started_instead="")
        choice = getattr(self.scheduler, "choice", None)
        rated = isinstance(choice, ByRate)
        if rest and rated:
            one = {n: self.scheduler.choice.rate(job, [(n, 1)], now) for n in [*chosen, *rest]}
            slowest = min(one[n] for n in chosen)
            second = max(rest, key=lambda n: one[n])
            self.sentences.append(
                f"At {_seconds(now)} its slowest node is believed to do {slowest:.3g} of a node of "
                f"rate 1; the best that was left, {names[second]}, {one[second]:.3g}, with room "
                f"for {int(fits[second])} of its tasks."
            )
        elif rest:
            self.sentences.append(
                f"At {_seconds(now)} there was room as well on "
                + ", ".join(f"{names[n]} (for {int(fits[n])})" for n in rest[:SERVERS])
                + (f" and {len(rest) - SERVERS} more" if len(rest) > SERVERS else "")
                + f"; the choice, {getattr(choice, 'name', type(choice).__name__)}, preferred "
                f"{names[action.tasks[0][0]]}."
            )
        else:
            self.sentences.append(f"At {_seconds(now)} no other node had room for a task of it.")
        if others:
            started = ", ".join(sorted(each.job for each in others)[:SERVERS])
            self.sentences.append(f"In the same round started: {started}.")

    def _leave(self, j: int, kind: EventKind) -> None:
        if str(self.tables.jobs.id[j]) == self.job and kind == "failed":
            self._note(self.now, "cut short", "one of its nodes failed; it waits again")
        super()._leave(j, kind)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.0f} s"


def _duration(seconds: float) -> str:
    """A duration.

    >>> _duration(90.0), _duration(7300.0)
    ('1.5 min', '2.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"

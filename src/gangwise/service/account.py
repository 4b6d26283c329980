"""What deciding here would save, or saves: the real arrivals, simulated; a recorded run replayed.

Simulated is compared with simulated. The jobs that ended since Monday (and since the service began)
are submitted again as they were, onto the nodes as they are, with the rates that are now believed
for true ones, but for nodes whose jobs show that they had another speed before (:func:`changes`).
Both schedulers start with nothing learned. Rates are drawn anew from what is believed of them in
each of several rounds, and so are start latencies, from those measured: of jobs that found room
while no other job waited. Where nothing was placed by this service yet, its own latency is that of
the cluster's scheduler and what the engine declares. Jobs that still wait or run are in the way,
with the share of their limit that others used; they do not count.

The model's error is what it makes of the scheduler that really placed the jobs (the baseline, for
one who watches) against what happened, over blocks of time; with ``--baseline-every``, also its
error in how much faster jobs run where this scheduler has them. A saving s, the share of the
baseline's mean completion time, has the interval

    s ± ((1.96 sd over rounds)² + error²)^½,

and where that contains 0, no saving is reported.
"""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.simulation import read_checkpoint
from gangwise.engines.engine import EngineJob, Placed
from gangwise.jobs.model import Conditions, Group, Jobs, Nodes, Shape
from gangwise.jobs.schedule import Options
from gangwise.jobs.scheduler import create_scheduler, fresh
from gangwise.jobs.simulation import simulate_jobs
from gangwise.notation import roughly
from gangwise.service.ledger import NO_LIMIT, Ledger, shape_of
from gangwise.service.loop import CHECKPOINT
from gangwise.service.store import FILE, ServiceStore
from gangwise.sites.forecast import Moment
from gangwise.study.explain import ForecastOfLog, Past, forecast_rows
from gangwise.study.replay_scenario import ReplayInstance

ROUNDS = 8  # draws of rates from what is believed of them
FEWEST = 5  # jobs below which there is no account
MEASURED = 1000  # jobs that came last, among which those are found that nothing held up


def monday(now: float) -> float:
    """The last Monday, 0:00 local time."""
    day = datetime.datetime.fromtimestamp(now)
    day = day.replace(hour=0, minute=0, second=0, microsecond=0)
    return (day - datetime.timedelta(days=day.weekday())).timestamp()


def account(folder: Path | str, since: float | None = None, rounds: int = ROUNDS) -> dict[str, Any]:
    """Account of what a service's scheduler saves, from the service's folder.

    Jobs submitted ``since`` then count (seconds since 1970): since the last Monday by default, and
    never before the service began. Earlier ones that ended later are played, for they were in the
    way. Of what is returned, ``told`` is the account in a sentence; times are in seconds, savings
    and errors are shares. Raises ScenarioError when too few jobs have ended.
    """
    folder = Path(folder)
    store = ServiceStore(folder / FILE, read_only=True)  # says so where no service has run
    (ledger, _), _ = read_checkpoint(folder / CHECKPOINT)
    settings = json.loads(store.about("settings") or "{}")
    began = store.rows("SELECT MIN(time) AS time FROM commits")[0]["time"] or 0.0
    # Before its first commit the service knows neither nodes nor queue.
    since = max(monday(ledger.now) if since is None else since, began)
    # A run of no length has no rate: its work over its time would divide by 0.
    rows = store.rows(
        "SELECT * FROM history WHERE ended >= ? AND started IS NOT NULL AND ended > started "
        "ORDER BY submitted",
        since,
    )
    store.close()
    counted = np.array([row["submitted"] >= since for row in rows], dtype=bool)
    if counted.sum() < FEWEST or ledger.books is None:
        raise ScenarioError(
            f"{counted.sum()} jobs were submitted since {_day(since)} and have ended; an account "
            f"needs {FEWEST}"
        )
    present = present_rows(ledger, rows)
    changes = changed(ledger, rows)
    delays = latencies(ledger, rows, float(settings.get("start_latency", 0.0)))
    times = _simulated(ledger, [*rows, *present], changes, delays, rounds)
    # Jobs that wait or run now are played as load; they have no end that could count.
    in_account = np.append(counted, np.zeros(len(present), bool))
    # Only jobs that ended in every round under both schedulers: all means are over the same jobs.
    ended = [np.isfinite(sample[1]) for rounds_ in times.values() for sample in rounds_]
    played = in_account & np.all(ended, axis=0)
    over = [row for row, p in zip(rows, played, strict=False) if p]
    happened = np.array(
        [[row["first"] - row["submitted"], row["ended"] - row["submitted"]] for row in over]
    )
    only = {side: np.array(sample)[:, :, played] for side, sample in times.items()}
    # Only the side that really placed the jobs can be compared with what happened.
    own = only["scheduler" if ledger.act else "baseline"]
    ran = np.log([row["ended"] - row["started"] for row in over])
    result: dict[str, Any] = {
        "since": since,
        "jobs": int(played.sum()),
        "left_out": len(present),
        "happened": dict(zip(("wait", "completion"), happened.mean(axis=0).tolist(), strict=True)),
        **{side: _summary(sample[:, :2].mean(axis=2)) for side, sample in only.items()},
        "error": float(own[:, 1].mean() / happened[:, 1].mean() - 1.0),
        "latency": {side: float(np.mean(d[0]) + np.mean(d[1])) for side, d in delays.items()},
        **_saving(only, own, happened[:, 1], [row["by"] for row in over], ran),
        "slow_nodes": [s.node for s in ledger.slow_nodes()],
        "changed_nodes": [ledger.books.nodes.names[change.node] for change in changes],
    }
    result["told"] = account_sentence(result, ledger.act)
    return result


def _simulated(
    ledger: Ledger,
    rows: Sequence[dict[str, Any]],
    before: Sequence[SpeedChange],
    delays: Mapping[str, tuple[Floats, Floats]],
    rounds: int,
) -> dict[str, list[Floats]]:
    """Wait, completion and run by row, in each round of draws, under both schedulers."""
    sides = {"scheduler": ledger.scheduler, "baseline": ledger.baseline}
    times: dict[str, list[Floats]] = {side: [] for side in sides}
    for number in range(rounds):
        for side, decides in sides.items():
            # Common random numbers: both schedulers meet the same draw, so that their difference
            # scatters less.
            rng = np.random.default_rng(number)  # the same draws on both sides
            # Every start holds its devices for the mean of a sample. A job whose room comes later
            # is decided on late, too, by the least that this takes.
            hold, late = delays[side]
            least = float(np.quantile(late, 0.05))
            latency = float(rng.choice(hold, hold.size).mean()) + least
            late = np.maximum(rng.choice(late, len(rows)) - least, 0.0)
            jobs, conditions = drawn(ledger, rows, before, rng, late)
            options = Options(latency=latency)
            s = simulate_jobs(jobs, ledger.open_books.nodes, fresh(decides), conditions, options)
            # Jobs.of sorts: ``row`` is a job's place among the rows. Waits count from the
            # submission, though a job is decided on ``late`` seconds after it.
            submit = jobs.submit - late[jobs.row]
            spans = np.full((3, len(rows)), np.nan)
            spans[:, jobs.row] = s.start - submit, s.end - submit, s.end - s.last_start
            times[side].append(spans)
    return times


def _saving(
    only: Mapping[str, Floats], own: Floats, happened: Floats, by: Sequence[str], ran: Floats
) -> dict[str, Any]:
    """Saving of completion time with its interval, the model's error, and what calibrated it."""
    s = 1.0 - only["scheduler"][:, 1].mean(axis=1) / only["baseline"][:, 1].mean(axis=1)
    # Completion times of jobs that follow each other are not independent, those of blocks nearly.
    blocks = np.array_split(np.arange(happened.size), min(8, happened.size // FEWEST))
    off = [float(own[:, 1, b].mean() - happened[b].mean()) for b in blocks]
    scatter = np.std(off, ddof=1) / math.sqrt(len(off)) if len(off) > 1 else 0.0
    # The model's error is its bias, or what blocks of time scatter by where that is more.
    errors = [max(abs(float(np.mean(off))), 1.96 * float(scatter)) / float(happened.mean())]
    calibrated = None
    rival = np.array([placer == "baseline" for placer in by])
    if min(rival.sum(), (~rival).sum()) >= FEWEST:
        # Which jobs are the baseline's, their number decides: how far their runs are off, as the
        # simulation has the scheduler place all of them, is what the baseline costs.
        apart = ran - np.log(only["scheduler"][:, 2]).mean(axis=0)
        real = float(apart[rival].mean() - apart[~rival].mean())
        within = 1.96 * math.hypot(
            *(apart[side].std(ddof=1) / math.sqrt(side.sum()) for side in (rival, ~rival))
        )
        ratio = np.log(only["baseline"][:, 2] / only["scheduler"][:, 2]).mean(axis=0)
        model = float(ratio[rival].mean())
        calibrated = {"jobs": int(rival.sum()), "slower": real, "within": within, "model": model}
        # What chance can explain is no error of the model.
        errors.append(max(abs(real - model) - within, 0.0))
    # Independent errors add in squares: the scatter over rounds, the model's, and that of the
    # baseline's runs.
    half = math.hypot(1.96 * float(s.std(ddof=1)) if s.size > 1 else 0.0, *errors)
    return {"saving": float(s.mean()), "within": half, "calibrated": calibrated}


def latencies(
    ledger: Ledger, rows: Sequence[dict[str, Any]], declared: float
) -> dict[str, tuple[Floats, Floats]]:
    """Seconds for which starts hold devices, and until jobs are decided on: measured, by side."""
    assert ledger.empty is not None
    # ``first`` is the first start and ``held`` of the last attempt: they belong together
    # where that is the first one.
    hold = np.array([r["first"] - r["body"]["held"] for r in rows if r["body"]["attempt"] == 1])
    ends = np.array([r["ended"] for r in rows])
    submits = np.array([r["submitted"] for r in rows])
    holds = np.array([r["body"]["held"] for r in rows])
    prompt: list[float] = []
    for row in rows[-MEASURED:]:
        at = row["submitted"]
        # Only jobs that nobody was in front of: others waited for a reason.
        if np.any((submits < at) & (holds > at)):
            continue
        # The nodes as they were at its submission: what held devices then is
        # taken off the empty ones.
        books = ledger.empty.copy()
        for i in np.flatnonzero((holds <= at) & (ends > at)).tolist():
            pieces = ledger.pieces([Placed(*p) for p in rows[i]["body"]["placed"]])
            books.take(_shape(ledger, rows[i])[1], pieces, -1)
        tasks, shape = _shape(ledger, row)
        # And only where there was room: what is left of the wait is what deciding takes.
        if sum(c for _, c in books.somewhere(shape, tasks)) == row["tasks"]:
            prompt.append(max(row["body"]["held"] - at, 0.0))
    late = np.array(prompt) if prompt else np.zeros(1)
    hold = np.maximum(hold, 0.0) if hold.size else np.zeros(1)
    if ledger.act:
        # Only watched: what was measured is the cluster's own scheduler.
        return {"scheduler": (hold, late), "baseline": (hold, late)}
    return {"scheduler": (hold + declared, late), "baseline": (hold, late)}


def _shape(ledger: Ledger, row: dict[str, Any]) -> tuple[int, Shape]:
    return shape_of(_asked(row), ledger.open_books.nodes.devices)


def _asked(row: dict[str, Any]) -> EngineJob:
    return EngineJob.of_row(row["body"])


def present_rows(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Jobs that wait or run, as rows like those of the history, without those that are in it."""
    # A job that ended since the checkpoint is in both, and counts as ended.
    over = {row["job"] for row in rows}
    bodies = [asdict(active.asked) for name, active in ledger.jobs.items() if name not in over]
    fields = "job_type", "user", "submitted"
    return [{"job": b["id"], **{name: b[name] for name in fields}, "body": b} for b in bodies]


def account_sentence(result: dict[str, Any], act: bool) -> str:
    s, b, h = result["scheduler"], result["baseline"], result["happened"]
    half, saving, error = result["within"], result["saving"], result["error"]
    began = f"since {_day(result['since'])} ({result['jobs']} jobs"
    began += f", {result['left_out']} still wait or run)" if result["left_out"] else ")"
    rival = "the baseline" if act else "the baseline, taken for the cluster's own scheduler"
    # Within the model's own error no saving is claimed.
    if abs(saving) <= half:
        verdict = f"the model's error, {100 * half:.0f} %, is as large as any saving"
        verdict = f"whether deciding here saves time is not known: {verdict}"
    else:
        word = "save" if saving > 0 else "cost"
        word = f"{word}s" if act else f"would {word}"
        verdict = (
            f"deciding here {word} {100 * abs(saving):.0f} ± {100 * half:.0f} % of the completion "
            f"time: simulated {roughly(s['completion'])}, with {rival} {roughly(b['completion'])}"
        )
    parts = [
        f"{began}: {verdict}",
        f"it happened in {roughly(h['completion'])}, of which {roughly(h['wait'])} waiting; the "
        f"simulation of {'this' if act else rival} is off by {100 * error:+.0f} %",
    ]
    late = result["latency"]
    if not act:
        parts.append(
            f"starts take {late['baseline']:.1f} s, measured, and {late['scheduler']:.1f} s here, "
            "by what the engine declares"
        )
    if check := result["calibrated"]:
        parts.append(
            f"{check['jobs']} jobs that the baseline placed ran {100 * check['slower']:+.0f} ± "
            f"{100 * check['within']:.0f} % longer (simulated {100 * check['model']:+.0f} %)"
        )
    slow, changed_ = len(result["slow_nodes"]), len(result["changed_nodes"])
    parts.append(f"{slow} slow node{'s' * (slow != 1)}")
    parts[-1] += f", {changed_} had another speed before" if changed_ else ""
    return "; ".join(parts)


def _summary(means: Floats) -> dict[str, float]:
    within = 1.96 * means.std(axis=0, ddof=1) if len(means) > 1 else np.full(2, math.nan)
    return {
        "wait": float(means[:, 0].mean()),
        "wait_within": float(within[0]),
        "completion": float(means[:, 1].mean()),
        "completion_within": float(within[1]),
    }


def believed(ledger: Ledger, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Mean and standard deviation, both [L, N], of the log rates that are believed now.

    Declared rates where nothing is learned.
    """
    # Learners keep log rates; declared ones are put on the same scale.
    mean = np.log(ledger.open_books.nodes.declared(names))
    sd = np.zeros(mean.shape)
    learner = ledger.learned
    if hasattr(learner, "estimate"):
        for l, name in enumerate(names):
            if name in learner.types:
                mean[l], sd[l] = learner.estimate(name, ledger.now)
    return mean, sd


def changed(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> list[SpeedChange]:
    """Nodes that had another speed before, from jobs whose rate was measured on nodes still there.

    A rate that is only declared says nothing of before and after: then there are none.
    """
    types = _types(ledger, rows)
    names = sorted(set(types))
    mean, sd = believed(ledger, names)
    measured = [
        (row, on, mean[names.index(name)][on])
        for row, name in zip(rows, types, strict=True)
        if row.get("rate")
        # On nodes that are all still there, since a node's speed is asked of those of today.
        and len(on := _nodes(ledger, row)) == len(row["body"]["placed"])
        and sd[names.index(name)].any()
    ]
    return speed_changes(
        np.log([row["rate"] for row, _, _ in measured]),
        # A measured rate is the mean over a run, so that its middle stands for it.
        np.array([(row["started"] + row["ended"]) / 2 for row, _, _ in measured]),
        [on for _, on, _ in measured],
        [logs for _, _, logs in measured],
    )


def drawn(
    ledger: Ledger,
    rows: Sequence[dict[str, Any]],
    before: Sequence[SpeedChange],
    rng: np.random.Generator | None,
    late: Floats | float = 0.0,
) -> tuple[Jobs, Conditions]:
    """Jobs of the history, and a draw of the rates that are believed, or their means.

    ``before`` is what :func:`changed` found; each job is decided on ``late`` seconds [J] after its
    submission.
    """
    nodes: Nodes = ledger.open_books.nodes
    types = _types(ledger, rows)
    names = sorted(set(types))
    rates, sd = believed(ledger, names)
    if rng is not None:
        # One draw for all of a round: an error in a belief lasts, and is no noise from job to job.
        rates = rates + sd * rng.standard_normal(sd.shape)
    work: list[float] = []
    # Shares of their limits that jobs used: what a job that still runs is assumed to need.
    shares = [] if any(r["body"]["limit"] < NO_LIMIT for r in rows if "ended" in r) else [1.0]
    for row, name in zip(rows, types, strict=True):
        limit = float(row["body"]["limit"])
        if "ended" not in row:
            work.append(float(np.median(shares)) * (limit if limit < NO_LIMIT else NO_LIMIT))
            continue
        run = row["ended"] - row["started"]
        on = _nodes(ledger, row)
        # A gang is as fast as its slowest node: work is run time times that rate, where none was
        # measured.
        slowest = math.exp(min(rates[names.index(name)][on])) if on else 1.0
        work.append(run * (row["rate"] or slowest))
        if limit < NO_LIMIT:
            shares.append(work[-1] / limit)
    asked = [_asked(row) for row in rows]
    limits = np.array([a.limit for a in asked])
    unlike = {
        a.id: [Group(g.tasks, in_devices(g.demand), g.per_node, g.constraint) for g in a.groups]
        for a in asked
        if a.groups
    }
    jobs = Jobs.of(
        np.array([row["submitted"] for row in rows]) + late,
        work,
        [a.tasks for a in asked],
        {k: [a.demand.get(k, 0) / 1000 for a in asked] for k in nodes.devices},
        id=[row["job"] for row in rows],
        limit=np.where(np.isfinite(limits), limits, NO_LIMIT),
        per_node=[a.per_node for a in asked],
        constraint=[a.constraint for a in asked],
        groups=unlike,
        type=types,
        user=[row["user"] for row in rows],
        priority=[a.priority for a in asked],
    )
    order = [names.index(name) for name in jobs.types]
    # A node has its earlier factor from the beginning and 1 from its change on.
    factors = [(0.0, c.node, c.factor) for c in before] + [(c.time, c.node, 1.0) for c in before]
    return jobs, Conditions(np.exp(rates[order]), factors=factors)


def in_devices(amounts: Mapping[str, int]) -> dict[str, float]:
    return {kind: amount / 1000 for kind, amount in amounts.items()}


def _types(ledger: Ledger, rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["job_type"] if row["job_type"] in ledger.types else "other" for row in rows]


def _nodes(ledger: Ledger, row: dict[str, Any]) -> list[int]:
    return [ledger.node_index[p[0]] for p in row["body"]["placed"] if p[0] in ledger.node_index]


def _day(time: float) -> str:
    return datetime.datetime.fromtimestamp(time).strftime("%a %H:%M")


# Change points: nodes that had another speed before, from the jobs that ran on them

FEWEST_JOBS = 3  # jobs of a node before its change, and afterwards
SMALLEST = math.log(1.1)  # a change by less is none: rates differ by as much from job to job
FACTORS = np.log(np.geomspace(1 / 8, 8, 121))  # changes that are tried
SURE = 0.03  # smallest σ: what ranks report is no better


class SpeedChange(NamedTuple):
    """A node was ``factor`` times as fast as now until ``time``, in seconds."""

    node: int
    time: float
    factor: float


def speed_changes(
    rates: Floats, middles: Floats, nodes: Sequence[Sequence[int]], believed: Sequence[Floats]
) -> list[SpeedChange]:
    """Nodes whose speed has changed, at most once each.

    What is learned is what nodes do now; days that are past are played with what they did then. A
    gang is as fast as its slowest node. So with beliefs b_jm (log rates, by type of job and node),
    and nodes m that were e^δ_m times as fast until τ_m, the log rate of job j should have been, t_j
    being the middle of its run,

        ŷ_j = min_m (b_jm + δ_m [t_j < τ_m]).

    A belief may be off by itself, in the same way all the time, which is no change. So jobs of a
    node cost Σ_j min((y_j − ŷ_j)², (3σ)²) with one δ for all of them, or with one before τ and
    another one afterwards; σ is the median deviation of all jobs. The node for which two cost less
    by most comes first, the next one is looked for with that change in place, and so on as long as
    it is by more than (3 ln n + 2 ln N) σ², n jobs on N nodes: the price of two parameters (BIC)
    and of having looked everywhere.

    Of J gangs: log ``rates`` [J] as measured, ``middles`` [J] of their runs in seconds, the
    ``nodes`` that each had, and the log rates that are ``believed`` of these now.

    Node 1 was twice as fast for the first ten of twenty jobs.

    >>> noise = 0.02 * np.sin(np.arange(20.0))
    >>> measured = np.where(np.arange(20) < 10, np.log(2.0), 0.0) + noise
    >>> found = speed_changes(measured, np.arange(20.0), [[1]] * 20, [np.zeros(1)] * 20)
    >>> [(c.node, c.time, round(c.factor, 1)) for c in found]
    [(1, 9.5, 2.0)]
    """
    J, K = rates.size, max(map(len, nodes), default=0)
    # Padding: −1 is no node, and a belief of inf is never the slowest.
    on, b = np.full((J, K), -1), np.full((J, K), np.inf)
    for j, (places, logs) in enumerate(zip(nodes, believed, strict=True)):
        on[j, : len(places)], b[j, : len(places)] = places, logs
    # Prefix sums over time need the jobs in the order of the middles of their runs.
    by_time = np.argsort(middles, kind="stable")
    rates, middles, on, b = rates[by_time], middles[by_time], on[by_time], b[by_time]
    owners, slots = np.nonzero(on >= 0)
    # Sorted by node, then by job: the jobs of each node are in order of time.
    pairs = np.unique(np.column_stack((on[owners, slots], owners)), axis=0)
    names, first_rows = np.unique(pairs[:, 0], return_index=True)
    jobs_of = dict(zip(names.tolist(), np.split(pairs[:, 1], first_rows[1:])))
    changes: list[SpeedChange] = []
    # 1.4826 times the median deviation is σ of a normal distribution;
    # changed nodes do not inflate it.
    sigma = max(1.4826 * float(np.median(np.abs(rates - b.min(axis=1)))), SURE) if J else SURE
    best = {n: _best(n, jobs, rates, middles, on, b, sigma) for n, jobs in jobs_of.items()}
    while best:
        n = max(best, key=lambda node: best[node][0])
        saved, change = best.pop(n)
        if change is None or saved <= (3 * math.log(jobs_of[n].size) + 2 * math.log(len(jobs_of))):
            break
        changes.append(change)
        jobs = jobs_of[n]
        # Other beliefs stay, so that only nodes which shared a gang with this one are judged again.
        early = jobs[middles[jobs] < change.time]
        b[early] += np.where(on[early] == n, math.log(change.factor), 0.0)
        for neighbour in set(on[early].ravel().tolist()) & best.keys():
            best[neighbour] = _best(neighbour, jobs_of[neighbour], rates, middles, on, b, sigma)
    return changes


def _best(
    n: int, jobs: Ints, rates: Floats, middles: Floats, on: Ints, b: Floats, sigma: float
) -> tuple[float, SpeedChange | None]:
    """The change of a node that explains its jobs best, and what it saves in units of σ²."""
    m = jobs.size
    if m < 2 * FEWEST_JOBS:
        return 0.0, None
    mine = on[jobs] == n
    # A gang is no faster than its other nodes, whatever this one did.
    elsewhere = np.where(mine, np.inf, b[jobs]).min(axis=1)
    own = np.where(mine, b[jobs], np.inf).min(axis=1)
    explained = np.minimum(elsewhere, own + FACTORS[:, np.newaxis])  # ŷ [δ, j]
    # Prefix sums: what jobs before and after a split cost is then one subtraction.
    cost = np.cumsum(np.minimum(((rates[jobs] - explained) / sigma) ** 2, 9.0), axis=1)
    k = np.arange(FEWEST_JOBS, m - FEWEST_JOBS + 1)  # jobs before τ
    cost_before, cost_after = cost[:, k - 1], cost[:, -1:] - cost[:, k - 1]
    at = int((cost_before.min(axis=0) + cost_after.min(axis=0)).argmin())
    early, late = cost_before[:, at].argmin(), cost_after[:, at].argmin()
    delta = float(FACTORS[early] - FACTORS[late])
    if abs(delta) < SMALLEST:
        return 0.0, None
    saved = float(cost[:, -1].min() - cost_before[early, at] - cost_after[late, at])
    split = int(k[at])
    time = 0.5 * float(middles[jobs[split - 1]] + middles[jobs[split]])
    return saved, SpeedChange(n, time, math.exp(delta))


def replayed(folder: Path | str, schedulers: Sequence[str] = ()) -> dict[str, Any]:
    """Play the recorded run of a service's folder: how many rounds each decides as recorded.

    Other ``schedulers`` meet the same; none of them sees what its own decisions would have changed.
    Raises StoreError when nothing is recorded, or the journal no longer begins at its beginning.
    """
    store = ServiceStore(Path(folder) / FILE, read_only=True)
    settings = json.loads(store.about("settings") or "{}")
    begin = next((seq for seq, _ in store.records()), None)
    if begin != 1 or not settings:
        reason = (
            "nothing is recorded yet" if begin is None else "its beginning was dropped as too old"
        )
        raise StoreError(f"{store.path}: {reason}")
    jobs = store.rows("SELECT COUNT(*) AS jobs FROM history WHERE started IS NOT NULL")[0]["jobs"]
    names = list(dict.fromkeys([settings["scheduler"], *schedulers]))
    result: dict[str, Any] = {"jobs": jobs, "schedulers": {}}
    for name in names:
        # All other options are as recorded, so that only the scheduler differs.
        options = {option: settings[option] for option in ("baseline", "every", "rates", "act")}
        ledger = Ledger(create_scheduler(name), **options)
        # Recorded rounds are in force whatever a scheduler decides: all of
        # them see the same states.
        for _, record in store.records():
            ledger.apply(record)
        result["rounds"] = ledger.rounds
        result["schedulers"][name] = {"same": ledger.rounds - ledger.diverged}
    store.close()
    return result


def lines(result: dict[str, Any]) -> list[str]:
    rounds = result["rounds"]
    sentences = [f"{rounds} rounds and {result['jobs']} jobs that ended are recorded"]
    for name, row in result["schedulers"].items():
        sentences.append(f"{name}: decides as recorded in {row['same']} of {rounds} rounds")
    return sentences


TRIED = 12  # earlier instants whose forecasts correct one
HISTORY = 2_000  # of so many jobs, those that ended last, run times are learned
DRAWS = 50  # futures that are played
SHOWN = 200  # of so many waiting jobs the start is forecast


def forecast_live(folder: Path | str, draws: int = DRAWS) -> ForecastOfLog:
    """Forecast starts of waiting jobs; ScenarioError when none waits that could be placed."""
    folder = Path(folder)
    # The checkpoint before the history: a job that ends in between is in both, and counts as ended.
    (ledger, _), _ = read_checkpoint(folder / CHECKPOINT)
    store = ServiceStore(folder / FILE, read_only=True)
    over = store.rows(
        "SELECT * FROM history WHERE started IS NOT NULL AND ended > started "
        f"ORDER BY ended DESC LIMIT {HISTORY}"
    )
    store.close()
    instant, books = float(ledger.now), ledger.books
    rows = [*over, *present_rows(ledger, over)]
    offered = {
        name
        for name, active in ledger.jobs.items()
        if active.phase == "waiting" and active.possible and active.until < np.inf
    }
    if books is None or not offered:
        raise ScenarioError("no job waits that the service could place")
    jobs, _ = drawn(ledger, rows, (), None)
    begun, end = np.full(len(jobs), np.nan), np.full(len(jobs), np.inf)
    for j, at in enumerate(jobs.row.tolist()):
        row = rows[at]
        if "ended" in row:
            begun[j], end[j] = row["started"], row["ended"]
        elif row["job"] in books.running:
            begun[j] = books.running[row["job"]].begun
    place = {name: j for j, name in enumerate(jobs.id.astype(str).tolist())}
    decides = ledger.scheduler if ledger.act else ledger.baseline
    played = ReplayInstance(
        replace(jobs, recorded_start=begun, recorded_end=end), books.nodes, Conditions()
    )
    past = Past(played, decides, None, True, draws)
    placed_names = [name for name in books.running if name in place]
    running = np.array([place[name] for name in placed_names], dtype=np.int64)
    waiting = np.array(sorted(place[n] for n in offered if n in place), dtype=np.int64)
    can = ~past.forecaster.tables.aside
    pieces = [books.running[name].pieces for name in placed_names]
    moment = Moment(instant, running, begun[running], pieces, waiting[can[waiting]], books)
    # A fixed seed: the same state has the same forecast.
    rng = np.random.default_rng(0)
    ended = np.array([row["ended"] for row in over])
    # Before a fifth has ended too little was known for a forecast to say anything of later ones.
    begin = float(jobs.submit[0]) if ended.size < 20 else float(np.quantile(ended, 0.2))
    calibration = past.corrected(np.sort(rng.uniform(begin, instant, TRIED)), instant, rng)
    quantiles = past.forecast(moment, rng)
    forecasts = forecast_rows(jobs, quantiles, calibration)[:SHOWN]
    line = (
        f"{draws} futures under {past.forecaster.assumed}: drawn are run times and arrivals, from "
        f"{len(over):,} jobs that have ended; {calibration.known:,} earlier starts correct them"
    )
    return ForecastOfLog(instant, line, forecasts)

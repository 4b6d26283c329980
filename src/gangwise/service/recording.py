"""A live run, played again, and played on: what is asked of the folder of a service.

The journal holds all that reached the scheduler, in order. Given it again, the same scheduler must
decide the same in every round. For another one the replay counts how often it would have decided
otherwise; what that would save, :mod:`gangwise.service.account` says.

Forecasts of when waiting jobs will start begin with the books as they are: who runs where, which
nodes are up. Forecasts that would have been made at earlier instants of the history, held against
what happened, correct them: rules that the cluster has and we do not know of, and starts that are
late, count in that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.simulation import read_checkpoint
from gangwise.experiments.explain import ForecastOfLog, Past, forecast_rows
from gangwise.experiments.replay_scenario import ReplayInstance
from gangwise.jobs.forecast import Moment
from gangwise.jobs.model import Conditions
from gangwise.jobs.scheduler import create_scheduler
from gangwise.service.account import drawn, present_rows
from gangwise.service.ledger import Ledger
from gangwise.service.loop import CHECKPOINT
from gangwise.service.store import FILE, ServiceStore


def replayed(folder: Path | str, schedulers: Sequence[str] = ()) -> dict[str, Any]:
    """Play the recorded run of a service's folder: how many rounds each decides as recorded.

    Other ``schedulers`` meet the same; none of them sees what its own decisions would have changed.
    Raises StoreError when nothing is recorded, or the journal no longer begins at its beginning.
    """
    store = ServiceStore(Path(folder) / FILE, read_only=True)
    settings = json.loads(store.about("settings") or "{}")
    first = store.first()
    if first != 1 or not settings:
        why = "nothing is recorded yet" if first is None else "its beginning was dropped as too old"
        raise StoreError(f"{store.path}: {why}")
    jobs = store.rows("SELECT COUNT(*) AS jobs FROM history WHERE started IS NOT NULL")[0]["jobs"]
    names = list(dict.fromkeys([settings["scheduler"], *schedulers]))
    result: dict[str, Any] = {"jobs": jobs, "schedulers": {}}
    for name in names:
        given = {of: settings[of] for of in ("baseline", "every", "rates", "act")}
        ledger = Ledger(create_scheduler(name), **given)
        for _, record in store.records():
            ledger.apply(record)
        result["rounds"] = ledger.rounds
        result["schedulers"][name] = {"same": ledger.rounds - ledger.diverged}
    store.close()
    return result


def lines(result: dict[str, Any]) -> list[str]:
    rounds = result["rounds"]
    found = [f"{rounds} rounds and {result['jobs']} jobs that ended are recorded"]
    for name, row in result["schedulers"].items():
        found.append(f"{name}: decides as recorded in {row['same']} of {rounds} rounds")
    return found


TRIED = 12  # earlier instants whose forecasts correct one
HISTORY = 2_000  # of so many jobs, those that ended last, run times are learned
DRAWS = 50  # futures that are played
SHOWN = 200  # of so many waiting jobs the start is forecast


def forecast_live(folder: Path | str, draws: int = DRAWS) -> ForecastOfLog:
    """When waiting jobs will start; raises ScenarioError when none waits that could be placed."""
    folder = Path(folder)
    (ledger, _), _ = read_checkpoint(folder / CHECKPOINT)
    store = ServiceStore(folder / FILE, read_only=True)
    over = store.rows(
        "SELECT * FROM history WHERE started IS NOT NULL AND ended > started "
        f"ORDER BY ended DESC LIMIT {HISTORY}"
    )
    store.close()
    now, books = float(ledger.now), ledger.books
    rows = [*over, *present_rows(ledger, over)]
    offered = {
        name
        for name, known in ledger.jobs.items()
        if known.phase == "waiting" and known.possible and known.until < np.inf
    }
    if books is None or not offered:
        raise ScenarioError("nobody waits whom the service could place")
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
    there = [name for name in books.running if name in place]
    running = np.array([place[name] for name in there], dtype=np.int64)
    waiting = np.array(sorted(place[n] for n in offered if n in place), dtype=np.int64)
    can = ~past.forecaster.tables.aside
    pieces = [books.running[name].pieces for name in there]
    moment = Moment(now, running, begun[running], pieces, waiting[can[waiting]], books)
    rng = np.random.default_rng(0)
    ended = np.array([row["ended"] for row in over])
    begin = float(jobs.submit[0]) if ended.size < 20 else float(np.quantile(ended, 0.2))
    calibration = past.corrected(np.sort(rng.uniform(begin, now, TRIED)), now, rng)
    known = past.forecast(moment, rng)
    found = forecast_rows(jobs, known, calibration)[:SHOWN]
    line = (
        f"{draws} futures under {past.forecaster.assumed}: drawn are run times and who comes, from "
        f"{len(over):,} jobs that have ended; {calibration.known:,} earlier starts correct them"
    )
    return ForecastOfLog(now, line, found)

"""When the jobs that wait on a live cluster will start, from the service's folder.

Futures begin with the books as they are: who runs where, which nodes are up. Forecasts that would
have been made at earlier instants of the history, held against what happened, correct them: rules
that the cluster has and we do not know of, and starts that are late, count in that.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from gangwise.core.checkpoints import read_checkpoint
from gangwise.core.errors import ScenarioError
from gangwise.experiments.explain import ForecastOfLog, Past, forecast_rows
from gangwise.experiments.replay_scenario import ReplayInstance
from gangwise.jobs.forecast import Moment
from gangwise.jobs.model import Conditions
from gangwise.service.account import drawn, present_rows
from gangwise.service.loop import CHECKPOINT
from gangwise.service.store import FILE, Store

TRIED = 12  # earlier instants whose forecasts correct one
HISTORY = 2_000  # of so many jobs, those that ended last, run times are learned
DRAWS = 50  # futures that are played
SHOWN = 200  # of so many waiting jobs the start is forecast


def forecast_live(folder: Path | str, draws: int = DRAWS) -> ForecastOfLog:
    """When waiting jobs will start; raises ScenarioError when none waits that could be placed."""
    folder = Path(folder)
    (ledger, _), _ = read_checkpoint(folder / CHECKPOINT)
    store = Store(folder / FILE, read_only=True)
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

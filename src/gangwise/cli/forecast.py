"""``gangwise forecast``: when waiting jobs will start."""

from __future__ import annotations

from typing import Any

from gangwise.cli.options import progress, screen, settings_of, table
from gangwise.core.errors import ScenarioError
from gangwise.core.json_text import json_text


def forecast_command(
    source: str,
    at: str = "",
    scheduler: str = "fcfs+easy+best-fit",
    recorded: bool = False,
    draws: int = 100,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Say when waiting jobs will start: at a time of a log, or on a live cluster now.

    For each job: the time by which it starts with an even chance (p50) and in nine cases of ten
    (p90), and when it would start if all jobs took as long as requested and no other came.
    """
    from gangwise.experiments.changes import seconds_of
    from gangwise.experiments.forecast import forecast_log
    from gangwise.service.recording import is_recording
    from gangwise.service.views import lasting

    if not 10 <= draws <= 10_000:
        raise ScenarioError(f"--draws {draws}: give 10 to 10000")
    if is_recording(source):
        from gangwise.service.forecasting import forecast_live

        if at:
            raise ScenarioError(f"{source} is of a live service: leave out --at")
        found = forecast_live(source)
    elif not at:
        raise ScenarioError("name the time with --at, on the log's clock, such as --at 12d6h")
    else:
        with progress("nothing is kept") as tell:
            found = forecast_log(
                source, seconds_of(at), scheduler, recorded, draws, settings_of(settings), tell
            )
    if as_json:
        print(json_text(found.as_dict()))
        return
    heads = ["job", "user", "tasks", "asked", "waited", "p50", "p90", "by requests"]
    seconds = ["limit", "waited", "p50", "p90", "promised"]
    if at:
        heads.append("started after" if recorded else "simulated")
        seconds.append("started")
    rows: list[list[Any]] = [
        [row["job"], row["user"], str(row["tasks"]), *(lasting(row[name]) for name in seconds)]
        for row in found.rows
    ]
    console = screen()
    console.print(found.told, markup=False)
    console.print(table(heads, rows, (0, 1)))

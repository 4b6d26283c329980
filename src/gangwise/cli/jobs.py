"""``gangwise jobs``: the jobs of a log, and how much of it can be played."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gangwise.cli.options import Json, settings_of
from gangwise.cli.trace import ReaderSettings, Strict, TraceName, TracePath


def jobs_command(
    path: TracePath,
    job_type: Annotated[
        str,
        typer.Option(
            "--type",
            metavar="COLUMN",
            help="What the type of a job is, by which rates are learned: user, application, "
            "partition, …; request: what it asks for. By default what suits the format.",
        ),
    ] = "",
    settings: ReaderSettings = None,
    trace: TraceName = "",
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """The jobs of a log: how much can be played, load over time, sizes, waits, run times, users."""
    from gangwise.traces.jobs import open_jobs
    from gangwise.traces.jobs_summary import report, summary

    log = open_jobs(path, trace=trace, job_type=job_type, strict=strict, **settings_of(settings))
    if as_json:
        found = {"played": log.played.to_dict(), **summary(log)}
        print(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(report(log))

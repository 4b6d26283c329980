"""What ranks report of themselves, read from where ``gangwise rank`` writes it."""

from __future__ import annotations

import json
import math
from pathlib import Path

from gangwise.engines.engine import RankReport

MOST = 64 * 1024
"""Bytes of a report that are read; a rank that writes more writes nonsense."""


def read_reports(folder: Path, job: str, run: int) -> tuple[RankReport, ...]:
    """Reports of the ranks of one start of a job, by rank; those that make no sense are left out.

    Parameters
    ----------
    folder : path
        ``GANGWISE_REPORTS`` of the ranks.
    run : int
        The cluster's number of this start of the job.
    """
    found: list[RankReport] = []
    try:
        files = list(folder.glob(f"{job}.{run}.*.json"))
    except OSError:
        return ()
    for path in files:
        report = read_report(path)
        if report is not None:
            found.append(report)
    return tuple(sorted(found, key=lambda report: report.rank))


def read_report(path: Path) -> RankReport | None:
    """One report; None where it is missing, says nothing of work, or makes no sense."""
    try:
        with open(path, "rb") as file:
            content = json.loads(file.read(MOST))
        report = RankReport(
            str(content["node"]),
            int(content["rank"]),
            float(content["work"]),
            float(content["seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    return report if report.rate > 0 and math.isfinite(report.rate) else None

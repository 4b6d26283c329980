"""What ranks report of themselves, read from where ``gangwise rank`` writes it.

Ranks write into a folder that others may write to as well. So only what a rank of this job may have
written counts: a regular file of bounded size, owned by the job's user, under the name of a rank
that the job has. Nothing is waited for.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

from gangwise.engines.engine import RankReport
from gangwise.engines.intake import Unreadable, name, read_file, whole

REPORT_BYTES = 64 * 1024  # a rank that writes a longer report writes nonsense
RANKS = 4096  # of so many ranks of a job, the first ones, reports are read


def read_reports(
    folder: Path | str, job: str, run: int, ranks: int, owner: int | None
) -> tuple[RankReport, ...]:
    """Reports of the ranks of one start of a job, by rank; those that make no sense are left out.

    ``run`` is the cluster's number of this start, ``owner`` the uid of the job's user: only files
    of this user count, and none where the user is not known.
    """
    if owner is None or "/" in job:
        return ()
    names = (f"{folder}/{job}.{run}.{rank}.json" for rank in range(min(ranks, RANKS)))
    found = (read_report(path, owner) for path in names)
    return tuple(report for report in found if report is not None)


def read_report(path: Path | str, owner: int | None) -> RankReport | None:
    """One report; None where it is missing, not of its owner, says nothing, or makes no sense.

    ``owner`` is None where any is as good.
    """
    try:
        file = read_file(path, REPORT_BYTES)
        if file is None or owner not in (None, file.owner):
            return None
        content = json.loads(file.content)
        report = RankReport(
            name(content["node"], "its node"),
            whole(content["rank"], "its rank"),
            float(content["work"]),
            float(content["seconds"]),
        )
    except (OSError, Unreadable, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    rate = report.work / report.seconds if report.seconds > 0 else math.nan
    return report if 0 < rate < math.inf else None

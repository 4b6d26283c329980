"""How much of each log at hand the model explains, before anything is calibrated.

    python -m benchmarks.retold traces/swf/KTH-SP2.swf.gz traces/alibaba-gpu-v2023

A Markdown table with two rows a log: under EASY, and under the plain rule that explains most, of
those that ``gangwise replay`` plays by default. See :mod:`gangwise.sites.retelling`.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from gangwise.core.errors import GangwiseError
from gangwise.notation import roughly
from gangwise.study.answer import Compared
from gangwise.study.replay import BASE, WITHOUT_RATES, replay
from gangwise.study.statistics import number

SHARES = ("explained", "partition", "size", "user", "week", "day", "by_job", "use", "queue", "near")
HEADINGS = ["log", "jobs", "rules", "mean wait", "retold", "mean, %"]
HEADINGS += ["partition", "size", "user class", "week or day", "job by job"]
HEADINGS += ["use by the hour", "queue by the hour", "starts near", "order, τ", "model's error, %"]


def row(of: Compared) -> str:
    told = of.retold
    if told is None:
        return (
            f"| {Path(of.name).name} | {len(of.first.jobs):,} | starts are not recorded as "
            "distinct from submissions" + " |" * (len(HEADINGS) - 2)
        )
    shares = {name: told.by(name) for name in told.groups} | vars(told)
    shares["explained"] = told.explained
    when = "week" if "week" in shares else "day"
    cells = [
        Path(of.name).name,
        f"{told.jobs:,}",
        f"`{told.name}`",
        roughly(told.recorded),
        roughly(told.simulated),
        *(
            number(100 * shares.get(name, math.nan))
            for name in SHARES
            if name not in ("week", "day") or name == when
        ),
        number(told.order, 2),
        f"{of.error('waiting.mean'):+.0f}".replace("-", "−"),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    read = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    read.add_argument("logs", nargs="+")
    print(f"| {' | '.join(HEADINGS)} |\n|{'---|' * len(HEADINGS)}")
    for log in read.parse_args().logs:
        try:
            played = replay(log, WITHOUT_RATES)
        except GangwiseError as error:
            print(f"| {Path(log).name} | | {error} {'| ' * (len(HEADINGS) - 2)}")
            continue
        found = [played.compared()]
        if found[0].base != BASE:
            found.append(Compared(found[0].name, played.outcomes, BASE))
        for each in reversed(found):
            print(row(each), flush=True)


if __name__ == "__main__":
    main()

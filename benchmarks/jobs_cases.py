"""Random cases: both engines against a simulator that walks every second, and what must hold.

``python -m benchmarks.jobs_cases [CASES]``, 30,000 by default. The draw has gangs, tasks per node,
labels, parts of GPUs, ties, run times of 0, requests too short, kills at the limit, dependencies,
slow nodes, nodes that fail, drain, join and come back, and jobs withdrawn. Every case is played by
the compiled engine under one of the combinations of parts, every tenth by the plain one as well,
every fifth by one that preempts, every thousandth by Gavel. Differences from the slow simulator are
listed, and whether the other engine has them, too; exit code 1 where there are any.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np
from tests.jobs.invariants import check_schedule
from tests.jobs.made import BACKFILLING, CHOICES, QUEUES, Case
from tests.jobs.test_simulation import played, preemptive, slow, told

from gangwise.jobs import simulate_jobs


def promises_kept(case: Case, names: tuple[str, ...]) -> int:
    """Promises made and kept, first come first served, where nothing else may break one."""
    jobs, given = case.jobs, case.conditions
    disturbed = given.rates is not None or given.downs or given.drains or given.cancels
    if names[1] == "none" or disturbed or jobs.after.size or (jobs.run > jobs.limit).any():
        return 0
    name = f"fcfs+{names[1]}+{names[2]}"
    schedule = simulate_jobs(jobs, case.nodes, name, engine="compiled")
    made = np.isfinite(schedule.reserved)
    assert (schedule.start[made] <= schedule.reserved[made]).all(), name
    return int(made.sum())


def main(cases: int) -> None:
    combinations = list(itertools.product(QUEUES, BACKFILLING, CHOICES))
    began = time.time()
    seen: dict[str, int] = {}
    different: list[str] = []

    def count(**what: int) -> None:
        for name, number in what.items():
            seen[name] = seen.get(name, 0) + number

    for seed in range(cases):
        names = combinations[seed % len(combinations)]
        case = Case(seed, binary=names[0] == "fair-share", shared=names[2] == "fgd")
        witness = slow(case, names)
        expected = [
            (s, l, e, sorted(nodes))
            for s, l, e, nodes in zip(witness.start, witness.last, witness.end, witness.nodes)
        ]
        for engine in ("compiled", "plain")[: 1 + (seed % 10 == 0)]:
            schedule = played(case, names, engine)
            if told(schedule, case) != expected:
                other = "plain" if engine == "compiled" else "compiled"
                alike = told(played(case, names, other), case) == told(schedule, case)
                also = f"{other} {'as well' if alike else 'not'}"
                different.append(f"case {seed}, {'+'.join(names)}: {engine} differs, {also}")
            count(**{f"{engine} runs": 1})
        held = check_schedule(case.jobs, case.nodes, case.conditions, schedule)
        kept = promises_kept(case, names)
        count(
            jobs=len(case.jobs),
            attempts=held,
            promises=kept,
            requeues=schedule.counts["requeues"],
            kills=schedule.counts["kills"],
            cancellations=schedule.counts["cancellations"],
        )
        if seed % 5 == 0:
            for scheduler in preemptive(shares=seed % 1000 == 0):
                schedule = simulate_jobs(
                    case.jobs, case.nodes, scheduler, case.conditions, case.options, engine="plain"
                )
                check_schedule(case.jobs, case.nodes, case.conditions, schedule)
                count(**{"preemptive runs": 1, "preemptions": schedule.counts["preemptions"]})
    print(f"{cases:,} cases, {len(different)} differences, in {time.time() - began:,.0f} s")
    print("\n".join(different))
    for name, number in seen.items():
        print(f"  {number:10,} {name}")
    raise SystemExit(bool(different))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30_000)

"""Random cases of 30 to 300 jobs: the package against the witness of the stated rules.

``python -m benchmarks.jobs_cases [CASES [FIRST]]``, 200,000 from seed 0 by default. The draw has
gangs, several device types, parts of GPUs, tasks per node, labels, ties, run times of 0, requests
too short, limits of both kinds with and without kills, dependencies, rates, noise, nodes that fail,
drain, join, come back and change their speed, checkpoints, restarts, and jobs withdrawn; every
order of the queue with every kind of backfilling and choice of nodes. Each schedule is compared
start for start, node for node, and every twentieth is audited. Tables count cases that differ, by
size and by combination; exit code 1 where there are any.
"""

from __future__ import annotations

import itertools
import resource
import sys
from collections import Counter

from tests.jobs.middle import MiddleCase

from gangwise.jobs.audit import audit
from gangwise.jobs.metrics import Outcome

SIZES = (30, 60, 100, 150, 220, 301)


def _table(title: str, cases: Counter[str], different: Counter[str]) -> None:
    print(f"\n| {title} | cases | differ |\n|---|---|---|")
    for name, number in cases.items() if title == "size" else sorted(cases.items()):
        print(f"| {name} | {number:,} | {different[name]:,} |")


def main(cases: int, first: int) -> None:
    sizes: Counter[str] = Counter({f"{a} to {b - 1} jobs": 0 for a, b in itertools.pairwise(SIZES)})
    parts: Counter[str] = Counter()
    sizes_differ, parts_differ, seen = Counter[str](), Counter[str](), Counter[str]()
    listed = []
    for seed in range(first, first + cases):
        case = MiddleCase(seed)
        schedule = case.played()
        said = case.differences(schedule)
        if seed % 20 == 0:
            given = case.scheduler(), case.conditions, case.options, schedule.reserved
            report = audit(Outcome.of(schedule, ""), *given)
            said += [str(finding) for finding in report.findings]
            seen.update(audited=1, audited_instants=report.instants)
        a = max(size for size in SIZES if size <= case.size)
        size = f"{a} to {SIZES[SIZES.index(a) + 1] - 1} jobs"
        for counter, differ, names in (
            (sizes, sizes_differ, [size]),
            (parts, parts_differ, ["+".join(case.names[:2]), case.names[2]]),
        ):
            counter.update(names)
            differ.update(names * bool(said))
        if said:
            listed.append(f"seed {seed}, {case.size} jobs, {'+'.join(case.names)}: {said[0]}")
        counts = {name: n for name, n in schedule.counts.items() if name != "tests"}
        seen.update(counts, jobs=case.size)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(f"{cases:,} cases from seed {first}: {len(listed):,} differ", end="; ")
    print(", ".join(f"{n:,} {name}" for name, n in seen.items()), end="; ")
    print(f"{used.ru_utime + used.ru_stime:,.0f} CPU s")
    _table("size", sizes, sizes_differ)
    _table("parts", parts, parts_differ)
    print("\n".join(["", *listed[:40]]))
    raise SystemExit(bool(listed))


if __name__ == "__main__":
    given = [int(word) for word in sys.argv[1:]]
    main(*[*given, *(200_000, 0)[len(given) :]])

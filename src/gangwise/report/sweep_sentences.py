"""What a sweep says, in sentences: who won, by how much, what is missing, how well it is proved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gangwise.experiments.results import Results
from gangwise.experiments.statistics import number, small_share, verdict
from gangwise.report.sentences import plain
from gangwise.report.sweep_numbers import Cell, SweepNumbers


def byline(numbers: SweepNumbers) -> str:
    """What was run: scenario, how much of what, version."""
    results = numbers.results
    seeds = {run["seed"] for run in results.runs}
    slots = sorted({run["slots"] for run in results.runs})
    scenario, _ = numbers.scenario()
    return ", ".join(
        [
            scenario,
            _count(len(results.policies), "policy", "policies"),
            _count(len(numbers.cells), "cell"),
            _count(len(seeds), "seed"),
            f"{slots[0]:,} slots" if len(slots) == 1 else f"{slots[0]:,} to {slots[-1]:,} slots",
            f"gangwise {', '.join(numbers.run_versions)}",
        ]
    )


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n} {one if n == 1 else many or one + 's'}"


def lead(numbers: SweepNumbers) -> str:
    """Who earned most where, and whether that can be told from the next."""
    results, cells = numbers.results, numbers.cells
    if len(results.policies) == 1:
        return f"{results.policies[0]} is the only policy: there is nothing to compare it with."
    first: dict[str, list[Mapping[str, Any]]] = {}
    for cell in cells:
        best, *others = numbers.ranking(cell)
        row = numbers.over(others[0]).get((cell, best)) if others else None
        first.setdefault(best, []).extend([] if row is None else [row])
    if len(cells) == 1:
        (rows,) = first.values()
        return f"{verdict(rows[0])}." if rows else f"Only {best} has finished."
    by_wins = sorted(first.items(), key=lambda item: -len(item[1]))
    said = "; ".join(_won(policy, rows, len(cells)) for policy, rows in by_wins)
    return f"{said}. Leads are over the next policy, paired by seed."


def _won(policy: str, rows: Sequence[Mapping[str, Any]], cells: int) -> str:
    """In how many cells a policy is first, by how much, and how often that is beyond chance."""
    n = len(rows)
    every = "both cells" if cells == 2 else f"all {cells} cells"
    text = f"{policy} earned most in {every if n == cells else f'{n} of {cells} cells'}"
    leads = [row["mean"] for row in rows if row["percent"]]
    if len(leads) == n and n:
        low, high = number(min(leads), 1), number(max(leads), 1)
        text += f", by {low} %" if low == high else f", by {low} % to {high} %"
    clear = sum(row["low"] is not None and row["low"] > 0 for row in rows)
    if clear == n:
        return text + (", each time" if n > 1 else ",") + " more than chance explains"
    if clear == 0:
        return f"{text}, which may be chance"
    return f"{text}, in {clear} of them more than chance explains"


def missing(results: Results) -> str:
    """How many runs are not on the page; empty where all are."""
    if not results.missing:
        return ""
    of = len(results.runs) + len(results.missing)
    are = "run is" if len(results.missing) == 1 else "runs are"
    return (
        f"{len(results.missing)} of {of} {are} not finished and not on this page. Start the same "
        "command again to do the rest."
    )


def proof(numbers: SweepNumbers, comparator: str) -> str:
    """How well the comparator's reward is proved."""
    gap, total = numbers.of("gap"), numbers.of("reward.mean")
    slots = max(run["slots"] for run in numbers.results.runs)
    shares = [
        gap[at].mean / abs(total[at].mean * slots)
        for at in gap
        if at[1] == comparator and total[at].mean
    ]
    if not shares or max(shares) <= 0:
        return f"{comparator} is the {plain(comparator)}, computed exactly."
    return (
        f"{comparator} is the {plain(comparator)}, proved to within {small_share(max(shares))} "
        "of its reward in every cell."
    )


def against_best(numbers: SweepNumbers, cell: Cell, policy: str) -> str:
    """The policy against the best other one of a cell."""
    ranking = numbers.ranking(cell)
    if policy not in ranking or len(ranking) < 2:
        return ""
    best, other = (policy, ranking[1]) if ranking[0] == policy else (ranking[0], policy)
    row = numbers.over(other).get((cell, best))
    return "" if row is None else verdict(row)

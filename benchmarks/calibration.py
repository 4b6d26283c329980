"""What ``gangwise calibrate`` finds of planted rules, what it misses, and what it invents.

Jobs of real logs are played under a hidden rule of a site, and calibrate is given the starts. A
rule is found if kind, scope and what is counted are right and the range holds the planted value.
Every other rule that it names is an invention. With nothing planted, nothing may be named.

    python -m benchmarks.calibration [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.experiments.replay_scenario import load_of
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.calibration import Calibration, calibrate
from gangwise.jobs.contradictions import Record
from gangwise.jobs.metrics import held_devices
from gangwise.jobs.site import Rules, Site
from gangwise.jobs.world import stretched
from gangwise.traces.jobs import open_jobs

LOGS = {
    "KTH-SP2": ("swf/KTH-SP2.swf.gz", 0.7),
    "LLNL-Atlas": ("swf/LLNL-Atlas-2006-2.1-cln.swf.gz", 0.7),
    "lublin": ("swf/lublin_256.swf.gz", 0.8),
    "NASA": ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", 0.6),
    "openb": ("alibaba-gpu-v2023", 0.7),
}
"""Files, and the load to which arrivals are stretched."""
RULES = ("fcfs", "fcfs+easy", "fcfs+conservative:depth=100", "sjf+easy", "fair-share+easy")
DAY = 86400.0


class Planted(NamedTuple):
    strength: str
    kind: str
    site: dict[str, Any]


def log_of(folder: Path, name: str, first: int = 12_000) -> tuple[Jobs, Nodes]:
    """Jobs in one pool of processors or GPUs, at a load at which some of them wait."""
    file, load = LOGS[name]
    jobs = open_jobs(folder / file).jobs
    kind = "gpu" if "gpu" in jobs.devices else jobs.devices[0]
    k = jobs.devices.index(kind)
    asked = np.array([shape.demand[k] for shape in jobs.shapes])[jobs.shape] * jobs.tasks / 1000
    size = np.ceil(asked)
    keep = np.flatnonzero((size > 0) & (jobs.run > 0))[:first]
    rng = np.random.default_rng(len(keep))
    user = np.array(jobs.users)[jobs.user][keep]
    if len(set(user)) < 5:  # users by Zipf's law where the log has none
        user = np.array([f"u{n}" for n in np.minimum(rng.zipf(1.6, keep.size), 40)])
    total = int(max(size[keep].max(), np.quantile(size[keep], 0.99) * 8)) // 1
    total = {"KTH-SP2": 100, "lublin": 256, "NASA": 128}.get(name, total)
    groups = {each: f"p{i % 3}" for i, each in enumerate(sorted(set(user)))}
    made = Jobs.of(
        jobs.submit[keep],
        jobs.run[keep],
        np.minimum(size[keep], total).astype(int),
        {kind: 1.0},
        limit=jobs.limit[keep],
        user=user,
        pool=np.array([groups[each] for each in user]),
    )
    nodes = Nodes.pool(total, kind)
    span = float(made.submit[-1] - made.submit[0])
    return stretched(made, span * load_of(made, nodes) / load), nodes


def planted(jobs: Jobs, nodes: Nodes, free: Any, rng: Any) -> Iterator[Planted]:
    """Rules that bind: caps at half and at four fifths of what a user, pool or all hold at most."""
    device, total = nodes.devices[0], int(nodes.capacity[0, 0] // 1000)
    size = held_devices(jobs, nodes)[:, 0]

    def peak(on: Any, weight: Any) -> float:
        time = np.concatenate([free.end[on], free.start[on]])
        change = np.concatenate([-weight[on], weight[on]])
        return float(np.cumsum(change[np.lexsort((change, time))]).max())

    use = np.bincount(jobs.user, size * jobs.run)
    top = int(np.argmax(use))
    one = np.ones(len(jobs))
    for strength, share in (("strong", 0.4), ("weak", 0.75)):
        for of, weight in (("jobs", one), (device, size)):
            least = 1 if of == "jobs" else float(np.quantile(size, 0.99))
            most = [int(max(share * peak(jobs.user == top, weight), least, 2))] * 2
            peaks = sorted(peak(jobs.user == u, weight) for u in range(len(jobs.users)))[-5:]
            most[1] = int(max(share * peaks[0], least, 2))
            only = {"only": [jobs.users[top]]}
            yield Planted(
                strength,
                f"one user, {of}",
                {"cap": [{"scope": "user", **only, "of": of, "most": most[0]}]},
            )
            yield Planted(
                strength,
                f"every user, {of}",
                {"cap": [{"scope": "user", "of": of, "most": most[1]}]},
            )
        mine = np.array([name == "p0" for name in jobs.pools])[jobs.pool]
        most_p = int(max(share * peak(mine, size), np.quantile(size[mine], 0.99)))
        yield Planted(
            strength,
            "one pool",
            {"cap": [{"scope": "pool", "only": ["p0"], "of": device, "most": most_p}]},
        )
        most_a = int(max(total * (0.6 if strength == "strong" else 0.9), size.max()))
        if most_a < total:
            yield Planted(
                strength, "all", {"cap": [{"scope": "all", "of": device, "most": most_a}]}
            )
        span = jobs.submit[-1] - jobs.submit[0]
        hours = 24.0 if strength == "strong" else 6.0
        begins = jobs.submit[0] + span * np.array([0.3, 0.6]) + rng.uniform(0, DAY, 2)
        count = int(total * (1.0 if strength == "strong" else 0.5))
        windows = [{"from": b, "to": b + hours * 3600, "count": count} for b in begins]
        yield Planted(strength, "window", {"window": windows})
    yield Planted("strong", "start", {"start": {"latency": 30.0}})


def judged(found: Calibration, rule: dict[str, Any]) -> tuple[int, int, list[str]]:
    """How many planted rules there are, how many of them were found, and what was invented."""
    todo = [(kind, one) for kind, many in rule.items() for one in np.atleast_1d(many)]
    hits: set[int] = set()
    invented = []
    for one in found.findings:
        of_kind = [(i, entry) for i, (kind, entry) in enumerate(todo) if kind == one.kind]
        same = [i for i, entry in of_kind if _matches(one, entry)]
        hits |= set(same)
        wider = [entry for _, entry in of_kind if _matches(one, {**entry, **_only(one)})]
        invented += [] if same or wider else [str(one.entry)]
    return len(todo), len(hits), invented


def _only(one: Any) -> dict[str, Any]:
    """Of one user is a part of what was planted for every user: neither found nor invented."""
    return {"only": one.entry["only"]} if "only" in one.entry else {}


def _matches(one: Any, entry: dict[str, Any]) -> bool:
    low, high = one.between
    if one.kind == "start":
        return bool(low <= entry["latency"] <= high)
    if one.kind == "window":
        return bool(one.entry["from"] < entry["to"] and entry["from"] < one.entry["to"])
    same = all(one.entry.get(key, []) == entry.get(key, []) for key in ("scope", "of", "only"))
    return bool(same and low <= entry["most"] < high)


def recorded(jobs: Jobs, nodes: Nodes, rules: str, site: Site | None) -> Record | None:
    """What the log would be; None where the site leaves jobs that can never run."""
    schedule = simulate_jobs(jobs, nodes, rules, site=site)
    log = replace(jobs, recorded_start=schedule.start, recorded_end=schedule.end)
    pools = np.array(jobs.pools)[jobs.pool]
    return Record.of(log, nodes, groups={"pool": pools})


def main(quick: bool = False) -> None:
    import os

    folder = Path(os.environ["GANGWISE_TRACES"])
    first = 4000 if quick else 12_000
    print("| log | rules | planted | strength | planted | found | invented | refused | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    sums: dict[tuple[str, str], list[int]] = {}
    for name in LOGS:
        jobs, nodes = log_of(folder, name, first)
        for rules in RULES:
            _tell(
                name, rules, Planted("-", "nothing", {}), recorded(jobs, nodes, rules, None), sums
            )
        free = simulate_jobs(jobs, nodes, "fcfs+easy")
        for rule in planted(jobs, nodes, free, np.random.default_rng(7)):
            site = Site(Rules.model_validate(rule.site))
            _tell(name, "fcfs+easy", rule, recorded(jobs, nodes, "fcfs+easy", site), sums)
    print("\n| planted | strength | planted | found | invented |\n|---|---|---|---|---|")
    for (kind, strength), (rules_n, hits, extra) in sums.items():
        print(f"| {kind} | {strength} | {rules_n} | {hits} | {extra} |")


def _tell(name: str, rules: str, rule: Planted, record: Any, sums: Any) -> None:
    began = time.perf_counter()
    found = calibrate(record)
    seconds = time.perf_counter() - began
    many, hits, invented = judged(found, rule.site)
    of = "window" if rule.kind == "window" else rule.kind
    total = sums.setdefault((of, rule.strength), [0, 0, 0])
    for i, n in enumerate((many, hits, len(invented))):
        total[i] += n
    print(
        f"| {name} | {rules} | {rule.kind} | {rule.strength} | {many} | {hits} | {len(invented)} "
        f"| {found.refused} | {seconds:.2f} |",
        flush=True,
    )
    for text in invented:
        print(f"|  | invented: {text} |", flush=True)


if __name__ == "__main__":
    main("--quick" in sys.argv)

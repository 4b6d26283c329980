"""What ``gangwise calibrate`` finds of planted rules, what it misses, and what it invents.

Jobs of real logs are played under a hidden rule of a site, and calibrate is given the starts. A
rule is found if kind, scope and what is counted are right and the range holds the planted value.
What only follows from it (of one user of all, of larger requests, one of the weekly times) is
neither found nor invented. Every other rule that it names is an invention. With nothing planted,
nothing may be named.

Thresholds were chosen on the first half of each log's jobs and seed 7 (``--tune``); the table is of
the other half, with other users under the rules and other weeks.

    GANGWISE_TRACES=... python -m benchmarks.calibration [--tune] [LOG …]
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.jobs import Jobs, Node, Nodes, simulate_jobs
from gangwise.jobs.metrics import held_devices
from gangwise.jobs.tenancy import weekly
from gangwise.jobs.world import stretched
from gangwise.logs.jobs import open_jobs
from gangwise.notation import expand_nodes
from gangwise.sites.calibration import Calibration, calibrate
from gangwise.sites.retelling import Record
from gangwise.sites.site import OwnClock, Rules, Site
from gangwise.study.replay_scenario import load_of

LOGS = {
    "KTH-SP2": ("swf/KTH-SP2.swf.gz", 0.7),
    "LLNL-Atlas": ("swf/LLNL-Atlas-2006-2.1-cln.swf.gz", 0.7),
    "lublin": ("swf/lublin_256.swf.gz", 0.8),
    "NASA": ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", 0.6),
    "openb": ("alibaba-gpu-v2023", 0.7),
}
"""Files, and the load to which arrivals are stretched."""
MOST = 6_000  # jobs of each half
NODES = 24  # where partitions have nodes
RULES = ("fcfs", "fcfs+easy", "sjf", "sjf+easy", "fair-share+easy")
DAY = 86400.0


class Planted(NamedTuple):
    strength: str
    kind: str
    site: dict[str, Any]
    hosts: bool = False  # the log says which of several nodes each job ran on
    sought: dict[str, Any] | None = None  # where a log cannot tell the rule itself


def log_of(folder: Path, name: str, tune: bool) -> tuple[Jobs, Nodes]:
    """Half of the jobs, in one pool of processors or GPUs, at a load at which some of them wait."""
    file, load = LOGS[name]
    jobs = open_jobs(folder / file).jobs
    kind = "gpu" if "gpu" in jobs.devices else jobs.devices[0]
    k = jobs.devices.index(kind)
    asked = np.array([shape.demand[k] for shape in jobs.shapes])[jobs.shape] * jobs.tasks / 1000
    size = np.ceil(asked)
    keep = np.flatnonzero((size > 0) & (jobs.run > 0))
    keep = keep[: keep.size // 2][:MOST] if tune else keep[keep.size // 2 :][:MOST]
    rng = np.random.default_rng(len(keep))
    user = np.array(jobs.users)[jobs.user][keep]
    if len(set(user)) < 5:  # users by Zipf's law where the log has none
        user = np.array([f"u{n}" for n in np.minimum(rng.zipf(1.6, keep.size), 40)])
    total = max(size[keep].max(), np.quantile(size[keep], 0.99) * 8)
    total = {"KTH-SP2": 100, "lublin": 256, "NASA": 128}.get(name, total)
    total = int(np.ceil(total / NODES) * NODES)
    made = Jobs.of(
        jobs.submit[keep] - jobs.submit[keep].min(),
        jobs.run[keep],
        np.minimum(size[keep], total // 4).astype(int),
        {kind: 1.0},
        limit=jobs.limit[keep],
        user=user,
        pool=np.array([f"p{i % 3}" for i in np.unique(user, return_inverse=True)[1]]),
        charged=np.array([f"a{i % 4}" for i in np.unique(user, return_inverse=True)[1]]),
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
        for scope, name, of in (("pool", "p0", jobs.pool), ("account", "a1", jobs.charged)):
            names = jobs.pools if scope == "pool" else jobs.accounts
            mine = np.array([each == name for each in names])[of]
            most_of = int(max(share * peak(mine, size), np.quantile(size[mine], 0.99)))
            cap = {"scope": scope, "only": [name], "of": device, "most": most_of}
            yield Planted(strength, f"one {scope}", {"cap": [cap]})
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
    yield from dedicated(jobs, device, size, jobs.users[top], rng)
    yield from partitions(device, total // NODES, rng)


def dedicated(jobs: Jobs, device: str, size: Any, user: str, rng: Any) -> Iterator[Planted]:
    """Hours of the week in which some jobs do not start, and days that one user has for himself."""
    day = ["Mon", "Tue", "Wed", "Thu", "Fri"][int(rng.integers(5))]
    work, late = ["Mon-Fri 08:00-18:00"], int(rng.integers(18, 21))
    long, large = (float(np.quantile(x, 0.7)) for x in (jobs.limit, size))
    for what, closed in {
        "long jobs by day": {"hours": work, "longer_than": long},
        "large jobs by day": {"hours": work, "more_than": large, "of": device},
        "one pool at weekends": {"hours": ["Sat-Sun 00:00-24:00"], "pool": "p1"},
        "everything, 8 h a week": {"hours": [f"{day} 06:00-14:00"]},
        "all but one user at night": {"hours": [f"Mon-Sun {late}:00-24:00"], "except": [user]},
    }.items():
        yield Planted("weekly", what, {"closed": [closed]})
    mine = jobs.submit[jobs.user == jobs.users.index(user)]
    for hours in (24, 48):  # where he comes most
        came = np.searchsorted(mine, mine + 3600 * hours) - np.arange(mine.size)
        begin = float(mine[np.argsort(-came)[int(rng.integers(max(1, mine.size // 20)))]])
        entry = {"hours": ["Mon-Sun 00:00-24:00"], "from": begin, "to": begin + 3600.0 * hours}
        yield Planted(f"{hours} h", "one user alone", {"closed": [{**entry, "except": [user]}]})


def partitions(device: str, each: int, rng: Any) -> Iterator[Planted]:
    """Three pools on nodes of their own, and three of which two share nodes.

    Without node lists a pool's size is sought, as a cap.
    """
    cut = int(rng.integers(NODES // 4, NODES // 3)), int(rng.integers(NODES // 2, 2 * NODES // 3))
    for what, (a, b, c, d) in {
        "apart": (cut[0], cut[0] + 1, cut[1], cut[1] + 1),
        "overlapping": (cut[1], cut[0] + 1, cut[1] + 3, cut[1] + 1),
    }.items():
        on = {"p0": f"n[1-{a}]", "p1": f"n[{b}-{c}]", "p2": f"n[{d}-{NODES}]"}
        pools = [{"name": name, "nodes": nodes} for name, nodes in on.items()]
        yield Planted(what, "pool's nodes", {"pool": pools}, hosts=True)
        size = {"scope": "pool", "of": device}
        caps = [
            {**size, "only": [name], "most": each * len(expand_nodes(nodes))}
            for name, nodes in on.items()
        ]
        yield Planted(what, "pool's size", {"pool": pools}, sought={"cap": caps})


def judged(found: Calibration, rule: dict[str, Any]) -> tuple[int, int, list[str]]:
    """How many planted rules there are, how many of them were found, and what was invented."""
    todo = [(kind, one) for kind, many in rule.items() for one in np.atleast_1d(many)]
    hits: set[int] = set()
    invented = []
    for one in found.findings:
        of_kind = [(i, entry) for i, (kind, entry) in enumerate(todo) if kind == one.kind]
        same = [i for i, entry in of_kind if _matches(one, entry)]
        hits |= set(same)
        wider = [entry for _, entry in of_kind if _matches(one, {**entry, **_part(one, entry)})]
        wider += [entry for kind, entry in todo if kind == "closed" and _once(one, entry)]
        invented += [] if same or wider else [f"{one.entry} {one.between}"]
    return len(todo), len(hits), invented


def _part(one: Any, entry: dict[str, Any]) -> dict[str, Any]:
    """What follows from a planted rule, of one user or of larger requests, is not invented."""
    keys = [k for k in ("longer_than", "more_than") if one.entry.get(k, -1) >= entry.get(k, np.inf)]
    only = {"only": one.entry["only"]} if "only" in one.entry else {}
    return only | dict.fromkeys(keys, one.between[0])


def _once(one: Any, entry: dict[str, Any]) -> bool:
    """One of the times at which a planted closing was on: neither found nor invented."""
    if not {"from", "to"} <= one.entry.keys() or "longer_than" in one.entry:
        return False
    whose = ("pool", *["except"] * (one.kind == "closed"), "longer_than", "more_than")
    if any(one.entry.get(key) != entry.get(key) for key in whose):
        return False
    inside = np.arange(one.entry["from"] + 1800, one.entry["to"] - 1800, 3600)
    return bool({int(at // 3600) % 168 for at in inside} <= _hours(entry["hours"]))


def _matches(one: Any, entry: dict[str, Any]) -> bool:
    low, high = one.between
    if one.kind == "start":
        return bool(low <= entry["latency"] <= high)
    if one.kind == "window":
        return bool(one.entry["from"] < entry["to"] and entry["from"] < one.entry["to"])
    if one.kind == "pool":
        there, named = (set(expand_nodes(each["nodes"])) for each in (entry, one.entry))
        same = one.entry["name"] == entry["name"] and named <= there
        return bool(same and len(there) <= max(high, len(named) / 0.9))
    if one.kind == "closed":
        hours, planted = (_hours(each["hours"]) for each in (one.entry, entry))
        same = all(one.entry.get(key) == entry.get(key) for key in ("pool", "except"))
        same &= ("more_than" in one.entry) == ("more_than" in entry)
        same &= ("longer_than" in one.entry) == ("longer_than" in entry)
        bound = entry.get("longer_than", entry.get("more_than", low))
        if "from" in entry:
            same &= one.entry.get("from", -1) >= entry["from"] - 3600
            same &= one.entry.get("to", np.inf) <= entry["to"] + 43200
        # An hour counts as closed where nothing started: at its edges that is chance as well.
        inside = len(hours & planted) >= 0.9 * len(hours)
        return bool(same and low <= bound < high and inside and 2 * len(hours) > len(planted))
    same = all(one.entry.get(key, []) == entry.get(key, []) for key in ("scope", "of", "only"))
    return bool(same and low <= entry["most"] < high)


def _hours(texts: list[str]) -> set[int]:
    spans = [span for text in texts for span in weekly(text)]
    return {24 * day + h for day, a, b in spans for h in range(a // 3600, b // 3600)}


def recorded(jobs: Jobs, nodes: Nodes, rules: str, plant: Planted) -> Record:
    """What the log would be."""
    if plant.hosts or "pool" in plant.site:
        each = int(nodes.capacity[0, 0]) // 1000 // NODES
        nodes = Nodes.of(Node(f"n{i + 1}", {nodes.devices[0]: each}) for i in range(NODES))
    clock = OwnClock(start=datetime(2024, 1, 1))  # a Monday
    site = Site(Rules.model_validate({**plant.site, "clock": clock}))
    s = simulate_jobs(jobs, nodes, rules, site=site if plant.site else None)
    # The log's own jobs: those that were played know the pools of the hidden rule.
    log = replace(jobs, recorded_start=s.start, recorded_end=s.end)
    count = s.piece_count * plant.hosts
    if not plant.hosts:
        nodes = Nodes.pool(int(nodes.capacity.sum()) // 1000, nodes.devices[0])
    place = np.repeat(s.piece_from, count) + np.arange(count.sum())
    place -= np.repeat(np.cumsum(count) - count, count)
    groups = {
        "pool": np.array(jobs.pools)[jobs.pool],
        "account": np.array(jobs.accounts)[jobs.charged],
    }
    hosts = np.concatenate([[0], np.cumsum(count)]), s.piece_node[place]
    return Record.of(log, nodes, "", groups, 0.0, hosts)


def main(names: list[str], tune: bool) -> None:
    folder = Path(os.environ["GANGWISE_TRACES"])
    print("| log | rules | planted | strength | planted | found | invented | refused | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    sums: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for name in names or LOGS:
        jobs, nodes = log_of(folder, name, tune)
        for rules in RULES:
            for hosts in (False, True):
                nothing = Planted("on nodes" if hosts else "one pool", "nothing", {}, hosts)
                _tell(name, rules, nothing, recorded(jobs, nodes, rules, nothing), sums)
        free = simulate_jobs(jobs, nodes, "fcfs+easy")
        seed = 7 if tune else 11 + list(LOGS).index(name)
        for rule in planted(jobs, nodes, free, np.random.default_rng(seed)):
            _tell(name, "fcfs+easy", rule, recorded(jobs, nodes, "fcfs+easy", rule), sums)
    print("\n| planted | strength | logs | planted | found | invented |\n|---|---|---|---|---|---|")
    for (kind, strength), (logs, rules_n, hits, extra) in sums.items():
        print(f"| {kind} | {strength} | {logs} | {rules_n} | {hits} | {extra} |")


def _tell(name: str, rules: str, rule: Planted, record: Any, sums: Any) -> None:
    began = time.process_time()
    found = calibrate(record)
    seconds = time.process_time() - began
    many, hits, invented = judged(found, rule.sought or rule.site)
    total = sums[rule.kind, rule.strength]
    for i, n in enumerate((1, many, hits, len(invented))):
        total[i] += n
    print(
        f"| {name} | {rules} | {rule.kind} | {rule.strength} | {many} | {hits} | {len(invented)} "
        f"| {found.refused} | {seconds:.2f} |",
        flush=True,
    )
    for text in invented:
        print(f"|  | invented: {text} |", flush=True)


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name in LOGS], "--tune" in sys.argv)

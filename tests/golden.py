"""Golden results: what every built-in computes on ten slots, or on the jobs of a small log.

They change only when behaviour does. ``python -m tests.golden`` records those of today in
``golden.json``, floats as hexadecimals, beside the revision that each name has.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from gangwise import create_policy, create_scenario, simulate
from gangwise.core.registry import ANY, Kind, entries
from gangwise.jobs import Jobs, Nodes, parts, simulate_jobs

TABLE = Path(__file__).with_name("golden.json")
KINDS: tuple[Kind, ...] = ("policy", "scheduler", "scenario", "comparator")
SLOTS, SEED = 10, 7

SCENARIOS = {
    "gain_overhead": "ogasched-default-v1:servers=8,job_types=4",
    "gain_overhead_gang": "ogasched-gang-small-v1",
    "fluctuating_speeds": "esdp-default-v1",
    "fluctuating_speeds_gang": "esdp-gang-small-v1",
    "approximation_jobs": "opm-default-v1",
}
"""The scenario on which policies and comparators of each family are played."""

PLAYERS = {
    "gain_overhead": "fairness",
    "gain_overhead_gang": "gang-drf",
    "fluctuating_speeds": "lcf",
    "fluctuating_speeds_gang": "gang-first-fit",
    "approximation_jobs": "fair",
}
"""The policy that plays the scenarios of each family."""

BY_PROGRAMME = "esdp-by-programme"  # for figures: without a family, and slow on more channels
FROM_FILES = {
    "esdp-mini-batch-v1",
    "opm-google-v1",
    "replay",
}  # what they compute follows from a log


def recorded() -> dict[str, dict[str, list[Any]]]:
    """Kind → name → revision and results, as they were recorded."""
    table: dict[str, dict[str, list[Any]]] = json.loads(TABLE.read_text())
    return table


def names(kind: Kind) -> dict[str, int]:
    """Every built-in name of a kind, and its revision; of ``*``, combinations of each part."""
    revisions = {
        place: entry.revision
        for place, entry in entries(kind).items()
        if entry.built_in and place not in FROM_FILES
    }
    if kind == "scheduler":
        revision = revisions.pop(ANY)
        combinations = [f"{queue}+easy" for queue in parts("queue")]
        combinations += [f"fcfs+{backfilling}" for backfilling in parts("backfilling")]
        combinations += [f"fcfs+easy+{choice}" for choice in parts("choice")]
        revisions |= dict.fromkeys(combinations, revision)
    return revisions


def results(kind: Kind, name: str) -> list[float]:
    """What a name computes: rewards of slots, or starts of jobs in seconds."""
    if kind == "scheduler":
        return started(name)
    if kind == "comparator":
        family, _, plain = name.partition("/")
        instance = create_scenario(SCENARIOS[family]).instance(SEED)
        entry = entries("comparator")[name]
        judged = entry.load()(instance, SLOTS, SEED, SLOTS, **entry.preset)
        chosen = (
            judged
            if not isinstance(judged, tuple)
            else next(one for one in judged if one.name == plain)
        )
        return [*map(float, chosen.rewards)]
    family = entries(kind)[name].family or "fluctuating_speeds"
    scenario, policy = (SCENARIOS[family], name) if kind == "policy" else (name, PLAYERS[family])
    if name == BY_PROGRAMME:
        scenario += ":servers=4,job_types=3"
    instance = create_scenario(scenario).instance(SEED)
    return [*map(float, simulate(instance, create_policy(policy), SLOTS, SEED).rewards)]


def started(name: str) -> list[float]:
    """Starts of 40 jobs of one to four tasks on four nodes of two GPUs, in seconds."""
    rng = np.random.default_rng(SEED)
    shared = "gpu" if name.endswith("+fgd") else None  # it looks at parts of single devices
    run = rng.integers(30, 4000, 40).astype(float)
    jobs = Jobs.of(
        submit=np.cumsum(rng.integers(0, 900, 40)).astype(float),
        run=run,
        tasks=rng.choice([1, 1, 2, 4], 40),
        demand={"gpu": rng.integers(1, 3, 40) / (2 if shared else 1)},
        limit=run * rng.choice([1.5, 3.0], 40),
        user=[f"u{i}" for i in rng.integers(0, 5, 40)],
    )
    return [*map(float, simulate_jobs(jobs, Nodes.alike(4, {"gpu": 2}, shared), name).start)]


def current(kind: Kind, name: str) -> list[Any]:
    return [names(kind)[name], [number.hex() for number in results(kind, name)]]


if __name__ == "__main__":
    table = {kind: {name: current(kind, name) for name in names(kind)} for kind in KINDS}
    rows = [
        f' "{kind}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in of_kind.items())
        + "\n }"
        for kind, of_kind in table.items()
    ]
    TABLE.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"recorded {sum(map(len, table.values()))} results in {TABLE}")

"""How much of each trace that is tried is played: before the defaults kept the log, and since.

    python -m benchmarks.trace_fidelity --samples FOLDER [--only NAME]

Prints the table of docs/traces/fidelity.md: of each family of slots and of ``replay``, per cent of
the jobs, per cent of the device-hours, given ÷ requested. *Before* are the settings that were the
defaults (:data:`BEFORE`), in the words of today's line.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gangwise.core.errors import GangwiseError
from gangwise.logs import open_tables
from gangwise.logs.jobs import jobs_of
from gangwise.logs.tables import Tables, amount_text, percent_text
from gangwise.logs.twins import completed
from gangwise.papers.scenarios.opening import FAMILIES, open_trace

STEPS: Mapping[str, Any] = {"tasks": "one", "keep": 0.7, "skip": 0.01, "slot": "1h"}
BEFORE: Mapping[str, Mapping[str, Any]] = {
    "gain_overhead": {**STEPS, "arrivals": "indicator"},
    "fluctuating_speeds": STEPS,
    "approximation_jobs": {"skip": 0.01},
}
TRACES: Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any]]] = {
    "Slurm (Open XDMoD's)": (
        "slurm-open-xdmod/phillips.log.gz",
        {},
        {"machines": 46, "shape": (20, 128, 2), "model": "gpu"},
    ),
    "SWF, NASA iPSC": ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", {}, {}),
    "SWF, Lublin 256": ("swf/lublin_256.swf.gz", {}, {}),
    "Alibaba gpu-v2023": (
        "alibaba-gpu-v2023",
        {"nodes": "openb_node_list_all_node.csv", "pods": "openb_pod_list_default.csv"},
        {},
    ),
    "Alibaba v2018 (the sample)": ("alibaba-v2018", {}, {}),
    "Google 2011, task events": ("google-2011", {}, {}),
}
"""Where each is, arguments of its reader, and settings where servers are to be stated."""
JOB_EVENTS = "Google 2011, job events, the first 10 h"


def line(found: Mapping[str, Any]) -> str:
    """Jobs, device-hours, and given ÷ requested, of the account of a workload."""
    jobs, hours = found["jobs"], found["device_hours"]
    parts = [percent_text(jobs["played"], jobs["read"])]
    if hours["read"]:
        parts.append(percent_text(hours["played"], hours["read"]))
    if hours.get("given") is not None and hours["played"]:
        parts.append(f"{hours['given'] / hours['played']:.2g}")
    return ", ".join(parts)


def of_family(family: str, tables: Tables, stated: Mapping[str, Any], before: bool) -> str:
    """The cell of a family."""
    settings = {**stated, **(BEFORE[family] if before else {})}
    if family == "approximation_jobs":
        settings = {k: v for k, v in settings.items() if k not in ("shape", "model")}
    if family == "fluctuating_speeds":
        settings["speeds"] = "drawn"
    try:
        kept = FAMILIES[family](tables, **settings).fidelity().kept
    except GangwiseError as error:
        return f"({error})"
    return line(kept.to_dict())


def main() -> None:
    """Print a row for each trace."""
    options = argparse.ArgumentParser()
    options.add_argument("--samples", type=Path, default=os.environ.get("GANGWISE_TRACES"))
    options.add_argument("--only", default="")
    given = options.parse_args()
    heads = [f"`{family}` {when}" for family in FAMILIES for when in ("before", "now")]
    print("| trace | " + " | ".join(heads) + " | `replay` |")
    print("|---" * (len(heads) + 2) + "|")
    for name, (where, arguments, stated) in TRACES.items():
        if given.only not in name:
            continue
        path, begun = Path(given.samples, where), time.process_time()
        files = {key: str(path / file) for key, file in arguments.items()}
        tables = open_tables(path, **files)
        played = jobs_of(tables).played.to_dict()
        with_servers = tables
        if tables.servers.is_empty() and not stated:  # a sample without them: those of its twin
            with_servers = completed(tables, "servers")
        cells = [
            of_family(family, with_servers, stated, before)
            for family in FAMILIES
            for before in (True, False)
        ]
        hours = played["device_hours"]
        head = f"{name}, {amount_text(hours['read'])} {hours['unit']}-hours"
        print(f"| {head} | " + " | ".join([*cells, line(played)]) + " |", flush=True)
        print(f"{name}: {time.process_time() - begun:.1f} s", file=sys.stderr)
    if given.only in JOB_EVENTS:  # a scenario of its own, of one family, and no log of jobs
        kept = open_trace(Path(given.samples, "google-2011", "job_events")).fidelity().kept
        print(f"| {JOB_EVENTS} |" + " – |" * 5 + f" {line(kept.to_dict())} | – |")


if __name__ == "__main__":
    main()

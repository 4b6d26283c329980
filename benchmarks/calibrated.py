"""What a calibrated site file explains of the weeks that it was not made from.

A site file is made of the first half of a log (``gangwise calibrate``), of its jobs or of its time.
The whole log is then played under FCFS with EASY, without it and with it, and the recorded waits of
the second half are retold: the explained share of the mean wait, job by job and by week, and the
starts that are near. Of a log that records no waits only the node events are told.

    GANGWISE_TRACES=... python -m benchmarks.calibrated
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from gangwise.jobs import simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.logs.jobs import open_jobs
from gangwise.sites.retelling import Record, retell
from gangwise.sites.site import Site
from gangwise.study.findings import FILE, Calibrated, by_local_time, calibrate_log
from gangwise.study.replay_scenario import only_jobs

LOGS = {
    "KTH-SP2": "swf/KTH-SP2.swf.gz",
    "phillips": "slurm-open-xdmod",
    "openb": "alibaba-gpu-v2023",
    "twin of v2020": "twin:alibaba-gpu-v2020",
    "alibaba-v2018": "alibaba-v2018",
}


def told(name: str, path: Path | str, of: str) -> list[str]:
    """Two rows of the table: without a site file and with it."""
    log = open_jobs(path)
    jobs, nodes = log.jobs, log.nodes
    if not np.isfinite(jobs.recorded_start).any():
        [line] = [x for x in calibrate_log(path).headline if "node events" in x]
        return [f"| {name} | – | – | no waits are recorded; {line} | | | | | | |"]
    cut = np.median(jobs.submit) if of == "jobs" else np.mean(jobs.submit[[0, -1]])
    late = jobs.submit >= cut
    keep = ~late & (jobs.recorded_end < jobs.submit[late].min())
    early = only_jobs(jobs, keep)
    count = np.diff(log.host_from)
    where = log.host[np.repeat(keep, count)] if log.host.size else log.host
    hosts = np.concatenate([[0], np.cumsum(count[keep])]), where
    groups = {"pool": np.array(early.pools)[early.pool]} if any(early.pools) else {}
    monday = log.clock.monday if log.clock else 0.0
    record = Record.of(early, nodes, log.played.device, groups, monday, hosts)
    found = Calibrated(name, log, record, by_local_time(record, log.clock))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, FILE).write_text(found.toml())
        site = Site.read(folder).with_hosts(jobs, nodes, log.host_from, log.host, log.clock)
    kinds = [one.kind for one in found.found.findings]
    rules = ", ".join(f"{kinds.count(k)} {k}" for k in dict.fromkeys(kinds)) or "nothing found"
    rows = []
    for what, given in (("none", None), (rules, site)):
        played = simulate_jobs(jobs, nodes, "fcfs+easy+best-fit", site=given)
        then, now = Outcome.recorded(jobs, nodes), Outcome.of(played, "fcfs+easy")
        assert then is not None
        r = retell(then, now, on=late)
        by = r.by("week" if "week" in r.groups else "day")
        cells = [
            name,
            of,
            what,
            f"{r.jobs:,}",
            *(f"{w / 3600:.2f}" for w in (r.recorded, r.simulated)),
        ]
        cells += [f"{100 * share:.0f}" for share in (r.explained, r.by_job, by, r.near)]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def main() -> None:
    """Print the table."""
    print("| log | halves of | site file | jobs | mean wait, h | retold, h | explained, % ", end="")
    print("| job by job, % | by week, % | starts near, % |")
    print("|" + 10 * "---|")
    for name, given in LOGS.items():
        path = given if ":" in given else Path(os.environ["GANGWISE_TRACES"], given)
        # In the others hardly a job of the first half of their time had ended by then.
        for of in ("jobs", "time") if name in ("KTH-SP2", "twin of v2020") else ("jobs",):
            print("\n".join(told(name, path, of)), flush=True)


if __name__ == "__main__":
    main()

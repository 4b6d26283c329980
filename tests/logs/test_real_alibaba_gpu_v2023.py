"""The published files, against counts made with the csv module alone."""

from __future__ import annotations

import csv
import math
from collections import Counter

import pytest

from gangwise import TraceError, create_policy, simulate
from gangwise.logs.formats.tabular import reader
from gangwise.papers.scenarios.opening import open_trace

AlibabaGpuV2023 = reader("alibaba-gpu-v2023")

MODELS = {"G2": 549, "T4": 404, "P100": 134, "V100M16": 55, "G3": 39, "V100M32": 30, "A10": 2}
HOUR = 3600


@pytest.fixture
def folder(traces):
    folder = traces / "alibaba-gpu-v2023"
    if not (folder / "openb_pod_list_default.csv").exists():
        pytest.skip("the real traces here do not include alibaba-gpu-v2023")
    return folder


def rows(file):
    with file.open(newline="") as handle:
        return list(csv.DictReader(handle))


def slowly_grouped(pods, largest, job_types):
    """Job type of every pod, by the words of the grouping module, with dicts and loops."""
    requests = [
        (
            int(p["cpu_milli"]) / 1000,
            int(p["memory_mib"]) / 1024,
            int(p["num_gpu"]) * int(p["gpu_milli"]) / 1000,
        )
        for p in pods
    ]
    count = Counter(requests)
    ranked = sorted(count, key=lambda r: (-count[r], r[2] > 0, r))
    founders = [next(r for r in ranked if (r[2] > 0) == gpus) for gpus in (False, True)]
    for r in ranked:
        if len(founders) < job_types and r not in founders:
            founders.append(r)
    founders.sort(key=lambda r: (-count[r], r[2] > 0, r))

    def distance(a, b):
        if (a[2] > 0) != (b[2] > 0):
            return math.inf
        places = ([math.log(x / m + 0.01) for x, m in zip(r, largest)] for r in (a, b))
        return round(math.dist(*places), 9)

    nearest = {r: min(range(job_types), key=lambda l: distance(r, founders[l])) for r in count}
    return founders, [nearest[r] for r in requests]


def test_what_the_files_hold(folder):
    tables = AlibabaGpuV2023(folder, strict=True).scan()
    assert (len(tables.servers), tables.servers["gpu"].sum()) == (1523, 6212)
    assert len(tables.jobs) == 8152
    assert Counter(tables.servers["model"].to_list()) == {**MODELS, "": 310}
    pods = rows(folder / "openb_pod_list_default.csv")
    assert tables.jobs["cpu"].sum() == pytest.approx(sum(int(p["cpu_milli"]) for p in pods) / 1000)
    assert tables.jobs["models"].to_list() == [p["gpu_spec"] for p in pods]
    report = AlibabaGpuV2023(folder).fidelity()
    assert (report.first, report.last) == (0, 12902960)
    assert all(stage.dropped == {} for stage in report.stages)
    worked = sum(
        (int(p["deletion_time"]) - int(p["scheduled_time"])) * int(p["cpu_milli"])
        for p in pods
        if p["scheduled_time"]
    )
    cores = sum(int(n["cpu_milli"]) for n in rows(folder / "openb_node_list_all_node.csv"))
    assert report.load["cpu"] == pytest.approx(worked / cores / 12902960)


def test_arrivals_and_job_types_match_a_slow_count(folder):
    pods = rows(folder / "openb_pod_list_default.csv")
    pods = [p for p in pods if p["scheduled_time"]]  # the others never ran
    created = sorted(int(p["creation_time"]) for p in pods)
    start = created[len(pods) // 100] // HOUR * HOUR
    pods = [p for p in pods if int(p["creation_time"]) >= start]
    nodes = rows(folder / "openb_node_list_all_node.csv")
    largest = [
        max(int(n["cpu_milli"]) for n in nodes) / 1000,
        max(int(n["memory_mib"]) for n in nodes) / 1024,
        max(int(n["gpu"]) for n in nodes),
    ]
    founders, types = slowly_grouped(pods, largest, 10)
    counted = Counter(((int(p["creation_time"]) - start) // HOUR, l) for p, l in zip(pods, types))
    kept = open_trace(folder, slot="1h", skip=0.01, most_jobs=10_000).fidelity().kept
    assert (kept.read, kept.played) == (8152, len(pods))
    s = open_trace(folder, slot="1h", skip=0.01, most_jobs=10_000)
    assert s.grouping.requests.tolist() == [pytest.approx(r) for r in founders]
    assert s.slots == max(t for t, _ in counted) + 1
    assert s.counts.sum() == len(pods)
    assert {(t, l): s.counts[t, l] for t, l in zip(*s.counts.nonzero())} == counted
    indicator = open_trace(folder, slot="1h", skip=0.01, arrivals="indicator")
    assert indicator.counts.sum() == len(counted)
    assert indicator.counts.max() == 1
    channels = sum(
        int(n["cpu_milli"]) >= 1000 * cpu
        and int(n["memory_mib"]) >= 1024 * mem
        and int(n["gpu"]) >= gpu
        for n in nodes
        for cpu, mem, gpu in founders
    )
    assert indicator.mask.sum() == channels


def test_the_baselines_earn_something_on_it(folder):
    instance = open_trace(folder, servers=128, skip=0.01).instance(0)
    for name in ("fairness", "drf", "ogasched-react"):
        run = simulate(instance, create_policy(name), slots=50, seed=0)
        assert run.rewards.mean() > 0


def test_the_multigpu_list_is_refused(folder):
    file = folder / "openb_pod_list_multigpu50.csv"
    with pytest.raises(TraceError, match="multigpu"):
        open_trace(folder, pods=file)

"""Rows of the Alibaba traces: what is played is in the files, chosen as the settings say."""

from __future__ import annotations

import csv
import gzip
import math
from collections import Counter

import numpy as np
import pytest

from gangwise import create_scenario
from gangwise.core.workload import ReplayedArrivals
from gangwise.papers.scenarios.drawn import k_centres, rows_of

GIB = 5.12
"""Of one of v2018's hundred parts of a machine's memory."""


@pytest.fixture(scope="module")
def folder(traces):
    return traces


@pytest.fixture(scope="module")
def spec(folder):
    """Machines of gpu-v2020, read plainly: cores, GiB and GPUs."""
    with (folder / "alibaba-gpu-v2020" / "pai_machine_spec.csv").open() as file:
        return [tuple(float(x or 0) for x in row[2:5]) for row in csv.reader(file)]


@pytest.fixture(scope="module")
def tasks(folder):
    """Finished tasks of v2018, read plainly: start, cores, GiB and instances."""
    place = folder / "alibaba-v2018" / "batch_task_selected_DAGs.csv.gz"
    with gzip.open(place, "rt") as file:
        return [
            (float(r["start_time"]), float(r["plan_cpu"]) / 100, float(r["plan_mem"]) * GIB)
            for r in csv.DictReader(file)
            if r["status"] == "Terminated"
        ]


def devices(folder, seed=3, **settings):
    given = {"units": "raw", "contention": 1.0, "folder": str(folder), **settings}
    problem = create_scenario("ogasched-alibaba-v1", **given).instance(seed).problem
    return problem.cluster.capacity[:, :3], problem.requests[:, :3]


@pytest.mark.parametrize("rows", ["varied", "uniform", "first"])
def test_machines_and_requests_are_rows_of_the_files(folder, spec, tasks, rows):
    machines, _ = devices(folder, machines="gpu-v2020", rows=rows)
    assert set(map(tuple, machines.tolist())) <= set(spec)
    _, asked = devices(folder, jobs="v2018", rows=rows)
    there = {(cores, round(gib, 9), 0.0) for _, cores, gib in tasks}
    assert {tuple(np.round(row, 9)) for row in asked.tolist()} <= there


def test_first_rows_are_those_of_the_machines_file_and_of_time(folder, spec, tasks):
    machines, asked = devices(folder, machines="gpu-v2020", jobs="v2018", rows="first")
    assert [tuple(row) for row in machines.tolist()] == spec[:128]
    earliest = sorted(start for start, *_ in tasks)[9]
    early = {(cores, round(gib, 9)) for start, cores, gib in tasks if start <= earliest}
    assert {tuple(np.round(row[:2], 9)) for row in asked} <= early


def test_varied_machines_are_every_kind_as_often(folder, spec):
    machines, _ = devices(folder, machines="gpu-v2020", rows="varied")
    often = Counter(map(tuple, machines.tolist()))
    assert often.keys() == set(spec)
    assert max(often.values()) - min(often.values()) <= 1


def test_every_other_row_is_of_the_other_trace(folder):
    machines, asked = devices(folder, rows="uniform")
    assert (machines[1::2] == [96.0, 512.0, 0.0]).all()
    assert (asked[0::2, 2] > 0).all()
    assert (asked[1::2, 2] == 0).all()


@pytest.mark.parametrize("seed", range(5))
def test_far_apart_is_the_farthest_every_time(seed):
    rng = np.random.default_rng(seed)
    points, weight = rng.random((12, 3)), rng.integers(1, 9, 12)
    chosen = k_centres(points, weight, 6)
    assert weight[chosen[0]] == weight.max()
    for i in range(1, 6):
        away = [min(np.abs(p - points[c]).max() for c in chosen[:i]) for p in points]
        assert away[chosen[i]] == pytest.approx(max(away))
    assert k_centres(points, weight, 15).tolist() == [*k_centres(points, weight, 12), *chosen[:3]]


@pytest.mark.full
def test_arrivals_of_the_trace_are_where_a_row_of_the_type_is_nearest(folder, tasks):
    scenario = create_scenario(
        "esdp-alibaba-v1", folder=str(folder), jobs="v2018", arrivals="trace", slots=50
    )
    workload = scenario.instance(0).workload
    assert isinstance(workload, ReplayedArrivals)
    _, types = devices(folder, job_types=8, jobs="v2018")
    largest = [96.0, 512.0]

    def away(row, l):
        return max(
            abs(math.log(row[k] / largest[k] + 1e-3) - math.log(types[l][k] / largest[k] + 1e-3))
            for k in range(2)
        )

    first, last = (bound(start for start, *_ in tasks) for bound in (min, max))
    seen = np.zeros((50, 8), dtype=int)
    may = np.zeros((50, 8), dtype=int)
    for start, *asked in tasks:
        slot = min(int((start - first) / (last - first) * 50), 49)
        near = [away(asked, l) for l in range(8)]
        best = [l for l in range(8) if near[l] <= min(near) + 1e-12]
        may[slot, best] = 1
        if len(best) == 1:
            seen[slot, best] = 1
    assert (seen <= workload.counts).all()
    assert (workload.counts <= may).all()
    assert workload.keep == 0.9


@pytest.mark.parametrize("limits", ["linear", "ranked"])
def test_requests_of_esdp_are_between_the_papers_bounds(folder, limits):
    settings = {"folder": str(folder), "limits": limits, "rows": "varied"}
    problem = create_scenario("esdp-alibaba-v1", **settings).instance(1).problem
    asked = problem.requests
    assert (asked.min(axis=0) == 1).all()
    assert (asked.max(axis=0) == 2).all()
    _, rows = devices(folder, seed=1, job_types=8)
    of = problem.channels.job_type
    for k in range(3):
        by_row = np.lexsort((asked[:, k], rows[of, k]))
        assert (np.diff(asked[by_row, k]) >= 0).all()  # who asks for more, asks for more
    literal = create_scenario("esdp-alibaba-v1", capacity="literal", **settings)
    assert literal.instance(1).problem.cluster.capacity.tolist() == [2, 2, 2]


@pytest.mark.parametrize("rows", ["varied", "uniform", "first"])
def test_more_machines_than_a_trace_has_are_its_machines_again(rows):
    """As many as OGASched §4.3 has: the twin of v2018 has fewer than every other one of them."""
    problem = create_scenario("ogasched-alibaba-v1", servers=1024, units="raw", rows=rows)
    played = problem.instance(0).problem.cluster.capacity[1::2, :3]
    machines = rows_of("v2018", "").machines
    assert len(machines) < len(played)
    assert set(map(tuple, played.tolist())) == set(map(tuple, machines.tolist()))


def test_without_the_files_the_twins_are_played():
    scenario = create_scenario("ogasched-alibaba-v1", servers=12, job_types=4)
    assert scenario.instance(0).problem.requests.shape == (4, 6)
    assert scenario.describe()["files"]["gpu-v2020"][0] == 1897
    assert len(rows_of("v2018", "").machines) == 400

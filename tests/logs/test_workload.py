"""From tables to a problem, against numbers worked out by hand."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import numpy as np
import pytest

from gangwise import ScenarioError, TraceError, UnknownName, create_policy, simulate
from gangwise.logs.formats.tabular import reader
from gangwise.papers.scenarios.demand import sample_servers, seconds
from gangwise.papers.scenarios.opening import GainOverheadTraceSettings, open_trace

from .csvs import pod, write

AlibabaGpuV2023 = reader("alibaba-gpu-v2023")

# Slots of a minute. Row numbers are those of pods.csv, whose header is line 1.
PODS = [
    pod("r2", created=0),
    pod("r3", created=59),
    pod("r4", created=61),
    pod("r5", gpus=1, milli=500, created=61),
    pod("r6", gpus=1, milli=500, created=200),
    pod("r7", gpus=2, milli=1000, spec="B|C", created=180, deleted=240),
    pod("r8", cpu=5000, created=239, deleted=240),
    pod("r9", gpus=4, milli=1000, spec="B", created=200, deleted=300),
    pod("r10", cpu=64000, created=200, deleted=300),
]


def scenario(tmp_path, pods=PODS, **knobs):
    return open_trace(write(tmp_path, pods), **{"slot": "1m", "skip": 0, "job_types": 3, **knobs})


def test_arrivals_channels_and_requests_of_a_tiny_trace(tmp_path):
    s = scenario(tmp_path, units="raw", arrivals="multiple")
    assert s.grouping.names == ("4cpu-8mem", "4cpu-8mem-0.5gpu", "4cpu-8mem-2gpu-B|C")
    # r8 asks for 5 cores and joins the type without GPUs; r9 and r10 fit on no server.
    assert s.counts.tolist() == [[2, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    problem = s.instance(0).base
    assert problem.cluster.servers == ("big", "plain", "small")
    assert problem.cluster.devices == ("cpu", "mem", "gpu:A", "gpu:B")
    assert problem.cluster.capacity.tolist() == [[32, 64, 8, 0], [16, 32, 0, 0], [8, 16, 0, 2]]
    assert problem.requests.tolist() == [[4, 8, 0, 0], [4, 8, 0.5, 0.5], [4, 8, 0, 2]]
    assert s.mask.tolist() == [[True, True, True], [True, False, True], [False, False, True]]


def test_the_indicator_keeps_one_job_and_reports_the_rest(tmp_path):
    s = scenario(tmp_path, arrivals="indicator")
    assert s.counts.tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1]]
    fit, types, arrivals = s.fidelity().stages[-3:]
    assert (fit.read, fit.kept, fit.dropped) == (9, 7, {"fits on no server": (2, 9)})
    assert (types.read, types.kept, types.dropped) == (7, 7, {})
    why = "more than 1 of its job type in the slot (arrivals = indicator)"
    assert (arrivals.read, arrivals.kept, arrivals.dropped) == (7, 6, {why: (1, 2)})
    assert s.fidelity().jobs == 6
    assert s.slots == 4


def test_arrivals_are_capped_by_most_jobs(tmp_path):
    pods = [pod(f"p{i}", created=i) for i in range(7)]
    assert scenario(tmp_path, pods, most_jobs=4).counts.tolist() == [[4]]
    assert scenario(tmp_path, pods, most_jobs=9).counts.tolist() == [[7]]
    assert scenario(tmp_path, pods).counts.tolist() == [[7]]
    instance = scenario(tmp_path, pods, most_jobs=4).instance(0)
    assert instance.problem.L == 4
    assert instance.arrivals(3, seed=0).tolist() == [[1, 1, 1, 1]] * 3  # begins again


def test_without_repeat_the_trace_ends(tmp_path):
    instance = scenario(tmp_path, repeat=False).instance(0)
    assert simulate(instance, create_policy("drf"), slots=4, seed=0).slots == 4
    with pytest.raises(ScenarioError, match="has 4"):
        simulate(instance, create_policy("drf"), slots=5, seed=0)


def test_the_window_skips_the_first_jobs_and_starts_on_a_whole_slot(tmp_path):
    pods = [
        pod("early", created=5),
        *(pod(f"p{i}", created=1000 + 100 * i, deleted=9999) for i in range(9)),
    ]
    s = scenario(tmp_path, pods, skip=0.1)
    assert s.fidelity().first == 960  # 16 whole minutes; the second of ten jobs comes at 1000 s
    assert s.slots == 15  # the last comes at 1800 s: (1800 - 960) / 60 + 1
    assert s.fidelity().last == 1860
    window = s.fidelity().stages[2]
    assert window.dropped == {"created before the window, 960 s": (1, 2)}


def test_the_smallest_classes_go_without_a_type_and_are_reported(tmp_path):
    s = scenario(tmp_path, job_types=2)
    assert s.grouping.names == ("4cpu-8mem", "4cpu-8mem-0.5gpu")
    why = "no job type for its choice of GPU models; raise job_types"
    assert s.fidelity().stages[-2].dropped == {why: (1, 7)}


def test_the_rest_joins_the_nearest_type_by_ratio(tmp_path):
    requests = [(1, 8)] * 3 + [(16, 8)] * 2 + [(3, 8), (5, 8)]  # the geometric mean of 1, 16 is 4
    pods = [pod(f"p{i}", c * 1000, m * 1024, created=60 * i) for i, (c, m) in enumerate(requests)]
    s = scenario(tmp_path, pods, job_types=2)
    assert s.counts.argmax(axis=1).tolist() == [0, 0, 0, 1, 1, 0, 1]
    note = next(n for n in s.fidelity().notes if "job types stand for" in n)
    # 3·1 + 2·16 + 1 + 16 = 52 cores by type, 3 + 32 + 3 + 5 = 43 by job.
    assert "121 % of the cpu" in note
    assert "4 different requests: 71.4 % of the jobs" in note


def test_equal_units_for_equal_shares(tmp_path):
    problem = scenario(tmp_path).instance(0).base
    assert problem.cluster.capacity.tolist() == [[16, 16, 16, 0], [8, 8, 0, 0], [4, 4, 0, 4]]
    assert problem.requests.tolist() == [[2, 2, 0, 0], [2, 2, 1, 1], [2, 2, 0, 4]]
    loaded = scenario(tmp_path, contention=3, scale=8)
    assert loaded.instance(0).base.requests.tolist() == [
        [3, 3, 0, 0],
        [3, 3, 1.5, 1.5],
        [3, 3, 0, 6],
    ]
    assert (loaded.mask == scenario(tmp_path).mask).all()


def test_the_order_of_rows_does_not_matter(tmp_path):
    reference = scenario(tmp_path, arrivals="multiple")
    shuffled = random.Random(1)
    nodes = ["small,8000,16384,2,B", "plain,16000,32768,0,", "big,32000,65536,8,A"]
    for _ in range(5):
        pods = PODS.copy()
        shuffled.shuffle(pods)
        write(tmp_path, pods, nodes)
        other = open_trace(tmp_path, slot="1m", skip=0, job_types=3, arrivals="multiple")
        assert other.grouping.names == reference.grouping.names
        assert (other.counts == reference.counts).all()
        assert (other.mask == reference.mask).all()
        assert other.fidelity().load == pytest.approx(reference.fidelity().load)
        a, b = other.instance(3).base, reference.instance(3).base
        assert (a.requests == b.requests).all()
        assert (a.cluster.capacity == b.cluster.capacity).all()


def test_the_implied_load_by_hand(tmp_path):
    pods = [
        pod("a", cpu=14000, mem=0, gpus=5, milli=1000, created=0, deleted=50),
        pod("b", cpu=0, mem=28672, gpus=1, milli=500, spec="B", created=75, deleted=100),
        pod("c", cpu=0, mem=0, gpus=1, milli=1000, spec="Z", created=0, deleted=100),
    ]
    report = AlibabaGpuV2023(write(tmp_path, pods)).fidelity()
    assert report.capacity == {"cpu": 56, "mem": 112, "gpu:A": 8, "gpu:B": 2, "gpu": 10}
    assert report.load == pytest.approx(
        {
            "cpu": 14 * 0.5 / 56,
            "mem": 28 * 0.25 / 112,
            "gpu:A": (4 * 0.5) / 8,
            "gpu:B": (1 * 0.5 + 0.5 * 0.25) / 2,
            "gpu": (5 * 0.5 + 0.5 * 0.25 + 1) / 10,
        }
    )
    assert "2 jobs are deleted" in report.notes[-2]
    assert (report.first, report.last, report.servers, report.jobs) == (0, 100, 3, 3)


def test_the_report_reads_well_and_serialises(tmp_path):
    import json

    write(tmp_path, [*PODS, "oops"])
    report = open_trace(tmp_path, slot="1m").fidelity()
    text = str(report)
    assert "1  the number of fields is not that of the columns (first in row 11)" in text
    assert "gpu:A" in text
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["stages"][1]["dropped"] == {
        "the number of fields is not that of the columns": {"count": 1, "first_row": 11}
    }
    assert len(plain["digests"]["pods.csv"]) == 64


def test_a_sample_of_servers_is_proportional(tmp_path):
    nodes = [f"a{i},32000,65536,8,A" for i in range(6)] + [f"b{i},8000,16384,2,B" for i in range(3)]
    nodes += [f"c{i},16000,32768,0," for i in range(3)]
    tables = AlibabaGpuV2023(write(tmp_path, PODS, nodes)).scan()
    assert sample_servers(tables, 4).servers["name"].to_list() == ["a0", "a1", "b0", "c0"]
    assert sample_servers(tables, 12).servers["name"].to_list() == sorted(
        n.split(",")[0] for n in nodes
    )
    assert len(sample_servers(tables, 7).servers) == 7
    with pytest.raises(ScenarioError, match="13 servers"):
        sample_servers(tables, 13)
    sampled = open_trace(tmp_path, slot="1m", servers=4)
    assert sampled.mask.shape[1] == 4
    assert any("4 of 12 servers" in note for note in sampled.fidelity().notes)


def test_slots_are_those_of_the_window_even_where_no_job_of_it_can_be_played(tmp_path):
    assert scenario(tmp_path, [pod("a"), pod("b", cpu=1e9, created=150)]).counts.tolist() == [
        [1],
        [0],
        [0],
    ]


def test_nothing_to_play_says_why(tmp_path):
    with pytest.raises(TraceError, match=r"\(1"):
        scenario(tmp_path, [pod("a", cpu=1e9)])
    far = [pod("a"), pod("b", created=9e11, deleted=9e11)]
    with pytest.raises(TraceError, match="longer"):
        scenario(tmp_path, far)


def test_settings_that_make_no_sense_are_named(tmp_path):
    for knobs, message in (
        ({"slot": "soon"}, "soon"),
        ({"slot": 0}, "not a duration"),
        ({"skip": 1}, "skip"),
        ({"alpha": (0, 1)}, "alpha: alpha is"),
        ({"beta": (2, 1)}, "beta: beta is"),
        ({"units": "bits"}, "units"),
    ):
        with pytest.raises(ScenarioError, match=message):
            scenario(tmp_path, **knobs)
    with pytest.raises(UnknownName, match="contention"):
        scenario(tmp_path, contentoin=1)
    assert [seconds(d) for d in ("90s", "15m", "2min", " 1 h ", "1d", 7)] == [
        90,
        900,
        120,
        3600,
        86400,
        7,
    ]


def test_a_scenario_pickles_and_its_runs_repeat(tmp_path):
    first = scenario(tmp_path)
    second = pickle.loads(pickle.dumps(first))
    runs = [
        simulate(s.instance(5), create_policy("ogasched-react"), slots=20, seed=5).rewards
        for s in (first, second)
    ]
    assert np.array_equal(*runs)
    assert first.describe() == second.describe()
    assert set(GainOverheadTraceSettings.model_fields) < set(first.describe())


def test_reading_a_trace_is_what_imports_polars():
    code = "import sys, gangwise; print('polars' in sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"

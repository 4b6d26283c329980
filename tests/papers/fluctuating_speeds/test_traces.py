"""Measured speeds: what is read, what is refused, and what becomes of it."""

from __future__ import annotations

import gzip
import json

import pytest

from gangwise import ScenarioError, TraceError, create_policy, create_scenario, simulate
from gangwise.logs.formats.training import GavelJob, GavelThroughputs, MiniBatchTime
from gangwise.papers.fluctuating_speeds.environment import pseudo_regret

HEADER = ",worker,gpu,time,batch_time_norm\n"


def write(folder, name, rows):
    (folder / name).write_text(HEADER + "".join(f"{i},{row}\n" for i, row in enumerate(rows)))


def gavel(folder, tables, name="simulation_throughputs.json"):
    text = json.dumps(tables)
    if name.endswith(".gz"):
        (folder / name).write_bytes(gzip.compress(text.encode()))
    else:
        (folder / name).write_text(text)
    return folder


def alone(**speeds):
    return {f"('job', {gpus[1:]})": {"null": v, "other": [1, 2]} for gpus, v in speeds.items()}


def test_speeds_are_relative_to_the_fastest_iteration_in_order(tmp_path):
    write(tmp_path, "job_2_norm.csv", ["1,50,11,400", "0,50,1,1000", "1,50,1,200"])
    write(tmp_path, "job_10_norm.csv", ["0,25,1,1000"])
    trace = MiniBatchTime(tmp_path)
    assert [w.name for w in trace.workers] == [
        "job-2/worker-0",
        "job-2/worker-1",
        "job-10/worker-0",
    ]
    assert [w.gpus for w in trace.workers] == [0.5, 0.5, 0.25]
    assert [w.speed.tolist() for w in trace.workers] == [[0.2], [1.0, 0.5], [1.0]]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("0,25,11,0", "batch_time_norm is 0"),
        ("0,25,11,1001", "larger than 1000"),
        ("0,25,11,", "batch_time_norm is empty"),
        ("0,25,x,400", "time is not a number"),
        ("0.5,25,11,400", "worker is not a whole number"),
        ("0,0,11,400", "gpu is 0"),
    ],
)
def test_bad_rows_are_counted_or_named(tmp_path, row, reason):
    write(tmp_path, "job_1_norm.csv", ["0,25,1,500", row])
    ((found, dropped),) = MiniBatchTime(tmp_path).tables["job-1"].stage.dropped.items()
    assert reason in found
    assert dropped == (1, 3)
    with pytest.raises(TraceError, match=f"job_1_norm.csv, row 3: .*{reason}"):
        MiniBatchTime(tmp_path, strict=True)


def test_a_worker_has_one_request(tmp_path):
    write(tmp_path, "job_1_norm.csv", ["0,25,1,500", "1,25,1,500", "0,50,11,500"])
    with pytest.raises(TraceError, match="requested 25"):
        MiniBatchTime(tmp_path)


def test_folders_without_the_files(tmp_path):
    with pytest.raises(TraceError, match="no such folder"):
        MiniBatchTime(tmp_path / "nowhere")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(TraceError, match="found"):
        MiniBatchTime(tmp_path)
    with pytest.raises(TraceError, match="found"):
        GavelThroughputs(tmp_path)
    write(tmp_path, "job_1_norm.csv", ["0,25,1,500"])
    (tmp_path / "job_1_norm.csv.gz").write_bytes(b"")
    with pytest.raises(TraceError, match="twice"):
        MiniBatchTime(tmp_path)


@pytest.mark.parametrize("name", ["simulation_throughputs.json", "simulation_throughputs.json.gz"])
def test_measurements_are_kept_as_they_are(tmp_path, name):
    tables = {"k80": alone(x1=2, x2=0), "p100": alone(x1=5, x2=8), "v100": alone(x1=4, x2=9)}
    table = GavelThroughputs(gavel(tmp_path, tables, name))
    assert table.jobs == (GavelJob("job", 1), GavelJob("job", 2))
    assert ("k80", GavelJob("job", 2)) not in table.throughput
    assert table.throughput["v100", GavelJob("job", 1)] == 4.0


GOOD = {"k80": alone(x1=1), "p100": alone(x1=1), "v100": alone(x1=1)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"v100": alone(x1=-1)}, r"v100, key \"\('job', 1\)\": the throughput is -1"),
        ({"v100": alone(x1=float("nan"))}, "the throughput is nan"),
        ({"v100": alone(x1="fast")}, "the throughput is 'fast'"),
        ({"p100": {"('job', 1)": {"other": [1, 2]}}}, "p100, .* no throughput alone"),
        ({"p100": {"job": {"null": 1}}}, "p100, key 'job': this is not a tuple"),
        ({"p100": {"('job', 0)": {"null": 1}}}, "not a tuple"),
        ({"p100": {"(job, 1)": {"null": 1}}}, "not a tuple"),
        ({"k80": alone(x1=0), "p100": alone(x1=0), "v100": alone(x1=0)}, "no job runs"),
        ({"v100": 3}, "expected GPU models"),
    ],
)
def test_bad_tables_are_named(tmp_path, change, message):
    with pytest.raises(TraceError, match=message):
        GavelThroughputs(gavel(tmp_path, {**GOOD, **change}))


def test_a_missing_model_and_broken_json(tmp_path):
    few = {model: GOOD[model] for model in ("k80", "p100")}
    with pytest.raises(TraceError, match="'v100'"):
        GavelThroughputs(gavel(tmp_path, few))
    (tmp_path / "simulation_throughputs.json").write_text('{\n"k80": {,}}')
    with pytest.raises(TraceError, match="row 2"):
        GavelThroughputs(tmp_path)


def test_a_scenario_needs_its_folder():
    with pytest.raises(ScenarioError, match="needs folder="):
        create_scenario("esdp-mini-batch-v1")


def test_real_mini_batch_times(traces):
    folder = traces / "alibaba-gpu-v2020" / "mini-batch-time"
    if not folder.is_dir():
        pytest.skip("mini-batch-time is not among the traces here")
    trace = MiniBatchTime(folder)
    assert len(trace.workers) == 40
    assert sum(w.speed.size for w in trace.workers) == 3000 + 2402 + 2489 + 21829
    assert all(not t.stage.dropped for t in trace.tables.values())
    assert {w.job: w.gpus for w in trace.workers} == {
        "job-1": 0.25,
        "job-2": 0.2,
        "job-3": 0.25,
        "job-4": 0.5,
    }
    assert max(w.speed.max() for w in trace.workers) == 1.0
    regret = {}
    for policy in ("esdp", "random-channels"):
        scenario = create_scenario(
            "esdp-mini-batch-v1", folder=str(folder), order="drawn", blocks=4
        )
        run = simulate(scenario.instance(0), create_policy(policy), 600, 0)
        regret[policy] = pseudo_regret(run)[-1]
    assert 0 <= regret["esdp"] < 0.5 * regret["random-channels"]


def test_real_throughputs(traces):
    folder = traces / "gavel-throughputs"
    if not folder.is_dir():
        pytest.skip("gavel-throughputs is not among the traces here")
    table = GavelThroughputs(folder)
    assert len(table.jobs) == 83
    assert len(table.throughput) == 3 * 83 - 3

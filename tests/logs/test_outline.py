"""What a trace becomes, written out and played again; and the commands around it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from gangwise import ScenarioError, TraceError, create_policy, create_scenario, simulate
from gangwise.cli import app
from gangwise.core.files import write_whole
from gangwise.logs.tables import SAVED as MANIFEST
from gangwise.logs.tables import load_tables, save_tables
from gangwise.papers.scenarios.drawn import read_scenario
from gangwise.papers.scenarios.opening import open_trace, outline, write_outline

from . import test_alibaba_gpu_v2020 as v2020
from .csvs import pod, write
from .made import tables
from .test_speeds_workload import mini_batch

PODS = [
    pod(f"p{i}", gpus=i % 2, milli=500 * (i % 2), created=60 * (i // 2), deleted=60 * i + 90)
    for i in range(12)
]
POLICY = {"gain_overhead": "drf", "fluctuating_speeds": "hauf", "approximation_jobs": "fair"}
KNOBS = {
    "gain_overhead": {"slot": "1m", "skip": 0, "contention": 2, "alpha": (1.0, 1.25)},
    "fluctuating_speeds": {"slot": "1m", "skip": 0, "density": 0.5},
    "approximation_jobs": {"slots": 30, "skip": 0, "machines": 20},
}


def invoke(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)


@pytest.mark.parametrize("family", POLICY)
def test_what_is_written_plays_the_same_without_the_trace(tmp_path, family):
    path = write(tmp_path, PODS)
    knobs = KNOBS[family]
    first = open_trace(path, family=family, **knobs)
    out = tmp_path / "out"
    written = write_outline(first, outline(first), path, {"family": family, **knobs}, out)
    assert all(file.stat().st_size for file in written)
    (path / "pods.csv").unlink()
    moved = out.rename(tmp_path / "moved")
    second = read_scenario(moved / "scenario.toml")
    assert second.describe() == first.describe()
    assert str(second.fidelity()) == str(first.fidelity())
    runs = [simulate(s.instance(2), create_policy(POLICY[family]), 20, 2) for s in (first, second)]
    assert np.array_equal(runs[0].rewards, runs[1].rewards)
    other = read_scenario(moved / "scenario.toml", {"skip": 0.5})
    assert other.describe() != first.describe()


def test_numbers_and_tables_by_hand(tmp_path):
    s = open_trace(write(tmp_path, PODS), slot="1m", skip=0, keep=0.5)
    found = outline(s)
    plain, shared = found.job_types
    assert (plain["job_type"], plain["fits_on"], plain["channels"]) == ("4cpu-8mem", 3, 3)
    assert (shared["job_type"], shared["channels"]) == ("4cpu-8mem-0.5gpu", 2)
    assert (plain["arrivals_per_slot"], shared["arrivals_per_slot"]) == (0.5, 0.5)
    # Rows 0, 2, ... live 90, 150, ... 390 s; rows 1, 3, ... live 150, 210, ... 450 s.
    assert (plain["median_run_s"], shared["median_run_s"]) == (240, 300)
    numbers = found.numbers
    assert (numbers["slots"], numbers["servers"], numbers["channels"]) == (6, 3, 5)
    assert found.frames["arrivals"].rows()[:2] == [(0, "4cpu-8mem", 1), (0, "4cpu-8mem-0.5gpu", 1)]
    assert sorted(found.frames["channels"].rows()) == [
        ("4cpu-8mem", "big"),
        ("4cpu-8mem", "plain"),
        ("4cpu-8mem", "small"),
        ("4cpu-8mem-0.5gpu", "big"),
        ("4cpu-8mem-0.5gpu", "small"),
    ]
    jobs = outline(open_trace(tmp_path, family="approximation_jobs", skip=0, slots=30))
    assert jobs.frames["lifetimes"].rows()[0] == ("p0", 0, 9)  # 300 s in 30 slots: 90 s are 9
    assert jobs.numbers["jobs"] == 12
    with pytest.raises(ScenarioError, match="trace"):
        outline(create_scenario("ogasched-default-v1"))


def test_recorded_speeds_are_played_again(tmp_path):
    v2020.write(tmp_path, only=("pai_machine_spec",))
    mini_batch(tmp_path / "mini-batch-time")
    s = open_trace(tmp_path, family="fluctuating_speeds", density=1)
    write_outline(s, outline(s), tmp_path, {}, tmp_path / "out")
    again = read_scenario(tmp_path / "out" / "scenario.toml")
    assert again.describe() == s.describe()


def test_tables_are_saved_whole(tmp_path):
    given = tables(
        [("a", 1, 1, 0, 0, None)],
        [("m", "T4", 1, 1, 1)],
        events=[(1.0, "m", False)],
        tasks=[3],
        units={"cpu": "NCU", "mem": "NMU", "gpu": "GPUs"},
    )
    save_tables(given, tmp_path)
    read = load_tables(tmp_path)
    for name in ("servers", "jobs", "events"):
        assert getattr(read, name).equals(getattr(given, name))
    for name in ("trace", "stages", "digests", "notes", "units"):
        assert getattr(read, name) == getattr(given, name)
    (tmp_path / "jobs.parquet").write_bytes(b"no")
    with pytest.raises(TraceError, match="table"):
        load_tables(tmp_path)
    (tmp_path / MANIFEST).write_text('{"version": 1}')
    with pytest.raises(TraceError, match="manifest"):
        load_tables(tmp_path)
    (tmp_path / MANIFEST).write_text('{"version": 7}')
    with pytest.raises(TraceError, match="version 7"):
        load_tables(tmp_path)


def test_the_command_prints_and_writes(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")  # so that names of job types are not folded
    path, out = write(tmp_path, PODS), tmp_path / "out"
    done = invoke("trace", "workload", path, "--set", "slot=1m", "--set", "skip=0")
    assert done.exit_code == 0
    assert "4cpu-8mem-0.5gpu" in done.stdout
    assert "pods.csv: 12 read, 12 kept" in done.stdout
    done = invoke(
        "trace",
        "workload",
        path,
        "--family",
        "approximation_jobs",
        "--out",
        out,
        "--json",
        "--set",
        "slots=30",
    )
    told = json.loads(done.stdout)
    assert (told["family"], told["numbers"]["slots"]) == ("approximation_jobs", 30)
    assert pl.read_parquet(out / "workload-lifetimes.parquet").height == told["numbers"]["jobs"]
    done = invoke(
        "compare",
        out / "scenario.toml",
        "--policies",
        "fair",
        "--slots",
        20,
        "--seeds",
        2,
        "--json",
    )
    assert json.loads(done.stdout)["scenario"] == "trace-alibaba-gpu-v2023-jobs-v2"


def test_compare_and_run_take_a_trace_and_a_family(tmp_path):
    path = write(tmp_path, PODS)
    few = ["--slots", 6, "--seeds", 2, "--json", "--comparators", "none", "--set", "slot=1m"]
    for family, policy in POLICY.items():
        chosen = ["--policies", policy, *few, "--family", family]
        if family == "approximation_jobs":
            chosen += ["--set", "slot=1m"]
        by_option = json.loads(invoke("compare", "--trace", path, *chosen).stdout)
        by_place = json.loads(invoke("compare", path, *chosen).stdout)
        mean = [[p["mean_reward"] for p in done["policies"]] for done in (by_option, by_place)]
        assert mean[0] == mean[1]
        assert by_option["scenario"].startswith("trace-alibaba-gpu-v2023-")
    ran = invoke(
        "run", "--trace", path, "hauf", "--family", "fluctuating_speeds", "--slots", 4, "--json"
    )
    assert json.loads(ran.stdout)["slots"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compare"], "one of the two"),
        (["compare", "ogasched-default-v1", "--trace", "."], "one of the two"),
        (["compare", "ogasched-default-v1", "--family", "gain_overhead"], "--family is for traces"),
        (["compare", "--trace", ".", "--family", "a", "--set", "family=b"], "give one"),
        (["run", "ogasched-default-v1"], "give a policy"),
        (["run", "--trace", "."], "give a policy"),
    ],
)
def test_what_cannot_be_meant_is_said(arguments, message):
    with pytest.raises(ScenarioError, match=message):
        invoke(*arguments)


def test_a_scenario_file_of_a_trace_is_checked(tmp_path):
    write(tmp_path, PODS)
    file = Path(tmp_path, "s.toml")
    file.write_text('trace = "."\nfamliy = "gain_overhead"\n')
    with pytest.raises(ScenarioError, match="family"):
        read_scenario(file)
    file.write_text('trace = "."\nformat = "alibaba-gpu-v2023"\n[settings]\nslot = "1m"\n')
    assert read_scenario(file, {"skip": 0}).slots == 6


def test_tables_that_were_half_written_over_are_none(tmp_path, monkeypatch):
    given = tables([("a", 1, 1, 0, 0, None)], [("m", "T4", 1, 1, 1)])
    save_tables(given, tmp_path)

    def dies(path, content):
        if path.name == "jobs.parquet":
            raise KeyboardInterrupt
        write_whole(path, content)

    monkeypatch.setattr("gangwise.logs.tables.write_whole", dies)
    with pytest.raises(KeyboardInterrupt):
        save_tables(given, tmp_path)
    with pytest.raises(TraceError, match="gangwise trace convert"):
        load_tables(tmp_path)

"""Traces as problems of fluctuating speeds: what is measured, what is drawn, what is said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gangwise import ScenarioError, TraceError, create_policy, create_scenario, simulate
from gangwise.core.workload import BernoulliArrivals
from gangwise.papers.scenarios.opening import SpeedsTraceScenario, open_trace

from . import test_alibaba_gpu_v2020 as v2020
from .made import tables

# One type without GPUs, one with a GPU of any model, one with two of P100.
JOBS = [
    ("a", 4, 8, 0, 0, 30),
    ("b", 4, 8, 0, 30, 60),
    ("c", 2, 8, 1, 70, 400),
    ("d", 2, 8, 2, 130, 190),
]
MODELS = ["", "", "", "P100"]
SERVERS = [
    ("m1", "P100", 32, 64, 4),
    ("m2", "V100M32", 32, 64, 4),
    ("m3", "G2", 32, 64, 4),
    ("m4", "", 32, 64, 0),
]
KNOBS = {"slot": "1m", "skip": 0, "keep": 1, "density": 1}


def scenario(given, **knobs):
    return SpeedsTraceScenario(given, **{**KNOBS, **knobs})


def noted(s, text):
    return any(text in note for note in s.fidelity().notes)


def gavel(folder, **tables):
    throughputs = {
        model: {f"('job', {gpus[1:]})": {"null": speed} for gpus, speed in of.items()}
        for model, of in tables.items()
    }
    path = folder / "simulation_throughputs.json"
    path.write_text(json.dumps(throughputs))
    return str(path)


def mini_batch(folder):
    folder.mkdir(exist_ok=True)
    for job, gpu, times in ((1, 25, ([500, 1000], [250])), (2, 50, ([1000], [800]))):
        rows = [f"{w},{gpu},{n},{time}" for w, of in enumerate(times) for n, time in enumerate(of)]
        text = ",worker,gpu,time,batch_time_norm\n" + "".join(
            f"{i},{row}\n" for i, row in enumerate(rows)
        )
        (folder / f"job_{job}_norm.csv").write_text(text)
    return folder


def test_drawn_speeds_on_what_fits():
    s = scenario(tables(JOBS, SERVERS, models=MODELS))
    instance = s.instance(0)
    p = instance.problem
    pairs = set(zip(p.channels.job_type.tolist(), p.channels.server.tolist()))
    assert pairs == {(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (1, 2), (2, 0)}
    assert p.cluster.devices == ("cpu", "mem", "gpu:G2", "gpu:P100", "gpu:V100M32")
    e = {
        pair: n
        for n, pair in enumerate(zip(p.channels.job_type.tolist(), p.channels.server.tolist()))
    }
    # Shares of the largest server: 32 cores, 64 GiB, 4 GPUs.
    assert p.requests[e[0, 0]].tolist() == [4 / 32, 8 / 64, 0, 0, 0]
    assert p.requests[e[1, 1]].tolist() == [2 / 32, 8 / 64, 0, 0, 1 / 4]
    assert p.requests[e[2, 0]].tolist() == [2 / 32, 8 / 64, 0, 2 / 4, 0]
    assert p.cluster.capacity == pytest.approx(np.maximum(p.requests.sum(0) / 2, p.requests.max(0)))
    assert ((instance.speeds.mean >= 0.1) & (instance.speeds.mean <= 1)).all()
    assert p.cost.mean() == pytest.approx(0.3 * instance.speeds.mean.mean())
    arrivals, _ = instance.history(6, 0)
    assert arrivals.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]] * 2
    assert noted(s, "nothing here is measured")
    assert s.describe()["speeds"] == "drawn"
    own = scenario(tables(JOBS, SERVERS, models=MODELS), fraction=None, contention=2)
    assert own.instance(0).problem.cluster.capacity.tolist() == [4, 4, 1, 1, 1]
    assert own.instance(0).problem.requests == pytest.approx(2 * p.requests)


def test_throughputs_by_model_and_number_of_gpus(tmp_path):
    path = gavel(tmp_path, k80={"x1": 1, "x2": 1}, p100={"x1": 2, "x2": 3}, v100={"x1": 8, "x2": 3})
    given = tables(JOBS, SERVERS, models=MODELS)
    s = scenario(given, speeds=path)
    instance = s.instance(4)
    p, mean = instance.problem, instance.speeds.mean
    told = {
        (int(l), int(r)): mean[e]
        for e, (l, r) in enumerate(zip(p.channels.job_type, p.channels.server))
    }
    assert (told[1, 0], told[1, 1], told[2, 0]) == (0.25, 1.0, 1.0)
    assert 0.1 <= told[1, 2] <= 1.0  # G2 is not measured
    assert noted(s, "mean speeds of 3 of the 8 are measured throughputs")
    assert noted(s, "not measured (g2) are drawn")
    assert s.fidelity().digests.keys() == {"jobs.csv", "simulation_throughputs.json"}
    fewer = scenario(given, speeds=path, unmeasured="drop").instance(4).problem
    assert sorted(zip(fewer.channels.job_type.tolist(), fewer.channels.server.tolist())) == [
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (1, 0),
        (1, 1),
        (2, 0),
    ]


def test_a_job_has_no_channel_where_it_does_not_run(tmp_path):
    path = gavel(tmp_path, k80={"x1": 1}, p100={"x1": 0}, v100={"x1": 8})
    s = scenario(tables(JOBS[:3], SERVERS), speeds=path)
    p = s.instance(0).problem
    assert 0 not in p.channels.server[p.channels.job_type == 1]
    with pytest.raises(ScenarioError, match="measured"):
        scenario(tables(JOBS, SERVERS, models=MODELS), speeds=path).instance(0)


def test_of_several_numbers_of_gpus_the_nearest_is_taken(tmp_path):
    path = gavel(
        tmp_path, k80={"x1": 1, "x8": 1}, p100={"x1": 1, "x8": 5}, v100={"x1": 10, "x8": 10}
    )
    jobs = [("a", 1, 1, 0.5, 0, 9), ("b", 1, 1, 6, 0, 9)]
    big = [("m1", "P100", 32, 64, 8), ("m2", "V100", 32, 64, 8)]
    instance = scenario(tables(jobs, big), speeds=path).instance(0)
    names, channels = instance.problem.job_types, instance.problem.channels
    on_p100 = {
        names[l]: instance.speeds.mean[e]
        for e, (l, r) in enumerate(zip(channels.job_type, channels.server))
        if r == 0
    }
    assert on_p100 == {"1cpu-1mem-0.5gpu": 0.1, "1cpu-1mem-6gpu": 0.5}


def test_a_whole_v2020_folder_uses_the_recorded_times_that_it_holds(tmp_path):
    v2020.write(tmp_path)
    mini_batch(tmp_path / "mini-batch-time")
    s = open_trace(tmp_path, family="fluctuating_speeds", slot="1m", skip=0, density=1)
    assert noted(
        s,
        "recorded iteration times of 4 workers of 2 jobs; which worker a channel has "
        "is drawn, and which job a job type",
    )
    instance = s.instance(1)
    p = instance.problem
    records = {(0.5, 0.25), (1.0,), (0.8,)}  # job 1: 250 is fastest; job 2: 800
    for e, l in enumerate(p.channels.job_type):
        if "gpu" in p.job_types[l]:
            assert tuple(instance.speeds.series[e]) in records
        else:
            assert instance.speeds.series[e].size == 1000
    assert simulate(instance, create_policy("esdp"), slots=20, seed=1).slots == 20
    assert s.slots > 0
    drawn = open_trace(tmp_path, family="fluctuating_speeds", slot="1m", speeds="drawn")
    assert noted(drawn, "nothing here is measured")
    assert open_trace(tmp_path, slot="1m").family == "gain_overhead"


def test_recorded_times_and_machines_need_no_jobs(tmp_path):
    v2020.write(tmp_path, only=("pai_machine_spec",))
    mini_batch(tmp_path / "mini-batch-time")
    s = open_trace(tmp_path, family="fluctuating_speeds", density=1, keep=0.25, order="drawn")
    assert s.demand.names == ("job-1", "job-2")
    assert s.demand.servers["name"].to_list() == ["aa01", "aa03", "aa04"]  # aa02 has no GPUs
    instance = s.instance(0)
    assert isinstance(instance.workload, BernoulliArrivals)
    assert instance.workload.probability.tolist() == [0.25, 0.25]
    p = instance.problem
    records = [{(0.5, 0.25), (1.0,)}, {(0.8,), (1.0,)}]
    for e, l in enumerate(p.channels.job_type):
        assert tuple(instance.speeds.series[e]) in records[l]
        assert p.requests[e].sum() == (0.25 if l == 0 else 0.5) / 8  # of the most GPUs, 8
    assert noted(s, "there are no jobs in the files: the 2 recorded jobs are the job types")
    assert noted(s, "servers are the 3 of 4 that have GPUs")
    assert s.fidelity().jobs == 0
    with pytest.raises(TraceError, match="no pai_job_table"):
        open_trace(tmp_path)


def test_no_measurements_where_some_are_named(tmp_path):
    with pytest.raises(TraceError, match="measured"):
        scenario(tables(JOBS, SERVERS, models=MODELS), speeds=str(tmp_path / "nowhere"))


def test_descriptions_have_digests_and_no_paths(tmp_path):
    path = gavel(tmp_path, k80={"x1": 1}, p100={"x1": 1}, v100={"x1": 8})
    folder = mini_batch(tmp_path / "mini")
    for s in (
        scenario(tables(JOBS[:3], SERVERS), speeds=path),
        create_scenario("esdp-mini-batch-v1", folder=str(folder)),
    ):
        told = s.describe()
        assert str(tmp_path) not in json.dumps(told)
        assert all(len(digest) == 64 for digest in told["files"].values())


def test_real_throughputs_on_a_real_trace(traces):
    if not (traces / "gavel-throughputs").is_dir():
        pytest.skip("gavel-throughputs is not among the traces here")
    s = open_trace(
        traces / "alibaba-gpu-v2023",
        family="fluctuating_speeds",
        speeds=str(traces / "gavel-throughputs"),
        skip=0.01,
        slot="1h",
    )
    assert s.demand.fits.shape == (10, 40)
    earned = {}
    for policy in ("esdp", "random-channels"):
        runs = [simulate(s.instance(n), create_policy(policy), 400, n) for n in range(3)]
        earned[policy] = np.mean([run.mean_reward for run in runs])
    assert earned["esdp"] > earned["random-channels"]

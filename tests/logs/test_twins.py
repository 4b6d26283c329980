"""Synthetic twins: against published numbers, against the real files, and against wrong twins."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gangwise.core.errors import ScenarioError, TraceError, UnknownName
from gangwise.logs.formats.alibaba_v2018 import AlibabaV2018
from gangwise.logs.formats.google import Google2011
from gangwise.logs.formats.tabular import reader
from gangwise.logs.tables import Tables, of_tables
from gangwise.logs.twins import (
    NAMES,
    ArrivalProcess,
    Cdf,
    Kind,
    calibration,
    completed,
    servers_of,
    twin,
)
from gangwise.papers.scenarios.approximation_jobs import GoogleScenario
from gangwise.papers.scenarios.demand import fits_somewhere
from gangwise.papers.scenarios.drawn import read_scenario
from gangwise.papers.scenarios.opening import open_trace
from tests.logs.distances import distance, kolmogorov_smirnov, total_variation

AlibabaGpuV2023 = reader("alibaba-gpu-v2023")

SMALL = {"servers": 40, "days": 1.0, "jobs_per_day": 500.0}
LIKE_THE_SAMPLE = {
    "alibaba-gpu-v2023": {},
    "alibaba-v2018": {"sizes": "sample", "servers": 4033, "days": 7.0, "jobs_per_day": 302.0},
    "google-2011": {"days": 5011.1 / 86400},
}
"""Arguments that make a twin as long as the real files."""


# --- what a twin is ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_same_seed_gives_the_same_twin_and_another_another(name: str) -> None:
    one, same, other = (twin(name, seed, **SMALL) for seed in (3, 3, 4))
    assert one.jobs.equals(same.jobs)
    assert one.servers.equals(same.servers)
    assert one.digests == same.digests
    assert not one.jobs.equals(other.jobs)
    assert set(one.digests.values()) != set(other.digests.values())


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_like_those_of_a_loader(name: str) -> None:
    tables = twin(name, 1, **SMALL)
    jobs, end = tables.jobs, 86400.0
    assert list(tables.servers.columns) == ["row", "name", "model", "cpu", "mem", "gpu"]
    assert jobs["row"].to_list() == list(range(1, len(jobs) + 1))
    assert jobs["created"].is_sorted()
    assert jobs["created"].is_between(0, end, closed="left").all()
    assert (jobs["deleted"] <= end).all()
    assert (jobs["deleted"] >= jobs["created"]).all()
    assert (jobs.select("cpu", "mem", "gpu") >= 0).to_numpy().all()
    if "tasks" in jobs.columns:
        assert ((jobs["tasks"] >= 1) & (jobs["tasks"] == jobs["tasks"].round())).all()
    if "started" in jobs.columns:
        assert (jobs["started"].is_null() | (jobs["started"] <= jobs["deleted"])).all()
        assert jobs["deleted"].filter(jobs["started"].is_null()).to_list() == [end] * int(
            jobs["started"].null_count()
        )
    if name != "google-2011":
        assert (jobs["created"] == jobs["created"].floor()).all()
    report = of_tables(tables)
    assert report.units == calibration(name).units
    assert any("a synthetic twin, no real trace" in note for note in report.notes)


@pytest.mark.parametrize("name", NAMES)
def test_nearly_every_request_fits_on_a_machine_of_the_trace(name: str) -> None:
    knobs = {"days": 1.0, "jobs_per_day": 3000.0, "servers": calibration(name).size}
    tables = twin(name, 2, **knobs)
    fit = fits_somewhere(
        tables.jobs.select("cpu", "mem", "gpu").to_numpy(),
        tables.jobs["models"].to_list(),
        tables.servers.select("cpu", "mem", "gpu").to_numpy(),
        tables.servers["model"].to_list(),
    )
    assert fit.mean() > 0.999


def test_precedence_names_earlier_rows_of_the_same_job() -> None:
    jobs = twin("alibaba-v2018", 5, **SMALL).jobs
    seen: dict[str, set[str]] = {}
    number = {}
    for job, name, after in jobs.select("job", "name", "after").rows():
        seen.setdefault(job, set()).add(name)
        number[job, name] = int(name[1:].split("_")[0])
        assert sorted(after.split("|")) == sorted(set(after.split("|")))
    for job, name, after in jobs.select("job", "name", "after").rows():
        for parent in filter(None, after.split("|")):
            assert parent in seen[job]
            assert number[job, parent] < number[job, name]
        said = [int(part) for part in name[1:].split("_")[1:]]
        assert said == sorted(number[job, parent] for parent in filter(None, after.split("|")))


def test_servers_jobs_and_length_scale() -> None:
    name = "alibaba-gpu-v2023"
    whole, half = calibration(name).size, 761
    assert len(twin(name, servers=half, days=1).servers) == half
    counts = [
        np.mean([len(twin(name, seed, servers=servers, days=10).jobs) for seed in range(8)])
        for servers in (whole, half)
    ]
    assert counts[0] == pytest.approx(2465, rel=0.25)
    assert counts[1] == pytest.approx(counts[0] / 2, rel=0.25)


def test_constrained_pods_ask_for_a_model_that_holds_them() -> None:
    tables = twin("alibaba-gpu-v2023", 1, constrained=0.33)
    jobs = tables.jobs.filter(pl.col("gpu") > 0)
    assert (jobs["models"] != "").mean() == pytest.approx(0.33, abs=0.03)
    assert (tables.jobs.filter(pl.col("gpu") == 0)["models"] == "").all()
    fit = fits_somewhere(
        jobs.select(cpu=pl.lit(0.0), mem=pl.lit(0.0), gpu="gpu").to_numpy(),
        jobs["models"].to_list(),
        tables.servers.select("cpu", "mem", "gpu").to_numpy(),
        tables.servers["model"].to_list(),
    )
    assert fit.all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("alibaba-gpu-v2032",), UnknownName, "did you mean alibaba-gpu-v2023"),
        (("philly",), UnknownName, "there is no twin"),
        (("google-2011", 0, {"sizes": "sample"}), UnknownName, "days"),
        (("google-2011", 0, {"servers": 0}), ScenarioError, "servers is 0"),
        (("google-2011", 0, {"days": float("nan")}), ScenarioError, "days is nan"),
        (("google-2011", 0, {"days": 3000.0}), ScenarioError, "choose fewer days"),
        (("google-2011", -1), ScenarioError, "seed is -1"),
        (("google-2011", 0, {"days": 0.001, "jobs_per_day": 1.0}), ScenarioError, "has no job"),
        (("google-2011", 0, {"days": "two"}), ScenarioError, "days is 'two'"),
        (("google-2011", 0, {"jobs_per_day": "many"}), ScenarioError, "jobs_per_day is 'many'"),
        (("alibaba-gpu-v2023", 0, {"constrained": 2}), ScenarioError, "constrained is 2"),
        (("alibaba-v2018", 0, {"sizes": "huge"}), ScenarioError, "published, sample"),
    ],
)
def test_what_makes_no_sense_is_said(
    arguments: tuple[object, ...], error: type[Exception], words: str
) -> None:
    knobs = arguments[2] if len(arguments) > 2 else {}
    with pytest.raises(error, match=words):
        twin(*arguments[:2], **knobs)


# --- what twins are made of -------------------------------------------------------------------


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6),
    st.lists(st.integers(1, 50), min_size=6, max_size=6),
    st.integers(0, 5),
)
def test_whole_numbers_keep_their_shares_at_the_points(
    steps: list[int], weights: list[int], first: int
) -> None:
    values = first + np.cumsum([0, *steps])
    shares = np.cumsum(weights[: len(values)] + [0] * (len(values) - 6))[: len(values)]
    shares = shares / shares[-1]
    table = Cdf(tuple(map(float, values)), tuple(map(float, shares)))
    drawn = table.draw(np.random.default_rng(0), 20_000, whole=True)
    assert np.array_equal(drawn, np.round(drawn))
    for value, share in zip(values, shares):
        assert (drawn <= value).mean() == pytest.approx(share, abs=0.025)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(1, 4000))
def test_kinds_of_servers_have_their_shares(counts: list[int], servers: int) -> None:
    made = servers_of([Kind(n, f"m{i}", 1, 1) for i, n in enumerate(counts)], servers)
    assert len(made) == servers
    there = Counter(made["model"].to_list())
    for i, count in enumerate(counts):
        assert abs(there[f"m{i}"] - servers * count / sum(counts)) < 1


def test_arrivals_have_their_rate_cycle_and_gaps() -> None:
    hours = (1.0, *[3.0] * 23)
    rng = np.random.default_rng(7)
    times = ArrivalProcess(None, hours).draw(rng, 2400.0, 50.0)
    assert len(times) == pytest.approx(120_000, rel=0.02)
    first = float((times % 86400 < 3600).mean())
    assert first == pytest.approx(1 / 70, rel=0.1)
    gaps = np.diff(times[(times % 86400 > 7200)][:20_000])
    gaps = gaps[gaps < 3600]  # within a day
    assert stats.kstest(gaps / gaps.mean(), "expon").statistic < 0.02
    bursts = ArrivalProcess(Cdf((0.001, 0.01, 10.0), (0.1, 0.6, 1.0))).draw(rng, 2400.0, 50.0)
    assert len(bursts) == pytest.approx(120_000, rel=0.03)
    assert np.diff(bursts).std() > 1.5 * np.diff(bursts).mean()


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
    st.lists(st.integers(0, 9), min_size=1, max_size=40),
)
def test_kolmogorov_smirnov_is_the_largest_difference(first: list[int], second: list[int]) -> None:
    found = max(
        abs(sum(v <= at for v in first) / len(first) - sum(v <= at for v in second) / len(second))
        for at in range(10)
    )
    one, other = np.array(first, dtype=float), np.array(second, dtype=float)
    assert kolmogorov_smirnov(one, other) == pytest.approx(found)


def test_kolmogorov_smirnov_is_that_of_scipy() -> None:
    one, other = (np.random.default_rng(seed).normal(seed, 1, 300) for seed in (0, 1))
    assert kolmogorov_smirnov(one, other) == pytest.approx(stats.ks_2samp(one, other).statistic)


def test_total_variation_by_hand() -> None:
    assert total_variation({"a": 1, "b": 3}, {"b": 1, "c": 1}) == pytest.approx(0.5)
    assert total_variation({"a": 2}, {"a": 9}) == 0


# --- distances tell twins from others ---------------------------------------------------------


def resampled(tables: Tables, seed: int) -> Tables:
    """The rows of a trace drawn again with replacement."""
    return replace(tables, jobs=tables.jobs.sample(fraction=1.0, with_replacement=True, seed=seed))


@pytest.mark.parametrize("name", NAMES)
def test_a_resample_is_near_and_a_wrong_twin_is_far(name: str) -> None:
    tables = twin(name, 11, servers=300, days=1.0, jobs_per_day=4000.0)
    near = distance(resampled(tables, 1), tables).apart
    for quantity in ("cpu", "mem", "gpu", "lifetime"):
        assert near[quantity].value < 0.04, quantity
    other = next(n for n in NAMES if calibration(n).units != calibration(name).units)
    far = distance(twin(other, 11, servers=300, days=1.0, jobs_per_day=4000.0), tables).apart
    assert min(far[quantity].value for quantity in ("cpu", "mem")) > 0.3
    assert far["machines"].value > 0.9
    slow = replace(tables, jobs=tables.jobs.with_columns(pl.col("created") * 3 % 86400))
    assert distance(slow, tables).apart["gap"].value < 0.2  # the same rate
    late = tables.jobs.with_columns(
        deleted=pl.col("created") + 8 * (pl.col("deleted") - pl.col("created") + 1)
    )
    assert distance(replace(tables, jobs=late), tables).apart["lifetime"].value > 0.3


def test_the_report_says_what_only_one_trace_has() -> None:
    one, other = twin("alibaba-v2018", 0, **SMALL), twin("google-2011", 0, **SMALL)
    found = distance(one, other)
    assert found.missing == ("parents", "rows per job")
    text = str(found)
    assert "in one trace only: parents, rows per job" in text
    assert text.count("\n") == len(found.apart) + 1


# --- against what is published ----------------------------------------------------------------


def test_v2020_jobs_have_the_published_statistics() -> None:
    tables = twin("alibaba-gpu-v2020", 0, days=6.0)
    jobs = tables.jobs
    tasks, gpu = jobs["tasks"].to_numpy(), jobs["gpu"].to_numpy()
    of_all = tasks / tasks.sum()
    assert len(jobs) / 6 * 62 == pytest.approx(1.2e6, rel=0.03)
    assert tasks.sum() / 6 * 62 == pytest.approx(7.5e6, rel=0.05)
    assert of_all[tasks > 1].sum() == pytest.approx(0.85, abs=0.02)
    assert of_all[tasks * gpu > 100].sum() == pytest.approx(0.20, abs=0.03)
    for name, median, most in (("cpu", 6, 12), ("mem", 29.3, 59), ("gpu", 0.5, 1)):
        assert np.median(jobs[name].to_numpy()) == median
        assert np.quantile(jobs[name].to_numpy(), 0.95) == most
    run = jobs.filter(pl.col("deleted") < 6 * 86400.0)
    assert (run["deleted"] - run["started"]).mean() == pytest.approx(5038.7, rel=0.1)
    wait = (run["started"] - run["created"]).to_numpy()
    strong = run["models"].str.starts_with("V100").to_numpy()
    assert np.quantile(wait[strong], [0.5, 0.9]) == pytest.approx([113, 13709], rel=0.15)
    assert np.quantile(wait[~strong], [0.5, 0.9]) == pytest.approx([11, 360], rel=0.15)


def test_v2018_jobs_have_the_published_sizes_and_order() -> None:
    jobs = twin("alibaba-v2018", 0).jobs
    assert (jobs["created"] < 86400).all()
    assert (jobs["deleted"] >= jobs["created"]).all()
    by_job = jobs.group_by("job").agg(pl.len(), order=(pl.col("after") != "").any())
    rows = by_job["len"].to_numpy()
    assert rows.mean() == pytest.approx(14_295_731 / 4_201_014, rel=0.03)
    assert np.quantile(rows, [0.5, 0.9, 0.99]).tolist() == [2, 7, 21]
    assert (rows > 1).mean() == pytest.approx(0.595, abs=0.01)
    assert by_job["order"].mean() == pytest.approx(0.483, abs=0.01)


def test_google_machines_are_the_published_ones() -> None:
    """Shares of the machines by shape, in per cent, as printed elsewhere from the same trace."""
    servers = twin("google-2011", days=0.1).servers
    assert len(servers) == 12_583
    counts = Counter(servers.select("cpu", "mem").rows())
    shares = {
        (0.5, 0.5): 53.5,
        (0.5, 0.25): 30.7,
        (0.5, 0.75): 7.95,
        (1.0, 1.0): 6.32,
        (0.25, 0.25): 1.0,
        (0.5, 0.12): 0.41,
    }
    for shape, share in shares.items():
        assert 100 * counts[shape] / len(servers) == pytest.approx(share, abs=0.06)


# --- against the real files -------------------------------------------------------------------


@pytest.fixture(scope="module")
def real_tables() -> dict[str, Tables]:
    return {}


def real(name: str, traces: Path, cache: dict[str, Tables]) -> Tables:
    readers = {
        "alibaba-gpu-v2023": AlibabaGpuV2023,
        "alibaba-v2018": AlibabaV2018,
        "google-2011": Google2011,
    }
    if name not in cache:
        cache[name] = readers[name](traces / name).scan()
    return cache[name]


@pytest.mark.full
@pytest.mark.parametrize("name", list(LIKE_THE_SAMPLE))
def test_the_twin_is_within_its_distance_of_the_real_trace(
    name: str, traces: Path, real_tables: dict[str, Tables]
) -> None:
    there = real(name, traces, real_tables)
    within = calibration(name).within
    for seed in range(20, 22):
        apart = distance(twin(name, seed, **LIKE_THE_SAMPLE[name]), there).apart
        for quantity, most in within.items():
            assert apart[quantity].value <= most + 1e-12, (quantity, seed)


@pytest.mark.full
@pytest.mark.parametrize("name", list(LIKE_THE_SAMPLE))
def test_a_real_resample_is_near_and_other_twins_are_beyond_the_bounds(
    name: str, traces: Path, real_tables: dict[str, Tables]
) -> None:
    there = real(name, traces, real_tables)
    near = distance(resampled(there, 1), there).apart
    within = calibration(name).within
    kept = [q for q in ("cpu", "mem", "gpu", "tasks", "lifetime") if q in within]
    assert all(near[q].value <= within[q] for q in kept)
    for other in set(LIKE_THE_SAMPLE) - {name}:
        apart = distance(twin(other, 0, **LIKE_THE_SAMPLE[other]), there).apart
        beyond = [q for q, most in within.items() if q in apart and apart[q].value > most]
        assert {"cpu", "mem", "lifetime"} <= set(beyond)


def longest_chain(rows: dict[str, list[str]]) -> int:
    """Rows of a job that are one after the other, by relaxation."""
    length = dict.fromkeys(rows, 1)
    for _ in rows:
        longer = {
            name: 1 + max((length[p] for p in after if p in rows), default=0)
            for name, after in rows.items()
        }
        if longer == length:
            break
        length = longer
    return max(length.values())


@pytest.mark.full
def test_chains_of_rows_are_as_long_as_in_the_sample(
    traces: Path, real_tables: dict[str, Tables]
) -> None:
    means = []
    drawn = twin("alibaba-v2018", 0, **LIKE_THE_SAMPLE["alibaba-v2018"])
    for tables in (real("alibaba-v2018", traces, real_tables), drawn):
        jobs: dict[str, dict[str, list[str]]] = {}
        for job, name, after in tables.jobs.select("job", "name", "after").rows():
            jobs.setdefault(job, {})[name] = after.split("|") if after else []
        means.append(np.mean([longest_chain(rows) for rows in jobs.values()]))
    assert means[1] == pytest.approx(means[0], rel=0.1)


def test_v2020_machines_are_those_of_the_file(traces: Path) -> None:
    with (traces / "alibaba-gpu-v2020" / "pai_machine_spec.csv").open() as file:
        rows = list(csv.reader(file))
    there = Counter((row[1].replace("CPU", ""), *map(float, row[2:])) for row in rows)
    servers = twin("alibaba-gpu-v2020", days=0.1).servers
    assert Counter(servers.select("model", "cpu", "mem", "gpu").rows()) == there


def test_google_lifetimes_are_those_of_job_events(traces: Path) -> None:
    """Of 13.9 hours; only those above an hour were used for the twin."""
    lives = GoogleScenario(folder=str(traces / "google-2011"), hours=13.9).workload
    seconds = lives.end - lives.arrival
    for seed in range(3):
        jobs = twin("google-2011", seed, days=13.9 / 24).jobs
        drawn = (jobs["deleted"] - jobs["created"]).to_numpy()
        assert kolmogorov_smirnov(drawn, seconds) < 0.08
        assert len(drawn) == pytest.approx(len(seconds), rel=0.1)


# --- where a trace is wanted ------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", ["gain_overhead", "fluctuating_speeds", "approximation_jobs"])
def test_twins_play_in_every_family(name: str, family: str) -> None:
    scenario = open_trace(f"twin:{name}", family=family, twin_seed=2, servers=30, days=0.5)
    other = open_trace(f"twin:{name}", family=family, twin_seed=3, servers=30, days=0.5)
    assert scenario.family == family
    assert scenario.describe() != other.describe()
    assert scenario.instance(0) is not None


def test_settings_of_the_scenario_go_on_and_unknown_ones_are_named() -> None:
    scenario = open_trace("twin:alibaba-gpu-v2023", days=2, servers=50, job_types=4, slot="2h")
    assert scenario.instance(0).base.L <= 4
    assert len(scenario.instance(0).problem.cluster.servers) == 50
    with pytest.raises(UnknownName, match="job_type"):
        open_trace("twin:alibaba-gpu-v2023", days=1, job_type=4)
    with pytest.raises(UnknownName, match="google-2011"):
        open_trace("twin:google-2012")


def test_a_scenario_file_may_name_a_twin(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'trace = "twin:google-2011"\nfamily = "fluctuating_speeds"\n'
        "[settings]\nservers = 20\ndays = 0.5\ntwin_seed = 4\n"
    )
    scenario = read_scenario(file)
    assert scenario.family == "fluctuating_speeds"
    files = scenario.describe()["files"]
    assert list(files) == ["twin of google-2011, seed 4"]


def test_servers_are_completed_on_request_only(traces: Path) -> None:
    folder = traces / "google-2011"
    scenario = open_trace(folder, family="gain_overhead", complete="servers", servers=50)
    report = scenario.fidelity()
    assert report.servers == 50
    assert any("the servers are those of a synthetic twin" in note for note in report.notes)


def test_jobs_are_completed_on_request_only(traces: Path) -> None:
    pai = traces / "alibaba-gpu-v2020"
    scenario = open_trace(pai, complete="jobs", days=1, jobs_per_day=500, servers=60)
    report = scenario.fidelity()
    assert any("the jobs are those of a synthetic twin" in note for note in report.notes)
    assert any("pai_machine_spec" in file for file in report.digests)
    with pytest.raises(TraceError, match="complete=jobs"):
        open_trace(pai)
    with pytest.raises(ScenarioError, match="servers"):
        open_trace(pai, complete="both")
    with pytest.raises(TraceError, match="their"):
        open_trace(traces / "alibaba-gpu-v2023", complete="jobs")


def test_completing_replaces_nothing_real() -> None:
    whole = replace(twin("google-2011", 0, **SMALL), trace="google-2011")
    empty = replace(whole, servers=whole.servers.clear())
    made = completed(empty, "servers")
    assert made.jobs is whole.jobs
    assert len(made.servers) == 12_583
    assert dict(whole.digests).items() < dict(made.digests).items()
    with pytest.raises(TraceError, match="servers"):
        completed(whole, "servers")

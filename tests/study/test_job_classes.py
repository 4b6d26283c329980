"""Cluster files with a job model: what is drawn is what the file says, mistakes are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.study.job_classes import (
    Duration,
    PoissonArrivals,
    is_cluster_of_jobs,
    read_cluster_of_jobs,
)
from gangwise.study.replay import Replayed, replay
from gangwise.study.replay_scenario import ReplayScenario

FILE = """
name = "two"
days = 4
[[nodes]]
name = "new"
count = 3
devices = { cpu = 16, gpu = 4 }
labels = { model = "new" }
[[nodes]]
name = "old"
devices = { cpu = 16, gpu = 4 }
rate = { train = 0.5 }
[[jobs]]
name = "train"
devices = { gpu = 1, cpu = 2 }
tasks = { 1 = 0.75, 4 = 0.25 }
arrivals = { per_hour = 30 }
duration = { median = "10m", sigma = 1.0, most = "4h" }
limit = [1.0, 3.0]
users = 3
[[jobs]]
name = "etl"
devices = { cpu = 1 }
constraint = { model = "new" }
arrivals = { per_hour = 10 }
duration = ["1m", 600]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "two.toml"
    path.write_text(FILE)
    return path


def test_jobs_are_drawn_as_the_file_says(file: Path) -> None:
    assert is_cluster_of_jobs(file)
    cluster = read_cluster_of_jobs(file)
    jobs = cluster.draw_jobs(5)
    train = jobs.type == jobs.types.index("train")
    assert (jobs.submit >= 0).all()
    assert (jobs.submit < 4 * 86400).all()
    # 30 and 10 an hour for 96 hours, within four standard deviations of a Poisson number
    assert abs(train.sum() - 2880) < 4 * 54
    assert abs((~train).sum() - 960) < 4 * 31
    # Log-normal below 4 h: the median among those is the 47.9th per cent of all, 567 s
    below = stats.lognorm(1.0, scale=600)
    middle = below.ppf(below.cdf(14400) / 2)
    assert np.median(jobs.run[train]) == pytest.approx(middle, rel=0.1)
    assert jobs.run[train].max() <= 14400
    ratio = jobs.limit / jobs.run
    assert ratio[train].min() >= 1
    assert ratio[train].max() <= 3
    assert (ratio[~train] == 1).all()
    assert (jobs.run[~train] >= 60).all()
    assert (jobs.run[~train] <= 600).all()
    assert np.mean(jobs.tasks[train] == 4) == pytest.approx(0.25, abs=0.03)
    users = np.array(jobs.users)[jobs.user[train]]
    shares = [np.mean(users == f"train-{u}") for u in range(3)]
    assert shares == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.04)
    of = [jobs.shapes[i].constraint for i in jobs.shape]
    assert all((c == (("model", "new"),)) == (not t) for c, t in zip(of, train))


def test_one_more_class_leaves_the_others_as_they_were(file: Path) -> None:
    one = read_cluster_of_jobs(file).draw_jobs(2)
    file.write_text(
        FILE
        + '[[jobs]]\nname = "a"\ndevices = { cpu = 1 }\narrivals = { per_hour = 1 }\n'
        + 'duration = { mean = "1h" }\n'
    )
    two = read_cluster_of_jobs(file).draw_jobs(2)
    kept = two.type != two.types.index("a")
    np.testing.assert_array_equal(one.submit, two.submit[kept])
    np.testing.assert_array_equal(one.run, two.run[kept])


def test_arrivals_follow_the_cycle() -> None:
    times = PoissonArrivals(per_hour=200, cycle=0.8, peak=6).draw(
        20 * 86400, np.random.default_rng(0)
    )
    by_hour = np.bincount((times % 86400 // 3600).astype(int), minlength=24) / 20
    middle = np.arange(24) + 0.5
    expected = 200 * (1 + 0.8 * np.cos(2 * np.pi * (middle - 6) / 24))
    assert (
        stats.chisquare(by_hour * 20, expected * 20 * by_hour.sum() / expected.sum()).pvalue > 0.01
    )


def test_durations_are_of_their_distribution() -> None:
    rng = np.random.default_rng(1)
    for duration, law in (
        (Duration(mean=100.0), stats.expon(scale=100)),
        (Duration(low=5.0, high=9.0), stats.uniform(5, 4)),
        (Duration(median=60.0, sigma=0.7), stats.lognorm(0.7, scale=60)),
    ):
        assert stats.kstest(duration.draw(3000, rng), law.cdf).pvalue > 0.01
    assert Duration.model_validate("5m").draw(2, rng).tolist() == [300.0, 300.0]


def test_a_cluster_file_is_replayed_and_found_again(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ["fcfs+easy+label", "fcfs"]
    found = replay(str(file), names, [0, 1], out, load=0.7, first=60)
    assert "nothing is from a log" in found.scenario.fidelity()[0]
    assert found.as_dict()["as_it_happened"] is None
    again = Replayed.open(out)
    for name in names:
        for a, b in zip(found.outcomes[name], again.outcomes[name]):
            np.testing.assert_array_equal(a.end, b.end)
    played = found.scenario.draw(1)
    old = list(played.nodes.names).index("old")
    types = played.jobs.types
    assert played.conditions.rates[types.index("train"), old] == 0.5
    # Work in the scarcer device while jobs come: gpu, 4 · (3 + 1 · mean declared rate).
    gpus = np.array([s.demand[played.jobs.devices.index("gpu")] / 1000 for s in played.jobs.shapes])
    work = (played.jobs.run * played.jobs.tasks * gpus[played.jobs.shape]).sum()
    assert work / played.jobs.submit.max() == pytest.approx(0.7 * 4 * (3 + 0.75))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("count = 3", "count = 0", "nodes.0.count"),
        ("tasks = { 1 = 0.75, 4 = 0.25 }", "tasks = { 17 = 1.0 }", "17 tasks never fit"),
        ("per_hour = 30", "per_hour = -1", "jobs.0.arrivals.per_hour"),
        ('median = "10m"', 'median = "soon"', "'soon' is no duration"),
        ("sigma = 1.0, ", "", "median and sigma"),
        ("limit = [1.0, 3.0]", "limit = [3.0, 1.0]", "limit is"),
        ('name = "etl"', 'name = "train"', "give each its own"),
        ("rate = { train = 0.5 }", "rate = { trian = 0.5 }", "did you mean train"),
        ('model = "new" }\narr', 'model = "newer" }\narr', "1 tasks never fit"),
        ("users = 3", "user = 3", "jobs.0.user"),
    ],
)
def test_mistakes_are_named(file: Path, old: str, new: str, words: str) -> None:
    assert old in FILE
    file.write_text(FILE.replace(old, new))
    with pytest.raises((ScenarioError, UnknownName), match=r"two\.toml") as error:
        read_cluster_of_jobs(file)
    assert words in str(error.value)


def test_what_is_of_logs_is_refused(file: Path) -> None:
    with pytest.raises(ScenarioError, match="world"):
        ReplayScenario(source=str(file), world="like")


def test_the_example_of_the_page_is_played(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "replay.md"
    blocks = [part.split("```")[0] for part in page.read_text("utf-8").split("```toml\n")[1:]]
    (example,) = [block for block in blocks if "[[nodes]]" in block]
    file = tmp_path / "two-generations.toml"
    file.write_text(example, "utf-8")
    found = replay(str(file), ["fcfs+easy+label"], [0, 1], first=80)
    assert len(found.outcomes["fcfs+easy+label"]) == 2
    told = "\n".join(found.scenario.assumed())
    assert "train: 6 an hour, 50 % more at 15 h" in told
    assert "10 % stragglers" in told


def test_a_range_that_is_cut_off_too_low_is_refused() -> None:
    """Drawn again until nothing is above ``most``, such values were drawn for ever."""
    with pytest.raises(ValidationError, match="the middle of the range"):
        Duration(low=100.0, high=200.0, most=100.0)
    values = Duration(low=100.0, high=200.0, most=150.0).draw(1000, np.random.default_rng(0))
    assert values.max() <= 150

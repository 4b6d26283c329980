"""Sites that were drawn and played by a real Slurm, replayed from what that Slurm printed."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest
from benchmarks.slurm_sites import Drawing, compared, drawn_as, share, within

from gangwise.jobs.schedule import Tables
from gangwise.jobs.tenancy import standing_of
from gangwise.study.replay_scenario import ReplayScenario

KEPT = Path(__file__).with_name("slurm_sites")
NUMBERS = sorted(int(file.name.partition(".")[0]) for file in KEPT.glob("*.tar.xz"))


@pytest.mark.full
@pytest.mark.parametrize(
    ("first", "last", "sites", "near", "lost"),
    [(0, 99, 29, 24, 0), (100, 129, 30, 29, 1), (130, 139, 10, 9, 0), (140, 159, 20, 20, 0)],
)
def test_a_replay_is_no_farther_from_slurm_than_when_last_measured(first, last, sites, near, lost):
    # What was asked is 95 % within; of the sites that Slurm played five times one of its own plays
    # is within the range of the four others at 86 %.
    mine = [compared(number, KEPT).numbers() for number in NUMBERS if first <= number <= last]
    assert len(mine) == sites
    assert sum(of["left out"] for of in mine) <= lost
    assert sum(map(within, mine)) >= near
    mean = {name: np.mean([of[name] for of in mine]) for name in mine[0]}
    assert mean["tau"] > mean["own tau"] - 0.03
    assert mean["share"] > mean["own share"] - 0.03


def test_priorities_are_those_that_slurm_recorded(tmp_path):
    """Also of memory, which this site does not give out; nothing in them changes with time."""
    with tarfile.open(KEPT / "121.tar.xz") as tar:
        tar.extractall(tmp_path, filter="data")
    play = tmp_path / "0"
    scenario = ReplayScenario(source=str(play / "jobs.txt"), site=f"slurm:{play}/site")
    jobs, nodes, conditions = scenario.draw(0)
    score = standing_of(Tables.of(jobs, nodes, conditions, scenario.options)).score
    heading, *lines = (play / "jobs.txt").read_text().splitlines()
    rows = [dict(zip(heading.split("^"), line.split("^"))) for line in lines]
    recorded = {row["JobID"]: float(row["Priority"]) for row in rows}
    apart = [score[j] - recorded[str(name)] for j, name in enumerate(jobs.id)]
    assert len(apart) > 60
    assert np.abs(apart).max() <= 1.0  # a whole number


def test_a_number_draws_one_site():
    one, again, other = Drawing(3), Drawing(3), Drawing(4)
    assert (one.cluster, one.actions()) == (again.cluster, again.actions())
    assert one.cluster != other.cluster
    lines = [" ".join(action.words) for action in one.actions() if action.words[0] == "sbatch"]
    assert len(lines) >= 60
    assert sum(" -N " in line for line in lines) < len(lines) / 2


def test_the_same_submission_is_found_in_two_plays():
    line = "sbatch --parsable -J j7 -n 3 --array=1-2 -J same"
    assert drawn_as({"SubmitLine": line, "JobID": "31_2"}) == "7_2"
    assert share(np.array([4.0, 6.0]), np.array([6.0, 4.0])) == pytest.approx(0.6)

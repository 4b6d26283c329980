"""The answer of a replay: explained share, idle beside waiting, verdicts, sentences, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.bounds import Certified
from gangwise.jobs.metrics import Outcome
from gangwise.sites.retelling import retell
from gangwise.study.answer import SENTENCES, Compared, _listed
from gangwise.study.replay import WITHOUT_RATES, replay
from gangwise.study.statistics import change_by_blocks

FCFS, EASY = "fcfs+none+best-fit", "fcfs+easy+best-fit"
HOUR, WEEK = 3600.0, 7 * 86400.0


def three(**more: object) -> Compared:
    """4 processors; waits in hours, EASY: 0, 9, 0; FCFS: 0, 9, 8; as it happened: 1, 12, 11."""
    jobs = Jobs.of(
        submit=np.array([0, 1, 2]) * HOUR,
        run=np.array([10, 10, 5]) * HOUR,
        tasks=[3, 2, 1],
        recorded_start=np.array([1, 13, 13]) * HOUR,
        recorded_end=np.array([11, 23, 18]) * HOUR,
    )
    outcomes = {n: [Outcome.of(simulate_jobs(jobs, Nodes.pool(4), n), n)] for n in (EASY, FCFS)}
    return Compared("made", outcomes, EASY, **more)


def test_what_the_model_explains_by_hand() -> None:
    told = three().retold
    assert told is not None
    assert (told.recorded, told.simulated) == (8 * HOUR, 3 * HOUR)
    assert told.explained == 3 / 8
    # Starts are 1, 3 and 11 h early; a tenth of the waits is 0.1, 1.2 and 1.1 h.
    assert told.near == 0
    assert np.isnan(told.order)  # the two that waited at once started at once
    # Ranks of waits 1, 3, 2 and 1.5, 3, 1.5.
    assert told.waits == pytest.approx(1.5 / np.sqrt(2 * 1.5))
    late = retell(three().happened, replace(three().first, start=three().happened.start + 599))
    assert late.near == 1


def test_the_base_is_the_rules_in_force() -> None:
    """By week EASY explains 3 of 8 h; FCFS, with 17/3 h, more."""
    found = three()
    assert found.base == EASY
    for rules, base in (("", FCFS), (FCFS, FCFS)):
        again = replace(found, rules=rules)
        assert (again.base, again.retold.name) == (base, base)
        assert ("of 2 plain rules" in again.text) == (not rules)
    assert replace(found, rules="", as_logged=False).base == EASY  # the first
    learned = {f"{name}-learned": each for name, each in found.outcomes.items()}
    assert replace(found, rules="", outcomes={EASY: found.outcomes[EASY], **learned}).base == EASY
    with pytest.raises(ScenarioError, match="none of"):
        replace(found, rules="sjf")


def test_the_error_of_the_model_stands_beside_what_is_saved() -> None:
    """Mean completion in hours: as it happened 49/3, EASY 34/3, FCFS 42/3."""
    found = three()
    assert found.error().mean == pytest.approx(100 * (34 / 49 - 1))
    assert found.error("waiting.mean").mean == pytest.approx(100 * (3 / 8 - 1))
    assert found.change(FCFS).mean == pytest.approx(100 * (42 / 34 - 1))
    assert found.beyond(FCFS) is False
    assert "−30.6 %." in found.text
    assert found.as_dict()["model_error_percent"]["completion.mean"]["high"] is None
    # Waits an hour under the base and half of it under the other, which was 1 min or 3 h as it was.
    model = made(np.full(800, -1800.0) + np.repeat(np.arange(20.0), 40), 20)
    for late, told in ((60, "−0.8 % ± 0.0."), (3 * HOUR, "perhaps more than this difference")):
        start, end = model.first.start + late, model.first.end + late
        jobs = replace(model.first.jobs, recorded_start=start, recorded_end=end)
        pair = {n: [replace(model.outcomes[n][0], jobs=jobs)] for n in (EASY, "other")}
        again = replace(model, outcomes=pair)
        assert again.verdict("other") == "better"
        assert again.beyond("other") is (late == 60)
        assert told in again.text


def test_weeks_without_a_job_that_ended_count_in_the_error_of_the_model() -> None:
    """Of 20 weeks, the record of the last two is cut off: the last of the 13 stretches is empty."""
    model = made(np.zeros(800), 20)
    week, late = np.repeat(np.arange(20), 40), np.repeat(60.0 * (1 + np.arange(20) % 3), 40)
    end = np.where(week < 18, model.first.end + late, np.nan)
    jobs = replace(model.first.jobs, recorded_start=model.first.start + late, recorded_end=end)
    again = replace(model, outcomes={EASY: [replace(model.first, jobs=jobs)]})
    took = np.nan_to_num([end - jobs.submit, np.where(week < 18, model.first.completion, 0)])
    share = jobs.submit / jobs.submit.max()
    then, now = (
        [float(took[i][(share * 13 // 1).clip(0, 12) == k].sum()) for k in range(13)]
        for i in (0, 1)
    )
    assert then[-1] == now[-1] == 0
    widened = change_by_blocks(now, then, again.stretches.widening)
    assert again.error() == pytest.approx(widened)


def test_starts_that_are_submissions_retell_nothing() -> None:
    found = three()
    jobs = replace(found.first.jobs, recorded_start=found.first.jobs.submit)
    same = {n: [replace(each[0], jobs=jobs)] for n, each in found.outcomes.items()}
    text = replace(found, outcomes=same).text
    assert "not recorded as distinct from submissions" in text
    assert "own error" not in text
    assert "distinct" not in three(as_logged=False).text


def test_idle_beside_waiting_by_hand() -> None:
    """As it happened 4 idle in hour 0, 1 from 2 to 11 h, 4 from 11 to 13 h: 21 of 37 idle hours."""
    found = three()
    assert found.idle is not None
    assert found.idle.recorded == pytest.approx(21 / 37)
    assert found.idle.simulated == 0  # only the job of 2 waits, and 1 is idle
    assert found.idle.telling
    assert not replace(found.idle, recorded=0.5).telling
    assert not replace(found.idle, simulated=0.6).telling


def test_nothing_is_compared_with_the_past_where_something_else_is_played() -> None:
    for other in (three(drawn=True), three(as_logged=False)):
        assert (other.happened, other.retold, other.idle) == (None, None, None)
        assert other.as_dict()["retold"] is None


def made(effect: np.ndarray, weeks: int, twice: bool = False) -> Compared:
    """Jobs of an hour, 40 a week; the other scheduler starts them ``effect`` seconds later."""
    submit = np.repeat(np.arange(weeks) * WEEK, 40) + np.tile(np.arange(40) * HOUR, weeks)
    jobs = Jobs.of(submit=submit, run=np.full(submit.size, HOUR), tasks=1)
    base = Outcome.of(simulate_jobs(jobs, Nodes.pool(9), EASY), EASY)
    base = replace(base, start=base.start + HOUR, end=base.end + HOUR)
    moved = replace(base, name="other", start=base.start + effect, end=base.end + effect)
    outcomes = {EASY: [base], "other": [moved], "same": [replace(base, name="same")]}
    return Compared("made", {n: each * (1 + twice) for n, each in outcomes.items()}, EASY)


def test_better_is_said_only_where_the_interval_excludes_zero() -> None:
    rng = np.random.default_rng(5)
    noise = np.repeat(rng.normal(0, 600, 20), 40)
    verdicts = {shift: made(noise + shift, 20).verdict("other") for shift in (-1800, 0, 1800)}
    assert verdicts == {-1800: "better", 0: "cannot be told apart", 1800: "worse"}
    found = made(noise - 1800, 20)
    change = found.change("other")
    assert change.mean == pytest.approx(100 * (noise.mean() - 1800) / (2 * HOUR))
    assert found.verdict("same") == "cannot be told apart"
    assert found.as_dict()["verdicts"] == {"other": "better", "same": "cannot be told apart"}
    assert (found.as_dict()["intervals_over"], found.as_dict()["blocks"]) == ("stretches", 13)


def test_stretches_grow_with_the_log_and_two_weeks_have_none() -> None:
    for weeks, many in ((10, 9), (20, 13)):  # of the last week there are less than two days
        found = made(np.zeros(40 * weeks), weeks).blocks
        assert found is not None
        assert np.bincount(found).size == many
    few = made(np.zeros(80), 2)
    assert few.blocks is None
    assert few.verdict("other") == "no interval"
    assert "8 weeks of submissions" in few.intervals
    # Two runs of the same are one: the interval is that of the log, and not ± 0 over two seeds.
    noise = np.repeat(np.random.default_rng(5).normal(-1800, 600, 20), 40)
    once, twice = (made(noise, 20, twice=again) for again in (False, True))
    assert once.change("other") == twice.change("other")
    assert "One seed" not in few.intervals + few.over_seeds + once.over_seeds
    # Sixty weeks of which one has nearly all jobs are no sixty weeks.
    jobs = Jobs.of(
        submit=np.concatenate([np.arange(60) * WEEK, np.arange(1000.0)]), run=[1.0] * 1060, tasks=1
    )
    outcome = Outcome.of(simulate_jobs(jobs, Nodes.pool(2), EASY), EASY)
    assert Compared("made", {EASY: [outcome]}).blocks is None


def test_the_base_is_named_once_and_the_rest_is_counted_against_it() -> None:
    rng = np.random.default_rng(5)
    cases = [three(), three(bounds=Certified((10 * HOUR,), (9 * HOUR,))), three(drawn=True)]
    cases += [made(rng.normal(shift, 600, 800), 20) for shift in (-1800, 0, 1800)]
    for found in cases:
        assert found.text.count(EASY) == 1
    assert three(bounds=Certified((10 * HOUR,), (9 * HOUR,))).possible_saving == pytest.approx(
        100 * (1 - 10 / (34 / 3))
    )


def test_a_sentence_may_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    more = (*SENTENCES, lambda n: f"{len(n.outcomes)} were played.", lambda n: "")
    monkeypatch.setattr("gangwise.study.answer.SENTENCES", more)
    assert three().text.endswith(" 2 were played.")


LOG = """; MaxProcs: 8
1 0 5 60 4 -1 -1 4 120 -1 1 3 1 2 -1 1 -1 -1
2 10 50 30 6 -1 -1 6 60 -1 1 4 1 2 -1 {} -1 -1
{}
"""


def test_partitions_and_use_above_what_there_is_are_told(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(LOG.format(2, ""))
    found = replay(path, "fcfs")
    assert "2 partitions" in found.compared().text
    # Job 2 starts at 60 s; job 1 holds 4 of 8 processors until 65 s: 10 of 8 for 5 of 85 s.
    (over,) = found.scenario.log.played.overused
    assert (over.device, over.most, over.at, over.seconds) == ("cpu", 1.25, 60.0, 5.0)
    assert over.share == pytest.approx(5 / 85)
    (line,) = found.scenario.fidelity()
    assert "misread, or nodes are missing: the log has more cpu in use" in line
    path = tmp_path / "other.swf"
    path.write_text(LOG.format(1, "").replace("10 50 30", "10 55 30"))
    found = replay(path, "fcfs")
    assert found.compared().ignored == ()
    assert len(found.scenario.fidelity()) == 1


def test_partitions_are_those_of_the_jobs_that_are_played(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(LOG.format(2, "3 20 -1 30 9 -1 -1 16 60 -1 1 3 1 2 -1 3 -1 -1").rstrip() + "\n")
    with path.open("a") as more:  # the row before is larger than the cluster; this came first
        more.write("4 5 100 20 2 -1 -1 2 40 -1 1 3 1 2 -1 7 -1 -1\n")
    for first, waits in ((0, {"1": 5.0, "2": 50.0, "7": 100.0}), (2, {"1": 5.0, "7": 100.0})):
        told = replay(path, first=first, rules="fcfs+easy").compared().retold
        assert told is not None
        assert {g.name: g.recorded for g in told.groups["partition"]} == waits


def test_rules_are_played_once() -> None:
    played = replay("twin:alibaba-gpu-v2023", first=20, rules="fcfs+easy").schedulers
    assert (len(played), played[0]) == (len(WITHOUT_RATES), "fcfs+easy")
    assert "fcfs+easy+best-fit" not in played


def test_hours_of_rows_that_could_not_be_read_are_unknown(tmp_path: Path) -> None:
    path = tmp_path / "log.swf"
    path.write_text(LOG.format(1, "3 20 x 30 2 -1 -1 2 60 -1 1 4 1 2 -1 1 -1 -1"))
    played = replay(path, "fcfs").scenario.log.played
    (lost,) = played.lost.values()
    assert (lost.jobs, lost.hours, played.unknown) == (1, None, 1)
    assert played.to_dict()["device_hours"]["unknown_of_jobs"] == 1
    assert "core-hours that are known" in played.line
    path = tmp_path / "other.swf"
    path.write_text(LOG.format(1, "").rstrip() + "\n")
    assert "that are known" not in replay(path, "fcfs").scenario.log.played.line


def test_an_answer_names_seven_of_many():
    names = list("abcdefghi")
    assert _listed(names[:8]) == "a, b, c, d, e, f, g and h"
    assert _listed(names) == "a, b, c, d, e, f, g and 2 others"

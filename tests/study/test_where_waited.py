"""The causes of waiting of a replay: on its page, as JSON, and of one job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gangwise import Replayed, replay
from gangwise.jobs.waiting import CAUSES
from gangwise.report.jobs import results_of
from gangwise.study.explain import explain_job

LOG = """\
id,submit,start,end,cpus,user
a,0,0,36000,3,ann
b,3600,36000,72000,2,bob
c,7200,36000,54000,1,cid
d,10800,39600,43200,1,dan
"""


@pytest.fixture
def played(tmp_path: Path) -> Replayed:
    log = tmp_path / "four.csv"
    log.write_text(LOG)
    return replay(log, ["fcfs+none+first-fit", "fcfs+easy+first-fit"], out=tmp_path / "out")


def test_the_wait_of_a_replay_is_split_by_hand(played: Replayed) -> None:
    """On four cpus b waits for a to end; c and d wait behind b, or pass it with EASY."""
    hours = {
        name: {cause: s / 3600 for cause, s in causes.total.items()}
        for name, causes in played.causes.items()
    }
    capacity = int(played.outcomes["fcfs+none+first-fit"][0].nodes.capacity.sum()) // 1000
    assert capacity == 4
    # b waits 9 h. c, which runs for 5 h, and d, for 1 h, would have ended before b begins at 10 h.
    assert hours["fcfs+none+first-fit"] == {"busy": 9.0, "unseen": 15.0}
    # c begins at once; d does not fit beside it, and has the place that it leaves at 7 h.
    assert hours["fcfs+easy+first-fit"] == {"busy": 13.0}
    # As it happened, c and d wait while one cpu is free, and d for another hour.
    assert sum(hours["as it happened"].values()) == pytest.approx(9 + 8 + 8)


def test_page_json_and_explain_say_the_same(played: Replayed, tmp_path: Path) -> None:
    results = results_of(played)
    page = results.page()
    assert page.count("Where the waiting went") >= 2
    sheet = next(s for s in results.sheets if s.title == "Where the waiting went")
    for name, cells in sheet.rows:
        values = [cell.value for cell in cells]
        assert values[0] == pytest.approx(sum(values[1:]), abs=0.02), name
    printed = {each["name"]: each for each in played.as_dict()["schedulers"]}
    for name, causes in played.causes.items():
        if name in printed:
            told = printed[name]["waiting_causes"]
            assert told["seconds"] == causes.total
            for rows in told["groups"].values():
                assert sum(sum(row["seconds"].values()) for row in rows) <= sum(
                    causes.total.values()
                ) * (1 + 1e-9)
    told = explain_job(tmp_path / "out", "b", "fcfs+none+first-fit")
    assert "Of its wait, 9.0 h: less is free than it asks for" in " ".join(told.sentences)
    assert np.isclose(played.causes["fcfs+none+first-fit"].seconds.sum(), 24 * 3600)
    assert len(CAUSES) == played.causes["fcfs+none+first-fit"].seconds.shape[1]

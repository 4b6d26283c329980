"""Pages of a log, of forecasts and of the leaderboard: their numbers are counted here again."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.report.answers import forecast_page, leaderboard_page
from gangwise.report.page import html
from gangwise.study.explain import ForecastOfLog
from gangwise.study.replay import Leaderboard


def plain(page: str) -> str:
    """Words of a page, each followed by one blank."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).replace("&nbsp;", " ").split())


def test_the_page_of_a_log_counts_its_jobs_and_waits(tmp_path):
    rng = np.random.default_rng(11)
    submit, wait, run = (np.sort(rng.integers(0, 9 * 86400, 60)), *rng.integers(60, 9000, (2, 60)))
    rows = [
        f"{i} {s} {w} {r} 2 -1 -1 2 9000 -1 1 {i % 5} -1 -1 -1 -1 -1 -1"
        for i, (s, w, r) in enumerate(zip(submit, wait, run, strict=True), 1)
    ]
    log, out = tmp_path / "made.swf", tmp_path / "out"
    log.write_text("; MaxProcs: 16\n; MaxNodes: 16\n" + "\n".join(rows) + "\n")
    answer = CliRunner().invoke(app, ["jobs", str(log), "--out", str(out)])
    assert answer.exit_code == 0, answer.output
    facts = json.loads((out / "jobs.json").read_text(encoding="utf-8"))
    assert (facts["jobs"], facts["users"]) == (60, 5)
    assert facts["wait"]["mean"] == pytest.approx(wait.mean())
    text = plain((out / "jobs.html").read_text(encoding="utf-8"))
    assert all(words in text for words in ("60 jobs in", "60 of 60", "5 users"))


def test_the_page_of_forecasts_has_the_soonest_job_first():
    names = ("job", "user", "tasks", "limit", "waited", "p50", "p90", "promised", "started")
    rows = [
        dict(zip(names, row, strict=True))
        for row in [
            ("late", "a", 1, 60, 5, 7200, 14400, 9e3, None),
            ("soon", "b", 2, 60, 9, *[600] * 4),
        ]
    ]
    text = plain(
        html(forecast_page("made", ForecastOfLog(50.0, "nothing is drawn.", rows), "", ""))
    )
    assert text.index("soon") < text.rindex("late")
    # The median of 600 s and 7,200 s is 65 min.
    assert "2 jobs wait; half of them probably start within 65 min" in text


@pytest.mark.parametrize("gaps", [(0.5, 0.2), (0.2, 0.5)])
def test_the_page_of_the_leaderboard_is_led_by_the_entry_nearest_to_the_bound(gaps):
    entries = dict(zip(("fcfs+easy", "sjf+easy"), gaps, strict=True))
    numbers = {
        log: {
            name: {"gap": np.full(2, gap), "worst users": np.full(2, 3600.0)}
            for name, gap in entries.items()
        }
        for log in "ab"
    }
    rules = {
        "base": "fcfs+easy",
        "schedulers": list(entries),
        "oracles": [],
        "tuned": [],
        "parts": 2,
    }
    rules["logs"] = [{"name": log, "about": "made"} for log in "ab"]
    board = Leaderboard(
        rules, dict.fromkeys("ab", "all jobs are played"), numbers, dict.fromkeys("ab", "sjf+easy")
    )
    text = plain(html(leaderboard_page(board, "")))
    if gaps[1] < gaps[0]:  # 1.2 of the bound over 1.5 of it
        assert text.count("completes jobs 20.0 % sooner than EASY") == 1
    else:
        assert "no entry completes jobs sooner than EASY" in text.lower().replace("easy", "EASY")

"""Forecasts from accounting data alone: the forest, what is known when, and the command."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import ScenarioError
from gangwise.sites.wait_history import (
    CELLS,
    LEAST,
    PendingJobs,
    distributions,
    forecast_in_order,
    pending_of,
)

DAY = 86_400.0


def test_the_forest_gives_the_distribution_that_was_drawn_from() -> None:
    """Log-normal, its median and its spread by two features, among five that say nothing."""
    rng = np.random.default_rng(1)
    x = rng.random((6000, 7))
    y = 3 + 4 * x[:, 0] + (0.2 + x[:, 1]) * rng.standard_normal(6000)
    edges = np.linspace(-5, 15, CELLS + 1)
    new = rng.random((400, 7))
    truth = 3 + 4 * new[:, 0] + (0.2 + new[:, 1]) * rng.standard_normal(400)
    below = distributions(x, y, np.ones(6000), np.arange(6000), new, edges)
    assert (np.diff(below, axis=1) >= -1e-12).all()
    assert below[:, -1] == pytest.approx(1)
    p50, p90 = np.array([np.interp([0.5, 0.9], each, edges) for each in below]).T
    assert abs(p50 - (3 + 4 * new[:, 0])).mean() < 0.3
    assert abs((truth <= p50).mean() - 0.5) < 0.08
    assert abs((truth <= p90).mean() - 0.9) < 0.05
    wide = p90 - p50 > np.median(p90 - p50)
    assert new[wide, 1].mean() > new[~wide, 1].mean() + 0.3


def test_the_forest_of_censored_numbers_gives_the_distribution_that_was_drawn_from() -> None:
    """Half of them are known to be greater than something; taken for known they would be small."""
    rng = np.random.default_rng(5)
    x = rng.random((6000, 3))
    y = 5 + 3 * x[:, 0] + rng.standard_normal(6000)
    limit = 5 + 3 * x[:, 0] + rng.standard_normal(6000)
    passed = np.where(y > limit, limit, np.nan)
    edges, new = np.linspace(-5, 15, CELLS + 1), rng.random((400, 3))
    of = x, np.minimum(y, limit), np.ones(6000), np.arange(6000), new, edges
    truth = 5 + 3 * new[:, 0]
    for told, bias in ((passed, 0.0), (None, -0.56)):  # the mean of the less of two normals
        below = distributions(*of, passed=told)
        p50 = np.array([np.interp(0.5, each, edges) for each in below])
        assert (p50 - truth).mean() == pytest.approx(bias, abs=0.1)


def drawn(seed: int, days: int = 12, a_day: int = 60) -> PendingJobs:
    """Waits by queue and group, which vary from day to day."""
    rng = np.random.default_rng(seed)
    n = days * a_day
    now = np.repeat(DAY * np.arange(days), a_day)
    group = rng.integers(0, 4, n)
    above = rng.random(n)
    day = 0.3 * rng.standard_normal(days)[np.repeat(np.arange(days), a_day)]
    wait = np.exp(6 + 2 * above + 0.7 * group + day + 0.4 * rng.standard_normal(n))
    never = np.full(n, np.inf)
    features = {"waited": rng.random(n), "above": above}
    return PendingJobs(np.arange(n).astype(str), now, now + wait, never, features, {"user": group})


def test_nothing_that_came_later_is_used() -> None:
    """Starts after the instant may be anything: what is foretold at it stays."""
    pending = drawn(2)
    now = 7 * DAY
    later = pending.start > now
    assert later.sum() > 60 < (pending.now < now).sum()
    rng = np.random.default_rng(3)
    other = np.where(later, np.maximum(pending.now, now) + 1e6 * rng.random(len(pending)) + 1, 0)
    changed = replace(pending, start=np.where(later, other, pending.start))
    one, two = (next(iter(forecast_in_order(each, (now,)))) for each in (pending, changed))
    assert one.rows.size
    assert (one.quantiles == two.quantiles).all()
    # What came before is used: else the above would say nothing.
    slower = replace(pending, start=np.where(later, pending.start, pending.now + 50.0))
    assert (next(iter(forecast_in_order(slower, (now,)))).quantiles != one.quantiles).any()


def test_what_is_foretold_covers_what_it_says() -> None:
    left, told = [], []
    pending = drawn(4, days=30)
    for one in forecast_in_order(pending):
        assert (pending.start[pending.now < one.now] <= one.now).sum() >= LEAST
        left.append(pending.start[one.rows] - one.now)
        told.append(one.quantiles)
    came, quantiles = np.concatenate(left), np.concatenate(told)
    assert came.size > 1000
    p50, p90 = (came[:, None] <= quantiles).mean(axis=0)
    assert 0.42 <= p50 <= 0.58
    assert 0.86 <= p90 <= 0.94


def test_what_a_log_tells_of_an_instant_is_counted_one_by_one() -> None:
    rng = np.random.default_rng(5)
    n = 80
    submit = np.sort(rng.integers(0, 3 * 86400, n)).astype(float)
    start = submit + rng.integers(0, 90_000, n)
    start[::9] = np.nan
    end = np.where(np.isnan(start), submit + 50_000, start + rng.integers(1, 90_000, n))
    size, limit = rng.integers(1, 9, n).astype(float), rng.integers(60, 99_999, n).astype(float)
    user, pool = rng.integers(0, 3, n), rng.integers(0, 2, n)
    instants = np.array([70_000.0, 150_000.0, 200_000.0])
    groups = {"user": user, "pool": pool}
    ids = np.arange(n).astype(str)
    found = pending_of(submit, start, end, size, limit, groups, ids, instants)
    row = 0
    for now in instants:
        waits = [
            j for j in range(n) if submit[j] <= now and not start[j] <= now and not end[j] <= now
        ]
        runs = [j for j in range(n) if start[j] <= now < end[j]]
        for j in waits:
            assert found.id[row] == str(j)
            assert found.now[row] == now
            assert found.start[row] == (np.inf if np.isnan(start[j]) else start[j])
            assert found.gone[row] == (end[j] if np.isnan(start[j]) else np.inf)
            assert found.features["waited"][row] == now - submit[j]
            for name, code in {"all": np.zeros(n), **groups}.items():
                above = [k for k in waits if k < j and code[k] == code[j]]
                mine = [k for k in runs if code[k] == code[j]]
                lately = [k for k in range(n) if now - DAY < start[k] <= now and code[k] == code[j]]
                expected = {
                    "jobs above": len(above),
                    "size above": sum(size[above]),
                    "work above": sum(size[above] * limit[above]),
                    "size running": sum(size[mine]),
                    "work running": sum(
                        size[k] * max(limit[k] - (now - start[k]), 0) for k in mine
                    ),
                    "size started": sum(size[lately]),
                }
                for what, value in expected.items():
                    assert found.features[f"{what} by {name}"][row] == pytest.approx(value), what
            row += 1
    assert row == len(found)


def test_a_table_of_pending_jobs_as_one_types_it(tmp_path: Path) -> None:
    """Columns that tell what came later are not read."""
    rng = np.random.default_rng(6)
    lines = [
        "job_id,poll_time,submit_time,start_time,account,req_cpus,elapsed,priority_x,priority_y"
    ]
    for j in range(400):
        day, cpus = j // 40, int(rng.integers(1, 9))
        wait = int(600 * cpus * np.exp(0.3 * rng.standard_normal()))
        at, submitted = f"2026-03-{day + 1:02d} 12:00:00", f"2026-03-{day + 1:02d} 08:00:00"
        began = (
            f"2026-03-{day + 1:02d} {12 + wait // 3600:02d}:{wait // 60 % 60:02d}:{wait % 60:02d}"
        )
        lines.append(f"{j},{at},{submitted},{began},a{j % 3},{cpus},{wait},{wait},{cpus}")
    file = tmp_path / "pending.csv"
    file.write_text("\n".join(lines))
    done = CliRunner().invoke(app, ["forecast", str(file), "--from-history", "--judge", "--json"])
    told = json.loads(done.stdout)
    assert len(told["jobs"]) == 40
    judged = told["judged"]
    assert judged["within_two"] > 0.7
    # The wait stands in two columns: whoever read them would be right to within a cell.
    assert judged["middle"][1] - judged["middle"][0] > 0.1
    with pytest.raises(ScenarioError, match="goes with --from-history"):
        CliRunner().invoke(app, ["forecast", str(file), "--judge"], catch_exceptions=False)

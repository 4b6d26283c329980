"""The report of jobs under several schedulers: numbers by hand, well formed, loads nothing."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gangwise.core.errors import ScenarioError
from gangwise.jobs import Conditions, Jobs, Node, Nodes, simulate_jobs
from gangwise.jobs.bounds import Certified
from gangwise.jobs.metrics import Outcome
from gangwise.notation import roughly
from gangwise.report.charts import lanes
from gangwise.report.jobs import JobResults
from gangwise.report.page import words
from gangwise.study.answer import LearnedRates
from tests.report.made_sweep import HOSTILE
from tests.report.pages import Page, faults, loaded, read

FCFS, EASY = "fcfs+none+best-fit", "fcfs+easy+best-fit"
HOUR = 3600.0


class Slow(NamedTuple):
    node: str
    slower: float
    low: float
    high: float


def played(jobs: Jobs, nodes: Nodes, seeds: int = 1, **more: Any) -> JobResults:
    outcomes = {
        name: [Outcome.of(simulate_jobs(jobs, nodes, name), name) for _ in range(seeds)]
        for name in (FCFS, EASY)
    }
    return JobResults("made", outcomes, EASY, fidelity=jobs.account.lines(), **more)


def three(**more: Any) -> JobResults:
    """4 processors; jobs of 3, 2 and 1 tasks: the last may pass the second only with EASY.

    Waiting in hours, FCFS: 0, 9, 8; EASY: 0, 9, 0; as it happened: 1, 12, 11.
    """
    jobs = Jobs.of(
        submit=np.array([0, 1, 2]) * HOUR,
        run=np.array([10, 10, 5]) * HOUR,
        tasks=[3, 2, 1],
        user=[HOSTILE, "[/b]", HOSTILE],
        recorded_start=np.array([1, 13, 13]) * HOUR,
        recorded_end=np.array([11, 23, 18]) * HOUR,
    )
    return played(jobs, Nodes.pool(4), **more)


def page_of(results: JobResults, folder: Path) -> tuple[Page, str]:
    path = folder / "page.html"
    path.write_text(results.page(), encoding="utf-8")
    return read(path), path.read_text(encoding="utf-8")


def chart_of(text: str) -> dict[str, Any]:
    found = re.search(r"const chart = (.*?);\n", text)
    assert found
    return dict(json.loads(found[1]))


def test_the_answer_is_told_first_and_never_against_the_past() -> None:
    found = three(bounds=Certified((10 * HOUR,), (9 * HOUR,)))
    assert "(38 % explained;" in found.text  # of the 8 h that jobs waited the base retells 3 h
    assert "not with the past" in found.text
    # Mean completion of EASY: (10 + 19 + 5) / 3 = 34 / 3 h, of which 10 h cannot be saved.
    assert "more than 11.8 %" in found.text
    assert found.text.count(EASY) == 1


def test_tables_by_hand() -> None:
    times, recorded, over_base, cluster, lost, users = three().sheets
    cells = {name: [cell.text for cell in row] for name, row in times.rows}
    then, now = (row for _, row in recorded.rows)
    assert [float(cell.text) for cell in then[:2]] == [8, 11]
    assert [float(cell.text) for cell in now[:2]] == [3, 0]
    assert [float(x) for x in cells[FCFS][:2]] == pytest.approx([17 / 3, 8], abs=0.01)
    assert [float(x) for x in cells[EASY][:2]] == [3, 0]
    assert [name for name, _ in over_base.rows] == [FCFS]
    assert over_base.rows[0][1][0].text == "+88.9"  # 17/3 h instead of 3 h
    held = 100 * (30 + 20 + 5) / (4 * 20)
    assert float(dict(cluster.rows)[EASY][1].text) == pytest.approx(held, abs=0.1)
    for sheet in (times, over_base, cluster, lost, users):  # what happened stands apart
        assert "as it happened" not in dict(sheet.rows)
    # With FCFS the third job waits from 2 h to 10 h for the second, though a processor is idle.
    assert float(dict(lost.rows)[FCFS][2].text) == 8
    assert float(dict(lost.rows)[EASY][2].text) == 0
    assert [cell.text for cell in dict(users.rows)[EASY]][-1] == "3"


def test_page_is_well_formed_loads_nothing_and_escapes(tmp_path: Path) -> None:
    learned = LearnedRates(
        ["job"],
        np.zeros((1, 1)),
        np.full((1, 1), 0.1),
        np.ones((1, 1)),
        [Slow(HOSTILE, 0.48, 0.45, 0.51)],
    )
    results = three(assumed=[HOSTILE], learned={EASY: learned}, command=HOSTILE, digest="abc123")
    page, text = page_of(results, tmp_path)
    assert loaded(page, text) == []
    assert faults(page) == []
    assert page.tags.count("script") == 1
    assert "<script>alert" not in text
    assert "by 48 ± 3 %" in page.text.replace("\u00a0", " ")
    assert "abc123" in page.text
    assert chart_of(text)["users"] == sorted([HOSTILE, "[/b]"])


def test_terminal_shows_the_cells_of_the_page(tmp_path: Path) -> None:
    found = three()
    out = io.StringIO()
    Console(file=out, width=100).print(found.terminal())
    path = tmp_path / "page.html"
    path.write_text(found.page(), encoding="utf-8")
    page = read(path)
    for sheet in found.sheets:
        for _, cells in sheet.rows:
            assert all(cell.text in out.getvalue() and cell.text in page.text for cell in cells)
    assert "3 of 3 jobs are played" in out.getvalue()


def test_a_log_without_waiting_is_told_and_not_compared() -> None:
    jobs = Jobs.of(
        submit=[0, 5], run=[9, 9], tasks=[2, 1], recorded_start=[0, 5], recorded_end=[9, 14]
    )
    found = played(jobs, Nodes.pool(2))
    assert found.retold is None
    assert words("texts")["no waiting"] in found.sheets[0].captions
    assert all("as it happened" not in dict(sheet.rows) for sheet in found.sheets)


def test_seeds_give_intervals_and_must_be_the_same_for_all() -> None:
    jobs = [Jobs.of(submit=[0, 1, 2], run=[9.0, x, 7.0], tasks=[3, 2, 1]) for x in (5, 6, 9)]
    nodes = Nodes.pool(4)
    outcomes = {
        name: [Outcome.of(simulate_jobs(each, nodes, name), name) for each in jobs]
        for name in (FCFS, EASY)
    }
    mean = JobResults("made", outcomes, EASY).sheets[0].rows[0][1][3].text
    each = [outcome.completion.mean() for outcome in outcomes[FCFS]]
    half = 4.302652729696142 * np.std(each, ddof=1) / np.sqrt(3)
    assert float(mean.partition(" ± ")[0]) == pytest.approx(np.mean(each), abs=0.1)
    assert float(mean.partition(" ± ")[2]) == pytest.approx(half, abs=0.1)
    with pytest.raises(ScenarioError, match="same seeds"):
        JobResults("made", {FCFS: outcomes[FCFS], EASY: outcomes[EASY][:1]})


def test_rectangles_are_the_pieces_of_the_schedule(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    nodes = Nodes.of([Node(f"n{i}", {"gpu": 4}) for i in range(3)], shared="gpu")
    jobs = Jobs.of(
        submit=np.sort(rng.integers(0, 50, 60)),
        run=rng.integers(1, 20, 60),
        tasks=1,
        demand={"gpu": rng.choice([0.5, 1, 2, 4], 60)},
    )
    results = played(jobs, nodes)
    _, text = page_of(results, tmp_path)
    chart = chart_of(text)
    assert chart["exact"]
    best = chart["schedulers"][0]
    of = results.outcomes[best["name"]][0].pieces

    def read_out(name: str, kind: str) -> np.ndarray:
        return np.frombuffer(base64.b64decode(best[name]), kind)

    height = read_out("height", "<u2") / 65535 * 4
    seconds = read_out("end", "<f4") - read_out("begin", "<f4")
    asked = results.outcomes[best["name"]][0].demand[of.job, 0]
    drawn = np.bincount(read_out("row", "<u2"), height * seconds, minlength=3)
    held = np.bincount(of.node, asked * (of.end - of.begin), minlength=3)
    assert drawn == pytest.approx(held, rel=1e-3)


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_no_device_is_drawn_twice(seed: int, capacity: int) -> None:
    rng = np.random.default_rng(seed)
    begin, end, amount = [], [], []
    for _ in range(int(rng.integers(1, 40))):  # keep what fits, as a schedule would
        a, n = float(rng.integers(0, 30)), int(rng.integers(1, 2 * capacity + 1)) * 500
        b = a + float(rng.integers(1, 15))
        busy = [
            sum(m for x, y, m in zip(begin, end, amount) if x <= t < y)
            for t in {a, *(x for x in begin if a <= x < b)}
        ]
        if max(busy, default=0) + n <= capacity * 1000:
            begin.append(a)
            end.append(b)
            amount.append(n)
    if not begin:
        return
    found = lanes(np.array(begin), np.array(end), np.array(amount), capacity * 1000)
    for i, n in enumerate(amount):
        assert sum(lane.height for lane in found if lane.interval == i) == n
    for k, one in enumerate(found):
        assert 0 <= one.offset <= one.offset + one.height <= capacity * 1000
        for other in found[:k]:
            i, j = one.interval, other.interval
            if begin[i] < end[j] and begin[j] < end[i]:
                apart = (
                    one.offset + one.height <= other.offset
                    or other.offset + other.height <= one.offset
                )
                assert apart


def test_many_jobs_are_shares_over_bins_on_a_page_below_a_megabyte(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    J, N = 20_000, 300
    nodes = Nodes.alike(N, {"gpu": 8})
    jobs = Jobs.of(
        submit=np.sort(rng.uniform(0, 1e6, J)),
        run=rng.lognormal(9, 1, J),
        tasks=1,
        demand={"gpu": rng.choice([1, 2, 8], J)},
        user=[f"user-with-a-long-name-{u}" for u in rng.integers(0, 3000, J)],
    )
    results = played(jobs, nodes)
    _, text = page_of(results, tmp_path)
    assert len(text) < 1_000_000
    chart = chart_of(text)
    assert not chart["exact"]
    best = chart["schedulers"][0]
    rows, bins = len(best["rows"]), best["bins"]
    assert rows == N / 2
    share = np.frombuffer(base64.b64decode(best["share"]), "u1").reshape(rows, bins) / 255
    outcome = results.outcomes[best["name"]][0]
    edges = np.linspace(outcome.span[0], outcome.span[0] + chart["seconds"], bins + 1)
    whole = outcome.over_time("gpu", edges) / (8 * N)
    assert share.mean(axis=0) == pytest.approx(whole, abs=0.003)


def test_a_slow_node_costs_device_hours_in_the_table() -> None:
    nodes = Nodes.of([Node("fast", {"gpu": 4}), Node("slow", {"gpu": 4})])
    jobs = Jobs.of(submit=[0], run=[HOUR], tasks=[2], demand={"gpu": 4})
    schedule = simulate_jobs(jobs, nodes, EASY, Conditions(rates=np.array([[1.0, 0.5]])))
    found = JobResults("made", {EASY: [Outcome.of(schedule, EASY)]})
    lost = next(s for s in found.sheets if s.title == "Device-hours lost")
    assert float(lost.rows[0][1][0].text) == 8  # 8 GPUs for two hours instead of one


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (4.04, "4.0 s"),
        (89, "89 s"),
        (90, "1.5 min"),
        (5400, "1.5 h"),
        (200_000, "2.3 days"),
    ],
)
def test_times_in_words(seconds: float, text: str) -> None:
    assert roughly(seconds) == text

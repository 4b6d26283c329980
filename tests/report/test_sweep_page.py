"""The page of a sweep: numbers checked by hand, well formed, and it loads nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangwise.report.pages import write_report
from gangwise.study.runs import write_provenance
from gangwise.study.sweep import Experiment, sweep
from tests.report.made_sweep import HOSTILE, made_sweep
from tests.report.pages import Page, faults, loaded, read


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    folder = made_sweep(tmp_path_factory.mktemp("made"))
    write_provenance(folder, "made", "gangwise sweep made.toml --out here")
    path = write_report(folder)
    assert path == folder / "report.html"
    return read(path), path.read_text(encoding="utf-8")


def test_opens_offline_and_is_well_formed(page: tuple[Page, str]) -> None:
    assert loaded(*page) == []
    assert faults(page[0]) == []
    assert page[0].tags.count("table") > 5


def test_numbers_by_hand(page: tuple[Page, str]) -> None:
    rows = page[0].body("policy|load|reward")
    assert [row[:2] for row in rows] == [["a", "1"], ["b", "1"], ["b", "2"], ["a", "2"]]
    # Half an interval of two seeds, d apart: t(0.975, 1 degree of freedom) = 12.706 times d / 2.
    assert [row[2] for row in rows] == ["4.0 ± 12.7", "3.0 ± 12.7", "4.5 ± 6.4", "1.5 ± 6.4"]
    # Over a: 2/3 - 1 and 4/5 - 1 in one cell, 4/1 - 1 and 5/2 - 1 in the other.
    assert [row[3].split(" ± ")[0] for row in rows] == ["–", "−26.7", "+225.0", "–"]
    assert [row[4] for row in rows] == ["7.0"] * 4


def test_regret_beside_its_bound(page: tuple[Page, str]) -> None:
    rows = {(row[0], row[1]): row for row in page[0].body("policy|load|regret")}
    # 10 slots: a earns 40 on average where the best earns 60; the bound is 40.
    assert rows["a", "1"][2:] == ["20 ± 127", "66.7 ± 211.8", "40", "50"]
    assert rows["b", "2"][2:] == ["5 ± 64", "90.0 ± 127.1", "40", "12"]


def test_sorting_has_the_full_numbers(page: tuple[Page, str]) -> None:
    values = [
        given["data-value"]
        for tag, given in page[0].attributes
        if tag == "td" and given.get("data-value")
    ]
    assert "225.0" in values
    assert page[1].count('<button type="button">') > 10


def test_summary_policies_and_provenance(page: tuple[Page, str]) -> None:
    text = page[0].text
    assert "earned most in 1 of 2 cells" in text
    assert "gangwise sweep made.toml --out here" in text
    assert "0.0.7" in text
    assert "made-1-a-0" in text
    for word in ("numpy", "numba", "polars", "python", "made.Policy", "0.25", "theorem-1", "cost"):
        assert word in text
    assert HOSTILE in text
    assert page[0].tags.count("details") == 4  # the terms, the keys of the runs, two policies
    assert ["slots", "10"] in [row for table in page[0].tables for row in table]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    path = write_report(made_sweep(tmp_path, rename={"a": HOSTILE, "best_fixed": "b<f>"}))
    page, text = read(path), path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert page.tags.count("script") == 1
    assert faults(page) == []


@pytest.mark.full
def test_two_experiments_share_a_page_and_missing_runs_are_told(tmp_path: Path) -> None:
    made_sweep(tmp_path, "one")
    made_sweep(tmp_path, "two")
    (tmp_path / "runs" / "two-1-a-0.parquet").unlink()
    (tmp_path / "runs" / "two-1-best_fixed-0.parquet").unlink()
    page = read(write_report(tmp_path, tmp_path / "elsewhere" / "page.html"))
    assert faults(page) == []
    assert page.tags.count("h1") == 3
    assert "2 of 12 runs are not finished" in page.text


def test_made_from_python_it_says_how_to_get_it_again(tmp_path: Path) -> None:
    page = read(write_report(made_sweep(tmp_path)))
    assert "gangwise sweep made.toml" in page.text
    assert "load = [1, 2]" in page.text


@pytest.mark.parametrize(
    ("scenario", "policies", "comparators"),
    [
        ("ogasched-default-v1:servers=8,job_types=3", ["drf", "fairness"], ["per_slot_optimum"]),
        ("opm-default-v1:machines=8", ["opm", "fair"], []),
    ],
)
def test_a_real_sweep_of_each_kind(
    tmp_path: Path, scenario: str, policies: list[str], comparators: list[str]
) -> None:
    experiment = Experiment(
        name="real",
        scenario=scenario,
        policies=policies,
        seeds=2,
        slots=12,
        comparators=comparators,
        optimum_slots=4,
    )
    results = sweep(experiment, tmp_path, jobs=1)
    path = write_report(tmp_path)
    page = read(path)
    assert loaded(page, path.read_text(encoding="utf-8")) == []
    assert faults(page) == []
    best = results.table("reward.mean").row(0, named=True)
    first = page.body("policy|reward")[0]
    assert first[0] == best["policy"]
    assert float(first[1].split(" ± ")[0].replace(",", "")) == pytest.approx(
        best["reward.mean"], rel=0.05
    )

"""Reports of folders: numbers checked by hand, pages that load nothing and are well formed."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from gangwise import StoreError
from gangwise.cli import app
from gangwise.experiments.dataset import Dataset
from gangwise.experiments.provenance import write_provenance
from gangwise.experiments.runs import Rows
from gangwise.experiments.specification import Experiment
from gangwise.experiments.sweep import sweep
from gangwise.experiments.toml import experiment_toml
from gangwise.report.folder import write_report
from tests.report.pages import Page, read

HOSTILE = "<script>alert('x')</script>&\"--></style>"

SLOTS = 10
REWARDS = {  # (load, policy): mean per slot for seeds 0 and 1
    (1, "a"): (3.0, 5.0), (1, "b"): (2.0, 4.0),
    (2, "a"): (1.0, 2.0), (2, "b"): (4.0, 5.0),
}  # fmt: skip
BEST = {1: (6.0, 6.0), 2: (5.0, 5.0)}


def played(mean: float, bound: float | None = None) -> Rows:
    """A run that earns the same in every slot."""
    rows = Rows()
    rows.add("reward.mean", mean)
    rows.add("reward.total", mean * SLOTS)
    at = np.arange(1, SLOTS + 1)
    rows.add("reward.cumulative", mean * at, at)
    if bound is None:
        rows.add("cost.mean", 2 * mean)
        rows.add("us_per_slot", 7.0)
    else:
        rows.add("gap", 0.0)
        rows.add("bound.theorem-1", bound)
    rows.add("seconds", 0.5)
    return rows


def made(folder: Path, name: str = "made", rename: dict[str, str] | None = None) -> Path:
    """A sweep's folder made by hand."""
    rename, runs = rename or {}, []
    dataset = Dataset(folder)
    means = {**REWARDS, **{(load, "best_fixed"): each for load, each in BEST.items()}}
    for (load, policy), each in means.items():
        best, label = policy == "best_fixed", rename.get(policy, policy)
        for seed, mean in enumerate(each):
            key = f"{name}-{load}-{policy}-{seed}"
            settings = {"load": load, "slots": 99, "files": HOSTILE}
            about = {"scenario": "made-v1", "settings": settings,
                     "seed": seed, "slots": SLOTS, "version": "0.0.7",
                     **({"comparator": label} if best else
                        {"policy": "made.Policy", "configuration": {"step": 0.25}})}  # fmt: skip
            dataset.write(key, about, played(mean, 40.0 if best else None))
            runs.append({"key": key, "cell": {"load": load}, "label": label, "comparator": best,
                         "seed": seed, "slots": SLOTS})  # fmt: skip
    experiment = {"name": name, "scenario": "made-v1", "grid": {"load": [1, 2]},
                  "policies": ["a", "b"], "seeds": 2, "comparators": ["best_fixed"]}  # fmt: skip
    dataset.write_plan(name, {"experiment": experiment, "runs": runs})
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Page, str]:
    folder = made(tmp_path_factory.mktemp("made"))
    write_provenance(folder, "made", "gangwise sweep made.toml --out here")
    path = write_report(folder)
    assert path == folder / "report.html"
    return read(path), path.read_text(encoding="utf-8")


def self_contained(page: Page, text: str) -> None:
    assert not re.search(r"(https?:)?//[\w-]+\.[a-z]{2,}", text)
    assert all(re.fullmatch(r"#[\w.-]+|url\(#[\w.-]+\)", ref) for ref in page.references)
    assert not {"link", "img", "iframe", "object", "base"} & set(page.tags)
    assert "@import" not in text
    assert "@font-face" not in text
    assert page.tags.count("script") == 1


def whole(page: Page) -> None:
    """Identifiers are unique, links lead somewhere, tables can be read aloud and sorted."""
    assert len(page.ids) == len(set(page.ids))
    assert {re.sub(r"^url\(|[#)]", "", ref) for ref in page.references} <= set(page.ids)
    for tag, given in page.attributes:
        if tag == "th":
            assert given.get("scope") in ("row", "col")
        if tag == "td" and "data-value" in given and given["data-value"]:
            float(given["data-value"])
    for drawing in (given for tag, given in page.attributes if tag == "svg"):
        assert drawing.get("aria-label") or drawing.get("aria-hidden") == "true"


def test_opens_offline_and_is_well_formed(page: tuple[Page, str]) -> None:
    self_contained(*page)
    whole(page[0])


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


def test_a_policy_behind_is_told_by_how_much_it_is_beaten(page: tuple[Page, str]) -> None:
    # Over b the other way round: a has 3/2 - 1 and 5/4 - 1 more; one degree of freedom, wide.
    lists = page[0].text.split("Configuration")
    assert "load = 1: a and b cannot be told apart: +37.5\u00a0%" in lists[1]


def test_sorting_has_the_full_numbers(page: tuple[Page, str]) -> None:
    values = [given["data-value"] for tag, given in page[0].attributes
              if tag == "td" and given.get("data-value")]  # fmt: skip
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
    assert page[0].tags.count("details") == 3
    assert ["slots", "10"] in [row for table in page[0].tables for row in table]


def test_hostile_names_are_text(tmp_path: Path) -> None:
    path = write_report(made(tmp_path, rename={"a": HOSTILE, "best_fixed": "b<f>"}))
    page, text = read(path), path.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert page.tags.count("script") == 1
    whole(page)


def test_two_experiments_share_a_page_and_missing_runs_are_told(tmp_path: Path) -> None:
    made(tmp_path, "one")
    made(tmp_path, "two")
    (tmp_path / "runs" / "two-1-a-0.parquet").unlink()
    (tmp_path / "runs" / "two-1-best_fixed-0.parquet").unlink()
    page = read(write_report(tmp_path, tmp_path / "elsewhere" / "page.html"))
    whole(page)
    assert page.tags.count("h1") == 3
    assert "2 of 12 runs are not finished" in page.text


def test_made_from_python_it_says_how_to_get_it_again(tmp_path: Path) -> None:
    page = read(write_report(made(tmp_path)))
    assert "gangwise sweep made.toml" in page.text
    assert "load = [1, 2]" in page.text


def test_an_experiment_file_says_the_same_as_the_experiment() -> None:
    experiment = Experiment(
        name="x", scenario="ogasched-default-v1", settings={"utility": 'a"\\b', "rho": 0.5},
        grid={"contention": [1, 5], "alpha": [[1, 1.5], [1, 2]]},
        cases=[{"servers": 4, "job_types": 2}], seeds=[3, 7], slots=None, metrics=["gain"],
        policies=["drf", {"name": "ogasched-react", "label": "ascent",
                          "arguments": {"fraction": 1e-7}, "grid": {"steps": [1, 5]}}],
    )  # fmt: skip
    text = experiment_toml(experiment.model_dump(mode="json"))
    assert Experiment.of(tomllib.loads(text)) == experiment


def test_a_real_sweep_of_each_kind(tmp_path: Path) -> None:
    for name, scenario, policies in (
        ("oga", "ogasched-default-v1:servers=8,job_types=3", ["drf", "fairness"]),
        ("opm", "opm-default-v1:machines=8", ["opm", "fair"]),
    ):
        experiment = Experiment(name=name, scenario=scenario, policies=policies, seeds=2, slots=12,
                                comparators=["per_slot_optimum"] if name == "oga" else [],
                                optimum_slots=4)  # fmt: skip
        sweep(experiment, tmp_path / name, jobs=1)
        path = write_report(tmp_path / name)
        self_contained(read(path), path.read_text(encoding="utf-8"))
        whole(read(path))


@pytest.fixture
def reproduced(tmp_path: Path) -> Path:
    """What gangwise reproduce leaves, made by hand."""
    rows = [
        {"paper": paper, "artefact": "figure-2", "says": says, "version": "as printed",
         "the paper": number, "ours": 55.2, "low": 29.1, "high": 81.3, "verdict": verdict,
         "why": why}
        for paper, says, number, verdict, why in (
            ("esdp", "A over B, %", 73.0, "agrees", ""),
            ("esdp", "A over C, %", 11.28, "differs", f"not stated {HOSTILE}"),
            ("opm", "A wins", "always", "open", "a misprint"),
        )
    ]  # fmt: skip
    artefacts = [{"paper": p, "name": "figure-2", "title": HOSTILE, "experiments": []}
                 for p in ("esdp", "opm")]  # fmt: skip
    about = {"quick": True, "artefacts": artefacts, "left_out": {"opm-figure-1": "needs a trace"}}
    (tmp_path / "reproduction.json").write_text(json.dumps(about))
    (tmp_path / "side-by-side.json").write_text(json.dumps(rows))
    (tmp_path / "esdp-figure-2.svg").write_text(
        '<?xml version="1.0"?><svg viewBox="0 0 500 300"><text id="t">hello</text></svg>'
    )
    write_provenance(tmp_path, "reproduction", "gangwise reproduce esdp --quick")
    return tmp_path


def test_reproduction(reproduced: Path) -> None:
    path = write_report(reproduced)
    page, text = read(path), path.read_text(encoding="utf-8")
    self_contained(page, text)
    whole(page)
    rows = page.body("claim|where")
    assert [row[1:5] for row in rows] == [
        ["esdp figure-2", "73", "as printed", "55 ± 26"],
        ["esdp figure-2", "11.28", "as printed", "55 ± 26"],
        ["opm figure-2", "always", "as printed", "55 ± 26"],
    ]
    assert "1 agree with the paper, 1 differ, 1 are open" in page.text
    for said in ("a misprint", "needs a trace", "gangwise reproduce esdp --quick", "hello"):
        assert said in page.text
    chosen = [given for tag, given in page.attributes if tag == "input"]
    assert {given["id"] for given in chosen} >= {"verdict-differs", "paper-esdp", "paper-opm"}
    marked = [given for tag, given in page.attributes if tag == "tr" and "data-verdict" in given]
    assert [given["data-verdict"] for given in marked] == ["agrees", "differs", "open"]
    for given in marked:  # a style hides it for every other choice
        assert f'tr[data-verdict]:not([data-verdict="{given["data-verdict"]}"])' in text


def test_a_comparison_has_its_page_already(tmp_path: Path) -> None:
    (tmp_path / "rewards.parquet").write_bytes(b"")
    (tmp_path / "report.html").write_text("made by compare")
    assert write_report(tmp_path) == tmp_path / "report.html"
    copied = write_report(tmp_path, tmp_path / "copy.html")
    assert copied.read_text() == "made by compare"


def test_folders_without_results(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no results of gangwise sweep"):
        write_report(tmp_path)
    with pytest.raises(StoreError, match="no folder"):
        write_report(tmp_path / "nowhere")
    made(tmp_path)
    for run in (tmp_path / "runs").iterdir():
        run.unlink()
    with pytest.raises(StoreError, match=r"no run in .* is finished"):
        write_report(tmp_path)


def test_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    out = tmp_path / "there" / "page.html"
    done = CliRunner().invoke(app, ["report", str(made(tmp_path)), "--out", str(out)])
    assert done.exit_code == 0
    assert f"wrote {out}" in done.output
    assert read(out).text

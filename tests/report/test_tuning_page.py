"""What the page of a tuning says of five trials made by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gangwise import StoreError
from gangwise.report.experiments import edges
from gangwise.report.pages import write_report
from gangwise.study.runs import Store
from gangwise.study.tune import STUDY, ParameterRange, Trial, Tuning, read_tuning, write_tuning
from tests.report.made_sweep import HOSTILE, played
from tests.report.pages import faults, loaded, read

RANGES = (
    ParameterRange("fraction", (0.01, 1.0), log=True),
    ParameterRange("steps", (1, 21)),
    ParameterRange("rule", choices=("decay", HOSTILE)),
)
REWARDS = {  # arguments, mean reward on seeds 0 and 1
    0: (0.1, 11, "decay", (4.0, 6.0)),
    1: (0.011, 1, "decay", (2.0, 3.0)),
    2: (0.9, 12, HOSTILE, (6.0, 6.6)),
    3: (0.2, 20, HOSTILE, (3.0, 3.0)),
    4: (0.1, 11, "decay", (4.0, 6.0)),  # the default again
}


def tuning(**changes: object) -> Tuning:
    trials = [
        Trial(n, {"fraction": fraction, "steps": steps, "rule": rule}, earned)
        for n, (fraction, steps, rule, earned) in REWARDS.items()
    ]
    ranked = tuple(sorted(trials, key=lambda trial: (-trial.value, trial.number)))
    row = {
        "policy": "tuned",
        "over": "default",
        "seeds": 5,
        "percent": True,
        "mean": 12.0,
        "low": 11.0,
        "high": 13.0,
    }
    made = Tuning("made", "reward.mean", False, RANGES, trials[0], ranked, (0, 1), (7, 8), row)
    return replace(made, **changes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    store, runs = Store(tmp_path), []
    for n, (*_, earned) in list(REWARDS.items())[:4]:
        label = "default" if n == 0 else f"trial {n}: {HOSTILE}"
        for seed, mean in enumerate(earned):
            key = f"{n}-{seed}"
            about = {
                "scenario": "made-v1",
                "settings": {},
                "seed": seed,
                "slots": 10,
                "version": "0.0.7",
                "policy": "made.Policy",
                "configuration": {},
            }
            store.write(key, about, played(mean))
            runs.append(
                {
                    "key": key,
                    "cell": {},
                    "label": label,
                    "comparator": False,
                    "seed": seed,
                    "slots": 10,
                }
            )
    experiment = {"name": "tuning", "scenario": "made-v1", "policies": ["made"], "seeds": 2}
    store.write_plan("tuning", {"experiment": experiment, "runs": runs})
    write_tuning(tmp_path, tuning())
    return tmp_path


def test_what_was_found_is_read_again(folder: Path) -> None:
    assert read_tuning(folder) == tuning()


def test_the_best_at_an_end_of_its_range_is_told() -> None:
    said = edges(tuning())  # log(0.9 / 0.01) / log(100) = 0.977; (12 - 1) / 20 = 0.55
    assert said == [
        "The best trial has fraction = 0.9, at the upper end of its range (0.01 to 1): better "
        "values may lie beyond it."
    ]
    other = tuning(trials=tuning().trials[::-1])  # the worst: log(1.1) / log(100) = 0.02; 0
    assert [sentence.split(" of its")[0] for sentence in edges(other)] == [
        "The best trial has fraction = 0.011, at the lower end",
        "The best trial has steps = 1, at the lower end",
    ]
    inside = tuning(trials=tuning().trials[1:])
    assert edges(inside) == ["No argument of the best trial is at an end of its range."]


def test_the_page_by_hand(folder: Path) -> None:
    path = write_report(folder)
    page = read(path)
    assert loaded(page, path.read_text(encoding="utf-8")) == []
    assert faults(page) == []
    assert "Tuned on seeds 0, 1: fraction = 0.9, steps = 12" in page.text
    assert "<h1>Tuned made beats its default by 12.0" in path.read_text(encoding="utf-8")
    assert "tuned beats default by 12.0\u00a0%\u00a0±\u00a01.0 (5 seeds)" in page.text
    found = {row[0]: row[1:] for row in page.body("argument|range")}
    assert found["fraction"] == ["0.01 to 1, logarithmic", "0.1", "0.9", "at the upper end"]
    assert found["steps"] == ["1 to 21", "11", "12", "inside its range"]
    assert found["rule"][1:] == ["decay", HOSTILE, "–"]


def test_less_may_be_better(folder: Path) -> None:
    least = tuning(minimise=True, trials=tuning().trials[::-1])
    write_tuning(folder, least)
    page = read(write_report(folder))
    assert page.body("trial|fraction")[0][0] == str(least.trials[0].number)
    assert "Less of the metric is better" in page.text


def test_trials_are_paired_with_the_default(folder: Path) -> None:
    rows = read(write_report(folder)).body("trial|fraction")
    assert [row[0] for row in rows] == ["2", "0, the default", "4", "3", "1"]
    # Trial 2 over the default: 6/4 and 6.6/6, so +50 and +10; half of t(0.975, 1) times 40 = 254.
    assert rows[0][1:6] == ["0.9", "12", HOSTILE, "6.3 ± 3.8", "+30.0 ± 254.1"]  # 0.3 · 12.7
    assert rows[1][5] == rows[2][5] == "–"  # the same runs
    assert rows[3][5].startswith("−37.5")  # 3/4 and 3/6
    assert rows[2][6] == "7.0"  # microseconds of the default's runs


def test_a_tuning_that_has_not_finished_says_how_to_go_on(folder: Path) -> None:
    (folder / "tuning.json").unlink()
    (folder / STUDY).touch()
    with pytest.raises(StoreError, match="gangwise"):
        write_report(folder)
    for torn in ('{"policy": "made"', '{"policy": "made"}', "[]"):
        (folder / "tuning.json").write_text(torn)
        with pytest.raises(StoreError, match="again"):
            write_report(folder)

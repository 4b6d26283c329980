"""The first minute: gangs, a queue, nodes unlike their labels, and an answer beyond doubt."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from docs import demo
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.cli.logs import DEMO_SCHEDULERS, DEMO_SEEDS
from gangwise.study.job_classes import DEMO
from gangwise.study.replay import replay

ROOT = Path(__file__).parents[1]


def test_the_demo_has_gangs_that_wait_and_its_answer_is_beyond_doubt() -> None:
    names = ("fcfs+easy+label", "sjf+easy+label", "sjf+easy+learned")
    found = replay(DEMO, names, range(DEMO_SEEDS))
    assert set(names) < set(DEMO_SCHEDULERS)
    compared = found.compared()
    first = compared.first
    assert set(first.jobs.tasks.tolist()) == {1, 2, 4, 8, 16}
    gangs = first.jobs.tasks > 1
    assert gangs.mean() > 0.1
    assert np.ptp(first.nodes.declared(first.jobs.types)) > 0  # labels promise unlike speeds
    assert np.nanmean(first.waiting[gangs]) > 600
    assert compared.estimate(compared.base, "waiting.mean").mean > 3600
    change = compared.change("sjf+easy+learned")
    assert change.half is not None
    assert change.mean + 3 * change.half < 0  # far from nothing
    # What it learns is worth something beside a rival of the same order.
    pair = [[o.summary()["completion.mean"] for o in found.outcomes[name]] for name in names[1:]]
    assert np.mean(np.less(pair[1], pair[0])) >= 0.9


@pytest.mark.full
def test_the_picture_is_what_the_demo_plays() -> None:
    assert demo.PICTURE.read_text(encoding="utf-8") == demo.picture()


@pytest.mark.full
def test_the_readme_has_what_the_demo_says(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert done.exit_code == 0, done.output
    (told,) = re.findall(
        r"<!-- demo -->\n```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    printed = " ".join(done.stdout.split())
    assert [part for part in told.split("…") if " ".join(part.split()) not in printed] == []

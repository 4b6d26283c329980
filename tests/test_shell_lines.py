"""Every shell line of README and documentation parses, and runs, or it is said why it is not run.

Lines are run page by page, in their order, in a folder with what a user would bring: logs, a dump,
clusters in TOML. Only the numbers of seeds, slots, jobs and days are made smaller. Commands of
gangwise run in this process, for starting it anew takes longer than most of them.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
import typer
from benchmarks import walk
from typer.testing import CliRunner

from gangwise.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
NOT_RUN = {
    r"^(pip install|python3 -m venv|source |curl |kubectl |sacct|scontrol |export |columns=)": (
        "installs, or asks another program"
    ),
    r"--install-completion": "writes to the user's own .bashrc; test_cli_help asks for completions",
    r"^(useradd|install) ": "makes a user, as root; benchmarks/live_slurm_manual.py runs it",
    r"^srun ": "needs a running Slurm; tests/engines has it",
    r"--engine (slurm|kubernetes)|/var/lib/gangwise": "needs a cluster; tests/engines has it",
    r"^gangwise (serve|top|account)\b": "runs until it is stopped; tests/service runs it",
    r"^python (-m )?benchmarks": "minutes to hours; its page says when it was run",
    r"…": "a line that is shown shortened",
    r"cluster-trace|path/to/|alibaba-gpu-v2020/|google-2011/|Venus|trace_seren|DLRM|august": (
        "needs a public trace that is downloaded first"
    ),
    r"--job 4711|--policy MyPolicy": "of results that the page does not make",
    r"openb_pod_list|KTH-SP2|NASA-iPSC": "needs a public log; the same command is run on another",
    r"^gangwise demo$": "tests/test_demo.py compares what it says",
    r"^gangwise reproduce ": "minutes; tests/papers/reproduce runs it",
    r"^gangwise leaderboard ": "needs public logs; tests/study runs it on made ones",
    r"^gangwise tune ": "needs optuna; tests/study runs it",
}
"""Patterns of lines that are not run here, and why. Each must still be found in some page."""

SLOTS = "--slots 60"
SMALLER = (
    (r"--seeds (10|20|5)\b", "--seeds 2"),
    (r"^(gangwise (?:compare|run) (?:ogasched|esdp)-(?!.*--slots).*)$", rf"\1 {SLOTS}"),
    (r"^(gangwise compare (?!.*--seeds)[^#]*)", r"\1 --seeds 2 "),
    (r"^(gangwise replay --world .*)$", r"\1 --seeds 2 --set first=150"),
    (r"--set days=7", "--set days=2"),
    (r"--set days=0\.2", "--set days=0.03"),
)


def lines_of(page: Path) -> list[str]:
    """Lines of shell blocks, without prompts and comments, continued ones joined."""
    text = page.read_text(encoding="utf-8")
    found: list[str] = []
    for body in re.findall(r"^ *```(?:bash|sh|console)\n(.*?)^ *```", text, re.M | re.S):
        joined = re.sub(r"\\\n\s*", " ", body)
        found += [line.strip().removeprefix("$ ") for line in joined.splitlines()]
    plain = [re.split(r"\s+#\s", line)[0].strip() for line in found]
    return [line for line in plain if line and not line.startswith("#")]


def why_not(line: str) -> str:
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, line)), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_that_is_shown_has_these_options(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Readers' logs and classes are not here: what is absent is refused while options are parsed.
    monkeypatch.setattr("gangwise.logs.require_there", lambda path: None)
    monkeypatch.setattr("gangwise.catalogue.require_scheduler", lambda name: None)
    group = typer.main.get_command(app)
    for line in lines_of(page):
        for part in re.split(r" && | \| ", line):
            words = shlex.split(part)
            if not words or words[0] != "gangwise" or words[1] == "rank" or words[1][0] == "-":
                continue
            words, command = words[1:], group.commands[words[1]]
            while hasattr(command, "commands"):
                words = words[1:]
                command = command.commands[words[0]]
            # Parses, and calls nothing.
            assert command.make_context(words[0], words[1:]).command is command


def test_reasons_for_not_running_a_line_are_needed() -> None:
    every = [line for page in PAGES for line in lines_of(page)]
    assert [p for p in NOT_RUN if not any(re.search(p, line) for line in every)] == []
    run = [line for line in every if not why_not(line)]
    assert len(run) >= 45


@pytest.fixture(scope="module")
def brought(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages take for given."""
    folder = tmp_path_factory.mktemp("user")
    walk.made(folder)
    shutil.copy(folder / "lab.toml", folder / "my-cluster.toml")
    shutil.copy(folder / "pods.csv", folder / "jobs.csv")
    pl.read_csv(folder / "pods.csv").write_json(folder / "jobs.json")
    (folder / "nodes.csv").write_text("node,time,event\nn1,0,down\nn1,600,up\n")
    figure = (DOCS / "tutorials/figure.md").read_text(encoding="utf-8")
    (experiment,) = re.findall(r"```toml\n(.*?)```", figure, re.S)
    for name in ("experiment.toml", "contention.toml"):
        (folder / name).write_text(small(experiment))
    return folder


def small(experiment: str) -> str:
    for shown, played in (
        (r"^seeds = 10$", "seeds = 2\nslots = 60"),
        (r"^seeds = 5$", "seeds = 2"),
        (r"^first = \d+$", "first = 300"),
    ):
        experiment = re.sub(shown, played, experiment, flags=re.M)
    return experiment


def with_own_rules(page: Path, folder: Path) -> None:
    """Files that a page shows as the content of a file, under the name that its lines give."""
    text = page.read_text(encoding="utf-8")
    for body in re.findall(r"```toml\n(.*?)```", text, re.S):
        named = re.findall(r'^name = "([\w-]+)"', body, re.M)
        for name in named[:1]:
            (folder / f"{name}.toml").write_text(small(body))


RUN = [page for page in PAGES if any(not why_not(line) for line in lines_of(page))]


@pytest.mark.full
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.name)
def test_every_line_runs(
    page: Path, brought: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(brought, folder)
    with_own_rules(page, folder)
    monkeypatch.chdir(folder)
    shown = [line for line in lines_of(page) if not why_not(line)]
    if page.name == "results-folder.md":  # it tells of a folder that is there
        made = f"gangwise compare ogasched-default-v1 --policies drf --out made {SLOTS}"
        shown = [made, *(f"cp -r made/. results && {line}" for line in shown)]
    for line in shown:
        for pattern, small in SMALLER:
            line = re.sub(pattern, small, line)
        for command in line.split(" && "):
            words = shlex.split(command)
            if words[0] == "gangwise":
                done = CliRunner().invoke(app, words[1:])
                assert done.exit_code == 0, (command, done.output[-3000:], done.exception)
            else:
                subprocess.run(words, check=True)

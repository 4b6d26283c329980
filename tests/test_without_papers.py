"""The operator's wing without ``gangwise.papers``, as on a cluster that plays no papers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BLOCKED = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("gangwise.papers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from gangwise.cli import main
for words in WORDS:
    sys.argv = ["gangwise", *words]
    try:
        main()
    except SystemExit as stop:
        print("EXIT", stop.code, *words[:2], flush=True)
"""

LOG = """\
; UnixStartTime: 1700000000
; MaxNodes: 4
; MaxProcs: 4
"""


def run(folder: Path, *commands: str) -> subprocess.CompletedProcess[str]:
    """Commands one after the other, in one process that cannot import the papers."""
    script = BLOCKED.replace("WORDS", repr([command.split() for command in commands]))
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 60 jobs of one to four processors on a machine of four."""
    jobs = [
        f"{i + 1} {300 * i} {30 * (i % 7)} {200 + 150 * (i % 5)} {1 + i % 4} -1 -1 {1 + i % 4} "
        f"{1200 + 600 * (i % 3)} -1 1 {i % 3} 1 -1 1 -1 -1 -1"
        for i in range(60)
    ]
    file = tmp_path / "small.swf"
    file.write_text(LOG + "\n".join(jobs) + "\n")
    return file


def test_every_module_of_operators_can_be_imported(tmp_path: Path) -> None:
    script = BLOCKED.partition("from gangwise.cli")[0] + (
        "import importlib, pkgutil, gangwise\n"
        "for m in pkgutil.walk_packages(gangwise.__path__, 'gangwise.', onerror=print):\n"
        "    if 'papers' not in m.name and not m.name.endswith('__main__'):\n"
        "        importlib.import_module(m.name)\n"
        "print(len([name for name in sys.modules if name.startswith('gangwise.')]))\n"
    )
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    *failed, count = ended.stdout.splitlines()  # ``onerror`` prints packages that cannot be read
    assert set(failed) <= {"gangwise.papers"}
    assert int(count) > 100


@pytest.mark.full
def test_commands_of_operators_work(log: Path) -> None:
    done = run(
        log.parent,
        f"jobs {log}",
        f"replay {log} --policies fcfs+easy,sjf+easy --no-bound --jobs 1 --out replayed",
        f"what-if {log} --as fcfs+easy --change scheduler=sjf+easy --jobs 1 --out asked",
        f"forecast {log} --at 3000 --draws 10",
        f"calibrate {log} --out site.toml",
        "serve --engine local --shadow --scheduler fcfs+easy --seconds .5 --state live",
    )
    ends = [line for line in done.stdout.splitlines() if line.startswith("EXIT")]
    assert [line.split()[1] for line in ends] == ["0"] * 6, done.stdout + done.stderr


def test_commands_of_the_papers_say_what_is_missing(log: Path) -> None:
    commands = ("compare ogasched-default-v1 --policies drf", "reproduce --all", "trace workload .")
    done = run(log.parent, *commands)
    ends = [line for line in done.stdout.splitlines() if line.startswith("EXIT")]
    assert [line.split()[1] for line in ends] == ["2"] * 3, done.stdout + done.stderr
    assert done.stderr.count("gangwise.papers") == 3

"""Every registered scheduler, typed as a user types it: an answer, or a plain refusal."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.jobs.scheduler import parts

POOL = """; MaxProcs: 4
1 0 0 1000 2 -1 -1 2 2000 -1 1 1 1 -1 1 1 -1 -1
2 10 90 100 4 -1 -1 4 200 -1 1 2 1 -1 1 1 -1 -1
3 20 0 5000 1 -1 -1 1 9000 -1 1 3 1 -1 1 1 -1 -1
4 30 0 3000 3 -1 -1 3 4000 -1 1 3 1 -1 1 1 -1 -1
"""


@pytest.mark.parametrize("choice", [c for c in parts("choice") if c != "fgd"])
def test_a_choice_of_nodes_plays_a_log_of_one_pool(choice: str, tmp_path: Path) -> None:
    file = tmp_path / "pool.swf"
    file.write_text(POOL)
    names = f"{choice},sjf+conservative+{choice}"
    done = CliRunner().invoke(app, ["replay", str(file), "--policies", names])
    assert done.exit_code == 0, done.exception
    assert "4 jobs of pool.swf waited" in done.stdout

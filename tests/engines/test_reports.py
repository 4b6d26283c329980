"""What ranks put where reports are read: nothing is waited for, nobody speaks for others."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from gangwise.engines.engine import REPORT_BYTES, RankReport, read_reports
from gangwise.engines.kubernetes_gangs import ClusterCache
from tests.engines.hostile import pod

GOOD: dict[str, Any] = {"node": "n1", "rank": 0, "work": 10.0, "seconds": 5.0}


def in_time(do: Any) -> Any:
    """Its result, unless it waits for somebody."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(do()), daemon=True)
    thread.start()
    thread.join(20.0)
    assert found, "it waits"
    return found[0]


def spoil(folder: Path, job: str) -> None:
    """All that is no report, at ranks 1 to 9."""
    here = [folder / f"{job}.0.{rank}.json" for rank in range(1, 10)]
    os.mkfifo(here[0])
    here[1].symlink_to("/dev/zero")
    here[2].symlink_to(folder / f"{job}.0.0.json")
    here[3].mkdir()
    here[4].write_text(json.dumps(GOOD) + " " * REPORT_BYTES)
    here[5].write_text("[" * 10_000)
    here[6].write_text(json.dumps({**GOOD, "node": "\ud800"}))
    here[7].write_text(json.dumps({**GOOD, "work": 1e999}))
    here[8].write_text("9" * 5000)


def test_only_regular_files_of_the_owner_and_of_ranks_that_there_are(tmp_path: Path) -> None:
    spoil(tmp_path, "7")
    for rank in (0, 10, 11):
        (tmp_path / f"7.0.{rank}.json").write_text(json.dumps({**GOOD, "rank": rank}))
    (tmp_path / "8.0.0.json").write_text(json.dumps(GOOD))
    me = os.getuid()
    found = in_time(lambda: read_reports(tmp_path, "7", 0, 11, me))
    assert [r.rank for r in found] == [0, 10], "it has 11 ranks"
    assert found[0] == RankReport("n1", 0, 10.0, 5.0)
    assert read_reports(tmp_path, "7", 0, 11, me + 1) == (), "another user's job"
    assert read_reports(tmp_path, "7", 0, 11, None) == (), "nobody knows whose"
    assert read_reports(tmp_path, "../7", 0, 11, me) == ()
    assert read_reports(tmp_path / "away", "7", 0, 11, me) == ()


@pytest.mark.parametrize(("user", "counts"), [(None, True), (os.getuid(), True), (1, False)])
def test_reports_of_pods(tmp_path: Path, user: int | None, counts: bool) -> None:
    """Where a pod says whom it runs as, others' files do not count for it."""
    table = ClusterCache("gangwise", 30.0, tmp_path)
    runs = pod("p", "a")
    runs["spec"]["nodeName"] = "n1"
    runs["status"] = {"phase": "Running"}
    if user is not None:
        runs["spec"]["securityContext"] = {"runAsUser": user}
    table.one_pod("ADDED", runs)
    uid = runs["metadata"]["uid"]
    spoil(tmp_path, uid)
    (tmp_path / f"{uid}.0.0.json").write_text(json.dumps(GOOD))
    (gang,) = table.gangs.values()
    in_time(lambda: table.read_reports([gang]) or True)
    assert [(r.node, r.work) for r in gang.reports.values()] == ([("n1", 10.0)] if counts else [])


def test_a_name_in_anothers_namespace_is_not_believed() -> None:
    table = ClusterCache("gangwise", 30.0, None)
    table.one_pod("ADDED", pod("victim", "a"))
    (name,) = table.gangs
    thief = pod("thief", "a")
    thief["metadata"]["namespace"] = "other"
    thief["metadata"]["annotations"]["gangwise.io/job"] = name
    table.one_pod("ADDED", thief)
    assert len(table.gangs) == 2
    assert [p.name for p in table.gangs[name].pods.values()] == ["victim"]

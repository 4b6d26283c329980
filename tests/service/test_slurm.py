"""The service on a real Slurm, where GANGWISE_ENGINES names it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.core.errors import EngineError, Rejected
from gangwise.engines.engine import Placed
from gangwise.engines.slurm import SlurmEngine
from gangwise.service.loop import Service
from tests.engines.test_conformance import NAMED
from tests.service.test_loop import until

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif("slurm" not in NAMED, reason="GANGWISE_ENGINES has no slurm"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    from tests.engines.slurm_lab import SlurmLab

    lab = SlurmLab(tmp_path_factory.mktemp("slurm"))
    yield lab
    lab.stop()


def test_acting(lab, tmp_path: Path):
    service = Service(lab.engine(), tmp_path / "state", act=True)
    jobs = [lab.submit(1.0, tasks=3, gpus=2, wrapped=True) for _ in range(4)]
    until(service, lambda: len(service.ledger.outcomes) == 4)
    assert set(service.ledger.outcomes.values()) == {"finished"}
    rows = {row["job"]: row for row in service.store.rows("SELECT * FROM history")}
    assert sorted(rows) == sorted(jobs)
    for job in jobs:
        where = [node for node, _ in lab.ran(job)]
        told = {p[0]: p[1] for p in rows[job]["body"]["placed"]}
        assert told == {node: where.count(node) for node in where}
    service.close()


def test_a_heterogeneous_job_starts_whole_or_not_at_all(lab, tmp_path: Path):
    """A head and three workers of four GPUs need four nodes, of which one is in use.

    There would be room for the head beside a worker, but no two components share a node.
    """
    service = Service(lab.engine(), tmp_path / "state", act=True)
    blocker = lab.submit(300.0, tasks=4, gpus=1)
    until(service, lambda: blocker in service.ledger.jobs)
    until(service, lambda: service.ledger.jobs[blocker].phase == "running")
    gang = lab.submit(2.0, tasks=3, gpus=4, head=3)
    until(service, lambda: gang in service.ledger.jobs)
    for _ in range(10):
        service.tick(0.25)
    states = lab.cluster.call("squeue", "-h", "-o", "%A %t").splitlines()
    assert {f"{int(gang) + i} PD" for i in (0, 1)} <= set(states)
    assert service.ledger.jobs[gang].phase == "waiting"
    assert [group.tasks for group in service.ledger.jobs[gang].asked.groups] == [1, 3]
    row = service.explanation(gang)
    assert (row["cause"], row["why"].partition(":")[0]) == ("pieces", "free in pieces")
    service.engine.cancel(blocker)
    until(service, lambda: gang in service.ledger.outcomes)
    assert service.ledger.outcomes[gang] == "finished"
    (row,) = [r for r in service.store.rows("SELECT * FROM history") if r["job"] == gang]
    placed = [Placed(*p) for p in row["body"]["placed"]]
    assert sorted(p.node for p in placed) == ["a1", "a2", "b1", "b2"]
    assert [p.tasks for p in placed if not p.group] == [1]
    assert len(lab.ran(gang)) == 4
    service.close()


def test_a_heterogeneous_job_is_left_to_slurm_as_a_whole(lab, tmp_path: Path):
    """One of its components asks for what is not modelled."""
    service = Service(lab.engine(), tmp_path / "state", act=True)
    options = ["--parsable", "-o", "/dev/null", "-t", "5", "-p", "gangwise", "-n", "1", ":"]
    options += ["-p", "gangwise", "-n", "2", "--licenses=solver:1"]
    job = lab.cluster.call("sbatch", *options, text="#!/bin/sh\nsleep 1\n").strip()

    def states() -> list[str]:
        return lab.cluster.call("squeue", "-h", "--states=all", "-o", "%t", "-j", job).split()

    until(service, lambda: states() == ["CD", "CD"])
    assert not service.store.rows("SELECT * FROM intents WHERE job = ?", job)
    service.close()


def test_the_doctor_says_what_it_would_leave_alone(lab, tmp_path: Path, monkeypatch):
    for name, value in lab.cluster.environment.items():
        monkeypatch.setenv(name, value)
    submit = ["sbatch", "--parsable", "-p", "gangwise", "-o", "/dev/null", "-t", "5"]
    asks = {"": [], "licen": ["--licenses=solver:1"], "holds it": ["-H"], "2 to 4": ["-N", "2-4"]}
    script = "#!/bin/sh\nsleep 1\n"
    jobs = {
        lab.cluster.call(*submit, *options, text=script).strip(): why
        for why, options in asks.items()
    }
    before = lab.cluster.call("squeue", "-h", "-o", "%A %Q %k %r")
    told = CliRunner().invoke(app, ["doctor", "--set", "partition=gangwise", "--json"])
    assert told.exit_code == 0, told.output
    alone = json.loads(told.output)["left_alone"]
    for job, why in jobs.items():
        assert why in alone[job] if why else job not in alone, (job, alone)
    assert lab.cluster.call("squeue", "-h", "-o", "%A %Q %k %r") == before
    told = CliRunner().invoke(app, ["doctor", "--set", "partition=nowhere"])
    assert "there is no partition nowhere" in f"{told.output}{told.exception}"
    lab.cluster.call("scancel", *jobs)


def test_what_users_write_into_their_jobs(lab, tmp_path: Path):
    """A comment that is half a number, a name with a byte of Latin-1: they run, as others do."""
    service = Service(lab.engine(), tmp_path / "state", act=True)
    submit = ["sbatch", "--parsable", "-p", "gangwise", "-o", "/dev/null", "-t", "5", "-n", "1"]
    odd = ["--comment=work=1.2.3", "--job-name=caf\udce9", "--comment=\x01\x02", "--job-name=--all"]
    script = "#!/bin/sh\nexit 0\n"
    jobs = [lab.cluster.call(*submit, option, text=script).strip() for option in odd]
    jobs.append(lab.submit(0.1))
    service.tick(0.25)
    service._shown = -math.inf
    service.tick(0.25)
    told = {(row["kind"], row["name"]): row["why"] for row in service.views["unreadable"]}
    assert "1.2.3" in told["comment of job", jobs[0]]
    until(service, lambda: set(jobs) <= set(service.ledger.outcomes))
    assert {service.ledger.outcomes[job] for job in jobs} == {"finished"}
    rows = {row["job"]: row for row in service.store.rows("SELECT * FROM history")}
    assert rows[jobs[1]]["job_type"] == "caf\ufffd"
    assert rows[jobs[3]]["job_type"] == "--all"
    with pytest.raises(Rejected, match="no job"):
        service.engine.cancel("--user=root")
    service.close()


def test_watching(lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Slurm's own scheduler places; nothing is changed, and the account has what happened."""
    engine = SlurmEngine(
        "open", lab.reports, watch=True, poll=0.25, environment=lab.cluster.environment
    )
    monkeypatch.setattr(engine, "_change", lambda *words: pytest.fail(f"scontrol {words}"))
    service = Service(engine, tmp_path / "state")
    until(service, lambda: service.ledger.books is not None)
    known = set(service.ledger.outcomes) | set(service.ledger.jobs)
    submit = ["sbatch", "--parsable", "-p", "open", "-o", "/dev/null", "-t", "5", "-N", "4"]
    script = "#!/bin/sh\nsleep 3\n"
    jobs = [lab.cluster.call(*submit, "--gres=gpu:4", text=script).strip() for _ in range(2)]
    until(service, lambda: set(jobs) <= set(service.ledger.outcomes))
    assert not known & set(jobs)
    rows = {r["job"]: r for r in service.store.rows("SELECT * FROM history")}
    first, second = (rows[job] for job in jobs)
    assert {p[0] for p in first["body"]["placed"]} == {"a1", "a2", "b1", "b2"}
    assert second["started"] - first["ended"] > -1.5
    assert second["first"] - second["submitted"] > 2.0
    assert not math.isnan(first["ended"])
    assert service.store.rows("SELECT * FROM intents") == []
    service.close()


@pytest.mark.parametrize("times", [1, 3])
def test_a_release_that_gets_no_answer_is_made_again(lab, tmp_path: Path, times: int):
    """The mark and the nodes are written by then, so that the job looks held by hand meanwhile."""
    engine = lab.engine()
    plain, failed = engine._run, list[tuple[str, ...]]()

    def run(*command: str, **more: Any) -> str:
        if "release" in command and len(failed) < times:
            failed.append(command)
            raise EngineError("no answer")
        return str(plain(*command, **more))

    engine._run = run
    service = Service(engine, tmp_path / "state", act=True)
    job = lab.submit(1.0, tasks=1)
    until(service, lambda: job in service.ledger.outcomes)
    assert len(failed) == times
    assert service.ledger.outcomes[job] == "finished"
    assert len(lab.ran(job)) == 1
    service.close()

"""What users and administrators ask of Slurm is kept, where GANGWISE_ENGINES names it.

GANGWISE_REQUESTS says how many requests are played (60), GANGWISE_SEED which (0).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gangwise.cli import app
from gangwise.engines.background import moment
from gangwise.engines.slurm import SlurmEngine
from gangwise.engines.slurm_requests import Mark, expand
from gangwise.service.loop import Service
from tests.engines import slurm_grammar as grammar
from tests.engines.slurm_cluster import SlurmCluster
from tests.engines.test_conformance import NAMED
from tests.service.test_loop import until

pytestmark = pytest.mark.full

slurm = pytest.mark.skipif("slurm" not in NAMED, reason="GANGWISE_ENGINES has no slurm")
REQUESTS = int(os.environ.get("GANGWISE_REQUESTS", "60"))
SEED = int(os.environ.get("GANGWISE_SEED", "0"))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    folder = tmp_path_factory.mktemp("slurm")
    one = SlurmCluster(folder, grammar.NODES, inside=",".join(sorted(grammar.INSIDE)))
    one.call(
        *("scontrol", "create", "reservation", "reservationname=kept", "nodes=b4"),
        *("users=root", "starttime=now", "duration=600"),
    )
    yield one
    one.stop()


@pytest.fixture
def service(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Service]:
    engine = SlurmEngine(poll=0.25, environment=cluster.environment)
    one = Service(engine, tmp_path / "state", "fcfs+easy+best-fit", act=True, start_timeout=20.0)
    yield one
    cluster.call("scancel", "-p", "gangwise,native")
    one.close()


@slurm
def test_no_request_is_narrowed(cluster: SlurmCluster, service: Service, tmp_path: Path) -> None:
    drawn = grammar.requests(SEED, REQUESTS)
    for one in drawn:
        grammar.submit(cluster, one, "native", tmp_path, "--test-only")
    taken = [one for one in drawn if one.job]  # by Slurm itself, with all nodes idle
    assert len(taken) > 0.8 * len(drawn)
    ended = 0
    for first in range(0, len(taken), 100):
        asked = taken[first : first + 100]
        for one in asked:
            grammar.submit(cluster, one, "gangwise", tmp_path)

        def over(asked: list[grammar.Asked] = asked) -> bool:
            service.tick(0.5)
            table = grammar.records(cluster)
            return all(one.held or grammar.over(one, table) for one in asked)

        last, ended_now = time.monotonic(), 0
        while not over() and time.monotonic() < last + 30.0:  # until nothing happens any more
            table = grammar.records(cluster)
            if (count := sum(grammar.over(one, table) for one in asked)) != ended_now:
                last, ended_now = time.monotonic(), count
        found = grammar.judged(asked, cluster, tmp_path)
        assert found["narrowed"] == {}
        # Some can never start, as -C[a*1&b*1] in a reservation of one node, and test-only says yes.
        assert grammar.starts_natively(found["waits"], cluster, tmp_path) == []
        assert found["held"] == sum(one.held for one in asked)
        for one in asked:  # those that are held would stay in the queue for ever
            if one.held:
                cluster.call("scancel", one.job)
        ended += found["ended"]
        print(f"{ended} of {len(taken)} ended, 0 narrowed", flush=True)
    assert service.counts["placed"] > len(taken) / 5, "some are placed, and not all left alone"


@slurm
def test_who_is_held_by_hand_stays_held(
    cluster: SlurmCluster, service: Service, tmp_path: Path
) -> None:
    cluster.call("scontrol", "update", "partitionname=gangwise", "state=down")
    names = ("born", "waits", "placed", "by itself")
    jobs = {name: grammar.Asked(("-n2", "-H") if name == "born" else ("-n2",)) for name in names}
    for name in ("born", "waits", "placed"):
        grammar.submit(cluster, jobs[name], "gangwise", tmp_path)
    cluster.call("scontrol", "hold", jobs["waits"].job)
    table = service.engine
    until(service, lambda: "placed" in [k.phase for k in service.ledger.jobs.values()])
    cluster.call("scontrol", "hold", jobs["placed"].job)
    cluster.call("scontrol", "update", "partitionname=gangwise", "state=up")
    held = {jobs[name].job for name in ("born", "waits", "placed")}
    until(service, lambda: held <= table.held().keys())
    for _ in range(8):
        service.tick(0.25)
    assert not list(tmp_path.glob("[0-9]*"))
    assert all("holds it" in table.held()[job] for job in held)
    told = service.explanation(jobs["placed"].job)["why"]
    assert "holds it" in told
    for name in ("born", "waits", "placed"):
        cluster.call("scontrol", "release", jobs[name].job)
    until(service, lambda: len(list(tmp_path.glob("[0-9]*"))) == 3)


ALIKE = (
    *("required_nodes", "excluded_nodes", "node_count", "max_nodes", "tasks", "cpus", "features"),
    *("admin_comment", "comment", "memory_per_node", "memory_per_cpu", "licenses", "resv_name"),
    *("tres_per_node", "tres_per_task", "tres_per_job", "tres_req_str", "dependency", "nice"),
    *("shared", "contiguous", "flags", "time_limit", "time_minimum", "deadline", "prefer"),
    *("minimum_cpus_per_node", "tasks_per_node", "array_task_string", "job_state", "name"),
)


def rows(cluster: SlurmCluster) -> dict[str, dict[str, Any]]:
    found = json.loads(cluster.call("squeue", "--json"))["jobs"]
    return {str(row["job_id"]): row for row in found}


@slurm
def test_detach_restores_each_job_to_the_byte(
    cluster: SlurmCluster, service: Service, tmp_path: Path
) -> None:
    """Beside twins that were only held and released; the service is gone for good."""
    for name in ("gangwise", "native"):
        cluster.call("scontrol", "update", f"partitionname={name}", "state=down")
    pairs = []
    for one in grammar.requests(SEED + 1, 50):
        twin = grammar.Asked(one.options)
        grammar.submit(cluster, one, "gangwise", tmp_path)
        grammar.submit(cluster, twin, "native", tmp_path, "-H")
        if twin.job and not twin.held:
            cluster.call("scontrol", "release", twin.job)
        if one.job and twin.job and not one.of("--deadline="):
            pairs.append((one, twin))
    until(service, lambda: service.counts["placed"] >= 8)
    marks = [Mark.of(row) for row in rows(cluster).values()]
    assert {mark.state for mark in marks if mark and mark.attempt} == {""}, "placed, not started"
    assert any(mark and mark.state == "left" for mark in marks)
    service.store.close()  # as far as Slurm can see it is dead
    done = CliRunner().invoke(
        app, ["detach", "--state", str(tmp_path / "none")], env=cluster.environment
    )
    assert done.exit_code == 0, done.output

    def unlike() -> list[Any]:
        now = rows(cluster)
        both = [(one.options, now[one.job], now[twin.job]) for one, twin in pairs]
        found = [(o, k, a[k], b[k]) for o, a, b in both for k in ALIKE if a[k] != b[k]]
        return found + [o for o, a, b in both if (a["priority"] == 0) != (b["priority"] == 0)]

    end = time.monotonic() + 5.0
    while unlike() and time.monotonic() < end:  # Slurm changes some as it looks at them again
        time.sleep(0.2)
    assert unlike() == []
    again = CliRunner().invoke(
        app, ["detach", "--state", str(tmp_path / "none")], env=cluster.environment
    )
    assert "0 jobs given back" in again.output
    for name in ("gangwise", "native"):
        cluster.call("scontrol", "update", f"partitionname={name}", "state=up")


def test_detach_waits_for_silence(tmp_path: Path) -> None:
    (tmp_path / "heartbeat").write_text(json.dumps(moment()))
    run = CliRunner().invoke
    told = run(app, ["detach", "--state", str(tmp_path), "--if-silent", "600"])
    assert (told.exit_code, told.output) == (0, "")
    told = run(app, ["detach", "--state", str(tmp_path)])
    assert told.exit_code != 0
    assert "stop it first" in f"{told.output}{told.exception}"


@pytest.mark.parametrize(
    "mark",
    [
        Mark(),
        Mark(text="the site's | own"),
        Mark(3, 1, "n1:2,n2:1", "n[1-2]", 2, "held", True, "x"),
        Mark(1, 0, "n1:1"),
        Mark(state="left"),
    ],
)
def test_marks_are_read_as_they_are_written(mark: Mark) -> None:
    assert Mark.of({"admin_comment": str(mark)}) == mark


@pytest.mark.parametrize("text", ["n[", "n[1-", "n[a]", "n[1-999999999]", "n[1-2", "n1 n2"])
def test_a_list_of_nodes_that_is_none(text: str) -> None:
    assert expand(text) is None


def test_a_list_of_nodes_with_brackets_in_the_middle() -> None:
    assert expand("r[1-2]n[1,3]") == {"r1n1", "r1n3", "r2n1", "r2n3"}
    assert expand("n[09-10]-ib,login") == {"n09-ib", "n10-ib", "login"}

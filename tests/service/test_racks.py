"""Gangs near one another on real clusters: in one rack where one has room, and elsewhere if not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangwise.service.loop import Service
from tests.engines.test_conformance import REAL, start
from tests.service.test_loop import until


def racks(name: str, scheduler: str, folder: Path) -> list[list[str]]:
    """Nodes of three gangs, of 6 tasks, of 6 on nodes that it names, and of 12.

    Two racks of two nodes with 4 GPUs; in each, one GPU is in use.
    """
    lab = start(name, folder)
    service = Service(lab.engine(), folder / "state", scheduler, act=True)
    nodes = []
    try:
        # Slurm is told how many run on a node, for else it tells itself.
        more = {"per_node": 3} if name == "slurm" else {}
        ones = [lab.submit(600.0, model=model) for model in "ab"]
        jobs = service.ledger.jobs
        until(service, lambda: all(j in jobs and jobs[j].phase == "running" for j in ones))
        for tasks, model in ((6, ""), (6, "b"), (12, "")):
            gang = lab.submit(1.0, tasks, model=model, **more)
            until(service, lambda gang=gang: gang in service.ledger.outcomes)
            assert service.ledger.outcomes[gang] == "finished"
            nodes.append(sorted({node for node, _ in lab.ran(gang)}))
    finally:
        service.close()
        lab.stop()
    return nodes


@pytest.mark.parametrize("name", REAL)
def test_a_gang_is_placed_in_one_rack_and_its_request_is_kept(name: str, tmp_path: Path) -> None:
    one, named, wide = racks(name, "fcfs+easy+distance", tmp_path)
    assert one in (["a1", "a2"], ["b1", "b2"])
    assert named == ["b1", "b2"]
    assert {node[0] for node in wide} == {"a", "b"}  # no rack holds it; it starts all the same


def test_best_fit_spreads_the_same_gang(tmp_path: Path) -> None:
    one, named, _ = racks("local", "fcfs+easy+best-fit", tmp_path)
    assert {node[0] for node in one} == {"a", "b"}
    assert named == ["b1", "b2"]

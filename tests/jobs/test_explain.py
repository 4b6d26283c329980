"""Why jobs wait, by hand: what holds them back, whose end frees them, when they start."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gangwise.core.errors import UnknownName
from gangwise.jobs import Conditions, Explanation, Jobs, Node, Nodes, Options, create_scheduler
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.simulation import JobSimulation, Tables
from gangwise.jobs.waiting import CAUSES, waiting_causes
from gangwise.sites.site import Site
from tests.jobs.middle import MiddleCase, SiteCase


def told(scheduler: Any, jobs: Jobs, nodes: Nodes, until: float, **happens: Any) -> Any:
    """The scheduler after the rounds up to an instant."""
    scheduler = create_scheduler(scheduler)
    tables = Tables.of(jobs, nodes, Conditions(**happens), Options())
    simulation = JobSimulation(tables, scheduler)
    while simulation.now < until and simulation.step():
        pass
    return scheduler


def four() -> Jobs:
    """On 4 devices: a has 3 until 100, b 1 until 50; c wants 2, d wants 4, e wants 1."""
    return Jobs.of(
        [0, 0, 1, 2, 3],
        [90, 40, 10, 10, 500],
        [3, 1, 2, 4, 1],
        id=list("abcde"),
        limit=[100, 50, 20, 30, 500],
    )


@pytest.mark.parametrize("name", ["fcfs+none+best-fit", "fcfs+easy+best-fit", "las"])
def test_expected_starts_and_whose_end_brings_them(name: str) -> None:
    """c starts when a ends, at 100; d when c has ended, at 120; e behind d, at 150, or at 50."""
    scheduler = told(name, four(), Nodes.pool(4), 3.0)
    first = scheduler.explain("c")
    assert first.constraint == "2 tasks of 1 cpu do not fit on what is free"
    assert (first.until, first.start, first.frees, first.nodes) == (100.0, 100.0, ("a",), ())
    assert "the end of a would let it start; expected start 100 s" in str(first)
    second = scheduler.explain("d")
    assert (second.start, second.frees) == (120.0, ("c",))
    assert scheduler.explain("e").start == 150.0
    with pytest.raises(UnknownName, match="waiting job"):
        scheduler.explain("a")


def test_under_conservative_backfilling_it_is_the_reservation() -> None:
    scheduler = told("fcfs+conservative+best-fit", four(), Nodes.pool(4), 3.0)
    assert scheduler.explain("d").constraint == "its reservation is for later"
    assert [scheduler.explain(name).start for name in "cde"] == [100.0, 120.0, 150.0]


def test_a_label_that_no_node_has_now() -> None:
    nodes = Nodes.of([Node("x", {"gpu": 2}, {"rack": "1"}), Node("y", {"gpu": 2}, {"rack": "2"})])
    jobs = Jobs.of([0, 5], [100, 10], 1, {"gpu": 1}, id=["a", "b"], constraint=[{}, {"rack": "2"}])
    scheduler = told("fcfs+easy+best-fit", jobs, nodes, 5.0, drains=[(2.0, 1)])
    assert scheduler.explain("b") == Explanation(
        "b", "no node that is up has rack=2", (), 5.0, np.inf, cause="away"
    )


def test_gavel_says_whose_turn_it_is() -> None:
    """Of two jobs for one device, one has the first round."""
    jobs = Jobs.of([0, 0], [3600, 3600], 1, {"gpu": 1}, id=["a", "b"], limit=5000)
    scheduler = told("gavel:seconds=360", jobs, Nodes.of([Node("n", {"gpu": 1})]), 0.0)
    said = scheduler.explain("b")
    assert (said.since, said.start, said.frees) == (0.0, 5000.0, ("a",))


@pytest.mark.parametrize("seed", [1, 5, 14, 17, 19, 20, 25, 28])
def test_what_is_said_meanwhile_adds_up_to_the_causes_of_the_replay(seed: int) -> None:
    """Each waiting job is asked after every event; hours by cause are those told in the end."""
    case = SiteCase(seed) if seed % 3 else MiddleCase(seed, small=True)
    jobs, nodes, conditions = case.jobs, case.nodes, case.conditions
    options = case.options
    if case.rules is not None:
        site = Site(case.rules)
        jobs, nodes, conditions = site.placed(jobs, nodes, conditions)
        options = site.options(options)
    scheduler = create_scheduler("fcfs+easy+first-fit")
    simulation = JobSimulation(Tables.of(jobs, nodes, conditions, options), scheduler)
    said, before, begun = np.zeros((len(jobs), len(CAUSES))), dict[int, str](), set[int]()
    last = 0.0
    while simulation.step():
        for j, cause in before.items():
            said[j, CAUSES.index(cause)] += simulation.now - last
        last = simulation.now
        begun |= {running.job.row for running in simulation.books.running.values()}
        waiting = (job for job in simulation.waiting if job.row not in begun)
        before = {job.row: scheduler.explain(job.id).cause for job in waiting}
    outcome = Outcome.of(simulation.schedule(), "")
    told = waiting_causes(outcome, conditions, options).seconds
    told[:, CAUSES.index("kept")] += told[:, CAUSES.index("unseen")]
    for cause in ("unseen", "after", "latency"):  # of the last two it is no job that waits
        told[:, CAUSES.index(cause)] = 0.0
    rows = outcome.queued & (outcome.waiting > 0)
    assert told[rows].any()
    np.testing.assert_allclose(said[rows], told[rows], atol=1e-6)

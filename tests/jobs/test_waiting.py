"""Where the waiting went: against counting from scratch, and against taking the cause away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gangwise.jobs import Conditions, Jobs, Nodes, Options, simulate_jobs
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.tenancy import Reservation, Tenancy
from gangwise.jobs.waiting import CAUSES, waiting_causes
from gangwise.sites.site import Site
from tests.jobs.middle import MiddleCase, SiteCase
from tests.reference.waiting import NAMES, split


def _of(case: MiddleCase, reservations: bool = False):
    """The outcome of a case, and what it was played under."""
    conditions, options = case.conditions, case.options
    if case.rules is not None:
        site = Site(case.rules)
        _, _, conditions = site.placed(case.jobs, case.nodes, case.conditions)
        options = site.options(case.options)
    outcome = Outcome.of(case.played(), "")
    if reservations:  # no scheduler of these cases keeps them: the schedule is as it is
        last = int(case.jobs.submit.max())
        kept = Reservation("r", last * 0.2, last * 0.5 + 5, outcome.nodes.names[:2])
        options = replace(options, tenancy=Tenancy(reservations=(kept,)))
    return outcome, conditions, options


def _cases(count: int):
    for seed in range(count):
        if seed % 3:
            yield seed, *_of(SiteCase(seed), seed % 9 == 1)
        else:
            yield seed, *_of(MiddleCase(seed, small=seed % 2 == 0), seed % 9 == 3)


def _agrees(count: int) -> set[str]:
    """That causes are those counted from scratch; gives those that occurred."""
    occurred = set()
    for seed, outcome, conditions, options in _cases(count):
        if len(outcome.jobs) > 120 or not outcome.queued.any():
            continue
        causes = waiting_causes(outcome, conditions, options)
        expected = split(outcome, conditions, options)
        np.testing.assert_allclose(causes.seconds, expected, atol=1e-6, err_msg=f"seed {seed}")
        waits = outcome.waiting[outcome.queued]
        sums = causes.seconds[outcome.queued].sum(axis=1)
        assert (np.abs(sums - waits) <= np.spacing(waits)).all()
        total = causes.total
        charged = total.get("busy", 0) + total.get("overtaken", 0)
        # Devices that nobody holds, as where no node is up, are charged to nobody.
        assert causes.holders.sum() <= charged * (1 + 1e-9)
        assert causes.kept_for.sum() == pytest.approx(total.get("kept", 0))
        assert sum(causes.caps.values()) == pytest.approx(total.get("cap", 0))
        occurred |= total.keys()
    return occurred


def test_causes_are_those_counted_from_scratch():
    assert NAMES == CAUSES
    assert _agrees(40) >= {*CAUSES} - {"reservation"}

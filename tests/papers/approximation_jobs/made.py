"""Small instances for the tests."""

from __future__ import annotations

import numpy as np

from gangwise.core.simulation import Streams
from gangwise.papers.approximation_jobs.environment import ApproximationInstance
from gangwise.papers.approximation_jobs.problem import (
    ApproximationProblem,
    ReplayedJobs,
    ReplayedRates,
)


def instance(jobs, prices=(1.0, 1.0), rates=None, enforce=True, **more):
    """Given jobs on machines of given prices; every rate is 1 unless given, [slots][M]."""
    prices = np.array(prices, dtype=float)
    table = np.ones((1, prices.size)) if rates is None else rates
    problem = ApproximationProblem(prices, horizon=50, enforce=enforce)
    return ApproximationInstance(problem, ReplayedRates(table), ReplayedJobs(jobs), **more)


def started(made, seed=0):
    """A fresh environment, started."""
    streams, environment = Streams.of(seed), made.environment()
    environment.start(streams.workload, streams.noise)
    return environment


def play(environment, decisions):
    """Outcomes of given decisions from slot 0 on."""
    outcomes = []
    for t, decision in enumerate(decisions):
        environment.observe(t, "react")
        outcomes.append(environment.step(t, np.array(decision)))
    return outcomes


def metric(environment, outcomes, name):
    """One metric of several outcomes."""
    n = environment.metrics.index(name)
    return [outcome.metrics[n] for outcome in outcomes]

"""From the tables of a trace to approximation jobs on unreliable machines.

The trace gives arrivals and ends of jobs, and when machines come and go; steps are settings
(:class:`~gangwise.traces.jobs_settings.JobsSettings`), and what they leave out is in the fidelity
report:

1. jobs: rows of one ``job`` are one job, there from the first creation to the last deletion;
2. window: from where ``skip`` of the jobs have been created, ``hours`` long, or until the last
   creation; jobs that come before it or after it are left out, and end with it at the latest;
3. slots: the window is cut into ``slots`` of them, or into slots of length ``slot``; a job arrives
   in the slot that it is created in, and its deadline is the first slot that begins after its end,
   one slot later at least;
4. machines: as many as the trace has, or ``machines``; one that is down in any part of a slot is
   away in it;
5. drawn: budgets q (d - a) M / 1000 and values as in §VI of the OPM paper, rates of machines.

Budgets are of the lifetime that is left in the window, for jobs that outlast it. What jobs request
is not used: a task of this family takes a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.approximation_jobs.offline import ComparedInstance
from gangwise.approximation_jobs.problem import ApproximationProblem, Job
from gangwise.approximation_jobs.processes import JobStream, Outage, ReplayedJobs, rate_generator
from gangwise.approximation_jobs.rates import GammaPeriods
from gangwise.approximation_jobs.workloads import load_of, paper_jobs, price_machines
from gangwise.core.errors import TraceError
from gangwise.core.simulation import Streams
from gangwise.scenarios.drawing import checked
from gangwise.traces.fidelity import Fidelity, Stage
from gangwise.traces.jobs_settings import JobsSettings, MachineSettings
from gangwise.traces.lifetimes import Window, lifetimes_of, outages_of
from gangwise.traces.saved import fingerprint
from gangwise.traces.settings import seconds
from gangwise.traces.trace import Tables, Trace

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReplayedLifetimes:
    """Jobs with the arrivals and deadlines of a trace; budgets and values are drawn.

    Two numbers per job of the window are drawn, and one more that decides whether it is kept, so
    that thinning changes nothing about the jobs that remain.

    Parameters
    ----------
    names : sequence of str or int
        Of the jobs, by arrival.
    arrival, end : ndarray of shape [n]
        Seconds since the window began.
    length : float
        Of the window, in seconds.
    slots, machines : int
    settings : MachineSettings
    """

    names: tuple[str | int, ...]
    arrival: Floats
    end: Floats
    length: float
    slots: int
    machines: int
    settings: MachineSettings

    @cached_property
    def span(self) -> tuple[Ints, Ints]:
        """Arrivals and deadlines, in slots."""
        slot = self.length / self.slots
        a = np.minimum((self.arrival / slot).astype(np.int64), self.slots - 1)
        d = np.ceil(self.end / slot - 1e-9).astype(np.int64)
        return a, np.clip(d, a + 1, self.slots)

    def jobs(self, rng: np.random.Generator) -> list[Job]:
        """Draw the jobs, by arrival; ids are those of the trace."""
        s, (a, d) = self.settings, self.span
        drawn = paper_jobs(rng, a, d, self.machines, s.beta, s.q, s.value, self.names)
        kept = rng.random(a.size) < s.keep
        return [job for job, keep in zip(drawn, kept) if keep]

    def stream(self, rng: np.random.Generator) -> JobStream:
        """Draw all jobs, to be handed out slot by slot."""
        return ReplayedJobs(self.jobs(rng)).stream(rng)

    def instance(self, seed: int, outages: tuple[Outage, ...] = ()) -> ApproximationInstance:
        """These jobs on machines whose rates are drawn."""
        s = self.settings
        rates = GammaPeriods(
            self.machines, time_scale=s.time_scale, stationary=s.stationary, per_period=s.per_period
        )
        prices = price_machines(rates, s.pricing, self.slots, rate_generator(seed))
        problem = ApproximationProblem(prices, horizon=self.slots)
        kind = ComparedInstance if s.comparators else ApproximationInstance
        return kind(problem, rates, self, outages=outages)

    def told(self, base: Fidelity) -> Fidelity:
        """The report of a trace, with the load that these jobs make."""
        s, (a, d) = self.settings, self.span
        jobs = self.jobs(Streams.of(0).workload)
        price = float(price_machines(GammaPeriods(1), "population", 1, Streams.of(0).noise)[0])
        load = load_of(jobs, np.full(self.machines, price), self.slots)
        slot, life = self.length / self.slots, d - a
        notes = (
            f"{self.slots} slots of {slot:.3g} s; lifetimes in slots: mean {life.mean():.0f}, "
            f"median {np.median(life):.0f}, 1 % at most {np.quantile(life, 0.01):.0f}, "
            f"1 % at least {np.quantile(life, 0.99):.0f}",
            f"{(d - a).sum() / self.slots:.3g} jobs of the trace are active in a mean slot",
            f"load Σ B / (p M T) with the budgets of seed 0 and p = {price:.4f}: {load:.3g}",
        )
        stages = base.stages
        if s.keep < 1:
            why = {f"thinned to {s.keep:g}, seed 0": (base.jobs - len(jobs), 1)}
            stages = (*stages, Stage("keep", base.jobs, len(jobs), why))
        return replace(
            base, stages=stages, servers=self.machines, jobs=len(jobs), notes=(*base.notes, *notes)
        )

    def summary(self) -> dict[str, float]:
        """Arrivals and lifetimes, for tables."""
        a, d = self.span
        life = d - a
        return {
            "jobs": float(a.size),
            "arrivals_per_slot": self.settings.keep * a.size / self.slots,
            "active_per_slot": self.settings.keep * float(life.sum()) / self.slots,
            "lifetime_mean_slots": float(life.mean()),
            "lifetime_median_slots": float(np.median(life)),
            "lifetime_p99_slots": float(np.quantile(life, 0.99)),
        }


class JobsTraceScenario:
    """A trace, played as approximation jobs; the seed draws what the trace does not tell.

    Parameters
    ----------
    trace : Trace or Tables
        A reader, or what one has read.
    name : str, optional
    **settings
        Fields of :class:`~gangwise.traces.jobs_settings.JobsSettings`.

    Attributes
    ----------
    tables : Tables
    workload : ReplayedLifetimes
    outages : tuple of Outage

    Raises
    ------
    TraceError
        When the trace cannot be read, has no jobs with times, or does not say how many machines
        there are.
    ScenarioError
        Names the setting at fault.
    """

    family = "approximation_jobs"

    def __init__(self, trace: Trace | Tables, *, name: str = "", **settings: Any):
        self.tables = tables = trace if isinstance(trace, Tables) else trace.scan()
        self.name = name or f"trace-{tables.trace}-jobs-v1"
        self.settings = s = checked(JobsSettings, self.name, settings)
        if s.machines is None and tables.servers.is_empty():
            raise TraceError(
                "the files here do not say which servers there are: set machines (how many)"
            )
        M = s.machines or len(tables.servers)
        every = None if s.slot is None else seconds(s.slot)
        found = lifetimes_of(tables, Window(s.skip, s.hours, s.slots, every))
        self.workload = ReplayedLifetimes(
            found.names, found.arrival, found.end, found.length, found.slots, M, s
        )
        self.outages, more = outages_of(tables, M, found)
        self._fidelity = self.workload.told(
            replace(found.fidelity, notes=(*found.fidelity.notes, *more))
        )

    @property
    def slots(self) -> int:
        """T."""
        return self.workload.slots

    def describe(self) -> dict[str, Any]:
        """The settings, and what they were applied to: the files, and what was made of them."""
        w = self.workload
        away = np.array([(o.machine, o.first, o.back) for o in self.outages], dtype=np.int64)
        return {
            "trace": self._fidelity.trace,
            "files": dict(self._fidelity.digests),
            "workload": fingerprint(*w.span, away, np.array([w.slots, w.machines])),
            **self.settings.model_dump(mode="json"),
        }

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and the load that the jobs make."""
        return self._fidelity

    def instance(self, seed: int) -> ApproximationInstance:
        """Draw the instance of a seed."""
        return self.workload.instance(seed, self.outages)

r"""The scenario of §VI of the OPM paper: jobs of the Google trace on 1000 unreliable machines.

The trace gives arrivals and ends; everything else is drawn, as the settings state. Two things that
the paper does not say are decided here. *Time*: the window of 10 hours is the 50,000 units of time
that the rates are generated for, so that a slot is 0.72 s; a job arrives in the slot that it is
submitted in, and its deadline is the first slot that begins after its end, one slot later at least.
*Budgets* are of the lifetime that is left in the window, for jobs that outlast it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from gangwise.approximation_jobs.environment import ApproximationInstance, rate_generator
from gangwise.approximation_jobs.offline import ComparedInstance
from gangwise.approximation_jobs.problem import ApproximationProblem, Job
from gangwise.approximation_jobs.processes import JobStream, ReplayedJobs
from gangwise.approximation_jobs.rates import GammaPeriods
from gangwise.approximation_jobs.workloads import load_of, paper_jobs, price_machines
from gangwise.core.errors import ScenarioError
from gangwise.core.streams import Streams
from gangwise.scenarios.drawn import checked
from gangwise.traces.fidelity import Fidelity, Stage
from gangwise.traces.google_2011 import GoogleJobEvents, Lifetimes

__all__ = ["GoogleJobs", "GoogleScenario", "Settings"]

Ints = npt.NDArray[np.int64]


class Settings(BaseModel):
    """Parameters, with the distribution of everything that is drawn."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    folder: str = Field("", description="where the parts of job_events are")
    hours: float = Field(10.0, gt=0, description="length of the window, from the trace's start on")
    present: Literal["drop", "start"] = Field(
        "drop", description="jobs that were there before the trace begins: left out, since their "
        "arrival is not known, or arriving at the start",
    )  # fmt: skip
    machines: PositiveInt = Field(1000, description="M")
    slots: PositiveInt = Field(50_000, description="T: the window is cut into so many slots")
    keep: float = Field(
        1.0, gt=0, le=1, description="probability that a job is kept; 0.5: lightly loaded"
    )
    beta: float = Field(0.5, gt=0, le=1, description="β of f(X) = v X^β")
    q: tuple[float, float] = Field(
        (2.0, 100.0), description="B = q · (d - a) · machines / 1000, q uniform in this range"
    )
    value: tuple[float, float] = Field((1.0, 5.0), description="v of each job: uniform")
    pricing: Literal["population", "realised"] = Field(
        "population", description="p = 2 · mean rate: of the law of the rates, the same for all "
        "machines; or of each machine over the run, which makes all of them equally good value",
    )  # fmt: skip
    time_scale: float = Field(
        1.0, gt=0, description="slots per unit of time of the Gamma periods; the paper has no unit"
    )
    per_period: bool = Field(False, description="one rate per period rather than one per slot")
    comparators: bool = Field(
        False, description="hold runs against the offline optima; some minutes each at full size"
    )
    stationary: bool = Field(True, description="begin in the stationary distribution")


@dataclass(frozen=True, eq=False)
class GoogleJobs:
    """Jobs with the arrivals and deadlines of the trace; budgets and values are drawn.

    Two numbers per job of the window are drawn, and one more that decides whether it is kept, so
    that thinning changes nothing about the jobs that remain.

    Parameters
    ----------
    lifetimes : Lifetimes
    settings : Settings
    """

    lifetimes: Lifetimes
    settings: Settings

    @cached_property
    def span(self) -> tuple[Ints, Ints]:
        """Arrivals and deadlines, in slots."""
        s = self.settings
        slot = s.hours * 3600.0 / s.slots
        a = np.minimum((self.lifetimes.arrival / slot).astype(np.int64), s.slots - 1)
        d = np.ceil(self.lifetimes.end / slot - 1e-9).astype(np.int64)
        return a, np.clip(d, a + 1, s.slots)

    def jobs(self, rng: np.random.Generator) -> list[Job]:
        """Draw the jobs, by arrival; ids are those of the trace."""
        s, (a, d) = self.settings, self.span
        drawn = paper_jobs(
            rng, a, d, s.machines, s.beta, s.q, s.value, self.lifetimes.job.tolist()
        )
        kept = rng.random(a.size) < s.keep
        return [job for job, keep in zip(drawn, kept) if keep]

    def stream(self, rng: np.random.Generator) -> JobStream:
        """Draw all jobs, to be handed out slot by slot."""
        return ReplayedJobs(self.jobs(rng)).stream(rng)


class GoogleScenario:
    """The jobs of Google ClusterData 2011 on machines with Gamma periods.

    Parameters
    ----------
    trace : GoogleJobEvents, optional
        Read from ``folder`` when not given.
    **settings
        Fields of :class:`Settings`.

    Raises
    ------
    ScenarioError, UnknownName
        Names the setting at fault.
    TraceError
        When the trace cannot be read.
    """

    family = "approximation_jobs"

    def __init__(
        self,
        *,
        name: str = "opm-google-v1",
        trace: GoogleJobEvents | None = None,
        **settings: Any,
    ):
        self.name = name
        if trace is not None:
            settings = {"hours": trace.hours, "present": trace.present, **settings}
            settings["folder"] = str(trace.path)
        self.settings = s = checked(Settings, name, settings)
        for what, (low, high) in (("q", s.q), ("value", s.value)):
            if not 0 < low <= high:
                raise ScenarioError(f"scenario {name!r}: {what} must be a range, 0 < low ≤ high")
        if trace is None:
            if not s.folder:
                raise ScenarioError(
                    f"scenario {name!r} needs folder=, where the parts of job_events are; see "
                    "gangwise.traces.google_2011 for where to get them"
                )
            trace = GoogleJobEvents(Path(s.folder), hours=s.hours, present=s.present)
        self.trace = trace
        self.workload = GoogleJobs(trace.lifetimes(), s)

    @property
    def slots(self) -> int:
        """T."""
        return self.settings.slots

    def describe(self) -> dict[str, Any]:
        """The settings, and which files they were applied to."""
        files = dict(self.trace.fidelity().digests)
        return {"files": files, **self.settings.model_dump(mode="json")}

    def instance(self, seed: int) -> ApproximationInstance:
        """Draw the instance of a seed."""
        s = self.settings
        rates = GammaPeriods(
            s.machines, time_scale=s.time_scale, stationary=s.stationary, per_period=s.per_period
        )
        prices = price_machines(rates, s.pricing, s.slots, rate_generator(seed))
        problem = ApproximationProblem(prices, horizon=s.slots)
        kind = ComparedInstance if s.comparators else ApproximationInstance
        return kind(problem, rates, self.workload)

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and the load that the jobs make."""
        s, base = self.settings, self.trace.fidelity()
        a, d = self.workload.span
        jobs = self.workload.jobs(Streams.of(0).workload)
        price = float(price_machines(GammaPeriods(1), "population", 1, Streams.of(0).noise)[0])
        load = load_of(jobs, np.full(s.machines, price), s.slots)
        slot, life = s.hours * 3600.0 / s.slots, d - a
        notes = (
            f"{s.slots} slots of {slot:.3g} s; lifetimes in slots: mean {life.mean():.0f}, "
            f"median {np.median(life):.0f}, 1 % at most {np.quantile(life, 0.01):.0f}, "
            f"1 % at least {np.quantile(life, 0.99):.0f}",
            f"{(d - a).sum() / s.slots:.3g} jobs of the trace are active in a mean slot",
            f"load Σ B / (p M T) with the budgets of seed 0 and p = {price:.4f}: {load:.3g}",
        )
        stages = base.stages
        if s.keep < 1:
            why = {f"thinned to {s.keep:g}, seed 0": (base.jobs - len(jobs), 1)}
            stages = (*stages, Stage("keep", base.jobs, len(jobs), why))
        return replace(
            base, stages=stages, servers=s.machines, jobs=len(jobs), notes=(*base.notes, *notes)
        )

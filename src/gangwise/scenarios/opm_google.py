r"""The scenario of §VI of the OPM paper: jobs of the Google trace on 1000 unreliable machines.

The trace gives arrivals and ends; everything else is drawn, as the settings state. Two things that
the paper does not say are decided here. *Time*: the window of 10 hours is the 50,000 units of time
that the rates are generated for, so that a slot is 0.72 s; a job arrives in the slot that it is
submitted in, and its deadline is the first slot that begins after its end, one slot later at least.
*Budgets* are of the lifetime that is left in the window, for jobs that outlast it.

:mod:`gangwise.traces.jobs_workload` makes the same of any trace.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PositiveInt

from gangwise.approximation_jobs.environment import ApproximationInstance
from gangwise.core.errors import ScenarioError
from gangwise.scenarios.drawn import checked
from gangwise.traces.fidelity import Fidelity
from gangwise.traces.google_2011_jobs import GoogleJobEvents
from gangwise.traces.jobs_settings import MachineSettings
from gangwise.traces.jobs_workload import ReplayedLifetimes

__all__ = ["GoogleScenario", "Settings"]


class Settings(MachineSettings):
    """Parameters, with the distribution of everything that is drawn."""

    folder: str = Field("", description="where the parts of job_events are")
    hours: float = Field(10.0, gt=0, description="length of the window, from the trace's start on")
    present: Literal["drop", "start"] = Field(
        "drop", description="jobs that were there before the trace begins: left out, since their "
        "arrival is not known, or arriving at the start",
    )  # fmt: skip
    machines: PositiveInt = Field(1000, description="M")
    slots: PositiveInt = Field(50_000, description="T: the window is cut into so many slots")


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
        if trace is None:
            if not s.folder:
                raise ScenarioError(
                    f"scenario {name!r} needs folder=, where the parts of job_events are; see "
                    "gangwise.traces.google_2011 for where to get them"
                )
            trace = GoogleJobEvents(Path(s.folder), hours=s.hours, present=s.present)
        self.trace, found = trace, trace.lifetimes()
        self.workload = ReplayedLifetimes(
            tuple(found.job.tolist()), found.arrival, found.end, s.hours * 3600.0, s.slots,
            s.machines, s,
        )  # fmt: skip

    @property
    def slots(self) -> int:
        """T."""
        return self.settings.slots

    def describe(self) -> dict[str, Any]:
        """The settings, and which files they were applied to."""
        files = dict(self.trace.fidelity().digests)
        return {"files": files, **self.settings.model_dump(mode="json", exclude={"folder"})}

    def instance(self, seed: int) -> ApproximationInstance:
        """Draw the instance of a seed."""
        return self.workload.instance(seed)

    def fidelity(self) -> Fidelity:
        """What was read, what was left out, and the load that the jobs make."""
        return self.workload.told(self.trace.fidelity())

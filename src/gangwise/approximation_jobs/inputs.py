"""What a run is fed with, drawn some slots ahead: rates, jobs, and delays of feedback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gangwise.approximation_jobs.problem import ApproximationProblem, Job
from gangwise.approximation_jobs.processes import JobStream, RateStream
from gangwise.core.delivery import Delivery
from gangwise.core.errors import ScenarioError
from gangwise.core.streams import Streams

__all__ = ["BLOCK", "Inputs", "rate_generator", "split"]

BLOCK = 256  # slots drawn at a time


def split(noise: np.random.Generator) -> tuple[np.random.Generator, np.random.Generator]:
    """Generators of the rates, and of the fate of feedback."""
    rates, fate = noise.spawn(2)
    return rates, fate


def rate_generator(seed: int) -> np.random.Generator:
    """The generator that the rates of a run are drawn from, as it begins."""
    return split(Streams.of(seed).noise)[0]


@dataclass(eq=False)
class Inputs:
    """Blocks of rates, jobs and delays; slots are asked for in order.

    Raises
    ------
    ScenarioError
        For rates outside [0, 1] or for the wrong number of machines, and for jobs that come in
        another slot than they say or could never run; names the slot, and the machine or job.
    """

    problem: ApproximationProblem
    rates: RateStream
    jobs: JobStream
    delivery: Delivery
    fate: np.random.Generator
    _first: int = 0
    _rates: npt.NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    _jobs: Sequence[Sequence[Job]] = ()
    _delays: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    def at(self, slot: int) -> tuple[npt.NDArray[np.float64], Sequence[Job], int]:
        """Rates θ_i^t [M], the jobs that arrive, and the delay of feedback (−1: lost)."""
        while slot >= self._first + len(self._rates):
            self._first += len(self._rates)
            self._draw()
        n = slot - self._first
        return self._rates[n], self._jobs[n], int(self._delays[n])

    def _draw(self) -> None:
        rates = np.asarray(self.rates.draw(BLOCK), dtype=np.float64)
        if rates.shape != (BLOCK, self.problem.M):
            raise ScenarioError(
                f"rates from slot {self._first} on have shape {rates.shape}; expected {BLOCK} "
                f"slots by {self.problem.M} machines"
            )
        bad = np.argwhere(~((rates >= 0) & (rates <= 1)))
        if len(bad):
            t, i = bad[0]
            raise ScenarioError(
                f"slot {self._first + t}, machine {self.problem.machines[i]!r}: rate is "
                f"{rates[t, i]}; rates lie in [0, 1]"
            )
        jobs = self.jobs.draw(BLOCK)
        for n, each in enumerate(jobs):
            for job in each:
                if job.arrival != self._first + n:
                    raise ScenarioError(
                        f"job {job.id!r} comes in slot {self._first + n}, but says that it arrives "
                        f"in slot {job.arrival}"
                    )
                self.problem.admit(job)
        self._rates, self._jobs = rates, jobs
        self._delays = self.delivery.draw(BLOCK, self.fate)

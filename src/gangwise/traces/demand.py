"""What the jobs of a trace ask of which servers, slot by slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gangwise.traces.devices import QUANTITIES
from gangwise.traces.fidelity import Fidelity
from gangwise.traces.grouping import Grouping

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Demand:
    """Job types of a trace, the servers that they fit on, and their arrivals.

    Attributes
    ----------
    servers : polars.DataFrame
        As in :class:`~gangwise.traces.trace.Tables`, by name.
    grouping : Grouping
        Job types, and the job type of every job that is played.
    fits : ndarray of bool, shape [L, R]
        Whether a server can hold a job of the type whole.
    names : tuple of str
        Of the job types.
    counts : ndarray of int64, shape [slots, L]
        Jobs of each job type created in each slot, before ``keep``; no slots where the files have
        no jobs, so that each job type arrives in a slot with probability ``keep``.
    lifetime : ndarray of shape [L]
        Median time from creation to deletion, in seconds; nan when not known.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu``.
    fidelity : Fidelity
        What was read, left out and changed up to here.
    """

    servers: pl.DataFrame
    grouping: Grouping
    names: tuple[str, ...]
    fits: Mask
    counts: Ints
    lifetime: Floats
    units: Mapping[str, str]
    fidelity: Fidelity

    def rows(self, keep: float) -> list[dict[str, Any]]:
        """A row per job type, for tables: requests, servers that fit, arrivals, lifetimes."""
        rate = self.counts.mean(axis=0) if len(self.counts) else np.ones(len(self.names))
        return [
            {
                "job_type": name,
                **dict(zip(QUANTITIES, map(float, self.grouping.requests[l]))),
                "models": self.grouping.models[l],
                "fits_on": int(self.fits[l].sum()),
                "arrivals_per_slot": float(keep * rate[l]),
                "median_lifetime_s": (
                    None if np.isnan(self.lifetime[l]) else float(self.lifetime[l])
                ),
            }
            for l, name in enumerate(self.names)
        ]

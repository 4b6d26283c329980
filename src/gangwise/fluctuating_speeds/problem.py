"""The problem of ESDP §2: channels on or off, cluster-wide capacities, what supply costs.

Policies are told all of this. They are not told the mean utility of any channel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Channels
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.fluctuating_speeds.pool import Pool

__all__ = ["FluctuatingSpeedsProblem"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

TOLERANCE = 1e-9
"""A capacity counts as kept when it is exceeded by no more than this, relative to 1 + its size."""


@dataclass(frozen=True, eq=False)
class FluctuatingSpeedsProblem:
    """Channels, what they request, what there is, and what supply costs.

    Parameters
    ----------
    cluster : Pool
        Servers, and the capacity c_k [K] that all of them share, (2).
    requests : ndarray of shape [E, K]
        a_k^(l,r): devices that channel e = (l, r) holds while it is on. A channel may do without
        some device type, but not without all of them.
    channels : Channels
        Job type and server of each channel, sorted by server.
    cost : ndarray of shape [E]
        Σ_k f_k(a_k^(l,r)): supply cost of each channel, in units of utility (see :mod:`.costs`).
    job_types : tuple of str, optional
        Names, length L.

    Raises
    ------
    ScenarioError
        Names the channel and device type at fault.

    Examples
    --------
    >>> problem = FluctuatingSpeedsProblem(
    ...     Pool(np.array([1.0]), ("gpu",), ("a", "b")),
    ...     requests=np.ones((2, 1)),
    ...     channels=Channels.of_mask(np.eye(2, dtype=bool)),
    ...     cost=np.zeros(2),
    ... )
    >>> problem.check(np.array([0, 1]), np.array([0, 1]))
    array([False,  True])
    >>> problem.check(np.array([1, 1]), np.array([1, 1]), slot=7)
    Traceback (most recent call last):
    gangwise.core.errors.InfeasibleDecision: slot 7: device type 'gpu': 2 of 1 devices are taken...
    """

    cluster: Pool
    requests: Floats
    channels: Channels
    cost: Floats
    job_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        requests = np.array(self.requests, dtype=np.float64, order="C")
        cost = np.array(self.cost, dtype=np.float64, order="C")
        L, R = self.channels.shape
        E, K = len(self.channels), len(self.cluster.devices)
        names = self.job_types or tuple(f"job-type-{l}" for l in range(L))
        if len(names) != L or len(set(names)) != L:
            raise ScenarioError(f"{L} job types need {L} different names; got {len(set(names))}")
        object.__setattr__(self, "job_types", tuple(names))
        if len(self.cluster.servers) != R:
            raise ScenarioError(
                f"channels connect to {R} servers; the cluster has {len(self.cluster.servers)}"
            )
        if requests.shape != (E, K):
            raise ScenarioError(
                f"requests have shape {requests.shape}; expected {E} channels by {K} device types"
            )
        if cost.shape != (E,):
            raise ScenarioError(f"cost has shape {cost.shape}; expected one number for each of "
                                f"{E} channels")  # fmt: skip
        bad = np.argwhere(~(np.isfinite(requests) & (requests >= 0)))
        if len(bad):
            e, k = bad[0]
            raise ScenarioError(
                f"{self.name(e)}: request of device type {self.cluster.devices[k]!r} is "
                f"{requests[e, k]}; it must be a finite number, zero or larger"
            )
        empty = np.flatnonzero(~(requests > 0).any(axis=1))
        if empty.size:
            raise ScenarioError(
                f"{self.name(empty[0])} requests none of the device types "
                f"{', '.join(self.cluster.devices)}; a channel takes something while it is on"
            )
        wrong = np.flatnonzero(~np.isfinite(cost))
        if wrong.size:
            raise ScenarioError(
                f"{self.name(wrong[0])}: supply cost is {cost[wrong[0]]}; it must be finite"
            )
        self.channels.require_all_connected(names)
        for name, array in (("requests", requests), ("cost", cost)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def name(self, e: int) -> str:
        """How messages call a channel."""
        l, r = self.channels.job_type[e], self.channels.server[e]
        return f"channel ({self.job_types[l]!r} on {self.cluster.servers[r]!r})"

    @property
    def L(self) -> int:
        """Number of job types."""
        return self.channels.shape[0]

    @property
    def E(self) -> int:
        """Number of channels."""
        return len(self.channels)

    @cached_property
    def tolerance(self) -> Floats:
        """By how much each capacity may be exceeded by rounding, shape [K]."""
        return TOLERANCE * (1.0 + self.cluster.capacity)

    def available(self, arrivals: Ints) -> Bools:
        """Channels of the job types that arrived, (4), shape [E]."""
        arrived: Bools = np.asarray(arrivals)[self.channels.job_type] != 0
        return arrived

    def check(self, arrivals: Ints, decision: npt.ArrayLike, slot: int | None = None) -> Bools:
        """The decision as truth values, shape [E], if it is in Ω(t) of (7).

        Raises
        ------
        InfeasibleDecision
            Names the slot, and the channel or device type at fault.
        """
        x, where = np.asarray(decision), "" if slot is None else f"slot {slot}: "
        if x.shape != (self.E,):
            raise InfeasibleDecision(
                f"{where}the decision has shape {x.shape}; expected {self.E} channels"
            )
        on: Bools = x if x.dtype == np.bool_ else x == 1
        if x.dtype != np.bool_ and not (on | (x == 0)).all():
            e = int(np.flatnonzero(~(on | (x == 0)))[0])
            raise InfeasibleDecision(
                f"{where}{self.name(e)} is {x[e]}; a channel is on (1) or off (0), (1)"
            )
        absent = on & ~self.available(arrivals)
        if absent.any():
            raise InfeasibleDecision(
                f"{where}{self.name(int(np.flatnonzero(absent)[0]))} is on, but no job of that "
                "type arrived, (4)"
            )
        taken = on @ self.requests
        over = np.flatnonzero(taken > self.cluster.capacity + self.tolerance)
        if over.size:
            k = int(over[0])
            users = np.flatnonzero(on & (self.requests[:, k] > 0))
            listed = ", ".join(self.name(e) for e in users[:4])
            raise InfeasibleDecision(
                f"{where}device type {self.cluster.devices[k]!r}: {taken[k]:g} of "
                f"{self.cluster.capacity[k]:g} devices are taken, (2), by {users.size} channels: "
                f"{listed}{', …' if users.size > 4 else ''}"
            )
        return on

"""The problem of ESDP §2: channels on or off, cluster-wide capacities, what supply costs.

Policies know all of this, but not the mean utility of any channel.

ESDP §3.1 assumes net utilities Z̃ in [0, 1] and normalises "by carefully tuning the parameters in
f_k"; with the paper's own numbers (three costs around 0.5 against a mean utility of 0.55) every net
utility would be negative. So the map is stated, as a :class:`Scale`:

    Z̃ = clip((Z − cost − low) / (high − low), 0, 1).

``clip`` has low = 0 and high the largest net utility within reach: a channel that loses counts as
nothing, and zero stays zero. ``affine`` has low the smallest net utility within reach: nothing is
lost, but every channel that is on gains a constant, which rewards switching on many of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Bools, Floats, Ints, check_amount, check_names, first, frozen, keep
from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.workload import Channels
from gangwise.papers.fluctuating_speeds.speeds import Speeds


def linear_cost(requests: Floats, price: npt.ArrayLike) -> Floats:
    """Linear supply cost Σ_k f_k(a_k), ESDP (3), with f_k(a) = price_k · a: paid by the device.

    Parameters
    ----------
    requests : ndarray of shape [E, K]
    price : array of shape [K]
        Utility per device.

    Examples
    --------
    >>> linear_cost(np.array([[1.0, 2.0], [2.0, 2.0]]), [0.1, 0.2])
    array([0.5, 0.6])
    """
    price = np.asarray(price, dtype=np.float64)
    if price.shape != (requests.shape[1],):
        raise ScenarioError(
            f"prices have shape {price.shape}; expected one for each of {requests.shape[1]} "
            "device types"
        )
    return np.asarray(requests @ price)


@dataclass(frozen=True, eq=False)
class Pool:
    """Resource pool (ESDP §2.2): servers that draw on devices of the whole cluster.

    Parameters
    ----------
    capacity : ndarray of shape [K]
        c_k: devices of each type in the whole cluster.
    devices : tuple of str
        Device type names, length K.
    servers : tuple of str
        Server names, length R.

    Raises
    ------
    ScenarioError
        For a capacity that is negative or not finite, or names that do not match.

    Examples
    --------
    >>> Pool(np.array([8.0, 64.0]), ("gpu", "cpu"), ("a", "b")).capacity
    array([ 8., 64.])
    """

    capacity: npt.NDArray[np.float64]
    devices: tuple[str, ...]
    servers: tuple[str, ...]

    def __post_init__(self) -> None:
        capacity = frozen(self.capacity)
        if capacity.ndim != 1 or not capacity.size or capacity.size != len(self.devices):
            raise ScenarioError(
                f"capacity has shape {capacity.shape}; expected one number for each of "
                f"{len(self.devices)} device types, for the whole cluster"
            )
        if not self.servers:
            raise ScenarioError("a cluster needs at least one server")
        servers = check_names(self.servers, len(self.servers), "server")
        devices = check_names(self.devices, capacity.size, "device type")
        # Zero is allowed: then no channel that asks for the device type ever fits.
        check_amount(capacity, lambda k: f"capacity of device type {devices[k]!r}")
        keep(self, capacity=capacity, devices=devices, servers=servers)


TOLERANCE = 1e-9
"""A capacity counts as kept when it is exceeded by no more than this, relative to 1 + its size."""


@dataclass(frozen=True, eq=False)
class FluctuatingSpeedsProblem:
    """Channel selection (ESDP §2): channels, what they request, what there is, what supply costs.

    Parameters
    ----------
    cluster : Pool
        Servers, and the capacity c_k [K] that all of them share, ESDP (2).
    requests : ndarray of shape [E, K]
        a_k^(l,r): devices that channel e = (l, r) holds while it is on. A channel may do without
        some device type, but not without all of them.
    channels : Channels
        Job type and server of each channel, sorted by server.
    cost : ndarray of shape [E]
        Σ_k f_k(a_k^(l,r)): supply cost of each channel, in units of utility.
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
    """

    cluster: Pool
    requests: Floats
    channels: Channels
    cost: Floats
    job_types: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        requests, cost = frozen(self.requests), frozen(self.cost)
        E, K = len(self.channels), len(self.cluster.devices)
        names = check_names(self.job_types, self.channels.shape[0], "job type")
        # Names come first: the errors below call channels by them.
        keep(self, job_types=names)
        self.channels.require_all_connected(names, len(self.cluster.servers))
        if requests.shape != (E, K):
            raise ScenarioError(
                f"requests have shape {requests.shape}; expected {E} channels by {K} device types"
            )
        if cost.shape != (E,):
            raise ScenarioError(
                f"cost has shape {cost.shape}; expected one number for each of {E} channels"
            )
        devices = self.cluster.devices
        check_amount(
            requests, lambda at: f"{self.name(at[0])}: request of device type {devices[at[1]]!r}"
        )
        # With no request at all it would be on for ever, and be chosen without regard to the
        # others.
        if (e := first(~(requests > 0).any(axis=1))) is not None:
            raise ScenarioError(
                f"{self.name(e)} requests none of the device types "
                f"{', '.join(self.cluster.devices)}; a channel takes something while it is on"
            )
        # A cost may be negative: a channel whose use is paid for.
        if (e := first(~np.isfinite(cost))) is not None:
            raise ScenarioError(f"{self.name(e)}: supply cost is {cost[e]}; it must be finite")
        keep(self, requests=requests, cost=cost)

    def name(self, e: int) -> str:
        l, r = self.channels.job_type[e], self.channels.server[e]
        return f"channel ({self.job_types[l]!r} on {self.cluster.servers[r]!r})"

    @property
    def L(self) -> int:
        return self.channels.shape[0]

    @property
    def E(self) -> int:
        return len(self.channels)

    @cached_property
    def tolerance(self) -> Floats:
        """Excess of each capacity that counts as rounding, shape [K]."""
        return TOLERANCE * (1.0 + self.cluster.capacity)

    def available(self, arrivals: Ints) -> Bools:
        """Channels of the job types that arrived, ESDP (4), shape [E]."""
        arrived: Bools = np.asarray(arrivals)[self.channels.job_type] != 0
        return arrived

    def check(self, arrivals: Ints, decision: npt.ArrayLike, slot: int | None = None) -> Bools:
        """Feasibility, Ω(t) of ESDP (7): the decision as truth values, shape [E], if it is in it.

        Raises
        ------
        InfeasibleDecision
            Names the slot, and the channel or device type at fault: neither on nor off, ESDP (1);
            of a job type that did not come, ESDP (4); or beyond the capacity, ESDP (2).
        """
        x, prefix = np.asarray(decision), "" if slot is None else f"slot {slot}: "
        if x.shape != (self.E,):
            raise InfeasibleDecision(
                f"{prefix}the decision has shape {x.shape}; expected {self.E} channels"
            )
        # Numbers will do as well as truth values, as long as they are 0 or 1 exactly.
        on: Bools = x if x.dtype == np.bool_ else x == 1
        if x.dtype != np.bool_ and not (on | (x == 0)).all():
            e = int(np.flatnonzero(~(on | (x == 0)))[0])
            raise InfeasibleDecision(
                f"{prefix}{self.name(e)} is {x[e]}; a channel is on (1) or off (0), ESDP (1)"
            )
        # ESDP (4): a channel of a job type that did not arrive cannot be on.
        absent = on & ~self.available(arrivals)
        if absent.any():
            raise InfeasibleDecision(
                f"{prefix}{self.name(int(np.flatnonzero(absent)[0]))} is on, but no job of that "
                "type arrived, ESDP (4)"
            )
        # ESDP (2): the capacity is of the whole cluster, whichever server a channel is on.
        used = on @ self.requests
        over = np.flatnonzero(used > self.cluster.capacity + self.tolerance)
        if over.size:
            k = int(over[0])
            users = np.flatnonzero(on & (self.requests[:, k] > 0))
            listed = ", ".join(self.name(e) for e in users[:4])
            raise InfeasibleDecision(
                f"{prefix}device type {self.cluster.devices[k]!r}: {used[k]:g} of "
                f"{self.cluster.capacity[k]:g} devices are taken, ESDP (2), by "
                f"{users.size} channels: {listed}{', …' if users.size > 4 else ''}"
            )
        return on


@dataclass(frozen=True)
class Scale:
    """Normalisation (ESDP §3.1): the net utilities that become 0 and 1.

    Examples
    --------
    >>> Scale(0.0, 0.5).apply(np.array([0.9, 0.4, 0.1]), np.array([0.2, 0.2, 0.2]))
    array([1. , 0.4, 0. ])
    """

    low: float = 0.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.low) and np.isfinite(self.high) and self.low < self.high):
            raise ScenarioError(
                f"net utilities from {self.low} to {self.high} cannot be mapped to [0, 1]"
            )

    @classmethod
    def of(cls, kind: str, speeds: Speeds, cost: Floats) -> Scale:
        """``clip`` or ``affine`` for utilities and costs; ``none`` takes them as they are.

        Raises
        ------
        ScenarioError
            When no channel is ever worth its cost, or ``none`` is asked for where a net utility
            can leave [0, 1].
        """
        # Costs differ by channel, so the extremes are those of net utilities, not of utilities.
        low, high = speeds.reach()
        smallest, largest = float((low - cost).min()), float((high - cost).max())
        if kind == "none":
            if smallest < 0 or largest > 1:
                raise ScenarioError(
                    f"net utilities range from {smallest:g} to {largest:g}; without a "
                    "normalisation they must lie in [0, 1]: choose clip or affine"
                )
            return cls()
        if kind not in ("clip", "affine"):
            raise ScenarioError(f"normalise is clip, affine or none, not {kind!r}")
        # Clipping would make every net utility zero, and all decisions alike.
        if kind == "clip" and largest <= 0:
            raise ScenarioError(
                f"every channel costs more than it can bring (the best nets {largest:g}), so doing "
                "nothing is optimal; lower the costs or choose affine"
            )
        # Clipped utilities start at zero; affine ones at the worst that any channel nets.
        return cls(0.0 if kind == "clip" else smallest, largest)

    def apply(self, utilities: Floats, cost: Floats) -> Floats:
        """Z̃ of raw utilities; the last axis is over channels."""
        net: Floats = (utilities - cost - self.low) / (self.high - self.low)
        # Noise without ends may leave the reach of two standard deviations: it is cut off.
        return np.clip(net, 0.0, 1.0)

    def mean(self, speeds: Speeds, cost: Floats, slot: int) -> Floats:
        """E[Z̃] of each channel in a slot, exactly, shape [E]: ṽ of ESDP (7)."""
        # E[clip((Z - cost - low) / width, 0, 1)] = (E[clip(Z, cost + low, … + width)] - …) / width.
        low, width = cost + self.low, self.high - self.low
        return np.asarray((speeds.clipped_mean(slot, low, low + width) - low) / width)

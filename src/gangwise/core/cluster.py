"""Clusters, job types and the channels between them (OGASched §2.1, Fig. 1).

A cluster has R servers with K device types; L job types request devices; an edge of the bipartite
graph (job type, server) is a *channel*. Array axes are always job type l, server r, device type k,
in this order. Arrays over channels have E rows, sorted by server and then by job type, so that the
channels of one server are contiguous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints, check_amount, check_names, first, frozen, keep
from gangwise.core.errors import ScenarioError, UnknownName


@dataclass(frozen=True)
class Server:
    """One server, with how much it has of each device type (absent means none)."""

    name: str
    capacity: Mapping[str, float]


@dataclass(frozen=True)
class JobType:
    """Jobs that look alike to the scheduler, with what one of them requests of each device type."""

    name: str
    requests: Mapping[str, float]


def _vector(
    owner: str, quantities: Mapping[str, float], devices: Sequence[str], what: str
) -> list[float]:
    for device in quantities:
        if device not in devices:
            raise ScenarioError(f"{owner}: {UnknownName('device type', device, list(devices))}")
    row = [float(quantities.get(device, 0.0)) for device in devices]
    check_amount(np.array(row), lambda k: f"{owner}: {what} of device type {devices[k]!r}")
    return row


def request_matrix(job_types: Iterable[JobType], devices: Sequence[str]) -> Floats:
    """Requests of the job types, shape [L, K]; columns are in the order of ``devices``.

    Raises ScenarioError for an unknown device type or a request that is negative or not finite.

    >>> request_matrix([JobType("train", {"gpu": 4})], ["cpu", "gpu"])
    array([[0., 4.]])
    """
    rows = [_vector(f"job type {j.name!r}", j.requests, devices, "request") for j in job_types]
    return np.array(rows, dtype=np.float64).reshape(len(rows), len(devices))


@dataclass(frozen=True, eq=False)
class Cluster:
    """Servers and what they have.

    Parameters
    ----------
    capacity : ndarray of shape [R, K]
        Devices of each type on each server; finite and not negative.
    devices, servers : tuple of str
        Names, length K and R; servers are ``server-0`` … by default.

    Examples
    --------
    >>> Cluster.of([Server("a", {"gpu": 8}), Server("b", {"gpu": 4, "cpu": 64})]).capacity
    array([[ 8.,  0.],
           [ 4., 64.]])
    """

    capacity: Floats
    devices: tuple[str, ...]
    servers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        capacity = frozen(self.capacity)
        if capacity.ndim != 2 or 0 in capacity.shape:
            raise ScenarioError(
                "capacity must be a table of servers by device types with at least one of each; "
                f"its shape is {capacity.shape}"
            )
        R, K = capacity.shape
        names = check_names(self.servers, R, "server")
        devices = check_names(self.devices, K, "device type")
        check_amount(
            capacity,
            lambda at: f"server {names[at[0]]!r}: capacity of device type {devices[at[1]]!r}",
        )
        keep(self, capacity=capacity, servers=names)

    @classmethod
    def of(cls, servers: Sequence[Server], devices: Sequence[str] = ()) -> Cluster:
        """Build a cluster from servers; by default their device types, in their order."""
        known = list(devices or dict.fromkeys(k for server in servers for k in server.capacity))
        rows = [_vector(f"server {s.name!r}", s.capacity, known, "capacity") for s in servers]
        return cls(
            np.array(rows, dtype=np.float64).reshape(len(rows), len(known)),
            tuple(known),
            tuple(s.name for s in servers),
        )


@dataclass(frozen=True, eq=False)
class Channels:
    """The edges of the bipartite graph, sorted by server, then by job type.

    ``job_type`` and ``server`` have shape [E]; ``shape`` is (L, R).

    Examples
    --------
    >>> channels = Channels.of_mask(np.array([[True, False], [True, True]]))
    >>> channels.job_type, channels.server, channels.starts
    (array([0, 1, 1]), array([0, 0, 1]), array([0, 2, 3]))
    """

    job_type: Ints
    server: Ints
    shape: tuple[int, int]
    starts: Ints = field(init=False)  # [R + 1]: the channels of server r are starts[r]:starts[r+1]

    def __post_init__(self) -> None:
        L, R = self.shape
        job_type = np.ascontiguousarray(self.job_type, dtype=np.int64)
        server = np.ascontiguousarray(self.server, dtype=np.int64)
        if job_type.ndim != 1 or job_type.shape != server.shape:
            raise ScenarioError(
                f"channels need a job type and a server each; got {job_type.shape} job types and "
                f"{server.shape} servers"
            )
        for what, index, size in (("job type", job_type, L), ("server", server, R)):
            if (e := first((index < 0) | (index >= size))) is not None:
                raise ScenarioError(
                    f"a channel names {what} {index[e]}; there are {size}, counted from 0"
                )
        order = np.lexsort((job_type, server))
        job_type, server = job_type[order], server[order]
        e = first((np.diff(job_type) == 0) & (np.diff(server) == 0))
        if e is not None:
            raise ScenarioError(
                f"channel (job type {job_type[e]}, server {server[e]}) is given twice"
            )
        starts = np.append(0, np.cumsum(np.bincount(server, minlength=R))).astype(np.int64)
        arrays = {"job_type": job_type, "server": server, "starts": starts}
        keep(self, **{name: frozen(array, np.int64) for name, array in arrays.items()})

    def __len__(self) -> int:
        return int(self.job_type.size)

    @classmethod
    def of_mask(cls, mask: Bools) -> Channels:
        """Channels from a truth table of shape [L, R]."""
        server, job_type = np.nonzero(np.asarray(mask, dtype=bool).T)
        L, R = mask.shape
        return cls(job_type.astype(np.int64), server.astype(np.int64), (L, R))

    @classmethod
    def by_fit(
        cls, cluster: Cluster, requests: Floats, names: Sequence[str] | None = None
    ) -> Channels:
        """Connect each job type to every server that can hold one of its requests whole.

        Raises ScenarioError when a job type fits on no server; names the device that is short.
        """
        requests = np.asarray(requests, dtype=np.float64)
        mask = np.zeros((len(requests), len(cluster.capacity)), dtype=bool)
        for start in range(0, len(requests), 256):  # bounded memory for many job types
            part = requests[start : start + 256]
            mask[start : start + 256] = (
                part[:, None, :] <= cluster.capacity[None, :, :] * (1 + 1e-12)
            ).all(axis=2)
        if (l := first(~mask.any(axis=1))) is not None:
            name = names[l] if names is not None else f"#{l}"
            largest = cluster.capacity.max(axis=0)
            short = [
                f"{requests[l, k]:g} {device} (the largest server has {largest[k]:g})"
                for k, device in enumerate(cluster.devices)
                if requests[l, k] > largest[k]
            ] or ["a combination that no single server has"]
            raise ScenarioError(
                f"job type {name!r} fits on no server: it requests {', '.join(short)}; "
                "lower the request, add a server, or leave the job type out"
            )
        return cls.of_mask(mask)

    def require_all_connected(self, names: Sequence[str], servers: int) -> None:
        """Raise ScenarioError unless they connect all these job types to so many servers."""
        if self.shape != (len(names), servers):
            raise ScenarioError(
                f"channels connect {self.shape} job types and servers; there are "
                f"{(len(names), servers)}"
            )
        if (l := first(np.bincount(self.job_type, minlength=len(names)) == 0)) is not None:
            raise ScenarioError(
                f"job type {names[l]!r} has no channel to any server, so none of its jobs could "
                "ever run; connect it or leave it out"
            )

    def relabelled(self, order: Ints) -> tuple[Channels, Ints]:
        """With server ``order[i]`` now called ``i``; and what each channel was called before."""
        server = np.argsort(order)[self.server]
        return Channels(self.job_type, server, self.shape), np.lexsort((self.job_type, server))

"""A cluster whose capacity is counted over all servers together (ESDP §2.2)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError

__all__ = ["Pool"]


@dataclass(frozen=True, eq=False)
class Pool:
    """Servers that draw on shared devices.

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
        capacity = np.array(self.capacity, dtype=np.float64, order="C")
        if capacity.ndim != 1 or not capacity.size or capacity.size != len(self.devices):
            raise ScenarioError(
                f"capacity has shape {capacity.shape}; expected one number for each of "
                f"{len(self.devices)} device types, for the whole cluster"
            )
        for kind, given in (("server", self.servers), ("device type", self.devices)):
            if not given:
                raise ScenarioError(f"a cluster needs at least one {kind}")
            name, count = Counter(given).most_common(1)[0]
            if count > 1:
                raise ScenarioError(f"{kind} name {name!r} is used twice")
        bad = np.flatnonzero(~(np.isfinite(capacity) & (capacity >= 0)))
        if bad.size:
            raise ScenarioError(
                f"capacity of device type {self.devices[bad[0]]!r} is {capacity[bad[0]]}; it must "
                "be a finite number, zero or larger"
            )
        capacity.setflags(write=False)
        object.__setattr__(self, "capacity", capacity)
        object.__setattr__(self, "devices", tuple(self.devices))
        object.__setattr__(self, "servers", tuple(self.servers))

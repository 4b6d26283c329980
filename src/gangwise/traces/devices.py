"""Device types of a trace's cluster and the units they are counted in.

The reward of OGASched is not scale-free: utilities are concave in devices and overhead is linear,
so memory in GiB, whose numbers are large, outweighs GPUs, whose numbers are small. Shares make
device types comparable: the largest server has ``scale`` of cores and of memory, and the server
with the most GPUs has ``scale`` of GPUs. All GPU models share one unit, so a GPU is a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.cluster import Cluster
from gangwise.traces.fidelity import UNITS
from gangwise.traces.grouping import Grouping

if TYPE_CHECKING:
    import polars as pl


Floats = npt.NDArray[np.float64]

QUANTITIES = ("cpu", "mem", "gpu")


def in_units(
    servers: pl.DataFrame, grouping: Grouping, scale: float | None, units: Mapping[str, str] = UNITS
) -> tuple[Cluster, Floats]:
    """The cluster, and the requests of its job types, in one unit per device type.

    Parameters
    ----------
    servers : polars.DataFrame
        As in :class:`~gangwise.traces.trace.Tables`.
    grouping : Grouping
    scale : float or None
        What the largest server has of each device type; None: quantities as they are.
    units : mapping of str to str
        Of ``cpu``, ``mem`` and ``gpu`` in the trace.

    Returns
    -------
    cluster : Cluster
        Device types ``cpu``, ``mem`` and ``gpu:MODEL``, sorted by model; none that no server has.
    requests : ndarray of shape [L, K]
        A job type requests its GPUs of every model it may use; a server has one model at most.
    """
    capacity = servers.select(QUANTITIES).to_numpy()
    model = np.array(servers["model"].to_list(), dtype=np.str_)
    largest = capacity.max(axis=0)
    factor = np.ones(3)
    if scale is not None:
        factor[largest > 0] = scale / largest[largest > 0]
    unit_of = [units[name] for name in QUANTITIES]
    names = [f"{1 / f:.6g} {unit}" if f != 1 else unit for f, unit in zip(factor, unit_of)]
    capacity, requests = capacity * factor, grouping.requests * factor
    columns = [
        (QUANTITIES[k], names[k], capacity[:, k], requests[:, k]) for k in (0, 1) if largest[k] > 0
    ]
    for gpu in np.unique(model[capacity[:, 2] > 0]).tolist():
        may = [not models or gpu in models.split("|") for models in grouping.models]
        have = np.where(model == gpu, capacity[:, 2], 0.0)
        columns.append((f"gpu:{gpu}", names[2], have, np.where(may, requests[:, 2], 0.0)))
    device, unit, have_all, want_all = zip(*columns)
    cluster = Cluster(np.column_stack(have_all), device, tuple(servers["name"].to_list()), unit)
    return cluster, np.column_stack(want_all)


def rivalry(
    cluster: Cluster, requests: Floats, mask: npt.NDArray[np.bool_], rate: Floats
) -> dict[str, float]:
    """What the jobs of a mean slot request of a server, as a share of what it has.

    The further below 1, the more jobs get all that they request, and the less policies can differ.

    Parameters
    ----------
    cluster : Cluster
    requests : ndarray of shape [L, K]
    mask : ndarray of bool, shape [L, R]
        Channels.
    rate : ndarray of shape [L]
        Jobs of each type per slot.

    Returns
    -------
    dict
        By device type, the mean over the servers that have any.

    Examples
    --------
    >>> cluster = Cluster(np.array([[8.0], [4.0]]), ("cpu",))
    >>> rivalry(cluster, np.array([[2.0]]), np.array([[True, True]]), np.array([0.5]))
    {'cpu': 0.1875}
    """
    asked = mask.T.astype(np.float64) @ (rate[:, None] * requests)
    have = cluster.capacity > 0
    share = np.where(have, asked / np.where(have, cluster.capacity, 1.0), 0.0)
    mean = share.sum(axis=0) / np.maximum(have.sum(axis=0), 1)
    return dict(zip(cluster.devices, mean.tolist()))

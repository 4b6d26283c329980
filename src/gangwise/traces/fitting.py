"""Which server can hold which request whole, and samples of servers that keep their proportions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.traces.trace import Tables

__all__ = ["fits", "fits_somewhere", "sample_servers"]

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def fits(requests: Floats, allowed: Sequence[str], capacity: Floats, model: Sequence[str]) -> Mask:
    """Whether a server has all that is requested, its GPUs of an allowed model.

    Parameters
    ----------
    requests : ndarray of shape [N, 3]
        Cores, GiB and GPUs.
    allowed : sequence of str, length N
        GPU models that may be used, joined by ``|``; empty for any.
    capacity : ndarray of shape [R, 3]
    model : sequence of str, length R
        GPU model of each server; empty when it has no GPUs.

    Returns
    -------
    ndarray of bool, shape [N, R]

    Examples
    --------
    >>> fits(np.array([[1.0, 1, 1], [1, 1, 0]]), ["A|B", ""],
    ...      np.array([[2.0, 2, 2], [2, 2, 2], [2, 2, 0]]), ["A", "C", ""])
    array([[ True, False, False],
           [ True,  True,  True]])
    """
    kinds, kind = np.unique(np.asarray(model, dtype=np.str_), return_inverse=True)
    sets, which = np.unique(np.asarray(allowed, dtype=np.str_), return_inverse=True)
    may = np.array([[not s or m in s.split("|") for m in kinds] for s in sets], dtype=bool)
    room = (requests[:, None, :] <= capacity[None, :, :] * (1 + 1e-12)).all(axis=2)
    reachable = may[which.reshape(-1)][:, kind.reshape(-1)] | (requests[:, 2] == 0)[:, None]
    result: Mask = room & reachable
    return result


def fits_somewhere(
    requests: Floats, allowed: Sequence[str], capacity: Floats, model: Sequence[str]
) -> Mask:
    """Whether any server can hold each request whole, shape [N]; see :func:`fits`."""
    kinds = sorted(set(zip(model, map(tuple, capacity.tolist()))))
    shapes = np.array([shape for _, shape in kinds])
    result = np.zeros(len(requests), dtype=bool)
    for begin in range(0, len(requests), 4096):  # bounded memory
        part = slice(begin, begin + 4096)
        result[part] = fits(requests[part], allowed[part], shapes, [m for m, _ in kinds]).any(1)
    return result


def sample_servers(tables: Tables, servers: int) -> Tables:
    """Keep so many servers that every kind (GPU model, shape) has its share, by largest remainder.

    Of a kind, the first by name are kept. Kinds with too few servers for a place in the sample
    are not in it.

    Raises
    ------
    ScenarioError
        When there are fewer servers than that.
    """
    import polars as pl

    total = len(tables.servers)
    if servers > total:
        raise ScenarioError(f"a sample of {servers} servers was asked for; the trace has {total}")
    kind = ["model", "cpu", "mem", "gpu"]
    kinds = tables.servers.group_by(kind).len("number").sort(kind)
    exact = kinds["number"].to_numpy() * servers / total
    places = np.floor(exact).astype(np.int64)
    order = np.argsort(-(exact - places), kind="stable")
    places[order[: servers - int(places.sum())]] += 1
    kept = (
        tables.servers.join(kinds.with_columns(places=places), on=kind, how="left")
        .sort("name")
        .filter(pl.int_range(pl.len()).over(kind) < pl.col("places"))
        .select(tables.servers.columns)
    )
    return replace(tables, servers=kept)

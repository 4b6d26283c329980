"""Which server can hold which request whole, and which servers there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError, TraceError
from gangwise.traces.trace import Tables

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
    >>> fits(
    ...     np.array([[1.0, 1, 1], [1, 1, 0]]),
    ...     ["A|B", ""],
    ...     np.array([[2.0, 2, 2], [2, 2, 2], [2, 2, 0]]),
    ...     ["A", "C", ""],
    ... )
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


def stated_servers(
    tables: Tables, machines: int | None, shape: tuple[float, float, float] | None, model: str
) -> Tables:
    """So many equal servers instead of those of the trace.

    Raises
    ------
    TraceError
        When one of the two numbers is not stated; says what to set.
    """
    import polars as pl

    from gangwise.traces.twins import NAMES as TWINS

    if machines is None or shape is None:
        units = ", ".join(tables.units[name] for name in ("cpu", "mem", "gpu"))
        largest = tables.jobs.select("cpu", "mem", "gpu").max().fill_null(0.0).row(0)
        most = ", ".join(f"{size:.3g}" for size in largest)
        why = (
            "the files here do not say which servers there are"
            if tables.servers.is_empty()
            else "servers of your own need both a number and a shape"
        )
        raise TraceError(
            f"{why}: set machines (how many) and shape, (cpu, mem, gpu) of each in {units}, as in "
            f"machines=100 and shape=(1,1,0); the largest request of any job is ({most})"
            + "; or complete=servers, to take those of the trace's synthetic twin"
            * (tables.servers.is_empty() and tables.trace in TWINS)
            + "".join(f"; {note}" for note in tables.notes if note.startswith("no servers"))
        )
    width = len(str(machines - 1))
    servers = pl.DataFrame(
        {
            "row": range(1, machines + 1),
            "name": [f"machine-{r:0{width}d}" for r in range(machines)],
            "model": [(model or "gpu") if shape[2] > 0 else ""] * machines,
            **{name: [float(size)] * machines for name, size in zip(("cpu", "mem", "gpu"), shape)},
        }
    )
    return replace(tables, servers=servers, events=None)

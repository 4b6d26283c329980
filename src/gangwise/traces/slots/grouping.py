"""Job types out of many different requests, the servers that fit them, and units of devices.

1. Jobs that request exactly the same are one *request*; requests are ranked by how many jobs make
   them (ties: the smaller one first), so the order of the rows never matters.
2. Requests fall into classes that must not mix: with GPUs or without, and which GPU models may be
   used. The most frequent request of each class becomes a job type (largest classes first), and
   then the most frequent of all the others, until there are as many job types as asked for.
3. Every other request joins the nearest job type of its class. Distance is Euclidean in
   ln(request / largest server + 0.01), over cores, memory and GPUs: ratios matter, and below a
   hundredth of the largest server they cease to.

A job type requests what the request it was founded by does, so it is a request that occurs, and it
fits where those jobs fit. Jobs of a class that got no job type have none.

Units: the reward of OGASched is not scale-free: utilities are concave in devices and overhead is
linear, so memory in GiB, whose numbers are large, outweighs GPUs, whose numbers are small. Shares
make device types comparable: the largest server has ``scale`` of cores and of memory, and the
server with the most GPUs has ``scale`` of GPUs. All GPU models share one unit, so a GPU is a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.cluster import Cluster
from gangwise.core.errors import ScenarioError, TraceError
from gangwise.traces.tables import NO_SERVERS, Tables
from gangwise.traces.twins.drawing import NAMES as TWINS

FLOOR = 0.01
QUANTITIES = ("cpu", "mem", "gpu")


@dataclass(frozen=True, eq=False)
class Grouping:
    """Job types, and which of them stands for each job."""

    # Cores, GiB and GPUs of each job type, the most frequently requested first, shape [L, 3].
    requests: Floats
    models: tuple[str, ...]  # GPU models each may use, joined by ``|``; empty for any
    job_type: Ints  # job type of each job; -1 where its class has none, shape [N]
    # How far a job is from its job type: the largest ratio between what the two request of
    # anything, each plus 0.01 of the largest server; 1 when equal, nan without a job type, shape
    # [N].
    factor: Floats

    @property
    def names(self) -> tuple[str, ...]:
        names: list[str] = []
        for (cpu, mem, gpu), models in zip(self.requests, self.models):
            name = f"{cpu:.6g}cpu-{mem:.6g}mem" + (f"-{gpu:.6g}gpu" if gpu else "")
            name += f"-{models}" if models else ""
            taken = sum(other == name or other.startswith(f"{name}~") for other in names)
            names.append(f"{name}~{taken + 1}" if taken else name)
        return tuple(names)


def group_jobs(
    requests: Floats,
    models: Sequence[str],
    largest: Floats,
    job_types: int,
    weight: Ints | None = None,
) -> Grouping:
    """Group N jobs into at most ``job_types`` job types, as the module says.

    ``requests`` are cores, GiB and GPUs [N, 3]; ``models`` the GPU models each may use, sorted and
    joined by ``|``, empty for any; ``largest`` the most of each that a server has [3]; ``weight``
    how many jobs each stands for [N].

    >>> requests = np.array([[4.0, 8, 0], [4, 8, 0], [5, 8, 0], [4, 8, 1]])
    >>> grouping = group_jobs(requests, [""] * 4, np.array([64.0, 256, 8]), job_types=2)
    >>> grouping.names, grouping.job_type
    (('4cpu-8mem', '4cpu-8mem-1gpu'), array([0, 0, 0, 1]))
    """
    kinds = sorted(set(zip(models, (requests[:, 2] > 0).tolist())))
    position = {kind: i for i, kind in enumerate(kinds)}
    code = [position[kind] for kind in zip(models, (requests[:, 2] > 0).tolist())]
    distinct, which = np.unique(np.column_stack([requests, code]), axis=0, return_inverse=True)
    which = which.reshape(-1)
    count = np.bincount(which, weights=weight)
    belongs = distinct[:, 3].astype(np.int64)  # class of each distinct request
    rank = np.lexsort((np.arange(len(distinct)), -count))
    size = np.bincount(belongs, weights=count)
    founders: list[int] = []
    for kind in np.lexsort((np.arange(size.size), -size))[:job_types]:
        founders.append(int(rank[belongs[rank] == kind][0]))
    founders += [int(d) for d in rank if d not in founders][: job_types - len(founders)]
    founders.sort(key=lambda d: (-count[d], d))

    share = distinct[:, :3] / np.where(largest > 0, largest, 1.0)
    place = np.log(share + FLOOR)
    apart = place[:, None, :] - place[None, founders, :]  # [distinct, L, 3]
    distance = np.round(np.sqrt((apart**2).sum(axis=2)), 9)  # the same ties on every machine
    distance[belongs[:, None] != belongs[None, founders]] = np.inf
    nearest = distance.argmin(axis=1)
    own = np.arange(len(distinct))
    factor = np.exp(np.abs(apart[own, nearest]).max(axis=1))
    homeless = np.isinf(distance[own, nearest])
    nearest[homeless], factor[homeless] = -1, np.nan
    return Grouping(
        distinct[founders, :3],
        tuple(kinds[belongs[d]][0] for d in founders),
        nearest[which].astype(np.int64),
        factor[which],
    )


def fits(requests: Floats, allowed: Sequence[str], capacity: Floats, model: Sequence[str]) -> Bools:
    """Whether a server has all that is requested, its GPUs of an allowed model, shape [N, R].

    ``requests`` [N, 3] and ``capacity`` [R, 3] are cores, GiB and GPUs; ``allowed`` GPU models are
    joined by ``|``, empty for any; a server without GPUs has an empty ``model``.

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
    return np.asarray(room & reachable)


def fits_somewhere(
    requests: Floats, allowed: Sequence[str], capacity: Floats, model: Sequence[str]
) -> Bools:
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

    Raises ScenarioError when there are fewer servers than that.
    """
    total = len(tables.servers)
    if servers > total:
        raise ScenarioError(f"a sample of {servers} servers was asked for; the trace has {total}")
    kind = ["model", *QUANTITIES]
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

    Raises TraceError when one of the two numbers is not stated; says what to set.
    """
    if machines is None or shape is None:
        none = tables.servers.is_empty()
        units = ", ".join(tables.units[name] for name in QUANTITIES)
        largest = tables.jobs.select(QUANTITIES).max().fill_null(0.0).row(0)
        most = ", ".join(f"{size:.3g}" for size in largest)
        why = "servers of your own need both a number and a shape"
        why = "the files here do not say which servers there are" if none else why
        raise TraceError(
            f"{why}: set machines (how many) and shape, (cpu, mem, gpu) of each in {units}, as in "
            f"machines=100 and shape=(1,1,0); the largest request of any job is ({most})"
            + "; or complete=servers, to take those of the trace's synthetic twin"
            * (none and tables.trace in TWINS)
            + "".join(f"; {note}" for note in tables.notes if note.startswith(NO_SERVERS))
        )
    width = len(str(machines - 1))
    servers = pl.DataFrame(
        {
            "row": range(1, machines + 1),
            "name": [f"machine-{r:0{width}d}" for r in range(machines)],
            "model": [(model or "gpu") if shape[2] > 0 else ""] * machines,
            **{name: [float(size)] * machines for name, size in zip(QUANTITIES, shape)},
        }
    )
    return replace(tables, servers=servers, events=None)


def in_units(
    servers: pl.DataFrame, grouping: Grouping, scale: float | None
) -> tuple[Cluster, Floats]:
    """The cluster, and the requests of its job types, in one unit per device type.

    The largest server has ``scale`` of each device type; None: quantities as they are. Device types
    are ``cpu``, ``mem`` and ``gpu:MODEL``, sorted by model, none that no server has; a job type
    requests its GPUs of every model that it may use, since a server has one model at most.
    """
    capacity = servers.select(QUANTITIES).to_numpy()
    model = np.array(servers["model"].to_list(), dtype=np.str_)
    largest = capacity.max(axis=0)
    factor = np.ones(3)
    if scale is not None:
        factor[largest > 0] = scale / largest[largest > 0]
    capacity, requests = capacity * factor, grouping.requests * factor
    columns = [(QUANTITIES[k], capacity[:, k], requests[:, k]) for k in (0, 1) if largest[k] > 0]
    for gpu in np.unique(model[capacity[:, 2] > 0]).tolist():
        may = [not models or gpu in models.split("|") for models in grouping.models]
        have = np.where(model == gpu, capacity[:, 2], 0.0)
        columns.append((f"gpu:{gpu}", have, np.where(may, requests[:, 2], 0.0)))
    device, have_all, want_all = zip(*columns)
    cluster = Cluster(np.column_stack(have_all), device, tuple(servers["name"].to_list()))
    return cluster, np.column_stack(want_all)


def rivalry(cluster: Cluster, requests: Floats, mask: Bools, rate: Floats) -> dict[str, float]:
    """What the jobs of a mean slot request of a server, as a share of what it has.

    The further below 1, the more jobs get all that they request, and the less policies can differ.

    ``requests`` are [L, K], ``mask`` the channels [L, R], ``rate`` jobs of each type per slot [L].
    By device type, the mean over the servers that have any.

    >>> cluster = Cluster(np.array([[8.0], [4.0]]), ("cpu",))
    >>> rivalry(cluster, np.array([[2.0]]), np.array([[True, True]]), np.array([0.5]))
    {'cpu': 0.1875}
    """
    asked = mask.T.astype(np.float64) @ (rate[:, None] * requests)
    have = cluster.capacity > 0
    share = np.where(have, asked / np.where(have, cluster.capacity, 1.0), 0.0)
    mean = share.sum(axis=0) / np.maximum(have.sum(axis=0), 1)
    return dict(zip(cluster.devices, mean.tolist()))


def contested(cluster: Cluster, requests: Floats, mask: Bools, counts: Ints) -> float:
    """Share of the slots with arrivals in which jobs ask for more of some server than it has.

    ``requests`` are [L, K], ``mask`` the channels [L, R], ``counts`` jobs [slots, L].

    >>> cluster, channels = Cluster(np.array([[8.0], [4.0]]), ("cpu",)), np.array([[True, True]])
    >>> contested(cluster, np.array([[3.0]]), channels, np.array([[1], [2], [0]]))
    0.5
    """
    busy = counts[counts.any(axis=1)]
    if not len(busy):
        return 0.0
    slots = np.unique(busy, axis=0, return_counts=True)
    kinds = np.unique(np.column_stack([cluster.capacity, mask.T]), axis=0)
    K = cluster.capacity.shape[1]
    short = np.zeros(len(slots[0]), dtype=bool)
    for kind in kinds:  # servers that have the same, and the same channels
        capacity, on = kind[:K], kind[K:] > 0
        asked = slots[0] @ (requests * on[:, None])
        short |= (asked > capacity * (1 + 1e-12)).any(axis=1, where=capacity > 0)
    return float(slots[1][short].sum() / slots[1].sum())

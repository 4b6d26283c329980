"""Many different requests, few job types.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

FLOOR = 0.01


@dataclass(frozen=True, eq=False)
class Grouping:
    """Job types, and the job type of every job.

    Attributes
    ----------
    requests : ndarray of shape [L, 3]
        Cores, GiB and GPUs of each job type, the most frequently requested first.
    models : tuple of str
        GPU models each may use, joined by ``|``; empty for any.
    job_type : ndarray of int64, shape [N]
        Job type of each job; -1 where its class has none.
    factor : ndarray of shape [N]
        How far a job is from its job type: the largest ratio between what the two request of
        anything, each plus 0.01 of the largest server; 1 when equal, nan without a job type.
    """

    requests: Floats
    models: tuple[str, ...]
    job_type: Ints
    factor: Floats

    @property
    def names(self) -> tuple[str, ...]:
        """Names that say what a job type requests, all different."""
        names: list[str] = []
        for (cpu, mem, gpu), models in zip(self.requests, self.models):
            name = f"{cpu:.6g}cpu-{mem:.6g}mem" + (f"-{gpu:.6g}gpu" if gpu else "")
            name += f"-{models}" if models else ""
            taken = sum(other == name or other.startswith(f"{name}~") for other in names)
            names.append(f"{name}~{taken + 1}" if taken else name)
        return tuple(names)

    def of_typed(self) -> Grouping:
        """The same for the jobs that have a job type."""
        typed = self.job_type >= 0
        return replace(self, job_type=self.job_type[typed], factor=self.factor[typed])


def group_jobs(
    requests: Floats,
    models: Sequence[str],
    largest: Floats,
    job_types: int,
    weight: Ints | None = None,
) -> Grouping:
    """Group jobs into at most ``job_types`` job types, as the module says.

    Parameters
    ----------
    requests : ndarray of shape [N, 3]
        Cores, GiB and GPUs of each job.
    models : sequence of str, length N
        GPU models each job may use, sorted and joined by ``|``; empty for any.
    largest : ndarray of shape [3]
        The most cores, GiB and GPUs that any server has.
    job_types : int
    weight : ndarray of int64, shape [N], optional
        How many jobs each of them stands for; 1 by default.

    Examples
    --------
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

"""Gains by table: what a job gains on a server, for every set of its tasks that may sit there.

Tasks of a job type with the same requests are alike, so a set is a count of each kind of task, and
its place in the table a number in mixed radix: a gang of 32 equal workers and one parameter server
has 33 · 2 sets, not 2³³. With the table, a marginal gain is a difference of two entries, whatever
the utilities are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import ScenarioError
from gangwise.gain_overhead.gang.problem import GangProblem

__all__ = ["MOST_ENTRIES", "GainTable", "gain_table"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MOST_ENTRIES = 1 << 23
"""The largest table that is built, in entries of 8 bytes."""


class GainTable(NamedTuple):
    """Gains Σ_k f_r^k(Σ a^k) of sets of tasks.

    Attributes
    ----------
    stride : ndarray of int64, shape [Q]
        What a task adds to the number of the set that it joins.
    offset : ndarray of int64, shape [E]
        Where the sets of each channel begin in ``value``.
    value : ndarray of float64, shape [N]
        Gain of each set; 0 for the empty one.
    """

    stride: Ints
    offset: Ints
    value: Floats


def gain_table(problem: GangProblem) -> GainTable:
    """Tabulate the gains of a problem.

    Raises
    ------
    ScenarioError
        When the table would be too large; names the job type with the most different tasks.
    """
    K = problem.task_requests.shape[1]
    stride = np.zeros(problem.Q, dtype=np.int64)
    sizes = np.zeros(problem.L, dtype=np.int64)
    sums: list[Floats] = []
    degree = np.bincount(problem.channels.job_type, minlength=problem.L)
    entries = 0
    for l in range(problem.L):
        tasks = slice(problem.first[l], problem.first[l + 1])
        kinds, of, count = np.unique(
            problem.task_requests[tasks], axis=0, return_inverse=True, return_counts=True
        )
        sets = 1
        for n in count.tolist():
            sets *= n + 1
        entries += sets * int(degree[l])
        if entries > MOST_ENTRIES:
            raise ScenarioError(
                f"job type {problem.job_types[l]!r} has {len(count)} different kinds of task, "
                f"which may come together on a server in {sets} ways; give more of its tasks the "
                "same requests, or use a policy that does not weigh gains, such as gang-drf"
            )
        step, total = 1, np.zeros((1, K))
        steps = np.zeros(len(count), dtype=np.int64)
        for kind, n in enumerate(count.tolist()):
            steps[kind] = step
            more = np.arange(n + 1)[:, None, None] * kinds[kind]
            total = (more + total).reshape(-1, K)
            step *= n + 1
        stride[tasks] = steps[of.ravel()]
        sizes[l] = sets
        sums.append(total)
    each = sizes[problem.channels.job_type]
    offset = np.cumsum(each) - each
    value = np.empty(int(each.sum()))
    for e in range(len(problem.channels)):
        l, r = int(problem.channels.job_type[e]), int(problem.channels.server[e])
        shape = sums[l].shape
        gains = problem.utilities.each(
            "value", sums[l],
            np.broadcast_to(problem.utilities.kind[r], shape),
            np.broadcast_to(problem.utilities.alpha[r], shape),
        )  # fmt: skip
        value[offset[e] : offset[e] + each[e]] = gains.sum(axis=1)
    return GainTable(stride, offset, value)

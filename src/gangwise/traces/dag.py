"""Which tasks wait for which: a directed graph over the tasks of any number of jobs.

Everything works on flat arrays, level by level, so that a trace with millions of tasks is one
graph. A task waits for its parents; tasks that wait for each other in a circle never start.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import polars as pl

from gangwise.core.arrays import Floats, Ints
from gangwise.core.errors import TraceError


class Dag:
    """Edges between tasks.

    ``tasks`` are numbered from 0; ``child`` waits for ``parent`` [edges]. An edge given twice
    counts once, and one between tasks that do not exist raises ValueError.

    Examples
    --------
    Task 2 waits for 0 and 1, and 3 for 2.

    >>> dag = Dag(4, child=np.array([2, 2, 3]), parent=np.array([0, 1, 2]))
    >>> dag.parents(2).tolist(), dag.order().tolist()
    ([0, 1], [0, 1, 2, 3])
    >>> dag.finish(np.array([5.0, 1.0, 2.0, 3.0])).tolist()
    [5.0, 1.0, 7.0, 10.0]
    """

    def __init__(self, tasks: int, child: npt.ArrayLike, parent: npt.ArrayLike):
        pairs = np.column_stack([np.asarray(child, np.int64), np.asarray(parent, np.int64)])
        if len(pairs) and (pairs.min() < 0 or pairs.max() >= tasks):
            raise ValueError(f"an edge names a task outside 0 to {tasks - 1}")
        self.tasks, self.child, self.parent = tasks, *_sorted_once(pairs[:, 0], pairs[:, 1])

    @classmethod
    def of_jobs(cls, jobs: pl.DataFrame) -> Dag:
        """The graph of :attr:`~gangwise.traces.tables.Tables.jobs`; task i is its row i.

        Raises TraceError when a task waits for one that its job does not have; names job and row.
        """
        tasks = jobs.select("row", "job", "name", "after").with_row_index("child")
        waits = tasks.filter(pl.col("after") != "").with_columns(pl.col("after").str.split("|"))
        known = tasks.select("job", pl.col("name").alias("after"), parent="child")
        edges = waits.explode("after").join(known, on=["job", "after"], how="left")
        lost = edges.filter(pl.col("parent").is_null())
        if len(lost):
            job, name, after, row = lost.select("job", "name", "after", "row").row(0)
            raise TraceError(
                f"task {name} of job {job} (row {row}) waits for {after}, which is not in the job"
            )
        return cls(len(jobs), edges["child"].to_numpy(), edges["parent"].to_numpy())

    def parents(self, task: int) -> Ints:
        """Tasks that a task waits for, ascending."""
        first, last = np.searchsorted(self.child, [task, task + 1])
        return self.parent[first:last]

    @cached_property
    def level(self) -> Ints:
        """Edges on the longest way to each task; -1 on a circle, or after one. Shape [tasks]."""
        by_parent = np.argsort(self.parent, kind="stable")
        child = self.child[by_parent]
        first = np.r_[0, np.cumsum(np.bincount(self.parent, minlength=self.tasks))]
        waits_for = np.bincount(self.child, minlength=self.tasks)
        level = np.full(self.tasks, -1, np.int64)
        ready, depth = np.flatnonzero(waits_for == 0), 0
        while ready.size:
            level[ready] = depth
            count = first[ready + 1] - first[ready]
            start = np.repeat(first[ready] - np.r_[0, np.cumsum(count)[:-1]], count)
            freed = child[start + np.arange(count.sum())]
            np.subtract.at(waits_for, freed, 1)
            found = np.sort(freed[waits_for[freed] == 0])  # np.unique hashes, and misses the cache
            ready, depth = found[np.diff(found, prepend=-1) > 0], depth + 1
        return level

    @cached_property
    def circle(self) -> Ints:
        """Number of the circle that each task is on; -1 for none. Shape [tasks].

        Circles that share a task have one number.
        """
        from scipy.sparse import coo_array  # here: few logs have circles
        from scipy.sparse.csgraph import connected_components

        stuck = np.flatnonzero(self.level < 0)
        place = np.full(self.tasks, -1, np.int64)
        place[stuck] = np.arange(stuck.size)
        inside = (place[self.child] >= 0) & (place[self.parent] >= 0)
        a, b = place[self.parent[inside]], place[self.child[inside]]
        graph = coo_array((np.ones(a.size), (a, b)), shape=(stuck.size, stuck.size))
        circle = np.full(self.tasks, -1, np.int64)
        if stuck.size:
            _, group = connected_components(graph, connection="strong")
            on = np.bincount(group)[group] > 1
            on[a[a == b]] = True
            circle[stuck[on]] = group[on]
        return circle

    def order(self) -> Ints:
        """All tasks, parents first; of those that could come next, level by level, then ascending.

        Raises TraceError when tasks wait for each other in a circle.
        """
        self._refuse_circles()
        return np.lexsort((np.arange(self.tasks), self.level))

    def finish(self, duration: Floats) -> Floats:
        """When each task ends at the earliest, every one starting as soon as its parents end.

        The largest over the tasks of a job is the length of its critical path. ``duration`` is of
        shape [tasks]. Raises TraceError when tasks wait for each other in a circle.
        """
        self._refuse_circles()
        done = np.array(duration, dtype=np.float64)
        depth = self.level[self.child]
        by_depth = np.argsort(depth, kind="stable")
        bounds = np.searchsorted(depth[by_depth], np.arange(1, self.level.max(initial=0) + 2))
        for first, last in pairwise(bounds.tolist()):
            edges = by_depth[first:last]
            child = self.child[edges]  # ascending, as the sort by depth is stable
            first_of = np.flatnonzero(np.diff(child, prepend=-1))
            done[child[first_of]] += np.maximum.reduceat(done[self.parent[edges]], first_of)
        return done

    def _refuse_circles(self) -> None:
        on = np.flatnonzero(self.circle >= 0)
        if on.size:
            same = np.flatnonzero(self.circle == self.circle[on[0]])
            raise TraceError(f"tasks wait for each other in a circle: {same[:12].tolist()}")


def _sorted_once(child: Ints, parent: Ints) -> tuple[Ints, Ints]:
    """Edges by child, then parent, each once."""
    step = np.diff(child)
    if ((step < 0) | ((step == 0) & (np.diff(parent) < 0))).any():
        order = np.lexsort((parent, child))
        child, parent = child[order], parent[order]
    new = (np.diff(child, prepend=-1) != 0) | (np.diff(parent, prepend=-1) != 0)
    return child[new], parent[new]

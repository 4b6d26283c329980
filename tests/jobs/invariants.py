"""What holds of every schedule, whoever decided: looked at piece by piece."""

from __future__ import annotations

import numpy as np

from gangwise.jobs import Conditions, Jobs, Nodes, Schedule, simulate_jobs
from gangwise.jobs.books import Place
from gangwise.jobs.kernels import CANCELLED, FINISHED, KILLED
from gangwise.jobs.site import Site


class Careless:
    """Starts every waiting job on the first node, whatever the rules are."""

    def resize(self, nodes, job_types): ...

    def observe(self, rate): ...

    def place(self, queue, books, now):
        return [Place(job.id, ((0, job.tasks),)) for job in queue]


def starts(
    site: Site | None, jobs: Jobs, nodes: Nodes, name: str = "fcfs+easy+best-fit"
) -> list[float]:
    """Starts, of which compiled code and Python say the same."""
    both = [simulate_jobs(jobs, nodes, name, site=site, engine=e) for e in ("compiled", "plain")]
    assert np.array_equal(both[0].start, both[1].start, equal_nan=True)
    return both[0].start.tolist()


Attempt = tuple[float, float, list[tuple[int, int]]]


def attempts_of(schedule: Schedule) -> list[list[Attempt]]:
    """Begin, end (inf if it still runs) and nodes with tasks of every attempt of every job."""
    found: list[list[Attempt]] = [[] for _ in range(len(schedule.jobs))]
    cuts = schedule.cuts
    for i, j in enumerate(cuts["job"].tolist()):
        a, b = cuts["from"][i], cuts["from"][i + 1]
        on = list(zip(cuts["node"][a:b].tolist(), cuts["tasks"][a:b].tolist()))
        found[j].append((float(cuts["begun"][i]), float(cuts["end"][i]), on))
    for j in range(len(schedule.jobs)):
        if schedule.phase[j] in (FINISHED, KILLED) or (
            schedule.phase[j] == CANCELLED and not np.isnan(schedule.end[j])
        ):
            found[j].append(
                (float(schedule.last_start[j]), float(schedule.end[j]), schedule.placed(j))
            )
    return found


def check_schedule(jobs: Jobs, nodes: Nodes, conditions: Conditions, schedule: Schedule) -> int:
    """Assert what must hold; gives the number of attempts looked at.

    No device twice; gangs whole, within their tasks per node and labels; nothing on a node that is
    down, nothing begun on one that drains; no job twice at once, before it was submitted, or
    before those it comes after have ended.
    """
    everything = attempts_of(schedule)
    down, closed = _times(conditions, len(nodes))
    changes: list[tuple[float, int, int, np.ndarray]] = []
    count = 0
    for j, attempts in enumerate(everything):
        shape = jobs.shapes[jobs.shape[j]]
        demand = np.array(shape.demand)
        before = jobs.submit[j]
        for other in jobs.after[jobs.after_from[j] : jobs.after_from[j + 1]]:
            if not np.isnan(schedule.end[other]):
                before = max(before, schedule.end[other])
        for begun, end, on in sorted(attempts, key=lambda a: a[:2]):
            count += 1
            assert before <= begun <= end, (jobs.id[j], before, begun, end)
            before = end
            assert sum(c for _, c in on) == jobs.tasks[j], (jobs.id[j], on)
            per_node: dict[int, int] = {}
            for n, c in on:
                per_node[n] = per_node.get(n, 0) + c
                has = nodes.labels[n]
                assert all(has.get(k) == v for k, v in shape.constraint), (jobs.id[j], n)
                assert not any(a <= begun < b or begun < a < end for a, b in down[n]), jobs.id[j]
                assert not any(a <= begun < b for a, b in closed[n]), (jobs.id[j], n)
                if begun < end:
                    changes.append((end, 0, n, -c * demand))
                    changes.append((begun, 1, n, c * demand))
            most = max(per_node.values())
            assert shape.per_node == 0 or most <= shape.per_node, (jobs.id[j], on)
    used = np.zeros((len(nodes), len(nodes.devices)), dtype=np.int64)
    for _, _, n, amount in sorted(changes, key=lambda change: change[:2]):
        used[n] += amount
        assert (used[n] <= nodes.capacity[n]).all(), nodes.names[n]
    return count


def _times(conditions: Conditions, N: int) -> tuple[list, list]:
    """Of each node: when it is down, and when nothing may begin there."""
    down: list[list[tuple[float, float]]] = [[] for _ in range(N)]
    closed: list[list[tuple[float, float]]] = [[] for _ in range(N)]
    for kind, events in ((down, conditions.downs), (closed, conditions.drains)):
        for t, n in events:
            back = min((u for u, m in conditions.ups if m == n and u >= t), default=np.inf)
            kind[n].append((float(t), float(back)))
    return down, closed

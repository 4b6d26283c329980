"""What tests of a site's rules share: starts on which both engines agree, and who breaks rules."""

from __future__ import annotations

import numpy as np

from gangwise.jobs import Jobs, Nodes, simulate_jobs
from gangwise.jobs.books import Place
from gangwise.sites.site import Site


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

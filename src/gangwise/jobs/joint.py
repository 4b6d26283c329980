"""Joint choice: nodes for several gangs that can start at once, by an integer programme.

One after another, the first gang takes the best nodes though the second may gain more from them.
Here the gangs that would start anyway in a round are placed together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from gangwise.core.arrays import Floats, Ints
from gangwise.jobs import rate_kernels
from gangwise.jobs.books import Books
from gangwise.jobs.choice import ByRate, Tasks
from gangwise.jobs.model import Job

Row = tuple[Ints, Floats | Ints, float, float]
"""A constraint: columns, their factors, and the least and most that the sum may be."""


def place_jointly(
    tasks: Ints, fits: Ints, worth: Floats, seconds: Floats, demand: Ints, free: Ints
) -> list[Tasks] | None:
    """Nodes for all of several gangs that cost least in all: Σ_j seconds_j · exp(−w_j).

    w_j is the least worth among the nodes that gang j has tasks on: it runs at the rate of its
    slowest. HiGHS solves: x[j, n] tasks of gang j on node n, z[j, i] that its level is i,

        min Σ_j Σ_i seconds_j · exp(−level_ji) · z_ji
        Σ_i z_ji = 1,  Σ_n x_jn = tasks_j,  Σ_j demand_jk · x_jn ≤ free_nk,
        x_jn ≤ fits_jn · Σ_{i: level_ji ≤ worth_jn} z_ji.

    ``tasks`` [J]; ``fits`` [J, N] most tasks of a gang on a node; ``worth`` [J, N] logs of rates
    with what is added to them; ``seconds`` [J] at rate 1; ``demand`` [J, K] of a task; ``free``
    [N, K]. Returns (node, tasks) of each gang; None where not all gangs fit.

    Examples
    --------
    Gang 0 could have the fast node, but gang 1 gains more from it.

    >>> import numpy as np
    >>> place_jointly(
    ...     tasks=np.array([1, 1]),
    ...     fits=np.array([[1, 1], [1, 1]]),
    ...     worth=np.log([[1.0, 0.9], [1.0, 0.3]]),
    ...     seconds=np.array([60.0, 60.0]),
    ...     demand=np.array([[8], [8]]),
    ...     free=np.array([[8], [8]]),
    ... )
    [[(1, 1)], [(0, 1)]]
    """
    J, N = fits.shape
    if (np.minimum(fits, tasks[:, None]).sum(axis=1) < tasks).any():
        return None
    usable = [np.flatnonzero(fits[j] > 0) for j in range(J)]
    levels = [np.unique(worth[j, on]) for j, on in enumerate(usable)]
    x_at = np.cumsum([0, *(on.size for on in usable)])
    z_at = x_at[-1] + np.cumsum([0, *(level.size for level in levels)])
    size = int(z_at[-1])
    cost, most = np.zeros(size), np.ones(size)
    column = np.full((J, N), -1)
    rows: list[Row] = []
    for j, (on, level) in enumerate(zip(usable, levels, strict=True)):
        xs, zs = np.arange(x_at[j], x_at[j + 1]), np.arange(z_at[j], z_at[j + 1])
        cost[zs], most[xs], column[j, on] = seconds[j] * np.exp(-level), fits[j, on], xs
        rows.append((xs, np.ones(xs.size), tasks[j], tasks[j]))
        rows.append((zs, np.ones(zs.size), 1.0, 1.0))
        for x, n in zip(xs, on):
            able = zs[level <= worth[j, n]]
            factor = np.append(1.0, np.full(able.size, -float(fits[j, n])))
            rows.append((np.append(x, able), factor, -np.inf, 0.0))
    for n, k in np.ndindex(free.shape):
        some = np.flatnonzero((column[:, n] >= 0) & (demand[:, k] > 0))
        if some.size:
            rows.append((column[some, n], demand[some, k], -np.inf, float(free[n, k])))
    columns, factors, low, high = zip(*rows)
    at = np.repeat(np.arange(len(rows)), [each.size for each in columns])
    matrix = coo_array(
        (np.concatenate(factors).astype(np.float64), (at, np.concatenate(columns))),
        shape=(len(rows), size),
    )
    found = milp(
        cost,
        integrality=np.ones(size),
        bounds=Bounds(0.0, most),
        constraints=LinearConstraint(matrix.tocsc(), low, high),
        options={"mip_rel_gap": 1e-9, "time_limit": 5.0},
    )
    if found.x is None:
        return None
    x = np.round(found.x[: x_at[-1]]).astype(np.int64)
    return [
        [(int(n), int(c)) for n, c in zip(on, x[x_at[j] : x_at[j + 1]], strict=True) if c]
        for j, on in enumerate(usable)
    ]


@dataclass
class Joint(ByRate):
    """As by rate, but gangs that can start in the same round are placed together, exactly.

    Parameters
    ----------
    most : int
        How many gangs are placed together.
    """

    most: int = 6
    name: ClassVar[str] = "joint"
    together: dict[str, Tasks] = field(default_factory=dict, init=False, repr=False)
    solved: int = field(default=0, init=False, repr=False)

    def prepare(self, order: Sequence[Job], books: Books, now: float) -> None:
        """Place jobs together that one after another would start now, first come first served."""
        self.together = {}
        trial = books.copy()
        starting: list[Job] = []
        for job in order[: self.most]:
            chosen = super().place(job, trial, now)
            if chosen is None or self.holds_off(job, chosen, trial, len(order), now) > 0.0:
                break
            trial.take(job.shape, trial.tell_apart(job.shape, chosen))
            starting.append(job)
        if len(starting) < 2:
            return
        found = place_jointly(
            np.array([job.tasks for job in starting]),
            np.stack([np.minimum(books.fits(job.shape), job.tasks) for job in starting]),
            np.stack([self.worth(job, books, now) for job in starting]),
            np.array([rate_kernels.remaining(self.state, job.limit, 0.0) for job in starting]),
            np.array([job.shape.demand for job in starting]),
            books.free,
        )
        if found is None:
            return
        trial = books.copy()
        for job, chosen in zip(starting, found, strict=True):
            room = trial.fits(job.shape)  # parts of devices are not in the programme
            short = any(room[n] < c for n, c in chosen)
            if short or self.holds_off(job, chosen, trial, len(order), now) > 0.0:
                return
            trial.take(job.shape, trial.tell_apart(job.shape, chosen))
        self.solved += 1
        self.together = {job.id: chosen for job, chosen in zip(starting, found, strict=True)}

    def place(self, job: Job, books: Books, now: float) -> Tasks | None:
        """The nodes that were prepared, else the best ones first."""
        chosen = self.together.pop(job.id, None)
        if chosen is not None:
            fits = books.fits(job.shape)
            if all(fits[n] >= c for n, c in chosen):
                return chosen
        return super().place(job, books, now)

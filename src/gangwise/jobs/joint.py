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


def place_jointly(
    tasks: Ints, fits: Ints, worth: Floats, seconds: Floats, demand: Ints, free: Ints
) -> list[Tasks] | None:
    """Nodes for all of several gangs that cost least in all: Σ_j seconds_j · exp(−w_j).

    w_j is the least worth among the nodes that gang j has tasks on: it runs at the rate of its
    slowest. HiGHS solves: x[j, n] tasks of gang j on node n, z[j, i] that its level is i,

        min Σ_j Σ_i seconds_j · exp(−level_ji) · z_ji
        Σ_i z_ji = 1,  Σ_n x_jn = tasks_j,  Σ_j demand_jk · x_jn ≤ free_nk,
        x_jn ≤ fits_jn · Σ_{i: level_ji ≤ worth_jn} z_ji.

    Parameters
    ----------
    tasks : ndarray [J]
    fits : ndarray [J, N]
        Most tasks of a gang on a node.
    worth : ndarray [J, N]
        Log of the rate, with what is added and taken off it.
    seconds : ndarray [J]
        Expected time at rate 1.
    demand : ndarray [J, K]
        Devices of one task.
    free : ndarray [N, K]

    Returns
    -------
    list of (node, tasks), one list a gang; None where not all of them fit.

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
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    lower: list[float] = []
    upper: list[float] = []

    def constrain(entries: Sequence[tuple[int, float]], low: float, high: float) -> None:
        for column, value in entries:
            rows.append(len(lower))
            columns.append(column)
            values.append(value)
        lower.append(low)
        upper.append(high)

    cost, most = np.zeros(size), np.ones(size)
    for j, (on, level) in enumerate(zip(usable, levels, strict=True)):
        cost[z_at[j] : z_at[j + 1]] = seconds[j] * np.exp(-level)
        most[x_at[j] : x_at[j + 1]] = fits[j, on]
        constrain([(x_at[j] + i, 1.0) for i in range(on.size)], tasks[j], tasks[j])
        constrain([(z_at[j] + i, 1.0) for i in range(level.size)], 1.0, 1.0)
        for i, n in enumerate(on):
            able = np.flatnonzero(level <= worth[j, n])
            entries = [(z_at[j] + int(m), -float(fits[j, n])) for m in able]
            constrain([(x_at[j] + i, 1.0), *entries], -np.inf, 0.0)
    for node in range(N):
        for k in range(free.shape[1]):
            entries = [
                (x_at[j] + int(i), float(demand[j, k]))
                for j, on in enumerate(usable)
                for i in np.flatnonzero(on == node)
                if demand[j, k] > 0
            ]
            if entries:
                constrain(entries, -np.inf, float(free[node, k]))
    found = milp(
        cost,
        integrality=np.ones(size),
        bounds=Bounds(0.0, most),
        constraints=LinearConstraint(
            coo_array((values, (rows, columns)), shape=(len(lower), size)).tocsc(), lower, upper
        ),
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
        """As prepared, else best nodes first."""
        chosen = self.together.pop(job.id, None)
        if chosen is not None:
            fits = books.fits(job.shape)
            if all(fits[n] >= c for n, c in chosen):
                return chosen
        return super().place(job, books, now)

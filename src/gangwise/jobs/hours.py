"""Closed hours: times of the week at which some jobs do not start, on the clock of a log.

A closed job waits for its hours to open as others wait for room: under EASY the first of its pool
is promised a start then, and who passes it leaves it what it was promised. Each pool has a first in
line among those that are closed, and another among the rest.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.clock import DAY, DAYS, Clock
from gangwise.jobs.caps import Cap, claims
from gangwise.jobs.model import Jobs, Nodes

YEARS = 5  # hours are known for so long after the last submission; from then on all are open
ALWAYS = "Mon-Sun 00:00-24:00"
_TIME = r"(\d\d):(\d\d)(?::(\d\d))?"
_SPAN = re.compile(rf"([\w,-]+) {_TIME}-{_TIME}")


def weekly(text: str) -> list[tuple[int, int, int]]:
    """Days of the week (0 is Monday), and seconds of the day from and to, of hours in words.

    Raises ValueError, which says what was not understood.

    >>> weekly("Mon-Tue,Sun 08:00-18:30")
    [(0, 28800, 66600), (1, 28800, 66600), (6, 28800, 66600)]
    >>> weekly("Fri 22:00-06:00")  # until the next morning
    [(4, 79200, 86400), (5, 0, 21600)]
    """
    if (match := _SPAN.fullmatch(text.strip())) is None:
        raise ValueError(f"hours are {text!r}; write them like 'Mon-Fri 08:00-18:00'")
    days: list[int] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        if {first, last or first} - set(DAYS):
            raise ValueError(
                f"{part!r} is not a day of the week, or two; there are {', '.join(DAYS)}"
            )
        low, high = DAYS.index(first), DAYS.index(last or first)
        days += [(low + i) % 7 for i in range((high - low) % 7 + 1)]
    h, m, s, *then = (int(x or 0) for x in match.groups()[1:])
    since, to = (3600 * h + 60 * m + s for h, m, s in ((h, m, s), then))
    if max(since, to) > DAY or since in (to, DAY) or max(m, s, *then[1:]) > 59:
        raise ValueError(f"{text!r} are not hours of a day, from 00:00 to 24:00")
    if since < to:
        return [(day, since, to) for day in days]
    nights = [((day, since, DAY), ((day + 1) % 7, 0, to)) for day in days]
    return [span for night in nights for span in night if span[1] < span[2]]


@dataclass(frozen=True)
class Closing:
    """Hours in which jobs do not start that ask for more time, or more devices, than allowed."""

    hours: tuple[str, ...]  # in words, see :func:`weekly`
    clock: Clock
    longer_than: float  # seconds
    cap: Cap  # what counts, of whom, and how much of it a job may take in these hours
    since: float = -np.inf  # in force from then on, seconds on the log's clock …
    to: float = np.inf  # … and until then
    exempt: tuple[str, ...] = ()  # users whose jobs start all the same

    def about(self, jobs: Jobs, nodes: Nodes, demand: Ints) -> Bools:
        """Jobs that do not start then [J]; ``demand`` [S, K] is over the nodes' device types."""
        [(counts, amount)] = claims([self.cap], jobs, nodes, demand)
        more = (counts >= 0) & (amount > round(1000 * self.cap.most))
        more &= ~np.array([name in self.exempt for name in jobs.users])[jobs.user]
        return np.asarray(more & (jobs.limit > self.longer_than))

    def times(self, first: float, last: float) -> list[tuple[float, float]]:
        """From when to when these hours are, between two times of the log and days around."""
        day = self.clock.date(first).replace(hour=0, minute=0, second=0, microsecond=0)
        week = [span for text in self.hours for span in weekly(text)]
        found = []
        for _ in range(int((last - first) // DAY) + 3):
            for weekday, since, to in week:
                if weekday == day.weekday():
                    low, high = (self.clock.at(day + timedelta(seconds=s)) for s in (since, to))
                    found.append((max(low, self.since), min(high, self.to)))
            day += timedelta(days=1)
        return merged([(low, high) for low, high in found if low < high])

    @property
    def whose(self) -> str:
        """The jobs that do not start, in words: what they ask for, of which pool and users."""
        cap, asks = self.cap, []
        if self.longer_than >= 0:
            asks.append(f"for longer than {self.longer_than / 3600:.4g} h")
        if cap.most:
            asks.append(f"for more than {cap.most:g} {cap.of}")
        whose = "jobs" + f" of pool {cap.pool}" * bool(cap.pool)
        whose += f" that ask {' and '.join(asks)}" * bool(asks)
        return whose + f" but those of user {', '.join(self.exempt)}" * bool(self.exempt)

    @property
    def description(self) -> str:
        return f"closed hours of {self.whose}: {', '.join(self.hours)}"


@dataclass(frozen=True, eq=False)
class Opening:
    """When jobs may start: those with the same rules are of a class, of which 0 is never closed.

    Class c is closed from ``since[i]`` to ``to[i]``, i from ``starts[c]`` to ``starts[c + 1]``.
    """

    closings: tuple[Closing, ...]
    about: Bools  # [R, J] or [0, 0]
    of_job: Ints  # [J] or one value for all
    starts: Ints
    since: Floats
    to: Floats

    @classmethod
    def of(cls, closings: Sequence[Closing], jobs: Jobs, nodes: Nodes, demand: Ints) -> Opening:
        """Lay out closed hours from the first submission until :data:`YEARS` after the last."""
        if not closings or not len(jobs):
            none, zero = np.zeros(0), np.zeros(1, dtype=np.int64)
            return cls((), np.zeros((0, 0), bool), zero, np.zeros(2, dtype=np.int64), none, none)
        about = np.stack([c.about(jobs, nodes, demand) for c in closings])
        first, last = float(jobs.submit.min()), float(jobs.submit.max()) + YEARS * 366 * DAY
        times = [c.times(first, last) for c in closings]
        nobody = np.zeros((len(closings), 1), dtype=bool)
        kinds, of_job = np.unique(np.hstack([nobody, about]), axis=1, return_inverse=True)
        each = []
        for kind in kinds.T:
            mine = merged([span for c in np.flatnonzero(kind) for span in times[c]])
            if mine and mine[-1][1] - mine[-1][0] > 8 * DAY and mine[-1][1] > last - DAY:
                mine[-1] = mine[-1][0], np.inf  # it never opens again
            each.append(mine)
        flat = np.array([span for mine in each for span in mine]).reshape(-1, 2)
        starts = np.concatenate([[0], np.cumsum([len(mine) for mine in each])])
        since, to = np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1])
        return cls(tuple(closings), about, of_job.ravel()[1:], starts, since, to)

    def opens(self, row: int, at: float) -> float:
        """The first time from then on at which the job of a row may start."""
        if not self.closings:
            return at
        c = self.of_job[row]
        i = bisect_right(self.since, at, int(self.starts[c]), int(self.starts[c + 1])) - 1
        return float(self.to[i]) if i >= self.starts[c] and at < self.to[i] else at

    def why(self, row: int, at: float) -> str:
        """The closed hours that keep a job from starting then."""
        for c in np.flatnonzero(self.about[:, row]):
            if any(low <= at < high for low, high in self.closings[c].times(at - DAY, at)):
                return self.closings[c].description
        return "closed hours"


def merged(given: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans of time without overlaps.

    >>> merged([(5, 9), (0, 2), (1, 6)])
    [(0, 9)]
    """
    found: list[tuple[float, float]] = []
    for since, to in sorted(given):
        if found and since <= found[-1][1]:
            found[-1] = found[-1][0], max(to, found[-1][1])
        else:
            found.append((since, to))
    return found

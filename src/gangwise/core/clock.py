"""Dates and hours of the day on the clock of a log, whose times are seconds since its time 0."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cached_property
from zoneinfo import ZoneInfo

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
DAY = 86400
UNIX = 1e8  # a log whose first second is later than this counts in Unix time


@dataclass(frozen=True)
class Clock:
    """Where a log's time 0 lies: Unix time, and a zone, or seconds that it is ahead of UTC."""

    epoch: float
    zone: str = "UTC"

    @cached_property
    def tz(self) -> tzinfo:
        """The zone; raises ScenarioError for one that this computer does not know."""
        if self.zone.lstrip("+-").isdecimal():
            return timezone(timedelta(seconds=int(self.zone)))
        try:
            return UTC if self.zone == "UTC" else ZoneInfo(self.zone)
        except (ValueError, KeyError, OSError) as error:
            raise ScenarioError(
                f"there is no time zone {self.zone!r} here; give one such as 'Europe/Stockholm' "
                "(package tzdata has them all), or seconds ahead of UTC"
            ) from error

    def date(self, at: float) -> datetime:
        """Local date of a time of the log."""
        return datetime.fromtimestamp(self.epoch + at, self.tz)

    def at(self, date: datetime) -> float:
        """Time of the log at a date, which is local where it has no zone of its own."""
        return (date if date.tzinfo else date.replace(tzinfo=self.tz)).timestamp() - self.epoch

    def ahead(self, times: Floats) -> Floats:
        """Seconds by which local clocks are ahead of where they were at the log's time 0."""
        hours, of = np.unique(times // 3600, return_inverse=True)
        zones = [self.date(at).utcoffset() or timedelta(0) for at in (0.0, *(3600 * hours))]
        return np.array([(zone - zones[0]).total_seconds() for zone in zones[1:]])[of]

    @property
    def monday(self) -> float:
        """Seconds from a Monday, 0:00 local time as it was then, to the log's time 0."""
        then = self.date(0.0)
        return then.weekday() * DAY + (then.hour * 60 + then.minute) * 60 + then.second

    @classmethod
    def of(cls, clock: Clock | None, first: float) -> Clock | None:
        """The clock that a log gives, or Unix time where its first time can be nothing else."""
        return clock or (cls(0.0) if first > UNIX else None)

"""Closed hours and clocks of logs: the calendar, and what a site makes of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from gangwise.core.errors import InfeasibleDecision, ScenarioError
from gangwise.core.settings import Clock
from gangwise.jobs import Conditions, Jobs, Nodes
from gangwise.jobs.schedule import Options, Tables
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.simulation import JobSimulation, simulate_jobs
from gangwise.jobs.tenancy import Cap, Closing, Opening, weekly
from gangwise.logs.formats.tabular import clock_of
from gangwise.sites.site import ClosedHours, MaintenanceWindow, Rules, Site
from tests.jobs.middle import SiteCase
from tests.jobs.played import Careless, starts

MONDAY = {"start": "2026-01-05T00:00:00"}


def test_closed_hours_follow_the_calendar_through_daylight_saving():
    """Every quarter of an hour of a year, asked of the calendar itself."""
    zone = ZoneInfo("Europe/Stockholm")
    clock = Clock(datetime(2026, 1, 1, 6, 30, tzinfo=UTC).timestamp(), "Europe/Stockholm")
    hours = ("Mon-Fri 08:00-18:00", "Sat 22:00-04:00", "Sun 23:00-24:00")
    closing = Closing(hours, clock, 3600, Cap("all", "jobs", 0), since=20 * 86400.0)
    jobs = Jobs.of(submit=[0, 0, 370 * 86400], run=10, limit=[7200, 3600, 9999])
    opening = Opening.of([closing], jobs, Nodes.pool(1), np.array([[1000]]))
    first = datetime(2026, 1, 1, 6, 30, tzinfo=UTC)
    shut = []
    for quarter in range(4 * 24 * 365):
        then = (first + timedelta(minutes=15 * quarter)).astimezone(zone)
        day, hour = then.weekday(), then.hour + then.minute / 60
        shut.append(
            quarter >= 20 * 96
            and (
                (day < 5 and 8 <= hour < 18)
                or (day == 5 and hour >= 22)
                or (day == 6 and (hour < 4 or hour >= 23))
            )
        )
    for quarter in range(0, len(shut) - 800, 3):
        expected = quarter + shut[quarter:].index(False)
        assert opening.opens(0, 900.0 * quarter) == 900.0 * expected, quarter
        assert opening.opens(1, 900.0 * quarter) == 900.0 * quarter  # asks for no more than 1 h
    assert sum(shut) > 10_000


@pytest.mark.parametrize("before", [3600.0, 5300.0, 7199.5])
def test_clocks_change_at_one_instant_at_whatever_second_a_log_begins(before):
    zone, change = ZoneInfo("Europe/Stockholm"), datetime(2026, 3, 29, 1, tzinfo=UTC)
    clock = Clock(change.timestamp() - before, "Europe/Stockholm")
    times = np.arange(0.0, 4 * 3600.0, 60.0)
    dates = [(change + timedelta(seconds=at - before)).astimezone(zone) for at in times.tolist()]
    offsets = np.array([date.utcoffset().total_seconds() for date in dates])
    assert np.array_equal(clock.ahead(times), offsets - offsets[0])
    assert np.ptp(offsets) == 3600.0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("8 to 18", "write them like"),
        ("Mon-Fry 08:00-18:00", "'Mon-Fry' is not a day"),
        ("Mon 08:00-24:30", "not hours of a day"),
        ("Mon 08:00-08:00", "not hours of a day"),
        ("Mon 08:70-09:00", "not hours of a day"),
    ],
)
def test_hours_that_are_none_are_named(text, said):
    with pytest.raises(ValueError, match=said):
        weekly(text)


def test_who_passes_a_closed_job_leaves_it_what_it_is_promised():
    """A night job of 4 devices at 18:00; by day, who ends before or leaves 4 may pass."""
    site = Site(
        Rules(
            closed=(ClosedHours(hours=("Mon-Fri 08:00-18:00",), longer_than=4 * 3600),),
            clock=MONDAY,
        )
    )
    hour = 3600 * np.array([9, 10, 11, 12, 13])
    jobs = Jobs.of(hour, 3600.0 * np.array([9, 4, 4, 4, 1]), tasks=[4, 3, 2, 2, 5])
    # The second ends at 14:00, the third has 3 of 6 left until 15:00; the fourth would end at 18:00
    # if it began at 14:00; the last needs 5 and is first in line among those that are open.
    for backfilling in ("easy", "none", "conservative"):
        at = starts(site, jobs, Nodes.pool(6), f"fcfs+{backfilling}+best-fit")
        assert at == [3600 * hour for hour in (18, 10, 11, 14, 27)]


def test_dates_are_of_the_logs_clock_and_a_log_without_one_is_refused():
    """A window of an hour in summer, on a log whose time 0 is a noon of winter in Stockholm."""
    rules = Rules(
        window=(
            MaintenanceWindow(
                **{"from": datetime(2026, 1, 5, 13), "to": datetime(2026, 1, 5, 15), "count": 1}
            ),
        )
    )
    jobs = Jobs.of(submit=[0, 3600, 4000], run=60)
    with pytest.raises(ScenarioError, match="window 1"):
        simulate_jobs(jobs, Nodes.pool(1), site=Site(rules))
    clock = clock_of({"UnixStartTime": "1767610800", "TimeZoneString": "Europe/Stockholm"})
    assert clock is not None
    assert clock.date(0.0).isoformat() == "2026-01-05T12:00:00+01:00"
    site = Site(rules, log_clock=clock)
    assert simulate_jobs(jobs, Nodes.pool(1), site=site).start.tolist() == [0, 10800, 10860]
    unknown = clock_of({"UnixStartTime": "1767610800", "TimeZoneString": "No/Where"})
    assert unknown == Clock(1767610800.0, "UTC")
    late = Site(Rules(window=(MaintenanceWindow(**{"from": 9e8, "count": 1}),)))
    assert "window 1 is not in force" in " ".join(late.lines(jobs))


def test_explain_names_the_closed_hours_and_a_start_in_them_is_refused():
    closed = ClosedHours(hours=("Mon 00:00-01:00",), more_than=1, of="cpu")
    jobs = Jobs.of(submit=[0, 0], run=[10, 20], tasks=[2, 1])
    site = Site(Rules(closed=(closed,), clock=MONDAY))
    scheduler = create_scheduler("fcfs+easy+best-fit")
    tables = site.placed(jobs, Nodes.pool(4), Conditions())
    simulation = JobSimulation(Tables.of(*tables, site.options(Options())), scheduler)
    simulation.step()
    said = scheduler.explain("0")
    text = "closed hours of jobs that ask for more than 1 cpu: Mon 00:00-01:00"
    assert (said.constraint, said.until, said.start) == (text, 3600, 3600)

    with pytest.raises(InfeasibleDecision, match="placed"):
        simulate_jobs(jobs, Nodes.pool(4), Careless(), site=site)


def test_closed_hours_have_exceptions():
    """Of jobs of three users those of b start in closed hours."""
    jobs = Jobs.of([0, 1, 2], [9, 9, 9], user=["a", "b", "c"])
    closed = {"hours": ["Mon 00:00-01:00"], "except": ["b"]}
    site = Site(Rules.model_validate({"closed": [closed], "clock": MONDAY}))
    assert starts(site, jobs, Nodes.pool(3), "fcfs+easy") == [3600, 1, 3600]
    assert site.options(Options()).closed[0].whose == "jobs but those of user b"
    plain = {"closed": [{"hours": ["Mon 00:00-01:00"]}], "clock": MONDAY}
    assert Site(Rules.model_validate(plain)).digest != site.digest
    assert Site(Rules.model_validate(plain)).digest == "d325ab08ba239876"


def test_hours_that_never_open_again_leave_jobs_waiting():
    closed = ClosedHours(hours=("Mon-Sun 00:00-24:00",), longer_than=50)
    jobs = Jobs.of(submit=[0, 1], run=[60, 10])
    found = starts(Site(Rules(closed=(closed,), clock=MONDAY)), jobs, Nodes.pool(1), "fcfs+easy")
    assert np.array_equal(found, [np.nan, 1], equal_nan=True)


@pytest.mark.full
def test_learned_ends_and_kept_starts_meet_closed_hours_alike_in_both_engines():
    """Promises of a start that is kept are beyond the witness; the engines are held together."""
    played = 0
    for seed in range(800):
        case = SiteCase(seed)
        usual = case.options.limits == "wall-clock" and case.names[1] == "easy" and case.size < 90
        if not case.rules.closed or not usual or case.names[2] in ("fgd", "oracle"):
            continue
        for more in ("ends=learned,slack=20", "ends=true,passing=shortest,slack=5"):
            both = [
                simulate_jobs(
                    *(case.jobs, case.nodes, f"{case.names[0]}+easy+best-fit:{more}"),
                    *(case.conditions, case.options),
                    site=Site(case.rules),
                    engine=engine,
                )
                for engine in ("compiled", "plain")
            ]
            assert np.array_equal(both[0].start, both[1].start, equal_nan=True), (seed, more)
            assert np.array_equal(both[0].end, both[1].end, equal_nan=True), (seed, more)
            played += 1
    assert played > 80


@pytest.mark.full
@pytest.mark.parametrize("name", ["las", "gavel"])
def test_schedulers_that_look_at_all_jobs_at_once_keep_to_closed_hours(name):
    """Long jobs start at night; without hours some start by day. A start by day is an error."""
    rng = np.random.default_rng(5)
    jobs = Jobs.of(
        np.sort(rng.uniform(0, 86_400, 30)),
        rng.integers(1000, 9000, 30),
        rng.integers(1, 4, 30),
        limit=rng.choice([1800, 20_000], 30),
    )
    closed = ClosedHours(hours=("Mon-Sun 08:00-18:00",), longer_than=4 * 3600)
    site = Site(Rules(closed=(closed,), clock=MONDAY))
    free, kept = (simulate_jobs(jobs, Nodes.pool(6), name, site=s) for s in (None, site))
    assert np.isfinite(kept.end).all()
    long, day = jobs.limit > 4 * 3600, [(t.last_start / 3600) % 24 for t in (free, kept)]
    assert (long & (day[0] > 8.1) & (day[0] < 17.9)).any()
    assert not (long & (day[1] > 8.1) & (day[1] < 17.9)).any()

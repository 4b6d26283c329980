"""Rules of a site, found in its log: caps, opening hours, missing capacity, start latency.

Evidence is what :mod:`gangwise.sites.retelling` finds: jobs that are *refused*, though every
job that waits would fit. A rule of the site is written down when it says which jobs those are:

- it is fitted on some weeks (odd or even ones) and judged on the others, both ways round;
- jobs that it forbids are refused there, and hardly any starts; jobs that it allows start far more
  often, so that chance gives as many refusals with a probability below :data:`CHANCE`, all rules
  that were tried counted;
- a cap has been reached and never passed, and the jobs it held back start when one of the same
  user, account or pool ends.

No rule is fitted to waiting times. Where nothing contradicts the plain model nothing is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import binom

from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.settings import DAYS, Clock
from gangwise.core.terminal import phrases
from gangwise.jobs.tenancy import ALWAYS, Cap, Closing
from gangwise.notation import fold_nodes
from gangwise.sites.retelling import (
    HOUR,
    HOURS,
    WEEK,
    GroupLimit,
    Missing,
    Record,
    SiteConstraints,
    Swept,
    WeeklyClosing,
    sweep,
)

phrase = phrases("gangwise.sites")

CHANCE = 1e-3  # highest probability that chance alone gives the evidence of a rule
LEAST = 4
"""Times (user and day) at which a rule must have refused a job in either half of the weeks."""
SLOWEST = 600.0  # a job that starts within so many seconds of what set it free was not refused
PASSED = 0.05
"""Of the times at which a rule forbids a start, the share at which one may start all the same."""
SELDOM = 0.1
"""Of the weeks in which a job waits through an hour that may be closed, the share with a start."""
FREED = 0.5
"""Of the jobs that a cap held back, the least share that starts when one of the same user ends."""
GRID = 30  # bounds of closed hours that are tried at once
ROUNDS = 24  # rules looked for, at most


@dataclass(frozen=True)
class FoundRule:
    """A rule of the site as its site file says it, and the evidence for it."""

    kind: str  # pool, cap, closed, window or start: the table of the site file
    entry: dict[str, Any]  # what the site file says
    between: tuple[float, float]  # values that the evidence does not exclude
    evidence: str
    # Refused jobs that it explains, in all and in the weeks that it was not fitted to, and how many
    # were refused in those.
    explains: tuple[int, int, int] = (0, 0, 0)
    rule: Any = None  # as SiteConstraints has it: GroupLimit, WeeklyClosing or Missing

    def as_dict(self) -> dict[str, Any]:
        share = ("refused_explained", "held_out_explained", "held_out_refused")
        plain = {"kind": self.kind, "entry": self.entry, "between": list(self.between)}
        return {**plain, "evidence": self.evidence, **dict(zip(share, self.explains))}


@dataclass(frozen=True)
class Calibration:
    """Rules found in a log, and how many of the jobs that were refused they explain."""

    findings: tuple[FoundRule, ...]
    contradicted: float  # hours in which no job started though every waiting job would have fitted
    left: float  # those of them that are left when the findings are known
    hours: float  # of the log
    refused: int  # jobs that came in contradicted hours and were not started
    unexplained: int  # those of them that no finding explains
    patience: float  # seconds that a start took at most


class Trials(NamedTuple):
    """What became of jobs that came while every waiting job would have fitted."""

    refused: Bools  # [J] still waiting when a start should be over, and no known rule forbids it
    prompt: Bools  # [J] started by then
    at: Floats  # [J] seconds: when it is seen
    odd: Ints  # [J] 0 or 1: the half of the weeks
    day: Ints  # [J]


def calibrate(
    record: Record,
    progress: Callable[[str, int, int], None] | None = None,
    away: tuple[Missing, ...] | None = None,
) -> Calibration:
    """Find the rules of a site in a recorded schedule.

    ``away`` is capacity that was not there, where node events give it; else it is looked for.

    Examples
    --------
    A user who may hold two devices of eight:

    >>> from gangwise.jobs import Jobs, Nodes
    >>> day = np.repeat(86400.0 * np.arange(40), 3)
    >>> start = day + np.tile([0.0, 0.0, 3600.0], 40)
    >>> jobs = Jobs.of(day, np.full(120, 3600.0), recorded_start=start, recorded_end=start + 3600)
    >>> found = calibrate(Record.of(jobs, Nodes.pool(8)))
    >>> [(one.kind, one.entry["scope"], one.entry["most"]) for one in found.findings]
    [('cap', 'all', 2)]
    """
    advance = progress or (lambda what, turn, of: None)
    uses = _uses(record)
    patience = _patience(record, sweep(record))
    # Without a rule: what is left unexplained here is what rules may explain, and no more.
    plain = sweep(record, SiteConstraints(), patience)
    start = _trials(record, SiteConstraints(), plain, patience)
    allowed, rules_found = _pools(record, start, patience)
    site = SiteConstraints(missing=away or (), allowed=allowed)
    for turn in range(ROUNDS):
        advance("looking for rules", turn, ROUNDS)
        swept = sweep(record, site, patience)
        trials = _trials(record, site, swept, patience)
        rules = [*_caps(record, uses, trials, patience), *_closings(record, site, swept, trials)]
        # Only where caps and hours explain nothing: a reservation or missing nodes explain nearly
        # any wait.
        rules = rules or [*_reserved(record, trials)]
        rules = rules or ([] if away is not None else [*_window(record, trials, swept)])
        if not rules:
            break
        # One rule a round, the one that explains most: the others are judged anew beside it.
        rules_found.append(max(rules, key=lambda one: one.explains[0]))
        rule = rules_found[-1].rule
        kind = {GroupLimit: "limits", WeeklyClosing: "closed", Missing: "missing"}[type(rule)]
        site = replace(site, **{kind: (*getattr(site, kind), rule)})
    advance("looking for rules", ROUNDS, ROUNDS)
    return Calibration(
        (*rules_found, *_latency(record, start)),
        float((plain.lasts * plain.refused).sum()) / HOUR,
        float((swept.lasts * swept.refused).sum()) / HOUR,
        float(plain.time[-1] - plain.time[0]) / HOUR,
        int(start.refused.sum()),
        int(trials.refused.sum()),
        patience,
    )


def _patience(record: Record, swept: Swept) -> float:
    """Seconds that a start takes at most, of jobs that nothing held up; 1 at least."""
    # Jobs that nothing held up: how long the start itself takes.
    delay = (record.start - record.submit)[swept.clear & record.started]
    quick = delay[delay <= SLOWEST]
    # The slowest 2 % may have waited for something else; with few jobs a minute is assumed.
    return max(1.0, float(np.quantile(quick, 0.98))) if quick.size >= 20 else 60.0


def _block(record: Record) -> float:
    """A week, or a sixteenth of a log that is shorter than 16 weeks, in seconds."""
    # Sixteen blocks at least, so that both halves see the whole of a short log.
    return min(WEEK, float(record.end.max() - record.submit.min()) / 16 + 1)


def _halves(record: Record, times: Floats) -> Ints:
    """0 and 1 by turns, for one block after another."""
    return np.asarray((times - record.submit.min()) // _block(record)).astype(np.int64) % 2


def _trials(record: Record, site: SiteConstraints, swept: Swept, patience: float) -> Trials:
    # Judged when a start should be over: before that a wait may only be a slow start.
    at = record.submit + patience
    late = record.start > at
    # Refused: still waiting after the patience, while every waiting job would fit;
    refused = late & swept.refused_at(at)
    for limit in site.limits:
        # what a rule that is known already forbids is no evidence for another.
        use = _Use.of(record, limit.group, limit.weight)
        refused &= ~((limit.group >= 0) & (use.at(limit.group, at) + limit.weight > limit.most))
    for rule in site.closed:
        refused &= ~rule.holds(at, record.monday)
    # A quarter of a block at most, so that short logs have several days.
    days = ((at - record.submit.min()) // min(86400.0, _block(record) / 4)).astype(np.int64)
    prompt = swept.clear & ~late & record.started
    return Trials(refused, prompt, at, _halves(record, record.submit), days)


# ------------------------------------------------------------------------------------------ pools


def _pools(record: Record, plain: Trials, patience: float) -> tuple[Any, list[FoundRule]]:
    """Nodes of each pool whose jobs waited while other nodes were idle, from the log's node lists.

    The nodes are those that its jobs ran on: in either half of the weeks hardly any but those of
    the other half. Few were never reached, by Chao's estimate f1 (f1 - 1) / 2 (f2 + 1) of nodes on
    which f1 are seen once and f2 twice (Scandinavian Journal of Statistics 11, 1984).
    """
    if "pool" not in record.groups or not record.host.size:
        return None, []
    codes, names = record.groups["pool"]
    J, N, P = len(record), len(record.nodes), len(names)
    # Each piece of a job on a node is a witness of the pool's nodes.
    job, host = np.repeat(np.arange(J), np.diff(record.host_from)), record.host
    half, user = _halves(record, record.start), record.groups["user"][0]
    # A user and a day count once: their jobs are no independent witnesses.
    spell = np.unique(np.stack([user, plain.day]), axis=1, return_inverse=True)[1].ravel()
    ran_on = np.zeros((2, P, N), bool)
    ran_on[half[job], codes[job], host] = True
    may, unseen = np.ones((P, N), bool), np.zeros(P)
    for p in range(P):
        on, mine = ran_on[:, p].any(axis=0), codes[job] == p
        every = np.unique(np.stack([host, spell[job]])[:, mine], axis=1)[0]
        once, twice = ((np.bincount(every, minlength=N) == n).sum() for n in (1, 2))
        # Chao's estimate of the nodes that the pool has and never used.
        unseen[p] = once * (once - 1) / (2 * (twice + 1))
        beyond = np.unique(spell[job[mine & ~ran_on[1 - half[job], p, host]]]).size
        if 10 * unseen[p] <= on.sum() and beyond <= PASSED * np.unique(spell[codes == p]).size:
            # A pool of which no node was seen may use all.
            may[p] = on | ~on.any()
    swept = sweep(record, SiteConstraints(allowed=(codes, may)), patience)
    cured = plain.refused & ~_trials(record, SiteConstraints(), swept, patience).refused
    rules = []
    for p in np.flatnonzero(~may.all(axis=1)).tolist():
        mine, on = np.logical_and(plain.refused, codes == p), may[p].copy()
        by_it = mine & cured
        times = [np.unique(spell[by_it & (plain.odd == f)]).size for f in (0, 1)]
        # Refusals that do not vanish with the pool's nodes have another cause.
        if min(times) < LEAST or by_it.sum() < FREED * mine.sum():
            may[p] = True
            continue
        shared = [n for q, n in enumerate(names) if q != p and ran_on[:, q][:, on].any()]
        rules.append(
            FoundRule(
                "pool",
                {"name": names[p], "nodes": fold_nodes(np.array(record.nodes.names)[on])},
                (float(on.sum()), min(N, float(np.ceil(on.sum() + unseen[p])))),
                phrase(
                    "pool",
                    jobs=int((codes == p).sum()),
                    on=on.sum(),
                    nodes=N,
                    shared=f", some of them shared with {', '.join(shared)}" * bool(shared),
                    by_it=int(by_it.sum()),
                    refused=int(mine.sum()),
                ),
            )
        )
    return ((codes, may) if rules else None), rules


# ------------------------------------------------------------------------------------------- caps


@dataclass(frozen=True)
class _Use:
    """How much each group holds over time; what ends at an instant is free then.

    Times of all groups stand in one row, those of group g ``span`` g seconds later: one binary
    search finds a time of any group.
    """

    group: Ints  # [J]
    weight: Floats  # [J]
    begin: float
    span: float
    ends: Floats  # [J] ends of jobs, group by group
    key: Floats  # [E] starts and ends, group by group
    held: Floats  # [E] held from then on
    lasts: Floats  # [E] seconds until that changes

    @classmethod
    def of(cls, record: Record, group: Ints, weight: Floats) -> _Use:
        on = (group >= 0) & (record.end > record.start)
        begin, close = record.submit.min(), record.end.max()
        # Twice the length of the log and a second: times of neighbouring groups cannot meet.
        span = 2.0 * (close - begin) + 1.0
        keys = group[on] * span
        time = np.concatenate([keys + record.end[on], keys + record.start[on]]) - begin
        change = np.concatenate([-weight[on], weight[on]])
        # At equal times ends come before starts.
        order = np.lexsort((change, time))
        time = time[order]
        lasts = np.diff(time, append=time[-1:])
        ends = np.sort((group * span + record.end - begin)[record.started])
        return cls(group, weight, begin, span, ends, time, np.cumsum(change[order]), lasts)

    def at(self, group: Ints, times: Floats) -> Floats:
        place = np.searchsorted(self.key, group * self.span + times - self.begin, "right") - 1
        return np.where(place >= 0, self.held[np.maximum(place, 0)], 0.0)

    def last_end(self, group: Ints, times: Floats) -> Floats:
        """When a job of each group ended last by these times; long before the log for none."""
        place = np.searchsorted(self.ends, group * self.span + times - self.begin, "right") - 1
        ended = self.ends[np.maximum(place, 0)] - group * self.span + self.begin
        return np.where(place >= 0, ended, -np.inf)

    def peaks(self, groups: int, half: Ints, which: int, patience: float) -> Floats:
        """The most that each group held for longer than a start takes, in half of the weeks."""
        on = (half == which) & (self.lasts > patience)
        peaks = np.zeros(groups)
        np.maximum.at(peaks, (self.key[on] // self.span).astype(np.int64), self.held[on])
        return peaks


def _uses(record: Record) -> dict[tuple[str, str], _Use]:
    """What caps may be about: by a scope, of devices or of jobs."""
    scopes = {"all": np.zeros(len(record), np.int64)}
    scopes |= {scope: codes for scope, (codes, _) in record.groups.items()}
    weights = {record.device: record.size, "jobs": np.ones(len(record))}
    return {
        (scope, unit): _Use.of(record, codes, weight)
        for scope, codes in scopes.items()
        for unit, weight in weights.items()
    }


def _caps(record: Record, uses: Any, t: Trials, patience: float) -> Iterator[FoundRule]:
    """Caps that explain refusals, of everybody in a scope or of one."""
    rows_seen = np.flatnonzero(t.refused | t.prompt)
    for (scope, unit), use in uses.items():
        codes = use.group
        names = record.groups[scope][1] if scope in record.groups else ("",)
        # Peaks of one half of the weeks are judged on the other half.
        half = _halves(record, use.key % use.span + use.begin)
        peaks = [use.peaks(len(names), half, f, patience) for f in (0, 1)]
        several = np.bincount(codes, t.refused, minlength=len(names))
        # A single user's cap needs evidence in both halves, so twice as many refusals.
        wanted: list[int | None] = [int(g) for g in np.flatnonzero(several >= 2 * LEAST)]
        rows = rows_seen[np.argsort(codes[rows_seen], kind="stable")]
        begins = np.searchsorted(codes[rows], np.arange(len(names) + 1))
        for g in [None, *wanted] if len(names) > 1 and scope != "pool" else wanted:
            mine = rows if g is None else rows[begins[g] : begins[g + 1]]
            # Refusals of everyone else say how often jobs are refused anyway.
            outside = rows_seen[codes[rows_seen] != g]
            usual = _rate(t.day[outside], t.refused[outside], 0.5) if g is not None else 0.0
            top = [float(p.max() if g is None else p[g]) for p in peaks]
            odds = 8 * (len(wanted) + 1), usual
            cap = _cap(record, use, unit, t, mine, top, patience, odds)
            if cap is None or (g is None and np.unique(codes[cap[2]]).size < 2):
                continue
            most, below, held_back, judged, evidence = cap
            name = "" if g is None else names[g]
            only = {"only": [name]} if g is not None and scope != "all" else {}
            subject = name if only else "everybody" if scope == "all" else f"every {scope}"
            limited = codes if g is None else np.where(codes == g, codes, -1)
            yield FoundRule(
                "cap",
                {"scope": scope, **only, "of": unit, "most": int(most) if most % 1 == 0 else most},
                (most, below),
                f"{subject} {evidence}",
                (held_back.size, judged, int(t.refused.sum())),
                GroupLimit(limited, use.weight, most),
            )


def _cap(
    record: Record,
    use: _Use,
    of: str,
    t: Trials,
    rows: Ints,
    top: list[float],
    patience: float,
    odds: tuple[int, float],
) -> tuple[float, float, Ints, int, str] | None:
    """A cap fitted on each half of the weeks and judged on the other; None if it fails.

    ``rows`` are the jobs it may be about, ``top`` is the most that was held in either half.
    ``odds``: caps tried, and how often other jobs are refused (0: as those within the cap).

    Gives the cap, what it is less than, the rows of refused jobs that it explains, how many there
    were in weeks that it was not fitted to, and the evidence in words.
    """
    tried, usual = odds
    most, group, odd = max(top), use.group[rows], t.odd[rows]
    refused, prompt = t.refused[rows], t.prompt[rows]
    wants = np.where(refused, use.at(group, t.at[rows]) + use.weight[rows], 0.0)
    holds = np.where(prompt, use.at(group, record.start[rows]), 0.0)
    spell = group * (int(t.day.max()) + 1) + t.day[rows]
    below, times, jobs = np.inf, 0, 0
    for fit in (0, 1):
        # Fit: the least that was refused beyond the most that was ever held.
        # 1e-9 undoes rounding of sums of devices.
        beyond = wants[refused & (odd == fit) & (wants > top[fit] + 1e-9)]
        if not beyond.size:
            return None
        bound, judged = float(beyond.min()) - 1e-9, odd != fit
        below = min(below, bound + 1e-9)
        held_back = refused & judged & (wants > bound)
        passed = prompt & judged & (holds > bound)
        # Judge: on the other half, refusals and passes counted by spell.
        n, v = np.unique(spell[held_back]).size, np.unique(spell[passed]).size
        if n < LEAST or v > PASSED * n:
            return None
        within = judged & ((refused & (wants < bound)) | (prompt & (holds < bound)))
        alike = within & np.isin(group, np.unique(group[held_back]))
        usually = usual or _rate(spell[within], refused[within], 0.5)
        rate = _rate(spell[alike], refused[alike], usually)
        # Bonferroni over all caps that were tried.
        if _tail(n, n + v, rate) * tried > CHANCE:
            return None
        times, jobs = times + n, jobs + int(held_back.sum())
    by_it = refused & (wants > most + 1e-9)
    explained = rows[by_it]
    # No cap lies below what was once held, and as it empties it must let jobs start.
    if below <= most + 1e-9 or (back := _released(record, use, explained, patience)) < FREED:
        return None
    counts = {"explained": explained.size, "times": times, "prompt": int(prompt.sum())}
    counts["refused"] = int((refused & ~by_it).sum())
    evidence = phrase("cap", most=most, device=of, back=100 * back, **counts)
    return most, below, explained, jobs, evidence


def _released(record: Record, use: _Use, rows: Ints, patience: float) -> float:
    """Share of jobs that start within the time a start takes of the end of one of their group."""
    start = record.start[rows]
    gap = start - use.last_end(use.group[rows], start + 1e-6)
    return float((gap <= patience).mean()) if rows.size else 0.0


def _rate(spell: Ints, refused: Bools, usual: float) -> float:
    """How often jobs are refused, spells of a group counted once, drawn to what is usual."""
    free, went = np.unique(spell[refused]).size, np.unique(spell[~refused]).size
    # A Beta prior of two spells at the usual rate.
    return (free + 2 * usual) / (free + went + 2)


def _tail(hits: int, of: int, rate: float) -> float:
    """Probability of so many hits or more by chance."""
    return float(binom.sf(hits - 1, of, rate))


# ---------------------------------------------------------------------------------- opening hours


def _asked(record: Record) -> Iterator[tuple[dict[str, Any], str, Floats, Floats]]:
    """What closed hours may be about: entry, setting of the bound, what jobs ask for, bounds."""
    for key, asks in (("longer_than", record.limit), ("more_than", record.size)):
        bounds = np.unique(asks)
        device = {"of": record.device} if key == "more_than" else {}
        # Every job asks for more than -1.
        yield device, key, asks, np.concatenate([[-1.0] * (not device), bounds])
    use = record.size * (record.end - record.start)
    for scope, key in (("user", "except"), ("pool", "pool")):
        codes, names = record.groups.get(scope, (np.zeros(0, np.int64), ()))
        most = np.argsort(-np.bincount(codes, use[: codes.size]), kind="stable")
        for g in most[: 10 * (len(names) > 1)]:
            asks = (codes == g if scope == "pool" else codes != g).astype(float)
            yield {key: names[g] if scope == "pool" else [names[g]]}, "", asks, np.zeros(1)


def _closings(record: Record, site: SiteConstraints, s: Swept, t: Trials) -> Iterator[FoundRule]:
    """Hours of the week in which some jobs do not start: by length, size, pool or user.

    A cell is an hour of a week. Of its jobs only the largest request counts, of those refused
    through most of the hour and of those that start: a bound is compared with the two alone.
    """
    offset = record.monday
    # Monday 0:00 of the first week, so that cells are hours of a week.
    origin = np.floor((record.submit.min() + offset) / WEEK) * WEEK - offset
    cells = (int((record.end.max() - origin) // WEEK) + 1) * HOURS
    begin = origin + HOUR * np.arange(cells)
    begins = np.ceil((t.at - origin) / HOUR).astype(np.int64)
    starts = ((record.start - origin) // HOUR).astype(np.int64)
    count = np.maximum(starts - begins, 0)
    cell = np.repeat(begins - np.cumsum(count) + count, count) + np.arange(count.sum())
    job = np.repeat(np.arange(len(record)), count)
    free = np.ones(cell.size, bool)
    for rule in site.closed:
        free &= ~rule.holds(begin[cell], offset, job)
    # An hour counts as refused if more than half of it was.
    long = free & (s.seconds(begin, begin + HOUR) > HOUR / 2)[cell]
    best: tuple[int, Any] = (2 * LEAST - 1, None)
    able = list(_asked(record))
    tried = sum(bounds.size for *_, bounds in able)
    for entry, key, asks, bounds in able:
        barred, waits, went = table = np.full((3, cells), -np.inf)
        for most, at, chosen in ((barred, cell[long], job[long]), (waits, cell[free], job[free])):
            np.maximum.at(most, at, asks[chosen])
        np.maximum.at(went, starts[record.started], asks[record.started])
        # Cells by week and hour of the week.
        weeks = table.reshape(3, -1, HOURS)
        worth: dict[float, int] = {}
        for over in _bounds_in_turn(bounds, asks, worth):
            on = weeks > over
            worth[over] = -1
            hours = _hours(on[0], on[1], on[2], tried)
            if hours is None:
                continue
            since = origin + WEEK * hours.weeks[0] if hours.weeks[0] > 0 else -np.inf
            until = origin + WEEK * hours.weeks[1] if hours.weeks[1] < weeks.shape[1] else np.inf
            rule = WeeklyClosing(asks, float(over), hours.closed, since, until)
            by_it = int((t.refused & rule.holds(t.at, offset)).sum())
            passed = (record.started & rule.holds(record.start, offset)).sum()
            # Starts in closed hours count against a rule, one for one.
            worth[rule.over] = by_it - passed
            if by_it - passed > best[0]:
                bound = {key: rule.over} if key and over >= 0 else {}
                best = by_it - passed, (rule, hours, by_it, {**bound, **entry}, worth)
    if best[1] is not None:
        rule, hours, by_it, entry, worth = best[1]
        good = [over for over, jobs in worth.items() if jobs >= 0.8 * best[0]]
        bounds = np.array(list(worth))
        below, above = bounds[bounds < min(good)], bounds[bounds > max(good)]
        cap = Cap("all", record.device, entry.get("more_than", 0), pool=entry.get("pool", ""))
        exempt = tuple(entry.get("except", ()))
        closing = Closing((), Clock(0), entry.get("longer_than", -1), cap, exempt=exempt)
        entry |= {"hours": spans_of(hours.closed)}
        entry |= {"from": float(rule.begin)} if np.isfinite(rule.begin) else {}
        entry |= {"to": float(rule.end)} if np.isfinite(rule.end) else {}
        yield FoundRule(
            "closed",
            entry,
            (float(below.max(initial=-1)), float(above.min(initial=rule.asks.max()))),
            phrase("closed", hours=hours, whose=closing.whose),
            (by_it, by_it, int(t.refused.sum())),
            rule,
        )


def _bounds_in_turn(bounds: Floats, asks: Floats, worth: Mapping[float, int]) -> Iterator[float]:
    """Bounds to be tried: a grid over what jobs ask for, then ever finer ones about the best.

    ``worth`` is what those tried so far have brought. The grid has the commonest requests, and
    quantiles of all of them, so that between two of its bounds there are few jobs.
    """
    values, counts = np.unique(asks, return_counts=True)
    common = values[counts >= np.sort(counts)[-min(GRID, counts.size)]]
    even = np.quantile(asks, np.linspace(0, 1, GRID), method="nearest")
    grid = bounds[np.isin(bounds, np.concatenate([common, even])) | (bounds < values[0])]
    # As a search by sections: what a bound is worth rises to one peak and falls, but for noise.
    while grid.size:
        yield from grid.tolist()
        best = max(worth, key=lambda over: worth[over])
        # Not even the best of the grid explains more than it contradicts.
        if worth[best] < 0:
            return
        tried = np.sort(np.fromiter(worth, np.float64))
        low = tried[tried < best].max(initial=-np.inf)
        high = tried[tried > best].min(initial=np.inf)
        grid = np.setdiff1d(bounds[(bounds > low) & (bounds < high)], tried)
        grid = grid[np.unique(np.linspace(0, grid.size - 1, min(GRID, grid.size)).astype(np.int64))]


class _Hours(NamedTuple):
    """Hours of the week that are closed."""

    closed: Bools  # [168]
    weeks: tuple[int, int]  # from the first of these weeks to before the second
    held: tuple[int, int]  # judged: cells in which jobs were refused, and in which one started
    open: tuple[int, int]  # the same of the hours that are not closed


def _hours(barred: Bools, waits: Bools, went: Bools, tried: int) -> _Hours | None:
    """Closed hours, fitted on odd weeks and judged on even ones, and back; None if they fail.

    From cells [W, 168] with a job refused, with one that waited, and that started; ``tried`` is how
    many closings are.
    """
    weeks = np.arange(len(barred))
    # First the weeks in which the rule held at all, then its hours within them.
    loose = _closed_in(waits, went, 0.5)
    # A start weighs four times a wait: a rule that is broken often does not hold in that week.
    since, until = _longest_gain((waits & loose).sum(axis=1) - 4 * (went & loose).sum(axis=1))
    inside = (weeks >= since) & (weeks < until)
    either = np.zeros(HOURS, bool)
    total = np.zeros(4, np.int64)  # held and passed in closed hours, and in open ones
    for half in (0, 1):
        fit, judge = inside & (weeks % 2 == half), inside & (weeks % 2 != half)
        closed = _closed_in(waits[fit], went[fit], SELDOM)
        refused, passed = int(barred[judge][:, closed].sum()), int(went[judge][:, closed].sum())
        free_held = int((barred & ~went)[judge][:, ~closed].sum())
        free_went = int(went[judge][:, ~closed].sum())
        rate = (free_held + 1) / (free_held + free_went + 2)
        if refused < 5 * LEAST or passed > PASSED * int(waits[judge][:, closed].sum()):
            return None
        if _tail(refused, refused + passed, rate) * tried > CHANCE:
            return None
        total += refused, passed, free_held, free_went
        either |= closed
    closed_hours = _closed_in(waits[inside], went[inside], SELDOM / 2) & either
    refused, passed, free_held, free_went = total.tolist()
    return _Hours(closed_hours, (since, until), (refused, passed), (free_held, free_went))


def _closed_in(waits: Bools, went: Bools, share: float) -> Bools:
    """Hours in which jobs waited in three weeks or more, and hardly ever started.

    Monday to Friday count together, but for hours in which a day by itself says otherwise.
    """
    waited, passed = (cells.sum(axis=0).reshape(7, 24) for cells in (waits, went))
    closed = (waited >= 3) & (passed <= share * waited)
    # Monday to Friday together have more evidence than a day by itself.
    week_held, week_passed = waited[:5].sum(axis=0), passed[:5].sum(axis=0)
    together = (week_held >= 5) & (week_passed <= share / 2 * week_held)
    closed[:5] |= together & (passed[:5] <= 3 * share * waited[:5])
    closed = closed.ravel()
    # An hour between two closed ones without a single start is closed as well.
    between = np.roll(closed, 1) & np.roll(closed, -1) & (passed.ravel() == 0)
    return np.asarray(closed | between)


def _longest_gain(worth: Any) -> tuple[int, int]:
    """Where the sum of consecutive values is largest: first, and one beyond the last."""
    # Kadane: the largest difference of two partial sums.
    total = np.concatenate([[0], np.cumsum(worth)])
    least = np.minimum.accumulate(total)
    until = int(np.argmax(total - least))
    since = int(np.flatnonzero(total[: until + 1] == least[until])[-1])
    return since, until


def spans_of(hours: Bools) -> list[str]:
    """Hours of the week in words, days with the same hours together.

    >>> week = np.zeros(168, dtype=bool)
    >>> week[8:18] = week[32:42] = week[166:] = True
    >>> spans_of(week)
    ['Mon-Tue 08:00-18:00', 'Sun 22:00-24:00']
    """
    days, spans = defaultdict(list), []
    for day, on in enumerate(hours.reshape(7, 24)):
        for begin, end in np.flatnonzero(np.diff(on, prepend=False, append=False)).reshape(-1, 2):
            days[f"{begin:02d}:00-{end:02d}:00"].append(day)
    for text, named in days.items():
        # Days that follow one another and have the same hours are one span.
        for run in np.split(np.array(named), np.flatnonzero(np.diff(named) > 1) + 1):
            name = DAYS[run[0]] + (f"-{DAYS[run[-1]]}" if len(run) > 1 else "")
            spans.append((int(run[0]), f"{name} {text}"))
    return [text for _, text in sorted(spans)]


def _reserved(record: Record, t: Trials) -> Iterator[FoundRule]:
    """Times in which the jobs of one user alone start, and all others are refused.

    Jobs count as refused whose user holds nothing, or had a job that ended in that time: no cap of
    a user explains them. Every other one finds the time, and the rest judge it.
    """
    codes, names = record.groups["user"]
    use = _Use.of(record, codes, np.ones(len(record)))
    # Starts of the others end a reservation, so its time lies between two of them.
    refused = np.flatnonzero(t.refused)
    user, at = codes[refused], t.at[refused]
    last_end, none = use.last_end(user, at), use.at(user, at) == 0
    for g in np.unique(codes[t.prompt]) if len(names) > 1 else ():
        # Starts of the others cut time into gaps; in a reserved one many of them are refused.
        others_start = np.sort(record.start[(codes != g) & record.started])
        mine = np.sort(record.start[(codes == g) & record.started])
        gap = np.searchsorted(others_start, at, "right")
        refused_of_others = (user != g) & (gap > 0) & (gap < others_start.size)
        refused_of_others &= none | (last_end > others_start[np.maximum(gap - 1, 0)])
        for interval in np.flatnonzero(np.bincount(gap[refused_of_others]) >= 2 * LEAST):
            rows = refused[refused_of_others & (gap == interval)]
            begin, end = float(t.at[rows].min()), float(others_start[interval])
            went = int(np.searchsorted(mine, end) - np.searchsorted(mine, begin))
            users = np.unique(codes[rows]).size
            if min(went, users) < LEAST or end - begin < HOUR:
                continue
            # Refusals of one user on one day hang together, so a user-day counts once. Half of
            # them found the gap; the other half judges.
            times = np.unique(codes[rows] * 1e6 + t.day[rows]).size // 2
            away = (t.at < begin) | (t.at >= end)
            rate = _rate(t.day[away] + 1e6 * codes[away], t.refused[away], 0.5)
            # As many tries as refusals and users: Bonferroni again.
            if _tail(times, times, rate) * t.refused.sum() * len(names) > CHANCE:
                continue
            always, hours = {"hours": [ALWAYS], "from": begin, "to": end}, (end - begin) / HOUR
            waits = {"user": names[g], "jobs": went, "waited": rows.size, "users": users}
            yield FoundRule(
                "closed",
                {"except": [names[g]], **always},
                (0.0, 1.0),
                phrase("reserved", h=hours, **waits),
                (rows.size, rows.size // 2, int(t.refused.sum())),
                WeeklyClosing((codes != g).astype(float), 0.0, np.ones(HOURS, bool), begin, end),
            )


# ------------------------------------------------------------------------------- missing capacity


def _window(record: Record, t: Trials, swept: Swept) -> Iterator[FoundRule]:
    """The longest time without so many devices, that a row of refused jobs shows.

    Found from every other refused job, and judged on all others that came in that time: none of
    them starts beyond what was left.
    """
    if len(record.nodes) > 1:
        return
    rows = np.flatnonzero(t.refused)
    rows = rows[np.argsort(t.at[rows], kind="stable")]
    if rows.size < 4 * LEAST:
        return
    # −1: the state in force at the time, not the next one.
    place = np.searchsorted(swept.time, t.at[rows], "right") - 1
    most = swept.use[place] + swept.first[place]  # what was left is less than this
    busy = np.maximum.reduceat(swept.use, place)  # in use until the next of them, at most
    best: tuple[int, Any] = (0, None)
    i = 0
    while i < rows.size:
        low, high, k = swept.use[place[i]], most[i], i + 1
        # What was left lies in [low, high) for every refusal of the row; the row ends where no
        # capacity would explain the next one as well, or after a day without one.
        while k < rows.size and t.at[rows[k]] - t.at[rows[k - 1]] < 86400:
            up, down = max(low, busy[k - 1]), min(high, most[k])
            if up >= down:
                break
            low, high, k = up, down, k + 1
        if k - i > best[0]:
            best = k - i, (i, k, float(low), float(high))
        i = k
    count, (i, k, low, high) = best
    mine = rows[i:k]
    begin, end = float(t.at[mine[0]]), float(record.start[mine[-1]])
    # The shortage is over, at the latest, when more is in use than was left.
    resumes = swept.time[np.flatnonzero((swept.time > t.at[mine[-1]]) & (swept.use > low))]
    end = min(end, float(resumes[0])) if resumes.size else end
    inside = (t.at >= begin) & (t.at < end)
    went = int((inside & t.prompt & ~t.refused).sum())
    elsewhere = (t.refused & ~inside).sum() + 1, (t.prompt & ~inside).sum() + 1
    rate = float(elsewhere[0] / sum(elsewhere))
    judged = mine[1::2]
    users = np.unique(record.groups["user"][0][mine]).size
    alone = any(np.unique(codes[mine]).size < 2 for codes, _ in record.groups.values())
    around = [swept.use[swept.time < begin], swept.use[swept.time >= end]]
    if min(part.max(initial=0) for part in around) < high or alone:
        return  # so much was never in use before, or after: no passing shortage
    few = judged.size < LEAST or users < min(3, len(record.groups["user"][1]))
    chance = _tail(judged.size, judged.size + went, rate) * rows.size
    if few or went > PASSED * judged.size or chance > CHANCE or end - begin < HOUR:
        return
    began = record.started & (record.start >= begin) & (record.start < end)
    use = _Use.of(record, np.where(began, 0, -1), record.size)
    missing = (record.total - high, record.total - use.held.max(initial=0.0))
    lost, hours = int(np.floor(missing[0])) + 1, (end - begin) / HOUR
    yield FoundRule(
        "window",
        {"from": begin, "to": end, "count": lost, "why": "nobody started beside idle devices"},
        (float(lost), missing[1]),
        phrase(
            "window", jobs=count, users=users, low=low, device=record.device, went=went, h=hours
        ),
        (count, int(judged.size), int(rows.size - count + judged.size)),
        Missing(begin, end, float(lost)),
    )


# ------------------------------------------------------------------------------------ start latency


def _latency(record: Record, t: Trials) -> Iterator[FoundRule]:
    """How long starts take of jobs that nothing holds up; where it is the same in both halves."""
    delay = (record.start - record.submit)[t.prompt]
    halves = [delay[t.odd[t.prompt] == half] for half in (0, 1)]
    if min(map(len, halves)) < 50:
        return
    # Latency is a rule only where both halves see about the same.
    odd, even = (float(np.median(delays)) for delays in halves)
    # The same in both halves, up to a factor of two.
    least, most = sorted((odd, even))
    if least <= 0 or most > 2 * least:
        return
    middle, (low, high) = np.median(delay), np.quantile(delay, [0.05, 0.95])
    yield FoundRule(
        "start",
        {"latency": float(middle)},
        (least, most),
        phrase("start", jobs=delay.size, middle=middle, low=low, high=high, odd=odd, even=even),
    )

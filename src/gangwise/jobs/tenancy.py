"""Tenancy: limits, closed hours and priorities of a site.

Caps of users, accounts and pools; closed hours; tiers of pools, QOS, a tree of accounts and weights
of priority.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gangwise.core.arrays import Bools, Floats, Ints, distinct_pairs, numbered
from gangwise.core.settings import DAY, DAYS, Clock
from gangwise.jobs.kernels import Ageing, FairShareState
from gangwise.jobs.model import Job, Jobs, Nodes, Shape, terms_of

Scope = Literal["user", "account", "pool", "qos", "all", "job", "array"]
AGEING = "ageing"
"""What a cap is of in a site file that counts waiting jobs whose priority grows with age."""
USED, USED_UP, AHEAD = "minutes", "total-minutes", "running-minutes"
"""Before a slash: a cap is of minutes that were used, and decay or not; or until jobs' limits."""


def over_time(of: str) -> tuple[bool, str]:
    """Whether a cap is of minutes, and the device that it counts.

    >>> over_time("running-minutes/cpu"), over_time("license/ansys")
    ((True, 'cpu'), (False, 'license/ansys'))
    """
    word, _, device = of.partition("/")
    of_minutes = word in (USED, USED_UP, AHEAD)
    return of_minutes, device if of_minutes else of


@dataclass(frozen=True, slots=True)
class Cap:
    """How much may be in use at once.

    Attributes
    ----------
    scope : {"user", "account", "pool", "qos", "all", "job", "array"}
        Each user, account, pool or QOS by itself, all jobs together, each job, or each array of
        which that many jobs may run at once.
    of : str
        A device type, also ``gpu:MODEL``, of jobs that ask for that model; ``license/NAME``;
        ``"jobs"`` that run; or ``"nodes"``: the fewest that could hold each job.
    most : float
    only : tuple of str
        These users, accounts, pools or QOS alone (of each job: its user); empty for every one.
    pool, qos : str
        Jobs of this pool, or QOS, alone; empty for all jobs.
    accounts : tuple of str
        Jobs of these accounts alone: one and those below it; empty for all jobs.
    or_pools : tuple of str
        Beside jobs of the QOS, those of these pools.
    spares : tuple of (pool, qos)
        Jobs that count and that it does not hold, as another cap does; empty for any.
    """

    scope: Scope
    of: str
    most: float
    only: tuple[str, ...] = ()
    pool: str = ""
    qos: str = ""
    accounts: tuple[str, ...] = ()
    or_pools: tuple[str, ...] = ()
    spares: tuple[tuple[str, str], ...] = ()

    def spared(self, pool: str, qos: str) -> bool:
        """Whether jobs of a pool and a QOS count, and are not held."""
        return any(p in ("", pool) and q in ("", qos) for p, q in self.spares)

    def name(self, job: Job) -> str | None:
        """Counter of the cap that a job adds to; None where it is not held, or held by itself."""
        # A job by itself is judged at its submission; there is no sum to keep.
        if self.scope == "job":
            return None
        if self.scope == "array":
            return self.of_array(job.terms)
        mine = "" if self.scope == "all" else str(getattr(job, self.scope))
        able = self.qos in ("", job.qos) or job.pool in self.or_pools
        able = able and self.pool in ("", job.pool)
        able = able and job.account in (self.accounts or (job.account,))
        return mine if able and mine in (self.only or (mine,)) else None

    def of_array(self, terms: str) -> str | None:
        """The array whose cap this is, where a job is of one."""
        mine = terms_of(terms).get("array", "")
        # "12%2" names the array and its cap, so one `Cap` of most = 2 serves all arrays with %2.
        return mine if mine.endswith(f"%{self.most:g}") else None

    def describe(self, name: str) -> str:
        """What is allowed, in words.

        >>> Cap("user", "gpu", 64).describe("alice")
        'cap on user alice: 64 gpu at once'
        """
        whose = f"{self.scope} {name}" if name else f"each {self.scope}"
        whose = "all jobs" if self.scope == "all" else whose
        within = f" in pool {self.pool}" if self.pool else ""
        within += f" of QOS {' or of pool '.join([self.qos, *self.or_pools])}" if self.qos else ""
        within += f" of account {self.accounts[0]}" if self.accounts else ""
        return f"cap on {whose}{within}: {self.most:g} {self.of} at once"


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a job of a pool, or of a QOS, may ask for: seconds, and nodes, 0 for any number."""

    pool: str
    most_time: float = np.inf
    most_nodes: int = 0
    fewest_nodes: int = 0
    qos: str = ""

    def refuses(self, jobs: Jobs, nodes: Ints) -> dict[str, Bools]:
        """Why jobs cannot be in the pool; ``nodes`` [J] are the fewest that hold each."""
        if self.qos:
            subject, mine = (
                f"QOS {self.qos}",
                np.array([n == self.qos for n in jobs.qoses])[jobs.qos],
            )
        else:
            mine = np.array([name == self.pool for name in jobs.pools])[jobs.pool]
            subject = f"pool {self.pool}"
        return {
            f"that ask for more time than {subject} allows": mine & (jobs.limit > self.most_time),
            f"that need more nodes than {subject} allows": mine
            & (self.most_nodes > 0)
            & (nodes > self.most_nodes),
            f"that need fewer nodes than {subject} asks for": mine & (nodes < self.fewest_nodes),
        }


def having(asked: str, features: str) -> bool:
    """Whether a node has the features that a job asks for, in Slurm's ``--constraint``.

    ``&`` and ``|`` count from left to right; of nodes in brackets, or in numbers, any will do.

    >>> [having(asked, "rack1,fast") for asked in ("rack1&fast", "(a|rack1)&b", "[a*2&fast*1]")]
    [True, False, True]
    """
    # Slurm's counts, as in [a*2&b*1], ask for some nodes of each kind: any of them is a candidate.
    if "*" in asked:
        asked = re.sub(r"\*\d+", "", asked).replace("&", "|")
    asked = asked.translate(str.maketrans("[]", "()"))
    # Innermost brackets first; each becomes "1", which every node has, or "0", which none has.
    while "(" in asked:
        once = re.sub(r"\(([^()]*)\)", lambda m: "1" if having(m[1], features) else "0", asked)
        if once == asked:
            break
        asked = once
    # Slurm gives & and | the same precedence.
    holds, names = True, {"1", *features.split(",")}
    for how, name in re.findall(r"(^|[&|])([^&|]+)", asked):
        holds = holds and name in names if how != "|" else holds or name in names
    return holds


def allowed_on(nodes: Nodes, shape: Shape) -> Bools:
    """Nodes that a task may use: those of its pool whose labels are as asked [N]."""
    if not shape.constraint:
        return nodes.of_pool(shape.pool)
    # Labels of nodes never change, but this is asked rarely: the kernels hold it as a table.
    labels = [
        all(node_labels.get(k) == v for k, v in shape.constraint) for node_labels in nodes.labels
    ]
    return np.array(labels) & nodes.of_pool(shape.pool)


def asked_of(shape: Shape, k: int, model: str = "") -> int:
    """Thousandths of device type k, −1 for none, that a task asks for, of a model where named."""
    # Groups are added up: a limit counts the whole job.
    if shape.groups:
        return sum(tasks * asked_of(part, k, model) for tasks, part in shape.groups)
    return shape.demand[k] if k >= 0 and (not model or ("model", model) in shape.constraint) else 0


def fewest_nodes(nodes: Nodes, shape: Shape, tasks: int) -> int:
    """How few nodes could hold so many tasks, if nothing else ran; groups share none."""
    if shape.groups:
        return sum(fewest_nodes(nodes, part, count) for count, part in shape.groups)
    demand = np.array(shape.demand, dtype=np.int64)
    wanted = demand > 0
    # `initial` is the answer where nothing is asked for: as many tasks as there are.
    room = (nodes.capacity[:, wanted] // demand[wanted]).min(axis=1, initial=tasks)
    room = np.where(allowed_on(nodes, shape), np.minimum(room, shape.per_node or tasks), 0)
    # The roomiest nodes first need the fewest; N + 1 where all together are too few.
    cumulative = np.cumsum(np.sort(room)[::-1])
    return int(np.searchsorted(cumulative, tasks)) + 1


def fewest_of(jobs: Jobs, nodes: Nodes) -> Ints:
    """:func:`fewest_nodes` of every job [J]."""
    # Many jobs share shape and tasks, so each pair is computed once.
    kinds, place = distinct_pairs(jobs.shape, jobs.tasks)
    shapes = jobs.shapes_on(nodes.devices)
    few = [fewest_nodes(nodes, shapes[s], t) for s, t in kinds.T.tolist()]
    return np.array(few, dtype=np.int64)[place]


class Tally:
    """Use of each cap, in thousandths, as jobs start one after another."""

    def __init__(self, caps: Sequence[Cap], nodes: Nodes, running: Iterable[Job] = ()):
        self.caps, self.nodes = caps, nodes
        self.used: dict[tuple[int, str], int] = {}
        self._fewest: dict[tuple[Shape, int], int] = {}
        # Without caps nothing is counted, so a long list of running jobs costs nothing.
        for job in running if caps else ():
            self.take(job)

    def amount(self, cap: Cap, job: Job) -> int:
        """How much of a cap a job takes while it runs, in thousandths."""
        if cap.of == "jobs":
            return 1000
        if cap.of == "nodes":
            kind = job.shape, job.tasks
            if kind not in self._fewest:
                self._fewest[kind] = fewest_nodes(self.nodes, *kind)
            # Thousandths, as all amounts: sums of them are exact.
            return 1000 * self._fewest[kind]
        if cap.of.startswith("license/"):
            return licences(job.terms, cap.of)
        device, _, model = cap.of.partition(":")
        if device not in self.nodes.devices:
            return 0
        return job.tasks * asked_of(job.shape, self.nodes.devices.index(device), model)

    def take(self, job: Job, sign: int = 1) -> None:
        """Count a job that starts; with ``sign=-1`` one that has ended."""
        for i, cap in enumerate(self.caps):
            if (name := cap.name(job)) is not None:
                self.used[i, name] = self.used.get((i, name), 0) + sign * self.amount(cap, job)

    def holds(self, job: Job) -> Cap | None:
        """The first cap that keeps a job from starting, None for none."""
        for i, cap in enumerate(self.caps):
            name = cap.name(job)
            counted = name is not None and not cap.spared(job.pool, job.qos)
            amount = self.amount(cap, job) if counted else 0
            # A job that takes nothing is never held, even where others already exceed the cap.
            if amount and self.used.get((i, str(name)), 0) + amount > round(1000 * cap.most):
                return cap
        return None


def licences(terms: str, name: str) -> int:
    """Thousandths of ``license/NAME`` that a job holds."""
    return round(1000 * float(terms_of(terms).get(name, 0)))


def of_arrays(jobs: Jobs) -> tuple[Cap, ...]:
    """A cap for each number of jobs of an array that may run at once."""
    names = [terms_of(text).get("array", "") for text in jobs.terms]
    return tuple(
        Cap("array", "jobs", n) for n in sorted({float(x.split("%")[1]) for x in names if x})
    )


def claims(
    caps: Sequence[Cap], jobs: Jobs, nodes: Nodes, demand: Ints
) -> list[tuple[Ints, Ints, Bools]]:
    """Counter of each cap that each job adds to, −1 for none [J], the amount [J], and whether the
    cap can keep the job from starting [J].

    ``demand`` [S, K] is over the device types of the nodes.
    """
    counters = []
    single = np.zeros(len(jobs), dtype=np.int64), ("",)
    by_scope = {
        "user": (jobs.user, jobs.users),
        "account": (jobs.charged, jobs.accounts),
        "pool": (jobs.pool, jobs.pools),
        "qos": (jobs.qos, jobs.qoses),
        "all": single,
        "job": single,
    }
    for cap in caps:
        if cap.scope == "array":
            # Terms are text, so each distinct one is judged once and spread by its code.
            arrays = [cap.of_array(text) for text in jobs.terms]
            number = {name: i for i, name in enumerate(dict.fromkeys(filter(None, arrays)))}
            codes = np.array([number.get(str(name), -1) for name in arrays])[jobs.term]
            counters.append((codes, np.where(codes >= 0, 1000, 0), codes >= 0))
            continue
        (codes, _), counts = by_scope[cap.scope], np.ones(len(jobs), dtype=bool)
        # A cap of each job names users in `only`, though its scope is "job".
        filters = ("user" if cap.scope == "job" else cap.scope, cap.only), ("account", cap.accounts)
        for column, wanted in (*filters, ("pool", (cap.pool,)), ("qos", (cap.qos,))):
            if any(wanted):
                place, names = by_scope[column]
                among = np.array([name in wanted for name in names])[place]
                # Slurm: a partition's QOS limits its jobs and those of the QOS.
                if column == "qos" and cap.or_pools:
                    among |= np.array([name in cap.or_pools for name in jobs.pools])[jobs.pool]
                counts &= among
        amount, (of_minutes, of) = np.full(len(jobs), 1000, dtype=np.int64), over_time(cap.of)
        if of == "nodes":
            amount = 1000 * fewest_of(jobs, nodes)
        elif of.startswith("license/"):
            amount = np.array([licences(text, of) for text in jobs.terms])[jobs.term]
        elif of != "jobs":
            kind, _, model = of.partition(":")
            k = nodes.devices.index(kind) if kind in nodes.devices else -1
            per_shape = [asked_of(shape, k, model) for shape in jobs.shapes_on(nodes.devices)]
            amount = np.array(per_shape, dtype=np.int64)[jobs.shape] * jobs.tasks
            if kind == "cpu":  # a job that started with fewer cores counts as that where it must
                given, most = _given_cores(jobs), 1000 * cap.most
                amount = np.where((given > 0) & (given <= most) & (most < amount), given, amount)
        if of_minutes:  # a job alone: until its limit
            amount = amount * np.ceil(np.minimum(jobs.limit, 365 * DAY) / 60.0).astype(np.int64)
        counts = counts & (amount > 0)
        alone = counts & (cap.scope != "job")  # one that is about each job takes of no counter
        holds = counts & ~_spared(cap, jobs)
        counters.append((np.where(alone, codes, -1), np.where(counts, amount, 0), holds))
    return counters


def _given_cores(jobs: Jobs) -> Ints:
    """Thousandths of cores that each job was given, 0 where those are what it asks for [J]."""
    terms = [round(1000 * float(terms_of(text).get("held", 0))) for text in jobs.terms]
    return np.array(terms, dtype=np.int64)[jobs.term]


def _spared(cap: Cap, jobs: Jobs) -> Bools:
    """Jobs that a cap counts and does not hold [J]."""
    if not cap.spares:
        return np.zeros(len(jobs), dtype=bool)
    # One number for each (pool, QOS) pair: few are distinct.
    pairs, place = numbered(jobs.pool * len(jobs.qoses) + jobs.qos)
    names = [(jobs.pools[p], jobs.qoses[q]) for p, q in zip(*np.divmod(pairs, len(jobs.qoses)))]
    return np.array([cap.spared(*pair) for pair in names], dtype=bool)[place]


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
        begin, _, end = part.partition("-")
        # "Mon" alone is a span of one day.
        if {begin, end or begin} - set(DAYS):
            raise ValueError(
                f"{part!r} is not a day of the week, or two; there are {', '.join(DAYS)}"
            )
        low, high = DAYS.index(begin), DAYS.index(end or begin)
        # Modulo 7, so that "Sat-Mon" passes the end of the week.
        days += [(low + i) % 7 for i in range((high - low) % 7 + 1)]
    # Hours, minutes and seconds of both ends; what is not written is zero.
    h, m, s, *rest_of_match = (int(x or 0) for x in match.groups()[1:])
    since, to = (3600 * h + 60 * m + s for h, m, s in ((h, m, s), rest_of_match))
    # 24:00 is allowed as an end only; equal ends would be all day or never.
    if max(since, to) > DAY or since in (to, DAY) or max(m, s, *rest_of_match[1:]) > 59:
        raise ValueError(f"{text!r} are not hours of a day, from 00:00 to 24:00")
    if since < to:
        return [(day, since, to) for day in days]
    # Over midnight: the evening of each day and the morning of the next.
    nights = [((day, since, DAY), ((day + 1) % 7, 0, to)) for day in days]
    return [span for night in nights for span in night if span[1] < span[2]]


@dataclass(frozen=True)
class Closing:
    """Closed hours: jobs that ask for more time, or more devices, than allowed do not start."""

    hours: tuple[str, ...]  # in words, see :func:`weekly`
    clock: Clock
    longer_than: float  # seconds
    cap: Cap  # what counts, of whom, and how much of it a job may take in these hours
    since: float = -np.inf  # in force from then on, seconds on the log's clock …
    to: float = np.inf  # … and until then
    exempt: tuple[str, ...] = ()  # users whose jobs start all the same

    def about(self, jobs: Jobs, nodes: Nodes, demand: Ints) -> Bools:
        """Jobs that do not start then [J]; ``demand`` [S, K] is over the nodes' device types."""
        [(counts, amount, _)] = claims([self.cap], jobs, nodes, demand)
        above = (counts >= 0) & (amount > round(1000 * self.cap.most))
        above &= ~np.array([name in self.exempt for name in jobs.users])[jobs.user]
        return np.asarray(above & (jobs.limit > self.longer_than))

    def times(self, first: float, last: float) -> list[tuple[float, float]]:
        """From when to when these hours are, between two times of the log and days around."""
        day = self.clock.date(first).replace(hour=0, minute=0, second=0, microsecond=0)
        week = [span for text in self.hours for span in weekly(text)]
        windows = []
        # Three more than whole days: the first, the last, and a change of clocks.
        for _ in range(int((last - first) // DAY) + 3):
            for weekday, since, to in week:
                if weekday == day.weekday():
                    # By the calendar: on days when clocks change, hours keep their names.
                    low, high = (self.clock.at(day + timedelta(seconds=s)) for s in (since, to))
                    windows.append((max(low, self.since), min(high, self.to)))
            day += timedelta(days=1)
        return merged([(low, high) for low, high in windows if low < high])

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
    """Closed hours of all jobs, in classes of jobs with the same rules; class 0 is never closed.

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
        begin, end = float(jobs.submit.min()), float(jobs.submit.max()) + YEARS * 366 * DAY
        times = [c.times(begin, end) for c in closings]
        nobody = np.zeros((len(closings), 1), dtype=bool)
        # A first column that no rule is about makes class 0 the one that is never closed.
        kinds, of_job = np.unique(np.hstack([nobody, about]), axis=1, return_inverse=True)
        windows = []
        for kind in kinds.T:
            mine = merged([span for c in np.flatnonzero(kind) for span in times[c]])
            # Weekly hours leave gaps within 8 days: a longer closing up to the end is for good.
            if mine and mine[-1][1] - mine[-1][0] > 8 * DAY and mine[-1][1] > end - DAY:
                mine[-1] = mine[-1][0], np.inf  # it never opens again
            windows.append(mine)
        flat = np.array([span for mine in windows for span in mine]).reshape(-1, 2)
        starts = np.concatenate([[0], np.cumsum([len(mine) for mine in windows])])
        since, to = np.ascontiguousarray(flat[:, 0]), np.ascontiguousarray(flat[:, 1])
        # Without the added column.
        return cls(tuple(closings), about, of_job.ravel()[1:], starts, since, to)

    def opens(self, row: int, at: float) -> float:
        """The first time from then on at which the job of a row may start."""
        if not self.closings:
            return at
        c = self.of_job[row]
        # Spans of a class do not overlap, so the last that began by then decides.
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
    spans: list[tuple[float, float]] = []
    for since, to in sorted(given):
        if spans and since <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(to, spans[-1][1])
        else:
            spans.append((since, to))
    return spans


Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


Way = Literal["", "off", "requeue", "cancel", "suspend"]
"""What preemption does: requeue loses the work, cancel ends the job, suspend keeps its nodes."""


class Ranked(StrictModel):
    """What a pool adds to the priority of its jobs, and how they count as use and give way."""

    name: str = Field(min_length=1)
    tier: int = 1
    priority: Amount = 1.0
    preempted: Way = ""
    billing: Mapping[str, Amount] = Field(default_factory=dict)
    by_user: bool = False  # its jobs share nodes with those of their user alone, under slurm
    least_loaded: bool = False  # its jobs take the least loaded nodes, under slurm


class Qos(StrictModel):
    """A quality of service: what it adds to priority, and what a job of it may ask for."""

    name: str = Field(min_length=1)
    priority: Amount = 0.0
    usage_factor: Amount = 1.0
    most_time: float = Field(np.inf, gt=0)
    most_nodes: int = Field(0, ge=0)
    preempts: tuple[str, ...] = ()
    preempted: Way = ""
    exempt: Amount | None = None


class Preemption(StrictModel):
    """Who may preempt whom, by QOS or tier of the pool, see :mod:`gangwise.sites.preemption`.

    ``exempt`` seconds after its start nobody is; ``again`` seconds later a job that lost its work
    may start once more. The others are Slurm's PreemptParameters.
    """

    by: Literal["", "qos", "tier"] = ""
    how: Way = "off"
    exempt: Amount = 0.0
    again: Amount = 0.0
    youngest_first: bool = False
    strict: bool = False
    reorder: int = Field(1, ge=0)


class AccountRule(StrictModel):
    """An account in the tree of accounts, with the users whose shares in it are not 1."""

    name: str = Field(min_length=1)
    parent: str = ""
    shares: Amount = 1.0
    users: Mapping[str, Amount] = Field(default_factory=dict)


PriorityFlag = Literal[
    "accrue_always",
    "incr_only",
    "max_tres",
    "small_relative_to_time",
    "no_normal_part",
    "no_normal_qos",
    "no_normal_tres",
]
"""Slurm's PriorityFlags that are played."""


class PriorityWeights(StrictModel):
    """Weights of the order ``multifactor``, named as Slurm's, and how use is counted."""

    age: float = 0.0
    fair_share: float = 0.0
    job_size: float = 0.0
    pool: float = 0.0
    qos: float = 0.0
    tres: Mapping[str, float] = Field(default_factory=dict)
    max_age: float = Field(604_800.0, gt=0)
    favor_small: bool = False
    fair: Literal["tree", "classic"] = "tree"
    damping: float = Field(1.0, gt=0)
    half_life: float = Field(604_800.0, gt=0)
    period: float = Field(300.0, gt=0)
    billing: Mapping[str, Amount] = Field(default_factory=dict)
    flags: tuple[PriorityFlag, ...] = ()
    reset: Literal["", "daily", "weekly", "monthly", "quarterly", "yearly"] = ""

    def resets(self, epoch: float, until: float) -> Floats:
        """When all use is forgotten up to some time, in seconds from ``epoch``, as in Slurm.

        At midnight: of Sundays, or of the first day of a month, a quarter, or a year.

        >>> PriorityWeights(reset="monthly").resets(0.0, 70 * DAY) / DAY
        array([31., 59.])
        """
        if not self.reset:
            return np.zeros(0)
        unit = {"daily": "D", "weekly": "W", "yearly": "Y"}.get(self.reset, "M")
        first, last = (
            np.datetime64(int(t), "s").astype(f"M8[{unit}]") for t in (epoch, epoch + until)
        )
        times = np.arange(first, last + 1)
        if self.reset == "quarterly":
            times = times[times.astype(np.int64) % 3 == 0]
        # Weeks of this unit begin on Thursdays, as 1970 did.
        thursdays = 3 * DAY if self.reset == "weekly" else 0.0
        seconds: Floats = times.astype("M8[s]").astype(np.float64) + thursdays - epoch
        return seconds[seconds > 0.0]


@dataclass(frozen=True)
class Reservation:
    """Nodes that are kept from ``begin`` to ``end`` for jobs that name it.

    No other job starts there whose limit reaches into that time.
    """

    name: str
    begin: float  # seconds on the log's clock
    end: float
    on: tuple[str, ...]  # names of nodes


@dataclass(frozen=True)
class Tenancy:
    """Priorities, accounts and preemption of a site; by default first come, first served."""

    priority: PriorityWeights = field(default_factory=PriorityWeights)
    pools: tuple[Ranked, ...] = ()
    qos: tuple[Qos, ...] = ()
    accounts: tuple[AccountRule, ...] = ()
    preemption: Preemption = field(default_factory=Preemption)
    quotas: Mapping[str, Any] = field(default_factory=dict)  # Kueue's, see jobs.kueue
    reservations: tuple[Reservation, ...] = ()
    epoch: float = 0.0
    """Seconds since 1970 at time 0: from there Slurm counts half minutes and its resolution."""
    ageing: tuple[Cap, ...] = ()
    """How many of some jobs that wait age at once, in the order of their submission."""
    minutes: tuple[Cap, ...] = ()
    """How many minutes of devices may be used over time, under ``slurm``."""


def check_tree(accounts: tuple[AccountRule, ...]) -> None:
    """Raises ValueError where a parent is not there or below its own account."""
    parents = {account.name: account.parent for account in accounts}
    for account in accounts:
        path, at = [account.name], account.parent
        # Terminates: each step goes up one account, and a second visit raises.
        while at:
            if at not in parents:
                raise ValueError(f"account {path[-1]!r} has a parent {at!r}, which is not there")
            if at in path:
                raise ValueError(f"account {at!r} is below itself")
            path.append(at)
            at = parents[at]


def below(accounts: tuple[AccountRule, ...], name: str) -> tuple[str, ...]:
    """An account and all those below it.

    >>> tree = AccountRule(name="a"), AccountRule(name="b", parent="a")
    >>> below(tree, "a")
    ('a', 'b')
    """
    accounts_below = [name]
    # The list grows while it is read, so that children of children follow.
    for at in accounts_below:
        accounts_below += [account.name for account in accounts if account.parent == at]
    return tuple(accounts_below)


def _add_tres(
    score: Floats,
    weights: Mapping[str, float],
    plain: bool,
    amount: Floats,
    jobs: Jobs,
    nodes: Nodes,
) -> None:
    """Points of ``PriorityWeightTRES`` for what jobs ask for, of ``amount`` by device type [J, K].

    A share of the partition counts, or with ``plain`` (NO_NORMAL_TRES) the amount itself.
    """
    for kind, weight in weights.items():
        if kind not in nodes.devices:  # a site file is refused before
            continue
        k = nodes.devices.index(kind)
        requests = np.array([float(terms_of(text).get(kind, "nan")) for text in jobs.terms])
        requested = np.where(np.isnan(requests[jobs.term]), amount[:, k], requests[jobs.term])
        in_pool = [
            nodes.capacity[nodes.of_pool(n if n in nodes.pools else ""), k].sum() / 1000.0
            for n in jobs.pools
        ]
        counts = requested / np.maximum(in_pool, 1.0)[jobs.pool]
        if plain:  # memory in MiB
            counts = requested * (1024.0 if kind == "mem" else 1.0)
        score += weight * counts


def standing_of(t: Any) -> FairShareState:
    """Fair-share state before the first event; ``t`` are the Tables of jobs.

    The size of a job is the mean of its shares of the nodes and of the processors (of the first
    device type, where nodes have no ``cpu``), which are also what use counts without ``billing``.
    """
    tenancy, jobs, nodes = t.options.tenancy, t.jobs, t.nodes
    w, devices, demand = tenancy.priority, nodes.devices, t.cluster.demand
    cpu = devices.index("cpu") if "cpu" in devices else 0
    amount = demand[jobs.shape] * jobs.tasks[:, None] / 1000.0  # [J, K]
    pools = {pool.name: pool for pool in tenancy.pools}
    qos = {level.name: level for level in tenancy.qos}
    of_pool, of_qos = [pools.get(n) for n in jobs.pools], [qos.get(n) for n in jobs.qoses]
    # Tiers become ranks 0, 1, …: kernels compare them and use them as indices.
    tiers = sorted({1, *(pool.tier for pool in tenancy.pools)})
    tier = np.array([tiers.index(pool.tier if pool else 1) for pool in of_pool], dtype=np.int64)
    share = amount[:, cpu] / max(nodes.capacity[:, cpu].sum() / 1000.0, 1.0)
    # `fewest_of` is expensive and counts only where size has a weight.
    size = (fewest_of(jobs, nodes) / len(nodes) + share) / 2 if w.job_size else share
    # Jobs without the term give NaN, which keeps the size computed above.
    sizes = [terms_of(text).get("size", "nanxnan").split("x") for text in jobs.terms]
    counted = np.array(sizes, dtype=np.float64)[jobs.term]  # [J, 2]: cores, nodes
    cluster_size = nodes.capacity[:, cpu].sum() / 1000.0, len(nodes)
    size = np.where(np.isnan(counted[:, 0]), size, (counted / cluster_size).mean(axis=1))
    if "small_relative_to_time" in w.flags:  # whole nodes, by minute of the limit
        fewest = np.where(np.isnan(counted[:, 1]), fewest_of(jobs, nodes), counted[:, 1])
        # Slurm takes the larger of whole nodes' cores and cores asked for.
        cores = np.maximum(fewest * cluster_size[0] / cluster_size[1], share * cluster_size[0])
        # At least a minute, as Slurm's limits are whole minutes.
        size = cores / np.maximum(jobs.limit / 60.0, 1.0) / cluster_size[0]
    score = w.job_size * (1.0 - size if w.favor_small else size) + jobs.priority
    # Slurm divides by the highest configured priority, so that factors lie between 0 and 1.
    most = max((pool.priority for pool in tenancy.pools), default=0.0) or 1.0
    most = 1.0 if "no_normal_part" in w.flags else most
    score += (
        w.pool * np.array([pool.priority / most if pool else 0.0 for pool in of_pool])[jobs.pool]
    )
    most = max((level.priority for level in tenancy.qos), default=0.0) or 1.0
    most = 1.0 if "no_normal_qos" in w.flags else most
    score += w.qos * np.array([q.priority / most if q else 0.0 for q in of_qos])[jobs.qos]
    _add_tres(score, w.tres, "no_normal_tres" in w.flags, amount, jobs, nodes)
    billing = np.zeros((len(jobs.pools), len(devices)))
    # A partition's weights replace those of the cluster; without any, cores are counted.
    for i, pool in enumerate(of_pool):
        billed = (pool.billing if pool else {}) or w.billing or {devices[cpu]: 1.0}
        billing[i] = [billed.get(kind, 0.0) for kind in devices]
    given = _given_cores(jobs)
    amount[:, cpu] = np.where(given > 0, given / 1000.0, amount[:, cpu])
    by_device = amount * billing[jobs.pool]
    # MAX_TRES: the most expensive device type counts instead of the sum.
    use = by_device.max(axis=1) if "max_tres" in w.flags else by_device.sum(axis=1)
    factor = np.array([q.usage_factor if q else 1.0 for q in of_qos])
    leaf, leaves, parent, shares, path = _tree(tenancy.accounts, jobs)
    return FairShareState(
        w.age,
        w.fair_share,
        w.max_age,
        w.period,
        # Decay as an exponent: use × exp(−rate · t) halves in `half_life` seconds.
        math.log(2.0) / w.half_life,
        w.fair == "classic",
        w.damping,
        tier[jobs.pool],
        score,
        leaf,
        use * factor[jobs.qos],
        np.zeros(len(jobs)),
        parent,
        shares,
        path,
        w.resets(tenancy.epoch, float(jobs.submit.max(initial=0.0)) + 365 * DAY),
        np.zeros(len(jobs) if "incr_only" in w.flags else 0),
        *_unused(parent.size),
        leaves,
        _ageing(t) if w.age and "accrue_always" not in w.flags else None,
    )


def _ageing(t: Any) -> Ageing | None:
    """Limits of jobs that age; None where there are none."""
    if not t.options.tenancy.ageing:
        return None
    none = np.zeros(len(t.jobs), dtype=np.int64)
    used, size = np.zeros(t.ageing.counters, dtype=np.int64), np.zeros(1, dtype=np.int64)
    return Ageing(t.ageing.caps, t.ageing.of_job, used, none, size)


def _unused(nodes: int) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats, Floats]:
    """Mutable arrays of :class:`FairShareState` for a tree of so many nodes; not its `order`."""
    use, rate, since, total, level, factor = (np.zeros(nodes) for _ in range(6))
    return np.full(1, -1.0), use, rate, since, total, level, factor


_NONE, _NO_INTS = np.zeros(0), np.zeros(0, dtype=np.int64)
_OF_JOBS = _NO_INTS, _NONE, _NO_INTS, _NONE, _NONE
_TREE = _NO_INTS, _NONE, np.zeros((0, 0), dtype=np.int64)
NOBODY = FairShareState(
    *(0.0, 0.0, 1.0, 1.0, 0.0, False, 1.0, *_OF_JOBS, *_TREE, _NONE, _NONE, *_unused(0)),
    _NO_INTS,
    None,
)
"""Fair-share state without accounts, for orders that do not use it."""


def _tree(accounts: tuple[AccountRule, ...], jobs: Any) -> tuple[Ints, Ints, Ints, Floats, Ints]:
    """Account tree: leaf of each job [J], leaves, parent and share of each node, path to each leaf.

    Accounts that the site does not name are below the root, and users in them, with one share.
    """
    rules = {account.name: account for account in accounts}
    unknown = [AccountRule(name=n) for n in jobs.accounts if n and n not in rules]
    at = [""]
    # A list that grows while it is read gives a breadth-first order.
    for name in at:  # parents first
        at += [account.name for account in (*accounts, *unknown) if account.parent == name]
    number = {name: i for i, name in enumerate(at)}
    pairs, place = numbered(jobs.charged * len(jobs.users) + jobs.user)
    mine = [(jobs.accounts[a], jobs.users[u]) for a, u in zip(*np.divmod(pairs, len(jobs.users)))]
    shares_of = {(a.name, user): shares for a in accounts for user, shares in a.users.items()}
    # First pairs with jobs, which `place` indexes; then those with shares alone.
    leaves = dict.fromkeys([*mine, *shares_of])
    parent = [-1, *(number[rules[n].parent if n in rules else ""] for n in at[1:])]
    parent += [number[account] for account, _ in leaves]
    raw = np.array(
        [0.0, *(rules[n].shares if n in rules else 1.0 for n in at[1:])]
        + [shares_of.get(leaf, 1.0) for leaf in leaves]
    )
    above = np.array(parent, dtype=np.int64)
    # Shares are normalised among siblings; index 0 is the root, which has none.
    of_siblings = np.bincount(above[1:], raw[1:], raw.size)[above[1:]]
    raw[1:] /= np.where(of_siblings > 0, of_siblings, 1.0)
    ways = []
    for node in range(len(at), raw.size):
        way = [node]
        # From leaf to root, without the root: the fair tree compares level by level from the top.
        while parent[way[0]] > 0:
            way.insert(0, parent[way[0]])
        ways.append(way)
    # Shorter paths are padded with −1.
    path = np.full((raw.size, max(map(len, ways))), -1, dtype=np.int64)
    for way in ways:
        path[way[-1], : len(way)] = way
    leaf_nodes = np.arange(len(at), raw.size)
    return place + len(at), leaf_nodes, above, raw, path

"""A site file: pools, caps, closed hours, windows without capacity, and the time a start takes.

Its tables are those of ``docs/how-to/site.md``.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self, get_args

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from gangwise.core.arrays import Ints
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.settings import Clock, fault_text, read_toml
from gangwise.jobs import schedule, tenancy
from gangwise.jobs.model import Conditions, Jobs, Node, Nodes, Shape, terms_of
from gangwise.notation import expand_nodes
from gangwise.sites import slurm_site, whole_nodes
from gangwise.sites.kueue import read_kueue

FILE = "site.toml"  # in a folder
SLURM, KUEUE = "slurm:", "kueue:"  # before a folder of what Slurm, or kubectl of Kueue, prints
PRINTED = SLURM, KUEUE
NO_KINDS = (
    "features",
    "weight",
    "switch",
    "threads",
)  # labels that do not say what kind of node it is
STRANGERS = 8  # rules about accounts and users of whom the log has none that are listed
PROCESSOR = "p"  # processors of a log that has no nodes are called p1, p2, … in a site file


class _OnNodes(tenancy.StrictModel):
    nodes: str = ""
    count: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.nodes and self.count:
            raise ValueError("give nodes or a count, not both")
        return self


class Pool(_OnNodes, tenancy.Ranked):
    """A pool (partition): which nodes its jobs may use, and what a job may ask for."""

    kind: str = ""
    most_time: float = Field(np.inf, gt=0)
    most_nodes: int = Field(0, ge=0)
    fewest_nodes: int = Field(0, ge=0)
    whole: bool = False  # a job has its nodes alone


class CapRule(tenancy.StrictModel):
    scope: tenancy.Scope
    of: str
    most: float = Field(ge=0)
    only: tuple[str, ...] = ()
    pool: str = ""
    qos: str = ""
    account: str = ""
    alone: bool = False
    or_pools: tuple[str, ...] = ()
    spares: tuple[tuple[str, str], ...] = ()


class _Between(tenancy.StrictModel):
    """From when to when: seconds on the log's clock, or dates."""

    since: float | datetime = Field(0.0, alias="from")
    to: float | datetime = np.inf
    pool: str = ""
    why: str = ""

    @model_validator(mode="after")
    def _ends(self) -> Self:
        since, to = self.since, self.to
        if isinstance(since, float) and isinstance(to, float) and not to > since:
            raise ValueError(f"it ends at {to:g}, not after it begins ({since:g})")
        return self


class ClosedHours(_Between):
    hours: tuple[str, ...] = Field(min_length=1)
    longer_than: float = Field(-1.0, ge=-1)  # −1: of any length
    more_than: float = Field(0.0, ge=0)
    of: str = "jobs"
    exempt: tuple[str, ...] = Field((), alias="except")  # users

    @field_validator("hours")
    @classmethod
    def _known(cls, hours: tuple[str, ...]) -> tuple[str, ...]:
        for text in hours:
            tenancy.weekly(text)
        return hours


class OwnClock(tenancy.StrictModel):
    """The clock of the site where the log does not say, or says otherwise."""

    zone: str = ""
    start: datetime | None = None


class MaintenanceWindow(_Between, _OnNodes):
    @model_validator(mode="after")
    def _some(self) -> Self:
        if not (self.nodes or self.count):
            raise ValueError("say which nodes, or a count of them")
        return self


class ReservedNodes(_Between):
    """Nodes that are kept for jobs that name the reservation (under the scheduler ``slurm``)."""

    name: str = Field(min_length=1)
    nodes: str = Field(min_length=1)


class Start(tenancy.StrictModel):
    latency: float = Field(0.0, ge=0, allow_inf_nan=False)


class Rules(tenancy.StrictModel):
    pool: tuple[Pool, ...] = ()
    qos: tuple[tenancy.Qos, ...] = ()
    account: tuple[tenancy.AccountRule, ...] = ()
    cap: tuple[CapRule, ...] = ()
    window: tuple[MaintenanceWindow, ...] = ()
    closed: tuple[ClosedHours, ...] = ()
    reservation: tuple[ReservedNodes, ...] = ()
    start: Start = Start()
    clock: OwnClock = OwnClock()
    priority: tenancy.PriorityWeights | None = None
    preemption: tenancy.Preemption = tenancy.Preemption()
    kueue: dict[str, Any] = Field(default_factory=dict)
    nodes: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _once(self) -> Self:
        names_of = {
            "pool": [pool.name for pool in self.pool],
            "qos": [qos.name for qos in self.qos],
            "account": [account.name for account in self.account],
        }
        for kind, names in names_of.items():
            for name in names:
                if names.count(name) > 1:
                    raise ValueError(f"two {kind}{'s' * (kind != 'qos')} are called {name!r}")
            for rule in (*self.cap, *self.window, *self.closed, *self.reservation):
                wanted = getattr(rule, kind, "")
                if names and wanted not in ("", *names):
                    raise ValueError(f"there is no {kind} {wanted!r}; there are {', '.join(names)}")
        tenancy.check_tree(self.account)
        return self


@dataclass(frozen=True)
class Site:
    """The rules of a site.

    Examples
    --------
    >>> site = Site(Rules(cap=(CapRule(scope="user", of="cpu", most=2),)))
    >>> jobs = Jobs.of(submit=[0, 0, 0], run=[9, 9, 9], tasks=2, user=["a", "a", "b"])
    >>> from gangwise.jobs import simulate_jobs
    >>> simulate_jobs(jobs, Nodes.pool(6), site=site).start
    array([0., 9., 0.])
    """

    rules: Rules  # what the file says
    path: str = "site"  # for messages
    # Nodes that the jobs of each pool ran on, for pools whose nodes the file leaves out.
    ran_on: Mapping[str, Sequence[str]] = field(default_factory=dict)
    nodes: Nodes | None = None  # of the site, in place of those of a log
    ignored: tuple[str, ...] = ()  # device types that are not given out: jobs ask for none
    scheduler: str = ""  # who decides there, where the site says so
    notes: tuple[str, ...] = ()  # what of the site's own files is not modelled, or was at fault
    edits: tuple[str, ...] = ()  # lines of these files that were changed before they were read
    log_clock: Clock | None = None  # where the log's time 0 lies; None where it does not say

    @classmethod
    def read(cls, path: Path | str, changes: Sequence[Any] = ()) -> Site:
        """Read a file, ``site.toml`` of a folder, or with ``slurm:FOLDER`` or
        ``kueue:FOLDER`` what they print; behind a comma, a file whose rules hold as well.

        ``changes`` are made in what Slurm prints, see :func:`~.slurm_site.read_slurm`.

        Raises ScenarioError, which names the file, and the line or the setting at fault.
        """
        printed, comma, more_rules = str(path).partition(",")
        # A comma may be part of a folder's name: then the whole is the folder.
        if comma and printed.startswith(PRINTED) and not Path(str(path).split(":")[1]).exists():
            return cls.read(printed, changes).with_rules(cls.read(more_rules))
        file = Path(path) / FILE if Path(path).is_dir() else Path(path)
        extra: dict[str, Any] = {}
        if str(path).startswith(SLURM):
            file = Path(str(path).removeprefix(SLURM))
            extra = slurm_site.read_slurm(file, changes)
        elif str(path).startswith(KUEUE):
            file = Path(str(path).removeprefix(KUEUE))
            extra = read_kueue(file)
        return cls.of(extra.pop("rules", None) or read_toml(file), str(file), **extra)

    @classmethod
    def of(cls, document: Mapping[str, Any], path: str, **more: Any) -> Site:
        """The site in the content of a file; raises ScenarioError as :meth:`read` does."""
        try:
            return cls(Rules(**document), path, **more)
        except ValidationError as error:
            raise ScenarioError(f"{path}: {_fault(error)}") from error

    def with_rules(self, other: Site) -> Site:
        """The rules of both; ScenarioError for a setting that they set differently."""
        if other.nodes is not None:
            raise ScenarioError(f"{self.path} and {other.path} both say which nodes there are")
        document = _both(self.document(), other.document(), self.path, other.path, "")
        return replace(self, rules=Site.of(document, f"{self.path} with {other.path}").rules)

    @property
    def nodes_given_out(self) -> Nodes | None:
        """Its nodes with the devices that jobs are given, None where it does not name them."""
        if self.nodes is None:
            return None
        keep = [k for k, name in enumerate(self.nodes.devices) if name not in self.ignored]
        devices = tuple(self.nodes.devices[k] for k in keep)
        # Devices that are not given out bind nobody, so nodes come without them.
        return replace(self.nodes, devices=devices, capacity=self.nodes.capacity[:, keep])

    def document(self, whole: bool = False) -> dict[str, Any]:
        """The content of the file; ``whole``: with what is as by default."""
        return self.rules.model_dump(by_alias=True, exclude_defaults=not whole)

    def counts(self, nodes: Nodes) -> dict[str, int]:
        """How many nodes of each kind and pool there are: what ``nodes`` of the file may name."""
        whole = self.of_processors(nodes)
        nodes, pools, _ = self._nodes(nodes)
        # Of processors, sizes are summed; of nodes, they are counted.
        size = _processors(nodes) if whole else np.ones(len(nodes), np.int64)
        kinds = kinds_of(replace(nodes, pools={**nodes.pools, **pools}), whole)
        counts = {kind: int(size[on].sum()) for kind, on in kinds.items()}
        return counts | {kind: n for kind, n in self.rules.nodes.items() if kind in counts}

    @property
    def digest(self) -> str:
        """Digest of what the file means, not of its layout; and of the clock, where that counts."""
        late: Any = {  # came later: without it a digest is what it was
            "preemption": True,
            "kueue": True,
            "pool": {"__all__": {"preempted", "whole", "by_user", "least_loaded"}},
            "qos": {"__all__": {"preempts", "preempted", "exempt"}},
            "closed": {"__all__": {"exempt"}},
            "reservation": True,
            "priority": {"flags", "reset"},
            "cap": {"__all__": {"alone", "or_pools", "spares"}},
        }
        # Settings that came later are left out where unused: stored results keep their names.
        text = self.rules.model_dump_json(exclude=late)
        r = self.rules
        late_rules = any(p.whole or p.by_user or p.least_loaded for p in r.pool)
        late_rules |= any(rule.exempt for rule in r.closed)
        late_rules |= any(cap.alone or cap.or_pools or cap.spares for cap in r.cap)
        late_rules |= bool(r.reservation or (r.priority and (r.priority.flags or r.priority.reset)))
        if r.preemption.by or r.kueue or late_rules:
            text += self.rules.model_dump_json(include=late)
        dates = [t for w in self.rules.window for t in (w.since, w.to) if isinstance(t, datetime)]
        if self.rules.closed or dates or self.scheduler:
            text += repr(self.clock)
        if self.nodes is not None:
            text += repr((list(self.nodes), self.ignored, self.scheduler))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def with_hosts(
        self, jobs: Jobs, nodes: Nodes, host_from: Ints, host: Ints, clock: Clock | None = None
    ) -> Site:
        """Learn from a log where the jobs of each pool ran: of job j, ``host[host_from[j]:…]``."""
        # A log of hosts shows where pools are when the site's files do not say it.
        # Each node of a job counts, so the pool is repeated for each.
        pool = np.repeat(jobs.pool, np.diff(host_from))
        ran_on = {
            name: [nodes.names[n] for n in np.unique(host[pool == i])]
            for i, name in enumerate(jobs.pools)
            if (pool == i).any()
        }
        site = replace(self, ran_on=ran_on, log_clock=clock)
        if self.nodes is None:
            return site
        ran = np.repeat(np.arange(len(jobs)), np.diff(host_from))
        on = {name: ran[host == n] for n, name in enumerate(nodes.names)}
        return site._draining(jobs, on)._in_time(jobs)

    def _in_time(self, jobs: Jobs) -> Site:
        """Of what a site printed, times in which jobs come; how many, in a note."""
        update, notes = dict[str, Any](), [*self.notes]
        text = "the log does not say at which date it begins"
        names = {"window": "times in which nodes were down or drained"}
        for name, label in {**names, "reservation": "reservations"}.items():
            rows = getattr(self.rules, name)
            dated = [r for r in rows if isinstance(r.since, datetime)]
            # A further file has times of the log, which need no clock.
            timeless = [r for r in rows if not isinstance(r.since, datetime)]
            if (clock := self.clock) is not None:
                text = "the others are not while jobs come"
                begin, end = (clock.date(float(t)) for t in (jobs.submit.min(), jobs.submit.max()))
                for rule in dated:
                    since, to = (
                        # A time without a zone is local time of the site.
                        t.replace(tzinfo=t.tzinfo or begin.tzinfo) if isinstance(t, datetime) else d
                        for t, d in ((rule.since, begin), (rule.to, end))
                    )
                    if since <= end and to >= begin:
                        timeless.append(rule)
            update[name] = tuple(timeless)
            sentence = f"{len(timeless):,} of {len(rows):,} {label} are played"
            notes += [sentence + f": {text}" * (len(timeless) < len(rows))] * bool(rows)
        if timeless:
            notes.append("reservations hold jobs off under the scheduler slurm, not under others")
        rules = self.rules.model_copy(update=update)
        return replace(self, rules=rules, notes=tuple(notes))

    def _draining(self, jobs: Jobs, ran_on: Mapping[str, Ints]) -> Site:
        """Nodes that were drained while jobs ran there take none from their last start on.

        Slurm prints a node as drained from when its last job has ended, not from the command
        to drain. ``ran_on``: the jobs that ran on each node.
        """
        windows, earlier = list[MaintenanceWindow](), 0
        for window in self.rules.window:
            ran = [j for name in expand_nodes(window.nodes) for j in ran_on.get(name, ())]
            if window.why.startswith("DRAIN") and ran and isinstance(window.since, datetime):
                since = self._known_clock("nodes were drained").at(window.since)
                ends, starts = jobs.recorded_end[ran], jobs.recorded_start[ran]
                # Slurm's time is that of the last end, to the second or two that it needs to
                # notice.
                # A second after the last start before the drain: that job itself may start there.
                if (abs(ends - since) <= 2.0).any():
                    begin = float(starts[starts < since].max()) + 1.0
                    window, earlier = window.model_copy(update={"since": begin}), earlier + 1
            windows.append(window)
        if not earlier:
            return self
        rules = self.rules.model_copy(update={"window": tuple(windows)})
        note = (
            f"assumed: nodes drained while jobs ran there take no more jobs from the last start "
            f"there on, not only from when they were empty: {earlier:,}"
        )
        return replace(self, rules=rules, notes=(*self.notes, note))

    @property
    def clock(self) -> Clock | None:
        """The site's own clock, else that of the log; None where neither is known."""
        own, log = self.rules.clock, self.log_clock
        zone = own.zone or (log.zone if log else "UTC")
        if own.start is not None:
            # The log's seconds are counted from `start`, whatever epoch the log has.
            return Clock(Clock(0.0, zone).at(own.start), zone)
        return log and Clock(log.epoch, zone)

    def _known_clock(self, what: str) -> Clock:
        if (clock := self.clock) is None:
            raise ScenarioError(
                f"{self.path}: {what}, and the log does not say at which date its time 0 lies; "
                "say it: [clock] start = 2026-01-31T00:00:00 and zone = 'Europe/Paris'"
            )
        return clock

    def _hours(self, rule: ClosedHours) -> Clock:
        always = rule.hours == (tenancy.ALWAYS,)
        return self.clock or Clock(0.0) if always else self._known_clock("hours are closed")

    def _span(self, rule: _Between, what: str) -> tuple[float, float]:
        """From when to when a rule is in force, on the log's clock."""
        since, to = (
            self._known_clock(f"{what} has dates").at(t) if isinstance(t, datetime) else t
            for t in (rule.since, rule.to)
        )
        if not to > since:
            raise ScenarioError(
                f"{self.path}: {what} ends at {rule.to}, not after it begins ({rule.since})"
            )
        return since, to

    @classmethod
    def of_log(cls, jobs: Jobs) -> Site:
        """Every pool of a log, on the nodes that its jobs ran on."""
        return cls(Rules(pool=tuple(Pool(name=n) for n in jobs.pools if n)), "the log")

    def lines(self, jobs: Jobs) -> list[str]:
        """What the site asks for, and what of it or of the jobs does not match."""
        r, lines = self.rules, []
        listed = {"pool": r.pool, "QOS": r.qos, "account": r.account, "cap": r.cap}
        listed |= {"window": r.window, "closing": r.closed, "queue": r.kueue.get("queues", ())}
        several = {
            label: label + "s" * (label != "QOS" and len(x) > 1) for label, x in listed.items()
        }
        counts = [f"{len(x)} {several[label]}" for label, x in listed.items() if x]
        counts += [f"starts {r.start.latency:g} s after they are decided"] * bool(r.start.latency)
        counts += [f"{n:,} nodes of {kind}" for kind, n in r.nodes.items()]
        lines.append(f"by the rules of {self.path}: {', '.join(counts) or 'none'}")
        lines += self.notes
        terms = [terms_of(text).get("features", "") for text in jobs.terms]
        several_of = np.array(["[" in text or "*" in text for text in terms])
        if (gangs := int(several_of[jobs.term].sum())) and self.scheduler:
            lines.append(
                f"{gangs:,} jobs ask for nodes of one of several features, or for so many of each: "
                "other schedulers than slurm take any of them"
            )
        labels = self.nodes.labels if self.nodes else ()
        if any(terms) and not any("features" in required for required in labels):
            lines.append("the site names no features of nodes: what jobs ask of them is left out")
        pools_of_log = {jobs.pools[i] for i in np.unique(jobs.pool)}
        named = {pool.name for pool in r.pool}
        if unused := sorted(named - pools_of_log):
            lines.append(f"no job is of pool {', '.join(unused)}")
        named |= {queue["name"] for queue in r.kueue.get("queues", ())} | {
            *r.kueue.get("local", ())
        }
        if named and (unknown_pools := sorted(pools_of_log - named)):
            outside = np.isin(jobs.pool, [jobs.pools.index(name) for name in unknown_pools])
            names = ", ".join(name or "none" for name in unknown_pools)
            lines.append(
                f"{int(outside.sum()):,} jobs are of a {'queue' if r.kueue else 'pool'} that the "
                f"site does not name ({names}): they{' have no quota, and' * bool(r.kueue)} may "
                "use every node"
            )
        lines += self._strangers(jobs)
        for pool in r.pool:
            if not (pool.nodes or pool.count) and pool.name not in self.ran_on:
                lines.append(f"pool {pool.name} may use every node: its own are not known")
        begin, end = float(jobs.submit.min(initial=0)), float(jobs.submit.max(initial=0))
        for name in ("window", "closed"):
            for i, rule in enumerate(getattr(r, name), 1):
                since, to = self._span(rule, f"{name} {i}")
                if len(jobs) and (since > end or to <= begin):
                    lines.append(
                        f"{name} {i} is not in force while jobs come: it is from {since:,.10g} to "
                        f"{to:,.10g} s on the log's clock, and they come from {begin:,.10g} to "
                        f"{end:,.10g} s"
                    )
        return lines

    def _strangers(self, jobs: Jobs) -> list[str]:
        """Rules about accounts and users of whom the log has no job, with the nearest name."""
        r, requested = self.rules, dict[tuple[str, str], str]()
        for i, cap in enumerate(r.cap, 1):
            names = [(cap.scope, name) for name in cap.only]
            # Only the account itself: those below it need no job.
            for row in [
                *names,
                *[("account", name) for name in tenancy.below(r.account, cap.account)[:1] if name],
            ]:
                requested.setdefault(row, f"cap {i}")
        for i, rule in enumerate(r.closed, 1):
            for name in rule.exempt:
                requested.setdefault(("user", name), f"closed {i}")
        # Slurm has an account and a user root in any case. Jobs are of the accounts at the
        # ends of the tree.
        for account in r.account:
            if len(tenancy.below(r.account, account.name)) == 1 and account.name != "root":
                requested.setdefault(("account", account.name), "its shares")
            for name in account.users:
                if name != "root":
                    requested.setdefault(("user", name), f"its shares in account {account.name}")
        several = {"user": jobs.users, "account": jobs.accounts}
        known_names = {kind: set(names) for kind, names in several.items()}
        lines = []
        for (kind, name), place in requested.items():
            if kind in known_names and known_names[kind].isdisjoint(
                tenancy.below(r.account, name) if kind == "account" else (name,)
            ):
                if not any(known_names[kind]):
                    lines.append(f"{place}: the log names no {kind}s, so none is {name!r}")
                    continue
                close = get_close_matches(name, [*known_names[kind]], 1, 0.5)
                near = f"; the nearest of the log is {close[0]!r}" if close else ""
                lines.append(f"{place}: no job is of {kind} {name!r}{near}")
        unlisted = len(lines) - STRANGERS
        return lines[:STRANGERS] + [f"and {unlisted:,} more such rules"] * (unlisted > 0)

    def placed(
        self, jobs: Jobs, nodes: Nodes, conditions: Conditions
    ) -> tuple[Jobs, Nodes, Conditions]:
        """Jobs, nodes and conditions under these rules; :meth:`options` has the rest of them.

        Raises ScenarioError or UnknownName where it names nodes or devices that are not there.
        """
        jobs, nodes = self._jobs(jobs), self.nodes or nodes
        whole = self.of_processors(nodes)
        nodes, of_pool, of_window = self._nodes(nodes)
        named = {pool.name for pool in self.rules.pool}
        nodes = replace(nodes, pools={**nodes.pools, **of_pool})
        # A group may be of a pool of its own (heterogeneous jobs).
        if named:
            names = [name if name in named else "" for name in jobs.pools]

            def within(shape: Shape, p: int) -> Shape:
                def in_pool(part: Shape) -> Shape:
                    own = terms_of(part.terms).get("pool", "")
                    return part._replace(pool=own if own in named else names[p])

                return shape.each(in_pool)

            jobs = whole_nodes.split_jobs(jobs, jobs.pool, within)
        drains, ups = list(conditions.drains), list(conditions.ups)
        # Overlapping windows are one, so that a node does not come back in between.
        for n, spans in of_window.items():
            for since, to in tenancy.merged(spans):
                drains.append((since, n))
                if np.isfinite(to):
                    ups.append((to, n))
        self._check_devices(nodes)
        rates = conditions.rates
        # One rate for all processors becomes one for each of the nodes made of them.
        if rates is not None and np.shape(rates)[1] < len(nodes):  # one node of processors
            rates = np.repeat(rates, len(nodes), axis=1)
        conditions = replace(conditions, drains=drains, ups=ups, rates=rates)
        nodes, conditions = self._resized(nodes, conditions, whole)
        alone = [pool.name for pool in self.rules.pool if pool.whole]
        jobs, nodes = whole_nodes.with_nodes_alone(*whole_nodes.on_asked_nodes(jobs, nodes), alone)
        return whole_nodes.on_unlike_nodes(jobs, nodes), nodes, conditions

    def _resized(
        self, nodes: Nodes, conditions: Conditions, whole: bool
    ) -> tuple[Nodes, Conditions]:
        """With as many nodes of each kind as the file says: the last is copied, or the last go.

        A copy is in the pools of its model, and as fast. ``whole``: processors are counted.
        """
        kinds, capacity = kinds_of(nodes, whole), nodes.capacity.copy()
        origin = list(range(len(nodes)))
        for kind, wanted in self.rules.nodes.items():
            if kind not in kinds:
                raise UnknownName(f"kind of node of {self.path}", kind, list(kinds))
            on = kinds[kind]
            added = wanted - (int(_processors(nodes)[on].sum()) if whole else len(on))
            # From the last node back; a node of processors may shrink to none.
            for n in reversed(on) if whole else ():
                changed = max(added, -int(capacity[n, 0]) // 1000)
                capacity[n, 0] += 1000 * changed
                added -= changed
            if not whole:
                # The last go first, so that what is left are nodes of the log, by their own names.
                removed = set(on[added:] if added < 0 else ())
                origin = [n for n in origin if n not in removed] + [on[-1]] * max(added, 0)
        if not whole and origin == list(range(len(nodes))):
            return nodes, conditions
        # The first copy of a node keeps its events; reversed, since the last one written stays.
        place = {n: i for i, n in reversed(list(enumerate(origin)))}
        nodes = Nodes(
            # Copies are called n+1, n+2, … by their place.
            tuple(nodes.names[n] + f"+{i}" * (place[n] != i) for i, n in enumerate(origin)),
            nodes.devices,
            capacity[origin],
            tuple(nodes.labels[n] for n in origin),
            tuple(nodes.rates[n] for n in origin),
            nodes.shared,
            {k: tuple(i for i, n in enumerate(origin) if n in on) for k, on in nodes.pools.items()},
        )
        events: dict[str, Any] = {
            name: [(t, place[n], *rest) for t, n, *rest in getattr(conditions, name) if n in place]
            for name in ("downs", "ups", "factors", "drains")
        }
        rates = conditions.rates
        return nodes, replace(
            conditions, rates=None if rates is None else np.asarray(rates)[:, origin], **events
        )

    def options(self, options: schedule.Options) -> schedule.Options:
        """Options with the caps, bounds, closed hours and latency of the site."""
        r = self.rules
        asks = [tenancy.Bounds(p.name, p.most_time, p.most_nodes, p.fewest_nodes) for p in r.pool]
        asks += [tenancy.Bounds("", q.most_time, q.most_nodes, qos=q.name) for q in r.qos]
        # Pools and QOS that ask for nothing bound nothing.
        bounds = tuple(b for b in asks if b != tenancy.Bounds(b.pool, qos=b.qos))
        caps, ageing, minutes = list[tenancy.Cap](), list[tenancy.Cap](), list[tenancy.Cap]()
        for cap in r.cap:
            below = tenancy.below(r.account, cap.account) if cap.account else ()
            own = cap.model_dump(exclude={"account", "alone"})
            # `alone`: the account itself, without those below it.
            own["accounts"] = (cap.account,) * cap.alone or below
            # What counts waiting jobs keeps none from starting.
            lasting = tenancy.over_time(cap.of)[0] and cap.scope != "job"
            kind = ageing if cap.of == tenancy.AGEING else minutes if lasting else caps
            kind.append(tenancy.Cap(**own))
        closed = tuple(
            tenancy.Closing(
                *(rule.hours, self._hours(rule), rule.longer_than),
                tenancy.Cap("all", rule.of, rule.more_than, pool=rule.pool),
                *self._span(rule, f"closed {i}"),
                rule.exempt,
            )
            for i, rule in enumerate(r.closed, 1)
        )
        reservations = tuple(
            tenancy.Reservation(
                reservation.name,
                *self._span(reservation, f"reservation {reservation.name}"),
                tuple(expand_nodes(reservation.nodes)),
            )
            for reservation in r.reservation
        )
        priority = r.priority or tenancy.PriorityWeights()
        # The epoch matters only to Slurm's clock; without one, its half minutes begin at time 0.
        epoch = self.clock.epoch if self.clock else 0.0
        shares = tenancy.Tenancy(
            *(priority, r.pool, r.qos, r.account, r.preemption, r.kueue, reservations, epoch),
            tuple(replace(cap, of="jobs") for cap in ageing),
            tuple(minutes),
        )
        options = replace(options, closed=closed, tenancy=shares, latency=r.start.latency)
        return replace(options, caps=tuple(caps), bounds=bounds)

    def _check_devices(self, nodes: Nodes) -> None:
        """Devices that rules name are those of the nodes; a cap may count jobs or nodes as well."""
        r, priority = self.rules, self.rules.priority or tenancy.PriorityWeights()
        counted = [*nodes.devices, "jobs", "nodes"]
        counts = {
            "cap": [tenancy.over_time(cap.of)[1] for cap in r.cap if cap.of != tenancy.AGEING],
            "closed": [rule.of for rule in r.closed],
        }
        for table, kinds in counts.items():
            for kind in kinds:
                bare = kind.partition(":")[0]
                if bare not in counted and not kind.startswith("license/"):
                    raise UnknownName(f"device type of [[{table}]] in {self.path}", kind, counted)
        if self.nodes is not None:
            return  # what Slurm prints may weigh devices of which the log says nothing
        weighed = {"tres": priority.tres, "billing": priority.billing}
        weighed |= {f"billing of pool {pool.name}": pool.billing for pool in r.pool}
        for table, weights in weighed.items():
            for kind in weights:
                if kind not in nodes.devices:
                    raise UnknownName(f"device type of {table} in {self.path}", kind, nodes.devices)

    def _jobs(self, jobs: Jobs) -> Jobs:
        keep = np.array([name not in self.ignored for name in jobs.devices])

        def without(shape: Shape) -> Shape:
            return shape._replace(demand=tuple(np.where(keep, shape.demand, 0).tolist()))

        shapes = tuple(shape.each(without) for shape in jobs.shapes)
        return jobs if keep.all() else replace(jobs, shapes=shapes)

    # ---------------------------------------------------------------------- which nodes

    @staticmethod
    def of_processors(nodes: Nodes) -> bool:
        """Whether a log knows processors and no nodes: one node holds all of them."""
        return len(nodes) == 1 and len(nodes.devices) == 1 and nodes.shared is None

    def _nodes(
        self, nodes: Nodes
    ) -> tuple[Nodes, dict[str, tuple[int, ...]], dict[int, list[tuple[float, float]]]]:
        """Nodes, those of each pool, and when each is not there.

        Of a log that knows processors and no nodes, those that every pool and window treats alike
        become a node.
        """
        whole = self.of_processors(nodes)
        processors = int(nodes.capacity[0, 0]) // 1000 if whole else 0
        names = [f"{PROCESSOR}{i + 1}" for i in range(processors)] if whole else list(nodes.names)
        pools = self._of_pools(names, nodes)
        windows = self._windows(names, pools)
        place = np.arange(len(names))
        # Processors that all pools and windows treat alike need not be told apart: each such cell
        # is a node.
        if whole:
            # A column says which pools and windows have a processor; equal ones are one node.
            member = np.zeros((len(pools) + len(windows), processors), dtype=bool)
            for i, on in enumerate((*pools.values(), *(on for _, on in windows))):
                member[i, on] = True
            _, examples, cell = np.unique(member, axis=1, return_index=True, return_inverse=True)
            # In the order of the first processor of each cell, so that names rise.
            order = np.argsort(examples)
            place = np.argsort(order)[cell.ravel()]
            sizes = np.bincount(place).tolist()
            device = nodes.devices[0]
            nodes = Nodes.of(Node(names[examples[c]], {device: n}) for c, n in zip(order, sizes))
        spans: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for span, on in windows:
            for n in np.unique(place[on]).tolist():
                spans[n].append(span)
        on_pools = {name: tuple(np.unique(place[on]).tolist()) for name, on in pools.items()}
        return nodes, on_pools, spans

    def _of_pools(self, names: Sequence[str], nodes: Nodes) -> dict[str, list[int]]:
        """Nodes of each pool; a count takes the first that no count before it took."""
        claimed: set[int] = set()
        members = {}
        for pool in self.rules.pool:
            if pool.nodes or not pool.count:
                # Pools without a list use the nodes that their jobs ran on, if the log says so.
                listed = pool.nodes or list(self.ran_on.get(pool.name, names))
                members[pool.name] = self._named(listed, names, f"pool {pool.name}")
                continue
            of_kind = [pool.kind in ("", *labels.values()) for labels in nodes.labels]
            # A copy beyond the log's nodes has the labels of its last node.
            able = [
                n
                for n in range(len(names))
                if n not in claimed and of_kind[min(n, len(of_kind) - 1)]
            ]
            if len(able) < pool.count:
                kind_text = f" of {pool.kind}" * bool(pool.kind)
                raise ScenarioError(
                    f"{self.path}: pool {pool.name} has {pool.count} nodes{kind_text}, and "
                    f"{len(able)} of {len(names)} are left; give fewer, or name those that pools "
                    "share"
                )
            members[pool.name] = able[: pool.count]
            claimed |= set(members[pool.name])
        return members

    def _windows(
        self, names: Sequence[str], pools: Mapping[str, Sequence[int]]
    ) -> list[tuple[tuple[float, float], list[int]]]:
        """From when to when each window is, and its nodes.

        A count takes the last that no window before it has at that time.
        """
        windows: list[tuple[tuple[float, float], list[int]]] = []
        for i, window in enumerate(self.rules.window, 1):
            # Windows that began before the log count from its time 0.
            since, to = (max(t, 0.0) for t in self._span(window, f"window {i}"))
            if window.nodes:
                windows.append(((since, to), self._named(window.nodes, names, f"window {i}")))
                continue
            # Only windows that overlap in time take nodes from each other.
            away = {n for (low, high), on in windows if low < to and since < high for n in on}
            able = [n for n in pools.get(window.pool, range(len(names))) if n not in away]
            if len(able) < window.count:
                raise ScenarioError(
                    f"{self.path}: window {i} takes {window.count} nodes, and {len(able)} are "
                    "left at that time; give fewer"
                )
            # The last ones: pools by count take the first.
            windows.append(((since, to), able[len(able) - window.count :]))
        return windows

    def _named(self, given: str | Sequence[str], names: Sequence[str], what: str) -> list[int]:
        place = {name: n for n, name in enumerate(names)}
        try:
            wanted = expand_nodes(given) if isinstance(given, str) else given
        except ValueError as error:
            raise ScenarioError(f"{self.path}: {what}: {error}") from error
        for name in wanted:
            if name not in place:
                raise UnknownName(f"node of {what} of {self.path}", name, names)
        return sorted({place[name] for name in wanted})


def together(rules: str, site: str | None) -> str | None:
    """The rules of ``--as`` and ``--site`` as the one setting `site`.

    >>> together("slurm:lab", "site.toml"), together("fcfs", "site.toml"), together("slurm:lab", "")
    ('slurm:lab,site.toml', 'site.toml', 'slurm:lab')
    """
    for text in PRINTED:
        if text in (rules, site):
            raise ScenarioError(
                f"{text} lacks its folder; write it after the colon, as in {text}lab"
            )
    if not rules.startswith(PRINTED):
        return site
    return f"{rules},{site}" if site and site != rules else rules


def _both(ours: Any, theirs: Any, our_path: str, their_path: str, where: str) -> Any:
    """Two contents of site files as one: entries with names by name, lists one behind the other."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        merged = {**theirs, **ours}
        for key in (key for key in ours if key in theirs):
            at = f"{where} {key}".lstrip()
            merged[key] = _both(ours[key], theirs[key], our_path, their_path, at)
        return merged
    if isinstance(ours, tuple | list) and all(isinstance(row, Mapping) for row in (*ours, *theirs)):
        # Entries without a name are told apart by their place.
        by_name = {row.get("name", i): row for i, row in enumerate(ours)}
        for i, row in enumerate(theirs, len(ours)):
            name = row.get("name", i)
            at = f"{where} {name}"
            by_name[name] = _both(by_name.get(name, {}), row, our_path, their_path, at)
        return [*by_name.values()]
    # Two ways to write the same nodes are no contradiction.
    alike = ours == theirs
    if where.endswith(" nodes") and isinstance(ours, str) and isinstance(theirs, str):
        alike = set(expand_nodes(ours)) == set(expand_nodes(theirs))
    if not alike:
        raise ScenarioError(
            f"{where} is {ours!r:.60} in {our_path} and {theirs!r:.60} in {their_path}: take it "
            "out of one of them"
        )
    return ours


def _processors(cells: Nodes) -> Ints:
    """Of each of the nodes that processors became, [N]."""
    return np.asarray(cells.capacity[:, 0] // 1000)


def kinds_of(nodes: Nodes, whole: bool) -> dict[str, list[int]]:
    """Nodes by the values of their labels and by pool; all of them where they are alike."""
    groups: dict[str, list[int]] = defaultdict(list)
    for n, labels in enumerate(nodes.labels):
        features = labels.get("features", "").split(",")
        own = [value for name, value in labels.items() if name not in NO_KINDS]
        # A feature counts once, though a label may say it again.
        for value in dict.fromkeys([*own, *filter(None, features)]):
            groups[value].append(n)
    # Where all nodes are one kind, "all" is the word for it; else it would hide what differs.
    alike = bool((nodes.capacity == nodes.capacity[0]).all()) and len(groups) < 2
    every = {"all": list(range(len(nodes)))} if alike or whole else {}
    return every | {name: list(on) for name, on in nodes.pools.items()} | groups


def _fault(error: ValidationError) -> str:
    """The first mistake in a file: its table, its setting, and what was probably meant."""
    details = error.errors()[0]
    *path, leaf = [str(p + 1) if isinstance(p, int) else f"[{p}]" for p in details["loc"]] or [""]
    table, setting = " ".join(path), leaf.strip("[]")
    at = f"{table}: " if table else ""
    if details["type"] == "extra_forbidden":
        kind: Any = Rules.model_fields[str(details["loc"][0])].annotation if path else Rules
        model: Any = (get_args(kind) or (kind,))[0]
        accepted = [field_info.alias or field for field, field_info in model.model_fields.items()]
        return f"{at}{UnknownName('setting', setting, accepted)}"
    message = fault_text(details)
    return f"{at}{setting}: {message}" if setting else message

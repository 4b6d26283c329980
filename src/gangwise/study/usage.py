"""An audit of a log: what is asked for and not used, what shorter limits would save, who starves.

Asked for is the requested limit, used is the run time, both times the devices of the job. Where the
log says what jobs used of the devices that they held, cores and GPUs on average and memory at most,
that is compared as well. Of accounts or queues with shares, use is compared with the share hour by
hour. A finding is what passes the thresholds below; a log without any is called clean.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core import errors, terminal
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.settings import finite
from gangwise.jobs import model, tenancy
from gangwise.jobs.metrics import Outcome, over_bins
from gangwise.jobs.schedule import Options
from gangwise.jobs.simulation import simulate_jobs
from gangwise.logs.jobs import JobLog
from gangwise.sites.kueue import documents
from gangwise.sites.retelling import HOUR, WEEK
from gangwise.sites.site import PRINTED, together
from gangwise.study import answer, replay, replay_scenario, sweep
from gangwise.study.statistics import Estimate, count, numbers

phrase = terminal.phrases("gangwise.study")

TIMES, REACHED = 4.0, 0.99
"""Who asks for more than so many times what is used is named; a run of this share of its limit
reached it."""
LEAST_JOBS = 10  # of a user or an account that is named, or whose past sets a limit
LEAST_SHARE = 0.01  # of all hours of its kind that a finding is about
CUT_SHARE = 0.25  # of the hours of a user whose jobs end at their limit, from which it is named
SHORT, OVER = 0.8, 1.2  # of its share: an account below the first is short, above the second over
SHORT_HOURS = 12.0  # in which an account is short, at least, until it is called starved
QUANTILE = 0.95  # of run over limit, of a user's earlier jobs: the shorter limit


class Use(NamedTuple):
    """Device-hours of a user or an account; ``asked`` is NaN where no limit was requested.

    Of what was held, ``asked`` are the hours that were held, of jobs whose use the log says.
    """

    name: str
    jobs: int
    used: float
    asked: float
    cut: float  # of jobs that ended at their limit

    @property
    def times(self) -> float:
        """Ratio of what was asked for to what is used."""
        return self.asked / self.used if self.used > 0 else float("nan")


Groups = tuple[Use, Sequence[Use], Sequence[Use]]
"""Use of all, and by user and account."""


class ShareUse(NamedTuple):
    """Use that an account makes of its share, over the hours of the log."""

    account: str
    share: float  # of all devices, by the shares of the site
    use: float  # of the devices in use, on average
    short_hours: float  # hours in which jobs of it waited and it had less than its share
    short: float  # device-hours that it lacked then
    over: float  # device-hours above its share while another was short


class Shorter(NamedTuple):
    """Savings of shorter limits: each a quantile of earlier jobs of its user."""

    jobs: int  # whose limit would be shorter
    longer: int  # of these, how many run longer than that
    limit: float  # mean of the shorter limits, as a share of those requested
    waiting: Estimate  # per cent by which the mean wait changes
    hours: float  # job-hours of waiting that it saves


class Finding(NamedTuple):
    kind: str  # asks too long, ends at its limit, holds idle, starved, or over its share
    name: str
    hours: float  # device-hours
    text: str
    whose: str = "account"
    device: str = ""
    cost: float = float("nan")  # NaN without a price


@dataclass(frozen=True)
class UsageAudit:
    """Findings of an audit of a log.

    ``total``, ``users`` and ``accounts`` are of the jobs that hold the ``device``, the type of
    which most is in use; ``others`` are the same of jobs that hold none of it, by their type.
    """

    source: str
    lines: Sequence[str]  # what was left out and assumed
    device: str
    total: Use
    users: Sequence[Use]
    accounts: Sequence[Use]
    shares: Sequence[ShareUse]
    shorter: Shorter | None
    findings: Sequence[Finding]
    # Device type → held and used by the whole log, users and accounts, where the log says it.
    held: Mapping[str, Groups] = field(default_factory=dict)
    others: Mapping[str, Groups] = field(default_factory=dict)
    prices: Mapping[str, float] = field(default_factory=dict)

    @property
    def price(self) -> float:
        """Of an hour of the counted device; NaN where none is given."""
        return self.prices.get(self.device, float("nan"))

    @property
    def verdict(self) -> str:
        if not self.findings:
            return phrase("audit clean")
        rows: dict[str, list[str]] = {}
        for finding in self.findings:
            rows.setdefault(finding.kind, []).append(finding.whose)
        counts = {
            kind: " and ".join(count(whose.count(one), one) for one in dict.fromkeys(whose))
            for kind, whose in rows.items()
        }
        return "; ".join(phrase(f"audit {kind}", count=said) for kind, said in counts.items())

    def as_dict(self) -> dict[str, Any]:
        def rows(uses: Sequence[Use]) -> list[dict[str, Any]]:
            return [use._asdict() | {"times": use.times} for use in uses]

        def by_device(groups: Mapping[str, Groups]) -> dict[str, Any]:
            return {
                device: {"total": rows([total])[0], "users": rows(users), "accounts": rows(own)}
                for device, (total, users, own) in groups.items()
            }

        shorter = self.shorter
        document: dict[str, Any] = finite(
            {
                "format": "gangwise-audit-1",
                "source": self.source,
                "lines": list(self.lines),
                "device": self.device,
                "verdict": self.verdict,
                "findings": [finding._asdict() for finding in self.findings],
                "total": rows([self.total])[0],
                "users": rows(self.users),
                "accounts": rows(self.accounts),
                "shares": [row._asdict() for row in self.shares],
                "shorter_limits": shorter
                and {**shorter._asdict(), "waiting": numbers(shorter.waiting)},
                "held": by_device(self.held),
                "others": by_device(self.others),
                "prices": dict(self.prices),
            }
        )
        return document


def require_prices(prices: Mapping[str, float], devices: Sequence[str]) -> None:
    """Raise ScenarioError for a price of what is not there, or that is no number from 0 on."""
    for device, price in prices.items():
        if not 0.0 <= price < float("inf"):
            raise errors.ScenarioError(f"price {device}={price:g}: a price is a number from 0 on")
        if device not in devices:
            raise errors.ScenarioError(f"price {device}: the nodes have {', '.join(devices)}")


def audit_log(
    source: str,
    scheduler: str = replay.BASE,
    settings: Mapping[str, Any] | None = None,
    prices: Mapping[str, float] | None = None,
    advance: sweep.Progress = sweep.silent,
    queues: Path | None = None,
) -> UsageAudit:
    """Audit a log, see the module; ``settings`` are those of a replay.

    ``scheduler`` is the one under which shorter limits are played, or ``slurm:FOLDER`` as in a
    replay; ``queues`` are KAI's, whose shares then count. ScenarioError for a price of a device
    type that the nodes do not have.

    >>> found = audit_log("twin:alibaba-gpu-v2023", settings={"first": 300, "nodes": 8})
    >>> found.device, found.shares
    ('gpu', [])
    """
    advance("reading the log", 0, 1)
    if queues is not None:  # before the log is read and played
        _queues(queues)
    options, prices = dict(settings or {}), dict(prices or {})
    if site := together(scheduler, options.get("site")):
        options["site"] = site
    scenario: Any = replay.replay_source(source, options).scenario()
    if scheduler.startswith(PRINTED):
        scheduler = scenario.site.scheduler or replay.BASE
    played: replay_scenario.ReplayInstance = scenario.draw(0)
    jobs, nodes, _ = played
    of_log = _used(scenario.log, jobs)
    require_prices(prices, [*nodes.devices, *(set(of_log) - {*nodes.devices})])
    outcome = Outcome.recorded(jobs, nodes)
    recorded = outcome is not None and bool((outcome.waiting[outcome.queued] > 0).any())
    advance("playing", 0, 2)
    base = _played(played, scheduler, scenario.options)
    # Without recorded waits, the audit is of what the scheduler makes of the log.
    if not recorded or outcome is None:
        outcome = base
    advance("playing", 1, 2)
    shorter = _shorter(played, scheduler, scenario.options, base)
    by_kind = {"user": (jobs.user, jobs.users), "account": (jobs.charged, jobs.accounts)}
    everything = np.zeros(len(jobs), dtype=np.int64), ("all",)
    groups = everything, *by_kind.values()
    uses = _uses(outcome, groups)
    # The first is the device type of which most is in use.
    (device, (total, users, accounts)), *others = uses.items()
    k = nodes.devices.index(device)
    held = _held(outcome, of_log, groups if len(accounts) > 1 else groups[:2])
    parts = account_shares(scenario.site.rules.account if scenario.site is not None else ())
    if queues is not None:
        parts = queue_shares(queues, nodes.devices[k], float(outcome.capacity[k]))
    columns = by_kind["account"], (jobs.pool, jobs.pools)
    # Shares may be of accounts or of queues: their names tell.
    named = next((of for of in columns if parts.keys() & {*of[1]}), columns[0])
    shares = shares_of(outcome, k, parts, *named)
    findings = [
        row._replace(cost=row.hours * prices.get(row.device, float("nan")))
        for row in _findings(uses, shares, held)
    ]
    lines = [*scenario.fidelity(), *scenario.assumed()]
    silent_about = [name for name in nodes.devices if name not in held and name != model.ALONE]
    conditions = {"audit played": not recorded, "audit no shares": not shares}
    conditions |= {"audit unused": bool(silent_about)}
    about = {"scheduler": scheduler, "devices": ", ".join(silent_about)}
    lines += [phrase(text, **about) for text, holds in conditions.items() if holds]
    return UsageAudit(
        source,
        lines,
        device,
        total,
        users,
        accounts if len(accounts) > 1 else (),
        shares,
        shorter,
        findings,
        held,
        dict(others),
        prices,
    )


def _uses(outcome: Outcome, groups: Sequence[tuple[Ints, Sequence[str]]]) -> dict[str, Groups]:
    """Use by device type: each job counts in one, the one of which the most is in use.

    Jobs that hold none of it count in the next.
    """
    uses: dict[str, Groups] = {}
    rest, devices = np.array(outcome.ended), outcome.nodes.devices
    counts = np.array([name != model.ALONE for name in devices])
    while rest.any() or not uses:
        seconds = np.where(rest, outcome.end - outcome.last_start, 0) @ outcome.demand
        k = int(np.argmax(counts * seconds / np.maximum(outcome.capacity, 1e-9)))
        mine = rest & (outcome.demand[:, k] > 0)
        # What is left holds no further device type.
        if uses and (devices[k] in uses or not seconds[k] > 0):
            break
        [total], users, accounts = (use_of(outcome, k, *group, mine) for group in groups)
        uses[devices[k]] = total, users, accounts
        rest &= ~mine
    return uses


def _findings(
    uses: Mapping[str, Groups], shares: Sequence[ShareUse], held: Mapping[str, Groups]
) -> list[Finding]:
    """All findings, those of the most hours first."""
    device, (total, *_) = next(iter(uses.items()))
    findings = _of_shares(shares, device, total)
    for find, by_device in ((_of_use, uses), (_idle, held)):
        for name, (everybody, users, accounts) in by_device.items():
            for whose, rows in (("user", users), ("account", _told_once(users, accounts))):
                findings += find(rows, whose, name, everybody)
    return sorted(findings, key=lambda row: -row.hours)


def _told_once(users: Sequence[Use], accounts: Sequence[Use]) -> list[Use]:
    """Accounts whose use is not that of one user; an only account is that of all."""
    of_users = {(row.jobs, row.used, row.cut) for row in users}
    more = [row for row in accounts if (row.jobs, row.used, row.cut) not in of_users]
    return more if len(accounts) > 1 else []


def _used(log: JobLog, jobs: model.Jobs) -> dict[str, tuple[Floats, Floats]]:
    """Amounts of a device type that each job used and asked for, as the log says [J]."""
    place = {name: i for i, name in enumerate(log.jobs.id)}
    rows = np.array([place.get(name, -1) for name in jobs.id])
    # Jobs that the log does not have get the NaN that is appended.
    return {
        device: (np.append(used, np.nan)[rows], np.append(asked, np.nan)[rows])
        for device, (used, asked) in log.used.items()
    }


def _held(
    outcome: Outcome,
    of_log: Mapping[str, tuple[Floats, Floats]],
    groups: Sequence[tuple[Ints, Sequence[str]]],
) -> dict[str, Groups]:
    """Held against used of each device type that the log knows: all, by user, by account."""
    held: dict[str, Groups] = {}
    for device, (used, asked) in of_log.items():
        every, users, *accounts = (held_of(outcome, used, asked, *group) for group in groups)
        if every:
            held[device] = every[0], users, accounts[0] if accounts else []
    return held


def _played(played: replay_scenario.ReplayInstance, scheduler: str, options: Options) -> Outcome:
    jobs, nodes, conditions = played
    return Outcome.of(simulate_jobs(jobs, nodes, scheduler, conditions, options), scheduler)


def use_of(
    outcome: Outcome, k: int, codes: Ints, names: Sequence[str], chosen: Bools | bool = True
) -> list[Use]:
    """Device-hours of chosen jobs by user or account, the most used first."""
    jobs, run = outcome.jobs, outcome.end - outcome.last_start
    devices, limited = outcome.demand[:, k] / 3600, jobs.requested & np.isfinite(run)
    # A job may outlive its limit by a little, and had asked for no less than it used.
    requested = np.where(limited, np.maximum(jobs.limit, run) * devices, np.nan)
    cut = np.where(limited & (run >= REACHED * jobs.limit), run * devices, 0.0)
    return _by_name(outcome, (run * devices, requested, cut), codes, names, chosen) or [
        Use("all", 0, 0.0, float("nan"), 0.0)
    ]


def held_of(
    outcome: Outcome, used: Floats, asked: Floats, codes: Ints, names: Sequence[str]
) -> list[Use]:
    """Device-hours that were held and used by user or account, of jobs of which both are known.

    ``used`` [J] is on average over the run of a job, or at most; ``asked`` [J] is what it held.
    """
    known = (asked > 0) & np.isfinite(used)
    hours = np.where(known, outcome.end - outcome.last_start, np.nan) / 3600
    # Use is sampled, and may come out above what was held.
    amounts = hours * np.minimum(used, asked), hours * asked, np.zeros(hours.size)
    return _by_name(outcome, amounts, codes, names, known)


def _by_name(
    outcome: Outcome,
    amounts: tuple[Floats, Floats, Floats],
    codes: Ints,
    names: Sequence[str],
    chosen: Bools | bool = True,
) -> list[Use]:
    """Sums of device-hours used, asked for and cut [J] by name, the most used first."""
    on, size = outcome.ended & chosen, len(names)
    group = np.broadcast_to(codes, on.shape)[on]
    every, requested, cut = (column[on] for column in amounts)
    # Where some requested a limit, use is compared with their requests.
    limited = np.isfinite(requested)
    used, wanted, of_cut = (
        np.bincount(group[limited], column[limited], size) for column in (every, requested, cut)
    )
    count, total = np.bincount(group, minlength=size), np.bincount(group, every, size)
    # Jobs with a limit stand for all of the name: what they asked for, over what they used.
    share = np.divide(wanted, used, out=np.full(size, np.nan), where=used > 0)
    return [
        Use(
            names[g] or "(not named)",
            int(count[g]),
            *map(float, (total[g], share[g] * total[g], of_cut[g])),
        )
        for g in np.argsort(-total, kind="stable").tolist()
        if count[g]
    ]


def account_shares(tree: Sequence[tenancy.AccountRule]) -> dict[str, float]:
    """The share of each account: the product, down the tree, of its part among its siblings."""
    rules = {rule.name: rule for rule in tree}
    siblings: dict[str, float] = {}
    for rule in tree:
        siblings[rule.parent] = siblings.get(rule.parent, 0.0) + rule.shares

    def share(name: str) -> float:
        rule = rules[name]
        part = rule.shares / max(siblings[rule.parent], 1e-12)
        return part * (share(rule.parent) if rule.parent else 1.0)

    return {name: share(name) for name in rules}


def _queues(file: Path) -> list[dict[str, Any]]:
    printed = [text if isinstance(text, dict) else {} for text in documents(file)]
    # A listing has items; an object by itself is one.
    queues = [item for text in printed for item in text.get("items", [text])]
    if not all("name" in item.get("metadata", {}) for item in queues):
        text = "there are no queues of KAI; give what kubectl get queues -o yaml prints"
        raise errors.ScenarioError(f"{file}: {text}")
    return queues


def queue_shares(file: Path, device: str, capacity: float) -> dict[str, float]:
    """The share of each of KAI's queues, as ``kubectl get queues -o yaml`` prints them.

    That is its quota, and of what its siblings have no quota for, a part by ``overQuotaWeight``, up
    to its limit; all in the share of its parent. Priorities of queues are not looked at.
    """
    # KAI writes memory in MB and processors in thousandths.
    kind, unit = {"mem": ("memory", 1e6 / 2**30), "cpu": ("cpu", 1e-3)}.get(device, (device, 1.0))
    below: dict[str, list[tuple[str, float, float, float]]] = {}
    for item in _queues(file):
        spec = item.get("spec", {})
        about = spec.get("resources", {}).get(kind, {})
        quota, limit = (float(about.get(name, -1)) * unit for name in ("quota", "limit"))
        row = item["metadata"]["name"], quota, float(about.get("overQuotaWeight", 1))
        below.setdefault(spec.get("parentQueue") or "", []).append((*row, limit))
    shares: dict[str, float] = {}

    def share_out(parent: str, there: float) -> None:
        rows = below.get(parent, [])
        # A negative quota or limit is none; quotas beyond what there is shrink alike.
        quotas = [there if quota < 0 else quota for _, quota, _, _ in rows]
        scale = min(1.0, there / max(sum(quotas), 1e-12))
        rest, weights = there - scale * sum(quotas), sum(weight for *_, weight, _ in rows)
        for (name, _, weight, limit), quota in zip(rows, quotas):
            entitled = scale * quota + rest * weight / max(weights, 1e-12)
            entitled = min(entitled, limit) if limit >= 0 else entitled
            shares[name] = entitled / capacity
            share_out(name, entitled)

    share_out("", capacity)
    return shares


def shares_of(
    outcome: Outcome, k: int, parts: Mapping[str, float], codes: Ints, names: Sequence[str]
) -> list[ShareUse]:
    """Use of every account or queue that has jobs, against its share, hour by hour."""
    jobs = outcome.jobs
    shown = [i for i, name in enumerate(names) if name in parts]
    ended, queued = outcome.ended, outcome.queued
    begin, end = float(jobs.submit.min()), outcome.span[1]
    edges = begin + HOUR * np.arange((end - begin) // HOUR + 2.0)
    charged = np.broadcast_to(codes, ended.shape)
    use, wanted = [], []
    for i in shown:
        on, waits = ended & (charged == i), queued & (charged == i)
        devices = outcome.demand[:, k]
        use.append(over_bins(edges, outcome.last_start[on], outcome.end[on], devices[on]))
        wanted.append(over_bins(edges, jobs.submit[waits], outcome.start[waits], devices[waits]))
    if not shown:
        return []
    # Differences of sums leave a hair below 0.
    holding, wanting = np.maximum(np.array(use), 0.0), np.array(wanted)
    shares = np.array([parts[names[i]] for i in shown])
    entitled = shares * outcome.capacity[k]
    # An account lacks what its waiting jobs ask for, up to its share.
    lacks = np.clip(np.minimum(entitled[:, None], holding + wanting) - holding, 0.0, None)
    # An account is not short where it has nearly all of its share.
    lacks = np.where(holding < SHORT * entitled[:, None], lacks, 0.0)
    above = np.clip(holding - OVER * entitled[:, None], 0.0, None)
    # Only what others have above their share could have been given.
    given = np.minimum(1.0, above.sum(axis=0) / np.maximum(lacks.sum(axis=0), 1e-12))
    lacks = lacks * given
    over = np.where(lacks.sum(axis=0) > 0, above, 0.0)
    mean = holding.mean(axis=1) / max(float(holding.mean(axis=1).sum()), 1e-12)
    columns = (shares, mean, (lacks > 0.05 * entitled[:, None]).sum(axis=1), lacks.sum(axis=1))
    rows = zip(*(column.tolist() for column in (*columns, over.sum(axis=1))))
    use_rows = [ShareUse(names[i], *map(float, row)) for i, row in zip(shown, rows)]
    return sorted(use_rows, key=lambda row: -row.share)


def _of_use(uses: Sequence[Use], whose: str, device: str, total: Use) -> list[Finding]:
    """Findings of those who ask for much more time than they use, or whose limits are too short."""
    findings = []
    for use in uses:
        if use.jobs < LEAST_JOBS:
            continue
        idle = use.asked - use.used
        if use.times > TIMES and idle > LEAST_SHARE * (total.asked - total.used):
            about = {"kind": whose, "name": use.name, "times": use.times, "hours": idle}
            text = phrase("audit asks", **about)
            findings.append(Finding("long", use.name, idle, text, whose, device))
        if use.cut > CUT_SHARE * use.used and use.cut > LEAST_SHARE * total.used:
            about = {"kind": whose, "name": use.name, "share": 100 * use.cut / use.used}
            text = phrase("audit cuts", **about)
            findings.append(Finding("cut", use.name, use.cut, text, whose, device))
    return findings


def _idle(uses: Sequence[Use], whose: str, device: str, total: Use) -> list[Finding]:
    """Findings of those who hold much more of a device type than they use."""
    findings = []
    for use in uses:
        idle = use.asked - use.used
        much = use.asked > TIMES * use.used and idle > LEAST_SHARE * total.asked
        if use.jobs >= LEAST_JOBS and much:
            about = {"kind": whose, "name": use.name, "device": device, "idle": idle}
            text = phrase("audit holds", hours=use.asked, share=100 * use.used / use.asked, **about)
            findings.append(Finding("idle", use.name, idle, text, whose, device))
    return findings


def _of_shares(shares: Sequence[ShareUse], device: str, total: Use) -> list[Finding]:
    """Findings of accounts that starve, and of those above their share while one does."""
    findings, starves = [], any(row.short_hours >= SHORT_HOURS for row in shares)
    for row in shares:
        about = {"name": row.account, "share": 100 * row.share, "use": 100 * row.use}
        if row.short_hours >= SHORT_HOURS and row.short > LEAST_SHARE * total.used:
            text = phrase("audit starves", hours=row.short, times=row.short_hours, **about)
            findings.append(Finding("starved", row.account, row.short, text, device=device))
        if starves and row.over > LEAST_SHARE * total.used:
            text = phrase("audit borrows", hours=row.over, **about)
            findings.append(Finding("over", row.account, row.over, text, device=device))
    return findings


def shorter_limits(jobs: model.Jobs) -> Floats:
    """Limits [J] as the past of each user sets them: never longer than requested.

    In a week, that of a user is the limit requested times the :data:`QUANTILE` of run over limit
    of the jobs that had ended, as recorded, when the week began; those of everybody where the user
    has fewer than :data:`LEAST_JOBS`. The first week is as requested.
    """
    # Without a record, as if no job had waited.
    end = np.where(np.isfinite(jobs.recorded_end), jobs.recorded_end, jobs.submit + jobs.run)
    week = ((jobs.submit - jobs.submit.min()) // WEEK).astype(np.int64)
    ratio = np.minimum(jobs.run / np.maximum(jobs.limit, 1e-9), 1.0)
    user = np.broadcast_to(jobs.user, week.shape)
    limit = np.array(jobs.limit)
    for w in range(1, int(week.max(initial=0)) + 1):
        # Only what had ended by then: what a user could have known.
        past = jobs.requested & (end <= jobs.submit.min() + w * WEEK) & ~jobs.censored
        mine = np.flatnonzero((week == w) & jobs.requested)
        if past.sum() < LEAST_JOBS or not mine.size:
            continue
        general = float(np.quantile(ratio[past], QUANTILE))
        for u in np.unique(user[mine]):
            own = past & (user == u)
            share = np.quantile(ratio[own], QUANTILE) if own.sum() >= LEAST_JOBS else general
            chosen = mine[user[mine] == u]
            limit[chosen] = np.minimum(limit[chosen], np.maximum(limit[chosen] * share, 1.0))
    return limit


def _shorter(
    played: replay_scenario.ReplayInstance, scheduler: str, options: Options, base: Outcome
) -> Shorter | None:
    """Savings of shorter limits under the scheduler; nobody is killed at one."""
    jobs = played.jobs
    limit = shorter_limits(jobs)
    changed = limit < jobs.limit
    if not changed.any():
        return None
    shorter = played._replace(jobs=replace(jobs, limit=limit))
    under = _played(shorter, scheduler, replace(options, enforced=False))
    names = ("as requested", "shorter")
    compared = answer.Compared("", dict(zip(names, ([base], [under]))), rules=names[0])
    both = base.queued & under.queued
    return Shorter(
        int(changed.sum()),
        int((jobs.run[changed] > limit[changed]).sum()),
        float((limit[changed] / jobs.limit[changed]).mean()),
        compared.change(names[1], "waiting.mean"),
        float((base.waiting - under.waiting)[both].sum()) / 3600,
    )

"""Limits of Slurm's QOS and associations: which of several counts for a job, and those of minutes.

Of the QOS of its partition, its own QOS, and its association, the first that sets a limit is the
one that counts; a QOS with the flag ``OverPartQOS`` comes before that of the partition. What all
jobs of an association may have at once (``Grp…``) counts at each account above it, too. A QOS
counts all jobs that have it or whose partition has it, also those that another limit holds.
https://slurm.schedmd.com/resource_limits.html

Limits of minutes are what the jobs of an account or a QOS may use over time; they are compiled.
``GrpTRESMins`` and ``GrpWall`` bound what jobs have used, which decays with its half-life, but that
of a QOS with ``NoDecay``; under ``AccountingStorageEnforce=safe`` a job must also be able to reach
its limit. ``GrpTRESRunMins`` bounds what running jobs may use until their limits. Slurm adds up use
every PriorityCalcPeriod, and when a job ends; it compares whole minutes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gangwise import notation
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.jit import by_reference, inner_kernel
from gangwise.core.settings import DAY
from gangwise.jobs import kernels, tenancy
from gangwise.jobs.event_kernels import boolean
from gangwise.jobs.kernels import Inputs, State
from gangwise.jobs.queue_kernels import any_between
from gangwise.jobs.schedule import NO_CAP, Claims, Tables
from gangwise.jobs.tenancy import AHEAD, USED, claims
from gangwise.sites.slurm_files import SettingRow, SlurmReading

OF_QOS = {
    "GrpTRES": "all",
    "MaxTRES": "job",
    "MaxTRESPU": "user",
    "MaxTRESPA": "account",
    "GrpJobs": "all",
    "MaxJobsPU": "user",
    "MaxJobsPA": "account",
    "GrpTRESMins": "all",
    "GrpTRESRunMins": "all",
    "GrpWall": "all",
    "MaxTRESMins": "job",
    "GrpJobsAccrue": "all",
    "MaxJobsAccruePU": "user",
    "MaxJobsAccruePA": "account",
}
"""Limits of a QOS, and of whom."""
OF_MINUTES = ("GrpTRESMins", "GrpTRESRunMins", "GrpWall")
GRP_OF_ASSOCIATION = ("GrpTRES", "GrpJobs", "GrpJobsAccrue", *OF_MINUTES)
OF_USER = ("MaxTRES", "MaxTRESMins", "MaxWall", "MaxJobs", "MaxJobsAccrue")
"""Limits of a user's association: what it does not say, an account above it may."""
OF_A_JOB = ("MaxTRES", "MaxTRESMins", "MaxWall")
"""Of these, limits of each job by itself; the others are of all that run."""
ALSO = {
    "MaxJobs": ("MaxJobsPU", "MaxJobsPA"),
    "MaxJobsAccrue": ("MaxJobsAccruePU", "MaxJobsAccruePA"),
}
"""What of a QOS counts before a limit of an association, where it is called otherwise."""
Limits = dict[tuple[str, str], float]
"""How much at most, by setting and what it counts."""


class Limited(NamedTuple):
    """The QOS with limits, those of partitions, and which QOS come before those of partitions."""

    limits: dict[str, Limits]
    of_pool: dict[str, str]
    first: list[str]


def enforced(r: SlurmReading, config: SettingRow) -> bool:
    """Whether jobs wait for limits: ``AccountingStorageEnforce`` has limits, safe or all."""
    stated = (r.folder / "slurm.conf").exists() or any(row.kind == "config" for row in r.rows)
    enforce = config.values.get("AccountingStorageEnforce", "" if stated else "limits")
    if not stated:
        r.notes.append(
            "limits are taken to be in force: no file says AccountingStorageEnforce "
            "(scontrol show config)"
        )
    # Printed as a number it is a bit mask: 2 is limits, 16 safe.
    number = int(enforce) if enforce.isdecimal() else 0
    return bool({"limits", "safe", "all"} & {*enforce.lower().split(",")} or number & 0x12)


def limits_of(r: SlurmReading, row: SettingRow, names: Any) -> Limits:
    """The limits that an entry sets."""
    limits: Limits = {}
    for name in names:
        if "Jobs" in name:
            if (amount := r.value(row, name, float, -1.0)) >= 0:
                limits[name, tenancy.AGEING if "Accrue" in name else "jobs"] = amount
        elif "Wall" in name:
            if (seconds := r.value(row, name, notation.time_limit, math.inf)) < math.inf:
                word = tenancy.USED if name == "GrpWall" else tenancy.AHEAD
                limits[name, f"{word}/jobs"] = seconds / 60.0
        else:
            word = tenancy.USED if name == "GrpTRESMins" else tenancy.AHEAD
            for device, amount in r.value(row, name, notation.amounts, notation.NO_AMOUNTS).items():
                limits[name, f"{word}/{device}" if "Mins" in name else device] = amount
    return limits


def caps_of_qos(
    r: SlurmReading, qos: dict[str, SettingRow], partitions: dict[str, SettingRow]
) -> tuple[list[dict[str, Any]], Limited]:
    """Caps of every QOS, on jobs that have it or whose partition has it."""
    of_pool = dict[str, str]()
    for name, row in partitions.items():
        own = row.values.get("QoS", "")
        if own in qos:
            of_pool[name] = own
        elif own:
            r.notes.append(f"{row.where}: QoS={own} is not among the QOS printed: left out")
    # MaxWall of a QOS bounds its jobs; here it only comes before that of an association.
    limits = {name: limits_of(r, row, (*OF_QOS, "MaxWall")) for name, row in qos.items()}
    flags = {name: row.values.get("Flags", "").upper().split(",") for name, row in qos.items()}
    # Lists, not sets: the order of caps is part of the digest of a site.
    over_partition = [name for name in qos if "OVERPARTQOS" in flags[name]]
    caps = []
    for name in qos:
        pools = tuple(pool for pool, own in of_pool.items() if own == name)
        for key, most in limits[name].items():
            if key[0] not in OF_QOS:
                continue
            # Its own jobs in partitions whose QOS counts, and jobs there whose own QOS does.
            spares = [
                (pool, name)
                for pool, own in of_pool.items()
                if own != name and key in limits[own] and name not in over_partition
            ]
            over = [q for q in over_partition if q != name and key in limits[q]]
            spares += [(pool, q) for pool in pools for q in over]
            # Of a QOS with NoDecay what was used stays.
            word, slash, device = key[1].partition("/")
            stays = "NODECAY" in flags[name] and word == tenancy.USED
            counted = tenancy.USED_UP + slash + device if stays else key[1]
            cap = {"scope": OF_QOS[key[0]], "of": counted, "most": most, "qos": name}
            caps.append({**cap, "or_pools": pools, "spares": tuple(spares)})
    return caps, Limited(limits, of_pool, over_partition)


def caps_of_associations(
    rows: list[SettingRow], r: SlurmReading, parents: dict[str, str], by: Limited
) -> list[dict[str, Any]]:
    """Caps of accounts, with all below them, and of each user's association."""

    def spares(setting: str, device: str) -> tuple[tuple[str, str], ...]:
        """Jobs of which a QOS says the same."""
        # A QOS that sets the same limit overrides that of the association.
        keys = {(name, device) for name in ALSO.get(setting, (setting,))}
        limited = [name for name, keys_of in by.limits.items() if keys & keys_of.keys()]
        return (
            *(("", name) for name in limited),
            *((pool, "") for pool, own in by.of_pool.items() if own in limited),
        )

    caps: list[dict[str, Any]] = []
    own = {row.values["Account"]: row for row in rows if not row.values.get("User")}
    users = defaultdict[str, list[SettingRow]](list)
    for row in rows:
        name, user = row.values.get("Account", ""), row.values.get("User", "")
        within: dict[str, Any] = {"account": name} if name in parents else {}
        if user:
            users[name].append(row)
            within = {**within, "alone": bool(within), "only": (user,)}
        for (setting, device), most in limits_of(r, row, GRP_OF_ASSOCIATION).items():
            cap = {"scope": "user" if user else "all", "of": device, "most": most, **within}
            pool = row.values.get("Partition", "")
            caps.append({**cap, "pool": pool, "spares": spares(setting, device)})
    inherited: dict[str, Limits] = {}
    for name in ["", "root", *parents]:  # parents first
        # What an account does not say holds as its parent says it.
        above = inherited.get(parents.get(name, "") or "root", {})
        mine = limits_of(r, own[name], OF_USER) if name in own else {}
        inherited[name] = {**above, **mine}
    alike = defaultdict[Any, list[str]](list)
    for name, of_account in users.items():
        elsewhere = defaultdict[str, list[str]](list)
        for row in of_account:
            if pool := row.values.get("Partition", ""):
                elsewhere[row.values["User"]].append(pool)
        for row in of_account:
            user, pool = row.values["User"], row.values.get("Partition", "")
            # An association of a partition comes before that without, which then counts elsewhere
            # only.
            not_in = () if pool else tuple(elsewhere[user])
            limits = {**inherited.get(name, {}), **limits_of(r, row, OF_USER)}
            for key, most in limits.items():
                alike[name, pool, not_in, key, most].append(user)
    for name in own if not any(users) else ():  # no users are printed
        if name != "root" and name not in users:
            for key, most in inherited.get(name, {}).items():
                alike[name, "", (), key, most] = []
    # Users with the same limit share a cap, which is of each of them apart.
    for (name, pool, not_in, (setting, device), most), accounts in alike.items():
        cap = {"scope": "job" if setting in OF_A_JOB else "user", "of": device, "most": most}
        scope: dict[str, Any] = {"account": name, "alone": True} if name in parents else {}
        left_to_others = (*spares(setting, device), *((account, "") for account in not_in))
        caps.append(
            {**cap, **scope, "only": tuple(accounts), "pool": pool, "spares": left_to_others}
        )
    return caps


OF_RUNNING, OF_USE, OF_WALL = range(3)
"""What a limit bounds: minutes of jobs that run, of all so far; or their wall time."""
LONGEST = 1e12
"""Seconds of a job without a limit."""


@by_reference
class Minutes(NamedTuple):
    """Limits, and what counts in each of C counters; amounts are devices times seconds."""

    caps: kernels.Caps  # in thousandths of devices and of minutes
    claim: Ints  # [J]
    kind: Ints  # [C]
    stays: Bools  # [C] use that neither decays nor is forgotten
    decay: float  # of other use, per second
    resets: Floats  # times at which it is forgotten
    safe: bool
    period: float  # seconds between the times at which Slurm adds up
    time: Floats  # [1] the last of these times
    used: Floats  # [C] by then, and by jobs that have ended since
    ahead: Floats  # [C] of running jobs, until their limits
    running: Ints  # [J] jobs that count
    size: Ints  # [1] how many


def minutes_of(t: Tables, safe: bool) -> Minutes | None:
    """The limits of minutes of a site; None where it has none."""
    tenancy, J = t.options.tenancy, len(t.jobs)
    if not tenancy.minutes:
        return None
    kinds, bare = list[tuple[int, str]](), []
    for cap in tenancy.minutes:
        word, _, device = cap.of.partition("/")
        kind = OF_RUNNING if word == AHEAD else OF_WALL if device == "jobs" else OF_USE
        kinds.append((kind, word))
        bare.append(replace(cap, of=device))
    of_caps = claims(bare, t.jobs, t.nodes, t.cluster.demand)
    of_each = [counter.max(initial=-1) + 1 for counter, _, _ in of_caps]
    own = Claims.of(bare, of_caps, J)
    until = float(t.jobs.submit.max(initial=0.0)) + 365 * DAY
    return Minutes(
        caps=own.caps,
        claim=own.of_job,
        kind=np.repeat([kind for kind, _ in kinds], of_each),
        stays=np.repeat([word != USED for _, word in kinds], of_each),
        decay=math.log(2.0) / tenancy.priority.half_life,
        resets=tenancy.priority.resets(tenancy.epoch, until),
        safe=safe,
        period=tenancy.priority.period,
        time=np.zeros(1),
        used=np.zeros(own.counters),
        ahead=np.zeros(own.counters),
        running=np.zeros(J, dtype=np.int64),
        size=np.zeros(1, dtype=np.int64),
    )


@inner_kernel
def begin_minutes(inputs: Inputs, minutes: Minutes, j: int) -> None:
    """Job j starts: until its limit its devices count."""
    c, limit = minutes.claim[j], min(inputs.jobs[j].limit, LONGEST)
    for m in range(minutes.caps.starts[c], minutes.caps.starts[c + 1]):
        minutes.ahead[minutes.caps.counter[m]] += minutes.caps.amount[m] / 1000.0 * limit
    if minutes.caps.starts[c] < minutes.caps.starts[c + 1]:
        minutes.running[minutes.size[0]] = j
        minutes.size[0] += 1


@inner_kernel
def count_until(inputs: Inputs, state: State, minutes: Minutes, until: float, adds: bool) -> None:
    """Count what jobs have used that ended by then, and others too where Slurm adds up then."""
    still, counted = 0, until if adds else minutes.time[0]
    minutes.ahead[:] = 0.0
    for i in range(minutes.size[0]):
        j = minutes.running[i]
        run, c = state.jobs[j], minutes.claim[j]
        end = kernels.NEVER if run.phase == kernels.RUNNING else state.end[j]
        if run.phase == kernels.WAITING:  # it lost its nodes now
            end = state.at.now
        over, limit = end <= until, min(inputs.jobs[j].limit, LONGEST)
        for m in range(minutes.caps.starts[c], minutes.caps.starts[c + 1]):
            k, devices = minutes.caps.counter[m], minutes.caps.amount[m] / 1000.0
            if over or adds:
                since = max(run.begun, minutes.time[0])
                minutes.used[k] += devices * max(min(end, until) - since, 0.0)
            if not over:
                minutes.ahead[k] += devices * (run.begun + limit - max(run.begun, counted))
        minutes.running[still] = j
        still += not over
    minutes.size[0] = still


@inner_kernel
def add_up(inputs: Inputs, state: State, minutes: Minutes) -> bool:
    """Count what was used since the last round; whether Slurm has added up since."""
    before, undecayed = minutes.time[0], math.exp(-minutes.decay * minutes.period)
    while minutes.time[0] + minutes.period <= state.at.now:
        due = minutes.time[0] + minutes.period
        count_until(inputs, state, minutes, due, boolean(True))
        forgotten = any_between(minutes.resets, minutes.time[0], due)
        for k in range(minutes.used.size):
            if not minutes.stays[k]:
                minutes.used[k] *= 0.0 if forgotten else undecayed
        minutes.time[0] = due
    count_until(inputs, state, minutes, state.at.now, boolean(False))
    return bool(minutes.time[0] > before)


@inner_kernel
def over_minutes(inputs: Inputs, minutes: Minutes, j: int) -> bool:
    """Whether a limit of minutes keeps job j from starting."""
    c = minutes.claim[j]
    for i in range(minutes.caps.starts[c], minutes.caps.starts[c + 1]):
        k = minutes.caps.counter[i]
        kind, bound = minutes.kind[k], minutes.caps.most[i] / 1000.0
        used = math.floor(minutes.used[k] / 60.0)
        ahead = math.floor(max(minutes.ahead[k], 0.0) / 60.0)
        wanted = minutes.caps.amount[i] / 1000.0 * math.ceil(inputs.jobs[j].limit / 60.0)
        if minutes.caps.most[i] == NO_CAP:  # another limit counts for this job
            continue
        if kind != OF_RUNNING:
            if used >= bound:
                return True
            bound -= used
            ahead *= kind == OF_USE  # of wall time, what running jobs may still use is left out
            if not minutes.safe:
                continue
        if wanted + ahead > bound:
            return True
    return False


@inner_kernel
def fading(minutes: Minutes) -> bool:
    """Whether use is left that decays, so that jobs may come to start though nothing happens."""
    for k in range(minutes.used.size):
        if minutes.decay > 0.0 and not minutes.stays[k] and minutes.used[k] >= 60.0:
            return True
    return minutes.resets.size > 0 and minutes.time[0] < minutes.resets[-1]

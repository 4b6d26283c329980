"""A site as Slurm prints it: what its files (:mod:`.slurm_files`) come to, as rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

import numpy as np

from gangwise import notation
from gangwise.jobs.model import Node, Nodes
from gangwise.jobs.tenancy import AGEING, PriorityFlag, over_time
from gangwise.sites.slurm_files import SettingRow, SlurmReading, switch_labels
from gangwise.sites.slurm_limits import caps_of_associations, caps_of_qos, enforced
from gangwise.sites.slurm_passes import SlurmPasses

REQUEUED = 121.0
"""Seconds before a job that was requeued may start: what its credential lives, and one more."""


def read_slurm(
    folder: Path | str, changes: Sequence[tuple[Sequence[str], str, str]] = ()
) -> dict[str, Any]:
    """What a :class:`~gangwise.sites.site.Site` is made of, see its method ``read``.

    Gives ``rules``, its content in the names of a site file; ``nodes``; ``ignored``, device types
    that are not given out; ``scheduler``, who decides as Slurm does; ``notes``; and ``edits``, the
    lines that ``changes`` change, which are paths in Slurm's own words, how, and what.

    Raises ScenarioError where the folder names no partition and no node, or cannot be read.
    """
    r = SlurmReading(Path(folder))
    edits = [line for change in changes for line in r.change(*change)]
    config = r.config()
    nodes = _nodes(r, config)
    partitions = r.entries("partition", "PartitionName")
    sets = _node_sets(r, nodes)
    # Partitions in the order of the files, which the order of pools keeps.
    pools = [_pool(r, row, _of_partition(r, row, nodes, sets)) for row in partitions.values()]
    select, linear = _listed(r, config, "SelectTypeParameters").values, _linear(config)
    for pool in pools:  # select/linear gives out nodes, wherever most is free
        pool["whole"] |= linear
        pool["least_loaded"] = (pool["least_loaded"] or "CR_LLN" in select) and not linear
    # Caps of QOS and associations, those that QOS override, and then those that are not enforced.
    several = config.values.get("PriorityType", "").endswith("multifactor")
    preemption = _preemption(r, config)
    priority = {"priority": _priority(r, config)} if several else {}
    qos = r.entries("qos", "Name")
    of_qos = [_qos(r, row) for row in qos.values()]
    caps, limited = caps_of_qos(r, qos, partitions)
    rows = _associations(r, config.values.get("ClusterName", ""))
    accounts = _accounts(r, rows)
    parents = {account["name"]: account["parent"] for account in accounts}
    caps += caps_of_associations(rows, r, parents, limited)
    if caps and not enforced(r, config):
        place = config.places.get("AccountingStorageEnforce", "where it is not set")
        r.notes.append(
            f"{len(caps)} limits of QOS and associations are not in force: "
            f"AccountingStorageEnforce has neither limits nor safe, {place}"
        )
        # Not enforced: QOS keep their priority and preemption, and limit nothing.
        caps, of_qos = [], [{**limit, "most_time": np.inf} for limit in of_qos]
    licences = r.value(config, "Licenses", notation.licences, notation.NO_AMOUNTS)
    for licence, amount in licences.items():
        caps.append({"scope": "all", "of": licence, "most": amount})
    # Memory is given out only where SelectTypeParameters names it; else requests of it bind
    # nothing.
    memory = any("Memory" in name for name in select)
    ignored = () if memory else ("mem",)
    caps = _that_bind(r, caps, nodes, ignored, several)
    # Tiers of partitions are part of the priority order, whatever PriorityType says.
    order = "multifactor" if several or len({pool["tier"] for pool in pools}) > 1 else "fcfs"
    rules: dict[str, Any] = {"pool": pools, "qos": of_qos, "cap": caps, "preemption": preemption}
    rules |= {"window": _events(r, nodes), "reservation": _reservations(r, nodes)}
    scheduler = _scheduler(r, config, order)
    return {
        "rules": {**rules, **priority, "account": accounts},
        "nodes": nodes,
        "ignored": ignored,
        "scheduler": scheduler,
        "notes": tuple(r.lines()),
        "edits": tuple(edits),
    }


def _that_bind(
    r: SlurmReading,
    caps: Sequence[dict[str, Any]],
    nodes: Nodes | None,
    ignored: Sequence[str],
    several: bool,
) -> list[dict[str, Any]]:
    """Caps of what the nodes give out, and of minutes where ``several`` factors add up use."""
    countable = (
        {*nodes.devices, "nodes", "jobs", AGEING} - {*ignored}
        if nodes
        else {cap["of"] for cap in caps}
    )
    lost = [
        cap
        for cap in caps
        if over_time(cap["of"])[1].partition(":")[0] not in countable
        and not cap["of"].startswith("license/")
    ]
    r.notes += [f"a cap of {cap['of']} is left out: the nodes give out none" for cap in lost]
    caps = [cap for cap in caps if cap not in lost]
    minutes = [cap for cap in caps if over_time(cap["of"])[0] and cap["scope"] != "job"]
    if minutes and several:
        r.notes.append(
            f"{len(minutes)} limits are of minutes: what was used before the log begins is not "
            "known, and taken as nothing; only the scheduler slurm plays them"
        )
    elif minutes:  # nobody adds up use
        r.notes.append(
            f"{len(minutes)} limits of minutes: not modelled without priority/multifactor"
        )
        caps = [cap for cap in caps if cap not in minutes]
    return list(caps)


def _qos(r: SlurmReading, row: SettingRow) -> dict[str, Any]:
    for flag in row.values.get("Flags", "").split(","):
        if flag.upper() not in ("", "OVERPARTQOS", "DENYONLIMIT", "NODECAY"):
            r.notes.append(f"not modelled: Flags={flag} (it is left out), {row.where}")
    return {
        "name": row.values["Name"],
        "priority": r.value(row, "Priority", float, 0.0),
        "usage_factor": r.value(row, "UsageFactor", float, 1.0),
        "most_time": r.value(row, "MaxWall", notation.time_limit, np.inf),
        "preempts": tuple(n for n in row.values.get("Preempt", "").split(",") if n),
        "preempted": r.value(row, "PreemptMode", way, ""),
        "exempt": r.value(row, "PreemptExemptTime", notation.time_limit, None),
    }


def _nodes(r: SlurmReading, config: SettingRow) -> Nodes | None:
    """The nodes in the order of Slurm's table, which is by name."""
    nodes_found, threaded = [], 0
    switch_of = _switches(r, config)
    # With CR_CPU single threads are given out.
    select, linear = config.values.get("SelectTypeParameters", "").upper(), _linear(config)
    by_core = "CPU" not in select
    unit = "task" if "ONE_TASK_PER_CORE" in select else "core" if by_core else "cpu"
    for name, row in r.entries("node", "NodeName").items():
        kinds = r.value(row, "Gres", notation.gpus, notation.NO_AMOUNTS)
        if row.values.get("State", "").upper().startswith("FUTURE"):
            continue  # it need not exist
        # Memory that Slurm keeps for the system is not given out.
        reserved = r.value(row, "MemSpecLimit", float, 0.0)
        processors, of_core = _cores(r, row)
        # With several threads a core, one processor of the log may be half a core.
        threaded += of_core > 1
        devices = {
            "cpu": processors,
            "mem": max(r.value(row, "RealMemory", float, 1.0) - reserved, 0.0) / 1024,
        }
        model = next(iter(kinds), "")
        if len(kinds) > 1:
            r.notes.append(
                f"{row.where}: node {name} has GPUs of several models, played as {model}"
            )
        if kinds:
            # Whatever their model, GPUs are one device type; the model is a label.
            devices["gpu"] = float(sum(kinds.values()))
        weight = r.value(row, "Weight", int, 1)
        labels = {"model": model, "weight": str(weight), "switch": switch_of.get(name, "")}
        labels["threads"] = f"{of_core} of a {unit}" if of_core > 1 and not linear else ""
        for setting in ("Features", "AvailableFeatures"):  # what is printed counts
            labels["features"] = row.values.get(setting, "") or labels.get("features", "")
        nodes_found.append((weight, name, devices, labels))
    if threaded and by_core and not linear:
        r.notes.append(
            f"{threaded:,} nodes give out whole cores of several threads: a job has those that "
            "AllocTRES says; where the log lacks it, what it asked for is not rounded up"
        )
    if switch_of and (lost := [name for _, name, *_ in nodes_found if name not in switch_of]):
        r.notes.append(f"{len(lost):,} nodes are on no switch, and take no job: {lost[0]} …")
    # Slurm sorts its table of nodes by name, numbers by value, however its files list them: nodes
    # are side by side, and one comes first, in that order, whatever their weights.
    pad = re.compile(r"\d+")
    nodes_found.sort(key=lambda node: pad.sub(lambda n: n[0].zfill(20), node[1]))
    unlike = len({weight for weight, *_ in nodes_found}) > 1
    built = (
        Node(name, devices, {k: v for k, v in labels.items() if v and (k != "weight" or unlike)})
        for _, name, devices, labels in nodes_found
    )
    return Nodes.of(built) if nodes_found else None


def _switches(r: SlurmReading, config: SettingRow) -> dict[str, str]:
    """The place of the leaf switch of each node among all, and the way to it from the top."""
    plugin = config.values.get("TopologyPlugin", "").lower().removeprefix("topology/")
    place = config.places.get("TopologyPlugin", config.where)
    if plugin not in ("", "none", "default", "flat", "tree"):
        r.notes.append(
            f"not modelled: TopologyPlugin=topology/{plugin} (nodes are taken as if flat), {place}"
        )
    rows = r.entries("switch", "SwitchName") if plugin == "tree" else {}
    if plugin == "tree" and not rows:
        r.notes.append(
            f"{place}: TopologyPlugin=topology/tree, and no topology.conf: taken as if flat"
        )
    nobody: list[str] = []
    parts = [
        {name: r.value(row, key, notation.expand_nodes, nobody) for name, row in rows.items()}
        for key in ("Switches", "Nodes")
    ]
    return switch_labels(*parts)


def _linear(config: SettingRow) -> bool:
    """Whether whole nodes are given out, and no cores."""
    return config.values.get("SelectType", "").lower().endswith("linear")


def _events(r: SlurmReading, nodes: Nodes | None) -> list[dict[str, Any]]:
    """When nodes were down, drained or failing: windows in which they take no jobs."""
    existing, events = {*nodes.names} if nodes else set(), []
    for row in r.rows:
        if row.kind != "event" or not row.values.get("NodeName"):
            continue  # of the cluster: what it has in all
        since = r.value(row, "TimeStart", datetime.fromisoformat, datetime.max)
        # An event of a node that is still down has no end.
        ended = row.values.get("TimeEnd", "") not in ("", "Unknown")
        to = r.value(row, "TimeEnd", datetime.fromisoformat, since) if ended else None
        names = [n for n in r.value(row, "NodeName", notation.expand_nodes, [""]) if n in existing]
        # An event that is not over yet lasts on.
        if names and (to is None or to > since):
            reason = f"{row.values.get('State', '')} {row.values.get('Reason', '')}".strip()
            window = {"from": since, "to": to or np.inf, "nodes": ",".join(names), "why": reason}
            events.append(window)
    return events


def _reservations(r: SlurmReading, nodes: Nodes | None) -> list[dict[str, Any]]:
    """Reservations of whole nodes, as they were when they were printed."""
    names, reservations = dict.fromkeys(nodes.names if nodes else ()), []
    for row in r.rows:
        if row.kind != "reservation":
            continue
        name, listed = row.values["ReservationName"], row.values.get("Nodes", "")
        since = r.value(row, "StartTime", datetime.fromisoformat, datetime.max)
        to = r.value(row, "EndTime", datetime.fromisoformat, since)
        on = (
            [*names]
            if listed.upper() == "ALL"
            else r.value(row, "Nodes", notation.expand_nodes, [""])
        )
        on = [node for node in on if node in names]
        flags = {*row.values.get("Flags", "").upper().split(",")}
        if on and to > since:
            reservations.append({"name": name, "from": since, "to": to, "nodes": ",".join(on)})
        else:
            r.notes.append(f"{row.where}: reservation {name} names no nodes: left out")
        if again := flags & {"DAILY", "HOURLY", "WEEKDAY", "WEEKEND", "WEEKLY", "FLEX"}:
            text = f"not modelled: Flags={','.join(sorted(again))} of reservation {name}"
            r.notes.append(f"{text} (it is played once, as printed), {row.where}")
    return reservations


def _cores(r: SlurmReading, row: SettingRow) -> tuple[float, int]:
    """Processors of a node that jobs may have, and how many are the threads of one core.

    Those that are kept for the system are not among them.
    """
    # Sockets are of the node, or with Boards of each board.
    cores = 1.0
    for part in ("Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket"):
        if part != "Boards" or "SocketsPerBoard" in row.values:
            cores *= r.value(row, part, float, 1.0)
    threads = r.value(row, "ThreadsPerCore", int, 1)
    # What is printed (CPUTot) counts before what is configured (CPUs).
    threads_given = r.value(row, "CPUTot", float, 0.0) or r.value(row, "CPUs", float, 0.0)
    processors = threads_given or cores * threads
    of_core = threads if processors > cores else 1  # CPUs= may count cores
    # CPUEfctv is printed without what the system keeps.
    if (free := r.value(row, "CPUEfctv", float, 0.0)) > 0:
        return free, of_core
    # Whole cores are kept, also those of which a list names single threads.
    reserved = r.value(row, "CoreSpecCount", float, 0.0) * of_core
    if not reserved:
        listed = r.value(row, "CPUSpecList", _numbers, list[int]())
        reserved = float(len({cpu // of_core for cpu in listed}) * of_core)
    return max(processors - reserved, 0.0), of_core


def _node_sets(r: SlurmReading, nodes: Nodes | None) -> dict[str, list[str]]:
    """Nodes of each NodeSet, by feature and by name, and of ALL."""
    nobody: list[str] = []
    sets = {"ALL": [*nodes.names] if nodes else nobody}
    for name, row in r.entries("nodeset", "NodeSet").items():
        # A NodeSet has nodes by name and those with a feature.
        wanted = row.values.get("Feature", "")
        labelled = zip(nodes.names, nodes.labels) if nodes and wanted else ()
        sets[name] = [*r.value(row, "Nodes", notation.expand_nodes, nobody)]
        sets[name] += [
            node for node, labels in labelled if wanted in labels.get("features", "").split(",")
        ]
    return sets


def _of_partition(
    r: SlurmReading, row: SettingRow, nodes: Nodes | None, sets: dict[str, list[str]]
) -> str:
    """The nodes of a partition, without those that no file describes."""
    nobody: list[str] = []
    listed = [
        node
        for name in r.value(row, "Nodes", notation.expand_nodes, nobody)
        for node in sets.get(name.upper() if name.upper() == "ALL" else name, [name])
    ]
    names = {*nodes.names} if nodes else {*listed}
    if lost := [name for name in listed if name not in names]:
        rest = f" and {len(lost) - 3:,} more" * (len(lost) > 3)
        r.notes.append(
            f"{row.where}: partition {row.values['PartitionName']} has nodes that no file "
            f"describes, and that are left out: {', '.join(lost[:3])}{rest}"
        )
    return ",".join(dict.fromkeys(name for name in listed if name in names))


def _pool(r: SlurmReading, row: SettingRow, nodes: str) -> dict[str, Any]:
    name = row.values["PartitionName"]
    pool: dict[str, Any] = {
        "name": name,
        "nodes": nodes,
        "most_time": r.value(row, "MaxTime", whole_minutes, np.inf),
        "most_nodes": r.value(row, "MaxNodes", notation.node_count, 0),
        "fewest_nodes": r.value(row, "MinNodes", notation.node_count, 0),
        "tier": r.value(row, "PriorityTier", int, 1),
        "priority": r.value(row, "PriorityJobFactor", float, 1.0),
        "billing": r.value(row, "TRESBillingWeights", notation.weights, notation.NO_AMOUNTS),
        "preempted": r.value(row, "PreemptMode", way, ""),
        "whole": row.values.get("OverSubscribe", "").upper() == "EXCLUSIVE",
        "by_user": row.values.get("ExclusiveUser", "").upper() == "YES",
        "least_loaded": row.values.get("LLN", "").upper() == "YES",
    }
    # Slurm accepts this, and then starts no job there.
    if 0 < pool["most_nodes"] < pool["fewest_nodes"]:
        r.notes.append(
            f"{row.where}: partition {name} has MinNodes={pool['fewest_nodes']} above "
            f"MaxNodes={pool['most_nodes']}: no job may run there"
        )
    return pool


def _listed(r: SlurmReading, row: SettingRow, name: str) -> SettingRow:
    """A list of words, or of settings, as an entry of its own; what is not played is named."""
    parts = (part.partition("=") for part in row.values.get(name, "").split(",") if part.strip())
    place = row.places.get(name, row.where)
    return r.enter(name, place, [(word.strip(), "", value) for word, _, value in parts])


def _priority(r: SlurmReading, row: SettingRow) -> dict[str, Any]:
    flags = {name.lower() for name in _listed(r, row, "PriorityFlags").values}
    if "no_normal_all" in flags:
        flags |= {"no_normal_part", "no_normal_qos", "no_normal_tres"}
    names = {"age": "Age", "fair_share": "FairShare", "job_size": "JobSize"}
    names |= {"pool": "Partition", "qos": "QOS"}
    return {
        **{name: r.value(row, f"PriorityWeight{n}", float, 0.0) for name, n in names.items()},
        "tres": r.value(row, "PriorityWeightTRES", notation.shares, notation.NO_AMOUNTS),
        "max_age": r.value(row, "PriorityMaxAge", notation.time_limit, 604_800.0),
        # A half-life of 0 is no decay: use counts for ever.
        "half_life": r.value(row, "PriorityDecayHalfLife", notation.time_limit, 604_800.0)
        or np.inf,
        "reset": r.value(row, "PriorityUsageResetPeriod", reset_period, ""),
        "period": r.value(row, "PriorityCalcPeriod", notation.time_limit, 300.0),
        "favor_small": row.values.get("PriorityFavorSmall", "").upper() in ("YES", "TRUE", "1"),
        "fair": "classic" if "no_fair_tree" in flags else "tree",
        "damping": r.value(row, "FairShareDampeningFactor", float, 1.0) or 1.0,
        "flags": tuple(sorted(flags & {*get_args(PriorityFlag)})),
    }


def reset_period(text: str) -> str:
    """How often use is forgotten; NOW is once, before the log begins.

    >>> reset_period("MONTHLY"), reset_period("NONE")
    ('monthly', '')
    """
    word = text.lower().replace("none", "").replace("now", "")
    if word not in ("", "daily", "weekly", "monthly", "quarterly", "yearly"):
        raise ValueError(f"{text!r} is no period")
    return word


def whole_minutes(text: str) -> float:
    """Seconds of a limit, which Slurm keeps in minutes, rounded up.

    >>> whole_minutes("17:30"), whole_minutes("UNLIMITED")
    (1080.0, inf)
    """
    return float(np.ceil(notation.time_limit(text) / 60.0) * 60.0)


def way(text: str) -> str:
    """How those are preempted who are; cluster: as the whole cluster says.

    >>> way("SUSPEND,GANG"), way("cluster")
    ('suspend', '')
    """
    # "gang" alone says how, not whether; "cluster" leaves it to the whole cluster.
    words = [word for word in text.lower().split(",") if word not in ("gang", "cluster")]
    if words and words[0] not in ("off", "requeue", "cancel", "suspend"):
        raise ValueError(f"{text!r} is no way to preempt")
    return words[0] if words else ""


def _preemption(r: SlurmReading, row: SettingRow) -> dict[str, Any]:
    kind = row.values.get("PreemptType", "") or "preempt/none"
    by = {"preempt/qos": "qos", "preempt/partition_prio": "tier"}.get(kind, "")
    if not by:
        if kind != "preempt/none":
            r.notes.append(f"{row.where}: PreemptType={kind} is not known: no job is preempted")
        return {}
    if "GANG" in row.values.get("PreemptMode", "").upper():
        r.notes.append("jobs of one tier do not take turns (PreemptMode=GANG): only tiers count")
    parts = [*row.values.get("PreemptParameters", "").split(",")]
    # Older versions have these among SchedulerParameters, with a prefix.
    parts += row.values.get("SchedulerParameters", "").replace("preempt_", "").split(",")
    parameters = dict(part.partition("=")[::2] for part in parts)
    for name in dict.fromkeys(row.values.get("PreemptParameters", "").split(",")):
        if name and name.partition("=")[0] not in (
            "youngest_first",
            "strict_order",
            "reorder_count",
        ):
            r.notes.append(f"not modelled: PreemptParameters={name}, {row.where}")
    exempt = r.value(row, "PreemptExemptTime", notation.time_limit, 0.0)
    return {
        "by": by,
        "how": r.value(row, "PreemptMode", way, "off") or "off",
        "exempt": exempt if exempt < np.inf else 0.0,
        "again": REQUEUED,
        "youngest_first": "youngest_first" in parameters,
        "strict": "strict_order" in parameters,
        "reorder": int(parameters.get("reorder_count", "1") or 1),
    }


def _associations(r: SlurmReading, cluster: str) -> list[SettingRow]:
    """Associations of this cluster."""
    rows = [row for row in r.rows if row.kind == "assoc"]
    # One database may serve several clusters; a single one may have no name in the files.
    if any(row.values.get("Cluster") == cluster for row in rows):
        rows = [row for row in rows if row.values.get("Cluster") == cluster]
    if rows and "ParentName" not in rows[0].values:
        r.notes.append(
            f"{rows[0].where}: no ParentName is printed: every account is below the root"
        )
    return rows


def _accounts(r: SlurmReading, rows: Sequence[SettingRow]) -> list[dict[str, Any]]:
    """The tree of accounts, parents first, with the shares of their users."""
    accounts: dict[str, dict[str, Any]] = {}
    for row in rows:
        name, share = row.values.get("Account", ""), row.values.get("Share", "1")
        if share == "parent":
            r.notes.append(f"{row.where}: not modelled: Share=parent (1 is taken)")
            row.values["Share"] = "1"
        if row.values.get("User"):
            if name == "root":  # a leaf of the tree like any other
                accounts[name] = {"name": name, "parent": "", "shares": 1.0, "users": {}}
        elif name != "root" or row.values.get("ParentName"):
            parent = row.values.get("ParentName", "").replace("root", "")
            number = r.value(row, "Share", float, 1.0)
            accounts[name] = {"name": name, "parent": parent, "shares": number, "users": {}}
    for row in rows:
        name, user = row.values.get("Account", ""), row.values.get("User", "")
        if user and name in accounts:  # also who has no job: Slurm's rank is one among all
            accounts[name]["users"][user] = r.value(row, "Share", float, 1.0)
    for account in accounts.values():
        # An account whose parent is not printed is below the root.
        if account["parent"] not in accounts:
            account["parent"] = ""
    order = [""]
    for name in order:
        order += [child["name"] for child in accounts.values() if child["parent"] == name]
    return [accounts[name] for name in order[1:]]


def _scheduler(r: SlurmReading, row: SettingRow, order: str) -> str:
    """Who decides as the main loop and the backfilling of Slurm do."""
    kind = row.values.get("SchedulerType", "sched/backfill")
    parameters = _listed(r, row, "SchedulerParameters")
    if kind not in ("sched/backfill", "sched/builtin"):
        r.notes.append(f"{row.where}: SchedulerType={kind} is not known: sched/backfill is taken")
    names = {"interval": "bf_interval", "resolution": "bf_resolution", "window": "bf_window"}
    names |= {"tested": "bf_max_job_test", "depth": "default_queue_depth"}
    names |= {"per_user": "bf_max_job_user", "per_pool": "bf_max_job_part"}
    names |= {"per_user_pool": "bf_max_job_user_part", "per_account": "bf_max_job_assoc"}
    names |= {"starts": "bf_max_job_start", "main_starts": "sched_max_job_start"}
    names |= {"part_depth": "partition_job_depth", "least_wait": "bf_min_age_reserve"}
    names |= {"least_priority": "bf_min_prio_reserve"}
    usual, arguments = SlurmPasses(), dict[str, Any](order=order)
    for name, setting in names.items():
        unit = 60 if name == "window" else 1  # Slurm says it in minutes
        arguments[name] = unit * r.value(
            parameters, setting, int, int(getattr(usual, name)) // unit
        )
    if arguments["per_account"] and arguments["per_user"]:
        place = row.places.get("SchedulerParameters", row.where)
        r.notes.append(f"{place}: bf_max_job_user does not count beside bf_max_job_assoc")
        arguments["per_user"] = 0
    arguments["safe"] = "safe" in row.values.get("AccountingStorageEnforce", "").lower()
    arguments["one_each"] = "bf_one_resv_per_job" in parameters.values
    # sched/builtin has the main loop and no backfilling.
    arguments["tested"] *= kind != "sched/builtin"
    # A version that is not known is taken for a new one.
    year, month, *_ = (*re.findall(r"\d+", row.values.get("SLURM_VERSION", "")), "99", "99")
    if row.values.get("TopologyPlugin", "").lower().endswith("tree"):
        arguments["leaf_cores"] = (int(year), int(month)) >= (23, 11)
    changes = [
        f"{name}={value}" for name, value in arguments.items() if value != getattr(usual, name)
    ]
    return "slurm" + ":" * bool(changes) + ",".join(changes)


def _numbers(text: str) -> list[int]:
    """Of a list of numbers and ranges: ``0-3,8``."""
    return [int(number) for number in notation.expand_nodes(f"[{text}]")]

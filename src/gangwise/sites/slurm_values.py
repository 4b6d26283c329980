"""Values of Slurm's settings: times, counts, lists of devices, weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

from gangwise.notation.slurm import expand_nodes, gib, tres

FOREVER = ("INFINITE", "UNLIMITED", "NONE", "-1")
NO_AMOUNTS: Any = {}  # of a list that is not given


def seconds(text: str) -> float:
    """Seconds of a time: minutes, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``; or inf.

    >>> [seconds(text) for text in ("90", "1:30", "2:00:00", "1-12", "UNLIMITED", "30 sec")]
    [5400.0, 90.0, 7200.0, 129600.0, inf, 30.0]
    """
    if text.upper() in FOREVER:
        return np.inf
    if match := re.fullmatch(r"(\d+) sec", text):
        return float(match[1])
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    if len(parts) > len(units):
        raise ValueError(f"{text!r} is not a time")
    return 86400 * float(days or 0) + sum(n * unit for n, unit in zip(parts, units))


def count(text: str) -> int:
    """A count of nodes; 0 where there may be any number."""
    return 0 if text.upper() in FOREVER else int(text)


def numbers(text: str) -> list[str]:
    """Of a list of numbers and ranges: ``0-3,8``."""
    return expand_nodes(f"[{text}]")


def amounts(text: str) -> dict[str, float]:
    """Devices of a TRES list, memory in GiB.

    >>> amounts("cpu=8,gres/gpu=2,mem=512G,node=4")
    {'cpu': 8.0, 'gpu': 2.0, 'mem': 512.0, 'nodes': 4.0}
    """
    listed = {name.lower().removeprefix("gres/"): amount for name, amount in tres(text).items()}
    names = {"node": "nodes"}
    return {names.get(n, n): gib(x) if n == "mem" else float(x) for n, x in listed.items()}


def weights(text: str) -> dict[str, float]:
    """Weights of a unit of each device, as in TRESBillingWeights: those of memory of a GiB.

    >>> weights("CPU=1,Mem=0.5G,GRES/gpu=16")
    {'cpu': 1.0, 'mem': 0.5, 'gpu': 16.0}
    """
    weight_of = {}
    for name, amount in tres(text).items():
        number, unit = amount.rstrip("KMGTP"), amount.lstrip("0123456789.")
        unit_in_gib = gib(f"1{unit}") if name.lower() == "mem" else 1.0
        weight_of[name.lower().removeprefix("gres/")] = float(number) / unit_in_gib
    return weight_of


def shares(text: str) -> dict[str, float]:
    """Weights of a share of each device, as in PriorityWeightTRES: they have no units.

    >>> shares("CPU=1000,Mem=2000,GRES/gpu=3000")
    {'cpu': 1000.0, 'mem': 2000.0, 'gpu': 3000.0}
    """
    return {n.lower().removeprefix("gres/"): float(weight) for n, weight in tres(text).items()}


def licences(text: str) -> dict[str, float]:
    """How many there are of each: ``ansys:4,matlab=2``.

    >>> licences("ansys:4,matlab")
    {'license/ansys': 4.0, 'license/matlab': 1.0}
    """
    parts = (re.split("[:=]", part) for part in text.split(",") if part)
    return {f"license/{name}": float(number[0]) if number else 1.0 for name, *number in parts}


# ----------------------------------------------------------------- values that are printed as JSON

JSON_KINDS = {
    "partitions": "partition",
    "nodes": "node",
    "reservations": "reservation",
    "qos": "qos",
    "QOS": "qos",
    "associations": "assoc",
}
"""Lists that ``scontrol show … --json`` and ``sacctmgr show … --json`` print: entries of a kind."""
JSON_NAMES = {
    "partition": """
        name:PartitionName nodes/configured:Nodes maximums/time:MaxTime maximums/nodes:MaxNodes
        minimums/nodes:MinNodes priority/tier:PriorityTier priority/job_factor:PriorityJobFactor
        qos/assigned:QoS tres/billing_weights:TRESBillingWeights partition/state:State
        maximums/cpus_per_node:MaxCPUsPerNode maximums/cpus_per_socket:MaxCPUsPerSocket
        grace_time:GraceTime maximums/shares:OverSubscribe suspend_time:SuspendTime
        nodes:Nodes max_time_limit:MaxTime maximum_nodes_per_job:MaxNodes
        min_nodes_per_job:MinNodes priority_tier:PriorityTier priority_job_factor:PriorityJobFactor
        qos:QoS billing_weights:TRESBillingWeights maximum_cpus_per_node:MaxCPUsPerNode
        preemption_grace_time:GraceTime preemption_mode:PreemptMode""",
    "node": """
        name:NodeName cpus:CPUTot effective_cpus:CPUEfctv sockets:Sockets cores:CoresPerSocket
        threads:ThreadsPerCore real_memory:RealMemory specialized_memory:MemSpecLimit
        specialized_cores:CoreSpecCount features:AvailableFeatures gres:Gres weight:Weight
        state:State res_cores_per_gpu:RestrictedCoresPerGPU""",
    "reservation": """
        name:ReservationName start_time:StartTime end_time:EndTime node_list:Nodes flags:Flags""",
    "qos": """
        name:Name priority:Priority flags:Flags usage_factor:UsageFactor preempt/list:Preempt
        preempt/mode:PreemptMode preempt/exempt_time:PreemptExemptTime limits/factor:LimitFactor
        limits/grace_time:GraceTime limits/max/active_jobs/count:GrpJobs
        limits/max/active_jobs/accruing:GrpJobsAccrue limits/max/tres/total:GrpTRES
        limits/max/tres/minutes/per/qos:GrpTRESRunMins limits/max/wall_clock/per/qos:GrpWall
        limits/max/wall_clock/per/job:MaxWall limits/max/jobs/active_jobs/per/user:MaxJobsPU
        limits/max/jobs/active_jobs/per/account:MaxJobsPA limits/max/tres/per/job:MaxTRES
        limits/max/tres/per/user:MaxTRESPU limits/max/tres/per/account:MaxTRESPA
        limits/max/tres/per/node:MaxTRESPerNode limits/max/tres/minutes/per/job:MaxTRESMins
        limits/max/accruing/per/user:MaxJobsAccruePU limits/max/accruing/per/account:MaxJobsAccruePA
        limits/min/priority_threshold:MinPrioThresh limits/min/tres/per/job:MinTRES
        usage_threshold:UsageThres""",
    "assoc": """
        cluster:Cluster account:Account user:User partition:Partition parent_account:ParentName
        shares_raw:Share max/jobs/per/count:GrpJobs max/jobs/per/accruing:GrpJobsAccrue
        max/tres/total:GrpTRES max/tres/group/minutes:GrpTRESMins
        max/tres/group/active:GrpTRESRunMins max/jobs/active:MaxJobs
        max/jobs/accruing:MaxJobsAccrue max/tres/per/job:MaxTRES
        max/tres/per/node:MaxTRESPerNode max/tres/minutes/per/job:MaxTRESMins
        max/per/account/wall_clock:GrpWall max/jobs/per/wall_clock:MaxWall priority:Priority""",
}
"""Where settings stand in JSON of 23.02 and later; then where 22.05 has them."""
JSON_WORDS = {
    ("Flags", "NOT_SET"): "",
    ("Flags", "OVERRIDE_PARTITION_QOS"): "OverPartQOS",
    ("Flags", "DENY_LIMIT"): "DenyOnLimit",
    ("Flags", "NO_DECAY"): "NoDecay",
    ("PreemptMode", "DISABLED"): "",
    ("OverSubscribe", "0"): "EXCLUSIVE",
    ("OverSubscribe", "1"): "NO",
    ("Share", "2147483647"): "parent",
}
"""What is called otherwise in JSON."""


def json_settings(kind: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Settings of an entry that Slurm prints as JSON, as the text that it prints without.

    >>> limits = {"limits": {"max": {"tres": {"total": [{"type": "cpu", "name": "", "count": 8}]}}}}
    >>> wait = {"priority": {"set": True, "infinite": False, "number": 5}}
    >>> list(json_settings("qos", {"name": "fast", "flags": ["NOT_SET"], **limits, **wait}))
    [('Name', 'fast'), ('Priority', '5'), ('Flags', ''), ('GrpTRES', 'cpu=8')]
    """
    for path, setting in (pair.split(":") for pair in JSON_NAMES[kind].split()):
        value: Any = entry
        for part in path.split("/"):
            keys = part, part.replace("_", " ")  # 22.05 has "min nodes per job"
            held = (
                [value[key] for key in keys if key in value] if isinstance(value, Mapping) else ()
            )
            value = held[0] if held else None
        if isinstance(value, Mapping) and "number" in value:
            value = "UNLIMITED" if value.get("infinite") else value.get("set") and value["number"]
            value = None if value is False else value
        if value is None or isinstance(value, Mapping):
            continue
        if isinstance(value, list):
            joint = "+" if setting == "State" else ","
            texts = [_json_item(item) for item in value]
            value = joint.join(
                filter(None, (JSON_WORDS.get((setting, t.upper()), t) for t in texts))
            )
        text = str(value)
        if setting in ("StartTime", "EndTime") and text.isdecimal():
            text = datetime.fromtimestamp(int(text), UTC).isoformat()
        elif setting == "PreemptExemptTime" and text:
            text += " sec" * text.isdecimal()
        yield setting, JSON_WORDS.get((setting, text), text)


def _json_item(item: Any) -> str:
    """One of a list: a word, or so much of a device."""
    if not isinstance(item, Mapping):
        return str(item)
    name = "/".join(filter(None, (str(item.get("type", "")), str(item.get("name") or ""))))
    return f"{name}={item.get('count', 0)}" + "M" * (name == "mem")

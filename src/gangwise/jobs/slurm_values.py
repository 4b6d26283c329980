"""Values of Slurm's settings: times, counts, lists of devices, weights."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from gangwise.traces.formats.slurm_notation import expand_nodes, gib, tres

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

"""What a page says in words: its title, what its terms mean, each policy in a sentence.

Sentences about policies are the summaries of the catalogue; the rest stands in ``words.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from importlib.resources import files
from typing import Any

from gangwise.core.registry import Kind, entries
from gangwise.experiments.statistics import enumerated
from gangwise.jobs.scheduler import parts


@cache
def words(table: str) -> Mapping[str, Any]:
    """A table of ``words.toml``: families, terms, metrics, jobs, or parts of schedulers."""
    text = (files("gangwise.report") / "words.toml").read_text(encoding="utf-8")
    found: Mapping[str, Any] = tomllib.loads(text)[table]
    return found


def numbered(n: int, one: str, many: str) -> str:
    """A number of things as a sentence begins.

    >>> numbered(11, "policy", "policies"), numbered(1, "seed", "seeds")
    ('Eleven policies', 'One seed')
    """
    known = words("numbers")["to_twelve"]
    word = known[n] if n < len(known) else f"{n:,}"
    return f"{word} {one if n == 1 else many}"


def sentence_case(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def title(
    family: str, scenario: str, deciders: Sequence[str], many: str, varied: Sequence[str]
) -> str:
    """A title as a person would write it.

    >>> title("gain_overhead", "ogasched-default-v1", ["drf", "greedy"], "policies", ["contention"])
    'drf and greedy sharing servers among jobs as contention varies'
    >>> title("of my own", "my-cluster", list("abcde"), "policies", [])
    'Five policies on my-cluster'
    """
    who = enumerated(deciders) if len(deciders) < 4 else numbered(len(deciders), "", many)
    known = words("families")
    doing = known[family]["doing"] if family in known else f"on {scenario}"
    vary = f" as {enumerated(varied)} {'varies' if len(varied) == 1 else 'vary'}" if varied else ""
    return f"{who} {doing}{vary}"


def glossary(
    family: str, settings: Mapping[str, Any], comparators: Sequence[str]
) -> dict[str, str]:
    found, jobs = {}, family == "jobs"
    if (known := words("families").get(family)) is not None:
        names = ("jobs", "ranked by") if jobs else ("slot", "reward")
        found = dict(zip(names, (known["slot"], known["reward"])))
    found |= {name: meaning for name, meaning in words("terms").items() if name in settings}
    if comparators:
        found["comparator"] = (
            "What policies are held to: it knows what they cannot, and its value is proved."
        )
        found["regret"] = "The comparator's total reward minus the policy's on the same slots."
    if not jobs:
        found["seed"] = (
            "A drawn world: its instance, arrivals and noise, the same for all policies."
        )
    return found


def in_words(metric: str) -> str:
    """A device type, or a metric of one number per run, as a reader would say it.

    >>> in_words("reward.mean"), in_words("completion.p95"), in_words("gpu")
    ('reward per slot', '95th percentile of completion', 'GPUs')
    """
    if metric in (devices := words("devices")):
        return str(devices[metric])
    name, _, of = metric.rpartition(".")
    if name and of == "mean" and name in (*words("metrics"), "reward"):
        return f"{name.replace('_', ' ')} per slot"
    known = {"mean": "mean {}", "total": "total {}", "p95": "95th percentile of {}"}
    return known[of].format(name.replace("_", " ")) if name and of in known else metric


def cell_text(names: Sequence[str], cell: Sequence[Any]) -> str:
    """A cell in words.

    >>> cell_text(["contention"], (5,)), cell_text([], ())
    ('contention = 5', 'all')
    """
    return ", ".join(f"{name} = {value}" for name, value in zip(names, cell)) or "all"


def plain(comparator: str) -> str:
    return str(words("comparators").get(comparator, {"plain": comparator})["plain"])


def about_scenario(name: str) -> str:
    """A scenario in words where the catalogue has some: what stands before its conditions."""
    return _summary("scenario", name).partition(";")[0]


def about_policy(name: str) -> str:
    return _sentence(_summary("policy", name))


def about_scheduler(name: str) -> str:
    """A scheduler in a sentence: that of the catalogue, or those of its parts.

    >>> about_scheduler("fcfs+easy+best-fit")
    'First come, first served; later jobs pass if they do not delay the first one; jobs go ...'
    >>> about_scheduler("sjf:ends=learned")
    'Shortest first, by the requested limit or by what is learned; run times are learned from ...'
    """
    if summary := _summary("scheduler", name):
        return _sentence(summary)
    found: list[str] = []
    plain, _, arguments = name.partition(":")
    for of in ("queue", "backfilling", "choice"):
        for part in [p for p in plain.split("+") if p in parts(of)][:1]:  # type: ignore[call-overload,unused-ignore]  # of a Literal
            found.append(f"{'jobs go to ' * (of == 'choice')}{words(of).get(part, part)}")
    for argument in filter(None, arguments.split(",")):
        known = words("arguments")
        found.append(known.get(argument, known.get(argument.partition("=")[0], argument)))
    return _sentence("; ".join(found))


def documentation(family: str) -> tuple[str, str]:
    """The page of the documentation about a family: its path, and its address if one is known."""
    page = words("families").get(family, {"page": "reference"})["page"]
    try:
        known = metadata("gangwise").get_all("Project-URL") or []
    except PackageNotFoundError:  # used from a checkout without being installed
        known = []
    address = dict(tuple(each.split(", ", 1)) for each in known).get("Documentation", "")
    return page, f"{address.rstrip('/')}/{page}/" if address else ""


def _summary(kind: Kind, name: str) -> str:
    known = entries(kind).get(name.partition(":")[0])
    return "" if known is None else known.summary


def _sentence(text: str) -> str:
    return f"{sentence_case(text)}." if text else ""

"""Parts of schedulers by name: orders of the queue, kinds of backfilling, choices of nodes.

What makes a part is imported when the part is made, so that a wrong name is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Literal

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.registry import ANY, belongs_elsewhere, entries, from_outside

Part = Literal["queue", "backfilling", "choice"]


class OnUse:
    """A module of this package, imported when an attribute of it is asked for."""

    def __init__(self, name: str):
        self._name = f"{__package__}.{name}"

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


choices, distance, queues = OnUse("choice"), OnUse("distance"), OnUse("queues")

FORMULAS = ("sjf", "wfp3", "saf", "f1", "f2", "f3", "f4", "unicep", "qssf", "aged")
MODES = ("required", "preferred", "unconstrained")


def formula(name: str) -> Any:
    return queues.by_formula(name)


def topology_aware(mode: str) -> Any:
    return distance.TopologyAware(mode)


PARTS: dict[Part, dict[str, Callable[[], Any]]] = {
    "queue": {
        # Functions, not classes: naming a class would import its module now.
        "fcfs": lambda: queues.FirstCome(),
        "edf": lambda: queues.EarliestDeadline(),
        "priority": lambda: queues.Priority(),
        "fair-share": lambda: queues.FairShare(),
        **{name: partial(formula, name) for name in FORMULAS},
        "multifactor": lambda: queues.Multifactor(),
        "ppo": lambda: queues.Agent(),
    },
    "backfilling": {
        name: partial(str, name) for name in ("none", "easy", "conservative", "kamelot")
    },
    "choice": {
        "first-fit": lambda: choices.FirstFit(),
        "best-fit": lambda: choices.BestFit(),
        "worst-fit": lambda: choices.WorstFit(),
        "fgd": lambda: choices.FGD(),
        "label": lambda: choices.ByRate("labels"),
        "oracle": lambda: choices.ByRate("oracle", waits=True),
        "labels": lambda: choices.ByRate(choices.Labels()),
        "ucb": lambda: choices.ByRate(choices.MeanRates()),
        "learned": lambda: choices.ByRate(choices.SharedFactors(), waits=True),
        "learned-moving": lambda: choices.ByRate(choices.SharedFactors(), waits=True, look=600.0),
        "learned-unlabelled": lambda: choices.ByRate(
            choices.SharedFactors(choices.UNLABELLED), waits=True
        ),
        "oracle-moving": lambda: choices.ByRate("oracle", waits=True, look=600.0),
        "distance": lambda: choices.ByRate(
            choices.SharedFactors(), waits=True, near=distance.Near()
        ),
        "distance-oracle": lambda: choices.ByRate("oracle", waits=True, near=distance.Near()),
        **{f"tas-{mode}": partial(topology_aware, mode) for mode in MODES},
        "labels-moving": lambda: choices.ByRate(choices.Labels(), waits=True, look=600.0),
    },
}


def parts(part: Part) -> list[str]:
    return list(PARTS[part])


def register_part(part: Part, name: str, make: Callable[[], Any]) -> None:
    """Give a part of your own a name.

    Parameters
    ----------
    part : {"queue", "backfilling", "choice"}
        See :class:`gangwise.jobs.queues.Order` and :class:`gangwise.jobs.choice.Choice`.
    make : callable
        Gives a new one; a class will do.

    Raises
    ------
    ScenarioError
        When any part has the name already.
    """
    # A word names one part, whatever its kind, so that the parts of a name come in any order.
    for names in PARTS.values():
        if name in names and names[name] is not make:
            raise ScenarioError(f"{name!r} is the name of another part; choose one of its own")
    PARTS[part][name] = make


def parts_named(words: str) -> dict[Part, str]:
    """The parts that a scheduler's name joins by plus signs, by their kinds.

    >>> parts_named("easy + sjf")
    {'backfilling': 'easy', 'queue': 'sjf'}
    """
    chosen: dict[Part, str] = {}
    for word in map(str.strip, words.split("+")):
        if not word:
            raise ScenarioError(f"scheduler {words!r}: a part is missing beside a plus sign")
        # Names of parts are unique over all kinds, see `register_part`.
        part = next((part for part, names in PARTS.items() if word in names), None)
        if part is None:
            single = [entry for entry in entries("scheduler") if entry != ANY]
            every = [name for names in PARTS.values() for name in names]
            instead = belongs_elsewhere("scheduler", word)
            raise UnknownName("scheduler or part of one", word, every + single, instead)
        if part in chosen:
            raise ScenarioError(f"{words!r} names two parts of one kind ({part})")
        chosen[part] = word
    return chosen


def require_scheduler(specification: str) -> None:
    """Refuse a name that no scheduler has; a built-in one is not imported.

    >>> require_scheduler("slurm:site")
    """
    name = specification.partition(":")[0].strip()
    # A class from outside is imported by this question, since nothing else can say that it exists.
    # slurm:FOLDER looks like module:Class, so names come first.
    if name not in entries("scheduler") and from_outside("scheduler", specification) is None:
        parts_named(name)

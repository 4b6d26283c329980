"""Registers the built-in names of ``catalogue.toml``; parts of schedulers; where an equation is.

Nothing that a name stands for is imported until it is used. What makes a part of a scheduler (an
order of the queue, a kind of backfilling, a choice of nodes) is imported when the part is made, so
that a wrong name is refused at once.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gangwise.core import registry
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.registry import Entry

Part = Literal["queue", "backfilling", "choice"]


class OnUse:
    """A module of the jobs, imported when an attribute of it is asked for."""

    def __init__(self, name: str):
        self._name = f"gangwise.jobs.{name}"

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
            single = [entry for entry in registry.entries("scheduler") if entry != registry.ANY]
            every = [name for names in PARTS.values() for name in names]
            instead = registry.belongs_elsewhere("scheduler", word)
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
    if (
        name not in registry.entries("scheduler")
        and registry.from_outside("scheduler", specification) is None
    ):
        parts_named(name)


def _register_all() -> None:
    registry.register_catalogue("gangwise")
    # A trace is registered by the first line of its TOML file: "# name: summary".
    for described in (Path(__file__).parent / "logs" / "formats").glob("*.toml"):
        with described.open(encoding="utf-8") as text:
            name, _, summary = text.readline().removeprefix("# ").strip().partition(": ")
        registry.enter("trace", name, Entry(name, f"gangwise.logs.formats.tabular:{name}", summary))


_register_all()


_LABEL = re.compile(r"(OGASched|ESDP|OPS|OPM) (Algorithm \d|§\d(?:\.\d)?|\(P?\d+\)(?:–\(\d+\))?)")


class Place(NamedTuple):
    """A class or function: ``module:name`` below the folder, where it is, its docstring."""

    symbol: str
    file: str
    line: int
    docstring: str


def labels(text: str) -> list[str]:
    """The equations that a text names.

    >>> labels("Scaling, ESDP (18)–(19), for ESDP Algorithm 2.")
    ['ESDP (18)', 'ESDP (19)', 'ESDP Algorithm 2']
    """
    names = []
    for paper, span in _LABEL.findall(" ".join(text.split())):
        low, _, high = span.partition("–")
        numbers = range(int(low[1:-1]), int(high[1:-1]) + 1) if high else ()
        names += [f"{paper} ({i})" for i in numbers] or [f"{paper} {span}"]
    return list(dict.fromkeys(names))


def _documented(
    tree: ast.Module | ast.ClassDef, prefix: str = ""
) -> Iterator[tuple[str, int, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield prefix + node.name, node.lineno, ast.get_docstring(node) or ""
        if isinstance(node, ast.ClassDef):
            yield from _documented(node, f"{prefix}{node.name}.")


@cache
def index(folder: Path = Path(__file__).parent) -> dict[str, list[Place]]:
    """Equations, paper by paper, and the code below a folder that implements them."""
    places: dict[str, list[Place]] = {}
    anywhere: dict[str, list[Place]] = {}
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if path == Path(__file__) or _LABEL.search(text) is None:
            continue
        module = ".".join(path.relative_to(folder).with_suffix("").parts)
        for name, line, docstring in _documented(ast.parse(text)):
            place = Place(f"{module}:{name}", str(path), line, docstring)
            for label in labels(docstring):
                anywhere.setdefault(label, []).append(place)
            for label in labels(docstring.partition("\n\n")[0]):
                places.setdefault(label, []).append(place)
    return {label: places.get(label, anywhere[label]) for label in sorted(anywhere, key=_order)}


def _order(label: str) -> tuple[str, str, int, str]:
    paper, _, part = label.partition(" ")
    number = re.search(r"\d+", part)
    return (
        paper.replace("OPS", "OPM"),
        re.sub(r"[\d.]+", "", part),
        int(number[0] if number else 0),
        label,
    )


def find(label: str) -> tuple[str, list[Place]]:
    """A label as papers have it, and the code that implements it; case and blanks do not matter.

    Raises UnknownName for a label that no docstring names; says what was probably meant.

    >>> find("ogasched(9)")[1][0].symbol
    'papers.gain_overhead.kernels:gradient'
    """
    plain = {"".join(name.lower().split()): name for name in index()}
    wanted = "".join(label.lower().split())
    if wanted not in plain:
        raise UnknownName("equation", label, list(index()))
    return plain[wanted], index()[plain[wanted]]

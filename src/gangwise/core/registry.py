"""Names of policies, scenarios, traces, families, schedulers, comparators, engines and routes.

An entry names its target as ``module:attribute``, so that listing imports nothing heavy. Other
packages add theirs through the entry point groups of :data:`GROUPS`. Code without a name is called
by its place: ``file.py:Class`` or ``package.module:Class``.
"""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import math
import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, cast, get_type_hints

from gangwise.core.errors import GangwiseError, ScenarioError, UnknownName, papers_wing

Kind = Literal[
    "policy", "scenario", "trace", "family", "scheduler", "comparator", "engine", "route"
]

GROUPS: Mapping[Kind, str] = {
    "policy": "gangwise.policies",
    "scenario": "gangwise.scenarios",
    "trace": "gangwise.traces",
    "family": "gangwise.families",
    "scheduler": "gangwise.schedulers",
    "comparator": "gangwise.comparators",
    "engine": "gangwise.engines",
    "route": "gangwise.routes",
}


@dataclass(frozen=True)
class Entry:
    """Entry of the registry: a name and what it stands for.

    ``target`` is ``module:attribute`` or the factory itself, ``summary`` a line for listings,
    ``family`` the problem family, ``preset`` the arguments that the name stands for. ``revision``
    is raised whenever it computes other numbers: finished runs are keyed by it.
    """

    name: str
    target: str | Callable[..., Any]
    summary: str = ""
    family: str = ""
    preset: Mapping[str, Any] = field(default_factory=dict)
    revision: int = 1

    @property
    def built_in(self) -> bool:
        return isinstance(self.target, str) and self.target.startswith("gangwise.")

    def load(self) -> Callable[..., Any]:
        if not isinstance(self.target, str):
            return self.target
        module, _, attribute = self.target.partition(":")
        factory: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        return factory


_entries: dict[Kind, dict[str, Entry]] = {kind: {} for kind in GROUPS}
_CATALOGUES = "gangwise.catalogues"
_plugins_read = False


def register(
    kind: Kind,
    name: str,
    target: str | Callable[..., Any],
    /,
    summary: str = "",
    family: str = "",
    revision: int = 1,
    **preset: Any,
) -> None:
    """Give a name to a policy, scenario, trace, family, scheduler or comparator.

    Raise ``revision`` when it computes other numbers. A comparator's target is called as
    ``target(instance, slots, seed, sample, **preset)`` and returns a :class:`~gangwise.Comparator`;
    families may have comparators of the same name. Raises ScenarioError when the name is taken.

    Examples
    --------
    >>> from gangwise.papers.gain_overhead.policies import Fairness
    >>> register("policy", "my-fairness", Fairness, "all connected job types share", share="all")
    >>> create("policy", "my-fairness").share
    'all'
    """
    _read_plugins()
    enter(kind, name, Entry(name, target, summary, family, preset, revision))


def enter(kind: Kind, name: str, entry: Entry) -> None:
    # Families have comparators of the same name, such as per_slot_optimum.
    place = f"{entry.family}/{name}" if kind == "comparator" and entry.family else name
    # The same entry once more is no error, as when a catalogue is registered again.
    if _entries[kind].get(place, entry) != entry:
        raise ScenarioError(f"the {kind} name {name!r} is taken; choose another")
    _entries[kind][place] = entry


def register_catalogue(package: str) -> None:
    """Register what a package's ``catalogue.toml`` lists, by kind and family."""
    catalogue = tomllib.loads((files(package) / "catalogue.toml").read_text("utf-8"))
    for kind, families in catalogue.items():
        for family, rows in families.items():
            for name, row in rows.items():
                about = (family, row.get("preset", {}), row.get("revision", 1))
                entry = Entry(name, f"gangwise.{row['target']}", row["summary"], *about)
                enter(cast(Kind, kind), name, entry)


def _read_plugins() -> None:
    """Read names of other packages and the papers' wing, once asked for: it takes 30 ms."""
    global _plugins_read
    if _plugins_read:
        return
    # Before the reading: a catalogue's package is imported, may register names, and come back here.
    _plugins_read = True
    points = entry_points()
    for point in points.select(group=_CATALOGUES):
        with suppress(ModuleNotFoundError):  # a wing that is left out has no names
            register_catalogue(point.value)
    for kind, group in GROUPS.items():
        for point in points.select(group=group):
            # A plug-in may not replace a built-in name, to which published numbers are bound.
            if point.name not in _entries[kind]:
                _entries[kind][point.name] = Entry(point.name, point.value, "plug-in")


def entries(kind: Kind) -> dict[str, Entry]:
    _read_plugins()
    return dict(sorted(_entries[kind].items()))


def comparators(family: str) -> dict[str, Entry]:
    """The comparators of a family by name: its own, then those of any.

    >>> comparators("gain_overhead")["per_slot_optimum"].summary
    'the best feasible decision of every single slot'
    """
    # A family's own come first, so that they win over those of any family.
    ordered = sorted(entries("comparator").values(), key=lambda entry: not entry.family)
    chosen: dict[str, Entry] = {}
    for entry in ordered:
        if entry.family in (family, ""):
            chosen.setdefault(entry.name, entry)
    return chosen


def first_entry(kind: Kind, target: str) -> Entry | None:
    """First entry for ``module:attribute``: the name that identifies it."""
    _read_plugins()
    for entry in _entries[kind].values():
        target_class = entry.target
        if not isinstance(target_class, str):
            target_class = f"{target_class.__module__}:{getattr(target_class, '__qualname__', '')}"
        if target_class == target:
            return entry
    return None


def loaded_on_use(package: str, file: str) -> Callable[[str], Any]:
    """A package's ``__getattr__`` that imports public names on first use: importing it stays light.

    Its names, and the modules that have them, are what ``file`` imports for type checkers.
    """

    @cache
    def homes() -> dict[str, str]:
        # Read from the source: type checkers and this see one list of names, not two.
        body = ast.parse(Path(file).read_text("utf-8")).body
        checked = [line for part in body if isinstance(part, ast.If) for line in part.body]
        imports = [line for line in checked if isinstance(line, ast.ImportFrom)]
        return {alias.name: str(line.module) for line in imports for alias in line.names}

    def load(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes()[name]), name)
        # Kept, so that ``__getattr__`` is asked once for each name.
        setattr(sys.modules[package], name, value)
        return value

    return load


_WORDS = {"true": True, "false": False, "inf": math.inf}
_OUTSIDE_BRACKETS = r"(?![^(\[]*[)\]])"  # a list is written (1,2) or [1,2], here as in TOML


def parse(specification: str) -> tuple[str, dict[str, Any]]:
    """Split ``name:key=value,key=value`` into the name and its arguments.

    >>> parse("ogasched-react:steps=5,fraction=0.2")
    ('ogasched-react', {'steps': 5, 'fraction': 0.2})
    >>> parse("ogasched-default-v1:alpha=(1,2),utility=log,memory=false")
    ('ogasched-default-v1', {'alpha': (1, 2), 'utility': 'log', 'memory': False})
    """
    name, _, rest = specification.strip().partition(":")
    arguments: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in re.split(f",{_OUTSIDE_BRACKETS}", rest))):
        key, equals, text = item.partition("=")
        if not equals:
            raise ScenarioError(f"{specification!r}: write arguments as name:key=value,key=value")
        arguments[key.strip()] = _value(text.strip())
    return name, arguments


def _value(text: str) -> Any:
    try:
        # Numbers, lists and quoted text as Python writes them; no code is run.
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):  # a word; of TOML's, all but nan, which nothing takes
        return _WORDS.get(text, text)


def names_of(text: str) -> list[str]:
    """Names of a list separated by commas, each with its arguments.

    >>> names_of("drf,ogasched-react:steps=5,fraction=0.2, my_policies.py:EqualShares")
    ['drf', 'ogasched-react:steps=5,fraction=0.2', 'my_policies.py:EqualShares']
    >>> names_of("fcfs,las:thresholds=(100, 1000),pause=9,sjf")
    ['fcfs', 'las:thresholds=(100, 1000),pause=9', 'sjf']
    """
    names: list[str] = []
    pieces = re.split(f",{_OUTSIDE_BRACKETS}", text)
    for part in filter(None, (piece.strip() for piece in pieces)):
        if names and "=" in part.split(":")[0]:  # a further argument of the name before it
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


_OUTSIDE = re.compile(r"(?P<where>.+\.py|[A-Za-z_][\w.]*):(?P<what>[A-Za-z_]\w*)(?P<given>:.*)?")


def label_of(specification: str) -> str:
    """A specification's name in tables: a class from outside goes without its file.

    >>> label_of("policies/mine.py:EqualShares:share=0.5"), label_of("drf")
    ('EqualShares:share=0.5', 'drf')
    """
    match = _OUTSIDE.fullmatch(specification.strip())
    return specification if match is None else match["what"] + (match["given"] or "")


def from_outside(kind: Kind, specification: str) -> Entry | None:
    """The entry of ``file.py:Class`` or ``package.module:Class``; None for any other text.

    The folder of a file is put on the import path, as Python does with a script's, so that workers
    find the class as well. Raises ScenarioError when the file or class is not there or cannot be
    imported.
    """
    match = _OUTSIDE.fullmatch(specification.strip())
    if match is None:
        return None
    source, what = match["where"], match["what"]
    module = _module_of(Path(source)) if source.endswith(".py") else source
    try:
        imported = importlib.import_module(module)
    except Exception as error:  # whatever the file does
        raise ScenarioError(f"{source}: {type(error).__name__}: {error}") from error
    factory = getattr(imported, what, None)
    if not callable(factory):
        classes = [
            name
            for name, value in vars(imported).items()
            if isinstance(value, type) and value.__module__ == module
        ]
        raise ScenarioError(f"{source} has no {what}; it has {', '.join(classes) or 'no class'}")
    return Entry(f"{source}:{what}", factory, f"{kind} of {source}")


def _module_of(file: Path) -> str:
    if not file.is_file():
        raise ScenarioError(f"{file}: there is no such file")
    name, folder = file.stem, str(file.resolve().parent)
    if not name.isidentifier():
        raise ScenarioError(f"{file}: call it by a name that Python can import, such as mine.py")
    # In front, as Python does for a script: the user's module
    # wins over an installed one of its name.
    if name not in sys.modules and folder not in sys.path:
        sys.path.insert(0, folder)
    # A module of this name that is loaded already would be taken for the user's file.
    imported = source_file(name)
    if imported is None or imported.resolve() != file.resolve():
        raise ScenarioError(f"{file}: Python has a module called {name} already; rename the file")
    return name


def source_file(module: str) -> Path | None:
    """The file of a module, imported or not; None where it has none."""
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None)
    if loaded is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError, AttributeError):
            return None
        origin = spec.origin if spec is not None and spec.has_location else None
    path = Path(origin) if origin else None
    return path if path is not None and path.is_file() else None


ANY = "*"  # the entry whose class builds, by named, every name that no other entry of its kind has


def belongs_elsewhere(kind: Kind, name: str) -> str:
    """Hint for a name of another kind, such as a policy's among schedulers; empty if none."""
    if kind in ("policy", "scheduler") and name.endswith(".py"):
        return f"name its class too, as in {name}:MyRule"
    if kind == "scheduler" and any(
        policy.split("-")[0] == name or policy == name for policy in entries("policy")
    ):
        return "it is a policy of slots, which gangwise compare plays"
    if kind == "scenario" and name in entries("policy"):
        return "it is a policy, which --policies takes"
    if kind == "trace" and (name in entries("policy") or name in entries("scenario")):
        return "it is a name of slots, which gangwise compare plays"
    if kind in ("policy", "scenario", "trace") and ANY in entries("scheduler"):
        try:
            create("scheduler", name)
        except GangwiseError:
            return ""
        return "it is a scheduler of jobs, which gangwise replay plays with --policies"
    return ""


def create(kind: Kind, specification: str, **arguments: Any) -> Any:
    """Create a policy, scenario, scheduler and so on by its name.

    ``specification`` is a registered name, with arguments after a colon if wanted, or a class from
    outside, ``file.py:Class`` or ``package.module:Class:argument=3``; ``arguments`` win over those.
    Raises UnknownName for a name or an argument that does not exist; suggests similar ones.

    Examples
    --------
    >>> create("policy", "ogasched-react:steps=5").steps
    5
    >>> create("policy", "fairnes")
    Traceback (most recent call last):
    gangwise.core.errors.UnknownName: there is no policy named 'fairnes'; did you mean fairness...
    """
    registered = entries(kind)
    entry = from_outside(kind, specification)
    if entry is not None:
        tail = specification.strip().removeprefix(entry.name).removeprefix(":")
        name, values = entry.name, parse(f"x:{tail}")[1]
    else:
        name, values = parse(specification)
        if name not in registered and ANY in registered:
            return registered[ANY].load().named(specification, **arguments)  # type: ignore[attr-defined]  # ANY has it
        if name not in registered:
            if kind in ("policy", "scenario", "family"):
                with papers_wing():
                    importlib.import_module("gangwise.papers")
            raise UnknownName(kind, name, list(registered), belongs_elsewhere(kind, name))
        entry = registered[name]
    factory = entry.load()
    # Arguments of the command line come as text; a list is known by its bracket.
    lists = {k: _value(v) for k, v in arguments.items() if isinstance(v, str) and v[:1] in "(["}
    # Later ones win: what the name stands for, the specification, the caller.
    values = {**entry.preset, **values, **arguments, **lists}
    _check_given(f"{kind} {name!r}", factory, values)
    try:
        thing = factory(**values)
        if kind == "policy":
            check_arguments(thing)
        return thing
    except GangwiseError:
        raise
    except (TypeError, ValueError) as error:  # such as a word where a list of numbers belongs
        raise ScenarioError(f"{kind} {name!r} with {values}: {error}") from error


NUMBERS = (int, float, int | None, float | None, "int", "float", "int | None", "float | None")
"""Annotations of numbers: themselves, or as text where a module defers its annotations."""


def _check_given(what: str, factory: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Raise for an unknown argument, and for a word where a number belongs: few classes would."""
    parameters = inspect.signature(factory).parameters
    types = types_of(factory) if dataclasses.is_dataclass(factory) else {}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    for name, value in given.items():
        if name in parameters:
            number = types.get(name, parameters[name].annotation) in NUMBERS
            if number and isinstance(value, str):
                raise ScenarioError(f"{name} of {what} is {value!r}; it must be a number")
        elif not takes_any:
            raise UnknownName(f"argument of {what}", name, list(parameters))


def types_of(kind: Any, annotated: bool = False) -> Mapping[str, Any]:
    """Types of a dataclass's fields; as written where one is imported for type checkers alone."""
    try:
        return get_type_hints(kind, include_extras=annotated)
    except NameError:
        return {f.name: f.type for f in dataclasses.fields(kind)}


WHOLE = (int, int | None, "int", "int | None")
LARGEST = 10_000_000  # largest whole number among a policy's arguments, such as steps or windows


def check_arguments(policy: object) -> None:
    """Raise ScenarioError where an argument that must be a whole number is none, or too large.

    >>> @dataclasses.dataclass
    ... class Steps:
    ...     steps: int = 5
    >>> check_arguments(Steps(steps=1.5))
    Traceback (most recent call last):
    gangwise.core.errors.ScenarioError: steps of Steps is 1.5; it must be a whole number
    """
    if not dataclasses.is_dataclass(policy):
        return
    types = types_of(type(policy))
    for f in dataclasses.fields(policy):
        value = getattr(policy, f.name, None)
        if not f.init or types[f.name] not in WHOLE or value is None:
            continue
        place = f"{f.name} of {type(policy).__name__}"
        # ``__index__`` is what whole numbers have, NumPy's as well; True has it, too.
        if not hasattr(value, "__index__") or isinstance(value, bool):
            raise ScenarioError(f"{place} is {value!r}; it must be a whole number")
        if abs(int(value)) > LARGEST:
            raise ScenarioError(f"{place} is {value}; it must be at most {LARGEST}")

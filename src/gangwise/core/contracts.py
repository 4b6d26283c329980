"""Contracts between policies, environments, instances and scenarios; the identity of their runs.

A :class:`Policy` meets an :class:`Environment` slot by slot. An :class:`Instance` is one drawn
problem with its workload; it makes environments, a fresh one for every policy, and comparators,
which regret is measured against. A :class:`Scenario` draws instances. A :class:`Family` serves the
tools that work for all problem families alike.

A policy's constructor arguments are its whole configuration: policies are dataclasses whose
``init`` fields are the configuration. Whatever else they hold is state, which ``start`` sets anew.

The identity of a run is all that defines it, and gives its key: scenario, policy, settings and
seed. Two runs of one identity give the same numbers, so a finished one is never played again.

- gangwise's own code is identified by its registered name and a revision, an integer in the
  registry that is raised when it computes other numbers; never by its module.
- A class or function from outside is identified by its name and a digest of the source of its
  module and of all modules that this one imports, directly or not; the standard library, installed
  packages, gangwise and data files are left out. The digest also covers the code in memory, for a
  module may be older than its file.
- A class or function of ``__main__``, a notebook or another function is identified by a digest of
  its code, and of the code and constants that the code refers to.
"""

import ast
import dataclasses
import hashlib
import json
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core import arrays, errors, registry

Timing = Literal["reserve", "react"]
"""When a policy decides: before the slot's arrivals are seen (``reserve``) or after (``react``)."""

ObservationT = TypeVar("ObservationT", contravariant=True)
DecisionT = TypeVar("DecisionT", covariant=True)
FeedbackT = TypeVar("FeedbackT", contravariant=True)


class Policy(Protocol[ObservationT, DecisionT, FeedbackT]):
    """Contract of a policy.

    ``start`` binds it to a problem and makes it forget everything; ``decide`` returns a feasible
    decision; ``learn`` receives the feedback of a slot, which may come late or never and therefore
    carries its slot. :class:`PolicyBase` has defaults to inherit.
    """

    @property
    def timing(self) -> Timing:
        """When it decides; a ``reserve`` policy never sees the slot's arrivals."""

    def start(self, problem: Any, rng: np.random.Generator) -> None: ...

    def decide(self, observation: ObservationT) -> DecisionT:
        """Return a feasible decision for this slot. The next call may reuse the array."""

    def learn(self, feedback: FeedbackT) -> None: ...


class PolicyBase(arrays.Checked):
    """Defaults of a policy: it sees the arrivals before it decides, and learns nothing.

    A subclass is still a dataclass. Do not declare state: ``start`` assigns it, so that it is no
    part of the configuration.

    Attributes
    ----------
    family : str
        The problem family that the policy is for; without one it is for any.
    timing : {"react", "reserve"}
    randomised : bool
        Whether decisions are drawn. Only then may they depend on the names of servers.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Idle(PolicyBase):
    ...     family = "gain_overhead"
    ...
    ...     def start(self, problem, rng):
    ...         self._nothing = np.zeros(problem.shape)
    ...
    ...     def decide(self, observation):
    ...         return self._nothing
    >>> from gangwise import create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1:servers=8").instance(seed=0)
    >>> simulate(instance, Idle(), slots=5, seed=0).mean_reward
    0.0
    """

    family: str
    timing: Timing = "react"
    randomised: bool = False

    def learn(self, feedback: Any) -> None: ...


def configuration(policy: object) -> dict[str, Any]:
    """Constructor arguments of a policy; raises TypeError where it is no dataclass.

    >>> @dataclasses.dataclass
    ... class Half:
    ...     share: float = 0.5
    >>> configuration(Half())
    {'share': 0.5}
    """
    if not dataclasses.is_dataclass(policy):
        raise TypeError(
            f"{type(policy).__name__} is not a dataclass; a policy is one, so that its constructor "
            "arguments are its whole configuration"
        )
    # Only ``init`` fields: whatever else a policy holds is state, which ``start`` sets.
    return {f.name: getattr(policy, f.name) for f in dataclasses.fields(policy) if f.init}


PolicyT = TypeVar("PolicyT")


def clone(policy: PolicyT) -> PolicyT:
    """A fresh policy with the same configuration and no memory."""
    # Through the constructor, not a deep copy, which would take what was learned along.
    return type(policy)(**configuration(policy))


GivenFeedbackT = TypeVar("GivenFeedbackT", covariant=True)


@dataclass(slots=True)
class Outcome(Generic[GivenFeedbackT]):
    """Outcome of a slot: its reward, the policy's feedback, and the environment's metrics."""

    reward: float
    feedback: GivenFeedbackT
    metrics: tuple[float, ...] = ()


class Environment(Protocol):
    @property
    def problem(self) -> Any:
        """What a policy knows at the start; never the hidden truth."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what every outcome measures."""

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        """Begin a run, with separate generators for arrivals and noise."""

    def observe(self, slot: int, timing: Timing) -> Any:
        """What a policy of this timing may see before it decides."""

    def step(self, slot: int, decision: Any) -> Outcome[Any]:
        """Apply a decision; raise InfeasibleDecision when it breaks a constraint."""


@dataclass(frozen=True, eq=False)
class Comparator:
    """Rewards of a comparator on the very same slots as a run.

    ``slots`` [n] are those it was evaluated on, all or a sample, and ``rewards`` [n] what it earned
    there. Their total is proved to be within ``gap`` of the true optimum. ``bounds`` are named
    theoretical bounds on the total regret against it.
    """

    name: str
    slots: npt.NDArray[np.int64]
    rewards: npt.NDArray[np.float64]
    gap: float = 0.0
    bounds: Mapping[str, float] = field(default_factory=dict)


def evenly_spaced(slots: int, sample: int | None) -> npt.NDArray[np.int64]:
    """Slots that a comparator is evaluated on: all, or ``sample`` of them, ends included.

    >>> evenly_spaced(10, 4), evenly_spaced(3, None)
    (array([0, 3, 6, 9]), array([0, 1, 2]))
    """
    # Not clamped to 1: whoever asks for none should hear that regret needs some.
    if sample is not None and sample < 1:
        raise errors.ScenarioError(f"a sample of {sample} slots was asked for; it has at least one")
    if sample is None or sample >= slots:
        return np.arange(slots)
    return np.unique(np.linspace(0, slots - 1, sample).round().astype(np.int64))


class Instance(Protocol):
    """One drawn problem with its workload."""

    @property
    def family(self) -> str: ...

    @property
    def problem(self) -> Any: ...

    @property
    def comparators(self) -> tuple[str, ...]:
        """Comparators to evaluate unless others are named: primary first, strongest last."""

    def environment(self) -> Environment: ...

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """Evaluate a comparator on the slots of the run with this seed, or ``sample`` of them."""


class InstanceBase:
    """Comparators of an instance: those that are registered for its family.

    ``comparators`` are evaluated by default: the primary one first, the strongest last.
    """

    family: str
    comparators: tuple[str, ...] = ()

    def comparator(self, name: str, slots: int, seed: int, sample: int | None = None) -> Comparator:
        """Evaluate a registered comparator on the slots of the run with this seed.

        Raises UnknownName for one that is not registered for the family.
        """
        # Looked up late: a family's comparators may come from
        # another package, which is not imported yet.
        registered = registry.comparators(self.family)
        # Of this family or of any: those of other families would not know the instance.
        if name not in registered:
            raise errors.UnknownName("comparator", name, list(registered))
        entry = registered[name]
        # The preset tells apart names that share one function,
        # such as realised and expected rewards.
        evaluated: Comparator = entry.load()(self, slots, seed, sample, **entry.preset)
        return evaluated


class Scenario(Protocol):
    """Contract of a generator of instances: the same seed draws the same instance."""

    @property
    def name(self) -> str:
        """A versioned name, so that a published number stays bound to a behaviour."""

    @property
    def family(self) -> str: ...

    @property
    def slots(self) -> int:
        """How many slots a run has unless told otherwise."""

    def instance(self, seed: int) -> Instance: ...

    def describe(self) -> dict[str, Any]:
        """Parameters and distributions, for reports and result stores."""


class Family(Protocol):
    @property
    def name(self) -> str: ...

    def fuzz(self, rng: np.random.Generator) -> Instance:
        """Draw a small instance with awkward corners, for checking policies."""

    def relabel_servers(self, instance: Instance, order: npt.NDArray[np.int64]) -> Instance:
        """The same instance with server ``order[i]`` now called ``i``."""

    def relabel_decision(
        self, instance: Instance, order: npt.NDArray[np.int64], decision: Any
    ) -> npt.NDArray[np.float64]:
        """A decision for ``instance`` as it reads after relabelling."""


BUILT_IN = "gangwise"


def key_of(identity: Mapping[str, Any]) -> str:
    """Content hash of an identity, 24 hexadecimal digits.

    >>> key_of({"seed": 1, "slots": 10}) == key_of({"slots": 10, "seed": 1})
    True
    """
    text = json.dumps(identity, sort_keys=True, ensure_ascii=True)
    # 96 bits: a folder of many millions of runs has no two alike by chance.
    return hashlib.sha256(text.encode()).hexdigest()[:24]


PATHS = ("folder", "path")
"""Settings that say where the files of a trace are; their digests define the run instead."""


def identify(thing: Any, kind: registry.Kind | None = None) -> str:
    """A class or function's name with its revision or digest; ``kind`` is its registry.

    Raises ScenarioError for a lambda, and whatever else has no name.

    >>> from gangwise.papers.gain_overhead.policies import DRF
    >>> identify(DRF, "policy"), identify(sorted), identify(Path)
    ('drf r3', 'sorted', 'pathlib.Path')
    >>> class Mine:
    ...     share = 0.5
    >>> name, digest = identify(Mine).split()
    >>> Mine.share = 0.6
    >>> name, identify(Mine).split()[1] == digest
    ('gangwise.core.contracts.Mine', False)
    """
    module = str(getattr(thing, "__module__", None) or "")
    name = str(getattr(thing, "__qualname__", ""))
    if not name or name.endswith("<lambda>"):
        raise _nameless(thing)
    lasting = module != "__main__" and _found(module, name) is thing
    if module in ("builtins", ""):
        return name
    # Built-in code is identified by its revision, which changes when its behaviour does.
    if lasting and _top(module) == BUILT_IN:
        entry = registry.first_entry(kind, f"{module}:{name}") if kind else None
        called = name if entry is None or entry.name == registry.ANY else entry.name
        return f"{called} r{entry.revision if entry else 1}"
    if lasting and _top(module) in sys.stdlib_module_names:
        return f"{module}.{name}"
    parts = list(_parts_of_code(thing, module, lasting))
    file = registry.source_file(module) if lasting else None
    if file is not None:
        # Of an installed package, that package alone; otherwise all that is not installed.
        parts += _parts_of_modules(module, _top(module) if _installed(file) else "")
    return f"{module}.{name} {_digest(parts)}"


def plain(value: Any) -> Any:
    """JSON form of a value, the same in every process; classes and functions are identified.

    Raises ScenarioError for what has no lasting name.

    >>> plain({"alpha": np.float64(0.5), "sizes": (1, 2)})
    {'alpha': 0.5, 'sizes': [1, 2]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {k: plain(item) for k, item in configuration(value).items()}
        kind = type(value)
        # Revision 1 goes without saying: only a raised one changes the identity.
        return {"type": identify(kind).removesuffix(" r1"), **fields}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return identify(value)
    raise _nameless(value)


def _nameless(thing: Any) -> errors.ScenarioError:
    return errors.ScenarioError(
        f"{thing!r} cannot be part of what defines a run: it has no lasting name; use numbers, "
        "text, dataclasses of them, or functions with a name"
    )


def _found(module: str, name: str) -> Any:
    thing: Any = sys.modules.get(module)
    for part in name.split("."):
        thing = getattr(thing, part, None)
    return thing


# Modules


def _parts_of_modules(module: str, only: str) -> Iterator[bytes]:
    """Sources of a module and of those of its own that it imports, sorted by name."""
    parts: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name in parts or _top(name) == BUILT_IN or (only and _top(name) != only):
            continue
        file = registry.source_file(name)
        if file is None or (not only and _installed(file)):
            continue
        parts[name] = file.read_bytes()
        if file.suffix == ".py":
            waiting += _imports(name, file.name == "__init__.py", parts[name])
    # The order in which modules were found depends on imports; sorted by name it does not.
    for name in sorted(parts):
        yield name.encode()
        yield parts[name]


@lru_cache(maxsize=1000)
def _imports(module: str, is_package: bool, source: bytes) -> tuple[str, ...]:
    """Modules that a source may import; names that turn out to be none are left out later."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    names = [".".join(package)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # ``from a import b`` may name a module a.b or a value in a: both are tried.
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    return tuple(filter(None, names))


@cache
def _library() -> tuple[Path, ...]:
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({Path(sysconfig.get_path(name)).resolve() for name in names})


def _installed(file: Path) -> bool:
    path = file.resolve()
    packages = ("site-packages", "dist-packages")
    return any(path.is_relative_to(p) for p in _library()) or any(p in path.parts for p in packages)


def _top(module: str) -> str:
    return module.partition(".")[0]


# Code


def _parts_of_code(thing: Any, module: str, lasting: bool) -> Iterator[bytes]:
    """Code of a class or function and of what it refers to, in a lasting order.

    Lists and the like in modules that last are left out: they may be filled while they are used.
    """
    visited: set[int] = set()

    def walk(code: Any) -> Iterator[bytes]:
        if isinstance(code, staticmethod | classmethod):
            code = code.__func__
        code = getattr(code, "py_func", code)  # compiled by numba
        if isinstance(code, property):
            for part in (code.fget, code.fset, code.fdel):
                yield from walk(part)
        elif isinstance(code, ModuleType):
            yield code.__name__.encode()
            if not lasting and _own(code.__name__):
                yield from _parts_of_modules(code.__name__, "")
        elif isinstance(code, type | FunctionType):
            yield f"{code.__module__}.{code.__qualname__}".encode()
            if id(code) in visited or (code is not thing and not _own(code.__module__, module)):
                return
            visited.add(id(code))
            yield from (
                _of_class(code, walk) if isinstance(code, type) else _of_function(code, walk)
            )
            if not lasting and code.__module__ != module:
                yield from _parts_of_modules(code.__module__, "")
        elif code is None or isinstance(code, bool | int | float | complex | str | bytes):
            yield repr(code).encode()
        elif isinstance(code, tuple):
            for item in code:
                yield from walk(item)
        elif isinstance(code, frozenset):
            yield repr(sorted(map(repr, code))).encode()
        elif lasting or not isinstance(code, list | set | Mapping | np.ndarray | np.generic):
            yield f"{type(code).__module__}.{type(code).__qualname__}".encode()
        elif isinstance(code, Mapping):
            for key in sorted(code, key=repr):
                yield repr(key).encode()
                yield from walk(code[key])
        elif isinstance(code, np.ndarray | np.generic):
            yield repr((code.dtype.str, code.shape)).encode() + code.tobytes()
        else:
            yield from walk(tuple(sorted(code, key=repr) if isinstance(code, set) else code))

    yield from walk(thing)


def _own(module: str, own: str = "") -> bool:
    if module == own:
        return True
    if _top(module) in (BUILT_IN, "builtins", "", *sys.stdlib_module_names):
        return False
    file = registry.source_file(module)
    return file is None or not _installed(file)


SILENT = {
    *("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__"),
    *("__static_attributes__", "__annotations__", "__annotate__", "__annotate_func__"),
    *("__annotations_cache__", "__abstractmethods__", "_abc_impl", "__parameters__"),
    *("__orig_bases__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"),
    *("__protocol_attrs__", "__hash__", "__slotnames__", "__subclasshook__"),
    *("_is_protocol", "_is_runtime_protocol"),
}
"""Parts of a class that its source does not say, or that are digested elsewhere."""

MADE = {"__init__", "__repr__", "__eq__", "__replace__", "__setattr__", "__delattr__"}
"""Methods that dataclasses generates from the fields."""


def _of_class(each: type, walk: Any) -> Iterator[bytes]:
    for base in each.__bases__:
        yield from walk(base)
    if dataclasses.is_dataclass(each):
        for field in dataclasses.fields(each):
            yield repr((field.name, field.init)).encode()
            # By type: in a worker, a class of __main__ has another MISSING than dataclasses.
            factory = field.default_factory
            missing = isinstance(factory, type(dataclasses.MISSING))
            yield from walk(field.default if missing else factory)
    for name, value in sorted(vars(each).items()):
        code = getattr(getattr(value, "__wrapped__", value), "__code__", None)
        generated = isinstance(code, CodeType) and code.co_filename.startswith("<")
        generated = generated and name in MADE and dataclasses.is_dataclass(each)
        if name not in SILENT and not generated:
            yield name.encode()
            yield from walk(value)


def _of_function(each: FunctionType, walk: Any) -> Iterator[bytes]:
    names: set[str] = set()
    yield from _of_code(each.__code__, names)
    yield from walk(each.__defaults__)
    yield from walk(each.__kwdefaults__)
    for name, cell in zip(each.__code__.co_freevars, each.__closure__ or ()):
        yield name.encode()
        try:
            yield from walk(cell.cell_contents)
        except ValueError:  # not bound yet
            continue
    for name in sorted(names & each.__globals__.keys()):
        yield name.encode()
        yield from walk(each.__globals__[name])


def _of_code(code: CodeType, names: set[str]) -> Iterator[bytes]:
    names.update(code.co_names)
    # Bytecode and constants, not the text: a comment or another line break is no other function.
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _of_code(constant, names)
        elif isinstance(constant, frozenset):
            yield repr(sorted(map(repr, constant))).encode()
        else:
            yield repr(constant).encode()


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]

"""The identity of a run: all that defines it, and the key made of it.

An identity names scenario, policy, settings and seed. Two runs of one identity give the same
numbers, so a finished one is never played again.

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
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from gangwise.core import contracts, errors, registry

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
    ('gangwise.core.identity.Mine', False)
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
        fields = {k: plain(item) for k, item in contracts.configuration(value).items()}
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

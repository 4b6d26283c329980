"""Isolation: a policy or scheduler in a process of its own, which is told what it may know.

What is played beside a policy, in the same process, lies within its reach: the arrivals to come are
on the stack, in the memory that an array is a view of, and behind the seed of its generator. Here
the class is imported and called in another process. That one gets, over a pipe, the arguments of
the contract (problem, observations, feedback) and nothing else; a generator comes with its state
and without the seed that it was spawned from. What it answers is read as plain values, never as
pickles: numbers, text, lists, arrays of numbers, and the dataclasses that the caller expects.

It is no sandbox: the process has the rights of the user, files and network included, and is not
kept from guessing a small seed by trying all of them.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO, Any, ClassVar

import numpy as np

from gangwise.core.contracts import Timing, configuration
from gangwise.core.errors import GangwiseError, ScenarioError
from gangwise.core.identity import identify
from gangwise.core.registry import Kind, create, is_outside, label_of

PATIENCE = 300.0
"""Seconds that an answer may take; the first one may have to compile."""

_SIZE = struct.Struct("<Q")
_START = "from gangwise.core.isolation import serve; serve()"


class IsolatedError(GangwiseError):
    """What runs in a process of its own failed, in its own words, or does not answer."""


# ------------------------------------------------------------------------------------ the caller


class IsolatedProcess:
    """A process that makes objects of one class and calls their methods.

    Parameters
    ----------
    kind : {"policy", "scheduler"}
    specification : str
        ``file.py:Class``, ``package.module:Class`` or a registered name, with arguments.
    arguments : mapping
        More arguments.
    types : tuple of type
        Dataclasses that may be in its answers.
    watch : bool
        Whether a decision that changes what it was shown is an error.
    """

    def __init__(
        self,
        kind: Kind,
        specification: str,
        arguments: Mapping[str, Any],
        types: tuple[type, ...] = (),
        watch: bool = False,
    ):
        self.name = label_of(specification)
        self._types = {each.__name__: each for each in types}
        self._lock = threading.RLock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for the process that asks
        )
        weakref.finalize(self, _end, self._process)
        opening = (list(sys.path), kind, specification, dict(arguments), watch)
        self.about: dict[str, Any] = self._asked(opening)

    @classmethod
    def shared(cls, owner: Isolated) -> IsolatedProcess:
        """The one of all objects of a class with the same arguments."""
        key = (type(owner), owner.specification, repr(owner.arguments), owner.watch)
        found = _shared.get(key)
        if found is None:
            found = _shared[key] = owner.another_process()
        return found

    def new(self, state: bytes | None = None) -> int:
        """A fresh object, or one with a state that :meth:`save` gave; what calls name it by."""
        return int(self._asked((_NEW, 0, (state,))))

    def save(self, number: int) -> bytes:
        """The state of an object, as that process pickles it."""
        return base64.b64decode(self._asked((_SAVE, number, ())))

    def forget(self, number: int) -> None:
        """An object is not needed any more."""
        with suppress(IsolatedError):
            self._asked((_FORGET, number, ()))

    def call(self, number: int, method: str, *arguments: Any) -> Any:
        """Call a method of an object.

        Raises
        ------
        IsolatedError
            When it raises, does not answer, or answers what is no plain value.
        """
        return self._asked((method, number, arguments))

    def apply(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``function(object, *arguments)`` there; the function is named, not sent."""
        return self._asked((function, self.new(), arguments))

    def _asked(self, message: tuple[Any, ...]) -> Any:
        with self._lock:
            self._send(message)
            return self._answer()

    def _send(self, message: tuple[Any, ...]) -> None:
        try:
            data = pickle.dumps(message)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise IsolatedError(
                f"{self.name}: what it is to be told cannot go to another process: {error}"
            ) from error
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(_SIZE.pack(len(data)) + data)
            pipe.flush()
        except OSError:
            raise self._gone() from None

    def _answer(self) -> Any:
        until = time.monotonic() + PATIENCE
        (size,) = _SIZE.unpack(self._read(_SIZE.size, until))
        told = json.loads(self._read(size, until), object_hook=self._decoded)
        if "error" in told:
            error = IsolatedError(f"{self.name}: {told['error']}")
            error.add_note(str(told["traceback"]))
            raise error
        return _frozen(told["value"])

    def _read(self, size: int, until: float) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        parts: list[bytes] = []
        while size:
            ready, _, _ = select.select([pipe], [], [], max(until - time.monotonic(), 0.0))
            if not ready:
                self._process.kill()
                raise IsolatedError(f"{self.name} has not answered for {PATIENCE:g} s")
            part = os.read(pipe.fileno(), min(size, 1 << 20))
            if not part:
                raise self._gone()
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _gone(self) -> IsolatedError:
        code = self._process.wait()
        return IsolatedError(f"{self.name}: its process has ended, with code {code}")

    def _decoded(self, value: dict[str, Any]) -> Any:
        if "array" in value:
            kind, shape, data = value["array"]
            if np.dtype(kind).kind not in "biuf":
                raise IsolatedError(f"{self.name} answers an array of {kind}, not of real numbers")
            return np.frombuffer(base64.b64decode(data), kind).reshape(shape).copy()
        if "is" in value:
            name, fields = value["is"]
            if name not in self._types:
                raise IsolatedError(f"{self.name} answers a {name}, which is not asked for")
            return self._types[name](**{key: _frozen(each) for key, each in fields.items()})
        return value


_shared: weakref.WeakValueDictionary[tuple[Any, ...], IsolatedProcess] = (
    weakref.WeakValueDictionary()
)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not sent yet has no reader any more
                pipe.close()
    process.kill()
    process.wait()


def _frozen(value: Any) -> Any:
    """Lists of JSON as tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


NOBODYS = 2**100
"""A seed that is no run's."""

SPAWNED = 8
"""How often a generator may be split over there."""


@dataclass(frozen=True)
class Draws:
    """What a generator draws, and those that are spawned from it, without the seed of all."""

    kind: str
    state: Mapping[str, Any]
    spawned: tuple[Draws, ...] = ()

    @classmethod
    def of(cls, rng: np.random.Generator, spawned: int = SPAWNED) -> Draws:
        """Of a generator, which is not to be used any more."""
        bits = rng.bit_generator
        others = rng.spawn(spawned) if spawned else []
        return cls(type(bits).__name__, bits.state, tuple(cls.of(each, 0) for each in others))

    def generator(self) -> Seedless:
        """A generator that draws the same.

        Examples
        --------
        >>> first, second = (np.random.default_rng(7) for _ in range(2))
        >>> other = Draws.of(first).generator()
        >>> bool(other.random() == second.random()), other.bit_generator.seed_seq.entropy == NOBODYS
        (True, True)
        >>> bool(other.spawn(2)[1].random() == second.spawn(2)[1].random())
        True
        """
        bits = getattr(np.random, self.kind)(NOBODYS)
        bits.state = self.state
        made = Seedless(bits)
        made.spawned = [each.generator() for each in self.spawned]
        return made


class Seedless(np.random.Generator):
    """A generator that was split before it came, and does not know what it was spawned from."""

    spawned: list[Seedless]

    def spawn(self, n_children: int) -> list[np.random.Generator]:
        """Some of those that it was split into."""
        if n_children > len(self.spawned):
            raise ScenarioError(f"in a process of its own a generator is split {SPAWNED} times")
        taken, self.spawned = self.spawned[:n_children], self.spawned[n_children:]
        return list(taken)

    def __reduce__(self) -> tuple[Any, ...]:
        bits = self.bit_generator
        others = tuple(
            Draws(type(s.bit_generator).__name__, s.bit_generator.state) for s in self.spawned
        )
        return _generator, (Draws(type(bits).__name__, bits.state, others),)


def _generator(draws: Draws) -> Seedless:
    return draws.generator()


@dataclass
class Isolated:
    """What stands in for an object that lives in another process.

    Its configuration says which: where the class is, its arguments, and a digest of its source, so
    that runs of an edited class are played again.

    Parameters
    ----------
    specification : str
    arguments : mapping
    code : str
        Identity of the class, as :func:`gangwise.core.identity.identify` has it there.
    watch : bool
        Whether changing what it is shown is an error.
    """

    kind: ClassVar[Kind]
    types: ClassVar[tuple[type, ...]] = ()
    specification: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    watch: bool = False

    def __post_init__(self) -> None:
        self._state: bytes | None = None
        self._object: tuple[IsolatedProcess, int] | None = None
        if not self.code:
            self.code = str(self.about["code"])

    @classmethod
    def of(cls, given: Any, watch: bool = False) -> Any:
        """By what it is called, or an object whose class has a place that can be imported from.

        Raises
        ------
        ScenarioError
            For an object of ``__main__``, a notebook or a function.
        """
        if isinstance(given, str):
            return cls(given, watch=watch)
        kind = type(given)
        if kind.__module__ == "__main__" or "." in kind.__qualname__:
            raise ScenarioError(
                f"{kind.__qualname__} cannot be isolated: another process cannot import it; put "
                "the class into a file of its own and name it as file.py:Class"
            )
        return cls(f"{kind.__module__}:{kind.__qualname__}", configuration(given), watch=watch)

    def another_process(self) -> IsolatedProcess:
        """A process of this class, with no object of another in it."""
        return IsolatedProcess(
            self.kind, self.specification, self.arguments, self.types, self.watch
        )

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a method of the object over there."""
        process, number = self._there()
        return process.call(number, method, *arguments)

    def _there(self) -> tuple[IsolatedProcess, int]:
        """Process and number of the object, made when it is needed."""
        if self._object is None:
            process = IsolatedProcess.shared(self)
            self._object = process, (number := process.new(self._state))
            weakref.finalize(self, process.forget, number)
        return self._object

    @property
    def about(self) -> dict[str, Any]:
        """What the process says of the class."""
        return self._there()[0].about

    def __getstate__(self) -> dict[str, Any]:
        """Its state as that process pickles it, opaque here."""
        state = self._state
        if self._object is not None:
            state = self._object[0].save(self._object[1])
        return {**configuration(self), "_state": state, "_object": None}

    def _asked(self, name: str) -> Any:
        """An attribute of the object; AttributeError where it has none."""
        found = self.about["attributes"].get(name)
        if found is None:
            raise AttributeError(f"{self.specification} has no attribute {name!r}")
        return found


@dataclass
class IsolatedPolicy(Isolated):
    """A policy in a process of its own: it is told the problem, observations and feedback.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1:servers=8").instance(seed=0)
    >>> alone = simulate(instance, IsolatedPolicy("drf"), slots=5, seed=0)
    >>> alone.mean_reward == simulate(instance, create_policy("drf"), slots=5, seed=0).mean_reward
    True
    """

    kind = "policy"

    @property
    def family(self) -> str:
        """Of the policy."""
        return str(self._asked("family"))

    @property
    def timing(self) -> Timing:
        """Of the policy."""
        timing: Timing = self._asked("timing")
        return timing

    @property
    def randomised(self) -> bool:
        """Of the policy."""
        return bool(self.about["attributes"].get("randomised"))

    def start(self, problem: Any, rng: np.random.Generator) -> None:
        """Bind it to a problem."""
        self.call("start", problem, Draws.of(rng))

    def decide(self, observation: Any) -> Any:
        """Its decision."""
        return self.call("decide", observation)

    def learn(self, feedback: Any) -> None:
        """What it is taught."""
        self.call("learn", feedback)


def apart(kind: type[Isolated], what: Kind, given: Any, isolated: bool) -> Any:
    """What is named, or given; if ``isolated``, and not gangwise's own, in a process of its own."""
    if isinstance(given, str):
        return kind.of(given) if isolated and is_outside(given) else create(what, given)
    foreign = not type(given).__module__.startswith("gangwise.") and not isinstance(given, type)
    return kind.of(given) if isolated and foreign else given


# ------------------------------------------------------------------------------------- the other


_NEW, _SAVE, _FORGET = "(new)", "(save)", "(forget)"
ATTRIBUTES = ("family", "timing", "randomised", "learns", "look")
"""What is asked of the object at once, where it has it."""


def serve() -> None:
    """Make objects and answer calls, until the pipe is closed. What is printed goes to stderr."""
    reading, writing = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    held: _Held | None = None
    while (message := _received(reading)) is not None:
        try:
            if held is None:
                path, *opening = pickle.loads(message)
                sys.path[:] = path
                held = _Held(*opening)
                told = held.about()
            else:
                told = held.called(*pickle.loads(message))
            answer: dict[str, Any] = {"value": told}
        except (Exception, SystemExit) as error:  # whatever the class does
            said = f"{type(error).__name__}: {error}"
            answer = {"error": said, "traceback": traceback.format_exc()}
        try:
            data = json.dumps(answer, default=_encoded).encode()
        except (TypeError, ValueError) as error:
            data = json.dumps({"error": str(error), "traceback": ""}).encode()
        writing.write(_SIZE.pack(len(data)) + data)
        writing.flush()


@dataclass
class _Held:
    """The objects of a process."""

    kind: Kind
    specification: str
    arguments: dict[str, Any]
    watch: bool
    objects: dict[int, Any] = field(default_factory=dict)
    count: int = 0

    def about(self) -> dict[str, Any]:
        made = create(self.kind, self.specification, **self.arguments)
        configuration(made)  # raises for what is no dataclass
        has = {name: getattr(made, name, None) for name in ATTRIBUTES}
        methods = [name for name in dir(type(made)) if not name.startswith("_")]
        return {"code": identify(type(made), self.kind), "attributes": has, "methods": methods}

    def called(self, method: Any, number: int, arguments: tuple[Any, ...]) -> Any:
        if method == _NEW:
            self.count += 1
            (state,) = arguments
            self.objects[self.count] = (
                create(self.kind, self.specification, **self.arguments)
                if state is None
                else pickle.loads(state)
            )
            return self.count
        if method == _FORGET:
            return self.objects.pop(number, None) and None
        held = self.objects[number]
        if method == _SAVE:
            return base64.b64encode(pickle.dumps(held)).decode()
        if not isinstance(method, str):
            return method(held, *arguments)
        arguments = tuple(a.generator() if isinstance(a, Draws) else a for a in arguments)
        watch = self.watch and method in ("decide", "place")
        shown = pickle.dumps(arguments) if watch else b""
        told = getattr(held, method)(*arguments)
        if watch and pickle.dumps(arguments) != shown:
            raise ScenarioError(f"{method}() changed what it was shown")
        return told


def _received(pipe: IO[bytes]) -> bytes | None:
    head = pipe.read(_SIZE.size)
    return pipe.read(*_SIZE.unpack(head)) if len(head) == _SIZE.size else None


def _encoded(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        data = base64.b64encode(np.ascontiguousarray(value).tobytes()).decode()
        return {"array": [value.dtype.str, value.shape, data]}
    if isinstance(value, np.generic):
        return value.item()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {"is": [type(value).__name__, fields]}
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"the answer holds a {type(value).__name__}; only plain values come back")

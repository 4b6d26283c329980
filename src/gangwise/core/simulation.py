"""The slot loop, its random streams, and the run that comes out of it.

::

    Environment ──observation──► Policy.decide ──decision──► Environment ──feedback──► Policy.learn

A simulation is a plain object that pickles: saved between two slots and continued later, it gives
the same bytes as without a stop. Instance, arrivals, noise and policy draw from separate streams of
one seed, so that nothing a policy draws changes the arrivals or the noise that it and its rivals
meet.

A *checkpoint* is the state of an unfinished run. It holds objects of any class, so it is a pickle,
and unpickling a file runs what its writer put into it. Therefore each carries an HMAC-SHA256
over all of it, made with a key that only this user can read. A file without a valid one is refused
before it is unpickled. Its lines::

    gangwise-checkpoint-3
    {"hmac": …, "key": first digits of the digest of the key}
    {"version": …, "run": what defines the run, "size": …}
    pickle
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import secrets
import signal
import stat
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise import __version__
from gangwise.core import arrays, registry, settings, terminal
from gangwise.core.contracts import Comparator, Environment, Instance, Policy, clone, configuration
from gangwise.core.errors import InfeasibleDecision, ScenarioError, StoreError
from gangwise.core.files import Tree, digest_of, read_whole, write_side_file, write_whole
from gangwise.core.identity import identify


@dataclass(frozen=True)
class Streams:
    instance: np.random.Generator
    workload: np.random.Generator
    noise: np.random.Generator
    policy: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> Streams:
        """Spawn the streams of a seed; raises ScenarioError for what is not 0, 1, 2, …

        >>> a, b = Streams.of(7), Streams.of(7)
        >>> _ = a.policy.random(1000)
        >>> bool((a.workload.random(3) == b.workload.random(3)).all())
        True
        """
        if not hasattr(seed, "__index__") or seed < 0:
            raise ScenarioError(f"seed is {seed!r}; it must be a whole number, zero or larger")
        # The order is part of every published number: a further stream may only be added behind.
        return cls(*(np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)))


@dataclass(frozen=True, eq=False, repr=False)
class Run(arrays.Tabular):
    """One policy on one instance; as a table, a row for each slot.

    ``rewards`` and each of ``metrics`` (what the environment measured) have shape [T], and so have
    ``nanoseconds``, the time that the policy took to decide and learn. ``draw`` returns the
    instance, or draws it again.
    """

    policy: str
    configuration: Mapping[str, Any]
    seed: int
    draw: Callable[[], Instance]
    rewards: arrays.Floats
    metrics: Mapping[str, arrays.Floats]
    nanoseconds: npt.NDArray[np.int64]

    @cached_property
    def instance(self) -> Instance:
        return self.draw()

    @property
    def slots(self) -> int:
        return int(self.rewards.size)

    @property
    def mean_reward(self) -> float:
        return float(self.rewards.mean())

    @property
    def us_per_slot(self) -> float:
        """Microseconds that the policy takes to decide and learn, mean over the slots.

        Compiling and loading kernels does not count: see :func:`warm_up`.
        """
        return float(self.nanoseconds.mean()) / 1e3

    def columns(self) -> dict[str, Any]:
        return {"slot": np.arange(self.slots), "reward": self.rewards, **self.metrics}

    def __repr__(self) -> str:
        earned = f"mean reward {self.mean_reward:.6g}"
        return f"Run({self.policy}, seed {self.seed}, {self.slots} slots, {earned})"

    def summary(self) -> dict[str, Any]:
        names = ("policy", "seed", "slots", "mean_reward", "us_per_slot")
        means = {name: float(column.mean()) for name, column in self.metrics.items()}
        return {name: getattr(self, name) for name in names} | means

    def comparator(self, versus: str | Comparator, sample: int | None = None) -> Comparator:
        if isinstance(versus, Comparator):
            return versus
        return self.instance.comparator(versus, self.slots, self.seed, sample)

    def regret(self, versus: str | Comparator = "best_fixed", sample: int | None = None) -> float:
        """Comparator's total reward minus the policy's, signed and never clamped.

        Where the comparator was evaluated on a sample of the slots, the mean difference there is
        scaled to all slots.
        """
        comparator = self.comparator(versus, sample)
        # On the comparator's slots: a difference of paired rewards varies far less than either.
        difference = comparator.rewards - self.rewards[comparator.slots]
        return float(difference.mean() * self.slots)

    def share_of(self, versus: str | Comparator) -> float:
        """The policy's share of the comparator's reward, on the comparator's slots."""
        comparator = self.comparator(versus)
        total = float(comparator.rewards.sum())
        return float(self.rewards[comparator.slots].sum()) / total if total else float("nan")


class Interrupted(terminal.Stopped):
    """A simulation was stopped between two slots; ``checkpoint`` says where it was saved."""

    def __init__(self, slot: int, checkpoint: Path | None, number: int = signal.SIGINT):
        self.slot, self.checkpoint = slot, checkpoint
        saved = f"; saved to {checkpoint}" if checkpoint else ""
        super().__init__(f"stopped after slot {slot}{saved}", number)


@dataclass
class Simulation:
    """One policy on one instance, as far as it has been played.

    The policy is bound to the instance's problem and forgets whatever it knew. ``identity`` is all
    that defines the run and is kept in its checkpoints: see
    :meth:`gangwise.study.runs.RunSpec.identity`.
    """

    instance: Instance
    policy: Policy[Any, Any, Any]
    slots: int
    seed: int
    name: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)
    slot: int = field(init=False, default=0)
    environment: Environment = field(init=False)
    rewards: npt.NDArray[np.float64] = field(init=False)
    metrics: npt.NDArray[np.float64] = field(init=False)
    nanoseconds: npt.NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        if not hasattr(self.slots, "__index__") or self.slots < 1:
            raise ScenarioError(f"slots is {self.slots!r}; give a whole number, at least 1")
        if isinstance(self.policy, type):
            raise ScenarioError(
                f"{self.policy.__name__} is a class; give a policy: {self.policy.__name__}()"
            )
        registry.check_arguments(self.policy)
        self.name = self.name or type(self.policy).__name__
        family = getattr(self.policy, "family", self.instance.family)
        if family != self.instance.family:
            raise ScenarioError(
                f"policy {self.name!r} is for the family {family}; the instance is of the family "
                f"{self.instance.family}"
            )
        streams = Streams.of(self.seed)
        self.environment = self.instance.environment()
        self.environment.start(streams.workload, streams.noise)
        self.policy.start(self.environment.problem, streams.policy)
        # Eight bytes a number: reward, time and metrics, of the run and of its copy as a result.
        needed = 16.0 * int(self.slots) * (2 + len(self.environment.metrics))
        settings.require_memory(needed, f"a run of {self.slots} slots", "fewer slots")
        self.rewards = np.zeros(self.slots)
        self.metrics = np.zeros((self.slots, len(self.environment.metrics)))
        self.nanoseconds = np.zeros(self.slots, dtype=np.int64)

    def step(self) -> None:
        t, clock = self.slot, time.perf_counter_ns
        observation = self.environment.observe(t, self.policy.timing)
        begin = clock()
        decision = self.policy.decide(observation)
        decided = clock()
        # Looking at the kind costs less than a conversion, and nearly every decision passes here.
        if getattr(getattr(decision, "dtype", None), "kind", "") not in ("f", "i", "b", "u"):
            self._check_kind(decision)
        outcome = self.environment.step(t, decision)
        back = clock()
        self.policy.learn(outcome.feedback)
        # The policy's time alone: deciding and learning, without the environment between them.
        self.nanoseconds[t] = decided - begin + clock() - back
        self.rewards[t] = outcome.reward
        self.metrics[t] = outcome.metrics
        self.slot = t + 1

    def _check_kind(self, decision: Any) -> None:
        """Refuse a decision of text, of complex numbers, or of nothing."""
        kind = np.asarray(decision).dtype
        if kind.kind in "cSU" or decision is None:
            raise InfeasibleDecision(
                f"slot {self.slot}: {self.name} decided "
                f"{'nothing' if decision is None else f'numbers of type {kind}'}; a decision is "
                "an array of real numbers"
            )

    def run(
        self,
        checkpoint: Path | None = None,
        every: float = 30.0,
        progress: Callable[[int], None] | None = None,
    ) -> Run:
        """Play the remaining slots.

        The state is saved to ``checkpoint`` every ``every`` seconds and when interrupted.
        ``progress`` is called with the number of slots played, about ten times a second.

        Raises Interrupted on Ctrl-C or SIGTERM, after the slot in hand is finished and the
        checkpoint is written.
        """
        clock = time.monotonic
        warm_up(self.instance, self.policy, self.slots, self.seed)
        saved = reported = clock()
        with terminal.requests_to_stop() as stop:
            while self.slot < self.slots:
                self.step()
                if stop.is_set():
                    if checkpoint is not None:
                        self.save(checkpoint)
                    raise Interrupted(self.slot, checkpoint, stop.signal)
                # Between two slots only: a state saved within one could not be gone on with.
                if self.slot & 15 == 0:  # looking at the clock costs as much as a small slot
                    at = clock()
                    if progress is not None and at - reported > 0.1:
                        reported = at
                        progress(self.slot)
                    if checkpoint is not None and at - saved > every:
                        saved = at
                        self.save(checkpoint)
        if progress is not None:
            progress(self.slot)
        return self.result()

    def result(self) -> Run:
        n, names = self.slot, self.environment.metrics
        metrics = {name: self.metrics[:n, i].copy() for i, name in enumerate(names)}
        rewards, nanoseconds = self.rewards[:n].copy(), self.nanoseconds[:n].copy()
        about = (self.name, configuration(self.policy), self.seed, lambda: self.instance)
        return Run(*about, rewards, metrics, nanoseconds)

    def save(self, path: Path) -> None:
        """Write the state to a file, all or nothing, signed with the user's key."""
        policy = identify(type(self.policy), "policy")
        write_checkpoint(Path(path), self, {"policy": policy, **self.identity})

    @classmethod
    def load(cls, path: Path, identity: Mapping[str, Any] | None = None) -> Simulation:
        """Read a simulation that this user saved.

        Raises StoreError when it is not a whole checkpoint of this user, of this version and, if
        ``identity`` is given, of this run; or when the policy was edited since.
        """
        simulation, run = read_checkpoint(Path(path), identity)
        if not isinstance(simulation, cls):
            raise StoreError(
                f"{path} is not the checkpoint of a simulation; delete it to start afresh"
            )
        # The pickle has the state, the class comes from today's code: both must belong together.
        if run["policy"] != (current := identify(type(simulation.policy), "policy")):
            raise StoreError(
                f"{path}: {simulation.name} was edited since ({run['policy']} is now {current}); "
                "delete it to start afresh"
            )
        return simulation


WARM_SLOTS, WARM_SECONDS = 16, 0.5
"""Limits of the warm-up, which is thrown away: slots and seconds, but two slots at least."""

_warm: set[tuple[object, ...]] = set()


def warm_up(instance: Instance, policy: Policy[Any, Any, Any], slots: int, seed: int) -> None:
    """Have kernels compiled or loaded before the first slot that is timed.

    A clone plays a few slots that are thrown away, once per process and configuration. A kernel
    that is first used later in a run is loaded then.
    """
    key = (type(policy), repr(configuration(policy)), type(instance))
    if key in _warm:
        return
    _warm.add(key)
    # A clone draws and learns apart from the run, which therefore begins as if nothing had been
    # played.
    thrown_away = Simulation(instance, clone(policy), min(slots, WARM_SLOTS), seed)
    until = time.monotonic() + WARM_SECONDS
    while thrown_away.slot < thrown_away.slots:
        thrown_away.step()
        if thrown_away.slot >= 2 and time.monotonic() > until:
            break


def simulate(
    instance: Instance,
    policy: Policy[Any, Any, Any],
    slots: int,
    seed: int,
    name: str = "",
    checkpoint: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Run a policy on an instance.

    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1").instance(seed=1)
    >>> run = simulate(instance, create_policy("fairness"), slots=20, seed=1)
    >>> run.slots, run.rewards.shape
    (20, (20,))
    """
    return Simulation(instance, policy, slots, seed, name).run(checkpoint, progress=progress)


# Checkpoints

FORMAT = b"gangwise-checkpoint-3"
AFRESH = "delete it to start afresh"


def key_file() -> Path:
    """``gangwise/key`` in the user's configuration folder."""
    if sys.platform == "win32":
        base = Path(os.environ.get("APPDATA", Path.home() / "AppData" / "Roaming"))
    else:
        base = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return base / "gangwise" / "key"


def user_key() -> bytes:
    """The key of this user, made on first use.

    Raises StoreError when it cannot be made or read, or others can read it.
    """
    path = key_file()
    try:
        if not path.exists():
            _make_key(path)
        about = path.stat()
        if sys.platform != "win32" and (
            about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077
        ):
            raise StoreError(
                f"{path} must be yours alone, for it vouches for checkpoints: chmod 600 {path}, or "
                "remove it (checkpoints made with it are then refused)"
            )
        key = path.read_bytes()
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(
            f"there is no key to sign checkpoints with: {path}: {error.strerror}; set "
            "XDG_CONFIG_HOME to a folder that you can write to"
        ) from error
    if len(key) != 32:
        raise StoreError(f"{path} is damaged; remove it (checkpoints made with it are refused)")
    return key


def _make_key(path: Path) -> None:
    """Make a key; of two processes that make one at the same time, the first counts."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    side = path.parent / write_side_file(Tree(path.parent), ".", secrets.token_bytes(32), 0o600)
    try:
        # A link fails where the key is there already, as a rename would not.
        os.link(side, path)
    except FileExistsError:
        pass
    except OSError:  # no hard links on this disk
        os.replace(side, path)
    finally:
        side.unlink(missing_ok=True)


def write_checkpoint(path: Path, state: object, run: Mapping[str, Any]) -> None:
    """Save a state that pickles, all or nothing; raises StoreError when it cannot be written.

    ``run`` is what defines the run: see :meth:`gangwise.study.runs.RunSpec.identity`.
    """
    key = user_key()
    payload = pickle.dumps(state, protocol=pickle.HIGHEST_PROTOCOL)
    about = {"version": __version__, "run": dict(run), "size": len(payload)}
    body = json.dumps(about).encode() + b"\n" + payload
    seal = {"hmac": hmac.new(key, body, hashlib.sha256).hexdigest(), "key": digest_of(key)[:8]}
    write_whole(path, b"\n".join([FORMAT, json.dumps(seal).encode(), body]), 0o600)


def read_checkpoint(path: Path, run: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """A state that this user saved with this version, and what defines its run.

    ``run`` is what the run must be; any run will do where it is not given. Raises StoreError when
    the file is no checkpoint, damaged, another user's, or of another run or version.
    """
    about, payload = check_checkpoint(path)
    # State of another version may unpickle and then mean something else.
    if about["version"] != __version__:
        raise StoreError(
            f"{path} was saved by gangwise {about['version']}, this is {__version__}; {AFRESH}"
        )
    # Through JSON, as the checkpoint's was: tuples have become lists there.
    if run is not None and about["run"] != json.loads(json.dumps(dict(run))):
        raise StoreError(
            f"{path} holds another run: {differences(about['run'], run)}; give the arguments that "
            f"it was started with, or {AFRESH}"
        )
    try:
        return pickle.loads(payload), about["run"]
    except Exception as error:  # classes that moved or changed raise anything
        raise StoreError(f"{path} cannot be resumed ({error}); {AFRESH}") from error


def check_checkpoint(path: Path) -> tuple[dict[str, Any], bytes]:
    """Header of a checkpoint, and its pickle, which fits its seal and is not opened.

    Raises StoreError when the file is no checkpoint, damaged, or another user's.
    """
    content = read_whole(path)
    marker, _, tail = content.partition(b"\n")
    sealed, _, body = tail.partition(b"\n")
    if marker != FORMAT:
        raise StoreError(f"{path} is not a whole gangwise checkpoint of this version; {AFRESH}")
    key = user_key()
    try:
        seal = json.loads(sealed)
        theirs, code = str(seal["key"]), str(seal["hmac"])
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is not a whole gangwise checkpoint; {AFRESH}") from error
    # The seal is checked before the pickle is opened: opening one runs code.
    if not hmac.compare_digest(
        code.encode(), hmac.new(key, body, hashlib.sha256).hexdigest().encode()
    ):
        # Which key it was says whether the file is foreign or damaged.
        if theirs != digest_of(key)[:8]:
            raise StoreError(
                f"{path} was saved by another user, or with another key than {key_file()}; it is "
                f"not opened, for it could run any command; {AFRESH}"
            )
        raise StoreError(f"{path} is damaged: its seal does not fit; {AFRESH}")
    header, _, payload = body.partition(b"\n")
    return json.loads(header), payload


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Differences between two identities, in words.

    >>> differences({"seed": 1, "settings": {"rho": 0.5}}, {"seed": 1, "settings": {"rho": 0.7}})
    'rho was 0.5 and is now 0.7'
    """
    parts = []
    for name in dict.fromkeys([*before, *now]):
        was_value, value = before.get(name), now.get(name)
        if was_value == value:
            continue
        if isinstance(was_value, Mapping) and isinstance(value, Mapping):
            parts.append(differences(was_value, value))
        else:
            parts.append(f"{name} was {_short(was_value)} and is now {_short(value)}")
    return ", ".join(parts)


def _short(value: Any) -> str:
    text = "not given" if value is None else str(value)
    return text if len(text) <= 60 else text[:57] + "…"

"""The slot loop, its random streams, the run that comes out of it, and the check of policies.

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

:func:`check_policy` tries a policy on random problems; one of your own gets the same checks as the
built-in ones.
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
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISpawnableSeedSequence

from gangwise import __version__
from gangwise.core import arrays, contracts, registry, settings, terminal
from gangwise.core.contracts import Comparator, Environment, Family, Instance, Policy, identify
from gangwise.core.errors import GangwiseError, InfeasibleDecision, ScenarioError, StoreError
from gangwise.core.files import Tree, digest_of, read_whole, write_side_file, write_whole
from gangwise.core.registry import create, label_of


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
        about = (self.name, contracts.configuration(self.policy), self.seed, lambda: self.instance)
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
    key = (type(policy), repr(contracts.configuration(policy)), type(instance))
    if key in _warm:
        return
    _warm.add(key)
    # A clone draws and learns apart from the run, which therefore begins as if nothing had been
    # played.
    thrown_away = Simulation(instance, contracts.clone(policy), min(slots, WARM_SLOTS), seed)
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


class PolicyCheckFailed(GangwiseError, AssertionError):  # noqa: N818 - the name says what it is
    """A policy breaks the contract; the message says which part and on which problem."""


def check_policy(
    policy: Policy[Any, Any, Any] | str,
    problems: int = 10,
    slots: int = 12,
    seed: int = 0,
    family: Family | str | None = None,
) -> None:
    """Try a policy on random problems.

    On each problem it must be feasible in every slot; give the same run again under the same seed,
    from a clone, and from a checkpoint taken half way; decide by what it is shown alone; leave that
    as it is; and, unless it calls itself ``randomised``, treat servers alike whatever they are
    called.

    Parameters
    ----------
    policy : Policy or str
        A name, or a policy, of which only the configuration is used.
    problems, slots, seed : int
        How much to try.
    family : Family or str, optional
        By default ``policy.family``.

    Raises
    ------
    PolicyCheckFailed

    Examples
    --------
    >>> from gangwise import check_policy, create_policy
    >>> check_policy(create_policy("drf"), problems=2)
    """
    name = label_of(policy) if isinstance(policy, str) else type(policy).__name__
    original: Any = create("policy", policy) if isinstance(policy, str) else policy
    family = family or getattr(original, "family", None)
    if family is None:
        raise PolicyCheckFailed(f"{name} has no attribute 'family'; give it one or pass family=")
    checked: Family = create("family", family) if isinstance(family, str) else family
    # A missing attribute would otherwise show in the middle
    # of a run, as an error of the simulation.
    contracts.configuration(original)  # raises for what is not a dataclass
    for part in ("start", "decide", "learn", "timing"):
        if not hasattr(original, part):
            raise PolicyCheckFailed(
                f"{name} has no {part}; a policy has start, decide, learn, timing"
            )
    for index in range(problems):
        place = f"{name} on problem {index} (seed {seed})"
        trial = _Trial(checked, (seed, index), slots, place)
        run = trial.play(contracts.clone(original))
        used = contracts.clone(original)
        # A policy that keeps something from one run to the next decides otherwise in the second.
        Simulation(trial.instance, used, slots, seed=987).run()
        why_again = f"a second run with the same seed differs: {CHANCE}"
        why_used = "a run of a policy that has run before differs; start() must forget everything"
        for reason, repeat in ((why_again, contracts.clone(original)), (why_used, used)):
            if not np.array_equal(run.rewards, trial.play(repeat).rewards):
                raise PolicyCheckFailed(f"{place}: {reason}")
        # What it reads beyond its arguments is the world around it: it decides again where there is
        # none.
        trial.check_unseen(contracts.clone(original), run)
        trial.check_resume(original, run.rewards)
        if not getattr(original, "randomised", False):
            trial.check_relabelling(original, run.decisions)


CHANCE = (
    "it is not deterministic; draw from the generator that start() is given, not from random, "
    "numpy.random or a clock, and keep nothing outside of the policy"
)
"""Why a policy decides differently when it is played again."""
READS = (
    "it reads what it is not shown, such as arrivals on the stack or behind an array, or the seed "
    "of its generator"
)
"""Why a policy decides differently where there is no world."""


class _Played(NamedTuple):
    """Record of a run: rewards [T], decisions, pickles of problem, observations and feedback."""

    rewards: npt.NDArray[np.float64]
    decisions: list[Any]
    problem: bytes
    observations: list[bytes]
    feedback: list[bytes]


class _Seedless(ISpawnableSeedSequence):
    """Seed sequence that draws and splits as another does, without its seed."""

    def __init__(self, source: np.random.SeedSequence):
        self._source = source

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._source.generate_state(n_words, dtype)

    def spawn(self, n_children: int) -> list[_Seedless]:
        return [_Seedless(child) for child in self._source.spawn(n_children)]


def _without_seed(seed: int) -> np.random.Generator:
    """The generator that a policy gets in a run with this seed, without the seed."""
    sequence: Any = Streams.of(seed).policy.bit_generator.seed_seq
    hidden: Any = _Seedless(sequence)  # numpy's types name its own class, not the protocol
    return np.random.default_rng(hidden)


@dataclass(frozen=True)
class _Trial:
    """Trial of a policy on a random problem."""

    family: Family
    drawn_by: tuple[int, int]  # the seed of the check, and the number of the problem
    slots: int
    where: str  # policy and problem, as messages name them

    @cached_property
    def instance(self) -> Instance:
        return self.family.fuzz(np.random.default_rng(self.drawn_by))

    def play(self, policy: Policy[Any, Any, Any], instance: Instance | None = None) -> _Played:
        """A run; by default on the instance of the problem."""
        place = self.where if instance is None else f"{self.where}, servers relabelled"
        rewards, decisions, t = np.zeros(self.slots), [], -1
        observations, feedback, problem = [], [], b""
        try:
            streams = Streams.of(self.drawn_by[1])
            environment = (instance or self.instance).environment()
            environment.start(streams.workload, streams.noise)
            problem = pickle.dumps(environment.problem)
            policy.start(environment.problem, streams.policy)
            for t in range(self.slots):
                observation = environment.observe(t, policy.timing)
                observations.append(pickle.dumps(observation))
                decision = policy.decide(observation)
                # Observations share arrays with the environment: what a
                # policy writes there changes the world.
                if pickle.dumps(observation) != observations[-1]:
                    raise PolicyCheckFailed(
                        f"{place}, slot {t}: decide() changed what it was shown"
                    )
                # Copied, since the next decision may be written into the same array.
                decisions.append(np.array(decision, copy=True))
                outcome = environment.step(t, decision)
                if not np.isfinite(outcome.reward):
                    raise PolicyCheckFailed(f"{place}, slot {t}: the reward is {outcome.reward}")
                rewards[t] = outcome.reward
                feedback.append(pickle.dumps(outcome.feedback))
                policy.learn(outcome.feedback)
        except PolicyCheckFailed:
            raise
        except InfeasibleDecision as error:
            raise PolicyCheckFailed(f"{place}: {error}") from error
        except Exception as error:  # whatever the policy raises, or its decision makes others raise
            at = "start()" if t < 0 else f"slot {t}"
            text = error if isinstance(error, GangwiseError) else f"{type(error).__name__}: {error}"
            raise PolicyCheckFailed(f"{place}, {at}: {text}") from error
        return _Played(rewards, decisions, problem, observations, feedback)

    def check_unseen(self, policy: Policy[Any, Any, Any], run: _Played) -> None:
        """Replay of the decisions from copies of what was shown, without any world to read."""
        t = -1
        try:
            policy.start(pickle.loads(run.problem), _without_seed(self.drawn_by[1]))
            for t, shown in enumerate(run.observations):
                decision = np.asarray(policy.decide(pickle.loads(shown)))
                # To the last bit: from the same arguments there is no reason for any difference.
                if not np.array_equal(decision, run.decisions[t]):
                    raise PolicyCheckFailed(
                        f"{self.where}, slot {t}: it decides otherwise where there is no world: "
                        f"{READS}"
                    )
                policy.learn(pickle.loads(run.feedback[t]))
        except PolicyCheckFailed:
            raise
        except Exception as error:  # such as an attribute that only the world has
            at = "start()" if t < 0 else f"slot {t}"
            raise PolicyCheckFailed(
                f"{self.where}, {at}: {type(error).__name__}: {error}, only where there is no "
                f"world: {READS}"
            ) from error

    def check_resume(self, policy: Policy[Any, Any, Any], rewards: npt.NDArray[np.float64]) -> None:
        simulation = Simulation(
            self.instance, contracts.clone(policy), self.slots, self.drawn_by[1]
        )
        # Half way, so that the state has something learned in it and something still to come.
        for _ in range(self.slots // 2):
            simulation.step()
        try:
            resumed: Simulation = pickle.loads(pickle.dumps(simulation))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise PolicyCheckFailed(f"{self.where}: its state does not pickle: {error}") from error
        if not np.array_equal(resumed.run().rewards, rewards):
            raise PolicyCheckFailed(f"{self.where}: a run resumed from a checkpoint differs")

    def check_relabelling(self, policy: Policy[Any, Any, Any], decisions: list[Any]) -> None:
        R = len(self.instance.problem.cluster.servers)
        order = np.random.default_rng([self.drawn_by[1], 1]).permutation(R)
        renamed = self.family.relabel_servers(self.instance, order)
        relabelled = self.play(contracts.clone(policy), renamed).decisions
        for t in range(self.slots):
            expected = self.family.relabel_decision(self.instance, order, decisions[t])
            # Sums over servers in another order differ in their last bits.
            scale = 1.0 + float(np.abs(expected).max(initial=0.0))
            if not np.allclose(expected, relabelled[t], rtol=0, atol=1e-6 * scale):
                raise PolicyCheckFailed(
                    f"{self.where}, slot {t}: the decision depends on what servers are called; "
                    "break ties by something that belongs to the server, or declare the policy "
                    "randomised"
                )

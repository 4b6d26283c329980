"""The slot loop.

::

    Environment ──observation──► Policy.decide ──decision──► Environment ──feedback──► Policy.learn

A simulation is a plain object that pickles: saving it between two slots and going on later gives
the same bytes as never having stopped.

Random streams: one seed, four independent generators.

The instance, its arrivals, its noise and the policy each draw from a stream of their own, so that
nothing a policy draws can change the arrivals or the noise that it and its rivals meet.

What a run leaves behind: per-slot rows, summaries, and regret with a name.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats
from gangwise.core.checkpoints import read_checkpoint, write_checkpoint
from gangwise.core.contracts import Comparator, Environment, Instance, Policy, clone, configuration
from gangwise.core.errors import InfeasibleDecision, ScenarioError, StoreError
from gangwise.core.frames import Tabular
from gangwise.core.identity import identify
from gangwise.core.interrupt import Stopped, requests_to_stop
from gangwise.core.limits import require_memory
from gangwise.core.registry import check_arguments


@dataclass(frozen=True)
class Streams:
    """The independent generators of one run."""

    instance: np.random.Generator
    workload: np.random.Generator
    noise: np.random.Generator
    policy: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> Streams:
        """Spawn the streams of a seed.

        Raises
        ------
        ScenarioError
            For a seed that is negative or no whole number.

        Examples
        --------
        >>> a, b = Streams.of(7), Streams.of(7)
        >>> _ = a.policy.random(1000)
        >>> bool((a.workload.random(3) == b.workload.random(3)).all())
        True
        """
        if not hasattr(seed, "__index__") or seed < 0:
            raise ScenarioError(f"seed is {seed!r}; it must be a whole number, zero or larger")
        return cls(*(np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)))


@dataclass(frozen=True, eq=False, repr=False)
class Run(Tabular):
    """One policy on one instance; as a table, a row for each slot.

    Attributes
    ----------
    policy : str
        Name that the policy goes by in this run.
    configuration : mapping
        The policy's constructor arguments.
    seed : int
    draw : callable
        Draws the instance, or returns the one that was played.
    rewards : ndarray of float64, shape [T]
        Reward of each slot.
    metrics : mapping of str to ndarray of float64, shape [T]
        What the environment measured in each slot.
    nanoseconds : ndarray of int64, shape [T]
        Time that the policy took to decide and learn in each slot.
    """

    policy: str
    configuration: Mapping[str, Any]
    seed: int
    draw: Callable[[], Instance]
    rewards: Floats
    metrics: Mapping[str, Floats]
    nanoseconds: npt.NDArray[np.int64]

    @cached_property
    def instance(self) -> Instance:
        """The instance that was played."""
        return self.draw()

    @property
    def slots(self) -> int:
        """How many slots were played."""
        return int(self.rewards.size)

    @property
    def mean_reward(self) -> float:
        """Average reward per slot."""
        return float(self.rewards.mean())

    @property
    def us_per_slot(self) -> float:
        """Time that the policy takes to decide and learn, mean over the slots, in microseconds.

        Compiling and loading kernels is no part of it: see :func:`warm_up`.
        """
        return float(self.nanoseconds.mean()) / 1e3

    def rows(self) -> Iterator[dict[str, Any]]:
        """Plain per-slot rows, for the dataframe of your choice."""
        columns = {"reward": self.rewards, **self.metrics}
        for t in range(self.slots):
            row: dict[str, Any] = {"policy": self.policy, "seed": self.seed, "slot": t}
            row.update((name, float(column[t])) for name, column in columns.items())
            yield row

    def columns(self) -> dict[str, Any]:
        """Slot, reward and metrics, one array a column."""
        return {"slot": np.arange(self.slots), "reward": self.rewards, **self.metrics}

    def __repr__(self) -> str:
        earned = f"mean reward {self.mean_reward:.6g}"
        return f"Run({self.policy}, seed {self.seed}, {self.slots} slots, {earned})"

    def summary(self) -> dict[str, Any]:
        """Totals and averages of the run."""
        return {
            "policy": self.policy,
            "seed": self.seed,
            "slots": self.slots,
            "mean_reward": self.mean_reward,
            "us_per_slot": self.us_per_slot,
            **{name: float(column.mean()) for name, column in self.metrics.items()},
        }

    def comparator(self, versus: str | Comparator, sample: int | None = None) -> Comparator:
        """The named comparator on the slots of this run."""
        if isinstance(versus, Comparator):
            return versus
        return self.instance.comparator(versus, self.slots, self.seed, sample)

    def regret(self, versus: str | Comparator = "best_fixed", sample: int | None = None) -> float:
        """Comparator's total reward minus the policy's, signed and never clamped.

        Where the comparator was evaluated on a sample of the slots, the mean difference on these
        slots is scaled to all of them.
        """
        comparator = self.comparator(versus, sample)
        difference = comparator.rewards - self.rewards[comparator.slots]
        return float(difference.mean() * self.slots)

    def regret_curve(self, versus: str | Comparator = "best_fixed") -> Floats:
        """Cumulative regret at the comparator's slots, shape [n]."""
        comparator = self.comparator(versus)
        return np.cumsum(comparator.rewards - self.rewards[comparator.slots])

    def share_of(self, versus: str | Comparator) -> float:
        """The policy's reward as a share of the comparator's, on the comparator's slots."""
        comparator = self.comparator(versus)
        total = float(comparator.rewards.sum())
        return float(self.rewards[comparator.slots].sum()) / total if total else float("nan")


class Interrupted(Stopped):
    """A simulation was stopped between two slots; ``checkpoint`` says where it was saved."""

    def __init__(self, slot: int, checkpoint: Path | None, number: int = signal.SIGINT):
        self.slot, self.checkpoint = slot, checkpoint
        saved = f"; saved to {checkpoint}" if checkpoint else ""
        super().__init__(f"stopped after slot {slot}{saved}", number)


@dataclass
class Simulation:
    """One policy on one instance, as far as it has got.

    Parameters
    ----------
    instance : Instance
    policy : Policy
        Bound to the instance's problem here; whatever it knew is forgotten.
    slots : int
        How many slots to play.
    seed : int
        With the instance and the policy's configuration, all that the run depends on.
    name : str, optional
        What to call the policy in the results.
    identity : mapping, optional
        All that defines the run, kept in its checkpoints: see
        :func:`gangwise.core.identity.run_identity`.
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
            raise ScenarioError(
                f"a run needs at least one slot, and a whole number; {self.slots} were asked for"
            )
        if isinstance(self.policy, type):
            raise ScenarioError(
                f"{self.policy.__name__} is a class; give a policy: {self.policy.__name__}()"
            )
        check_arguments(self.policy)
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
        require_memory(needed, f"a run of {self.slots} slots", "fewer slots")
        self.rewards = np.zeros(self.slots)
        self.metrics = np.zeros((self.slots, len(self.environment.metrics)))
        self.nanoseconds = np.zeros(self.slots, dtype=np.int64)

    def step(self) -> None:
        """Play one slot."""
        t, clock = self.slot, time.perf_counter_ns
        observation = self.environment.observe(t, self.policy.timing)
        begin = clock()
        decision = self.policy.decide(observation)
        decided = clock()
        if getattr(getattr(decision, "dtype", None), "kind", "") not in ("f", "i", "b", "u"):
            self._check_kind(decision)
        outcome = self.environment.step(t, decision)
        back = clock()
        self.policy.learn(outcome.feedback)
        self.nanoseconds[t] = decided - begin + clock() - back
        self.rewards[t] = outcome.reward
        self.metrics[t] = outcome.metrics
        self.slot = t + 1

    def _check_kind(self, decision: Any) -> None:
        """What is no array of real numbers must at least not be one of text or complex numbers."""
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

        Parameters
        ----------
        checkpoint : path, optional
            Saved here every ``every`` seconds and when interrupted.
        progress : callable, optional
            Called with the number of slots played, about ten times a second.

        Raises
        ------
        Interrupted
            On Ctrl-C or SIGTERM, after the slot in hand is finished and the checkpoint is written.
        """
        now = time.monotonic
        warm_up(self.instance, self.policy, self.slots, self.seed)
        saved = told = now()
        with requests_to_stop() as stop:
            while self.slot < self.slots:
                self.step()
                if stop.is_set():
                    if checkpoint is not None:
                        self.save(checkpoint)
                    raise Interrupted(self.slot, checkpoint, stop.signal)
                if self.slot & 15 == 0:  # looking at the clock costs as much as a small slot
                    at = now()
                    if progress is not None and at - told > 0.1:
                        told = at
                        progress(self.slot)
                    if checkpoint is not None and at - saved > every:
                        saved = at
                        self.save(checkpoint)
        if progress is not None:
            progress(self.slot)
        return self.result()

    def result(self) -> Run:
        """The slots played so far, as a run."""
        n = self.slot
        return Run(
            self.name,
            configuration(self.policy),
            self.seed,
            lambda: self.instance,
            self.rewards[:n].copy(),
            {m: self.metrics[:n, i].copy() for i, m in enumerate(self.environment.metrics)},
            self.nanoseconds[:n].copy(),
        )

    def save(self, path: Path) -> None:
        """Write the state to a file, all or nothing, signed with the user's key."""
        policy = identify(type(self.policy), "policy")
        write_checkpoint(Path(path), self, {"policy": policy, **self.identity})

    @classmethod
    def load(cls, path: Path, identity: Mapping[str, Any] | None = None) -> Simulation:
        """Read a simulation that this user saved, see :mod:`gangwise.core.checkpoints`.

        Parameters
        ----------
        path : path
        identity : mapping, optional
            What the run must be; it is compared with what was saved.

        Raises
        ------
        StoreError
            When it is not a whole checkpoint of this user, of this version, and of this run; or
            when the policy was edited since.
        """
        simulation, run = read_checkpoint(Path(path), identity)
        if not isinstance(simulation, cls):
            raise StoreError(f"{path} is no checkpoint of a simulation; delete it to start afresh")
        if run["policy"] != (now := identify(type(simulation.policy), "policy")):
            raise StoreError(
                f"{path}: {simulation.name} was edited since ({run['policy']} is now {now}); "
                "delete it to start afresh"
            )
        return simulation


WARM_SLOTS, WARM_SECONDS = 16, 0.5
"""How much of a simulation is thrown away: two slots at least, and no more than this."""

_warm: set[tuple[object, ...]] = set()


def warm_up(instance: Instance, policy: Policy[Any, Any, Any], slots: int, seed: int) -> None:
    """Have kernels compiled or loaded before the first slot that is timed.

    A few slots are played by a clone and thrown away, once per process and configuration. What a
    policy uses only later in a run is still loaded in the slot that needs it.
    """
    key = (type(policy), repr(configuration(policy)), type(instance))
    if key in _warm:
        return
    _warm.add(key)
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

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("ogasched-default-v1").instance(seed=1)
    >>> run = simulate(instance, create_policy("fairness"), slots=20, seed=1)
    >>> run.slots, run.rewards.shape
    (20, (20,))
    """
    return Simulation(instance, policy, slots, seed, name).run(checkpoint, progress=progress)

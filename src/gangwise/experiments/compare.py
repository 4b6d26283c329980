"""A comparison of policies: its table, its frame of all slots, its files.

Compare policies on one scenario: the same instances, arrivals and noise for all of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gangwise
from gangwise.core.contracts import Comparator, Instance, Policy, Scenario
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.limits import MOST_LETTERS, require_seeds
from gangwise.core.registry import create
from gangwise.core.simulation import Run, Simulation
from gangwise.experiments.statistics import Estimate, mean_and_interval
from gangwise.experiments.store import RunStore
from gangwise.experiments.sweep import Progress, silent

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Row:
    """One policy in the table of a comparison; estimates are over seeds.

    Attributes
    ----------
    reward : Estimate
        Average reward per slot.
    over : mapping of str to Estimate
        Paired improvement over each other policy, in per cent; absent where the other's reward is
        not positive, since a percentage then says nothing.
    share_of : mapping of str to Estimate
        Share of each comparator's reward, on the comparator's slots.
    regret : mapping of str to Estimate
        Total regret against each comparator; signed.
    metrics : mapping of str to Estimate
        Averages of what the environment measures.
    us_per_slot : float
        Policy time per slot in microseconds.
    """

    policy: str
    reward: Estimate
    over: Mapping[str, Estimate]
    share_of: Mapping[str, Estimate]
    regret: Mapping[str, Estimate]
    metrics: Mapping[str, Estimate]
    us_per_slot: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs of several policies over several seeds, and the comparators of each seed.

    Attributes
    ----------
    scenario : Scenario
    slots : int
    seeds : tuple of int
    runs : mapping of (policy, seed) to Run
    comparators : mapping of (comparator, seed) to Comparator
    """

    scenario: Scenario
    slots: int
    seeds: tuple[int, ...]
    policies: tuple[str, ...]
    runs: Mapping[tuple[str, int], Run]
    comparators: Mapping[tuple[str, int], Comparator] = field(default_factory=dict)

    @property
    def comparator_names(self) -> tuple[str, ...]:
        """The comparators that were evaluated."""
        return tuple(dict.fromkeys(name for name, _ in self.comparators))

    @cached_property
    def _rewards(self) -> dict[str, Any]:
        return {
            p: np.array([self.runs[p, s].mean_reward for s in self.seeds]) for p in self.policies
        }

    def table(self) -> list[Row]:
        """One row for each policy, best first."""
        rows = [self._row(policy) for policy in self.policies]
        return sorted(rows, key=lambda row: -row.reward.mean)

    def _row(self, policy: str) -> Row:
        runs = [self.runs[policy, s] for s in self.seeds]
        over = {
            other: mean_and_interval(100 * (self._rewards[policy] / self._rewards[other] - 1))
            for other in self.policies
            if other != policy and (self._rewards[other] > 0).all()
        }
        share, regret = {}, {}
        for name in self.comparator_names:
            versus = [self.comparators[name, s] for s in self.seeds]
            share[name] = mean_and_interval([r.share_of(c) for r, c in zip(runs, versus)])
            regret[name] = mean_and_interval([r.regret(c) for r, c in zip(runs, versus)])
        metrics = {
            name: mean_and_interval([float(run.metrics[name].mean()) for run in runs])
            for name in runs[0].metrics
        }
        return Row(
            policy,
            mean_and_interval(self._rewards[policy]),
            over,
            share,
            regret,
            metrics,
            float(np.mean([run.us_per_slot for run in runs])),
        )

    def comparator_reward(self, name: str) -> Estimate:
        """Average reward per slot of a comparator."""
        return mean_and_interval(
            [float(self.comparators[name, s].rewards.mean()) for s in self.seeds]
        )

    def bounds(self, name: str) -> dict[str, Estimate]:
        """Theoretical bounds on the total regret against a comparator."""
        found = [self.comparators[name, s].bounds for s in self.seeds]
        return {b: mean_and_interval([each[b] for each in found]) for b in found[0]}

    def gap(self, name: str) -> float:
        """The largest proven gap of a comparator over the seeds, relative to its total."""
        each = [self.comparators[name, s] for s in self.seeds]
        return max(c.gap / max(abs(float(c.rewards.sum())), 1e-300) for c in each)

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints; the same keys for every problem family.

        ``share_of_optimum`` is the share of the last comparator, the strongest one of the family;
        regret is the mean over seeds. An interval needs two seeds: with one it is null.
        """
        optimum = self.comparator_names[-1] if self.comparators else None
        policies = [
            {
                "name": row.policy,
                "mean_reward": row.reward.mean,
                "ci95": [row.reward.low, row.reward.high],
                "share_of_optimum": _finite(row.share_of[optimum].mean) if optimum else None,
                "regret": {name: _finite(e.mean) for name, e in row.regret.items()},
                "us_per_slot": row.us_per_slot,
                "metrics": {name: _finite(e.mean) for name, e in row.metrics.items()},
            }
            for row in self.table()
        ]
        comparators = [
            {
                "name": name,
                "mean_reward": self.comparator_reward(name).mean,
                "relative_gap": self.gap(name),
                "slots_evaluated": int(self.comparators[name, self.seeds[0]].slots.size),
                "regret_bounds": {b: e.mean for b, e in self.bounds(name).items()},
            }
            for name in self.comparator_names
        ]
        return {
            "scenario": self.scenario.name,
            "family": self.scenario.family,
            "slots": self.slots,
            "seeds": list(self.seeds),
            "policies": policies,
            "comparators": comparators,
            "version": gangwise.__version__,
        }

    def frame(self) -> pl.DataFrame:
        """Per-slot rewards and metrics of all runs, tidy: one row per policy, seed and slot."""
        import polars as pl

        parts = []
        for (policy, seed), run in self.runs.items():
            columns = {"reward": run.rewards, **run.metrics}
            parts.append(
                pl.DataFrame({"slot": np.arange(run.slots), **columns}).select(
                    pl.lit(policy).alias("policy"), pl.lit(seed).alias("seed"), pl.all()
                )
            )
        return pl.concat(parts)

    def write(self, directory: Path | str, command: str = "") -> list[Path]:
        """Write ``rewards.parquet``, ``summary.json``, the figures and ``report.html``.

        Returns
        -------
        list of Path
            The files written.
        """
        from gangwise.report.figures import draw
        from gangwise.report.html import write_html

        directory = Path(directory)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self.frame().write_parquet(directory / "rewards.parquet")
            (directory / "summary.json").write_text(
                json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n"
            )
            figures = draw(self, directory)
            report = write_html(self, directory / "report.html", figures, command)
        except OSError as error:
            raise StoreError(f"cannot write results to {directory}: {error}") from error
        return [directory / "rewards.parquet", directory / "summary.json", *figures, report]


def _finite(value: float) -> float | None:
    """JSON has no word for not-a-number; null says that there is no such number."""
    return value if math.isfinite(value) else None


def compare(
    scenario: Scenario | str,
    policies: Sequence[str | Policy[Any, Any, Any]] | Mapping[str, Policy[Any, Any, Any]],
    slots: int | None = None,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    comparators: Sequence[str] | None = None,
    optimum_slots: int | None = 200,
    checkpoints: Path | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Run policies on the instances of a scenario.

    Parameters
    ----------
    scenario : Scenario or str
        A scenario or the name of one.
    policies : sequence of str or Policy, or mapping of names to policies
        Names may carry arguments, ``"ogasched-react:steps=5"``.
    slots : int, optional
        Slots per run; the scenario's own number when not given.
    seeds : sequence of int
        One instance, one sequence of arrivals and one run of every policy per seed.
    comparators : sequence of str, optional
        All of the family's when not given.
    optimum_slots : int, optional
        Evaluate comparators that solve a programme per slot on at most so many slots.
    checkpoints : path, optional
        A folder for finished runs and for the one in hand. A comparison that was stopped goes on
        from there when it is started again with the same arguments.
    progress : callable, optional
        ``progress(what, done, of)``.

    Raises
    ------
    ScenarioError
        When a policy belongs to another family, or nothing is left to compare.
    Interrupted
        On Ctrl-C, with the checkpoint written.

    Examples
    --------
    >>> comparison = compare("ogasched-default-v1:servers=16", ["drf", "fairness"], 20, [0, 1])
    >>> len(comparison.runs), comparison.table()[0].policy
    (4, 'fairness')
    """
    if isinstance(scenario, str):
        scenario = create("scenario", scenario)
        assert not isinstance(scenario, str)
    named = _named(policies)
    slots = scenario.slots if slots is None else slots
    seeds = require_seeds(seeds)
    if optimum_slots is not None and optimum_slots < 1:
        raise ScenarioError(f"the optimum needs at least one slot; got {optimum_slots}")
    if slots < 1 or not seeds:
        raise ScenarioError(f"nothing to run: {slots} slots and {len(seeds)} seeds")
    for name, policy in named.items():
        family = getattr(policy, "family", scenario.family)
        if family != scenario.family:
            raise ScenarioError(
                f"policy {name!r} is for the family {family}; scenario {scenario.name!r} is of "
                f"the family {scenario.family}"
            )
    tell = progress or silent
    store = RunStore(checkpoints, scenario, slots) if checkpoints is not None else None
    runs: dict[tuple[str, int], Run] = {}
    judged: dict[tuple[str, int], Comparator] = {}
    numbers = count(1)
    for seed in seeds:
        instance = scenario.instance(seed)
        names = instance.comparators if comparators is None else comparators
        of = len(seeds) * (len(named) + len(names))
        for name, policy in named.items():
            what = f"{next(numbers)} of {of}: {name}, seed {seed}"
            runs[name, seed] = _run(
                instance, policy, slots, seed, name, store, partial(_tell_slots, tell, what, slots)
            )
        for comparator in names:
            what = f"{next(numbers)} of {of}: {comparator}, seed {seed}"
            tell(what, 0, 1)
            any_run = runs[next(iter(named)), seed]
            judged[comparator, seed] = any_run.comparator(comparator, optimum_slots)
            tell(what, 1, 1)
    return Comparison(scenario, slots, seeds, tuple(named), runs, judged)


def _named(
    policies: Sequence[str | Policy[Any, Any, Any]] | Mapping[str, Policy[Any, Any, Any]],
) -> dict[str, Policy[Any, Any, Any]]:
    named: dict[str, Policy[Any, Any, Any]] = {}
    if isinstance(policies, str):
        raise ScenarioError(f"policies are {policies!r}; give a list: [{policies!r}]")
    for entry in policies.items() if isinstance(policies, Mapping) else policies:
        if isinstance(policies, Mapping):
            name, policy = entry
            if isinstance(policy, str):
                policy = create("policy", policy)
        elif isinstance(entry, str):
            name, policy = entry, create("policy", entry)
        else:
            name, policy = type(entry).__name__, entry
        if isinstance(policy, type):
            raise ScenarioError(f"{policy.__name__} is a class; give {policy.__name__}()")
        if not callable(getattr(policy, "decide", None)):
            raise ScenarioError(f"{policy!r} is no policy: it has no method decide")
        if len(str(name)) > MOST_LETTERS:
            raise ScenarioError(
                f"a policy's name has {len(str(name))} letters; {MOST_LETTERS} are the most"
            )
        if name in named:
            raise ScenarioError(f"policy {name!r} is named twice; give a mapping of names instead")
        named[name] = policy
    if not named:
        raise ScenarioError("no policies to compare")
    return named


def _tell_slots(tell: Progress, what: str, slots: int, done: int) -> None:
    tell(what, done, slots)


def _run(
    instance: Instance,
    policy: Policy[Any, Any, Any],
    slots: int,
    seed: int,
    name: str,
    store: RunStore | None,
    tell: Callable[[int], None],
) -> Run:
    if store is None:
        return Simulation(instance, policy, slots, seed, name).run(progress=tell)
    key = store.key(name, policy, seed)
    finished = store.finished(key, instance)
    if finished is not None:
        tell(slots)
        return finished
    checkpoint = store.checkpoint(key)
    if checkpoint.exists():
        simulation = Simulation.load(checkpoint)
    else:
        simulation = Simulation(instance, policy, slots, seed, name)
    run = simulation.run(checkpoint, progress=tell)
    store.finish(key, run)
    return run

"""Compare policies on one scenario: the same instances, arrivals and noise for all of them.

A comparison is a sweep of one cell that keeps every slot. Its runs go into the same store under the
same keys, so that what was played before is not played again. Any folder of such results can be
opened as a comparison (:meth:`Comparison.open`), shown, extended and verified.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core.contracts import Comparator, Policy, Scenario
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.files import Content
from gangwise.core.registry import create, entries, label_of, names_of
from gangwise.core.settings import MOST_LETTERS, finite, require_seeds
from gangwise.core.simulation import Run
from gangwise.study import runs as study_runs
from gangwise.study.results import PrintedTable, Results
from gangwise.study.statistics import Estimate, numbers
from gangwise.study.sweep import Progress, Workers, check_names, perform

FIDELITY = "fidelity.json"  # next to the results of a trace: what was read, left out and assumed
COMPARISON = "comparison"  # name of the experiment of a comparison
FEW_SLOTS = 5_000  # up to so many slots of all runs together are played sooner than workers start
AUTO = 0  # as many workers as there are cores, none for a few slots


@dataclass(frozen=True)
class Row:
    """One policy in the table of a comparison; estimates are over seeds.

    Attributes
    ----------
    reward : Estimate
        Average reward per slot.
    over : mapping of str to Estimate
        Paired improvement over each other policy, in per cent; absent where the other's reward is
        not positive.
    share_of : mapping of str to Estimate
        Share of each comparator's reward, on its slots; NaN where it earned nothing in some seed.
    regret : mapping of str to Estimate
        Total regret against each comparator; signed.
    metrics : mapping of str to Estimate
        Averages of what the environment measures.
    us_per_slot : float
        Microseconds that the policy takes to decide and learn, mean over slots and seeds.
    """

    policy: str
    reward: Estimate
    over: Mapping[str, Estimate]
    share_of: Mapping[str, Estimate]
    regret: Mapping[str, Estimate]
    metrics: Mapping[str, Estimate]
    us_per_slot: float


@dataclass(frozen=True)
class Described:
    """A scenario as stored results describe it; it draws instances where they name its source."""

    name: str
    family: str
    slots: int
    settings: Mapping[str, Any]
    source: study_runs.ScenarioSource | None = None

    def describe(self) -> dict[str, Any]:
        return dict(self.settings)

    def instance(self, seed: int) -> Any:
        if self.source is None:
            raise StoreError(
                f"the scenario {self.name!r} was made in Python; these results do not say how"
            )
        return self.source.instance(seed)


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(PrintedTable):
    """Several policies on one scenario over several seeds: a view on the results of one cell.

    It shows itself as a table in Python and in a notebook; :func:`gangwise.write_report` makes a
    page, :meth:`to_pandas` and :meth:`to_polars` a data frame of the table, :meth:`frame` one of
    every slot.
    """

    results: Results
    scenario: Scenario

    @classmethod
    def open(cls, folder: study_runs.Store | Path | str, name: str = COMPARISON) -> Comparison:
        """The comparison in a folder of results.

        Raises StoreError when there is none, when it is not finished, or when the experiment has
        several cells or no rewards of every slot.
        """
        results = Results.open(folder, name)
        place = results.store.folder
        if results.missing:
            raise StoreError(
                f"{len(results.missing)} runs of {place} are missing or damaged; run the same "
                "command again to do them"
            )
        if results.cells or not results.experiment.get("every_slot"):
            raise StoreError(f"{name} in {place} is a sweep, not a comparison")
        about = results.store.about(str(results.runs[0]["key"]))
        plan, source = results.experiment, None
        if played := plan.get("scenario") or plan.get("trace"):
            source = study_runs.NamedSource.of(
                played, bool(plan.get("trace")), plan.get("settings", {})
            )
        fields = (about["scenario"], about["family"], about["slots"], about["settings"])
        return cls(results, Described(*fields, source))

    @property
    def slots(self) -> int:
        return self.results.slots

    @property
    def seeds(self) -> tuple[int, ...]:
        """One instance, one sequence of arrivals and one run of every policy per seed."""
        return self.results.seeds

    @property
    def policies(self) -> tuple[str, ...]:
        return tuple(self.results.policies)

    @property
    def comparator_names(self) -> tuple[str, ...]:
        return tuple(self.results.comparators)

    @cached_property
    def runs(self) -> Mapping[tuple[str, int], Run]:
        """The runs by policy and seed, as :func:`gangwise.simulate` returned them."""
        store, runs = self.results.store, {}
        for run in (run for run in self.results.runs if not run["comparator"]):
            rows, (label, seed) = store.rows(run["key"]), (run["label"], run["seed"])
            # Columns by slot alone; means and other numbers of a run have no place there.
            slots = {
                n.removesuffix(".slot"): v for n, (_, v) in rows.items() if n.endswith(".slot")
            }
            # Of a run all columns by slot are kept; these two are not metrics of its world.
            rewards, nanoseconds = slots.pop("reward"), slots.pop("nanoseconds").astype(np.int64)
            arguments = store.about(run["key"]).get("configuration") or {}
            draw = partial(self.scenario.instance, seed)
            runs[label, seed] = Run(label, arguments, seed, draw, rewards, slots, nanoseconds)
        return runs

    @cached_property
    def comparators(self) -> Mapping[tuple[str, int], Comparator]:
        """Comparators by name and seed, as :meth:`gangwise.Instance.comparator` returned them."""
        comparators = {}
        for run in (run for run in self.results.runs if run["comparator"]):
            rows, name = self.results.store.rows(run["key"]), run["label"]
            numbers = {n: float(v[0]) for n, (_, v) in rows.items() if n.startswith("bound.")}
            bounds = {n.removeprefix("bound."): value for n, value in numbers.items()}
            gap = float(rows["gap"][1][0])
            # Rows are pairs of places and values: slots, and rewards.
            comparators[name, run["seed"]] = Comparator(name, *rows["reward.slot"], gap, bounds)
        return comparators

    def table(self) -> list[Row]:
        return self._table

    @cached_property
    def _table(self) -> list[Row]:
        results, rows = self.results, []
        versus = {name: results.versus(name) for name in results.comparators}
        for at in results.ranked:
            # Differences are paired by seed, since all policies played the same instances.
            over = {p: results.over(p)[at] for p in self.policies if p != at[1]}
            rows.append(
                Row(
                    at[1],
                    results.of("reward.mean")[at],
                    {rival: Estimate.of(row) for rival, row in over.items() if row["percent"]},
                    {name: share[at] for name, (_, share) in versus.items()},
                    {name: regret[at] for name, (regret, _) in versus.items()},
                    {name: results.of(f"{name}.mean")[at] for name in results.metrics},
                    results.of("us_per_slot")[at].mean,
                )
            )
        return rows

    @property
    def fidelity(self) -> Mapping[str, Any] | None:
        """Coverage of the trace that was played; None for a scenario of no trace.

        Every result is shown below ``line`` and ``warnings``.
        """
        if not self.results.fidelity:
            return None
        return {key: value for key, value in self.results.fidelity[0].items() if key != "cell"}

    @cached_property
    def tied(self) -> bool:
        """Whether all of several policies earned the same in every seed.

        The same is up to 10⁻⁹ of it: sums in another order may differ by as much.
        """
        if len(self.policies) < 2:
            return False
        # In the order of policies, each with its seeds in the same order.
        earned = self.results.per_seed("reward.mean").group_by("policy", maintain_order=True)
        reference, *rewards = [group["value"].to_numpy() for _, group in earned]
        return all(np.allclose(values, reference, rtol=1e-9, atol=1e-12) for values in rewards)

    @property
    def notes(self) -> list[str]:
        """Lines above the table: how much of a trace is played, and whether all are tied."""
        lines = self.results.notes
        if self.tied:
            lines.append(
                f"no ranking: all {len(self.policies)} policies earned the same in every seed, so "
                "nothing here tells them apart"
            )
        return lines

    @property
    def headline(self) -> str:
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) != 1)}"
        return (
            f"{self.scenario.name}: mean reward per slot over {self.slots} slots × {seeds}, "
            "95 % intervals"
        )

    def to_polars(self) -> pl.DataFrame:
        """The table, best first.

        Columns: ``policy``; ``reward``, ``low``, ``high``, the mean per slot and its interval;
        ``behind``, ``behind.low``, ``behind.high``, how many per cent more the best policy has,
        paired by seed; ``share of NAME`` for each comparator; ``us_per_slot``.
        """
        # The best policy is behind none, and has no values there.
        best, nothing = self.table()[0], (None, None, None)
        behind = ("behind", "behind.low", "behind.high")
        rows = [
            {
                "policy": row.policy,
                **dict(zip(("reward", "low", "high"), row.reward)),
                **dict(zip(behind, best.over.get(row.policy, nothing))),
                **{f"share of {name}": share.mean for name, share in row.share_of.items()},
                "us_per_slot": row.us_per_slot,
            }
            for row in self.table()
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def gap(self, name: str) -> float:
        """The largest proven gap of a comparator over the seeds, relative to its total reward."""
        # The worst seed counts: the gap is a promise for all.
        by_seed = [self.comparators[name, s] for s in self.seeds]
        # Not 0, where a comparator earned nothing.
        return max(c.gap / max(abs(float(c.rewards.sum())), 1e-300) for c in by_seed)

    def as_dict(self) -> dict[str, Any]:
        """Content of ``--json``: see docs/results.schema.json.

        ``share_of_optimum`` is the share of the last comparator, the strongest one of the family.
        An interval needs two seeds and is null otherwise. ``fidelity`` is null without a trace;
        ``ranked`` is false where all policies earned the same.
        """
        optimum = self.comparator_names[-1] if self.comparator_names else None
        policies = [
            {
                "name": row.policy,
                "reward": numbers(row.reward),
                "mean_reward": finite(row.reward.mean),
                "ci95": [row.reward.low, row.reward.high],
                "over": {
                    rival: {
                        key: finite(self.results.over(rival)[(), row.policy][key])
                        for key in ("mean", "low", "high", "percent", "seeds")
                    }
                    for rival in self.policies
                    if rival != row.policy
                },
                "share_of": {name: numbers(e) for name, e in row.share_of.items()},
                "share_of_optimum": finite(row.share_of[optimum].mean) if optimum else None,
                "regret": {name: numbers(e) for name, e in row.regret.items()},
                "us_per_slot": row.us_per_slot,
                "metrics": {name: numbers(e) for name, e in row.metrics.items()},
            }
            for row in self.table()
        ]
        return {
            "format": "gangwise-compare-1",
            "scenario": self.scenario.name,
            "family": self.scenario.family,
            "slots": self.slots,
            "seeds": list(self.seeds),
            "fidelity": self.fidelity,
            "ranked": not self.tied,
            "policies": policies,
            "comparators": [self._judge(name) for name in self.comparator_names],
            "version": gangwise.__version__,
        }

    def _judge(self, name: str) -> dict[str, Any]:
        by_seed = [self.comparators[name, s] for s in self.seeds]
        bounds = {b: float(np.mean([c.bounds[b] for c in by_seed])) for b in by_seed[0].bounds}
        return {
            "name": name,
            "mean_reward": finite(float(np.mean([c.rewards.mean() for c in by_seed]))),
            "relative_gap": finite(self.gap(name)),
            "slots_evaluated": int(by_seed[0].slots.size),
            "regret_bounds": finite(bounds),
        }

    def frame(self) -> pl.DataFrame:
        """Per-slot rewards and metrics of all runs, tidy: one row per policy, seed and slot."""
        return pl.concat(
            pl.DataFrame(
                {"slot": np.arange(run.slots), "reward": run.rewards, **run.metrics}
            ).select(pl.lit(policy).alias("policy"), pl.lit(seed).alias("seed"), pl.all())
            for (policy, seed), run in self.runs.items()
        )

    def files(self) -> dict[str, Content]:
        return {
            "rewards.parquet": self.frame().write_parquet,
            "summary.json": json.dumps(self.as_dict(), indent=2, allow_nan=False) + "\n",
        }

    def store(self, folder: Path | str) -> study_runs.Store:
        """Copy the runs into a folder, for ``gangwise report`` and :meth:`open`."""
        store, mine = study_runs.Store(folder), self.results.store
        # In its own folder all of it is there.
        if store.folder != mine.folder:
            with store.lock():
                store.write_plan(str(self.results.experiment["name"]), self.results.plan())
                # Runs that several cells share are written once; those that are there already are
                # the same.
                for key in {str(run["key"]): None for run in self.results.runs}:
                    if not store.finished(key):
                        store.write(key, mine.about(key), mine.rows(key))
        return store

    def write(self, folder: Path | str) -> list[Path]:
        """Write the runs, ``rewards.parquet`` and ``summary.json``; return where the two are.

        :func:`gangwise.write_report` makes a page of the folder. Raises StoreError where they
        cannot be written.
        """
        files = self.store(folder).files
        with files.publish(COMPARISON) as edition:  # in place of an earlier one, its page included
            for name, content in self.files().items():
                edition.write(name, content)
        return [files.place(name) for name in edition.staged]


def is_comparison(folder: Path, name: str) -> bool:
    """Whether an experiment in a folder of results has one cell and keeps every slot."""
    plan = study_runs.Store(folder).read_plan(name)
    return bool(plan["experiment"].get("every_slot")) and not any(r["cell"] for r in plan["runs"])


Policies = str | Sequence[str | Policy[Any, Any, Any]] | Mapping[str, str | Policy[Any, Any, Any]]


def compare(
    scenario: Scenario | study_runs.ScenarioSource | Path | str,
    policies: Policies | None = None,
    slots: int | None = None,
    seeds: Sequence[int] | int = 5,
    comparators: Sequence[str] | None = None,
    optimum_slots: int | None = 200,
    out: study_runs.Store | Path | str | None = None,
    *,
    progress: Progress | None = None,
    jobs: int = 1,
    name: str = COMPARISON,
) -> Comparison:
    """Run policies on the instances of a scenario.

    Parameters
    ----------
    scenario : Scenario, path or str
        A scenario, or what :func:`gangwise.study.runs.named_source` takes.
    policies : str, sequence of str or Policy, or mapping of names to policies, optional
        Names may carry arguments, ``"ogasched-react:steps=5"``, and may be separated by commas in
        one text; ``"mine.py:MyPolicy"`` is a class in a file. By default all of the family.
    slots : int, optional
        Slots per run; by default the scenario's own number.
    seeds : sequence of int, or int
        One instance, one sequence of arrivals and one run of every policy per seed, or how many.
    comparators : sequence of str, optional
        By default all of the family; those that solve a programme per slot are evaluated on at
        most ``optimum_slots`` slots.
    out : path or Store, optional
        A folder of results for the experiment ``name``. What was played there before is not played
        again; a run that was stopped goes on where it was.
    progress : callable, optional
        ``progress(what, done, of)``, in slots of all runs.
    jobs : int
        Workers; −1 for all cores, 0 for as many as this is worth. The numbers are the same. What
        does not pickle, and policies of ``__main__``, are played in this process.

    Raises
    ------
    ScenarioError
        When a policy belongs to another family, or nothing is left to compare.
    Interrupted
        On Ctrl-C; the run in hand is saved if there is a folder.

    Examples
    --------
    >>> comparison = compare("ogasched-default-v1:servers=16", ["drf", "fairness"], 20, [0, 1])
    >>> len(comparison.runs), comparison.table()[0].policy
    (4, 'drf')
    """
    source = _source(scenario)
    drawn_from, listed = source.scenario(), require_seeds(seeds)
    named = _named(policies, drawn_from)
    slots = drawn_from.slots if slots is None else _count("slots", slots)
    if slots < 1 or not listed:
        raise ScenarioError(f"nothing to run: {slots} slots and {len(listed)} seeds")
    if optimum_slots is not None and _count("optimum_slots", optimum_slots) < 1:
        raise ScenarioError(f"the optimum needs at least one slot; got {optimum_slots}")
    # On the first instance, before anything is played.
    judges = _judges(comparators, study_runs.RunSpec(source, {}, listed[0], slots))
    everyone = [(label, policy) for label, (_, policy) in named.items()]
    # Seed by seed, so that a comparison that is stopped has whole pairs.
    specs = [
        study_runs.RunSpec(
            source, {}, seed, slots, optimum_slots, 150, label, policy, every_slot=True
        )
        for seed in listed
        for label, policy in [*everyone, *((judge, None) for judge in judges)]
    ]
    experiment = {"name": name, **source.asked}
    experiment |= {"policies": [text for text, _ in named.values()], "seeds": list(listed)}
    experiment |= {"slots": slots, "comparators": judges}
    experiment |= {"optimum_slots": optimum_slots, "points": 150, "every_slot": True}
    # Starting workers takes longer than so few slots.
    jobs = jobs if jobs != AUTO else 1 if slots * len(specs) <= FEW_SLOTS else -1
    workers, store = Workers(jobs), study_runs.store_of(out)
    results = perform(experiment, specs, store, workers, progress, slotwise=True)
    return Comparison(results, drawn_from)


def _source(scenario: Any) -> study_runs.ScenarioSource:
    source: study_runs.ScenarioSource = scenario
    if isinstance(scenario, type):
        raise ScenarioError(
            f"{scenario.__name__} is a class; give a scenario, {scenario.__name__}()"
        )
    if isinstance(scenario, str | Path):
        source = study_runs.named_source(str(scenario), {})
    elif not isinstance(scenario, study_runs.ScenarioSource):
        if not hasattr(scenario, "instance"):
            raise ScenarioError(f"{scenario!r} is no scenario; give the name of one, or an object")
        source = study_runs.GivenSource(scenario)
    # A replay has jobs and schedulers; policies of slots could only fail in it.
    if isinstance(source.scenario(), study_runs.Replay):
        raise ScenarioError(
            f"{scenario if isinstance(scenario, str | Path) else source.name} is a replay of jobs, "
            "not of slots with policies: use gangwise replay"
        )
    return source


def _judges(comparators: Sequence[str] | None, first: study_runs.RunSpec) -> list[str]:
    if isinstance(comparators, str):
        raise ScenarioError(f"comparators is {comparators!r}; give a list of names")
    if comparators is None:
        # All seeds have the same comparators, so that the first says which.
        comparators = first.source.instance(first.seed).comparators
    check_names(first, comparators, ())
    return list(comparators)


def _named(policies: Any, scenario: Scenario) -> dict[str, tuple[str, Policy[Any, Any, Any]]]:
    if policies is None:
        registered = entries("policy").items()
        # Those of the family; others could not play it.
        policies = [name for name, entry in registered if entry.family == scenario.family]
    elif isinstance(policies, str):
        policies = names_of(policies)
    pairs = policies.items() if isinstance(policies, Mapping) else ((None, p) for p in policies)
    named: dict[str, tuple[str, Policy[Any, Any, Any]]] = {}
    for label, entry in pairs:
        policy: Any = create("policy", entry) if isinstance(entry, str) else entry
        # A class has these methods as well, and would fail only when a run starts.
        if isinstance(policy, type):
            kind = policy.__name__
            raise ScenarioError(f"{kind} is a class; give a policy with its arguments, {kind}()")
        if not all(hasattr(policy, part) for part in ("start", "decide", "learn", "timing")):
            raise ScenarioError(
                f"{policy!r} is no policy: it needs start, decide, learn and timing; see "
                "docs/how-to/own-policy.md"
            )
        text = entry if isinstance(entry, str) else type(policy).__name__
        label = str(label_of(text) if label is None else label)
        if len(label) > MOST_LETTERS:
            raise ScenarioError(
                f"a policy's name has {len(label)} letters; it may have {MOST_LETTERS}"
            )
        if label in named:
            raise ScenarioError(f"policy {label!r} is named twice; give a mapping of names instead")
        named[label] = text if isinstance(entry, str) else label, policy
    if not named:
        raise ScenarioError("no policies to compare")
    return named


def _count(what: str, value: Any) -> int:
    # numpy's whole numbers have it, too; so has True.
    if not hasattr(value, "__index__") or isinstance(value, bool):
        raise ScenarioError(f"{what} is {value!r}; it must be a whole number")
    return int(value)

"""Replays: the jobs of a log under schedulers, seed by seed, and what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.isolation import apart
from gangwise.core.json_text import finite
from gangwise.core.limits import require_seeds
from gangwise.core.registry import label_of, names_of
from gangwise.experiments.output import difference, numbers
from gangwise.experiments.replay_scenario import TWIN, ReplayScenario, stored_outcome
from gangwise.experiments.results import Results, Shown
from gangwise.experiments.runs import PLAN, GivenSource, NamedSource, Rows, RunSpec, played_in
from gangwise.experiments.statistics import mean_and_interval
from gangwise.experiments.store import MemoryStore, Store
from gangwise.experiments.sweep import Progress, Workers, perform
from gangwise.jobs.bounds import LowerBound
from gangwise.jobs.isolation import IsolatedScheduler
from gangwise.jobs.metrics import Outcome

NAME = "replay"
"""Of the experiment, in a folder."""

BASE = "fcfs+easy+best-fit"
"""What others are compared with."""

WITHOUT_RATES = (
    BASE,
    "fcfs+none+first-fit",
    "fcfs+conservative+best-fit:depth=100",
    "sjf+easy+best-fit",
    "wfp3+easy+best-fit",
    "fair-share+easy+best-fit",
)
"""Compared where a job takes as long on every node."""

WITH_RATES = ("fcfs+easy+label", BASE, "fcfs+easy+ucb", "fcfs+easy+learned", "fcfs+easy+oracle")
"""Compared where nodes have rates: with what trusts the labels."""


@dataclass(frozen=True, eq=False, repr=False)
class Replayed(Shown):
    """Results of a replay: a view on the one kind of result.

    Attributes
    ----------
    scenario : ReplayScenario
    results : Results
    seeds : sequence of int
    schedulers : sequence of str
    """

    scenario: ReplayScenario
    results: Results
    seeds: Sequence[int]
    schedulers: Sequence[str]

    @classmethod
    def open(cls, folder: Store | Path | str, name: str = NAME) -> Replayed:
        """The replay in a folder of results.

        Raises
        ------
        StoreError
            When there is none; with the source's own error where its files are gone.
        """
        results = Results.open(folder, name)
        asked = results.experiment
        scenario = NamedSource.of("replay", False, asked["settings"]).scenario()
        if not isinstance(scenario, ReplayScenario) or scenario.describe()["digest"] != asked.get(
            "digest", scenario.describe()["digest"]
        ):
            raise StoreError(
                f"{folder}: {asked['settings'].get('source')} holds other jobs than were replayed"
            )
        seeds = list(dict.fromkeys(run["seed"] for run in results.runs))
        done = {(run["label"], run["seed"]) for run in results.runs}
        whole = [p for p in results.policies if all((p, seed) in done for seed in seeds)]
        if not whole:
            raise StoreError(f"{folder}: no scheduler has been replayed with every seed yet")
        return cls(scenario, results, seeds, whole)

    @property
    def headline(self) -> str:
        """What was played of which log."""
        return "\n".join([*self.scenario.fidelity(), "hours, means over seeds"])

    def to_polars(self) -> pl.DataFrame:
        """Means over seeds, in hours, least completion time first.

        Columns: ``scheduler``; ``waiting``, ``waiting.p95``, ``completion``, ``completion.p95``;
        ``slowdown``, bounded.
        """
        rows = []
        for name, each in self.outcomes.items():
            found = [outcome.summary() for outcome in each]
            mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
            rows.append(
                {
                    "scheduler": name,
                    "waiting": mean["waiting.mean"] / 3600,
                    "waiting.p95": mean["waiting.p95"] / 3600,
                    "completion": mean["completion.mean"] / 3600,
                    "completion.p95": mean["completion.p95"] / 3600,
                    "slowdown": mean["slowdown.mean"],
                }
            )
        return pl.DataFrame(rows).sort("completion")

    def jobs(self) -> pl.DataFrame:
        """What became of each job: a row for each, under each scheduler, with each seed.

        Columns: ``scheduler``, ``seed``, those of the jobs, ``start``, ``last_start``, ``end``,
        ``waiting``, ``completion`` (seconds), ``lost`` (device-seconds).
        """
        parts = [
            outcome.to_polars().insert_column(1, pl.Series("seed", [seed] * len(outcome.jobs)))
            for each in self.outcomes.values()
            for seed, outcome in zip(self.seeds, each)
        ]
        return pl.concat(parts, how="diagonal_relaxed")

    def rows(self, scheduler: str, seed: int) -> Rows:
        """The rows of one run."""
        key = next(
            run["key"]
            for run in self.results.runs
            if run["label"] == scheduler and run["seed"] == seed
        )
        return self.results.store.rows(key)

    @cached_property
    def outcomes(self) -> dict[str, list[Outcome]]:
        """By scheduler, one for each seed."""
        played = {seed: self.scenario.draw(seed) for seed in self.seeds}
        return {
            name: [stored_outcome(self.rows(name, s), name, played[s]) for s in self.seeds]
            for name in self.schedulers
        }

    def learned(self) -> dict[str, tuple[Floats, Floats, list[tuple[str, float, float, float]]]]:
        """By scheduler: mean and sd of log rates [L, N] of the first seed, and slow nodes."""
        played = self.scenario.draw(self.seeds[0])
        shape = (len(played.jobs.types), len(played.nodes))
        found = {}
        for name in self.schedulers:
            columns = {n: v for n, (_, v) in self.rows(name, self.seeds[0]).columns().items()}
            if "learned.mean" in columns:
                slow = [
                    (played.nodes.names[int(n)], float(s), float(low), float(high))
                    for n, s, low, high in zip(
                        *(columns.get(f"slow.{k}", NONE) for k in ("node", "slower", "low", "high"))
                    )
                ]
                found[name] = (
                    columns["learned.mean"].reshape(shape),
                    columns["learned.sd"].reshape(shape),
                    slow,
                )
        return found

    def true_rates(self) -> Floats | None:
        """Rates [L, N] of the first seed when the last job was submitted, None where all are 1."""
        played = self.scenario.draw(self.seeds[0])
        hidden, last = played.conditions, float(played.jobs.submit.max())
        if hidden.rates is None:
            return None
        factor = np.ones(len(played.nodes))
        for time, n, value in sorted(hidden.factors):
            if time <= last:
                factor[n] = value
        return np.asarray(np.asarray(hidden.rates) * factor)

    def bounds(self, steps: int = 200, progress: Progress | None = None) -> list[LowerBound]:
        """Certified lower bounds on the mean completion time, one for each seed."""
        found = []
        for i, seed in enumerate(self.seeds):
            if progress is not None:
                progress("lower bound", i, len(self.seeds))
            least = min(each[i].summary()["completion.mean"] for each in self.outcomes.values())
            found.append(self.scenario.bound(seed, least, steps))
        if progress is not None:
            progress("lower bound", len(self.seeds), len(self.seeds))
        return found

    def as_dict(self) -> dict[str, Any]:
        """What ``--json`` prints: :class:`~gangwise.experiments.output.ReplayOutput`.

        Means and intervals over seeds, and differences from the first scheduler paired by seed.
        """
        summaries = {
            name: [outcome.summary() for outcome in each] for name, each in self.outcomes.items()
        }
        base = self.schedulers[0]
        schedulers = []
        for name, each in summaries.items():
            values = {key: np.array([summary[key] for summary in each]) for key in each[0]}
            theirs = {
                key: np.array([summary[key] for summary in summaries[base]]) for key in values
            }
            found = {key: numbers(mean_and_interval(of)) for key, of in values.items()}
            over = {
                "than": base,
                "metrics": {key: difference(values[key], theirs[key]) for key in values},
            }
            schedulers.append(
                {
                    "name": name,
                    "metrics": {key: of["mean"] for key, of in found.items()},
                    "intervals": found,
                    "over": None if name == base else over,
                }
            )
        recorded, happened = None, None
        if not self.scenario.drawn:
            first = self.scenario.draw(self.seeds[0])
            happened = Outcome.recorded(first.jobs, first.nodes)
        if happened is not None:
            recorded = {k: finite(v) for k, v in happened.summary().items()}
        return {
            "format": "gangwise-replay-1",
            "version": gangwise.__version__,
            "scenario": self.scenario.describe(),
            "fidelity": self.scenario.fidelity(),
            "assumed": self.scenario.assumed(),
            "seeds": list(self.seeds),
            "as_it_happened": recorded,
            "schedulers": schedulers,
        }


NONE = np.zeros(0)


def replay_source(source: Path | str, settings: Mapping[str, Any]) -> NamedSource:
    """The scenario of a replay, from what it is of.

    Parameters
    ----------
    source : path or str
        A trace's folder or file, an .swf, a cluster file, ``twin:NAME``; the folder of an earlier
        replay, for the same jobs under the same rules.
    settings : mapping
        Of :class:`Settings`; in place of those of the earlier replay.

    Raises
    ------
    ScenarioError
        For a folder of results that are no replay.
    """
    folder = Path(source)
    if not any(folder.glob(f"*{PLAN}")):
        return NamedSource.of("replay", False, {"source": str(source), **settings})
    found = played_in(folder, settings)
    if found.name != "replay":
        raise ScenarioError(
            f"{folder} holds results of {found.name}, which are no replay of jobs: use gangwise "
            "compare"
        )
    return found


def replay(
    scenario: ReplayScenario | NamedSource | Path | str = TWIN,
    schedulers: str | Sequence[str] | Mapping[str, Any] = (),
    seeds: Sequence[int] | int = (),
    out: Store | Path | str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    isolated: bool = False,
    **settings: Any,
) -> Replayed:
    """Play the jobs of a log under schedulers.

    Parameters
    ----------
    scenario : ReplayScenario, NamedSource, path or str
        A scenario; or what :func:`replay_source` makes one of: a trace's folder or file,
        ``twin:NAME``, the folder of an earlier replay.
    schedulers : str, sequence of str, or mapping of names to schedulers
        Names, which may be separated by commas in one text.
        By default :data:`WITH_RATES` in a drawn world, else :data:`WITHOUT_RATES`.
    seeds : sequence of int, or int
        A number alone says how many. By default 0 to 4 in a drawn world, else 0: nothing is drawn.
    out : path, optional
        A folder of results; what was played there before is not played again.
    jobs : int
        Workers, −1 for all cores.
    isolated : bool
        Play schedulers that gangwise does not bring in processes of their own, which see queue,
        books and rates only: see :mod:`gangwise.core.isolation`.
    **settings
        Of :class:`Settings`.

    Examples
    --------
    >>> found = replay("twin:alibaba-gpu-v2023", ["fcfs+easy+best-fit", "fcfs"], first=100)
    >>> [len(each) for each in found.outcomes.values()]
    [1, 1]
    """
    source: Any = scenario
    if isinstance(scenario, str | Path):
        source = replay_source(scenario, settings)
    elif settings:
        raise ScenarioError(
            f"{', '.join(settings)}: a scenario that is made already has its settings; give them "
            "to it, or give the log in its place"
        )
    elif isinstance(scenario, ReplayScenario):
        source = GivenSource(scenario)  # type: ignore[arg-type]  # a Replay, not slots
    elif not isinstance(scenario, NamedSource):
        raise ScenarioError(
            f"{scenario!r} is no log to replay; give its folder or file, or a ReplayScenario"
        )
    played: ReplayScenario = source.scenario()
    drawn = played.drawn
    names = names_of(schedulers) if isinstance(schedulers, str) else schedulers
    names = names or (WITH_RATES if drawn else WITHOUT_RATES)
    listed = list(require_seeds(seeds or (5 if drawn else 1)))
    called = names if isinstance(names, Mapping) else {label_of(name): name for name in names}
    made = {
        label: apart(IsolatedScheduler, "scheduler", each, isolated)
        for label, each in called.items()
    }
    specs = [
        RunSpec(source, {}, seed, 1, None, 1, label, scheduler)
        for seed in listed
        for label, scheduler in made.items()
    ]
    asked = {
        "name": NAME,
        "scenario": "replay",
        "settings": played.given,
        "digest": played.describe()["digest"],
        "policies": list(made),
        "seeds": listed,
        "slots": 1,
        "objective": played.objective,
        "minimise": True,
    }
    store = out if isinstance(out, Store) else MemoryStore() if out is None else Store(Path(out))
    results = perform(asked, specs, store, Workers(jobs), progress)
    return Replayed(played, results, listed, list(made))

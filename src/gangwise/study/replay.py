"""Replays: the jobs of a log under schedulers, seed by seed, and what came of them.

The leaderboard is replays of public logs under the rules in ``leaderboard.toml``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import gangwise
from gangwise.core import arrays, contracts
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError
from gangwise.core.registry import label_of, names_of
from gangwise.core.settings import finite, read_toml, require_seeds
from gangwise.jobs.audit import Audit, audit
from gangwise.jobs.bounds import MOST_PRICED, NO_BOUNDS, Certified, LowerBound
from gangwise.jobs.choice import SlowNode
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.schedule import refuses_groups
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.waiting import WaitingCauses, placed_as_recorded, waiting_causes
from gangwise.sites.site import PRINTED, together
from gangwise.study import answer, runs
from gangwise.study.replay_scenario import TWIN, ReplayScenario, stored_outcome
from gangwise.study.results import PrintedTable, Results
from gangwise.study.statistics import difference, numbers
from gangwise.study.sweep import Progress, Workers, cores, perform, silent

NAME = "replay"  # of the experiment, in a folder of results

STEPS = 200  # steps of the search for the prices of a lower bound
BASE = "fcfs+easy+best-fit"  # the scheduler that others are compared with
AUDITED = 20_000  # results of at most so many jobs, over all seeds, are audited
INSTANTS = 100  # at which a scheduler's queues are audited, over all seeds

WITHOUT_RATES = (
    BASE,
    "fcfs+none+first-fit",
    "fcfs+conservative+best-fit:depth=100",
    "sjf+easy+best-fit",
    "fair-share+easy+best-fit",
    "fcfs+easy+best-fit:ends=learned",
    "aged+easy+best-fit:ends=learned",
)
"""Compared by default where a job takes as long on every node."""

WITH_RATES = ("fcfs+easy+label", BASE, "fcfs+easy+ucb", "fcfs+easy+learned", "fcfs+easy+oracle")
"""Compared by default where nodes have rates; the base is what trusts the labels."""


@dataclass(frozen=True, eq=False, repr=False)
class Replayed(PrintedTable):
    scenario: ReplayScenario
    results: Results
    seeds: Sequence[int]
    schedulers: Sequence[str]

    @classmethod
    def open(cls, folder: runs.Store | Path | str) -> Replayed:
        """The replay in a folder of results; raises StoreError where there is none."""
        results = Results.open(folder, NAME)
        experiment = results.experiment
        scenario = runs.NamedSource.of("replay", False, experiment["settings"]).scenario()
        # The log may have changed since it was played.
        digest = scenario.describe()["digest"]
        if not isinstance(scenario, ReplayScenario) or digest != experiment.get("digest", digest):
            source = experiment["settings"].get("source")
            raise StoreError(f"{folder}: {source} holds other jobs than were replayed")
        seeds = list(results.seeds)
        finished = {(run["label"], run["seed"]) for run in results.runs}
        # With every seed, since a comparison is paired by seed.
        complete = [p for p in results.policies if all((p, seed) in finished for seed in seeds)]
        if not complete:
            raise StoreError(f"{folder}: no scheduler has been replayed with every seed yet")
        return cls(scenario, results, seeds, complete)

    @property
    def headline(self) -> str:
        return "\n".join([*self.scenario.fidelity(), "hours, means over seeds"])

    def to_polars(self) -> pl.DataFrame:
        """Means over seeds, in hours, least completion first; who kills more comes behind.

        Columns: ``scheduler``; ``waiting``, ``waiting.p95``, ``completion``, ``completion.p95``;
        ``slowdown``, bounded; and what any scheduler has of :data:`gangwise.jobs.metrics.ENDINGS`:
        how many, and device-hours, such as ``killed`` and ``killed.gpu``.
        """
        compared = self.compared()
        means = {
            name: {key: compared.estimate(name, key).mean for key in summaries[0]}
            for name, summaries in compared.summaries.items()
        }
        hours = ("waiting.mean", "waiting.p95", "completion.mean", "completion.p95")
        rows = [
            {
                "scheduler": name,
                **{key.removesuffix(".mean"): mean[key] / 3600 for key in hours},
                "slowdown": mean["slowdown.mean"],
                **{key: mean[key] for key in answer.ending_keys(means.values())},
            }
            for name, mean in means.items()
        ]
        base = self.outcomes[compared.base]
        # Sorted first by who kills more: a shorter mean of fewer finished jobs is no better one.
        behind = [answer.kills_more(self.outcomes[name], base) for name in means]
        return pl.DataFrame(rows).sort(pl.Series(behind), "completion")

    def jobs(self) -> pl.DataFrame:
        """Fate of each job, under each scheduler, with each seed.

        Columns: ``scheduler``, ``seed``, those of the jobs, ``start``, ``last_start``, ``end``,
        ``waiting``, ``completion`` (seconds), ``lost`` (device-seconds), ``ended``: finished,
        killed, cancelled, unfinished or set aside.
        """
        parts = [
            outcome.to_polars().insert_column(1, pl.Series("seed", [seed] * len(outcome.jobs)))
            for outcomes in self.outcomes.values()
            for seed, outcome in zip(self.seeds, outcomes)
        ]
        return pl.concat(parts, how="diagonal_relaxed")

    def rows(self, scheduler: str, seed: int) -> runs.Rows:
        at = scheduler, seed
        key = next(run["key"] for run in self.results.runs if (run["label"], run["seed"]) == at)
        return self.results.store.rows(key)

    @cached_property
    def scenarios(self) -> dict[str, ReplayScenario]:
        """The scenario of each name in the results; a what-if changes settings of it."""
        changes = self.results.experiment.get("changes", {})
        return {
            name: self.scenario.changed(**changes[name]) if changes.get(name) else self.scenario
            for name in self.schedulers
        }

    def scheduler_of(self, name: str) -> str:
        return str(self.results.experiment.get("schedulers", {}).get(name, name))

    @cached_property
    def outcomes(self) -> dict[str, list[Outcome]]:
        """The outcomes of each scheduler, one for each seed."""
        return {
            name: [stored_outcome(self.rows(name, s), name, own.draw(s)) for s in self.seeds]
            for name, own in self.scenarios.items()
        }

    def audits(self, scheduler: str, instants: int = 2_000) -> list[Audit]:
        """The audits of a scheduler's runs, one for each seed.

        Of a scheduler without a name, only what always holds is looked at.
        """
        decider: Any = None
        # One that was made in Python has no name, by which its rules could be looked up.
        with suppress(GangwiseError):
            decider = create_scheduler(self.scheduler_of(scheduler))
        scenario = self.scenarios[scheduler]
        options = scenario.options
        return [
            audit(outcome, decider, scenario.draw(seed).conditions, options, None, instants)
            for seed, outcome in zip(self.seeds, self.outcomes[scheduler])
        ]

    @cached_property
    def causes(self) -> dict[str, WaitingCauses]:
        """Causes of waiting under each scheduler with the first seed; as recorded, if known."""
        causes, seed, scenario = {}, self.seeds[0], self.scenario
        for name, own in self.scenarios.items():
            with suppress(ScenarioError):  # stored by a version that did not keep where jobs ran
                outcome, hidden = self.outcomes[name][0], own.draw(seed).conditions
                causes[name] = waiting_causes(outcome, hidden, own.options)
        if scenario.as_logged and causes:
            jobs, nodes, hidden = scenario.draw(seed)
            log, recorded = scenario.log, Outcome.recorded(jobs, nodes)
            # Node lists are by job of the log, and fit where all of them are played.
            hosts = (log.host_from, log.host) if len(log.jobs) == len(jobs) else (None, None)
            if recorded is not None and (recorded.waiting[recorded.queued] > 0).any():
                with suppress(ScenarioError):
                    placed = placed_as_recorded(recorded, *hosts)
                    causes[answer.HAPPENED] = waiting_causes(placed, hidden, scenario.options)
        return causes

    def learned(self) -> dict[str, answer.LearnedRates]:
        """Rates that schedulers had learned by the end of the first seed.

        True rates [L, N] are those at the last submission.
        """
        jobs, nodes, hidden = self.scenario.draw(self.seeds[0])
        true, rates, shape = None, {}, (len(jobs.types), len(nodes))
        if hidden.rates is not None:
            factor = np.ones(len(nodes))
            # In the order of time, so that the last change before the last submission stays.
            for time, n, value in sorted(hidden.factors):
                if time <= float(jobs.submit.max()):
                    factor[n] = value
            true = np.asarray(hidden.rates) * factor
        for name in self.schedulers:
            columns = {n: v for n, (_, v) in self.rows(name, self.seeds[0]).items()}
            if "learned.mean" in columns:
                # Columns that an older run lacks are empty, and name no slow node.
                cols = (columns.get(f"slow.{k}", ()) for k in ("node", "slower", "low", "high"))
                slow = [SlowNode(nodes.names[int(n)], *map(float, ends)) for n, *ends in zip(*cols)]
                mean, sd = (columns[f"learned.{cols}"].reshape(shape) for cols in ("mean", "sd"))
                rates[name] = answer.LearnedRates(jobs.types, mean, sd, true, slow)
        return rates

    def bounds(
        self, steps: int | None = None, progress: Progress | None = None
    ) -> list[LowerBound]:
        """Certified lower bounds on the mean completion time, one for each seed.

        By default prices are searched in 200 steps, and not at all for more than
        :data:`~gangwise.jobs.bounds.MOST_PRICED` jobs.
        """
        if steps is None:
            steps = STEPS if len(self.outcomes[self.schedulers[0]][0].jobs) <= MOST_PRICED else 0
        advance, count = progress or silent, len(self.seeds)
        if count == 1:
            seed, every = self.seeds[0], steps or 1
            advance("lower bound", 0, every)
            return [self.scenario.bound(seed, steps, lambda n: advance("lower bound", n, every))]
        advance("lower bound", 0, count)
        bounds: list[LowerBound] = []
        # Threads, since compiled code holds no lock of the interpreter.
        with ThreadPool(min(cores(), count)) as pool:
            for bound in pool.imap(lambda seed: self.scenario.bound(seed, steps), self.seeds):
                bounds.append(bound)
                advance("lower bound", len(bounds), count)
        return bounds

    @cache  # noqa: B019 - lives as long as one replay
    def _compared(self, bounds: Certified) -> answer.Compared:
        scenario = self.scenario
        return answer.Compared(
            str(scenario.describe()["source"]),
            self.outcomes,
            self.results.experiment.get("rules", ""),
            scenario.drawn,
            scenario.as_logged,
            bounds,
            self.learned(),
            scenario.not_modelled,
            scenario.partition,
            scenario.units,
        )

    def compared(self, bounds: Certified = NO_BOUNDS) -> answer.Compared:
        return self._compared(bounds)  # one answer, whether the default is given or left out

    def as_dict(self, bounds: Certified = NO_BOUNDS) -> dict[str, Any]:
        """Content of ``--json``: see docs/results.schema.json.

        Means and intervals over seeds, and paired differences from the base; those of
        completion and slowdown on the jobs that did their work under both.
        """
        compared = self.compared(bounds)
        happened, schedulers = compared.happened, []
        # An audit goes through all instants; of a million jobs it takes longer than the replay.
        large = len(self.scenario.draw(self.seeds[0]).jobs) * len(self.seeds) > AUDITED
        for name in self.schedulers:
            # So many instants over all seeds together.
            reports = [] if large else self.audits(name, -(-INSTANTS // len(self.seeds)))
            audited = {key: sum(getattr(r, key) for r in reports) for key in ("starts", "instants")}
            audited["findings"] = sum(sum(report.counts.values()) for report in reports)
            own = {"audited": None if large else audited, "waiting_causes": self._causes(name)}
            schedulers.append(_scheduler(compared, name) | own)
        return {
            "format": "gangwise-replay-2",
            "version": gangwise.__version__,
            "scenario": self.scenario.describe(),
            "fidelity": self.scenario.fidelity(),
            "assumed": self.scenario.assumed(),
            "seeds": list(self.seeds),
            "answer": compared.as_dict(),
            "as_it_happened": None if happened is None else finite(happened.summary()),
            "schedulers": schedulers,
            "lower_bounds": list(bounds.values),
            "preemptive_lower_bounds": list(bounds.preemptive),
            "prices_searched": bool(bounds.values) and bounds.priced,
        }

    def _causes(self, name: str) -> dict[str, Any] | None:
        if name not in self.causes:
            return None
        compared = self.compared()
        k = compared.first.nodes.devices.index(compared.device)
        return answer.as_dict(self.causes[name], self.outcomes[name][0], k)


def _scheduler(compared: answer.Compared, name: str) -> dict[str, Any]:
    keys, over = list(compared.summaries[name][0]), None
    estimates = {key: numbers(compared.estimate(name, key)) for key in keys}
    if name != compared.base:
        differences = {key: difference(*compared.pair(name, key)) for key in keys}
        # Their intervals are over stretches of time, as in the answer.
        for key in answer.BY_BLOCKS if compared.blocks is not None else ():
            differences[key] |= numbers(compared.change(name, key))
        over = {"than": compared.base, "jobs": compared.paired(name)[1], "metrics": differences}
    return {
        "name": name,
        "metrics": {key: estimate["mean"] for key, estimate in estimates.items()},
        "intervals": estimates,
        "over": over,
    }


def replay_source(source: Path | str, settings: Mapping[str, Any]) -> runs.NamedSource:
    """The scenario of a replay: of a log, or of the folder of an earlier replay.

    ``settings`` are those of :class:`~gangwise.study.replay_scenario.ReplaySettings`, and
    replace those of the earlier replay. Raises ScenarioError for results of something else.
    """
    folder = Path(source)
    if settings.get("nodes") == 0:  # the default, which no one types to ask for it
        raise ScenarioError("nodes=0: a cluster has nodes; leave it out to play the log's own")
    if settings.get("load") == 0:
        raise ScenarioError("load=0: no job would come; leave it out to play the log's own")
    if not any(folder.glob(f"*{runs.PLAN}")):
        return runs.NamedSource.of("replay", False, {"source": str(source), **settings})
    played = runs.played_in(folder, settings)
    if played.name != "replay":
        raise ScenarioError(
            f"{folder} holds results of {played.name}, which are no replay of jobs: use gangwise "
            "compare"
        )
    return played


def replay(
    scenario: ReplayScenario | runs.NamedSource | Path | str = TWIN,
    schedulers: str | Sequence[str] | Mapping[str, Any] = (),
    seeds: Sequence[int] | int = (),
    out: runs.Store | Path | str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
    rules: str = "",
    **settings: Any,
) -> Replayed:
    """Play the jobs of a log under schedulers.

    Parameters
    ----------
    scenario : ReplayScenario, NamedSource, path or str
        A scenario; a trace's folder or file, an .swf, a cluster file, ``twin:NAME``; or the folder
        of an earlier replay, for the same jobs under the same rules.
    schedulers : str, sequence of str, or mapping of names to schedulers
        Names, which may be separated by commas in one text.
        By default :data:`WITH_RATES` in a drawn world, else :data:`WITHOUT_RATES`.
    seeds : sequence of int, or int
        A number alone says how many. By default 0 to 4 in a drawn world (parts that
        there are), else 0: nothing is drawn.
    out : path, optional
        A folder of results; what was played there before is not played again.
    jobs : int
        Workers, −1 for all cores.
    rules : str
        The scheduler that was in force; played too, and the others are compared with it. By
        default the plain one that explains most of the recorded waits. With ``slurm:FOLDER``, the
        one that the folder's configuration describes; its other rules hold for all.
    **settings
        Of :class:`~gangwise.study.replay_scenario.ReplaySettings`.

    Examples
    --------
    >>> found = replay("twin:alibaba-gpu-v2023", ["fcfs+easy+best-fit", "fcfs"], first=100)
    >>> [len(each) for each in found.outcomes.values()]
    [1, 1]
    """
    # What Slurm prints is both: the rules of the site, and the scheduler in force.
    if rules.startswith(PRINTED) and isinstance(scenario, str | Path):
        settings = {**settings, "site": together(rules, settings.get("site"))}
    source = _source(scenario, settings)
    (progress or silent)("reading the log", 0, 1)
    played: Any = source.scenario()
    if rules.startswith(PRINTED):
        rules = played.site.scheduler if played.site is not None else ""
    names = names_of(schedulers) if isinstance(schedulers, str) else schedulers
    if not names:
        names = WITH_RATES if played.drawn else WITHOUT_RATES
        if rules:  # under another name they are played once
            parts = cache(lambda name: repr(contracts.configuration(create_scheduler(name))))
            names = [name for name in names if parts(name) != parts(rules)]
    listed = seeds_of(played, seeds)
    called = names if isinstance(names, Mapping) else {label_of(name): name for name in names}
    if rules and label_of(rules) not in called:
        # First, as tables begin with the base.
        called = {label_of(rules): rules, **called}
    by_label = {label: create_scheduler(scheduler) for label, scheduler in called.items()}
    about = {"rules": label_of(rules)} if rules else {}
    return played_by(source, by_label, listed, out, Workers(jobs), progress, about)


def seeds_of(played: ReplayScenario, seeds: Sequence[int] | int) -> list[int]:
    """Seeds that are played; ScenarioError for several where all would play the same."""
    # A seed of a log in parts is the number of a part.
    usual = min(5, played.settings.parts or 5) if played.drawn else 1
    listed = list(require_seeds(seeds or usual))
    played.require_drawn(listed)
    return listed


def played_by(
    source: runs.NamedSource | runs.GivenSource,
    schedulers: Mapping[str, Any],
    seeds: Sequence[int],
    out: runs.Store | Path | str | None,
    workers: Workers,
    progress: Progress | None,
    about: Mapping[str, Any],
) -> Replayed:
    """Play schedulers by name; ``about`` goes into the plan.

    It may have ``changes``: by name, settings with which that one is played.
    """
    played: Any = source.scenario()
    own: dict[str, Any] = {}
    if played.cluster is None and played.jobs.grouped.any():  # all are compared on the same jobs
        names = [refuses_groups(create_scheduler(decider)) for decider in schedulers.values()]
        if any(names):
            own = {"unlike": " and ".join(dict.fromkeys(filter(None, names)))}
            played = source.changed(own).scenario()
    varied = about.get("changes", {})
    sources = {
        name: source.changed(changes) if (changes := own | varied.get(name, {})) else source
        for name in schedulers
    }
    # Seed by seed, so that a replay that was stopped has whole pairs.
    specs = [
        runs.RunSpec(sources[name], {}, seed, 1, None, 1, name, scheduler)
        for seed in seeds
        for name, scheduler in schedulers.items()
    ]
    experiment = {
        "name": NAME,
        "scenario": "replay",
        "settings": played.given,
        "digest": played.describe()["digest"],
        "policies": list(schedulers),
        "seeds": list(seeds),
        "slots": 1,
        "objective": played.objective,
        "minimise": True,
        **about,
    }
    results = perform(experiment, specs, runs.store_of(out), workers, progress)
    return Replayed(played, results, seeds, list(schedulers))


def _source(scenario: Any, settings: Mapping[str, Any]) -> runs.NamedSource | runs.GivenSource:
    if isinstance(scenario, str | Path):
        return replay_source(scenario, settings)
    if settings:
        raise ScenarioError(
            f"{', '.join(settings)}: a scenario that is made already has its settings; give them "
            "to it, or give the log instead"
        )
    if isinstance(scenario, ReplayScenario):
        return runs.GivenSource(scenario)  # type: ignore[arg-type]  # a Replay, not slots
    if not isinstance(scenario, runs.NamedSource):
        raise ScenarioError(
            f"{scenario!r} is no log to replay; give its folder or file, or a ReplayScenario"
        )
    return scenario


def audited(folder: Path) -> dict[str, Audit | str]:
    """An audit of every run of the replay in a folder, or why there is none."""
    if NAME not in runs.Store(folder).plans():
        return {}
    try:
        replayed = Replayed.open(folder)
    except GangwiseError as error:
        return {NAME: f"not audited: {error}"}
    return {
        f"{name}, seed {seed}": report
        for name in replayed.schedulers
        for seed, report in zip(replayed.seeds, replayed.audits(name))
    }


RULES = Path(__file__).with_name("leaderboard.toml")

TUNED = "tuned on the other logs"

METRICS = ("completion.mean", "waiting.mean", "slowdown.mean", "worst users")
"""What the leaderboard keeps of every entry, besides its gap to the bound."""


@dataclass(frozen=True)
class Leaderboard:
    """The results of every entry on every part of every log.

    ``numbers`` are by log, entry and metric, one for each part; ``lines`` say how much of a log is
    played, ``chosen`` which of the rules' ``tuned`` was best on the other logs.
    """

    rules: Mapping[str, Any]
    lines: Mapping[str, str]
    numbers: Mapping[str, Mapping[str, Mapping[str, arrays.Floats]]]
    chosen: Mapping[str, str]

    def ratio(self, entry: str, over: str = "") -> arrays.Floats:
        """Completion over the bound, or over another entry's, geometric mean over logs [parts]."""
        logs = [
            # A gap is completion over the bound, less 1.
            np.log1p(entries[entry]["gap"]) - (np.log1p(entries[over]["gap"]) if over else 0.0)
            for entries in self.numbers.values()
        ]
        return np.asarray(np.exp(np.mean(logs, axis=0)))

    @property
    def ranked(self) -> list[str]:
        """The entries that have a row, least completion over the bound first."""
        entries = next(iter(self.numbers.values()))
        hidden = set(self.rules["tuned"]) - {*self.rules["schedulers"]}
        shown = [entry for entry in entries if entry not in hidden]
        return sorted(shown, key=lambda entry: float(np.log(self.ratio(entry)).mean()))

    def as_dict(self) -> dict[str, Any]:
        mean = {
            log: {name: {m: float(v.mean()) for m, v in row.items()} for name, row in rows.items()}
            for log, rows in self.numbers.items()
        }
        return {"format": "gangwise-leaderboard-1", "ranked": self.ranked, "means": mean}

    @property
    def about(self) -> str:
        return (
            f"{len(self.numbers)} logs, each cut into {self.rules['parts']} parts of whole weeks "
            "that begin with an empty cluster; ± is half a 95 % interval over parts. Nodes of a "
            "log are alike, and no job is killed at its limit."
        )

    def log_lines(self) -> Iterator[tuple[str, str]]:
        """Lines of each log: how much of it is played, and the entry tuned on the others."""
        for log in self.numbers:
            [about] = [rule["about"] for rule in self.rules["logs"] if rule["name"] == log]
            text = f"{about}. {self.lines[log]}. {TUNED.capitalize()}: `{self.chosen[log]}`."
            yield log, f"{text[0].upper()}{text[1:]}"


def leaderboard(
    traces: Path,
    out: Path,
    own: Sequence[str] = (),
    workers: Workers | None = None,
    progress: Progress | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Leaderboard:
    """Play what is not played yet, each log in a folder of its own below ``out``.

    ``traces`` is the folder with the folders of public traces, ``own`` are further entries by name;
    ``rules`` stand in for ``leaderboard.toml``.
    """
    rules = read_toml(RULES) if rules is None else rules
    listed = [rules["base"], *rules["schedulers"], *rules["oracles"], *rules["tuned"], *own]
    seeds = range(rules["parts"])
    numbers: dict[str, dict[str, dict[str, arrays.Floats]]] = {}
    lines: dict[str, str] = {}
    for log in rules["logs"]:
        settings = {**log["settings"], "parts": rules["parts"]}
        settings["source"] = str(traces / settings["source"])
        if not Path(settings["source"]).exists():
            raise ScenarioError(f"there is no {settings['source']}; name the folder above it")
        schedulers = {label_of(name): create_scheduler(name) for name in listed}
        source = runs.NamedSource.of("replay", False, settings)
        replayed = played_by(
            source, schedulers, seeds, out / log["name"], workers or Workers(), progress, {}
        )
        numbers[log["name"]] = _numbers(replayed)
        lines[log["name"]] = replayed.scenario.fidelity()[0]
    ratio = {
        (name, e): float(np.log1p(entries[e]["gap"]).mean())
        for name, entries in numbers.items()
        for e in rules["tuned"]
    }
    # Leave one log out: what is tuned for a log is chosen on all others, and never sees it.
    chosen = {}
    for name, entries in numbers.items():
        other_logs = [log for log in numbers if log != name]  # in order: sums round alike
        chosen[name] = min(rules["tuned"], key=lambda e: sum(ratio[o, e] for o in other_logs))
        entries[TUNED] = entries[chosen[name]]
    return Leaderboard(rules, lines, numbers, chosen)


def _numbers(replayed: Replayed) -> dict[str, dict[str, arrays.Floats]]:
    bounds = Certified.of(replayed.bounds())
    compared = replayed.compared()
    by_scheduler: dict[str, dict[str, arrays.Floats]] = {}
    for name, outcomes in replayed.outcomes.items():
        # A mean over fewer jobs could not be compared.
        if any(not outcome.finished.all() for outcome in outcomes):
            raise ScenarioError(f"{name} leaves jobs undone in {replayed.results.store.folder}")
        by_scheduler[name] = {metric: compared.by_seed(name, metric) for metric in METRICS}
        # The bound that holds for it: one that interrupts jobs may beat the other.
        holds = np.array(bounds.preemptive if name in compared.interrupt else bounds.values)
        by_scheduler[name]["gap"] = by_scheduler[name]["completion.mean"] / holds - 1
    return by_scheduler

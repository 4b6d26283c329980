"""Tuning: Optuna looks for better arguments of a policy, and other seeds judge what it found.

Every trial plays the same seeds. The best of many trials looks better on the seeds that chose it
than it is, so the best and the default are compared on other seeds. All runs go through
:mod:`gangwise.study.sweep`: each is stored once and shared.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

import gangwise
from gangwise.core import contracts, files
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError, to_install
from gangwise.core.registry import WHOLE, create, types_of
from gangwise.core.settings import toml_value
from gangwise.core.simulation import differences
from gangwise.study import changes, runs, statistics
from gangwise.study.replay_scenario import EVERY
from gangwise.study.results import Results
from gangwise.study.sweep import Experiment, PolicyTable, Progress, require_drawn, silent, sweep


@dataclass(frozen=True)
class ParameterRange:
    """The values that an argument may take.

    Numbers between two ``ends``, both allowed, spread evenly over their logarithms if ``log``;
    integers only between two integers. Or one of some ``choices``.
    """

    name: str
    ends: tuple[int, int] | tuple[float, float] | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ParameterRange:
        """Read ``NAME=LOW:HIGH[:int][:log]`` or ``NAME=ONE|OTHER``; ScenarioError says how.

        >>> ParameterRange.parse("steps=1:20:int")
        ParameterRange(name='steps', ends=(1, 20), log=False, choices=())
        >>> ParameterRange.parse("estimator=decay|window").choices
        ('decay', 'window')
        """
        name, equals, values = (part.strip() for part in text.partition("="))
        how = ScenarioError(
            f"range {text!r}: write NAME=LOW:HIGH, with :int or :log after it if wanted, or "
            "NAME=ONE|OTHER"
        )
        # Names with dots and dashes are settings of a site file.
        if not (name.replace(".", "_").replace("-", "_").isidentifier() and equals and values):
            raise how
        if "|" in values:
            choices = tuple(_literal(part.strip()) for part in values.split("|"))
            # 1, 1.0 and True are equal in Python, and different choices.
            if len(set(map(repr, choices))) < len(choices) or "" in choices:
                raise ScenarioError(f"range {text!r}: choices must differ and not be empty")
            return cls(name, choices=choices)
        low, *parts = values.split(":")
        if not parts or not set(parts[1:]) <= {"int", "log"}:
            raise how
        try:
            number = int if "int" in parts[1:] else float
            ends = (number(low), number(parts[0]))
        except ValueError:
            raise how from None
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            raise ScenarioError(f"range {text!r}: the lower end must be below the upper one")
        if "log" in parts[1:] and ends[0] <= 0:
            raise ScenarioError(f"range {text!r}: with :log both ends must be above 0")
        return cls(name, ends, "log" in parts[1:])

    @property
    def low(self) -> Any:
        return self.ends[0] if self.ends else self.choices[0]

    @property
    def high(self) -> Any:
        return self.ends[1] if self.ends else self.choices[-1]

    def holds(self, value: Any) -> bool:
        if self.ends is None:
            # True is equal to 1, and another choice.
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        kind = int if isinstance(self.ends[0], int) else int | float
        typed = isinstance(value, kind) and not isinstance(value, bool)
        return typed and self.ends[0] <= value <= self.ends[1]

    @property
    def distribution(self) -> Any:
        """The distribution of Optuna."""
        from optuna import distributions as of

        if self.ends is None:
            return of.CategoricalDistribution(self.choices)
        kind: Any = of.IntDistribution if isinstance(self.low, int) else of.FloatDistribution
        return kind(*self.ends, log=self.log)

    def __str__(self) -> str:
        if self.ends is None:
            return f"{self.name}={'|'.join(map(str, self.choices))}"
        kind = ":int" if isinstance(self.ends[0], int) else ""
        return f"{self.name}={self.ends[0]}:{self.ends[1]}{kind}{':log' if self.log else ''}"


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float | str) or value is None else text


DEFAULT = "default"  # label of the policy with its own arguments
TUNING = "tuning"  # name of the experiment that plays the trials
FOUND = f"{TUNING}.json"  # the file of a finished tuning

STUDY = f"{files.STATE}/study"
"""The study in a folder of results: what is tuned, and the finished trials."""

SEED = 0  # of the sampler: the same command gives the same study


@dataclass(frozen=True)
class Trial:
    """One choice of arguments, and what it earned with each seed of the tuning."""

    number: int
    arguments: Mapping[str, Any]
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        return self.estimate.mean

    @property
    def estimate(self) -> statistics.Estimate:
        return statistics.mean_and_interval(self.values)


@dataclass(frozen=True)
class Tuning:
    """The result of a tuning.

    Attributes
    ----------
    minimise : bool
        Whether less of the metric is better.
    default : Trial
        The policy's own arguments; number −1 where they lie outside the ranges and are no trial.
    trials : tuple of Trial
        Best first.
    seeds, validation : tuple of int
        Seeds of every trial; seeds on which the best and the default are compared.
    row : mapping or None
        The best over the default on the validation seeds, as
        :meth:`~gangwise.study.results.Results.improvements` has it; positive is better. None
        where no trial was better than the default.
    """

    policy: str
    metric: str
    minimise: bool
    ranges: tuple[ParameterRange, ...]
    default: Trial
    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    validation: tuple[int, ...] = ()
    row: Mapping[str, Any] | None = None
    fidelity: tuple[Mapping[str, Any], ...] = ()

    def over_default(self, trial: Trial) -> dict[str, Any] | None:
        """Advantage (positive) of a trial over the default on the seeds of the tuning.

        None for the default itself, and for a trial with its arguments.
        """
        if dict(trial.arguments) == dict(self.default.arguments):
            return None
        row = statistics.difference(trial.values, self.default.values)
        return statistics.turned(row) if self.minimise else row

    @property
    def best(self) -> Trial:
        return self.trials[0]

    @property
    def sentence(self) -> str:
        on = f"tuned on {_seeds(self.seeds)}{' (parts of the log)' * (self.metric == EVERY)}"
        if self.row is None:
            return f"{on}: none of {len(self.trials)} trials is better than the default; keep it"
        best = f"{arguments_text(self.best.arguments)}; on {_seeds(self.validation)}"
        return f"{on}: {best}: {statistics.verdict(self.row)}"

    def as_dict(self) -> dict[str, Any]:
        """Content of ``--json`` and ``tuning.json``: see docs/results.schema.json."""

        def row(trial: Trial) -> dict[str, Any]:
            about = {"number": trial.number, "arguments": dict(trial.arguments)}
            about |= dict(
                zip(("value", "low", "high"), statistics.numbers(trial.estimate).values())
            )
            return {**about, "values": list(trial.values), "over": self.over_default(trial)}

        return {
            "format": "gangwise-tune-1",
            "version": gangwise.__version__,
            "policy": self.policy,
            "metric": self.metric,
            "minimise": self.minimise,
            "fidelity": [dict(row) for row in self.fidelity],
            "ranges": [vars(parameter) for parameter in self.ranges],
            "seeds": list(self.seeds),
            "validation_seeds": list(self.validation),
            "default": row(self.default),
            "best": row(self.best),
            "trials": [row(trial) for trial in self.trials],
            "validation": None if self.row is None else dict(self.row),
            "sentence": self.sentence,
        }


def write_tuning(folder: Path, tuning: Tuning) -> Path:
    text = json.dumps(tuning.as_dict(), indent=1, allow_nan=False) + "\n"
    return files.Folder(folder).write(FOUND, text, replace=True)


def read_tuning(folder: Path) -> Tuning | None:
    """The finished tuning in a folder; None where there was none.

    Raises StoreError when the tuning has not finished, or its file is damaged.
    """
    path = folder / FOUND
    if not path.exists():
        if (folder / STUDY).exists():
            raise StoreError(
                f"the tuning in {folder} has not finished; start the same gangwise tune again, and "
                "it goes on where it was"
            )
        return None
    mend = (
        "start the same gangwise tune again to mend it, trials that are stored are not played again"
    )
    with files.torn(path, mend):
        stored = json.loads(files.Folder(folder).read(FOUND))
        # The file names them as readers know them, the class as it is made.
        fields = {**stored, "validation": stored["validation_seeds"], "row": stored["validation"]}
        return TypeAdapter(Tuning).validate_python(fields)


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Arguments in words, numbers short.

    >>> arguments_text({"fraction": 0.123456, "steps": 5})
    'fraction = 0.1235, steps = 5'
    """
    return ", ".join(
        f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}" for k, v in arguments.items()
    )


def _seeds(seeds: Sequence[int]) -> str:
    """Seeds in words.

    >>> _seeds((1000, 1001, 1002)), _seeds((3, 7))
    ('seeds 1000 to 1002', 'seeds 3, 7')
    """
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))) and len(seeds) > 2:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"seeds {', '.join(map(str, seeds))}"


def labels(tried: Sequence[Mapping[str, Any]], default: Mapping[str, Any]) -> list[str]:
    """Labels of the runs of each trial: trials that repeat one share its runs.

    >>> labels([{"steps": 1}, {"steps": 5}, {"steps": 1}, {"steps": 5}], {"steps": 1})
    ['default', 'trial 1: steps = 5', 'default', 'trial 1: steps = 5']
    """
    by_arguments = {json.dumps(dict(default), sort_keys=True): DEFAULT}
    # Runs are stored by label: equal arguments must have one label.
    return [
        by_arguments.setdefault(
            json.dumps(dict(arguments), sort_keys=True), f"trial {i}: {arguments_text(arguments)}"
        )
        for i, arguments in enumerate(tried)
    ]


@dataclass
class Study:
    """A tuning as it goes on, kept in :data:`STUDY` after every trial.

    ``definition`` is what is tuned, as JSON: scenario, settings, slots, policy, ranges, seeds,
    metric; ``default`` the policy's own values of the arguments that are tuned; ``wanted`` how many
    trials there are to be; ``trials`` are the finished ones.
    """

    definition: dict[str, Any]
    default: dict[str, Any]
    wanted: int
    trials: list[Trial] = field(default_factory=list)

    def write(self, folder: Path) -> None:
        # Through JSON, so that what is read later is equal to it.
        plain = json.loads(json.dumps(dataclasses.asdict(self), default=str))
        files.write_whole(folder / STUDY, files.sealed_line(plain))

    def resume(self, folder: Path) -> None:
        """Take over the trials of an earlier call; without them they follow from the stored runs.

        StoreError for another study, or one that cannot be read; a damaged one counts as none.
        """
        if not (folder / STUDY).exists():
            return
        with files.torn(folder / STUDY, "give another --out"):
            content = files.unsealed(files.read_whole(folder / STUDY).strip())
            if content is None:
                return
            earlier = TypeAdapter(Study).validate_python(content)
        # As it was stored: JSON has no tuples and no paths.
        definition = json.loads(json.dumps(self.definition, default=str))
        # A study that has no trial yet may become that of something else.
        if earlier.trials and earlier.definition != definition:
            differ = differences(earlier.definition, definition)
            raise StoreError(f"{folder / STUDY}: {differ}; give another --out")
        self.trials = earlier.trials

    def experiment(
        self, name: str, choices: Mapping[str, Mapping[str, Any]], seeds: Sequence[int]
    ) -> Experiment:
        """An experiment that plays the policy with each choice of arguments, by label."""
        d = self.definition
        tables = [
            PolicyTable(
                name=d["policy"],
                label=label,
                arguments={name: value for name, value in chosen.items() if "." not in name},
                settings=_site(chosen),
            )
            for label, chosen in choices.items()
        ]
        shared = {key: d[key] for key in ("scenario", "settings", "slots")}
        content = {"name": name, "policies": tables, "seeds": list(seeds), **shared}
        return Experiment.of({**content, "optimum_slots": 1, "points": 50}, name)


def _site(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that change those of a site file, whose names have dots.

    >>> _site({"pool.gpu.tier": 2, "depth": 100})
    {'change': 'pool.gpu.tier=2'}
    """
    text = ",".join(f"{path}={toml_value(value)}" for path, value in chosen.items() if "." in path)
    return {"change": text} if text else {}


def tune(
    scenario: str,
    policy: str,
    ranges: Sequence[ParameterRange | str],
    out: Path | str,
    settings: Mapping[str, Any] | None = None,
    trials: int = 30,
    seeds: Sequence[int] = (1000, 1001, 1002),
    validation: Sequence[int] = tuple(range(2000, 2010)),
    *,
    slots: int | None = None,
    metric: str = "",
    minimise: bool = False,
    jobs: int = -1,
    progress: Progress | None = None,
) -> Tuning:
    """Look for better arguments of a policy; started again, it goes on where it was.

    Optuna's TPE sampler has a fixed seed and sees the finished trials alone: the same call gives
    the same study, interrupted or not.

    Parameters
    ----------
    scenario : str
        A registered scenario, with ``settings``, or a scenario file, which can name a trace.
    policy : str
        A registered policy; arguments after a colon stay fixed and are part of the default.
    ranges : sequence of ParameterRange or str
        Such as ``"fraction=0.05:0.8:log"``.
    out : path
        Folder of the study and of the runs: the experiments ``tuning`` and ``validation``.
    trials : int
        In all, with those of earlier calls. The default is the first of them if it is in range.
    seeds, validation : sequence of int
        Seeds that judge trials; seeds on which the best is compared with the default.
    slots : int, optional
        Slots per run; by default the scenario's own number.
    metric, minimise : str, bool
        A metric of a single number per run, see :mod:`gangwise.study.runs`, by default
        ``reward.mean``, or the objective of a scenario that plays whole runs; less is better.
    jobs : int
        Workers, −1 for all cores.
    progress : callable, optional
        ``progress(what, done, of)``, in trials.

    Raises
    ------
    UnknownName
        For an argument or metric that does not exist.
    ScenarioError
        For ranges, seeds or trials that make no sense, and without Optuna.
    StoreError
        When the folder holds a study of something else.
    """
    optuna = _optuna()
    parameters = [ParameterRange.parse(r) if isinstance(r, str) else r for r in ranges]
    played = runs.NamedSource.of(scenario, False, settings or {}).scenario()
    kind = runs.deciders(played)
    if not metric and isinstance(played, runs.Replay):
        metric, minimise = played.objective, played.minimise
    elif hasattr(played, "check_metric"):
        played.check_metric(metric, "--metric")
    _check(kind, policy, parameters, trials, seeds, validation)
    require_drawn(played, [*seeds, *validation])
    own = contracts.configuration(create(kind, policy))
    if site := [p for p in parameters if "." in p.name]:
        own |= _of_site(played, site, seeds)
    definition: dict[str, Any] = {"scenario": scenario, "settings": dict(settings or {})}
    definition |= {"slots": slots, "policy": policy, "ranges": list(map(str, parameters))}
    definition |= {"seeds": list(seeds), "metric": metric or "reward.mean"}
    definition |= {"minimise": minimise, "version": gangwise.__version__}
    study = Study(definition, {p.name: own[p.name] for p in parameters}, trials)
    study.experiment(TUNING, {DEFAULT: study.default}, seeds).runs()[0].key()  # finds mistakes
    with (folder := files.Folder(out)).lock():
        study.resume(folder.path)
        study.write(folder.path)
        _search(optuna, study, parameters, folder, jobs, progress or silent)
        tuning = _judge(study, parameters, folder.path, tuple(validation), jobs)
    write_tuning(folder.path, tuning)
    return tuning


def _of_site(played: Any, ranges: Sequence[ParameterRange], seeds: Sequence[int]) -> dict[str, Any]:
    """Values of the site file that are tuned; ScenarioError where a range does not suit it."""
    if (rules := getattr(played, "site", None)) is None:
        raise ScenarioError(f"range {ranges[0]}: a setting of a site file, and none is given")
    # Both ends are tried: what lies between them is taken to fit.
    for end in (0, -1):
        chosen = {p.name: (p.choices or p.ends or ())[end] for p in ranges}
        played.changed(**_site(chosen)).draw(seeds[0])
    document = rules.document(whole=True)
    return {p.name: changes.setting(document, p.name) for p in ranges}


def _search(
    optuna: Any,
    study: Study,
    parameters: Sequence[ParameterRange],
    folder: files.Folder,
    jobs: int,
    progress: Progress,
) -> None:
    direction = "minimize" if study.definition["minimise"] else "maximize"
    sampled = optuna.create_study(direction=direction)
    distributions = {parameter.name: parameter.distribution for parameter in parameters}
    # The study is filled again from its trials, in their order.
    for trial in study.trials:  # what the sampler learns from
        params = dict(trial.arguments)
        sampled.add_trial(
            optuna.trial.create_trial(params=params, distributions=distributions, value=trial.value)
        )
    while (count := len(study.trials)) < study.wanted:
        progress("tuning", count, study.wanted)
        folder.remove(FOUND)  # it is not true any more
        # A sampler of its own for each trial: a study that was stopped goes on with the same draws.
        sampled.sampler = optuna.samplers.TPESampler(seed=SEED + count)
        if count == 0 and all(spec.holds(study.default[spec.name]) for spec in parameters):
            sampled.enqueue_trial(study.default)
        suggested = sampled.ask(distributions)
        chosen = {name: suggested.params[name] for name in distributions}
        # With all trials so far: one that repeats another has that one's label, and its runs.
        label = labels([*(trial.arguments for trial in study.trials), chosen], study.default)[-1]
        values = _values(study, {label: chosen}, folder.path, jobs)[1][label]
        trial = Trial(count, chosen, values)
        sampled.tell(suggested, trial.value)
        study.trials.append(trial)
        # The trial's runs are stored by now: killed here, the next call asks
        # for it again and finds them.
        study.write(folder.path)
    progress("tuning", study.wanted, study.wanted)


def _values(
    study: Study, choices: Mapping[str, Mapping[str, Any]], out: Path, jobs: int
) -> tuple[Results, dict[str, tuple[float, ...]]]:
    metric, seeds = study.definition["metric"], study.definition["seeds"]
    results = sweep(study.experiment(TUNING, choices, seeds), out, jobs)
    value = {(p, seed): v for p, seed, v in results.per_seed(metric).rows()}
    earned = {label: tuple(value[label, seed] for seed in seeds) for label in choices}
    for label, values in earned.items():
        # What is no number would teach the sampler nonsense.
        if not np.isfinite(values).all():
            text = f"{metric} of {study.definition['policy']} with {arguments_text(choices[label])}"
            raise GangwiseError(f"{text}: {values}")
    return results, earned


def _judge(
    study: Study,
    parameters: Sequence[ParameterRange],
    out: Path,
    validation: tuple[int, ...],
    jobs: int,
) -> Tuning:
    tried = [trial.arguments for trial in study.trials]
    called = labels(tried, study.default)
    metric, minimise = study.definition["metric"], study.definition["minimise"]
    sign = 1.0 if minimise else -1.0
    choices = {DEFAULT: study.default} | dict(zip(called, tried))
    results, values = _values(study, choices, out, jobs)
    number = called.index(DEFAULT) if DEFAULT in called else -1
    default = Trial(number, study.default, values[DEFAULT])
    every = [Trial(i, t.arguments, values[called[i]]) for i, t in enumerate(study.trials)]
    every.sort(key=lambda trial: (sign * trial.value, trial.number))
    best, row = every[0], None
    # Equal is not better: the default stays.
    if sign * best.value < sign * default.value:
        pair = {DEFAULT: study.default, "tuned": best.arguments}
        judged = sweep(study.experiment("validation", pair, validation), out, jobs)
        row = judged.improvements(DEFAULT, metric).row(0, named=True)
        row = statistics.turned(row) if minimise else dict(row)
    about = study.definition["policy"], metric, minimise, tuple(parameters), default
    seeds = tuple(study.definition["seeds"])
    return Tuning(*about, tuple(every), seeds, validation, row, results.fidelity)


def _check(
    kind: Any,
    policy: str,
    ranges: Sequence[ParameterRange],
    trials: int,
    seeds: Sequence[int],
    validation: Sequence[int],
) -> None:
    if not ranges:
        raise ScenarioError("name at least one range, such as fraction=0.05:0.8:log")
    names = [parameter.name for parameter in ranges]
    if len(set(names)) < len(names):
        raise ScenarioError(f"an argument is given twice: {', '.join(names)}")
    if trials < 1:
        raise ScenarioError(f"trials must be at least 1, not {trials}")
    both = sorted(set(seeds) & set(validation))
    if both:
        raise ScenarioError(
            f"seed {both[0]} is used for tuning and for validation; the best trial would be judged "
            "by what chose it"
        )
    kinds = types_of(type(create(kind, policy)))
    ranges = [spec for spec in ranges if "." not in spec.name]  # others are of a site
    for spec in ranges:
        if kinds.get(spec.name) in WHOLE and spec.ends and isinstance(spec.low, float):
            raise ScenarioError(
                f"range {spec}: {spec.name} of {policy} is a whole number; write "
                f"{spec.name}={spec.low:.0f}:{spec.high:.0f}:int"
            )
    values = {spec.name: spec.choices or spec.ends or () for spec in ranges}
    # The first values together, then the next ones: each is tried, in a valid combination.
    for i in range(max(map(len, values.values()), default=0)):
        create(kind, policy, **{k: spec[min(i, len(spec) - 1)] for k, spec in values.items()})


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ScenarioError(f"tuning needs Optuna; {to_install('tune')}") from error
    # Its own lines would break into the display of progress.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna

"""Tuning a policy's arguments with Optuna, and an honest look at what it gained.

Trials are played on some seeds, the best of them is compared with the default on others: the best
of many trials looks better than it is on the seeds that chose it. Every run goes through
:mod:`gangwise.experiments.sweep`, so it is stored once and shared.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

import gangwise
from gangwise.core.contracts import configuration
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError
from gangwise.core.files import STATE, Folder
from gangwise.core.registry import create
from gangwise.experiments.output import difference, numbers
from gangwise.experiments.results import Results, turned
from gangwise.experiments.runs import NamedSource, Replay, deciders
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.statistics import Estimate, mean_and_interval, verdict
from gangwise.experiments.sweep import Progress, silent, sweep

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial
    from optuna.trial import Trial as OptunaTrial


@dataclass(frozen=True)
class ParameterRange:
    """An argument and what it may be: numbers between two ends, or some choices.

    Parameters
    ----------
    name : str
    ends : (int, int) or (float, float), optional
        Lowest and highest; both are allowed. Integers only between two integers.
    log : bool
        Whether numbers are spread evenly over their logarithms.
    choices : tuple
        Instead of ends.
    """

    name: str
    ends: tuple[int, int] | tuple[float, float] | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> ParameterRange:
        """Read ``NAME=LOW:HIGH[:int][:log]`` or ``NAME=ONE|OTHER``.

        Raises
        ------
        ScenarioError
            Says how to write one.

        Examples
        --------
        >>> ParameterRange.parse("steps=1:20:int")
        ParameterRange(name='steps', ends=(1, 20), log=False, choices=())
        >>> ParameterRange.parse("fraction=0.05:0.8:log").log
        True
        >>> ParameterRange.parse("estimator=decay|window").choices
        ('decay', 'window')
        """
        name, equals, rest = (part.strip() for part in text.partition("="))
        how = ScenarioError(
            f"range {text!r}: write NAME=LOW:HIGH, with :int or :log after it if wanted, or "
            "NAME=ONE|OTHER"
        )
        if not (name.isidentifier() and equals and rest):
            raise how
        if "|" in rest:
            choices = tuple(_literal(part.strip()) for part in rest.split("|"))
            if len(set(map(repr, choices))) < len(choices) or "" in choices:
                raise ScenarioError(f"range {text!r}: choices must differ and not be empty")
            return cls(name, choices=choices)
        low, *more = rest.split(":")
        if not more or not set(more[1:]) <= {"int", "log"}:
            raise how
        try:
            number = int if "int" in more[1:] else float
            ends = (number(low), number(more[0]))
        except ValueError:
            raise how from None
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            raise ScenarioError(f"range {text!r}: the lower end must be below the upper one")
        if "log" in more[1:] and ends[0] <= 0:
            raise ScenarioError(f"range {text!r}: with :log both ends must be above 0")
        return cls(name, ends, "log" in more[1:])

    @property
    def low(self) -> Any:
        """The lower end, or the first choice."""
        return self.ends[0] if self.ends else self.choices[0]

    @property
    def high(self) -> Any:
        """The upper end, or the last choice."""
        return self.ends[1] if self.ends else self.choices[-1]

    def holds(self, value: Any) -> bool:
        """Whether a value may be suggested."""
        if self.ends is None:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        kind = int if isinstance(self.ends[0], int) else int | float
        known = isinstance(value, kind) and not isinstance(value, bool)
        return known and self.ends[0] <= value <= self.ends[1]

    def suggest(self, trial: OptunaTrial) -> Any:
        """A value for a trial."""
        if self.ends is None:
            return trial.suggest_categorical(self.name, self.choices)
        low, high = self.ends
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(self.name, low, high, log=self.log)
        return trial.suggest_float(self.name, low, high, log=self.log)

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


DEFAULT = "default"
"""Label of the policy as it is."""

TUNING = "tuning"
"""Name of the experiment of the trials."""

STUDY = f"{STATE}/study.db"
"""Optuna's, where the state of a folder is."""

VALUES = "values"
"""Of a trial of the study: what it earned with each seed."""

WANTED = "wanted"
"""Of the study: how many trials it is to have."""


@dataclass(frozen=True)
class Trial:
    """One choice of arguments, and what it earned with each seed of the tuning."""

    number: int
    arguments: Mapping[str, Any]
    values: tuple[float, ...]

    @property
    def value(self) -> float:
        """The mean over the seeds, which trials are ranked by."""
        return self.estimate.mean

    @property
    def estimate(self) -> Estimate:
        """Mean and interval over the seeds."""
        return mean_and_interval(self.values)


@dataclass(frozen=True)
class Tuning:
    """What was found.

    Attributes
    ----------
    policy, metric : str
    minimise : bool
        Whether less of the metric is better.
    ranges : tuple of ParameterRange
    default : Trial
        The policy as it is; numbered −1 where it lies outside the ranges, and so is no trial.
    trials : tuple of Trial
        Best first.
    seeds, validation : tuple of int
        Played by every trial; played by the best and the default only.
    row : mapping or None
        The best over the default on the validation seeds, as
        :meth:`~gangwise.experiments.results.Results.improvements` has it; positive is better. None
        where no trial was better than the default.
    fidelity : tuple of mapping
        How much of a log is played, as in :class:`~gangwise.experiments.results.Results`.
    """

    policy: str
    metric: str
    minimise: bool
    ranges: tuple[ParameterRange, ...]
    default: Trial
    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    validation: tuple[int, ...]
    row: Mapping[str, Any] | None
    fidelity: tuple[Mapping[str, Any], ...] = ()

    def over_default(self, trial: Trial) -> dict[str, Any] | None:
        """How much better a trial is than the default on the seeds of the tuning; positive is.

        Keys: ``mean``, ``low``, ``high``, ``percent``, ``seeds``. None for the default itself, and
        for a trial that repeats it.
        """
        if dict(trial.arguments) == dict(self.default.arguments):
            return None
        row = difference(trial.values, self.default.values)
        return turned(row) if self.minimise else row

    @property
    def best(self) -> Trial:
        """The best trial."""
        return self.trials[0]

    @property
    def sentence(self) -> str:
        """What the tuning gained, in words."""
        on = f"tuned on {_seeds(self.seeds)}"
        if self.row is None:
            return f"{on}: none of {len(self.trials)} trials is better than the default; keep it"
        found = f"{said(self.best.arguments)}; on {_seeds(self.validation)}"
        return f"{on}: {found}: {verdict(self.row)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "format": "gangwise-tune-1",
            "version": gangwise.__version__,
            "policy": self.policy,
            "metric": self.metric,
            "minimise": self.minimise,
            "fidelity": [dict(each) for each in self.fidelity],
            "ranges": [vars(parameter) for parameter in self.ranges],
            "seeds": list(self.seeds),
            "validation_seeds": list(self.validation),
            "default": self._told(self.default),
            "best": self._told(self.best),
            "trials": [self._told(trial) for trial in self.trials],
            "validation": None if self.row is None else dict(self.row),
            "sentence": self.sentence,
        }

    def _told(self, trial: Trial) -> dict[str, Any]:
        found = numbers(trial.estimate)
        return {
            "number": trial.number,
            "arguments": dict(trial.arguments),
            "value": found["mean"],
            "low": found["low"],
            "high": found["high"],
            "values": list(trial.values),
            "over": self.over_default(trial),
        }


def tuning_file(folder: Path) -> Path:
    """Where what was found is kept; it is there when the tuning has finished."""
    return folder / f"{TUNING}.json"


def write_tuning(folder: Path, tuning: Tuning) -> Path:
    """Keep what was found.

    Raises
    ------
    StoreError
        When it cannot be written.
    """
    path = tuning_file(folder)
    text = json.dumps(tuning.as_dict(), indent=1, allow_nan=False) + "\n"
    return Folder(folder).write(path.name, text, replace=True)


def read_tuning(folder: Path) -> Tuning | None:
    """What was found by the tuning in a folder; None where there was none.

    Raises
    ------
    StoreError
        When the tuning has not finished yet, or the file is torn.
    """
    path = tuning_file(folder)
    if not path.exists():
        if (folder / STUDY).exists():
            raise StoreError(
                f"the tuning in {folder} has not finished; start the same gangwise tune again, and "
                "it goes on where it was"
            )
        return None
    try:
        found = json.loads(Folder(folder).read_text(path.name))
        return Tuning(
            found["policy"],
            found["metric"],
            found["minimise"],
            tuple(
                ParameterRange(
                    k["name"], k["ends"] and tuple(k["ends"]), k["log"], tuple(k["choices"])
                )
                for k in found["ranges"]
            ),
            _trial(found["default"]),
            tuple(map(_trial, found["trials"])),
            tuple(found["seeds"]),
            tuple(found["validation_seeds"]),
            found["validation"],
            tuple(found["fidelity"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"cannot read {path}: {error!r}; start the same gangwise tune again to mend it, trials "
            "that are stored are not played again"
        ) from error


def _trial(told: Mapping[str, Any]) -> Trial:
    return Trial(told["number"], told["arguments"], tuple(told["values"]))


def said(arguments: Mapping[str, Any]) -> str:
    """Arguments in words, numbers short.

    >>> said({"fraction": 0.123456, "steps": 5})
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


Choices = Mapping[str, Mapping[str, Any]]
"""Arguments by label."""

SEED = 0
"""Of the sampler: the same command gives the same study."""


def tune(
    scenario: str,
    policy: str,
    ranges: Sequence[ParameterRange | str],
    out: Path | str,
    settings: Mapping[str, Any] | None = None,
    trials: int = 30,
    seeds: Sequence[int] = (1000, 1001, 1002),
    validation: Sequence[int] = tuple(range(2000, 2010)),
    slots: int | None = None,
    metric: str = "",
    minimise: bool = False,
    jobs: int = -1,
    progress: Progress | None = None,
) -> Tuning:
    """Look for better arguments of a policy; started again, it goes on where it was.

    The sampler is Optuna's TPE with a fixed seed, and depends on the finished trials alone: the
    same call gives the same study, interrupted or not.

    Parameters
    ----------
    scenario : str
        A registered scenario or a scenario file; a trace is named in a scenario file.
    policy : str
        A registered policy; arguments after a colon stay as they are and are part of the default.
    ranges : sequence of ParameterRange or str
        Such as ``"fraction=0.05:0.8:log"``.
    out : path
        Folder of the study (``.gangwise/study.db``) and of the runs, to be read as those of a
        sweep: the experiments ``tuning`` and ``validation``.
    settings : mapping, optional
        Of the scenario.
    trials : int
        In all, with those of earlier calls. The default is the first of them if it is in range.
    seeds, validation : sequence of int
        What trials are judged by; what the best and the default are compared on.
    slots : int, optional
    metric : str
        Of a single number per run, see :mod:`gangwise.experiments.runs`; ``reward.mean`` where
        slots are played, the scenario's own objective otherwise.
    minimise : bool
        Whether less of the metric is better.
    jobs : int
        Workers.
    progress : callable, optional
        ``progress(what, done, of)``, in trials.

    Raises
    ------
    UnknownName
        For an argument that the policy does not have, or a metric that runs do not have.
    ScenarioError
        For ranges, seeds or trials that make no sense; without Optuna.
    StoreError
        When the folder holds a study of something else.
    """
    optuna = _optuna()
    parameters = [ParameterRange.parse(r) if isinstance(r, str) else r for r in ranges]
    played = NamedSource.of(scenario, False, settings or {}).scenario()
    kind = deciders(played)
    if not metric and isinstance(played, Replay):
        metric, minimise = played.objective, played.minimise
    metric = metric or "reward.mean"
    _check(kind, policy, parameters, trials, seeds, validation)
    out, tell = Path(out), progress or silent
    common = {
        "scenario": scenario,
        "settings": dict(settings or {}),
        "slots": slots,
        "optimum_slots": 1,
        "points": 50,
    }
    definition = {
        **common,
        "policy": policy,
        "ranges": [str(parameter) for parameter in parameters],
        "seeds": list(seeds),
        "metric": metric,
        "minimise": minimise,
        "version": gangwise.__version__,
    }
    plain = configuration(create(kind, policy))
    default = {parameter.name: plain[parameter.name] for parameter in parameters}

    def experiment(name: str, choices: Choices, on: Sequence[int]) -> Experiment:
        tables = [
            PolicyTable(name=policy, label=label, arguments=dict(arguments), grid={})
            for label, arguments in choices.items()
        ]
        return Experiment.of({"name": name, "policies": tables, "seeds": list(on), **common}, name)

    def play(name: str, choices: Choices, on: Sequence[int]) -> Results:
        return sweep(experiment(name, choices, on), out, jobs)

    def earned(choices: Choices) -> tuple[Results, dict[str, tuple[float, ...]]]:
        results = play(TUNING, choices, seeds)
        value = {(p, seed): v for p, seed, v in results.per_seed(metric).rows()}
        found = {label: tuple(value[label, seed] for seed in seeds) for label in choices}
        for label, values in found.items():
            if not np.isfinite(values).all():
                raise GangwiseError(f"{metric} of {policy} with {said(choices[label])}: {values}")
        return results, found

    sign = -1.0 if minimise else 1.0
    experiment(TUNING, {DEFAULT: default}, seeds).runs()[0].key()  # mistakes come before a study
    folder = Folder(out)
    with folder.lock(), closing(_open(optuna, out, definition, minimise)) as opened:
        study: Study = opened.study
        study.set_user_attr(DEFAULT, default)
        study.set_user_attr(WANTED, trials)
        while (done := len(_finished(study))) < trials:
            tell("tuning", done, trials)
            folder.remove(tuning_file(out).name)  # until it is true again
            study.sampler = optuna.samplers.TPESampler(seed=SEED + done)
            if done == 0 and all(
                parameter.holds(default[parameter.name]) for parameter in parameters
            ):
                study.enqueue_trial(default)
            trial = study.ask()
            asked = {parameter.name: parameter.suggest(trial) for parameter in parameters}
            tried = [dict(each.params) for each in _finished(study)]
            label = labels([*tried, asked], default)[-1]
            values = earned({label: asked})[1][label]
            trial.set_user_attr(VALUES, list(values))
            study.tell(trial, Trial(done, asked, values).value)
        tell("tuning", trials, trials)
        tried = [dict(each.params) for each in _finished(study)]
        called = labels(tried, default)
        results, found = earned({DEFAULT: default} | dict(zip(called, tried)))
        base = Trial(called.index(DEFAULT) if DEFAULT in called else -1, default, found[DEFAULT])
        every = [Trial(i, each, found[called[i]]) for i, each in enumerate(tried)]
        ranked = tuple(sorted(every, key=lambda trial: (-sign * trial.value, trial.number)))
        row = None
        if sign * ranked[0].value > sign * base.value:
            row = _compare(play, ranked[0].arguments, default, validation, metric, sign)
    tuning = Tuning(
        policy,
        metric,
        minimise,
        tuple(parameters),
        base,
        ranked,
        tuple(seeds),
        tuple(validation),
        row,
        results.fidelity,
    )
    write_tuning(out, tuning)
    return tuning


def _compare(
    play: Callable[..., Results],
    best: Mapping[str, Any],
    default: Mapping[str, Any],
    validation: Sequence[int],
    metric: str,
    sign: float,
) -> dict[str, Any]:
    results = play("validation", {DEFAULT: default, "tuned": best}, validation)
    row = results.improvements(DEFAULT, metric).row(0, named=True)
    return turned(row) if sign < 0 else dict(row)


@dataclass(frozen=True)
class SoFar:
    """A tuning that may still go on.

    Attributes
    ----------
    tuning : Tuning
        Of the trials that are finished; what was found is not known yet. Where the default has not
        been tried, the first trial stands in its place.
    labels : tuple of str
        Of each trial, by its number.
    wanted : int
        Trials in all.
    ends : tuple of float
        When trials ended, seconds since 1970, ascending.
    """

    tuning: Tuning
    labels: tuple[str, ...]
    wanted: int
    ends: tuple[float, ...]


def study_so_far(folder: Path) -> SoFar:
    """What the study in a folder holds; it is only read.

    Raises
    ------
    ScenarioError
        Without Optuna.
    StoreError
        When there is no study that can be read.
    """
    optuna = _optuna()
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///file:{folder / STUDY}?mode=ro&uri=true")
        try:
            study: Study = optuna.load_study(study_name=TUNING, storage=storage)
            finished, about = _finished(study), study.user_attrs
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except Exception as error:  # Optuna passes on whatever its database raises
        raise StoreError(f"cannot read the study {folder / STUDY}: {error}") from error
    what = json.loads(about["definition"])
    trials = [
        Trial(i, dict(each.params), tuple(each.user_attrs.get(VALUES, (each.value or 0.0,))))
        for i, each in enumerate(finished)
    ]
    called = labels([trial.arguments for trial in trials], about.get(DEFAULT, {}))
    sign = 1.0 if what["minimise"] else -1.0
    tuning = Tuning(
        what["policy"],
        what["metric"],
        what["minimise"],
        tuple(map(ParameterRange.parse, what["ranges"])),
        next((t for t, label in zip(trials, called) if label == DEFAULT), None)
        or next(iter(trials), Trial(-1, about.get(DEFAULT, {}), ())),
        tuple(sorted(trials, key=lambda trial: (sign * trial.value, trial.number))),
        tuple(what["seeds"]),
        (),
        None,
    )
    ends = sorted(each.datetime_complete.timestamp() for each in finished if each.datetime_complete)
    return SoFar(tuning, tuple(called), about.get(WANTED, len(trials)), tuple(ends))


def labels(tried: Sequence[Mapping[str, Any]], default: Mapping[str, Any]) -> list[str]:
    """What the runs of each trial are labelled: trials that repeat one share its runs.

    >>> labels([{"steps": 1}, {"steps": 5}, {"steps": 1}, {"steps": 5}], {"steps": 1})
    ['default', 'trial 1: steps = 5', 'default', 'trial 1: steps = 5']
    """
    known = {_text(default): DEFAULT}
    return [
        known.setdefault(_text(each), f"trial {i}: {said(each)}") for i, each in enumerate(tried)
    ]


def _text(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), sort_keys=True)


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
    kinds = {field.name: field.type for field in dataclasses.fields(create(kind, policy))}
    for parameter in ranges:
        if (
            kinds.get(parameter.name) in (int, "int")
            and parameter.ends
            and isinstance(parameter.low, float)
        ):
            raise ScenarioError(
                f"range {parameter}: {parameter.name} of {policy} is a whole number; write "
                f"{parameter.name}={parameter.low:.0f}:{parameter.high:.0f}:int"
            )
    values = {parameter.name: parameter.choices or parameter.ends or () for parameter in ranges}
    for i in range(max(map(len, values.values()))):
        create(kind, policy, **{k: each[min(i, len(each) - 1)] for k, each in values.items()})


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ScenarioError("tuning needs Optuna: pip install 'gangwise[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _finished(study: Study) -> list[FrozenTrial]:
    from optuna.trial import TrialState

    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))


def _open(optuna: Any, out: Path, definition: Mapping[str, Any], minimise: bool) -> Any:
    """The study in the folder, to be closed; trials that were interrupted are given up."""
    path, name = out / STUDY, TUNING
    direction = "minimize" if minimise else "maximize"
    text = json.dumps(definition, sort_keys=True, default=str)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        study = optuna.create_study(
            storage=storage, study_name=name, load_if_exists=True, direction=direction
        )
    except Exception as error:  # Optuna passes on whatever its database raises
        why = str(error).splitlines()[0]
        raise StoreError(f"cannot open the study {path}: {why}") from error

    def close() -> None:
        storage.remove_session()
        storage.engine.dispose()

    known = study.user_attrs.get("definition", text)
    if known != text and not _finished(study):
        optuna.delete_study(study_name=name, storage=storage)
        study = optuna.create_study(storage=storage, study_name=name, direction=direction)
    elif known != text:
        close()
        before, now = json.loads(known), json.loads(text)
        key = next(k for k in now if before.get(k) != now[k])
        raise StoreError(
            f"{path} is a study with {key} = {before.get(key)}, not {now[key]}; give another --out"
        )
    study.set_user_attr("definition", text)
    for trial in study.get_trials(deepcopy=False):
        if not trial.state.is_finished():
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
    return SimpleNamespace(study=study, close=close)

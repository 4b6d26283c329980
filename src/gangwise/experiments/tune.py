"""Tuning a policy's arguments with Optuna, and an honest look at what it gained.

Trials are played on some seeds, the best of them is compared with the default on others: the best
of many trials looks better than it is on the seeds that chose it. Every run goes through
:mod:`gangwise.experiments.sweep`, so it is stored once and shared.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import gangwise
from gangwise.core.contracts import configuration
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError
from gangwise.core.registry import create
from gangwise.experiments.knobs import Knob
from gangwise.experiments.progress import Progress, silent
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.sweep import sweep
from gangwise.experiments.tuning import (
    DEFAULT,
    STUDY,
    TUNING,
    Trial,
    Tuning,
    said,
    tuning_file,
    write_tuning,
)

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial


Choices = Mapping[str, Mapping[str, Any]]
"""Arguments by label."""

SEED = 0
"""Of the sampler: the same command gives the same study."""


def tune(
    scenario: str,
    policy: str,
    knobs: Sequence[Knob | str],
    out: Path | str,
    settings: Mapping[str, Any] | None = None,
    trials: int = 30,
    seeds: Sequence[int] = (1000, 1001, 1002),
    validation: Sequence[int] = tuple(range(2000, 2010)),
    slots: int | None = None,
    metric: str = "reward.mean",
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
    knobs : sequence of Knob or str
        Such as ``"fraction=0.05:0.8:log"``.
    out : path
        Folder of the study (``study.db``) and of the runs, to be read as those of a sweep: the
        experiments ``tuning`` and ``validation``.
    settings : mapping, optional
        Of the scenario.
    trials : int
        In all, with those of earlier calls. The default is the first of them if it is in range.
    seeds, validation : sequence of int
        What trials are judged by; what the best and the default are compared on.
    slots : int, optional
    metric : str
        Of a single number per run, see :mod:`gangwise.experiments.measure`.
    minimise : bool
        Whether less of the metric is better.
    jobs : int
        Workers.
    progress : callable, optional
        ``progress(what, done, of)``, in trials.

    Raises
    ------
    UnknownName
        For a knob that the policy does not have, or a metric that runs do not have.
    ScenarioError
        For knobs, seeds or trials that make no sense; without Optuna.
    StoreError
        When the folder holds a study of something else.
    """
    optuna = _optuna()
    ranges = [Knob.parse(knob) if isinstance(knob, str) else knob for knob in knobs]
    _check(policy, ranges, trials, seeds, validation)
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
        "knobs": [str(knob) for knob in ranges],
        "seeds": list(seeds),
        "metric": metric,
        "minimise": minimise,
        "version": gangwise.__version__,
    }
    plain = configuration(create("policy", policy))
    default = {knob.name: plain[knob.name] for knob in ranges}

    def experiment(name: str, choices: Choices, on: Sequence[int]) -> Experiment:
        tables = [
            PolicyTable(name=policy, label=label, arguments=dict(arguments), grid={})
            for label, arguments in choices.items()
        ]
        return Experiment.of({"name": name, "policies": tables, "seeds": list(on), **common}, name)

    def play(name: str, choices: Choices, on: Sequence[int]) -> Results:
        return sweep(experiment(name, choices, on), out, jobs)

    def value(arguments: Mapping[str, Any]) -> float:
        found = play(TUNING, {DEFAULT: arguments}, seeds).per_seed(metric)["value"]
        mean = float(found.to_numpy().mean())
        if not math.isfinite(mean):
            raise GangwiseError(f"{metric} of {policy} with {said(arguments)} is {mean}")
        return mean

    sign = -1.0 if minimise else 1.0
    experiment(TUNING, {DEFAULT: default}, seeds).runs()[0].key()  # mistakes come before a study
    with closing(_open(optuna, out, definition, minimise)) as opened:
        study: Study = opened.study
        while (done := len(_finished(study))) < trials:
            tell("tuning", done, trials)
            tuning_file(out).unlink(missing_ok=True)  # until it is true again
            study.sampler = optuna.samplers.TPESampler(seed=SEED + done)
            if done == 0 and all(knob.holds(default[knob.name]) for knob in ranges):
                study.enqueue_trial(default)
            trial = study.ask()
            study.tell(trial, value({knob.name: knob.suggest(trial) for knob in ranges}))
        tell("tuning", trials, trials)
        found = [
            Trial(i, dict(each.params), float(each.value or 0.0))
            for i, each in enumerate(_finished(study))
        ]
    base = next((t for t in found if t.arguments == default), None)
    base = base or Trial(-1, default, value(default))
    ranked = tuple(sorted(found, key=lambda trial: (-sign * trial.value, trial.number)))
    play(
        TUNING,
        {DEFAULT: default}
        | {
            f"trial {t.number}: {said(t.arguments)}": t.arguments for t in _distinct(found, default)
        },
        seeds,
    )
    row = None
    if sign * ranked[0].value > sign * base.value:
        row = _compare(play, ranked[0].arguments, default, validation, metric, sign)
    tuning = Tuning(
        policy, metric, minimise, tuple(ranges), base, ranked, tuple(seeds), tuple(validation), row
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
    row = dict(results.improvements(DEFAULT, metric).row(0, named=True))
    if sign < 0:
        low, high = row["low"], row["high"]
        row |= {
            "mean": -row["mean"],
            "low": None if high is None else -high,
            "high": None if low is None else -low,
        }
    return row


def _distinct(found: Sequence[Trial], default: Mapping[str, Any]) -> list[Trial]:
    seen = [dict(default)]
    kept = []
    for trial in found:
        if dict(trial.arguments) not in seen:
            seen.append(dict(trial.arguments))
            kept.append(trial)
    return kept


def _check(
    policy: str, knobs: Sequence[Knob], trials: int, seeds: Sequence[int], validation: Sequence[int]
) -> None:
    if not knobs:
        raise ScenarioError("name at least one knob, such as fraction=0.05:0.8:log")
    names = [knob.name for knob in knobs]
    if len(set(names)) < len(names):
        raise ScenarioError(f"a knob is given twice: {', '.join(names)}")
    if trials < 1:
        raise ScenarioError(f"trials must be at least 1, not {trials}")
    both = sorted(set(seeds) & set(validation))
    if both:
        raise ScenarioError(
            f"seed {both[0]} is used for tuning and for validation; the best trial would be judged "
            "by what chose it"
        )
    values = {knob.name: knob.choices or knob.ends or () for knob in knobs}
    for i in range(max(map(len, values.values()))):
        create("policy", policy, **{k: each[min(i, len(each) - 1)] for k, each in values.items()})
    kinds = {field.name: field.type for field in dataclasses.fields(create("policy", policy))}
    for knob in knobs:
        if kinds.get(knob.name) in (int, "int") and knob.ends and isinstance(knob.low, float):
            raise ScenarioError(
                f"knob {knob}: {knob.name} of {policy} is a whole number; write "
                f"{knob.name}={knob.low:.0f}:{knob.high:.0f}:int"
            )


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
        out.mkdir(parents=True, exist_ok=True)
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

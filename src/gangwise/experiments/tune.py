"""Tuning a policy's arguments with Optuna, and an honest look at what it gained.

Trials are played on some seeds, the best of them is compared with the default on others: the best
of many trials looks better than it is on the seeds that chose it. Every run goes through
:mod:`gangwise.experiments.sweep`, so it is stored once and shared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import gangwise
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError
from gangwise.core.policy import configuration
from gangwise.core.registry import create
from gangwise.experiments.knobs import Knob
from gangwise.experiments.results import Results
from gangwise.experiments.specification import Experiment, PolicyTable
from gangwise.experiments.sweep import sweep

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

__all__ = ["Trial", "Tuning", "tune"]

Progress = Callable[[str, int, int], None]

SEED = 0
"""Of the sampler: the same command gives the same study."""

DEFAULT = "default"

TUNING = "tuning.json"
"""What was found, beside ``study.db``."""


@dataclass(frozen=True)
class Trial:
    """One choice of arguments and what it earned on the seeds of the tuning."""

    number: int
    arguments: Mapping[str, Any]
    value: float


@dataclass(frozen=True)
class Tuning:
    """What was found.

    Attributes
    ----------
    policy, metric : str
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
    """

    policy: str
    metric: str
    default: Trial
    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    validation: tuple[int, ...]
    row: Mapping[str, Any] | None

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
        from gangwise.report.verdicts import verdict

        found = f"{said(self.best.arguments)}; on {_seeds(self.validation)}"
        return f"{on}: {found}: {verdict(self.row)}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "policy": self.policy, "metric": self.metric, "seeds": list(self.seeds),
            "validation_seeds": list(self.validation),
            "default": vars(self.default), "best": vars(self.best),
            "trials": [vars(trial) for trial in self.trials],
            "validation": None if self.row is None else dict(self.row),
            "sentence": self.sentence,
        }  # fmt: skip


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
        Of a single number per run, see :mod:`gangwise.experiments.runs`.
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
    out, tell = Path(out), progress or (lambda what, done, of: None)
    common = {
        "scenario": scenario, "settings": dict(settings or {}), "slots": slots,
        "optimum_slots": 1, "points": 50,
    }  # fmt: skip
    definition = {
        **common, "policy": policy, "knobs": [str(knob) for knob in ranges],
        "seeds": list(seeds), "metric": metric, "minimise": minimise,
        "version": gangwise.__version__,
    }  # fmt: skip
    plain = configuration(create("policy", policy))
    default = {knob.name: plain[knob.name] for knob in ranges}

    def play(name: str, choices: Mapping[str, Mapping[str, Any]], on: Sequence[int]) -> Results:
        tables = [PolicyTable(name=policy, label=label, arguments=dict(arguments), grid={})
                  for label, arguments in choices.items()]  # fmt: skip
        return sweep(Experiment(name=name, policies=list(tables), seeds=list(on), **common),
                     out, jobs)  # fmt: skip

    def value(arguments: Mapping[str, Any]) -> float:
        found = play("tuning", {DEFAULT: arguments}, seeds).per_seed(metric)["value"]
        mean = float(found.to_numpy().mean())
        if not math.isfinite(mean):
            raise GangwiseError(f"{metric} of {policy} with {said(arguments)} is {mean}")
        return mean

    sign = -1.0 if minimise else 1.0
    with closing(_open(optuna, out, definition, minimise)) as opened:
        study: Study = opened.study
        while (done := len(_finished(study))) < trials:
            tell("tuning", done, trials)
            study.sampler = optuna.samplers.TPESampler(seed=SEED + done)
            if done == 0 and all(knob.holds(default[knob.name]) for knob in ranges):
                study.enqueue_trial(default)
            trial = study.ask()
            study.tell(trial, value({knob.name: knob.suggest(trial) for knob in ranges}))
        tell("tuning", trials, trials)
        found = [Trial(i, dict(each.params), float(each.value or 0.0))
                 for i, each in enumerate(_finished(study))]  # fmt: skip
    base = next((t for t in found if t.arguments == default), None)
    base = base or Trial(-1, default, value(default))
    ranked = tuple(sorted(found, key=lambda trial: (-sign * trial.value, trial.number)))
    play("tuning", {DEFAULT: default} | {
        f"trial {t.number}: {said(t.arguments)}": t.arguments for t in _distinct(found, default)
    }, seeds)  # fmt: skip
    row = None
    if sign * ranked[0].value > sign * base.value:
        row = _compare(play, ranked[0].arguments, default, validation, metric, sign)
    tuning = Tuning(policy, metric, base, ranked, tuple(seeds), tuple(validation), row)
    (out / TUNING).write_text(json.dumps(tuning.as_dict(), indent=1) + "\n", encoding="utf-8")
    return tuning


def said(arguments: Mapping[str, Any]) -> str:
    """Arguments in words, numbers short.

    >>> said({"fraction": 0.123456, "steps": 5})
    'fraction = 0.1235, steps = 5'
    """
    return ", ".join(f"{k} = {v:.4g}" if isinstance(v, float) else f"{k} = {v}"
                     for k, v in arguments.items())  # fmt: skip


def _compare(
    play: Callable[..., Results], best: Mapping[str, Any], default: Mapping[str, Any],
    validation: Sequence[int], metric: str, sign: float,
) -> dict[str, Any]:  # fmt: skip
    results = play("validation", {DEFAULT: default, "tuned": best}, validation)
    row = dict(results.improvements(DEFAULT, metric).row(0, named=True))
    if sign < 0:
        low, high = row["low"], row["high"]
        row |= {"mean": -row["mean"], "low": None if high is None else -high,
                "high": None if low is None else -low}  # fmt: skip
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
    for end in ("low", "high"):
        create("policy", policy, **{knob.name: getattr(knob, end) for knob in knobs})


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
    path, name = out / "study.db", "tuning"
    direction = "minimize" if minimise else "maximize"
    text = json.dumps(definition, sort_keys=True, default=str)
    try:
        out.mkdir(parents=True, exist_ok=True)
        storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
        study = optuna.create_study(
            storage=storage, study_name=name, load_if_exists=True, direction=direction
        )
    except Exception as error:  # Optuna passes on whatever its database raises
        raise StoreError(f"cannot open the study {path}: {error}") from error

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

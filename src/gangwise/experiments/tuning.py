"""What tuning found, as it is kept beside the study: ``tuning.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangwise.core.errors import StoreError
from gangwise.experiments.knobs import Knob

DEFAULT = "default"
"""Label of the policy as it is."""

TUNING = "tuning"
"""Name of the experiment of the trials."""

STUDY = "study.db"


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
    minimise : bool
        Whether less of the metric is better.
    knobs : tuple of Knob
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
    minimise: bool
    knobs: tuple[Knob, ...]
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
            "policy": self.policy,
            "metric": self.metric,
            "minimise": self.minimise,
            "knobs": [vars(knob) for knob in self.knobs],
            "seeds": list(self.seeds),
            "validation_seeds": list(self.validation),
            "default": vars(self.default),
            "best": vars(self.best),
            "trials": [vars(trial) for trial in self.trials],
            "validation": None if self.row is None else dict(self.row),
            "sentence": self.sentence,
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
    try:
        path.write_text(json.dumps(tuning.as_dict(), indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    return path


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
        found = json.loads(path.read_text(encoding="utf-8"))
        return Tuning(
            found["policy"],
            found["metric"],
            found["minimise"],
            tuple(
                Knob(k["name"], k["ends"] and tuple(k["ends"]), k["log"], tuple(k["choices"]))
                for k in found["knobs"]
            ),
            Trial(**found["default"]),
            tuple(Trial(**trial) for trial in found["trials"]),
            tuple(found["seeds"]),
            tuple(found["validation_seeds"]),
            found["validation"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"cannot read {path}: {error!r}; start the same gangwise tune again to mend it, trials "
            "that are stored are not played again"
        ) from error


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

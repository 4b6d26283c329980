"""``gangwise leaderboard``: built-in schedulers on public logs, under rules that are committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats
from gangwise.core.errors import ScenarioError
from gangwise.core.isolation import apart
from gangwise.core.registry import label_of
from gangwise.core.settings import read_toml
from gangwise.experiments.replay import Replayed, played_by
from gangwise.experiments.runs import NamedSource
from gangwise.experiments.statistics import estimate_text, mean_and_interval
from gangwise.experiments.sweep import Progress, Workers
from gangwise.jobs.check import IsolatedScheduler

RULES = Path(__file__).with_name("leaderboard.toml")

TUNED = "tuned on the other logs"

COLUMNS: Mapping[str, tuple[str, float]] = {
    "gap, %": ("gap", 0.01),
    "completion, h": ("completion.mean", 3600.0),
    "waiting, h": ("waiting.mean", 3600.0),
    "bounded slowdown": ("slowdown.mean", 1.0),
    "worst users' waiting, h": ("worst users", 3600.0),
}
"""Of the table of a log: heading → metric and its unit."""


@dataclass(frozen=True)
class Leaderboard:
    """What every entry made of every part of every log.

    ``numbers`` are by log, entry and metric, one for each part; ``lines`` say how much of a log is
    played, ``chosen`` which of the rules' ``tuned`` was best on the other logs.
    """

    rules: Mapping[str, Any]
    lines: Mapping[str, str]
    numbers: Mapping[str, Mapping[str, Mapping[str, Floats]]]
    chosen: Mapping[str, str]

    def ratio(self, entry: str, over: str = "") -> Floats:
        """Completion over the bound, or over another entry's, geometric mean over logs [parts]."""
        logs = [
            np.log1p(of[entry]["gap"]) - (np.log1p(of[over]["gap"]) if over else 0.0)
            for of in self.numbers.values()
        ]
        return np.asarray(np.exp(np.mean(logs, axis=0)))

    @property
    def ranked(self) -> list[str]:
        """The entries that have a row, least completion over the bound first."""
        first = next(iter(self.numbers.values()))
        hidden = set(self.rules["tuned"]) - {*self.rules["schedulers"]}
        shown = [entry for entry in first if entry not in hidden]
        return sorted(shown, key=lambda entry: float(np.log(self.ratio(entry)).mean()))

    def markdown(self) -> str:
        base, ranked = self.rules["base"], self.ranked
        places = iter(range(1, len(ranked) + 1))
        columns = {
            "": ["" if e in self.rules["oracles"] else str(next(places)) for e in ranked],
            "scheduler": [_name(e) for e in ranked],
            "completion ÷ bound": _texts([self.ratio(e) for e in ranked]),
            f"completion over `{base}`, %": _texts(
                [100 * (self.ratio(e, base) - 1) for e in ranked]
            ),
            **{
                f"gap on {log}, %": _texts([100 * of[e]["gap"] for e in ranked])
                for log, of in self.numbers.items()
            },
        }
        line = (
            f"{len(self.numbers)} logs, each cut into {self.rules['parts']} parts of whole weeks "
            "that begin with an empty cluster; ± is half a 95 % interval over parts. Nodes of a "
            "log are alike, and nobody is killed at a limit."
        )
        parts = [f"{line}\n\n{_table(columns)}"]
        for log, of in self.numbers.items():
            order = sorted(ranked, key=lambda e: float(of[e]["gap"].mean()))
            [about] = [each["about"] for each in self.rules["logs"] if each["name"] == log]
            shown = {"scheduler": [_name(e) for e in order]} | {
                heading: _texts([of[e][metric] / unit for e in order])
                for heading, (metric, unit) in COLUMNS.items()
            }
            text = f"{about}. {self.lines[log]}. {TUNED.capitalize()}: `{self.chosen[log]}`."
            parts.append(f"### {log}\n\n{text[0].upper()}{text[1:]}\n\n{_table(shown)}")
        return "\n".join(parts)


def leaderboard(
    traces: Path,
    out: Path,
    own: Sequence[str] = (),
    workers: Workers | None = None,
    progress: Progress | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Leaderboard:
    """Play what is not played yet, each log in a folder of its own below ``out``.

    ``traces`` is the folder with the folders of public traces, ``own`` are further entries by name
    (``file.py:Class`` plays in a process of its own), ``rules`` stand in for ``leaderboard.toml``.
    """
    rules = read_toml(RULES) if rules is None else rules
    listed = [rules["base"], *rules["schedulers"], *rules["oracles"], *rules["tuned"], *own]
    seeds = range(rules["parts"])
    numbers: dict[str, dict[str, dict[str, Floats]]] = {}
    lines: dict[str, str] = {}
    for log in rules["logs"]:
        settings = {**log["settings"], "parts": rules["parts"]}
        settings["source"] = str(traces / settings["source"])
        if not Path(settings["source"]).exists():
            raise ScenarioError(f"there is no {settings['source']}; name the folder above it")
        made = {
            label_of(name): apart(IsolatedScheduler, "scheduler", name, True) for name in listed
        }
        source = NamedSource.of("replay", False, settings)
        replayed = played_by(
            source, made, seeds, out / log["name"], workers or Workers(), progress, {}
        )
        numbers[log["name"]] = _numbers(replayed)
        lines[log["name"]] = replayed.scenario.fidelity()[0]
    ratio = {
        (name, e): float(np.log1p(of[e]["gap"]).mean())
        for name, of in numbers.items()
        for e in rules["tuned"]
    }
    chosen = {}
    for name, of in numbers.items():
        others = numbers.keys() - {name}
        chosen[name] = min(rules["tuned"], key=lambda e: sum(ratio[o, e] for o in others))
        of[TUNED] = of[chosen[name]]
    return Leaderboard(rules, lines, numbers, chosen)


def _numbers(replayed: Replayed) -> dict[str, dict[str, Floats]]:
    bound = np.array([found.mean_completion for found in replayed.bounds()])
    found: dict[str, dict[str, Floats]] = {}
    for name, outcomes in replayed.outcomes.items():
        if any(not outcome.finished.all() for outcome in outcomes):
            raise ScenarioError(f"{name} leaves jobs undone in {replayed.results.store.folder}")
        each = [outcome.summary() for outcome in outcomes]
        metrics = [metric for metric, _ in COLUMNS.values() if metric != "gap"]
        found[name] = {m: np.array([one[m] for one in each]) for m in metrics}
        found[name]["gap"] = found[name]["completion.mean"] / bound - 1
    return found


def _name(entry: str) -> str:
    return f"*{entry}*" if entry == TUNED else f"`{entry}`"


def _texts(values: Sequence[Floats]) -> list[str]:
    found = [mean_and_interval(each) for each in values]
    return [estimate_text(of) if of.mean else "0" for of in found]


def _table(columns: Mapping[str, Sequence[str]]) -> str:
    rows = [columns.keys(), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"

"""What a replay says under other assumptions: limits, load, hidden rates.

A log does not say everything; what it leaves out is assumed, and this plays the best scheduler and
the one it is compared with again where one assumption at a time is another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gangwise.experiments.replay import Replayed, replay
from gangwise.experiments.replay_scenario import ReplayScenario, load_of
from gangwise.experiments.sweep import Progress
from gangwise.jobs.world import DrawnWorld

SEEDS = 3
"""So many of the replay's are played again."""

MORE = 1.1
"""Load, where more of it is assumed."""


@dataclass(frozen=True)
class Sensitivity:
    """What one scheduler gains over another, under several assumptions.

    Attributes
    ----------
    scheduler, base : str
    changes : mapping of str to tuple of float
        Change of the mean completion time in per cent, of each seed, by what was assumed; first
        as in the replay itself.
    """

    scheduler: str
    base: str
    changes: Mapping[str, tuple[float, ...]]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        changes = {name: list(values) for name, values in self.changes.items()}
        return {"scheduler": self.scheduler, "base": self.base, "changes": changes}

    @classmethod
    def of_dict(cls, told: Mapping[str, Any]) -> Sensitivity:
        """From what :meth:`as_dict` gave."""
        changes = {name: tuple(values) for name, values in told["changes"].items()}
        return cls(told["scheduler"], told["base"], changes)


def other_assumptions(scenario: ReplayScenario) -> dict[str, dict[str, Any]]:
    """Settings by what is assumed in place of what the scenario assumes.

    Examples
    --------
    >>> list(other_assumptions(ReplayScenario(world="like", nodes=4, first=50)))
    ['limits exact', 'load + 10 %', 'no affinity']
    """
    s, first = scenario.settings, scenario.draw(0)
    found: dict[str, dict[str, Any]] = {}
    if (first.jobs.limit != first.jobs.run).any():
        found["limits exact"] = {"overestimate": 1.0}
    else:
        found["limits 1 to 5 times"] = {"overestimate": 5.0}
    load = load_of(first.jobs, first.nodes)
    if load > 0:
        found["load + 10 %"] = {"load": MORE * (s.load or load)}
    if isinstance(scenario.world, DrawnWorld):
        word = s.world.partition(":")[0]
        own = {f.name: getattr(scenario.world, f.name) for f in fields(DrawnWorld)}

        def world(**changed: Any) -> dict[str, Any]:
            given = own | changed
            text = ",".join(f"{k}={v!r}" for k, v in given.items() if v != float("inf"))
            return {"world": f"{word}:{text}"}

        if round(own["stragglers"] * s.nodes) > 0:
            found["no stragglers"] = world(stragglers=0.0)
            found["twice the stragglers"] = world(stragglers=min(2 * own["stragglers"], 0.9))
        if own["affinity"] > 0:
            found["no affinity"] = world(affinity=0.0)
    return found


def sensitivity(
    played: Replayed, jobs: int = 1, progress: Progress | None = None
) -> Sensitivity | None:
    """Play the best scheduler and the first again under other assumptions.

    Parameters
    ----------
    played : Replayed
    jobs : int
        Workers, −1 for all cores.

    Returns
    -------
    Sensitivity, or None where there is only one scheduler.
    """
    means = {
        name: float(np.mean([outcome.summary()["completion.mean"] for outcome in each]))
        for name, each in played.outcomes.items()
    }
    base = played.schedulers[0]
    real = [n for n in played.schedulers if n != base and "oracle" not in n.split("+")]
    if not real:
        return None
    best = min(real, key=lambda name: means[name])
    seeds = list(played.seeds)[:SEEDS]
    settings = played.scenario.given
    source = settings.pop("source")
    changes = {"as assumed": _changes(played, best, base, len(seeds))}
    for name, other in other_assumptions(played.scenario).items():
        again = replay(source, [base, best], seeds, None, jobs, progress, **{**settings, **other})
        changes[name] = _changes(again, best, base, len(seeds))
    return Sensitivity(best, base, changes)


def _changes(played: Replayed, best: str, base: str, seeds: int) -> tuple[float, ...]:
    means = [
        [o.summary()["completion.mean"] for o in played.outcomes[name][:seeds]]
        for name in (best, base)
    ]
    return tuple(100 * (a / b - 1) for a, b in zip(*means))

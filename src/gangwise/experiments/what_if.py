"""What if: the rules of a site as they are, and changes of them, on the same jobs.

A change is one or several of a site file, see :mod:`gangwise.experiments.changes`, of the
``scheduler``, or of the ``load``. Each is played beside the rules as they are: a replay whose
rows are pairs of a site and a scheduler. So intervals, pages and folders are those of a replay.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.errors import ScenarioError
from gangwise.core.limits import require_seeds
from gangwise.experiments.answer import CONFIGURED, UNKNOWN, Compared
from gangwise.experiments.changes import Change, changed, changed_lines, changes_of, seconds_of
from gangwise.experiments.replay import BASE, Replayed, played_by, replay_source
from gangwise.experiments.replay_scenario import ReplayScenario, load_of
from gangwise.experiments.statistics import Estimate, number, numbers, period
from gangwise.experiments.sweep import Progress, Workers, silent
from gangwise.jobs.retelling import groups_of
from gangwise.jobs.scheduler import create_scheduler
from gangwise.jobs.site import SLURM


@dataclass(frozen=True)
class Asked:
    """The rules as they are.

    ``scheduler`` is the one in force, or ``slurm:FOLDER``; ``prices`` are of device-hours.
    """

    source: str
    settings: Mapping[str, Any]
    scheduler: str = BASE
    seeds: Sequence[int] = ()
    out: Path | str | None = None
    workers: Workers = field(default_factory=Workers)
    prices: Mapping[str, float] | None = None


def what_if(asked: Asked, changes: Sequence[str], progress: Progress | None = None) -> Replayed:
    """Play the rules as they are, and each change beside them.

    Raises
    ------
    ScenarioError
        For a change of what is not there, before anything is played.

    Examples
    --------
    >>> asked = Asked("twin:alibaba-gpu-v2023", {"first": 200, "nodes": 4}, workers=Workers(1))
    >>> found = what_if(asked, ["nodes.all+=1", "load*=1.1,scheduler=sjf+easy"])
    >>> found.schedulers
    ['as configured', 'nodes.all+=1', 'load*=1.1,scheduler=sjf+easy']
    """
    of_site = {"site": asked.scheduler} if asked.scheduler.startswith(SLURM) else {}
    source = replay_source(asked.source, {**of_site, **asked.settings})
    (progress or silent)("reading the log", 0, 1)
    played: Any = source.scenario()
    scheduler = asked.scheduler
    if scheduler.startswith(SLURM):
        scheduler = played.site.scheduler or BASE
    names, varied = {CONFIGURED: scheduler}, {}
    for text in changes:
        label = ",".join(map(str, parts := changes_of(text)))
        if label in names:
            raise ScenarioError(f"change {label} is given twice")
        names[label], varied[label] = _contender(played, scheduler, parts)
        played.changed(**varied[label]).draw(0)  # finds mistakes
    for device in asked.prices or {}:
        if device not in (devices := played.draw(0).nodes.devices):
            raise ScenarioError(f"price {device}: the nodes have {', '.join(devices)}")
    made = {label: create_scheduler(name) for label, name in names.items()}
    seeds = list(require_seeds(asked.seeds or (5 if played.drawn else 1)))
    told = {"rules": CONFIGURED, "changes": varied, "schedulers": names}
    told |= {"prices": dict(asked.prices)} if asked.prices else {}
    return played_by(source, made, seeds, asked.out, asked.workers, progress, told)


def _contender(
    played: ReplayScenario, scheduler: str, changes: Sequence[Change]
) -> tuple[str, dict[str, Any]]:
    """The scheduler and the settings of a change."""
    now = {"scheduler": scheduler, "load": played.settings.load}
    own = [change for change in changes if change.path in now]
    if any(change.path == "load" and change.how != "=" for change in own) and not now["load"]:
        drawn = played.draw(0)
        now["load"] = load_of(drawn.jobs, drawn.nodes)
    then = changed(now, own)
    settings: dict[str, Any] = {"load": then["load"]} if then["load"] != now["load"] else {}
    if of_site := [str(change) for change in changes if change not in own]:
        before = played.settings.change
        settings["change"] = ",".join([before] * bool(before) + of_site)
    return str(then["scheduler"]), settings


def lines_of(played: Replayed) -> dict[str, list[str]]:
    """By change, the lines of the site file that it replaces; of no what-if, nothing."""

    def document(scenario: ReplayScenario) -> dict[str, Any]:
        return {} if scenario.site is None else scenario.site.document()

    if CONFIGURED not in played.schedulers:
        return {}
    before = document(played.scenario)
    return {
        name: changed_lines(before, document(scenario))
        for name, scenario in played.scenarios.items()
        if name != CONFIGURED
    }


GROUPS = 12
"""A table of who wins and who pays has so many groups: those with the most device-hours."""


class GroupWaits(NamedTuple):
    """A group of jobs: how long they wait as configured, and by how much longer under changes."""

    name: str
    jobs: int
    hours: float  # device-hours
    wait: float  # seconds
    longer: dict[str, Estimate]  # seconds, by change


def who_pays(n: Compared) -> dict[str, list[GroupWaits]]:
    """Groups of jobs by partition, account, size and class of user, as far as there are several."""
    base, k = n.first, n.first.nodes.devices.index(n.device)
    on = np.flatnonzero(base.ended)
    groups = groups_of(base, k, None if n.partition is None else n.partition[on], on)
    groups["account"] = base.jobs.charged[on], list(base.jobs.accounts)
    held = ((base.end - base.last_start) * base.demand[:, k])[on] / 3600
    found = {}
    for what, (of, names) in groups.items():
        hours = np.bincount(of, held, len(names))
        jobs = np.bincount(of, minlength=len(names))
        most = [int(g) for g in np.argsort(-hours, kind="stable") if jobs[g]][:GROUPS]
        group = np.full(len(base.jobs), -1)
        group[on] = of
        found[what] = [
            GroupWaits(
                names[g],
                int(jobs[g]),
                float(hours[g]),
                float(base.waiting[group == g].mean()),
                {name: n.waits_more(name, group, g) for name in n.outcomes if name != n.base},
            )
            for g in (most if what == "account" else sorted(most))
        ]
    return {what: rows for what, rows in found.items() if len(rows) > 1}


def as_dict(played: Replayed, compared: Compared) -> dict[str, Any]:
    """What ``--json`` says of a what-if beside what it says of a replay; nothing of a replay."""
    if CONFIGURED not in played.schedulers:
        return {}
    asked = played.results.experiment
    groups = {
        what: [
            row._asdict() | {"longer": {name: numbers(of) for name, of in row.longer.items()}}
            for row in rows
        ]
        for what, rows in who_pays(compared).items()
    }
    told = {"schedulers": asked["schedulers"], "changes": asked["changes"], "groups": groups}
    told |= {"prices": asked.get("prices", {}), "lines": lines_of(played)}
    return {"what_if": told}


# A gate


_GATE = re.compile(r"\s*([\w. ]+?)\s*(<=|>=|<|>)\s*([+-]?)\s*([0-9.]+(?:[smhd0-9.]*)?)\s*(%?)\s*")

TIMES = ("waiting", "completion", "makespan", "worst users")
"""Numbers in seconds, of which a gate may speak in minutes, hours and days."""


class Gate(NamedTuple):
    """A condition: ``METRIC COMPARISON NUMBER``.

    With a sign or with ``%`` it speaks of the change from the rules as they are, otherwise of the
    number itself. Times may have units.

    >>> Gate.of("waiting.p95 > +2 %")
    Gate(text='waiting.p95 > +2 %', metric='waiting.p95', above=True, than=2.0, change='%')
    """

    text: str
    metric: str
    above: bool
    than: float
    change: str  # "%", "+" (a difference), or "" (the number itself)

    @classmethod
    def of(cls, text: str) -> Gate:
        found = _GATE.fullmatch(text)
        if found is None:
            raise ScenarioError(
                f"condition {text!r}: write METRIC < NUMBER or METRIC > NUMBER, such as "
                "'waiting.p95 > +2 %', 'waiting.p95 < 1h' or 'killed > 0'"
            )
        metric, sign, signed, value, percent = found.groups()
        than = seconds_of(value, f"condition {text!r}:")
        than = -than if signed == "-" else than
        return cls(text, metric, sign[0] == ">", than, percent or "+" * bool(signed))

    def of_run(self, compared: Compared, name: str) -> Estimate:
        """The number that the condition speaks of."""
        known = compared.summaries[compared.base][0]
        if self.metric not in known:
            raise ScenarioError(
                f"condition {self.text!r}: there is no metric {self.metric!r}; there are "
                f"{', '.join(known)}"
            )
        if self.change == "%":
            return UNKNOWN if name == compared.base else compared.change(name, self.metric)
        here, there = (compared.of(who, self.metric) for who in (name, compared.base))
        return Estimate(here.mean - there.mean, None, None) if self.change else here

    def holds(self, value: float) -> bool:
        return value > self.than if self.above else value < self.than

    def told(self, value: Estimate) -> str:
        """The number in words."""
        if self.change == "%":
            half = "" if value.half is None else f" ± {number(value.half, 1)}"
            return f"{number(value.mean, 1, True)}{half} %"
        if self.metric.startswith(TIMES):
            return ("+" if self.change and value.mean > 0 else "") + period(value.mean)
        return number(value.mean, 2, bool(self.change))


def broken(compared: Compared, gates: Sequence[Gate]) -> list[str]:
    """What holds of the conditions that must not, one line for each change."""
    found = []
    for gate in gates:
        for name in compared.outcomes:
            value = gate.of_run(compared, name)
            if name != compared.base and gate.holds(value.mean):
                found.append(f"{name}: {gate.metric} is {gate.told(value)} ({gate.text})")
    return found

"""What if: a site's rules as they are, and changes of them, on the same jobs.

A change is one or several of a site file, see :mod:`gangwise.study.changes`, of the
``scheduler``, or of the ``load``. Each is compared with the rules as they are: a replay whose
rows are pairs of a site and a scheduler. So intervals, pages and folders are those of a replay.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gangwise.core.errors import NothingEnded, ScenarioError
from gangwise.core.settings import toml_key
from gangwise.jobs.metrics import Outcome
from gangwise.jobs.scheduler import create_scheduler
from gangwise.notation import roughly
from gangwise.sites import retelling, slurm_files
from gangwise.sites.site import PRINTED, SLURM, Rules, Site, kinds_of, together
from gangwise.study import replay_scenario, sweep
from gangwise.study import runs as study_runs
from gangwise.study.answer import CONFIGURED, Compared
from gangwise.study.changes import SettingChange, changed, changed_lines, changes_of, seconds_of
from gangwise.study.replay import BASE, Replayed, played_by, replay_source, seeds_of
from gangwise.study.results import TIMES
from gangwise.study.statistics import UNKNOWN, Estimate, count, number, numbers
from gangwise.study.usage import require_prices


@dataclass(frozen=True)
class CurrentRules:
    """The rules as they are.

    ``scheduler`` is the one in force, or ``slurm:FOLDER``; ``prices`` are of device-hours.
    """

    source: str
    settings: Mapping[str, Any]
    scheduler: str = BASE
    seeds: Sequence[int] = ()
    out: study_runs.Store | Path | str | None = None
    workers: sweep.Workers = field(default_factory=sweep.Workers)
    prices: Mapping[str, float] | None = None


def what_if(
    asked: CurrentRules,
    changes: Sequence[str],
    progress: sweep.Progress | None = None,
    gates: Sequence[Gate] = (),
) -> Replayed:
    """Play the rules as they are, and each change of them.

    ScenarioError for a change of what is not there, or a gate's unknown metric, before anything is
    played.

    >>> from gangwise.study.sweep import Workers
    >>> asked = CurrentRules(
    ...     "twin:alibaba-gpu-v2023", {"first": 200, "nodes": 4}, workers=Workers(1)
    ... )
    >>> found = what_if(asked, ["nodes.all+=1", "load*=1.1,scheduler=sjf+easy"])
    >>> found.schedulers
    ['as configured', 'nodes.all+=1', 'load*=1.1,scheduler=sjf+easy']
    """
    site = together(asked.scheduler, asked.settings.get("site"))
    source = replay_source(asked.source, {**asked.settings, **({"site": site} if site else {})})
    (progress or sweep.silent)("reading the log", 0, 1)
    played: Any = source.scenario()
    for gate in gates:
        played.check_metric(gate.metric, f"condition {gate.text!r}")
    scheduler = asked.scheduler
    if scheduler.startswith(PRINTED):
        scheduler = played.site.scheduler or BASE
    names, varied = {CONFIGURED: scheduler}, {}
    for text in changes:
        label = ",".join(map(str, parts := changes_of(text)))
        if label in names:
            raise ScenarioError(f"change {label} is given twice")
        names[label], varied[label] = _changed_rules(played, scheduler, parts)
        played.changed(**varied[label]).draw(0)  # finds mistakes
    if asked.prices:
        require_prices(asked.prices, played.draw(0).nodes.devices)
    schedulers = {label: create_scheduler(name) for label, name in names.items()}
    seeds = seeds_of(played, asked.seeds)
    about = {"rules": CONFIGURED, "changes": varied, "schedulers": names}
    about |= {"prices": dict(asked.prices)} if asked.prices else {}
    return played_by(source, schedulers, seeds, asked.out, asked.workers, progress, about)


def _changed_rules(
    played: replay_scenario.ReplayScenario, scheduler: str, changes: Sequence[SettingChange]
) -> tuple[str, dict[str, Any]]:
    current = {"scheduler": scheduler, "load": played.settings.load}
    own = [change for change in changes if change.path in current]
    # What the log's load is has to be worked out, and only a change of it needs it.
    if any(change.path == "load" and change.how != "=" for change in own) and not current["load"]:
        drawn = played.draw(0)
        current["load"] = replay_scenario.load_of(drawn.jobs, drawn.nodes)
    wanted = changed(current, own)
    if not wanted["load"] and any(change.path == "load" for change in own):
        raise ScenarioError(f"{','.join(map(str, own))}: the load is 0, so that no job would come")
    settings: dict[str, Any] = {"load": wanted["load"]} if wanted["load"] != current["load"] else {}
    if of_site := [str(change) for change in changes if change not in own]:
        settings["change"] = ",".join(filter(None, [played.settings.change, *of_site]))
        # A change of Slurm's own files may change the scheduler as well.
        if played.settings.site.startswith(SLURM) and scheduler == wanted["scheduler"]:
            site = played.changed(**settings).site
            wanted["scheduler"] = site.scheduler if site and site.edits else scheduler
    return str(wanted["scheduler"]), settings


def lines_of(played: Replayed) -> dict[str, list[str]]:
    """Lines of the site's files that each change replaces; empty for a plain replay."""

    def lines(scenario: replay_scenario.ReplayScenario) -> list[str]:
        edits = list(scenario.site.edits) if scenario.site else []
        every = changes_of(scenario.settings.change) if scenario.settings.change else []
        if edits and all(slurm_files.in_own_words(change.parts) for change in every):
            return edits
        sites = (played.scenario.site, scenario.site)
        return edits + changed_lines(*(site.document() if site else {} for site in sites))

    if CONFIGURED not in played.schedulers:
        return {}
    return {name: lines(varied) for name, varied in played.scenarios.items() if name != CONFIGURED}


GROUPS = 12
"""A table of who wins and who pays has so many groups: those with the most device-hours."""


class GroupImpact(NamedTuple):
    """A group of jobs: how long they wait as configured, and by how much longer under changes."""

    name: str
    jobs: int
    hours: float  # device-hours
    wait: float  # seconds
    longer: dict[str, Estimate]  # seconds, by change


def who_pays(n: Compared, changes: Sequence[str]) -> dict[str, list[GroupImpact]]:
    """Groups of jobs by partition, account, size and class of user, as far as there are several.

    Where seeds play different jobs, such as the weeks of a log, groups are of all of them.
    """
    runs, k = n.outcomes[n.base], n.first.nodes.devices.index(n.device)
    # Where all seeds play the same jobs, one stands for all.
    if all(np.array_equal(run.jobs.submit, n.first.jobs.submit) for run in runs):
        runs = runs[:1]

    def joined(column: Callable[[Outcome], Any]) -> Any:
        return np.concatenate([column(run)[run.ended] for run in runs])

    def partition_of(run: Outcome) -> Any:
        return n.partition if len(runs) == 1 else np.array(run.jobs.pools)[run.jobs.pool]

    partition = None if n.partition is None else joined(partition_of)
    device_seconds = joined(lambda o: (o.end - o.last_start) * o.demand[:, k])
    size = joined(lambda o: np.maximum(o.demand[:, k], 0.0))
    groups = retelling.groups_of(size, device_seconds, joined(lambda o: o.jobs.user), partition)
    groups["account"] = joined(lambda o: o.jobs.charged), list(n.first.jobs.accounts)
    waiting = joined(lambda o: o.waiting)
    impacts: dict[str, list[GroupImpact]] = {}
    for kind, (codes, names) in groups.items():
        hours = np.bincount(codes, device_seconds, len(names)) / 3600
        jobs = np.bincount(codes, minlength=len(names))
        most = [int(g) for g in np.argsort(-hours, kind="stable") if jobs[g]][:GROUPS]
        # Groups of the jobs that ended, put back in their places among all; −1 for the others.
        group, open_codes = [np.full(len(run.jobs), -1) for run in runs], codes
        for groups_of_run, run in zip(group, runs):
            groups_of_run[run.ended], open_codes = np.split(open_codes, [int(run.ended.sum())])
        impacts[kind] = []
        for g in most if kind == "account" else sorted(most):
            # Paired: the same jobs under the change and under the rules as configured.
            longer = {name: n.waits_more(name, group, g) for name in changes}
            about = names[g], int(jobs[g]), float(hours[g]), float(waiting[codes == g].mean())
            impacts[kind].append(GroupImpact(*about, longer))
    return {kind: rows for kind, rows in impacts.items() if len(rows) > 1}


def as_dict(played: Replayed) -> dict[str, Any]:
    """Additions of ``--json`` to a replay for a what-if; empty for a plain replay."""
    if CONFIGURED not in played.schedulers:
        return {}
    plan = played.results.experiment
    groups = {
        kind: [
            row._asdict()
            | {"longer": {name: numbers(estimate) for name, estimate in row.longer.items()}}
            for row in rows
        ]
        for kind, rows in who_pays(played.compared(), [*plan["changes"]]).items()
    }
    answer = {"schedulers": plan["schedulers"], "changes": plan["changes"], "groups": groups}
    answer |= {"prices": plan.get("prices", {}), "lines": lines_of(played)}
    return {"what_if": answer}


# A gate


_GATE = re.compile(r"\s*([\w. ]+?)\s*(<=|>=|<|>)\s*([+-]?)\s*([0-9.]+(?:[smhd0-9.]*)?)\s*(%?)\s*")


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
        match = _GATE.fullmatch(text)
        if match is None:
            raise ScenarioError(
                f"condition {text!r}: write METRIC < NUMBER or METRIC > NUMBER, such as "
                "'waiting.p95 > +2 %', 'waiting.p95 < 1h' or 'killed > 0'"
            )
        metric, sign, signed, value, percent = match.groups()
        than = seconds_of(value, f"condition {text!r}:")
        than = -than if signed == "-" else than
        return cls(text, metric, sign[0] == ">", than, percent or "+" * bool(signed))

    def of_run(self, compared: Compared, name: str) -> Estimate:
        """The number that the condition speaks of: a metric, or its change."""
        if self.change == "%":
            return UNKNOWN if name == compared.base else compared.change(name, self.metric)
        ours, base = (compared.estimate(label, self.metric) for label in (name, compared.base))
        return Estimate(ours.mean - base.mean, None, None) if self.change else ours

    def holds(self, value: float) -> bool:
        return value > self.than if self.above else value < self.than

    def describe(self, value: Estimate) -> str:
        """The number that the condition speaks of, with its unit and sign."""
        if self.change == "%":
            half = "" if value.half is None else f" ± {number(value.half, 1)}"
            return f"{number(value.mean, 1, True)}{half} %"
        if self.metric.startswith(TIMES):
            return ("+" if self.change and value.mean > 0 else "") + roughly(value.mean)
        return number(value.mean, 2, bool(self.change))


def broken(compared: Compared, gates: Sequence[Gate]) -> list[str]:
    """The conditions that must not hold and do, a line for each change."""
    return [
        f"{name}: {gate.metric} is {gate.describe(value)} ({gate.text})"
        for gate in gates
        for name in compared.outcomes
        if name != compared.base and gate.holds((value := gate.of_run(compared, name)).mean)
    ]


# Capacity


class Needed(NamedTuple):
    """Number of nodes of a kind that reach a target; None where none of those tried does.

    ``value`` is of the metric then, ``one_less`` with a node less. A node more than now shortens
    the mean completion by ``played`` seconds; it lowers what no schedule can beat by ``bound``, at
    most, to first order: the prices of the dual, over the jobs. NaN where no prices were searched.
    """

    kind: str
    now: int
    needed: int | None
    value: float
    one_less: float
    bound: float
    played: float

    def verdict(self, target: Gate) -> str:
        """Whether the target is reached, and with how many nodes."""
        kind = "" if self.kind == "all" else f" of {self.kind}"
        if self.needed is None:
            return f"no number of nodes{kind} tried reaches {target.text}"
        verb = "reaches" if self.needed == 1 else "reach"
        nodes = f"{count(self.needed, 'node')}{kind}"
        return f"{nodes} {verb} {target.text}; now there are {self.now:,}"

    def sentence(self, target: Gate) -> str:
        """The verdict, the metric then, and what one node more than now is worth."""
        shown = [target.describe(Estimate(v, None, None)) for v in (self.value, self.one_less)]
        text = f"{self.verdict(target)}; the most has {shown[0]}"
        if self.needed is not None:
            text = f"{self.verdict(target)} ({shown[0]}; with one less {shown[1]})"
        longer = "shortens" if self.played >= 0 else "lengthens"
        text += f". One more than now {longer} mean completion by {roughly(abs(self.played))}"
        if math.isfinite(self.bound):
            text += f"; it lowers what no schedule can beat by {number(self.bound, 1)} s at most"
        return f"{text}."

    def as_dict(self, target: Gate) -> dict[str, Any]:
        texts = {"verdict": self.verdict(target), "sentence": self.sentence(target)}
        return self._asdict() | texts


MOST_TIMES = 16  # at most 16 (n + 1) nodes are tried of a kind that has n


def capacity(
    asked: CurrentRules, target: Gate, kinds: Sequence[str], progress: sweep.Progress | None = None
) -> tuple[Replayed, list[Needed]]:
    """The fewest nodes of each kind that reach a target, the others as they are.

    Bisection: more nodes of a kind are taken to serve no worse, which anomalies of list scheduling
    may belie. That the number reaches the target and one less does not is played. What shuts out
    jobs that run now does not reach it. The replay has all that was tried.
    """
    # One store for all that is tried, so that nothing is played twice.
    asked = replace(asked, out=study_runs.store_of(asked.out))
    base = what_if(asked, [], progress, [target])
    site = base.scenario.site or Site(Rules())
    nodes = base.scenario.site_nodes(site)
    size = site.counts(nodes)
    tried = {CONFIGURED: target.of_run(base.compared(), CONFIGURED).mean}
    left_out = {CONFIGURED}

    def value(kind: str, n: int) -> float:
        """The number that the target speaks of; NaN where jobs are shut out."""
        change = CONFIGURED if n == size[kind] else f"nodes.{toml_key(kind)}={n}"
        if change not in tried:
            try:
                compared = what_if(asked, [change], progress).compared()
            except NothingEnded:  # no job fits
                tried[change] = math.nan
                left_out.add(change)
                return math.nan
            tried[change] = target.of_run(compared, change).mean
            # A target that is reached since jobs are shut out is not reached.
            tried[change] = math.nan if compared.refused(change)[0] else tried[change]
        return tried[change]

    needs = []
    for kind in kinds:
        if kind not in size:
            raise ScenarioError(f"--kinds {kind}: there is no such kind; known: {', '.join(size)}")
        most = MOST_TIMES * (size[kind] + 1)
        low, high, step = 0, size[kind], 1
        # Doubling steps upward until the target is reached,
        while not target.holds(value(kind, high)) and high < most:
            low, high, step = high, min(high + step, most), 2 * step
        # then bisection between the last that failed and the first that holds.
        while high - low > 1 and target.holds(value(kind, high)):
            middle = (low + high) // 2
            low, high = (low, middle) if target.holds(value(kind, middle)) else (middle, high)
        enough = high if target.holds(value(kind, high)) else None
        below = value(kind, high - 1) if enough and high > 1 else math.nan
        needs.append(Needed(kind, size[kind], enough, value(kind, high), below, math.nan, math.nan))
    # One node more than now of each kind, to say what the next is worth.
    grown = [f"nodes.{toml_key(kind)}={size[kind] + 1}" for kind in kinds]
    changes = sorted({*tried, *grown} - left_out, key=_kind_and_number)
    played = what_if(asked, changes, progress)
    worth = marginal_worth(played, site.of_processors(nodes), progress)
    means = {name: np.mean([o.until_left for o in row]) for name, row in played.outcomes.items()}
    return played, [
        row._replace(
            bound=worth.get(row.kind, math.nan), played=float(means[CONFIGURED] - means[added])
        )
        for row, added in zip(needs, grown)
    ]


def _kind_and_number(change: str) -> tuple[str, int]:
    kind, _, n = change.rpartition("=")
    return kind, int(n)


def marginal_worth(
    played: Replayed, processors: bool, progress: sweep.Progress | None = None
) -> dict[str, float]:
    """Seconds of mean completion that one more node of each kind takes off the bound.

    The dual L(λ) takes back Σ capacity λ Δ: where node n costs λ[n, t] a device-second, another
    like it lowers L, at these prices, by its devices times Σ_t λ[n, t] Δ, over the jobs. Of the
    last node of each kind, which is the one that is copied; means over seeds.
    """
    worth: dict[str, list[float]] = {}
    for seed, bound in zip(played.seeds, played.bounds(progress=progress)):
        drawn = played.scenario.draw(seed)
        jobs = replay_scenario.bounded(drawn, played.scenario.options)
        for kind, on in kinds_of(drawn.nodes, processors).items() if bound.searched else ():
            devices = 1.0 if processors else float(jobs.capacity[on[-1]])
            # Σ_t λ[n, t] Δ, of the last node of the kind.
            price = float(bound.prices[on[-1]].sum()) * bound.period
            worth.setdefault(kind, []).append(devices * price / jobs.submit.size)
    return {kind: float(np.mean(values)) for kind, values in worth.items()}

"""What a run did, beside what it earned: played once more, for its decisions are not kept.

A run is a pure function of instance, policy and seed, so playing it again gives the same slots;
that its rewards are the stored ones is checked before anything is shown. Of the best policy and the
first seed there are

- how much of each server was given over time,
- what jobs asked for and what they got, by device type,
- of families that learn, what was measured of each channel or machine beside the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gangwise.core.arrays import Floats, Ints
from gangwise.core.contracts import Instance, Policy
from gangwise.core.errors import GangwiseError
from gangwise.core.registry import create, entries
from gangwise.core.simulation import Simulation
from gangwise.experiments.compare import Comparison
from gangwise.experiments.statistics import number
from gangwise.report.numbers import Numbers
from gangwise.report.page import Drawn, pictured
from gangwise.report.plotting import Panel
from gangwise.report.words import words

SECONDS = 15.0
"""A run that took longer is not played again for its page."""

BINS, ROWS, DEVICE_TYPES = 80, 64, 6
"""Most bins of time, rows of servers, panels of device types."""


class Record:
    """What is gathered while a run is played again.

    A family says in :meth:`decided` what is used by a decision, and in :meth:`learned` what is
    measured. ``used`` [R, slots] is the share of each server that was given; ``asked`` and
    ``given`` [K, slots] are shares of what there is; arms are what is learned about.
    """

    truth = "expectation"  # what the true values are: a caption

    def __init__(self, instance: Any, slots: int, seed: int):
        self.instance, self.problem, self.slots = instance, instance.problem, slots
        self.servers, self.devices, self.arms = self.names()
        self.used = np.zeros((len(self.servers), slots))
        self.asked, self.given = np.zeros((2, len(self.devices), slots))
        self.count, self.total, self.squares, self.true = np.zeros((4, len(self.arms)))
        self.begin(seed)

    def names(self) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        return self.problem.cluster.servers, self.problem.cluster.devices, ()

    def begin(self, seed: int) -> None:
        self.arrivals = self.instance.arrivals(self.slots, seed)

    def decided(self, slot: int, decision: Any) -> None: ...

    def learned(self, feedback: Any) -> None: ...

    def give(self, slot: int, got: Floats, asked: Floats) -> None:
        """Devices given [R, K] and asked for [K] in a slot."""
        capacity = self.problem.cluster.capacity
        held, total = capacity > 0, np.maximum(capacity.sum(axis=0), 1e-300)
        share = np.divide(got, capacity, out=np.zeros_like(got), where=held)
        self.used[:, slot] = share.sum(axis=1) / np.maximum(held.sum(axis=1), 1)
        self.given[:, slot] = got.sum(axis=0) / total
        self.asked[:, slot] = asked / total

    def measure(self, arms: Ints, values: Floats, true: Floats) -> None:
        self.count[arms] += 1
        self.total[arms] += values
        self.squares[arms] += values**2
        self.true[arms] += true


class GainOverhead(Record):
    """OGASched's family."""

    def decided(self, slot: int, decision: Any) -> None:
        channels, here = self.problem.channels, self.arrivals[slot]
        got = np.zeros_like(self.problem.cluster.capacity)
        np.add.at(got, channels.server, decision * (here[channels.job_type] > 0)[:, None])
        self.give(slot, got, here @ self.problem.requests)


class Gangs(Record):
    """Gangs whose gain is known: tasks are on servers."""

    def decided(self, slot: int, decision: Any) -> None:
        came = self.arrivals[slot][self.problem.task_job_type] > 0
        got = self.problem.handed_out(np.where(came, decision, -1).astype(np.int64))  # -1: nowhere
        self.give(slot, got, self.problem.task_requests[came].sum(axis=0))


class FluctuatingSpeeds(Record):
    """ESDP's family: channels are on or off, and what they bring is learned."""

    def names(self) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        servers, devices, _ = super().names()
        return servers, devices, [self.problem.name(e) for e in range(self.problem.E)]

    def begin(self, seed: int) -> None:
        self.arrivals = self.instance.history(self.slots, seed)[0]

    def decided(self, slot: int, decision: Any) -> None:
        on, server = np.asarray(decision, dtype=bool), self.problem.channels.server
        channels = np.bincount(server, minlength=len(self.servers))
        total = np.maximum(self.problem.cluster.capacity, 1e-300)
        busy = np.bincount(server[on], minlength=channels.size)
        self.used[:, slot] = busy / np.maximum(channels, 1)
        may = self.problem.available(self.arrivals[slot])
        self.given[:, slot] = self.problem.requests[on].sum(axis=0) / total
        self.asked[:, slot] = self.problem.requests[may].sum(axis=0) / total

    def learned(self, feedback: Any) -> None:
        for each in feedback:
            true = self.instance.means(each.slot)[each.channels]
            self.measure(each.channels, each.utilities, true)


class GangSpeeds(FluctuatingSpeeds):
    """Gangs on servers of unknown speed: what the channels in use bring is learned."""

    decided = Gangs.decided


class ApproximationJobs(Record):
    """OPS's and OPM's family: machines work for jobs, and their rates are learned."""

    truth = "mean rate"

    def names(self) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        machines = [f"machine {m}" for m in range(self.problem.M)]
        return machines, (), machines

    def begin(self, seed: int) -> None:
        self.rates = self.instance.history(self.slots, seed)[0].mean(axis=0)

    def learned(self, feedback: Any) -> None:
        for each in feedback:
            self.used[each.machines, each.slot] = 1.0
            self.measure(each.machines, each.rates, self.rates[each.machines])


RECORDS: dict[str, type[Record]] = {
    "gain_overhead": GainOverhead,
    "gain_overhead_gang": Gangs,
    "fluctuating_speeds": FluctuatingSpeeds,
    "fluctuating_speeds_gang": GangSpeeds,
    "approximation_jobs": ApproximationJobs,
}


class _Watched:
    def __init__(self, policy: Policy[Any, Any, Any], record: Record):
        self._policy, self._record, self._slot = policy, record, 0
        self.timing, self.family = policy.timing, getattr(policy, "family", None)
        self.randomised = getattr(policy, "randomised", False)

    def start(self, problem: Any, rng: np.random.Generator) -> None:
        self._policy.start(problem, rng)

    def decide(self, observation: Any) -> Any:
        decision = self._policy.decide(observation)
        self._record.decided(self._slot, decision)
        self._slot += 1
        return decision

    def learn(self, feedback: Any) -> None:
        self._record.learned(feedback)
        self._policy.learn(feedback)


def watched(instance: Instance, policy: Policy[Any, Any, Any], slots: int, seed: int) -> Any:
    """A record of a run, and the rewards of its slots.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario
    >>> instance = create_scenario("ogasched-default-v1:servers=8").instance(seed=1)
    >>> record, rewards = watched(instance, create_policy("drf"), 20, seed=1)
    >>> record.used.shape, bool((record.used <= 1 + 1e-9).all())
    ((8, 20), True)
    """
    record = RECORDS[instance.family](instance, slots, seed)
    simulation: Any = Simulation(instance, policy, slots, seed)
    simulation.policy = _Watched(simulation.policy, record)
    for _ in range(slots):
        simulation.step()
    return record, simulation.rewards


def run_figures(comparison: Comparison) -> list[Drawn]:
    """Figures of the best policy's run under the first seed; none where it cannot be played again.

    That is: for a scenario or a policy of one's own, or one that takes long.
    """
    numbers = Numbers(comparison.results)
    best, seed = numbers.ranking(numbers.cells[0])[0], comparison.seeds[0]
    known = entries("policy").get(best.partition(":")[0])
    took = numbers.of("seconds").get((numbers.cells[0], best))
    long = took is None or took.mean > SECONDS
    if comparison.scenario.family not in RECORDS or known is None or not known.built_in or long:
        return []
    stored = numbers.paths[numbers.cells[0], best][seed].columns.get("reward.slot")
    if stored is None:
        return []
    try:
        instance = comparison.scenario.instance(seed)
        record, rewards = watched(instance, create("policy", best), comparison.slots, seed)
    except GangwiseError:  # a trace that is elsewhere by now, arguments that are gone
        return []
    if not np.array_equal(rewards[stored[0]], stored[1]):
        return []
    where = f"One run: {best}, seed {seed}, played again for this figure."
    return [_map(record, where), *_asked(record, where), *_learned(record, where)]


def _binned(values: Floats, bins: int) -> Floats:
    edges = np.linspace(0, values.shape[-1], bins + 1).round().astype(np.int64)
    return np.asarray(np.add.reduceat(values, edges[:-1], axis=-1) / np.diff(edges))


def _map(record: Record, where: str) -> Drawn:
    bins, rows = min(BINS, record.slots), min(ROWS, len(record.servers))
    used = _binned(_binned(record.used, bins).T, rows).T
    first = np.linspace(0, len(record.servers), rows + 1).round().astype(np.int64)
    at = (np.arange(bins) + 0.5) * record.slots / bins
    each = -(-len(record.servers) // rows)
    caption = (
        f"{where} A row is {'a server' if each == 1 else f'about {each} servers'}, a column about "
        f"{record.slots / bins:.3g} slots; the stronger the colour, the more was given. Over all: "
        f"{number(100 * float(record.used.mean()), 1)} %."
    )
    cells = [
        ("", record.servers[server], x, share, None, None)
        for server, shares in zip(first, used)
        for x, share in zip(at, shares)
    ]
    title = "How much of each server was given over time"
    return pictured(title, cells, [Panel("", "slot", "", "map")], caption)


def _asked(record: Record, where: str) -> list[Drawn]:
    if not record.devices:
        return []
    bins = min(BINS, record.slots)
    at = (np.arange(bins) + 0.5) * record.slots / bins
    rows, panels = [], []
    for k, device in enumerate(record.devices[:DEVICE_TYPES]):
        panels.append(Panel(device, "slot", "% of what there is", level=100.0))
        for line, of in (("requested", record.asked[k]), ("given", record.given[k])):
            values = 100 * _binned(of, bins)
            rows += [(device, line, *each, None, None) for each in zip(at, values)]
    caption = (
        f"{where} Of the jobs that arrived; the grey line is all that there is. Means over bins of "
        "slots."
    )
    return [pictured("Requested and given", rows, panels, caption)]


def _learned(record: Record, where: str) -> list[Drawn]:
    seen = np.flatnonzero(record.count >= 2)
    if not seen.size:
        return []
    n = record.count[seen]
    mean, true = record.total[seen] / n, record.true[seen] / n
    spread = np.sqrt(np.maximum(record.squares[seen] / n - mean**2, 0.0) * n / (n - 1))
    half = 1.96 * spread / np.sqrt(n)
    order = np.argsort(-true, kind="stable")
    place = np.arange(seen.size, dtype=np.float64)
    sides = zip(place, mean[order], (mean - half)[order], (mean + half)[order])
    rows = [("", "true mean", x, y, None, None) for x, y in zip(place, true[order])]
    rows += [("", "measured", *each) for each in sides]
    inside = float((np.abs(mean - true) <= half + 1e-12).mean())
    rest = len(record.arms) - seen.size
    left_out = f" {rest} of {len(record.arms)} were used less than twice and are left out."
    best, most = record.arms[seen[order[0]]], int(np.argmax(record.count))
    caption = (
        f"{where} Means of what the policy was told, with 95 % intervals; {number(100 * inside)} % "
        f"of them hold the truth. {words('captions')[record.truth]}{left_out if rest else ''} The "
        f"best is {best}; most often used: {record.arms[most]}, in "
        f"{number(float(record.count[most]))} slots."
    )
    panel = Panel("", "the best first", "value", "points")
    return [pictured("Learned against true", rows, [panel], caption)]

"""Measures that only ESDP's figures and theorems need, see ``papers/esdp.toml``."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gangwise.core.arrays import Floats
from gangwise.core.registry import create
from gangwise.papers.fluctuating_speeds import environment, policies
from gangwise.papers.fluctuating_speeds.problem import FluctuatingSpeedsProblem
from gangwise.papers.fluctuating_speeds.solver import DynamicProgramme, P3Solver
from gangwise.papers.reproduce import measures, papers
from gangwise.study.results import Results
from gangwise.study.statistics import Estimate, mean_and_interval

SHARE_OF_SLOTS, JOB_TYPES = 0.9, 8
"""ρ and |L| of the paper's default setting."""


@dataclass
class ESDPByProgramme(policies.ESDPAsPrinted):
    """The printed algorithm with the paper's own dynamic programme, to see how long it takes.

    ScenarioError at the start of a run whose requests are not whole numbers.
    """

    def start(self, problem: FluctuatingSpeedsProblem, rng: np.random.Generator) -> None:
        super().start(problem, rng)
        # The first slots, of channels never used, would do without the programme.
        DynamicProgramme(problem.requests, np.floor(problem.cluster.capacity))

    def _choose(
        self, v: Floats, s: Floats, available: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        return self._solver.solve(v, s, available=available, programme=True).x


def steeper(results: Results, who: str, than: Sequence[str], part: float) -> Estimate:
    """Growth of the average from T/part to T less that of the steepest of others, in points."""
    T = float(measures.recorded(results, who)[-1])
    # How much the average still rises says how far it is from level.
    rise = {
        policy: 100
        * (measures.average(results, policy, T) / measures.average(results, policy, T / part) - 1)
        for policy in (who, *than)
    }
    return measures.least(mean_and_interval(rise[who] - rise[base]) for base in than)


def _ends(results: Results, who: str) -> tuple[Floats, Floats]:
    ends = measures.cells(results)
    return measures.total(results, who, cell=ends[0]), measures.total(results, who, cell=ends[-1])


def growth_lead(results: Results, who: str, than: Sequence[str]) -> Estimate:
    """Growth over the setting less that of the steepest of others, in points of a per cent."""
    ends = {policy: _ends(results, policy) for policy in (who, *than)}
    growth = {policy: 100 * (end / begin - 1) for policy, (begin, end) in ends.items()}
    return measures.least(mean_and_interval(growth[who] - growth[base]) for base in than)


def gain_lead(results: Results, who: str, than: Sequence[str]) -> Estimate:
    """Gain over the setting relative to that of the one that gains most, in per cent."""
    ends = {policy: _ends(results, policy) for policy in (who, *than)}
    gain = {policy: end - begin for policy, (begin, end) in ends.items()}
    return measures.least(mean_and_interval(100 * (gain[who] / gain[base] - 1)) for base in than)


def share_change(results: Results, who: str, of: str) -> Floats:
    """Share of what ``of`` earned, with the largest value of the setting less the smallest."""
    ours, best = _ends(results, who), _ends(results, of)
    sparse, dense = (100 * mine / its for mine, its in zip(ours, best, strict=True))
    return dense - sparse


def _largest_over_least(each: Sequence[Floats]) -> Floats:
    """Over the seeds, the column with the largest mean over that with the least."""
    # Which policy is best is decided by the mean, then compared seed by seed.
    order = np.argsort([column.mean() for column in each])
    return np.asarray(each[order[-1]] / each[order[0]])


def spread(results: Results, who: str, among: Sequence[str]) -> Floats:
    """Reward of the best of some policies over that of the worst, in per cent."""
    return 100 * (_largest_over_least([measures.total(results, label) for label in among]) - 1)


def spread_of_times(results: Results, who: str, among: Sequence[str]) -> Floats:
    """Time of a slot of the slowest of some policies over that of the fastest."""
    return _largest_over_least([measures.time_of_slots(results, label) for label in among])


# Fig. 5: time of computation. Times differ from run to run, so nothing of it is compared.


_PANELS = {"one device type": "one", "three device types": "three"}
_SOLVERS = (
    ("esdp", "esdp", ""),
    ("as printed, branch and bound", "esdp-as-printed", ""),
    ("as printed, dynamic programme", "esdp-by-programme", "-programme"),
)


def exponents_of_time(found: papers.Found) -> dict[str, Estimate]:
    """Exponent of the time of a slot in the number of servers."""
    ours = {}
    for panel, study in _PANELS.items():
        for name, policy, suffix in _SOLVERS:
            results = found[f"esdp-overhead-{study}{suffix}"]
            servers = measures.values(results, "servers")
            times = [measures.time_of_slots(results, policy, {"servers": n}) for n in servers]
            ours[f"{name}, {panel}"] = mean_and_interval(measures.exponents(servers, times))
    return ours


def programme_over_exact(found: papers.Found) -> dict[str, Estimate]:
    """Time of the dynamic programme over that of ESDP, with the most servers that both had."""
    ours = {}
    for panel, study in _PANELS.items():
        programme, fast = (found[f"esdp-overhead-{study}{m}"] for m in ("-programme", ""))
        servers = max(
            set(measures.values(programme, "servers")) & set(measures.values(fast, "servers"))
        )
        slow = measures.time_of_slots(programme, "esdp-by-programme", {"servers": servers})
        quick = measures.time_of_slots(fast, "esdp", {"servers": servers})
        ours[f"{panel}, {servers} servers"] = mean_and_interval(slow / quick)
    return ours


# Fig. 7: how many numbers s the dynamic programme goes through


def numbers_s(delta: str, channels: int, slot: int, alpha: float = 0.5) -> float:
    """|S(t)| of (19) with ξ(t) of (18): how many numbers s the dynamic programme goes through.

    Examples
    --------
    >>> numbers_s("default", 32, 2000)
    817.0
    """
    m = alpha * channels
    # (18): ξ = ⌈m / δ⌉; (19): s = 0, 1, …, ξ m.
    return math.ceil(m / policies.DELTAS[delta](slot)) * m + 1


def _instances(results: Results) -> list[environment.FluctuatingSpeedsInstance]:
    settings = results.experiment["settings"]
    scenario = create("scenario", results.experiment["scenario"], **settings)
    return [scenario.instance(seed) for seed in dict.fromkeys(run["seed"] for run in results.runs)]


def programme_size(results: Results, who: str) -> Floats:
    """Numbers s at the last slot, with δ(t) called ``who``; shape [seeds]."""
    slot = results.runs[0]["slots"]
    return np.array([numbers_s(who, instance.problem.E, slot) for instance in _instances(results)])


def spread_of_sizes(results: Results, who: str, among: Sequence[str]) -> Floats:
    """Most numbers s over fewest of some δ(t), at the last slot."""
    sizes = [programme_size(results, delta) for delta in among]
    return np.asarray(np.max(sizes, axis=0) / np.min(sizes, axis=0))


# Theorems


def chance_of_all(found: papers.Found) -> dict[str, Estimate]:
    """Chance that every job type has a job: a formula."""
    return {"ρ = 0.9, |L| = 8": Estimate(SHARE_OF_SLOTS**JOB_TYPES, None, None)}


def regret(
    results: Results, who: str, at: float | None = None, cell: measures.Cell = measures.ALL
) -> Floats:
    """Pseudo-regret (6): means of x*(t) less means of what was played; shape [seeds]."""
    best = measures.total(results, "omniscient", at, cell=cell)
    return best - measures.total(results, who, at, "mean_utility", cell)


def _decades(results: Results, who: str) -> tuple[Floats, Floats, Floats]:
    T = float(measures.recorded(results, who)[-1])
    return regret(results, who, T / 100), regret(results, who, T / 10), regret(results, who, T)


def growth_by_decade(results: Results, who: str) -> Floats:
    """Regret added in the last decade of slots over that of the decade before."""
    a, b, c = _decades(results, who)
    # 1 for a regret in ln t, 10 for one in t.
    return (c - b) / (b - a)


def regret_exponent(results: Results, who: str) -> Floats:
    """Exponent of t in the regret, in the last decade of slots."""
    _, b, c = _decades(results, who)
    return np.log10(c / b)


def smallest_gap(instance: environment.FluctuatingSpeedsInstance) -> float:
    """Δ: what the best choice is worth less the second best, when every job type has a job.

    No channel is worth less than nothing, so every other choice lacks a channel of the best one.
    """
    problem, v = instance.problem, instance.means(0)
    nothing = np.zeros(problem.E)
    solver = P3Solver(problem.requests, problem.cluster.capacity)
    best = solver.solve(v, nothing, gap=1e-12).x
    choices_below = []
    for channel in np.flatnonzero(best):
        # Without one channel of the best choice, the best of the
        # others: the second best is among these.
        rest = np.arange(problem.E) != channel
        choices_below.append(v[solver.solve(v, nothing, available=rest, gap=1e-12).x].sum())
    return float(v[best].sum() - max(choices_below))


def slope_in_units(results: Results, who: str) -> Floats:
    """Slope of the regret against ln t in the last decade of slots, in units of |E| (ln m)² / Δ.

    m is α|E|, as the paper sets it.
    """
    _, before, end = _decades(results, who)
    every = _instances(results)
    channels, gap = np.array([(instance.problem.E, smallest_gap(instance)) for instance in every]).T
    # The order of (38): |E| (ln m)² / Δ for each unit of ln T.
    unit = channels * np.log(0.5 * channels) ** 2 / gap
    return np.asarray((end - before) / math.log(10) / unit)

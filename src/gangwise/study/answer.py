"""The answer of a replay: what schedulers did to the same jobs, in numbers and in sentences.

Tables, ``--json`` and sentences are made of one object, :class:`Compared`. Simulated is compared
with simulated, always with one scheduler, the base: the rules in force. What was recorded stands
apart, as :class:`~gangwise.sites.retelling.ModelFit`: how much of it the model explains under
them.

Where rates or jobs are drawn, intervals are Student's over seeds, paired. Where nothing is drawn,
the log is cut into stretches of equal length, and intervals are over them, paired
(:func:`~gangwise.study.statistics.change_by_blocks`): for the median of logs as long of the
same site. A log of fewer than eight weeks, one in which a few stretches have nearly all jobs, or
one whose load goes up and down over months, has none, and the answer gives the reason. A scheduler
is called better or worse than the base only where the interval of the change of mean completion
excludes zero.

Where the waiting went, by scheduler and by group of jobs, ends this module.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from gangwise.core import settings, terminal
from gangwise.core.arrays import Bools, Floats, Ints
from gangwise.core.errors import ScenarioError
from gangwise.jobs import waiting, waiting_kernels
from gangwise.jobs.bounds import NO_BOUNDS, Certified
from gangwise.jobs.choice import SlowNode
from gangwise.jobs.kernels import SET_ASIDE
from gangwise.jobs.metrics import ENDINGS, Outcome, size_groups
from gangwise.notation import roughly
from gangwise.sites.retelling import ModelFit, explains, periods, retell
from gangwise.study import statistics
from gangwise.study.statistics import UNKNOWN, Estimate, enumerated, mean_and_interval, number

phrase = terminal.phrases("gangwise.study")

Verdict = Literal["better", "kills more", "refuses", "worse", "cannot be told apart", "no interval"]

ORACLES = {"oracle", "ends=true"}
"""Words in names of schedulers that are shown what nobody can know."""

GUIDED = {"label", "labels", "learned", "ends=learned", "ucb", *ORACLES}
"""Words in names of schedulers that go by rates or by what they learn: no plain rules."""

WARM_UP = 8  # of a log of more days the first is not counted in what is explained
TELLING = 0.5  # share of idle device-hours beside waiting jobs above which the answer mentions it
SMALL = 0.05  # per cent: a smaller change is shown as none

DAY = 86400.0  # seconds

OBJECTIVE = "completion.mean"  # what schedulers are judged by; the less the better
UNITS = {"cpu": "core", "gpu": "GPU"}  # names of device types in device-hours

CONFIGURED = "as configured"  # name of the rules as they are, beside which a what-if plays changes


def words(name: str) -> set[str]:
    """Words of a scheduler's name.

    >>> sorted(words("sjf+easy+learned-moving:ends=true"))
    ['easy', 'ends=true', 'learned', 'moving', 'sjf']
    """
    return set(re.split("[^a-z=]+", name))


# A scheduler under which long jobs are killed would look fast by the jobs that are left. So two
# schedulers are compared on the jobs that did their work under both, seed by seed, and none is
# preferred to the base if more is killed under it.


def paired_times(
    ours: Sequence[Outcome], theirs: Sequence[Outcome]
) -> tuple[dict[str, tuple[Floats, Floats]], float]:
    """Completion and slowdown of both by seed, on the jobs done under both, and their number.

    A single outcome, such as what a log recorded, stands for every seed. The number is the mean
    over seeds.
    """
    times, counts = [], []
    for i in range(max(len(ours), len(theirs))):
        # Modulo the length: a record has one outcome, which stands beside each seed.
        a, b = ours[i % len(ours)], theirs[i % len(theirs)]
        # On all jobs, a scheduler under which long ones are killed would look quicker than it is.
        done_in_both = a.timed & b.timed
        counts.append(int(done_in_both.sum()))
        times.append((a.times(done_in_both), b.times(done_in_both)))
    columns = {
        key: (np.array([a[key] for a, _ in times]), np.array([b[key] for _, b in times]))
        for key in times[0][0]
    }
    return columns, float(np.mean(counts))


def ending_keys(summaries: Iterable[Mapping[str, float]]) -> list[str]:
    """Keys of the jobs, and device-hours, that were not done under some of the summaries."""
    rows = list(summaries)
    return [
        key
        for name in ENDINGS
        for key in rows[0]
        if key.partition(".")[0] == name and any(row[key] > 0 for row in rows)
    ]


def kills_more(ours: Sequence[Outcome], base: Sequence[Outcome]) -> bool:
    """Whether killed jobs held a larger share of the cluster under ours than under the base."""

    def share(outcomes: Sequence[Outcome]) -> float:
        # Device types have no common unit, so that each counts as a share of what the cluster has.
        killed = [o.endings["killed"][1] / np.maximum(o.capacity, 1e-9) for o in outcomes]
        return float(np.mean([shares.sum() for shares in killed]))

    # Sums in another order differ in their last digits.
    return share(ours) > share(base) * (1 + 1e-9)


def best_of(outcomes: Mapping[str, Sequence[Outcome]], names: Sequence[str], base: str) -> str:
    """The scheduler with the least mean completion among those that kill no more than the base.

    Completion is that of the jobs that did their work under all of them. Where every scheduler
    kills more than the base, they are compared among themselves.
    """
    # Whoever kills more is compared only with its like.
    able = [name for name in names if not kills_more(outcomes[name], outcomes[base])] or names
    means = []  # [seeds, able]
    for of_seed in zip(*(outcomes[name] for name in able)):
        finished = np.logical_and.reduce([outcome.timed for outcome in of_seed])
        # Where no job is done under all of them, each is judged by its own jobs.
        finished = finished if finished.any() else np.ones_like(finished)
        means.append([float(np.nanmean(outcome.completion[finished])) for outcome in of_seed])
    # A scheduler under which nothing was done is never the best.
    least = np.nan_to_num(np.array(means).mean(axis=0), nan=np.inf)
    return able[int(np.argmin(least))]


@dataclass(frozen=True)
class IdleBesideWaiting:
    """Share of idle device-hours during which a job waited that asked for no more than was idle.

    Devices of all nodes count together, so the job may not have fitted on any single node.
    ``recorded`` is as it happened, ``simulated`` under the base.
    """

    device: str
    recorded: float
    simulated: float

    @property
    def telling(self) -> bool:
        """Whether most idle hours passed beside waiting jobs, and fewer so under the base."""
        return self.recorded > max(TELLING, self.simulated)


@dataclass(frozen=True, eq=False)
class LearnedRates:
    """Rates that a scheduler had learned by the end of a run, and the true ones where known.

    ``mean`` and ``sd``, shape [L, N], are of the logarithm of the rate; ``true`` has rates;
    ``slow`` are nodes that are slower than their label says.
    """

    job_types: Sequence[str]
    mean: Floats
    sd: Floats
    true: Floats | None = None
    slow: Sequence[SlowNode] = ()


@dataclass(frozen=True, eq=False)
class Compared:
    """The same jobs under several schedulers, and what was recorded of them.

    Attributes
    ----------
    name : str
        Of the log.
    outcomes : mapping of str to sequence of Outcome
        By scheduler; one for each seed, in the same order for all.
    rules : str
        The scheduler that was in force, if that is known: see :attr:`base`.
    drawn : bool
        Whether seeds differ: intervals are then over seeds alone.
    as_logged : bool
        Whether jobs, times and nodes are the log's, so that the record is of the same.
    bounds : Certified
        Lower bounds on mean completion, one for each seed, or none.
    ignored : sequence of str
        What the log has and the replay does not model.
    partition : ndarray of str, shape [J], optional
        Of each job, as logged.
    units : sequence of str
        Questions about units of the log that look misread.
    """

    name: str
    outcomes: Mapping[str, Sequence[Outcome]]
    rules: str = ""
    drawn: bool = False
    as_logged: bool = True
    bounds: Certified = NO_BOUNDS
    learned: Mapping[str, LearnedRates] = field(default_factory=dict)
    ignored: Sequence[str] = ()
    partition: npt.NDArray[np.str_] | None = None
    units: Sequence[str] = ()

    def __post_init__(self) -> None:
        counts = {name: len(runs) for name, runs in self.outcomes.items()}
        if not counts or len(set(counts.values())) != 1 or 0 in counts.values():
            raise ScenarioError(
                f"outcomes to compare must be of the same seeds; there are {counts}"
            )
        if self.rules and self.rules not in self.outcomes:
            raise ScenarioError(f"{self.rules}, the rules in force, are none of {list(counts)}")

    @cached_property
    def plain(self) -> list[str]:
        """The schedulers that may have been in force: they know no rates and learn nothing."""
        return [n for n in self.outcomes if not GUIDED & words(n)]

    @cached_property
    def base(self) -> str:
        """The base scheduler, which the others are compared with: the rules in force.

        Where these are not given, the plain scheduler that explains most of the recorded waits, or
        the first scheduler where the log knows of none.
        """
        if self.rules or not (self.waited and self.plain):
            return self.rules or next(iter(self.outcomes))
        record = self.happened
        assert record is not None, "a log that knows of waiting is a record"
        return max(self.plain, key=lambda name: explains(record, self.outcomes[name][0]))

    @cached_property
    def first(self) -> Outcome:
        return self.outcomes[self.base][0]

    @property
    def seeds(self) -> int:
        return len(self.outcomes[self.base])

    @cached_property
    def summaries(self) -> dict[str, list[dict[str, float]]]:
        return {name: [o.summary() for o in runs] for name, runs in self.outcomes.items()}

    def estimate(self, name: str, key: str) -> Estimate:
        """Mean and interval over seeds of a number of a scheduler's summary."""
        values = self.by_seed(name, key)
        return mean_and_interval(values) if np.isfinite(values).all() else UNKNOWN

    def by_seed(self, name: str, key: str) -> Floats:
        return np.array([summary[key] for summary in self.summaries[name]])

    def pair(self, name: str, key: str) -> tuple[Floats, Floats]:
        """A number by seed, under a scheduler and under the base.

        Completion and slowdown are of the jobs that did their work under both.
        """
        theirs = self.paired(name)[0].get(key)
        return theirs or (self.by_seed(name, key), self.by_seed(self.base, key))

    def change(self, name: str, key: str = OBJECTIVE) -> Estimate:
        """By how many per cent a number exceeds that of the base, see :meth:`pair`."""
        if name == self.base:
            return UNKNOWN
        # Intervals over stretches need sums by job; other metrics are of the run as a whole.
        if self.blocks is not None and key in BY_BLOCKS:
            ours, counts = self.outcomes[name][0], BY_BLOCKS[key][1]
            return self._by_blocks(key, ours, self.first, counts(ours) & counts(self.first))
        a, b = self.pair(name, key)
        # What is infinite, or nothing, has no percentage.
        if not np.isfinite([a, b]).all() or (b == 0).any():
            return UNKNOWN
        return mean_and_interval(100 * (a / b - 1))

    @cache  # noqa: B019 - lives as long as one answer
    def paired(self, name: str) -> tuple[dict[str, tuple[Floats, Floats]], float]:
        """Completion and slowdown under both, and of how many jobs: see :func:`paired_times`."""
        return paired_times(self.outcomes[name], self.outcomes[self.base])

    @property
    def killed(self) -> bool:
        return any(o.endings["killed"][0] > 0 for runs in self.outcomes.values() for o in runs)

    @cached_property
    def blocks(self) -> Ints | None:
        """The stretch of time in which each job was submitted [J]; None without an interval."""
        if self.drawn or self.no_interval:
            return None
        since = self.first.jobs.submit - self.first.jobs.submit.min()
        # Stretches of equal length in time, not of equal numbers of jobs.
        share, stretches = since / max(float(since.max()), 1.0), self.stretches.many
        # The last submission is at the very end of the last stretch.
        stretch: Ints = np.minimum((share * stretches).astype(np.int64), stretches - 1)
        return stretch

    @cached_property
    def stretches(self) -> statistics.Stretches:
        """Stretches that the jobs' submissions and their waiting under the base allow."""
        day = ((self.first.jobs.submit - self.first.jobs.submit.min()) // DAY).astype(np.int64)
        waits = np.where(self.first.started, self.first.waiting, 0.0)
        return statistics.Stretches.of(np.bincount(day), np.bincount(day, waits))

    @cached_property
    def days(self) -> float:
        """Days between the first submission and the last."""
        submit = self.first.jobs.submit
        return float(submit.max() - submit.min()) / DAY

    @cached_property
    def no_interval(self) -> str:
        """The reason for which no interval can be had; empty where one can."""
        if self.drawn:
            return "one seed has no interval" if self.seeds == 1 else ""
        return self.stretches.reason

    @property
    def caveat(self) -> str:
        """Why intervals over stretches of this log may hold the truth less often than they say."""
        return "" if self.drawn else self.stretches.caveat

    def _by_blocks(self, key: str, ours: Outcome, theirs: Outcome, jobs: Bools) -> Estimate:
        """By how many per cent a mean over these jobs exceeds the other's: sums by week or day.

        A block without such a job counts as well; without blocks there is no interval.
        """
        block, blocks = np.zeros(jobs.size, dtype=np.int64), 1
        if self.blocks is not None:
            block, blocks = self.blocks, self.stretches.many
        # Sums, not means: a stretch counts as many times as it has jobs.
        of_job = BY_BLOCKS[key][0]
        our_sums, their_sums = (
            np.bincount(block[jobs], of_job(outcome)[jobs], blocks) for outcome in (ours, theirs)
        )
        return statistics.change_by_blocks(our_sums, their_sums, self.stretches.widening)

    def verdict(self, name: str) -> Verdict:
        """The verdict that the interval of the change of mean completion allows.

        A scheduler whose killed jobs hold more device-hours than the base's is not better.
        """
        change = self.change(name)
        if change.low is None or change.high is None:
            return "no interval"
        if change.low <= 0 <= change.high:
            return "cannot be told apart"
        if change.mean > 0:
            return "worse"
        # A mean over fewer jobs is no better mean: what is refused is in none.
        if self.refused(name)[0]:
            return "refuses"
        kills = kills_more(self.outcomes[name], self.outcomes[self.base])
        return "kills more" if kills else "better"

    def refused(self, name: str) -> tuple[float, float]:
        """Jobs that the base plays and this sets aside, and their share of the device-seconds.

        No node, cap or bound would ever let them start. Means over seeds.
        """
        k, rows = self.first.nodes.devices.index(self.device), []
        for ours, base in zip(self.outcomes[name], self.outcomes[self.base]):
            out = base.started & ~ours.started & (ours.phase == SET_ASIDE)
            work = np.where(base.ended, base.end - base.last_start, 0.0) * base.demand[:, k]
            rows.append((float(out.sum()), float(work[out].sum() / max(work.sum(), 1e-12))))
        jobs, share = np.mean(rows, axis=0)
        return float(jobs), float(share)

    def waits_more(self, name: str, groups: Sequence[Ints], g: int) -> Estimate:
        """Mean seconds by which the jobs of a group wait longer than under the base.

        On those that started under both; with the interval over weeks or days, or over the seeds
        that have some. ``groups`` are those of each seed's jobs [J], or one for all seeds.
        """
        pairs = []
        for i, (ours, base) in enumerate(zip(self.outcomes[name], self.outcomes[self.base])):
            on = ours.queued & base.queued & (groups[i % len(groups)] == g)
            pairs.append((on, ours.waiting[on] - base.waiting[on]))
        if self.blocks is None:
            return mean_and_interval([gaps.mean() for _, gaps in pairs if gaps.size] or [math.nan])
        (on, extra), block = pairs[0], self.blocks
        # Also for stretches in which the group has no job.
        jobs = np.bincount(block[on], minlength=block.max() + 1).astype(np.float64)
        longer = np.bincount(block[on], extra, jobs.size)
        # A ratio of sums over blocks, as those of changes: 100 ((n + d) / n - 1) is 100 d / n.
        widening = self.stretches.widening
        longer_by = statistics.change_by_blocks(jobs + longer, jobs, widening, logarithm=False)
        return Estimate(*(None if pairs is None else pairs / 100 for pairs in longer_by))  # type: ignore[arg-type]  # the mean is a number

    @cached_property
    def others(self) -> list[str]:
        """The schedulers beside the base, least mean completion first.

        An oracle is left out: it knows what nobody can, a yardstick and no choice.
        """
        real = [n for n in self.outcomes if n != self.base and not ORACLES & words(n)]
        change = {name: self.change(name).mean for name in real}
        # What cannot be compared comes last.
        return sorted(real, key=lambda name: change[name] if math.isfinite(change[name]) else 1e300)

    @property
    def best(self) -> str:
        """Least mean completion of those that kill no more than the base, which is among them."""
        return best_of(self.outcomes, [self.base, *self.others], self.base)

    @cached_property
    def device(self) -> str:
        """The device type of which the largest share is held: the scarce one."""
        used = self.first.utilisation
        # A device type that no node has is never the scarce one.
        return max(used, key=lambda name: used[name] if math.isfinite(used[name]) else -1.0)

    @cached_property
    def interrupt(self) -> list[str]:
        """The schedulers under which work was interrupted and went on later, or elsewhere.

        Under these a bound of schedules without preemption need not hold.
        """
        ways = "preempted", "failed"
        return [
            name
            for name, summaries in self.summaries.items()
            if any(summary[way] > 0 for summary in summaries for way in ways)
        ]

    @property
    def possible_saving(self) -> float | None:
        """Per cent of the base's mean completion that a schedule could save at most: a bound.

        Of schedules without preemption and migration. Killed jobs count until they were killed, as
        in the bound.
        """
        return self._saving(self.bounds.values)

    @property
    def possible_saving_preemptive(self) -> float | None:
        """As :attr:`possible_saving`, of all schedules."""
        return self._saving(self.bounds.preemptive)

    def _saving(self, bounds: Sequence[float]) -> float | None:
        if not bounds:
            return None
        by_seed = zip(self.outcomes[self.base], bounds)
        # Below 0 by rounding alone: no schedule is below its bound.
        return max(float(np.mean([100 * (1 - low / o.until_left) for o, low in by_seed])), 0.0)

    @cached_property
    def happened(self) -> Outcome | None:
        """The recorded outcome; None where the log does not say, or something else is played."""
        if not self.as_logged or self.drawn:
            return None
        # All of them play the same jobs, so that any one has what was recorded.
        any_ = next(iter(self.outcomes.values()))[0]
        return Outcome.recorded(any_.jobs, any_.nodes)

    @property
    def waited(self) -> bool:
        """Whether the log knows of waiting: in some, jobs are submitted when they start."""
        record = self.happened
        return record is not None and bool((record.waiting[record.ended] > 0).any())

    @cached_property
    def retold(self) -> ModelFit | None:
        if self.happened is None or not self.waited:
            return None
        return retell(self.happened, self.first, self.partition, self.warm)

    @cached_property
    def warm(self) -> Bools | None:
        """Jobs that count in what is explained [J]; None for all.

        In its first day a log fills a cluster that was not empty, unless it has the jobs from
        before.
        """
        jobs = self.first.jobs
        if jobs.early.any():
            return ~jobs.early
        return jobs.submit >= jobs.submit.min() + DAY if self.days > WARM_UP else None

    def error(self, key: str = OBJECTIVE) -> Estimate:
        """The model's error: by how many per cent a mean under the base exceeds the recorded one.

        With the interval over weeks or days.
        """
        record, model = self.happened, self.first
        if record is None or not self.waited:
            return UNKNOWN
        return self._by_blocks(key, model, record, record.ended & model.ended)

    def beyond(self, name: str) -> bool | None:
        """Whether a change of mean completion is larger than the model's own error may be."""
        error, change = self.error(), self.change(name)
        if not math.isfinite(error.mean + change.mean):
            return None
        return abs(change.mean) > max(abs(value) for value in error if value is not None)

    @cached_property
    def idle(self) -> IdleBesideWaiting | None:
        if self.happened is None or not self.waited:
            return None
        device, shares = self.device, []
        recorded = self.happened.idle_while_waiting(device)
        simulated = 3600 * self.summaries[self.base][0][f"idle.{device}"]
        for outcome, beside in ((self.happened, recorded), (self.first, simulated)):
            k = outcome.nodes.devices.index(device)
            # Device-seconds that nobody held, of all from the first submission to the last end.
            idle = float(outcome.capacity[k] * outcome.makespan - outcome.device_seconds[k])
            shares.append(min(1.0, beside / idle) if idle > 0 else 0.0)
        return IdleBesideWaiting(device, *shares)

    @property
    def intervals(self) -> str:
        """A sentence that says what the ± of a change means: over stretches of time or seeds."""
        if self.blocks is not None:
            stretches = self.stretches.many
            text = f"{stretches} stretches of {number(self.days / stretches, 1)} days"
            caveat = self.caveat[:1].upper() + self.caveat[1:] + "." if self.caveat else ""
            text = f"± is half the 95 % interval over {text}; in brackets the interval itself."
            return f"{text} {caveat}".rstrip()
        if self.no_interval:
            return f"{self.no_interval[:1].upper()}{self.no_interval[1:]}."
        return self.over_seeds

    @property
    def over_seeds(self) -> str:
        if not self.drawn:
            return "Nothing is drawn: a level is what the log gives, and has no interval."
        return statistics.over_seeds(self.seeds)

    @cached_property
    def text(self) -> str:
        return " ".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        return [text for make in SENTENCES if (text := make(self))]

    def as_dict(self) -> dict[str, Any]:
        unit, blocks = ("seeds", self.seeds) if self.seeds > 1 else (None, 0)
        if self.blocks is not None:
            unit, blocks = "stretches", self.stretches.many
        retold, errors = self.retold, ("waiting.mean", OBJECTIVE)
        compared = [name for name in self.outcomes if name != self.base]
        answer: dict[str, Any] = settings.finite(
            {
                "text": self.text,
                "base": self.base,
                "intervals_over": unit,
                "blocks": blocks,
                "no_interval": self.no_interval,
                "interval_caveat": self.caveat,
                "verdicts": {name: self.verdict(name) for name in compared},
                "model_error_percent": {key: statistics.numbers(self.error(key)) for key in errors},
                "beyond_model_error": {name: self.beyond(name) for name in compared},
                "retold": None if retold is None else retold.as_dict(),
                "idle_beside_waiting": None if self.idle is None else vars(self.idle),
                "not_modelled": list(self.ignored),
                "could_save_percent": self.possible_saving,
                "could_save_preemptive_percent": self.possible_saving_preemptive,
            }
        )
        return answer


BY_BLOCKS: Mapping[str, tuple[Callable[[Outcome], Floats], Callable[[Outcome], Bools]]] = {
    "waiting.mean": (lambda o: o.waiting, lambda o: o.queued),
    "completion.mean": (lambda o: o.completion, lambda o: o.timed),
    "slowdown.mean": (lambda o: o.slowdown, lambda o: o.timed),
}
"""Means over jobs, which may be taken by week of submission; and the jobs that count."""


def source_in_words(name: str) -> str:
    """A log as a title has it.

    >>> source_in_words("twin:alibaba-gpu-v2023"), source_in_words("logs/october.swf")
    ('the synthetic twin of alibaba-gpu-v2023', 'october.swf')
    """
    kind, _, trace = name.partition(":")
    names = {"twin": f"the synthetic twin of {trace}", "demo": "a drawn cluster"}
    return names.get(kind, name.rstrip("/").rpartition("/")[2])


def waits_explained(n: Compared) -> str:
    counts = [summary["jobs"] for summary in n.summaries[n.base]]
    jobs = f"{np.mean(counts):,.0f} jobs of {source_in_words(n.name)}"
    if len(set(counts)) > 1:
        jobs += f" (mean of {len(counts)} seeds)"
    fit = n.retold
    if fit is None:
        wait, took = (
            roughly(n.estimate(n.base, f"{key}.mean").mean) for key in ("waiting", "completion")
        )
        text = phrase("waits", jobs=jobs, wait=wait, took=took, base=n.base)
        return text + f" {phrase('starts unknown')}" * (n.as_logged and not n.drawn)
    jobs = f"{fit.jobs:,} jobs of {source_in_words(n.name)}"
    if early := int(n.first.jobs.early.sum()):
        jobs += f", without the {early} that ran when it begins,"
    elif n.warm is not None:
        jobs += ", without those of its first day,"
    # The rules were then chosen by how much they explain, which the sentence has to say.
    chosen = not n.rules and len(n.plain) > 1
    return phrase(
        "waits explained",
        jobs=jobs,
        rules=n.base + f" (of {len(n.plain)} plain rules none explains more)" * chosen,
        recorded=roughly(fit.recorded),
        simulated=roughly(fit.simulated),
        order=f"; order of starts τ = {number(fit.order, 2)}" * math.isfinite(fit.order),
        weakest=f"; explained least: {fit.weakest[0]}" * (fit.weakest[1] < 0.995),
        past=phrase("not with the past") * fit.doubtful,
        **{name: number(100 * getattr(fit, name)) for name in ("explained", "by_job", "busy")},
    )


def idle_beside_waiting(n: Compared) -> str:
    if n.idle is None or not n.idle.telling:
        return ""
    recorded, simulated = (number(100 * s) for s in (n.idle.recorded, n.idle.simulated))
    unit = UNITS.get(n.idle.device, n.idle.device)
    return phrase("idle beside waiting", unit=unit, recorded=recorded, simulated=simulated)


def against_the_base(n: Compared) -> str:
    """Sentence on who is better than the base, who is worse, and who cannot be told apart."""
    if not n.others:
        return ""
    by: dict[Verdict, list[str]] = {}
    for name in n.others:
        by.setdefault(n.verdict(name), []).append(name)
    unsure = by.get("no interval", [])
    # Without any interval no verdict is possible, and the sentence gives the reason instead.
    if unsure and n.no_interval:
        return _without_interval(n, unsure)
    better, worse, alike = (by.get(k, []) for k in ("better", "worse", "cannot be told apart"))
    if len(alike) == len(n.others):
        none = f"None of the {len(alike)} others can"
        text = f"{alike[0]} cannot" if len(alike) == 1 else none
        return f"{text} be told apart from the base ({_furthest(n, alike)})."
    parts, size = [], {name: _amount(n.change(name)) for name in n.others}
    if better:
        wait = roughly(n.estimate(better[0], "waiting.mean").mean)
        best = f"{better[0]} completes jobs {size[better[0]]} sooner (mean wait {wait})"
        parts.append(_listed([best, *(f"{name} {size[name]}" for name in better[1:])]))
    costs: dict[Verdict, str] = {"kills more": "has more killed", "refuses": "not all of them"}
    for kind, but in costs.items():
        parts += [f"{x} completes jobs {size[x]} sooner but {but}" for x in by.get(kind, [])]
    if worse:
        complete = "complete" if len(worse) > 1 else "completes"
        parts.append(f"{_listed(worse)} {complete} {'them' if parts else 'jobs'} later")
    if alike:
        parts.append(f"{_listed(alike)} cannot be told apart from it ({_furthest(n, alike)})")
    if unsure:
        names = f"{_listed(unsure)} ({_furthest(n, unsure)})"
        parts.append(f"{names} differ on a few days alone, too few for an interval")
    return f"Against the base, {'; '.join(parts)}."


def error_of_the_model(n: Compared) -> str:
    """The model's own error, beside what schedulers save in it."""
    if not n.others or not math.isfinite(n.error().mean):
        return ""
    error = n.error()
    sign = "+" if error.mean > 0 else "−"
    text = f"The model's own error of mean completion is {sign}{_amount(error)}"
    clear = ("better", "kills more", "refuses", "worse")
    differ = [name for name in n.others if n.verdict(name) in clear]
    small = [name for name in differ if not n.beyond(name)]
    if not small:
        return f"{text}."
    subject, pronoun = "these differences", "them"
    if len(differ) == 1:
        subject, pronoun = "this difference", "it"
    elif len(small) < len(differ):
        subject = f"the difference of {_listed(small)}"
    return f"{text}, perhaps more than {subject}: the cluster itself may not show {pronoun}."


def _without_interval(n: Compared, names: Sequence[str]) -> str:
    least = names[0]
    change = n.change(least).mean
    if not math.isfinite(change):
        return f"{least} cannot be compared with the base."
    among = f", the best of the {len(names)} others," if len(names) > 1 else ""
    if abs(change) < SMALL:
        which = (
            f"None of the {len(names)} others completes" if among else f"{least} does not complete"
        )
        return f"{which} jobs sooner than the base on average."
    size = f"{number(abs(change), 1)} % {'below' if change < 0 else 'above'} that under the base"
    # A difference that jobs make which can never start is no chance: jobs_shut_out names them.
    chance = "" if n.refused(least)[0] else f", which may be chance: {n.no_interval}"
    return f"The mean completion under {least}{among} is {size}{chance}."


def _amount(change: Estimate) -> str:
    if change.lopsided:
        # Of a change whose sign the sentence gives in a word, and of one that may be of either.
        toward = math.copysign(1.0, change.mean)
        ends = sorted(toward * end for end in change[1:] if end is not None)
        low, high = (number(end, 1) for end in ends)
        return f"{number(abs(change.mean), 1)} % ({low} to {high})"
    half = "" if change.half is None else f" ± {number(change.half, 1)}"
    return f"{number(abs(change.mean), 1)} %{half}"


def _furthest(n: Compared, names: Sequence[str]) -> str:
    most = max(names, key=lambda name: abs(n.change(name).mean))
    change = n.change(most)
    if max(abs(change.mean), change.half or 0.0) < SMALL:
        return f"less than {2 * SMALL:g} % off"
    size = f"{_amount(change)} {'sooner' if change.mean < 0 else 'later'}"
    return f"the farthest off, {most}, {size}" if len(names) > 1 else size


def _listed(names: Sequence[str]) -> str:
    return enumerated(names if len(names) < 9 else [*names[:7], f"{len(names) - 7} others"])


def killed_jobs(n: Compared) -> str:
    """Sentence on jobs that are killed at their limits, where schedulers differ in it.

    With the device-hours thrown away, of the device type of which they are the largest share.
    """
    ended = {name: [o.endings["killed"] for o in n.outcomes[name]] for name in (n.base, *n.others)}
    kills = {name: float(np.mean([count for count, _ in lost])) for name, lost in ended.items()}
    differ = [name for name in n.others if kills[name] != kills[n.base]]
    if not differ or not np.isfinite(list(kills.values())).all():
        return ""
    seconds = [np.mean([work for _, work in ended[name]], axis=0) for name in (n.base, *differ)]
    hours = np.array(seconds) / 3600
    # The device type of which most is lost, as a share of what the cluster has.
    k = int(np.argmax(hours.max(axis=0) / np.maximum(n.first.capacity, 1e-9)))
    device = n.first.nodes.devices[k]
    away = [number(lost, int(hours[:, k].max() < 10)) for lost in hours[:, k]]
    unit = UNITS.get(device, device)
    parts = [f"{number(kills[n.base])} under the base ({away[0]} {unit}-hours thrown away)"]
    parts += [f"{number(kills[name])} under {name} ({h})" for name, h in zip(differ, away[1:])]
    pairs = [number(n.paired(name)[1]) for name in differ]
    return phrase("killed", parts=_listed(parts), both=_listed(pairs))


def jobs_shut_out(n: Compared) -> str:
    """Jobs that a change shuts out, which no mean counts."""
    parts, besides = [], ""
    # Where the rules as configured shut some out as well, a change is charged with the further
    # ones.
    shut_out = [0 if o.phase is None else (o.phase == SET_ASIDE).sum() for o in n.outcomes[n.base]]
    if n.base == CONFIGURED and any(shut_out):
        parts.append(f"{number(float(np.mean(shut_out)))} jobs as configured")
        besides = "more "
    for name in n.others:
        jobs, share = n.refused(name)
        if jobs:
            hours = f"{number(100 * share, 1)} % of the {UNITS.get(n.device, n.device)}-hours"
            parts.append(f"{number(jobs)} {besides}jobs ({hours}) under {name}")
    return f"Can never start, and are in no mean: {_listed(parts)}." if parts else ""


def lower_bound(n: Compared) -> str:
    saving, of_all = n.possible_saving, n.possible_saving_preemptive
    if saving is None:
        return ""

    def sooner(share: float) -> str:
        return "sooner" if share < 0.05 else f"more than {number(share, 1)} % sooner"

    text = phrase("lower bound", sooner=sooner(saving))
    if saving >= 0.05 and not n.bounds.priced:
        text += ", and likely less: prices were not searched"
    if n.interrupt and of_all is not None:
        text += phrase("of all", names=_listed(n.interrupt), sooner=sooner(of_all))
    return f"{text}."


def little_waiting(n: Compared) -> str:
    waited, took = (n.estimate(n.base, f"{key}.mean").mean for key in ("waiting", "completion"))
    if n.drawn or waited >= 0.01 * took:
        return ""
    return f"Waiting is {number(100 * waited / took, 1)} % of completion: there is little to gain."


def slow_nodes(n: Compared) -> str:
    distinct = {s.node: s for learned in n.learned.values() for s in learned.slow}
    shown = sorted(distinct.values(), key=lambda s: -s.slower)
    if not shown:
        return ""
    named = ", ".join(
        f"{s.node} by {number(100 * s.slower)} ± {number(50 * (s.high - s.low))} %"
        for s in shown[:4]
    )
    several = f"{len(shown)} nodes are slower than their"
    subject = "1 node is slower than its" if len(shown) == 1 else several
    return f"{subject} label says: {named}{', …' if len(shown) > 4 else '.'}"


SENTENCES: tuple[Callable[[Compared], str], ...] = (
    waits_explained,
    idle_beside_waiting,
    lambda n: " ".join(f"{each[:1].upper()}{each[1:]}." for each in n.ignored),
    against_the_base,
    error_of_the_model,
    killed_jobs,
    jobs_shut_out,
    lower_bound,
    little_waiting,
    slow_nodes,
)
"""The answer, in this order; a sentence that does not apply is empty."""


GROUPS = 12
"""At most so many groups of a kind are listed: those that waited most."""

HAPPENED = "as it happened"


class GroupWaited(NamedTuple):
    """Seconds that the jobs of a group waited, by cause [causes]."""

    name: str
    jobs: int
    seconds: Floats


def waited_by_group(
    causes: waiting.WaitingCauses, outcome: Outcome, k: int
) -> dict[str, list[GroupWaited]]:
    """By user, account, partition, size and week or day, as far as there are several.

    Sizes are in devices of type ``k``. Groups are those that waited most, that most first; sizes
    and weeks are in their order.
    """
    jobs = causes.jobs
    unit, period = periods(jobs.submit)
    sizes, names = size_groups(np.where(outcome.demand[:, k] > 0, outcome.demand[:, k], 0.0))
    kinds: dict[str, tuple[Ints, Any]] = {
        "user": (jobs.user, jobs.users),
        "account": (jobs.charged, jobs.accounts),
        "partition": (jobs.pool, jobs.pools),
        "size": (sizes, names),
        unit: (period, [str(i + 1) for i in range(int(period.max()) + 1)]),
    }
    if len({np.unique(codes).size for codes in (jobs.user, jobs.charged, causes.owner)}) == 1:
        del kinds["account"]  # every user has its own
    found = {}
    for kind, (codes, labels) in kinds.items():
        group = np.where(outcome.queued, np.broadcast_to(codes, outcome.start.shape), -1)
        seconds = causes.by(group, len(labels))
        count = np.bincount(group[group >= 0], minlength=len(labels))
        most = np.argsort(-seconds.sum(axis=1), kind="stable")[:GROUPS]
        chosen = np.sort(most) if kind in ("size", unit) else most
        rows = [
            GroupWaited(labels[g] or "(not named)", int(count[g]), seconds[g])
            for g in chosen.tolist()
            if count[g] and seconds[g].sum() > 0
        ]
        if len(rows) > 1:
            found[kind] = rows
    return found


def as_dict(causes: waiting.WaitingCauses, outcome: Outcome, k: int) -> dict[str, Any]:
    """Seconds by cause, in all and by group; by cap; by whose jobs held the devices."""

    def named(seconds: Floats) -> dict[str, float]:
        return {cause: float(s) for cause, s in zip(waiting_kernels.CAUSES, seconds) if s}

    def largest(by_name: Mapping[str, float]) -> dict[str, float]:
        return dict(sorted(by_name.items(), key=lambda item: -item[1])[:GROUPS])

    groups = waited_by_group(causes, outcome, k)
    return {
        "seconds": causes.total,
        "caps": largest(causes.caps),
        "held_by": largest(causes.charged(causes.holders)),
        "kept_for": largest(causes.charged(causes.kept_for)),
        "groups": {
            kind: [{"name": r.name, "jobs": r.jobs, "seconds": named(r.seconds)} for r in rows]
            for kind, rows in groups.items()
        },
    }

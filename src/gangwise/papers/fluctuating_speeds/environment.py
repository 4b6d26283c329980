"""Environment of fluctuating speeds: arrivals are seen, channels are used, utilities are observed.

Utilities are drawn for all channels, whichever are used, so that policies that are compared meet
the same noise. Only channels that were used report theirs (semi-bandit feedback), late or never if
so wished; :class:`PendingFeedback` is what a learner still waits for. Gangs at fluctuating speeds
share all of this but what is done with a decision.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from gangwise.core import workload as workloads
from gangwise.core.arrays import Bools, Floats, Ints, keep
from gangwise.core.contracts import Comparator, InstanceBase, Outcome, Timing, evenly_spaced
from gangwise.core.errors import ScenarioError
from gangwise.core.jit import kernel
from gangwise.core.simulation import Run, Streams
from gangwise.papers.fluctuating_speeds import problem as problems
from gangwise.papers.fluctuating_speeds.solver import P3Solver


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation before a decision: 𝟙_l(t) [L], 1 where a job of the type arrived."""

    slot: int
    arrivals: Ints


@dataclass(frozen=True, slots=True)
class Feedback:
    """Semi-bandit feedback of ``slot``, which need not be the last one: the channels [n] it used.

    ``utilities`` [n] are their Z̃, net of supply cost and normalised into [0, 1].
    """

    slot: int
    channels: Ints
    utilities: Floats


class ChannelProblem(Protocol):
    """A problem with L job types and E channels that bring utility, with gangs or without.

    ``cost`` [E] is the supply cost of each channel; ``name`` is what errors call it.
    """

    @property
    def L(self) -> int: ...

    @property
    def E(self) -> int: ...

    @property
    def cost(self) -> Floats: ...

    @property
    def job_types(self) -> tuple[str, ...]: ...

    def name(self, e: int) -> str: ...


@kernel
def match_feedback(channels: Ints, utilities: Floats, pending: Ints) -> int:
    """Feedback matching: strike a slot's feedback off; −1, or the first place that is wrong.

    ``pending`` [E] counts uses of each channel whose feedback has not come, and stays as it is if
    anything is wrong.
    """
    wrong = -1
    matched = channels.size
    for i in range(channels.size):
        e, u = channels[i], utilities[i]
        # Written so that NaN is refused as well.
        if e < 0 or e >= pending.size or pending[e] <= 0 or not (u >= 0.0 and u <= 1.0):
            wrong = matched = i
            break
        pending[e] = -pending[e]  # a mark: the same channel once more in this feedback is wrong
    for i in range(matched):
        e = channels[i]
        pending[e] = -pending[e] - (1 if wrong < 0 else 0)
    return wrong


class PendingFeedback:
    """Pending feedback: how many uses of each channel have not reported their utility yet.

    Feedback may come in any order and with any delay, for each use of a channel once.
    """

    def __init__(self, problem: ChannelProblem):
        self._problem = problem
        self._pending = np.zeros(problem.E, np.int64)
        self.slot = -1

    def expect(self, slot: int, x: Bools) -> None:
        """Expect feedback of the channels that are switched on in this slot."""
        # Counts, not truth values: a channel may be on again before its first report has come.
        self._pending += x
        self.slot = slot

    def receive(self, feedback: Feedback) -> tuple[Ints, Floats]:
        """Channels and utilities of a slot's feedback, pending no more.

        Raises ScenarioError for a channel that was not on (or reported already), a utility outside
        [0, 1] or NaN, or a slot still to come; names both. Nothing has changed then.
        """
        channels = np.ascontiguousarray(feedback.channels, dtype=np.int64)
        utilities = np.ascontiguousarray(feedback.utilities, dtype=np.float64)
        place = f"feedback of slot {feedback.slot}"
        if channels.ndim != 1 or channels.shape != utilities.shape:
            raise ScenarioError(
                f"{place}: {channels.shape} channels and {utilities.shape} utilities; one utility "
                "for each channel is needed"
            )
        if not 0 <= feedback.slot <= self.slot:
            raise ScenarioError(f"{place}: the last slot decided is {self.slot}")
        # All or nothing: the kernel strikes off every channel, or leaves all as they were.
        wrong = match_feedback(channels, utilities, self._pending)
        if wrong >= 0:
            raise ScenarioError(f"{place}: {self._fault(channels, utilities, wrong)}")
        return channels, utilities

    def _fault(self, channels: Ints, utilities: Floats, place: int) -> str:
        e = int(channels[place])
        if not 0 <= e < self._problem.E:
            return f"there is no channel {e}; there are {self._problem.E}"
        name = self._problem.name(e)
        # Before what is pending: a channel that was reported twice is struck off by then.
        if e in channels[:place]:
            return f"{name} is reported twice"
        if self._pending[e] <= 0:
            return f"{name} was not on, or was reported already"
        return f"{name} has utility {utilities[place]}; net utilities are normalised into [0, 1]"


@dataclass(frozen=True, eq=False)
class SpeedsInstance(InstanceBase):
    """Instance at fluctuating speeds: a problem, its workload, and what policies are not told.

    Parameters
    ----------
    workload : Workload
        At most one job of a type in a slot (ESDP §2.2).
    speeds : Speeds
        Distribution of Z for each channel, before supply cost.
    scale : Scale
        Normalisation of the net utility into [0, 1].
    delivery : Delivery
        Delay and loss of feedback.

    Raises
    ------
    ScenarioError
        When speeds or workload do not match the problem, or several jobs of a type may come.
    """

    problem: ChannelProblem
    workload: workloads.Workload
    speeds: problems.Speeds
    scale: problems.Scale = field(default_factory=problems.Scale)
    delivery: workloads.Delivery = field(default_factory=workloads.Delivery)
    comparators = ("omniscient", "omniscient_realised")

    def __post_init__(self) -> None:
        if self.speeds.size != self.problem.E:
            raise ScenarioError(
                f"speeds are given for {self.speeds.size} channels; there are {self.problem.E}"
            )
        workloads.require_single_arrivals(self.workload, self.problem.job_types)

    def means(self, slot: int) -> Floats:
        """ṽ(t), ESDP (7): the mean of Z̃ for each channel, shape [E]; not for policies."""
        return self.scale.mean(self.speeds, self.problem.cost, slot)

    def history(self, slots: int, seed: int) -> tuple[Ints, Floats]:
        """Arrivals [slots, L] and Z̃ [slots, E] of a run: what its policies meet, drawn again."""
        # The same streams as in a run, in the same order, give the same history.
        streams = Streams.of(seed)
        arrivals = workloads.first_slots(self.workload.stream(streams.workload), slots)
        raw = self.speeds.draw(0, slots, streams.noise.spawn(2)[0])
        return arrivals, self.scale.apply(raw, self.problem.cost)

    @cached_property
    def evaluated(self) -> dict[tuple[int, int, int | None], tuple[Comparator, Comparator]]:
        """Comparators by slots, seed and sample, which ``offline.in_run`` keeps here."""
        return {}


@dataclass(eq=False)
class SpeedsEnvironment(ABC):
    """Environment at fluctuating speeds; what is done with a decision is each family's own."""

    instance: SpeedsInstance
    _arrivals: Ints = field(init=False, repr=False)
    _utilities: Floats = field(init=False, repr=False)
    _due: Ints = field(init=False, repr=False)
    _first: int = field(init=False, repr=False, default=0)

    def start(self, workload: np.random.Generator, noise: np.random.Generator) -> None:
        self._stream = self.instance.workload.stream(workload)
        # Noise and the fate of feedback are apart, so that lost feedback leaves the noise alone.
        self._noise, self._fate = noise.spawn(2)
        self._arrivals = np.empty((0, self.instance.problem.L), dtype=np.int64)
        self._first = 0
        self._mailbox = workloads.Mailbox[Feedback]()
        self._regime: int | None = None
        self._means = np.empty(0)

    def _row(self, slot: int) -> int:
        """Row of the slot in the block that was drawn; slots are asked for in order."""
        # Blocks are drawn whole and in order, so that numbers do not depend on how often one asks.
        while slot >= self._first + len(self._arrivals):
            self._first += len(self._arrivals)
            self._arrivals = np.array(self._stream.draw(workloads.BLOCK), dtype=np.int64)
            self._arrivals.setflags(write=False)
            slots = len(self._arrivals)
            self._utilities = self.instance.speeds.draw(self._first, slots, self._noise)
            self._due = self.instance.delivery.draw(slots, self._fate)
        return slot - self._first

    def observe(self, slot: int, timing: Timing) -> Observation:
        """The slot's arrivals; Algorithm 1 sees them before it decides."""
        if timing == "reserve":
            raise ScenarioError(
                "policies of this family see the arrivals before they decide; set timing to react"
            )
        row = self._row(slot)  # first: it may draw the next block
        return Observation(slot, self._arrivals[row])

    def means(self, slot: int) -> Floats:
        """ṽ(t) of ESDP (7), shape [E], kept for a regime; not for policies."""
        regime = self.instance.speeds.regime(slot)
        if regime != self._regime:  # exact means take integrals: once per regime
            self._regime, self._means = regime, self.instance.means(slot)
        return self._means

    def _deliver(self, slot: int, channels: Ints, utilities: Floats) -> tuple[Feedback, ...]:
        """Post the feedback of this slot; return what is due by now."""
        due = int(self._due[slot - self._first])
        return self._mailbox.exchange(slot, due, Feedback(slot, channels, utilities))

    @abstractmethod
    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        """Play a decision; the outcome has the feedback that is due by now."""


@dataclass(eq=False)
class FluctuatingSpeedsEnvironment(SpeedsEnvironment):
    """Environment of ESDP §2. Built by :class:`FluctuatingSpeedsInstance`.

    The reward of a slot is the realised net utility Σ x Z̃ of ESDP (5). Metrics: ``mean_utility``,
    the expectation Σ x ṽ(t) of the same decision (so that pseudo-regret can be read off without
    noise); ``gain`` Σ x Z and ``cost`` Σ x Σ_k f_k(a_k), in units of utility before normalisation;
    ``jobs`` that arrived; ``channels`` that were on; and, in the units of gain and cost, the two
    sides of the preprint's social welfare: ``jobs_utility`` Σ_l U_l and ``cluster_utility`` U_c,
    whose sum no payment changes.
    """

    instance: FluctuatingSpeedsInstance
    metrics = (
        "mean_utility",
        "gain",
        "cost",
        "jobs",
        "channels",
        "jobs_utility",
        "cluster_utility",
    )

    @property
    def problem(self) -> problems.FluctuatingSpeedsProblem:
        return self.instance.problem

    def step(self, slot: int, decision: npt.ArrayLike) -> Outcome[tuple[Feedback, ...]]:
        row, problem = self._row(slot), self.problem
        arrivals = self._arrivals[row]
        x = problem.check(arrivals, decision, slot)
        on = np.flatnonzero(x)
        raw, cost = self._utilities[row, on], problem.cost[on]
        net = self.instance.scale.apply(raw, cost)
        gain, supply = float(raw.sum()), float(cost.sum())
        # π_l(t) is paid once per job served, and passes from the jobs' utility to the cluster's.
        served = np.unique(problem.channels.job_type[on])
        paid = self.instance.payment * served.size  # once per job served, however many channels
        metrics = (
            float(self.means(slot)[on].sum()),
            gain,
            supply,
            float(arrivals.sum()),
            float(on.size),
            gain - paid,
            paid - supply,
        )
        return Outcome(float(net.sum()), self._deliver(slot, on, net), metrics)


@dataclass(frozen=True, eq=False)
class FluctuatingSpeedsInstance(SpeedsInstance):
    """Instance of ESDP §2: a problem, its workload, and what policies are not told.

    Takes what :class:`~gangwise.papers.fluctuating_speeds.environment.SpeedsInstance` takes, and:

    Parameters
    ----------
    payment : float
        π_l(t) of the preprint, the same for all: what a job pays for a slot in which it is served,
        in units of utility before normalisation. No decision depends on it.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-default-v1:servers=10").instance(seed=0)
    >>> simulate(instance, create_policy("lcf"), slots=5, seed=0).slots
    5
    """

    problem: problems.FluctuatingSpeedsProblem
    payment: float = 0.0
    family = "fluctuating_speeds"

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.speeds, problems.RecordedSpeeds):  # who knows the means can be beaten
            keep(self, comparators=(*self.comparators, "clairvoyant"))

    def environment(self) -> FluctuatingSpeedsEnvironment:
        return FluctuatingSpeedsEnvironment(self)


@dataclass(frozen=True)
class FluctuatingSpeedsFamily:
    """Family of ESDP §2: fuzzing and relabelling of :class:`FluctuatingSpeedsInstance`."""

    name: str = "fluctuating_speeds"

    def fuzz(self, rng: np.random.Generator) -> FluctuatingSpeedsInstance:
        """A small instance: channels that never fit, absent job types, late or lost feedback.

        Requests and costs are drawn from continuous distributions, so that no two channels are
        alike before anything is known of their speed.
        """
        L, R, K = rng.integers(1, 6), rng.integers(1, 8), rng.integers(1, 4)
        # A job type without a channel could never run: each gets one.
        mask = rng.random((L, R)) < 0.5
        mask[np.arange(L), rng.integers(0, R, L)] = True
        channels = workloads.Channels.of_mask(mask)
        E = len(channels)
        # Device types that a channel does without, but never the first.
        requests = rng.uniform(0.5, 2.5, (E, K)) * (rng.random((E, K)) < 0.9)
        requests[:, 0] = np.maximum(requests[:, 0], rng.uniform(0.1, 0.5, E))
        # From a capacity that holds a fifth of the channels to one that holds all of them.
        capacity = requests.sum(axis=0) * rng.choice([0.2, 0.5, 1.1], K)
        problem = problems.FluctuatingSpeedsProblem(
            problems.Pool(
                capacity,
                tuple(f"device-{k}" for k in range(K)),
                tuple(f"server-{r}" for r in range(R)),
            ),
            requests,
            channels,
            rng.uniform(0.0, 0.15, E),
        )
        mean = rng.uniform(0.1, 0.9, E)
        kinds: list[problems.Speeds] = [
            problems.NormalSpeeds(mean),
            problems.BetaSpeeds(mean),
            problems.PiecewiseSpeeds(np.stack([mean, mean[::-1]]), np.array([0, 5])),
            problems.WavingSpeeds(mean, rng.random(E), period=7),
        ]
        speeds = kinds[int(rng.integers(4))]
        scale = problems.Scale.of(str(rng.choice(["clip", "affine"])), speeds, problem.cost)
        p = rng.choice([0.3, 0.7, 1.0], L)
        workload: workloads.Workload = (
            workloads.BernoulliArrivals(p)
            if rng.random() < 0.7
            else workloads.OnOffArrivals(p, 3, 2)
        )
        late = workloads.Delivery.fuzz(rng)
        return FluctuatingSpeedsInstance(problem, workload, speeds, scale, late)

    def relabel_servers(
        self, instance: FluctuatingSpeedsInstance, order: Ints
    ) -> FluctuatingSpeedsInstance:
        """The same instance with server ``order[i]`` now called ``i``; noise moves with it."""
        problem = instance.problem
        channels, rows = problem.channels.relabelled(order)
        relabelled = replace(
            problem, channels=channels, requests=problem.requests[rows], cost=problem.cost[rows]
        )
        # Rows of the noise move with their channels, or the same policy would meet another world.
        return replace(
            instance, problem=relabelled, speeds=problems.PermutedSpeeds(instance.speeds, rows)
        )

    def relabel_decision(
        self, instance: FluctuatingSpeedsInstance, order: Ints, decision: npt.ArrayLike
    ) -> Floats:
        rows = instance.problem.channels.relabelled(order)[1]
        return np.asarray(decision, dtype=np.float64)[rows]


PROGRAMMES_PER_SAMPLE = 50
"""One programme takes well under a millisecond at the usual sizes, some fifty times less than in
other families; so that many more are solved before slots are sampled."""


class Best(NamedTuple):
    uses: npt.NDArray[np.generic]  # [E] whether, or how many times, each channel is used
    value: float  # its mean utility
    gap: float  # the optimum is no more than this above
    paid: float = 0.0  # what it costs for sure


def play_the_means(
    instance: SpeedsInstance,
    slots: int,
    seed: int,
    at: Callable[[Ints], Ints],
    best: Callable[[Floats, Ints], Best],
) -> tuple[Comparator, Comparator]:
    """Both omniscient comparators of any problem at fluctuating speeds.

    Slots with the same arrivals and the same means share one programme. ``at`` chooses the slots to
    evaluate from the regime and arrivals of each slot [T, 1 + L]; ``best`` finds the decision for
    ṽ(t) [E] and arrivals [L], 0 or 1.
    """
    arrivals, utilities = instance.history(slots, seed)
    # x*(t) depends on the slot through ṽ(t) and who arrived only.
    regime = np.array([instance.speeds.regime(t) for t in range(slots)], dtype=np.int64)
    keys = np.column_stack([regime, (arrivals != 0).astype(np.int64)])
    chosen = at(keys)
    # The regime is a part of the key, since the same arrivals are worth something else when means
    # have changed.
    solved: dict[bytes, Best] = {}
    mean, realised, gap = np.empty(chosen.size), np.empty(chosen.size), 0.0
    for i, t in enumerate(chosen.tolist()):
        key = keys[t].tobytes()
        if key not in solved:
            solved[key] = best(instance.means(t), np.ascontiguousarray(keys[t, 1:]))
        answer = solved[key]
        mean[i] = answer.value
        # Whole counts weigh utilities; truth values select them, and sum in another order.
        realised[i] = (
            utilities[t][answer.uses].sum()
            if answer.uses.dtype == np.bool_
            else answer.uses @ utilities[t]
        )
        # What tasks cost for sure; the mean utility has it taken off already.
        realised[i] -= answer.paid
        gap += answer.gap
    return (
        Comparator("omniscient", chosen, mean, gap),
        Comparator("omniscient_realised", chosen, realised, gap),
    )


def _best_choices(instance: FluctuatingSpeedsInstance) -> Callable[[Floats, Ints], Best]:
    """The best choice for known utilities [E] and arrivals [L], by branch and bound."""
    problem = instance.problem
    # No widths: with known utilities P3(t) has no root, and the search solves a knapsack.
    solver, nothing = P3Solver(problem.requests, problem.cluster.capacity), np.zeros(problem.E)

    def best(v: Floats, arrivals: Ints) -> Best:
        answer = solver.solve(v, nothing, available=problem.available(arrivals))
        # Summed anew, for the solver's own sum has another order and other last bits.
        value = float(v[answer.x].sum())
        return Best(answer.x.copy(), value, max(0.0, float(answer.bound) - value))

    return best


def omniscient(
    instance: FluctuatingSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> tuple[Comparator, Comparator]:
    """Omniscient policy x*(t), ESDP (7), on the slots of the run: it and what it realises.

    Each programme is solved by branch and bound; where that stops early, ``gap`` says how much
    better the true optimum can be at most, over all slots. Where more than ``50 * sample``
    programmes would be needed, that many evenly spaced slots are evaluated.
    """

    def at(keys: Ints) -> Ints:
        if sample is None or len(np.unique(keys, axis=0)) <= PROGRAMMES_PER_SAMPLE * sample:
            return np.arange(slots)
        return evenly_spaced(slots, PROGRAMMES_PER_SAMPLE * sample)

    return play_the_means(instance, slots, seed, at, _best_choices(instance))


I = TypeVar("I", bound=SpeedsInstance)
Both = tuple[Comparator, Comparator]


def in_run(omniscient: Callable[[I, int, int, int | None], Both]) -> Callable[..., Comparator]:
    """``omniscient`` or ``omniscient_realised`` on the slots of a run; both are found at once."""

    def found(
        instance: I, slots: int, seed: int, sample: int | None = None, realised: bool = False
    ) -> Comparator:
        # The comparators of a run are asked for by name, one after the other; they share the work.
        key, evaluated = (slots, seed, sample), instance.evaluated
        if key not in evaluated:
            evaluated[key] = omniscient(instance, *key)
        return evaluated[key][realised]

    return found


omniscient_in_run = in_run(omniscient)


def clairvoyant(
    instance: FluctuatingSpeedsInstance, slots: int, seed: int, sample: int | None = None
) -> Comparator:
    """Clairvoyant policy: the best choice for the Z̃(t) of each slot, a programme per slot.

    With ``sample``, at most ``50 * sample`` evenly spaced slots are evaluated.
    """
    # It knows the noise itself and not only its mean, so that no programme is shared by two slots.
    best, (arrivals, utilities) = _best_choices(instance), instance.history(slots, seed)
    at = evenly_spaced(slots, None if sample is None else PROGRAMMES_PER_SAMPLE * sample)
    # The same programme as for means: with Z̃(t) known there is nothing left to expect.
    answers = [best(utilities[t], arrivals[t]) for t in at.tolist()]
    gap = 0.0
    for answer in answers:
        gap += answer.gap
    return Comparator("clairvoyant", at, np.array([answer.value for answer in answers]), gap)


def pseudo_regret(
    run: Run, comparator: Comparator | None = None, sample: int | None = None
) -> npt.NDArray[np.float64]:
    """Pseudo-regret, ESDP (6): cumulative means of x*(t) less means of what was played, shape [n].

    It never falls below zero beyond the comparator's gap, and has no noise but the policy's own.
    ``comparator`` is ``omniscient`` on the slots of the run, solved on ``sample`` of them when not
    given. ScenarioError for a run of another family.

    Examples
    --------
    >>> from gangwise import create_policy, create_scenario, simulate
    >>> instance = create_scenario("esdp-default-v1:servers=10").instance(seed=0)
    >>> curve = pseudo_regret(simulate(instance, create_policy("random-channels"), 50, seed=0))
    >>> bool((np.diff(curve) >= -1e-9).all())
    True
    """
    if "mean_utility" not in run.metrics:
        raise ScenarioError(f"a run of the family {run.instance.family} has no mean utility")
    versus = run.comparator("omniscient", sample) if comparator is None else comparator
    # A sampled comparator covers a part of the slots; the means played are taken on the same ones.
    return np.cumsum(versus.rewards - run.metrics["mean_utility"][versus.slots])

"""OGASched (OGASched Algorithm 1): online gradient ascent, in the two timings that the paper mixes.

``reserve`` fixes y(t) before the arrivals x(t) are seen, as Algorithm 1 and the regret theorem
have it; x(t) only moves y(t+1). ``react`` sees x(t), climbs several steps over the job types that
arrived and plays the result, as the experiments must have done; the job types that stayed away
keep their values as memory and use no capacity meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gangwise.core.arrays import Floats, Ints, check_numbers
from gangwise.core.contracts import PolicyBase
from gangwise.gain_overhead.ascent import Ascent, Step, project, project_as_printed
from gangwise.gain_overhead.baselines import marginal_greedy, proportional_shares
from gangwise.gain_overhead.environment import Feedback, Observation
from gangwise.gain_overhead.problem import GainOverheadProblem


@dataclass
class OGASchedReserve(PolicyBase):
    """OGASched Algorithm 1: reserve first, learn from the arrivals afterwards.

    Parameters
    ----------
    rule : {"adagrad-norm", "decay", "theoretical"}
        Step size: AdaGrad-norm needs no tuning; ``decay`` is the paper's η₀ with decay (Table 1);
        ``theoretical`` is OGASched (26).
    scale, eta, decay, horizon : float
        Parameters of the step rules.
    leftover : bool
        When the arrivals are seen, hand what the absent job types had reserved, and what nobody
        had, to the jobs that came, where it raises the reward. What is learned stays the same; the
        decision then depends on the arrivals, and is never worth less.

    Examples
    --------
    >>> from gangwise import create_policy
    >>> create_policy("ogasched-reserve:rule=decay,eta=10").rule
    'decay'
    """

    rule: str = "adagrad-norm"
    scale: float = 1.0
    eta: float = 25.0
    decay: float = 0.9999
    horizon: int = 2000
    leftover: bool = False
    family = "gain_overhead"

    def __post_init__(self) -> None:
        self._step = Step(self.rule, self.scale, self.eta, self.decay, self.horizon)
        # Reserving acts blind; handing out leftovers needs the arrivals.
        self.timing = "react" if self.leftover else "reserve"

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        self._ascent = Ascent(problem, proportional_shares(problem, np.ones(problem.L)))
        self._everyone = np.ones(problem.L, dtype=np.int64)
        self._step.start(problem)

    def decide(self, observation: Observation) -> Floats:
        if observation.arrivals is None:
            return self._ascent.y
        problem, x = self._ascent.problem, observation.arrivals
        filled = marginal_greedy(problem, x, self._ascent.y)
        held = self._ascent.y * x[problem.channels.job_type, None]  # without leftovers
        # A part handed out at a positive marginal reward may still overshoot where that turns.
        better = problem.reward(x, filled).reward >= problem.reward(x, held).reward
        return filled if better else held

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """y(t+1) = Π(y(t) + η_t ∇q(x(t), y(t))), OGASched (11), for every slot that feedback is of.

        Arrivals that come late are climbed where y is by then: they determine the
        reward of every decision, so nothing has to be kept of the one that was played.
        """
        for each in feedback:
            squared = self._ascent.slope(each.arrivals.astype(np.float64), self._everyone)
            self._ascent.climb(self._step.size(each.slot, squared), self._everyone)


@dataclass
class OGASchedReact(PolicyBase):
    """OGASched in the timing of its experiments: see the arrivals, climb, play.

    Parameters
    ----------
    steps : int
        Ascent steps in a slot.
    fraction, shrink : float
        Step i = 0, 1, … of a slot has the length fraction / (1 + shrink · i), as a fraction of each
        server's capacity per unit of gradient. It starts afresh in every slot: unlike a step that
        vanishes with time it keeps following the arrivals, and it carries over between clusters.
        ``shrink`` 0 makes all steps of a slot alike.
    smoothing : float
        Temperature of the softmax that stands for the maximum in OGASched (5) while climbing;
        0 for the k* of OGASched (10).
    rule : {"capacity", "adagrad-norm", "decay", "theoretical"}
        ``capacity`` is the above; the others take one of ``OGASchedReserve``'s rules instead.
    scale, eta, decay, horizon : float
        Parameters of these rules.
    memory : bool
        Without, every slot begins where the first one did: the same ascent, and nothing learned.
    hold : bool
        Where moving is charged, climb the reward less the charge, spread over the slots that jobs
        have stayed on average so far; needs memory.
    """

    steps: int = 10
    fraction: float = 0.4
    shrink: float = 1.0
    smoothing: float = 0.03
    rule: str = "capacity"
    scale: float = 1.0
    eta: float = 25.0
    decay: float = 0.9999
    horizon: int = 2000
    memory: bool = True
    hold: bool = True
    family = "gain_overhead"

    def __post_init__(self) -> None:
        check_numbers("[1, inf)", steps=self.steps)
        check_numbers("(0, inf)", fraction=self.fraction)
        check_numbers("[0, inf)", shrink=self.shrink, smoothing=self.smoothing)
        self._step: Step | None = None
        if self.rule != "capacity":
            self._step = Step(self.rule, self.scale, self.eta, self.decay, self.horizon)

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        self._ascent = Ascent(problem, proportional_shares(problem, np.ones(problem.L)))
        self._first = self._ascent.y.copy()
        self._charge = problem.moving if self.memory and self.hold else 0.0
        self._last, self._here = self._first, np.zeros(problem.L, dtype=np.int64)
        self._stayed, self._came = 1, 1  # slots of jobs, and jobs, seen so far
        self._capacity = problem.cluster.capacity
        if self._step is not None:
            self._step.start(problem)

    def decide(self, observation: Observation) -> Floats:
        x = observation.arrived
        weight = x.astype(np.float64)
        if not self.memory:
            self._ascent.begin(self._first)
        self._stayed += int(x.sum())
        self._came += int((x > self._here).sum())
        ascent = self._ascent.among(x)  # absent job types keep their values, and use no capacity
        for i in range(self.steps):
            squared = ascent.slope(weight, x, self.smoothing)
            if self._charge > 0:
                self._discourage_moves(ascent, x)
            if self._step is None:
                ascent.climb(self.fraction / (1.0 + self.shrink * i), x, self._capacity)
            else:
                ascent.climb(self._step.size(observation.slot, squared), x)
        self._ascent.accept(ascent, x)  # the start of the next slot's climb: what was learned
        y = np.where(x[self._ascent.problem.channels.job_type, None] != 0, self._ascent.y, 0.0)
        self._last, self._here = y, x
        return y

    def _discourage_moves(self, ascent: Ascent, x: Ints) -> None:
        """Gradient of the reward less the charge, for the jobs that stayed.

        More than was held last costs the charge; at what was held neither way may be worth it.
        """
        stayed = (x * self._here)[ascent.problem.channels.job_type]
        last = self._last
        if ascent.channels is not None:
            stayed, last = stayed[ascent.channels], last[ascent.channels]
        e = np.flatnonzero(stayed)
        g, y, held = ascent.gradient[e], ascent.y[e], last[e]
        # A move is paid once and kept for as long as jobs stay, stayed / came slots on average.
        more = g - self._charge * self._came / self._stayed
        # At the kink: up if even that pays, down if holding loses, else stay.
        at = np.maximum(more, 0.0) + np.minimum(g, 0.0)
        ascent.gradient[e] = np.where(y > held, more, np.where(y < held, g, at))


@dataclass
class OGASchedAsPrinted(PolicyBase):
    """OGASched Algorithm 1 with its projection as printed, repaired until it can be played.

    The printed projection may exceed requests and capacities (see :func:`project_as_printed`).
    The state and the gradient are the printed ones, step by step; what is played is the exact
    projection of the state, which changes nothing where that is feasible. ``repairs`` counts the
    values that had to be changed.
    """

    eta: float = 25.0
    decay: float = 0.9999
    family = "gain_overhead"
    timing = "reserve"

    def __post_init__(self) -> None:
        self._step = Step("decay", 1.0, self.eta, self.decay, 1)

    def start(self, problem: GainOverheadProblem, rng: np.random.Generator) -> None:
        self._ascent = Ascent(problem, proportional_shares(problem, np.ones(problem.L)))
        self._played = self._ascent.y
        self._everyone = np.ones(problem.L, dtype=np.int64)
        self.repairs = 0

    def decide(self, observation: Observation) -> Floats:
        return self._played

    def learn(self, feedback: Sequence[Feedback]) -> None:
        """Steps 4–31 of OGASched Algorithm 1."""
        problem = self._ascent.problem
        for each in feedback:
            squared = self._ascent.slope(each.arrivals.astype(np.float64), self._everyone)
            step = self._step.size(each.slot, squared)
            z = self._ascent.y + step * self._ascent.gradient
            self._ascent = Ascent(problem, project_as_printed(problem, z))  # not feasible, maybe
        if feedback:
            state, self._played = self._ascent.y, project(problem, self._ascent.y)
            changed = np.abs(self._played - state) > 1e-9 * (1.0 + np.abs(state))
            self.repairs += int(changed.sum())

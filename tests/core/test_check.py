"""check_policy must catch what it says it catches, in every family of slots.

The zoo: one right policy for each family, and what can be wrong with one, each put into all of
them. What is wrong is said in a sentence that names policy, problem and slot.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gangwise import PolicyCheckFailed, check_policy, create_policy
from gangwise.cli import app
from gangwise.papers.gain_overhead.policies import Fairness


@dataclass(frozen=True)
class Kind:
    """A family: a right policy, what it may not decide, and something that knows server names."""

    policy: str
    beyond: Callable[[Any, Any], Any]
    named: Callable[[Any], bool]
    nothing: float = 0.0


def _all_tasks_on_the_first(problem: Any, decision: Any) -> Any:
    return np.zeros_like(decision) if problem.Q > 1 else np.full_like(decision, 99)


FAMILIES = {
    "gain_overhead": Kind(
        "fairness",
        lambda problem, y: y * 1.5 + 1.0,
        lambda problem: bool(problem.cluster.capacity[0, 0] < problem.cluster.capacity[-1, 0]),
    ),
    "fluctuating_speeds": Kind(
        "hauf",
        lambda problem, x: np.ones_like(x),
        lambda problem: bool(problem.cost[0] < problem.cost[-1]),
    ),
    "approximation_jobs": Kind(
        "fair",
        lambda problem, rows: np.full_like(rows, 1000),
        lambda problem: bool(problem.prices[0] < problem.prices[-1]),
        -1.0,
    ),
    "gain_overhead_gang": Kind(
        "gang-drf",
        _all_tasks_on_the_first,
        lambda problem: bool(problem.cluster.capacity[0, 0] < problem.cluster.capacity[-1, 0]),
        -1.0,
    ),
    "fluctuating_speeds_gang": Kind(
        "gang-first-fit",
        _all_tasks_on_the_first,
        lambda problem: bool(problem.cluster.capacity[0, 0] < problem.cluster.capacity[-1, 0]),
        -1.0,
    ),
}

memory: list[int] = []


class Wrong:
    """What the wrong ones share: the right one's decision, to be spoilt."""

    kind: Kind

    def start(self, problem, rng):
        self.right = create_policy(self.kind.policy)
        self.right.start(problem, rng)
        self.problem = problem

    def decide(self, observation):
        return self.spoilt(np.array(self.right.decide(observation)), observation)

    def spoilt(self, decision, observation):
        return decision

    def idle(self, decision):
        return np.full_like(decision, self.kind.nothing)

    def learn(self, feedback):
        self.right.learn(feedback)


class Beyond(Wrong):
    """Hands out more than there is."""

    def spoilt(self, decision, observation):
        return self.kind.beyond(self.problem, decision)


class NotNumbers(Wrong):
    """Decides in words."""

    def spoilt(self, decision, observation):
        return np.full(decision.shape, "much")


class Shapeless(Wrong):
    """Decides for one fewer than there are."""

    def spoilt(self, decision, observation):
        return decision[:-1]


class Speechless(Wrong):
    """Forgets to return anything."""

    def spoilt(self, decision, observation):
        return None


class RemembersElsewhere(Wrong):
    """Keeps state outside of itself."""

    def spoilt(self, decision, observation):
        memory.append(1)
        return self.idle(decision) if len(memory) % 5 == 0 else decision


class NeverForgets(Wrong):
    """start() does not start afresh."""

    count = 0

    def spoilt(self, decision, observation):
        self.count += 1
        return self.idle(decision) if self.count > 12 else decision


class DoesNotPickle(Wrong):
    """Its state cannot be saved."""

    def start(self, problem, rng):
        super().start(problem, rng)
        self.secret = lambda: None


class Forgetful(Wrong):
    """Loses a part of its state in a pickle."""

    def start(self, problem, rng):
        super().start(problem, rng)
        self.count = 0

    def spoilt(self, decision, observation):
        self.count += 1
        return self.idle(decision) if self.count > 6 else decision

    def __getstate__(self):
        return {**vars(self), "count": 0}


class KnowsNames(Wrong):
    """What a server is called decides."""

    def spoilt(self, decision, observation):
        return decision if self.kind.named(self.problem) else self.idle(decision)


class Meddles(Wrong):
    """Changes what it was shown."""

    def spoilt(self, decision, observation):
        object.__setattr__(observation, "slot", -1)
        return decision


class Impatient(Wrong):
    """Expects that every slot teaches something."""

    def learn(self, feedback):
        if feedback[0].slot < 0:
            raise ValueError
        super().learn(feedback)


class Breaks(Wrong):
    """Fails in the third slot."""

    def spoilt(self, decision, observation):
        return decision if observation.slot < 2 else decision / {}["third"]


ZOO = {
    Beyond: ".",
    NotNumbers: ".",
    Shapeless: ".",
    Speechless: ".",
    RemembersElsewhere: "second run with the same seed",
    NeverForgets: "has run before",
    DoesNotPickle: "does not pickle",
    Forgetful: "resumed from a checkpoint differs",
    KnowsNames: "what servers are called",
    Meddles: "changed what it was shown",
    Impatient: "IndexError",
    Breaks: "slot 2: KeyError: 'third'",
}
EXCEPT = {
    (Impatient, "gain_overhead_gang"),  # feedback of these is never late
    (KnowsNames, "approximation_jobs"),  # the right one here draws, and says so
}
"""What is right in a family."""


def in_family(wrong: type, family: str) -> Any:
    """One of the zoo, as a policy of a family; its class is where a pickle finds it."""
    name = f"{wrong.__name__}_{family}"
    made = make_dataclass(
        name,
        [],
        bases=(wrong,),
        namespace={
            "family": family,
            "timing": "react",
            "randomised": family == "approximation_jobs",
            "kind": FAMILIES[family],
            "__module__": __name__,
        },
    )
    globals()[name] = made
    return made()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_right_ones_pass(family: str) -> None:
    check_policy(in_family(Wrong, family), problems=6)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("wrong", ZOO, ids=lambda wrong: wrong.__name__)
def test_what_is_wrong_is_named(wrong: type, family: str) -> None:
    if (wrong, family) in EXCEPT:
        check_policy(in_family(wrong, family), problems=3)
        return
    with pytest.raises(PolicyCheckFailed, match=ZOO[wrong]) as said:
        check_policy(in_family(wrong, family), problems=12)
    assert str(said.value).startswith(f"{wrong.__name__}_{family} on problem ")
    assert "\n" not in str(said.value)


def test_only_the_first_family_may_decide_blind() -> None:
    for family in ("fluctuating_speeds", "approximation_jobs", "fluctuating_speeds_gang"):
        blind = in_family(Wrong, family)
        type(blind).timing = "reserve"
        with pytest.raises(PolicyCheckFailed, match="timing"):
            check_policy(blind, problems=1)


class NoDataclass:
    family = "gain_overhead"


@dataclass
class NoLearn:
    family = "gain_overhead"
    timing = "react"
    width: float = field(default=1.0)

    def start(self, problem, rng):
        """Nothing."""

    def decide(self, observation):
        """Nothing."""


def test_what_is_not_a_policy() -> None:
    with pytest.raises(TypeError, match="dataclass"):
        check_policy(NoDataclass())
    with pytest.raises(PolicyCheckFailed, match="family"):
        check_policy(object())
    with pytest.raises(PolicyCheckFailed, match="NoLearn"):
        check_policy(NoLearn())


def _world_on_the_stack() -> Any:
    """An environment of slots that some caller holds."""
    frame = sys._getframe(2)
    while frame is not None:
        for value in frame.f_locals.values():
            if hasattr(value, "_arrivals"):
                return value
        frame = frame.f_back
    return None


@dataclass
class WalksTheStack(Fairness):
    """Reserves, and looks up what will come where the environment keeps it."""

    timing = "reserve"

    def decide(self, observation):
        world = _world_on_the_stack()
        coming = np.ones(self._problem.L, dtype=np.int64)
        if world is not None:
            coming = world._arrivals.at(observation.slot)
        return super().decide(type(observation)(observation.slot, coming))


@dataclass
class LooksBehindTheArray(Fairness):
    """Arrivals of a slot are a row of a block: the next rows are those to come."""

    def decide(self, observation):
        block = observation.arrivals.base
        return super().decide(observation) * (0.5 if block is not None else 1.0)


@dataclass
class KnowsTheSeed(Fairness):
    """The generator of a policy was spawned from the seed of all."""

    def start(self, problem, rng):
        super().start(problem, rng)
        self.lucky = rng.bit_generator.seed_seq.entropy < 1000

    def decide(self, observation):
        return super().decide(observation) * (0.5 if self.lucky else 1.0)


@dataclass
class Draws(Fairness):
    """Draws from the generator that it is given, and from generators split off it."""

    randomised = True

    def start(self, problem, rng):
        super().start(problem, rng)
        self.sources = [rng, *rng.spawn(2), *rng.spawn(1)[0].spawn(2)]

    def decide(self, observation):
        share = np.mean([source.random() for source in self.sources])
        return super().decide(observation) * share


@pytest.mark.parametrize("wrong", [WalksTheStack, LooksBehindTheArray, KnowsTheSeed])
def test_a_policy_that_reads_what_it_is_not_shown_is_named(wrong: type) -> None:
    with pytest.raises(PolicyCheckFailed, match="shown"):
        check_policy(f"{__name__}:{wrong.__name__}", problems=3)


def test_a_policy_may_draw_and_split_its_generator() -> None:
    check_policy(Draws(), problems=3)


def test_the_command_names_the_fault() -> None:
    run = CliRunner()
    named = f"{__name__}:LooksBehindTheArray"
    answer = run.invoke(app, ["check", named, "--cases", "1", "--json"])
    assert answer.exit_code == 1
    assert json.loads(answer.stdout)["sound"] is False
    assert "reads what it is not shown" in json.loads(answer.stdout)["fault"]
    assert "did you mean greedy" in str(run.invoke(app, ["check", "gready"]).exception)

"""Dataclasses that keep to their types."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pytest

from gangwise.core.arrays import Checked, NonNegative, PositiveInt
from gangwise.core.errors import ScenarioError, UnknownName


@dataclass
class Arguments(Checked):
    steps: PositiveInt = 5
    mu: NonNegative | None = None
    range: Annotated[tuple[float, float], "(0, 1]"] = (0.5, 1.0)
    rule: Literal["decay", "even"] | bool | None = "decay"
    unlimited: float = 0.0


@pytest.mark.parametrize(
    "given", [{}, {"mu": 0.0, "steps": 1}, {"rule": None}, {"unlimited": -1.0}, {"rule": "even"}]
)
def test_what_lies_within_is_taken(given):
    made = Arguments(**given)
    assert {name: getattr(made, name) for name in given} == given


@pytest.mark.parametrize(
    "given",
    [
        {"steps": 0},
        {"steps": (1, 2)},
        {"mu": -1e-9},
        {"mu": float("nan")},
        {"range": (1.0, 0.5)},
        {"range": (0.0, 1)},
        {"range": (0.1, 0.2, 0.3)},
        {"range": 0.5},
    ],
)
def test_a_number_outside_its_interval_is_named(given):
    ((name, value),) = given.items()
    with pytest.raises(ScenarioError) as caught:
        Arguments(**given)
    assert name in str(caught.value)
    assert str(value) in str(caught.value)


@pytest.mark.parametrize("word", ["evn", True])
def test_a_choice_that_there_is_not_is_named(word):
    with pytest.raises(UnknownName) as caught:
        Arguments(rule=word)
    assert caught.value.name == str(word)

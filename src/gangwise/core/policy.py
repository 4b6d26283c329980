"""The Policy contract.

A policy's constructor arguments are its whole configuration, so policies are dataclasses whose
``init`` fields are the configuration and whose other fields are state. ``start`` binds a policy to
a problem and forgets everything; ``decide`` returns a feasible decision; ``learn`` receives the
feedback of a slot, which may come late or never and therefore carries its slot.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

__all__ = ["Policy", "Timing", "clone", "configuration"]

Timing = Literal["reserve", "react"]
"""When a policy decides: before the slot's arrivals are seen (``reserve``) or after (``react``)."""

ObservationT = TypeVar("ObservationT", contravariant=True)
DecisionT = TypeVar("DecisionT", covariant=True)
FeedbackT = TypeVar("FeedbackT", contravariant=True)


class Policy(Protocol[ObservationT, DecisionT, FeedbackT]):
    """What every policy offers."""

    @property
    def timing(self) -> Timing:
        """When the policy decides; a ``reserve`` policy is never shown the slot's arrivals."""

    def start(self, problem: Any, rng: np.random.Generator) -> None:
        """Bind to a problem and forget everything."""

    def decide(self, observation: ObservationT) -> DecisionT:
        """Return a feasible decision for this slot. It may be reused by the next call."""

    def learn(self, feedback: FeedbackT) -> None:
        """Take in what a slot taught."""


def configuration(policy: object) -> dict[str, Any]:
    """Constructor arguments of a policy.

    Examples
    --------
    >>> @dataclasses.dataclass
    ... class Half:
    ...     share: float = 0.5
    >>> configuration(Half())
    {'share': 0.5}
    """
    if not dataclasses.is_dataclass(policy):
        raise TypeError(
            f"{type(policy).__name__} is not a dataclass; a policy is one, so that its constructor "
            "arguments are its whole configuration"
        )
    return {f.name: getattr(policy, f.name) for f in dataclasses.fields(policy) if f.init}


PolicyT = TypeVar("PolicyT")


def clone(policy: PolicyT) -> PolicyT:
    """A fresh policy with the same configuration and no memory."""
    return type(policy)(**configuration(policy))

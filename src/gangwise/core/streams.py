"""Random streams: one seed, four independent generators.

The instance, its arrivals, its noise and the policy each draw from a stream of their own, so that
nothing a policy draws can change the arrivals or the noise that it and its rivals meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gangwise.core.errors import ScenarioError

__all__ = ["Streams"]


@dataclass(frozen=True)
class Streams:
    """The independent generators of one run."""

    instance: np.random.Generator
    workload: np.random.Generator
    noise: np.random.Generator
    policy: np.random.Generator

    @classmethod
    def of(cls, seed: int) -> Streams:
        """Spawn the streams of a seed.

        Raises
        ------
        ScenarioError
            For a seed that is negative or no whole number.

        Examples
        --------
        >>> a, b = Streams.of(7), Streams.of(7)
        >>> _ = a.policy.random(1000)
        >>> bool((a.workload.random(3) == b.workload.random(3)).all())
        True
        """
        if not hasattr(seed, "__index__") or seed < 0:
            raise ScenarioError(f"seed is {seed!r}; it must be a whole number, zero or larger")
        return cls(*(np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)))

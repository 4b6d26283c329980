"""Random streams: one seed, four independent generators.

The instance, its arrivals, its noise and the policy each draw from a stream of their own, so that
nothing a policy draws can change the arrivals or the noise that it and its rivals meet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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

        Examples
        --------
        >>> a, b = Streams.of(7), Streams.of(7)
        >>> _ = a.policy.random(1000)
        >>> bool((a.workload.random(3) == b.workload.random(3)).all())
        True
        """
        return cls(*(np.random.default_rng(s) for s in np.random.SeedSequence(seed).spawn(4)))

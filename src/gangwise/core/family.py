"""What a problem family offers to the tools that serve all families alike."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from gangwise.core.environment import Instance

__all__ = ["Family"]


class Family(Protocol):
    """One problem family."""

    @property
    def name(self) -> str:
        """Such as ``gain_overhead``."""

    def fuzz(self, rng: np.random.Generator) -> Instance:
        """Draw a small instance with awkward corners, for checking policies."""

    def relabel_servers(
        self, instance: Instance, order: npt.NDArray[np.int64]
    ) -> Instance:
        """The same instance with server ``order[i]`` now called ``i``."""

    def relabel_decision(
        self, instance: Instance, order: npt.NDArray[np.int64], decision: Any
    ) -> npt.NDArray[np.float64]:
        """A decision for ``instance`` as it reads after relabelling."""

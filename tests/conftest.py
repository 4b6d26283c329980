from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from gangwise.core.workload import Channels, Cluster
from gangwise.papers.gain_overhead.problem import GainOverheadProblem, Utilities

# Without a deadline, since kernels are compiled within an example. `--hypothesis-profile thorough`
# tries more.
settings.register_profile("short", deadline=None, max_examples=30)
settings.register_profile("thorough", deadline=None, max_examples=500)
settings.load_profile("short")


@pytest.fixture(scope="session")
def traces() -> Path:
    """The folder of real public traces, where there is one."""
    folder = os.environ.get("GANGWISE_TRACES")
    if not folder or not Path(folder).is_dir():
        pytest.skip("no real traces here: set GANGWISE_TRACES to their folder")
    return Path(folder)


def tiny(a, c, beta=0.5, kind="linear", alpha=1.0, channels=None) -> GainOverheadProblem:
    """A problem from plain lists: requests [L][K], capacities [R][K]."""
    a, c = np.array(a, dtype=float), np.array(c, dtype=float)
    mask = np.ones((len(a), len(c)), dtype=bool) if channels is None else np.array(channels)
    return GainOverheadProblem(
        Cluster(c, tuple(f"device-{k}" for k in range(c.shape[1]))),
        a,
        Channels.of_mask(mask),
        Utilities.of(kind, np.full(c.shape, alpha)),
        np.full(c.shape[1], beta) if np.isscalar(beta) else np.array(beta),
    )

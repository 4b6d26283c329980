"""The conformance suite on each engine named in GANGWISE_ENGINES (default: local).

One that is named must pass: what cannot be started fails and is not skipped. Real clusters are
played by ``pytest -m full``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conformance import Conformance, Lab

NAMED = tuple(os.environ.get("GANGWISE_ENGINES", "local").replace(",", " ").split())


def start(name: str, folder: Path) -> Lab:
    if name == "local":
        from tests.engines.local_lab import LocalLab

        return LocalLab(folder)
    if name == "slurm":
        from tests.engines.slurm_lab import SlurmLab

        return SlurmLab(folder)
    if name == "kubernetes":
        from tests.engines.kubernetes_lab import KubernetesLab

        return KubernetesLab(folder)
    raise ValueError(f"GANGWISE_ENGINES names {name!r}; known: local, slurm, kubernetes")


REAL = [pytest.param(n, marks=() if n == "local" else pytest.mark.full) for n in NAMED]


@pytest.fixture(scope="module", params=REAL)
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = start(request.param, tmp_path_factory.mktemp(request.param))
    yield lab
    lab.stop()


class TestEngine(Conformance):
    pass

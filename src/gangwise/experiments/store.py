"""Finished runs on disk, so that a comparison that was stopped does only the rest."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gangwise
from gangwise.core.contracts import Instance, Policy, Scenario, configuration
from gangwise.core.errors import StoreError
from gangwise.core.identity import identify, plain
from gangwise.core.simulation import Run


@dataclass(frozen=True)
class RunStore:
    """Finished runs and the checkpoint of the one in hand, keyed by all that defines a run.

    Parameters
    ----------
    folder : path
    scenario : Scenario
    slots : int
    """

    folder: Path
    scenario: Scenario
    slots: int

    def checkpoint(self, key: str) -> Path:
        """Where an unfinished run is saved."""
        return self.folder / f"{key}.checkpoint"

    def key(self, name: str, policy: Policy[Any, Any, Any], seed: int) -> str:
        """Hash of all that defines a run."""
        kind = type(policy)
        identity = json.dumps(
            [
                gangwise.__version__,
                self.scenario.name,
                plain(self.scenario.describe()),
                self.slots,
                seed,
                name,
                identify(kind, "policy"),
                plain(configuration(policy)),
            ],
            sort_keys=True,
        )
        return hashlib.sha256(identity.encode()).hexdigest()[:24]

    def finished(self, key: str, instance: Instance) -> Run | None:
        """The run, if it was finished before."""
        path = self.folder / f"{key}.run"
        if not path.exists():
            return None
        try:
            fields = pickle.loads(path.read_bytes())
            return Run(instance=instance, **fields)
        except (pickle.UnpicklingError, EOFError, TypeError, AttributeError, OSError) as error:
            raise StoreError(
                f"{path} cannot be read ({error}); delete it to run this policy again"
            ) from error

    def finish(self, key: str, run: Run) -> None:
        """Keep a finished run and drop its checkpoint."""
        path = self.folder / f"{key}.run"
        fields = {k: v for k, v in vars(run).items() if k != "instance"}
        part = path.with_suffix(".part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(pickle.dumps(fields))
            part.replace(path)
            self.checkpoint(key).unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot write the finished run {path}: {error}") from error

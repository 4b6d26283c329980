"""Finished runs on disk: one Parquet file each, and together one tidy data set.

A run is written to a side file, flushed and renamed, so that a file under its final name is whole.
Should a disk lose part of one all the same, its digest does not match and it counts as not done.

How a folder of results was made: the command and the versions, beside the results.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gangwise
from gangwise.core.contracts import Instance, Policy, Scenario, configuration
from gangwise.core.errors import StoreError
from gangwise.core.files import Folder
from gangwise.core.identity import identify, plain
from gangwise.core.simulation import Run
from gangwise.experiments.runs import Rows

if TYPE_CHECKING:
    import polars as pl


FORMAT = "gangwise-run-1"


@dataclass(frozen=True)
class Store:
    """The finished runs under a folder.

    Parameters
    ----------
    folder : path
        Runs are in ``runs/<key>.parquet``, what experiments ask for in ``<name>.plan.json``.
    """

    folder: Path

    def path(self, key: str) -> Path:
        """Where a run is."""
        return self.folder / "runs" / f"{key}.parquet"

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        """Store a finished run, all or nothing."""
        import polars as pl

        frame = pl.DataFrame(
            {
                "metric": [name for name, n in rows.metrics for _ in range(n)],
                "at": np.concatenate(rows.at),
                "value": np.concatenate(rows.values),
            }
        )
        about = {
            "key": key,
            "scenario": identity["scenario"],
            "settings": json.dumps(identity["settings"], sort_keys=True),
            "policy": identity.get("policy"),
            "configuration": json.dumps(identity.get("configuration"), sort_keys=True),
            "comparator": identity.get("comparator"),
            "seed": identity["seed"],
            "slots": identity["slots"],
            "version": identity["version"],
        }
        text = {name for name, value in about.items() if not isinstance(value, int)}
        columns = [
            pl.lit(v, pl.String if n in text else pl.Int64).alias(n) for n, v in about.items()
        ]
        at = pl.when(pl.col("at") >= 0).then(pl.col("at"))
        frame = frame.select(*columns, "metric", at, "value")
        sealed = partial(frame.write_parquet, metadata=_seal(key, frame))
        Folder(self.folder).write(f"runs/{key}.parquet", sealed, replace=True)

    def read(self, key: str) -> pl.DataFrame | None:
        """A finished run; None unless it is there and whole."""
        import polars as pl

        path = self.path(key)
        try:
            about = pl.read_parquet_metadata(path)
            frame = pl.read_parquet(path)
            sealed = _seal(key, frame)
        except (OSError, pl.exceptions.PolarsError):
            return None
        return frame if sealed.items() <= about.items() else None

    def finished(self, key: str) -> bool:
        """Whether a run is there and whole."""
        return self.path(key).exists() and self.read(key) is not None

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        """Store what an experiment asks for."""
        Folder(self.folder).write(f"{name}.plan.json", json.dumps(plan, indent=1) + "\n")

    def read_plan(self, name: str = "") -> dict[str, Any]:
        """What an experiment asks for; without a name, of the only one there.

        Raises
        ------
        StoreError
            When there is none, or several to choose from.
        """
        suffix = ".plan.json"
        known = sorted(p.name.removesuffix(suffix) for p in self.folder.glob(f"*{suffix}"))
        if not name and len(known) == 1:
            name = known[0]
        if name not in known:
            which = f"choose one of {', '.join(known)}" if known else "run gangwise sweep first"
            raise StoreError(f"{self.folder} has no results of {name or 'one experiment'}; {which}")
        path = self.folder / f"{name}{suffix}"
        try:
            plan = json.loads(Folder(self.folder).read(path.name))
            return {"experiment": dict(plan["experiment"]), "runs": list(plan["runs"])}
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"cannot read {path}: {error!r}; sweep again to mend it") from error


def _seal(key: str, frame: pl.DataFrame) -> dict[str, str]:
    """What tells a whole file from a torn one: a digest of the content, however compressed."""
    digest = hashlib.sha256()
    for column in frame.iter_columns():
        if column.name in ("at", "value"):
            digest.update(column.fill_null(-1).to_numpy().tobytes())
        else:
            runs = column.rle().struct.unnest()
            digest.update(repr([column.name, runs.rows()]).encode())
    return {"format": FORMAT, "key": key, "digest": digest.hexdigest()}


@dataclass(frozen=True)
class Provenance:
    """A command as it was typed, and the versions that it ran with."""

    command: str
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Versions of what results depend on, here and now.

    >>> list(versions())
    ['gangwise', 'python', 'numpy', 'numba', 'polars']
    """
    found = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "polars"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def write_provenance(folder: Path, name: str, command: str) -> Path:
    """Write ``NAME.command.json`` into a folder of results.

    Raises
    ------
    StoreError
        When it cannot be written.
    """
    text = json.dumps(asdict(Provenance(command, versions())), indent=1, ensure_ascii=False)
    return Folder(folder).write(f"{name}.command.json", text + "\n")


def read_provenance(folder: Path, name: str) -> Provenance | None:
    """What :func:`write_provenance` wrote; None where nothing was, as by a sweep from Python."""
    path = folder / f"{name}.command.json"
    if not path.exists():
        return None
    try:
        return Provenance(**json.loads(Folder(folder).read(path.name)))
    except (ValueError, TypeError) as error:
        raise StoreError(
            f"cannot read {path}: {error}; delete it, or run the command again"
        ) from error


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

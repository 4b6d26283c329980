"""How a folder of results was made: the command and the versions, beside the results."""

from __future__ import annotations

import json
import platform
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import gangwise
from gangwise.core.errors import StoreError


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
    path = folder / f"{name}.command.json"
    text = json.dumps(asdict(Provenance(command, versions())), indent=1, ensure_ascii=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error
    return path


def read_provenance(folder: Path, name: str) -> Provenance | None:
    """What :func:`write_provenance` wrote; None where nothing was, as by a sweep from Python."""
    path = folder / f"{name}.command.json"
    if not path.exists():
        return None
    try:
        return Provenance(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError) as error:
        raise StoreError(
            f"cannot read {path}: {error}; delete it, or run the command again"
        ) from error

"""Reading the files that users write."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gangwise.core.errors import ScenarioError


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises
    ------
    ScenarioError
        When it cannot be read; names the file and, for a mistake in it, the line.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: {error}") from error

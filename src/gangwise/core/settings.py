"""Settings of scenarios, checked against their model, and the TOML files that users write."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.limits import require_memory

BYTES = 480
"""Of memory that a job type on a server takes: ten numbers for each of six kinds of devices."""

ModelT = TypeVar("ModelT", bound=BaseModel)


def checked(model: type[ModelT], name: str, given: Mapping[str, Any]) -> ModelT:
    """Settings of the scenario ``name``, checked.

    Raises UnknownName for a setting that does not exist; ScenarioError for a value that makes no
    sense, with the setting's name.
    """
    try:
        settings = model(**given)
        cells = getattr(settings, "job_types", 1) * (getattr(settings, "servers", None) or 1)
        require_memory(
            BYTES * cells, f"scenario {name!r} of {cells} job types times servers", "fewer of them"
        )
        return settings
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = list(model.model_fields)
            raise UnknownName(f"setting of scenario {name!r}", where, known) from error
        at = f"{where}: " if where else ""
        raise ScenarioError(f"scenario {name!r}: {at}{first['msg']}") from error


def require_range(name: str, bounds: tuple[float, float], positive: bool = False) -> None:
    """Raise ValueError, for pydantic to report, unless a setting is a finite range.

    >>> require_range("beta", (0.0, 0.5))
    >>> require_range("alpha", (0.0, 0.5), positive=True)
    Traceback (most recent call last):
    ValueError: alpha must be a range (low, high) with 0 < low ≤ high
    """
    low, high = bounds
    if not (0 <= low <= high and math.isfinite(high)) or (positive and low == 0):
        least = "<" if positive else "≤"
        raise ValueError(f"{name} must be a range (low, high) with 0 {least} low ≤ high")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises ScenarioError with the file and the line at fault."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: {error}") from error

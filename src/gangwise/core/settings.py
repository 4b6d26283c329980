"""Settings of scenarios, checked against their model, and the TOML files that users write."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.limits import require_memory

BYTES = 480  # memory of a job type on a server: ten numbers for each of six kinds of devices

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


def require_options(given: Mapping[str, object], known: type) -> None:
    """Raise TypeError, as a call does, for a keyword that is no field of ``known``, a TypedDict."""
    if unknown := given.keys() - known.__annotations__.keys():
        names = ", ".join(known.__annotations__)
        raise TypeError(f"there is no option {min(unknown)!r}; there are {names}")


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file; raises ScenarioError with the file and the line at fault."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ScenarioError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ScenarioError(f"{path}: {error}") from error


def toml_text(document: Mapping[str, Any]) -> str:
    """A document as TOML: tables and lists of tables one level deep, the rest inline.

    >>> print(toml_text({"cap": [{"most": 2.0, "only": ["a"]}], "start": {"latency": 1.5}}))
    [[cap]]
    most = 2.0
    only = ["a"]
    <BLANKLINE>
    [start]
    latency = 1.5
    """
    plain, blocks = [], []
    for key, value in document.items():
        tables = list(value) if isinstance(value, list | tuple) else [value]
        if not tables or not all(isinstance(each, Mapping) for each in tables):
            plain.append(f"{toml_key(key)} = {toml_value(value)}")
            continue
        heading = f"[{toml_key(key)}]" if isinstance(value, Mapping) else f"[[{toml_key(key)}]]"
        for each in tables:
            lines = [f"{toml_key(name)} = {toml_value(of)}" for name, of in each.items()]
            blocks.append("\n".join([heading, *lines]))
    return "\n\n".join(["\n".join(plain)] * bool(plain) + blocks)


def toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(each) for each in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""An experiment as the content of an experiment file."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any


def experiment_toml(experiment: Mapping[str, Any]) -> str:
    """The text of an experiment file; what is as by default is left out.

    Parameters
    ----------
    experiment : mapping
        As in :attr:`gangwise.experiments.results.Results.experiment`.

    Examples
    --------
    >>> print(experiment_toml({"name": "a", "seeds": 3, "trace": "", "grid": {"rho": [0.5, 1]}}))
    name = "a"
    seeds = 3
    <BLANKLINE>
    [grid]
    rho = [0.5, 1]
    <BLANKLINE>
    """
    plain, tables = [], []
    for key, value in experiment.items():
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, Mapping):
            lines = [f"{_key(name)} = {_value(each)}" for name, each in value.items()]
            tables.append("\n".join([f"[{key}]", *lines]))
        elif key in ("policies", "cases"):
            each = "".join(f"    {_value(_given(entry))},\n" for entry in value)
            plain.append(f"{key} = [\n{each}]")
        else:
            plain.append(f"{key} = {_value(value)}")
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"


def _given(entry: Any) -> Any:
    """A policy without the parts of its table that are empty."""
    if isinstance(entry, Mapping) and "name" in entry:
        return {key: value for key, value in entry.items() if value not in ("", {})}
    return entry


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

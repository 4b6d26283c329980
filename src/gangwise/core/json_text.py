"""JSON without NaN and Infinity, for which it has no word."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """A value of numbers, text, mappings and lists, with None for what is not finite.

    >>> finite({"low": float("nan"), "ends": (1.5, float("inf"))})
    {'low': None, 'ends': [1.5, None]}
    """
    if isinstance(value, Mapping):
        return {key: finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_text(value: Any) -> str:
    r"""JSON as machines and people read it; what is not finite is null.

    >>> json_text([float("inf")])
    '[\n  null\n]'
    """
    return json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False)

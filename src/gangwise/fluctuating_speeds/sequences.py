"""The sequences g(t) of (10)–(11) and δ(t) of (14), by the names used here, and one's own.

Everywhere ln(t + 1) stands where (11) and (14) print ln t, as §4 has it: the two differ for tiny t
only, where the printed ones make g(1) = 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from gangwise.core.errors import ScenarioError, UnknownName

__all__ = ["DELTAS", "EXPLORATIONS", "Delta", "Exploration", "delta", "exploration"]

Exploration = Callable[[float, float], float]
"""g: (t from 1, m = α|E|) to a number of zero or more."""

Delta = Callable[[float], float]
"""δ: t from 1 to a positive number."""


def _both(t: float, m: float) -> float:
    return math.log(t + 1) + _loglog(t, m)


def _loglog(t: float, m: float) -> float:
    return 4.0 * math.log(math.log(t + 1) + 1) * m


def _log(t: float, m: float) -> float:
    return math.log(t + 1)


EXPLORATIONS: Mapping[str, Exploration] = {"default": _both, "loglog": _loglog, "log": _log}
"""Fig. 8: ``default`` is ln(t+1) + 4 ln(ln(t+1)+1) α|E|; ``loglog`` its second term; ``log`` its
first."""


def _delta_loglog(t: float) -> float:
    return 1.0 / (math.log(math.log(t + 1) + 1) + 1)


def _delta_log(t: float) -> float:
    return 1.0 / (math.log(t + 1) + 1)


def _delta_no_plus_one(t: float) -> float:
    return 1.0 / math.log(math.log(t + 1) + 1)


def _delta_triple(t: float) -> float:
    return 1.0 / (math.log(math.log(math.log(t + 1) + 1) + 1) + 1)


def _delta_one(t: float) -> float:
    return 1.0


DELTAS: Mapping[str, Delta] = {
    "default": _delta_loglog,
    "log": _delta_log,
    "loglog-no-plus-one": _delta_no_plus_one,
    "triple": _delta_triple,
    "one": _delta_one,
}
"""Fig. 7: ``log`` (ln(t+1)+1)⁻¹; ``loglog-no-plus-one`` (ln(ln(t+1)+1))⁻¹ as its text has it, and
``default`` with the +1 of §4; ``triple`` (ln(ln(ln(t+1)+1)+1)+1)⁻¹ of the preprint (the journal
lost a +1). ``one`` does not go to zero; for comparison."""


def exploration(g: str | Exploration) -> Exploration:
    """The sequence g by name, or as it is given.

    Examples
    --------
    >>> round(exploration("default")(3, 1), 9)
    4.865261106
    """
    if callable(g):
        return g
    if g not in EXPLORATIONS:
        raise UnknownName("sequence g", g, list(EXPLORATIONS))
    return EXPLORATIONS[g]


def delta(sequence: str | Delta | float) -> Delta:
    """The sequence δ by name, as it is given, or constant.

    Examples
    --------
    >>> round(delta("default")(3), 9), delta(0.5)(3)
    (0.534833238, 0.5)
    """
    if callable(sequence):
        return sequence
    if isinstance(sequence, (int, float)):
        value = float(sequence)
        if not (math.isfinite(value) and value > 0):
            raise ScenarioError(f"delta is {sequence}; it must be positive, (12)")
        return _Constant(value)
    if sequence not in DELTAS:
        raise UnknownName("sequence delta", sequence, list(DELTAS))
    return DELTAS[sequence]


class _Constant:
    """A constant sequence that pickles."""

    def __init__(self, value: float):
        self.value = value

    def __call__(self, t: float) -> float:
        return self.value

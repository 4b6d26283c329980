"""Ranges of a policy's arguments, as they are written on the command line."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gangwise.core.errors import ScenarioError

if TYPE_CHECKING:
    from optuna.trial import Trial


@dataclass(frozen=True)
class Knob:
    """An argument and what it may be: numbers between two ends, or some choices.

    Parameters
    ----------
    name : str
    ends : (int, int) or (float, float), optional
        Lowest and highest; both are allowed. Integers only between two integers.
    log : bool
        Whether numbers are spread evenly over their logarithms.
    choices : tuple
        Instead of ends.
    """

    name: str
    ends: tuple[int, int] | tuple[float, float] | None = None
    log: bool = False
    choices: tuple[Any, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Knob:
        """Read ``NAME=LOW:HIGH[:int][:log]`` or ``NAME=ONE|OTHER``.

        Raises
        ------
        ScenarioError
            Says how to write one.

        Examples
        --------
        >>> Knob.parse("steps=1:20:int")
        Knob(name='steps', ends=(1, 20), log=False, choices=())
        >>> Knob.parse("fraction=0.05:0.8:log").log
        True
        >>> Knob.parse("estimator=decay|window").choices
        ('decay', 'window')
        """
        name, equals, rest = (part.strip() for part in text.partition("="))
        how = ScenarioError(
            f"knob {text!r}: write NAME=LOW:HIGH, with :int or :log after it if wanted, or "
            "NAME=ONE|OTHER"
        )
        if not (name.isidentifier() and equals and rest):
            raise how
        if "|" in rest:
            choices = tuple(_literal(part.strip()) for part in rest.split("|"))
            if len(set(map(repr, choices))) < len(choices) or "" in choices:
                raise ScenarioError(f"knob {text!r}: choices must differ and not be empty")
            return cls(name, choices=choices)
        low, *more = rest.split(":")
        if not more or not set(more[1:]) <= {"int", "log"}:
            raise how
        try:
            number = int if "int" in more[1:] else float
            ends = (number(low), number(more[0]))
        except ValueError:
            raise how from None
        if not (math.isfinite(ends[0]) and math.isfinite(ends[1]) and ends[0] < ends[1]):
            raise ScenarioError(f"knob {text!r}: the lower end must be below the upper one")
        if "log" in more[1:] and ends[0] <= 0:
            raise ScenarioError(f"knob {text!r}: with :log both ends must be above 0")
        return cls(name, ends, "log" in more[1:])

    @property
    def low(self) -> Any:
        """The lower end, or the first choice."""
        return self.ends[0] if self.ends else self.choices[0]

    @property
    def high(self) -> Any:
        """The upper end, or the last choice."""
        return self.ends[1] if self.ends else self.choices[-1]

    def holds(self, value: Any) -> bool:
        """Whether a value may be suggested."""
        if self.ends is None:
            return any(value == choice and type(value) is type(choice) for choice in self.choices)
        kind = int if isinstance(self.ends[0], int) else int | float
        known = isinstance(value, kind) and not isinstance(value, bool)
        return known and self.ends[0] <= value <= self.ends[1]

    def suggest(self, trial: Trial) -> Any:
        """A value for a trial."""
        if self.ends is None:
            return trial.suggest_categorical(self.name, self.choices)
        low, high = self.ends
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(self.name, low, high, log=self.log)
        return trial.suggest_float(self.name, low, high, log=self.log)

    def __str__(self) -> str:
        if self.ends is None:
            return f"{self.name}={'|'.join(map(str, self.choices))}"
        kind = ":int" if isinstance(self.ends[0], int) else ""
        return f"{self.name}={self.ends[0]}:{self.ends[1]}{kind}{':log' if self.log else ''}"


def _literal(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value if isinstance(value, bool | int | float | str) or value is None else text

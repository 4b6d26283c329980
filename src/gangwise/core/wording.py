"""Words and sentences of a package, which stand in its file ``words.toml``."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def words_of(package: str) -> Mapping[str, Any]:
    """The tables of the package's ``words.toml``."""
    return tomllib.loads((files(package) / "words.toml").read_text(encoding="utf-8"))


def cause_words(cause: str, of: str = "short") -> str:
    """A cause of waiting, in a line: what it is called (``short``), or its ``meaning``.

    >>> cause_words("reservation"), cause_words("busy")
    ('a reservation', 'nothing free')
    """
    text = str(words_of("gangwise.study")["causes"][cause][of])
    return text.replace("-\n", "").replace("\n", " ")


def phrases(package: str) -> Callable[..., str]:
    """A function of the name of a text in the table ``texts``, and of the values in its places."""

    def phrase(name: str, /, **values: object) -> str:
        return str(words_of(package)["texts"][name]).format(**values)

    return phrase

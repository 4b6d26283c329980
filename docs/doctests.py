"""For mkdocstrings: examples that stand in a docstring without a heading become code on the page.

Griffe finds ``>>>`` in the section Examples only; elsewhere Markdown takes it for a quotation, and
lists in it for links.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!\s*$).*\n?)*\n?)+", re.MULTILINE)
"""Lines from a prompt to the next empty line; prompts after one empty line go on."""

HEADING = re.compile(r"^Examples\n-+$", re.MULTILINE)


def fenced(text: str) -> str:
    r"""A docstring with its examples as code, but for those under the heading Examples.

    >>> fenced("Twice.\n\n>>> 1 + 1\n2").splitlines()[2:]
    ['```pycon', '>>> 1 + 1', '2', '```']
    """
    before, *rest = HEADING.split(text, maxsplit=1)
    tail = text[len(before) :] if rest else ""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", before) + tail


class Doctests(griffe.Extension):
    """Applies :func:`fenced` to every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called for each object that was found."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)

"""How to get the results on a page again: command, experiment file, versions."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

from gangwise.experiments.store import read_provenance, versions
from gangwise.report.page import plain_table, section


def again(
    folder: Path, name: str, file: str = "", more: Mapping[str, str] | None = None, keys: str = ""
) -> str:
    """The last section of a page.

    Parameters
    ----------
    folder, name
        Where results are, and what :func:`~gangwise.experiments.store.write_provenance`
        called them.
    file : str
        Content of an experiment file that defines them, if there is one.
    more : mapping, optional
        Further versions to show.
    keys : str
        HTML to end with.
    """
    known = read_provenance(folder, name)
    parts = []
    if known is not None:
        same = "commands give" if "\n" in known.command else "command gives"
        parts += [f"<p>The same {same} the same rewards:</p>", _code(known.command)]
        if file:
            parts.append("<p>As an experiment file, with all that the command changed:</p>")
    elif file:
        parts.append(
            "<p>These results were made from Python. The same experiment as a file, "
            f"<code>{escape(name)}.toml</code>, and the command that gives the same rewards:</p>"
        )
        parts.append(_code(f"gangwise sweep {name}.toml --out {folder.name or 'results'}"))
    if file:
        parts.append(_code(file.rstrip()))
    used = known.versions if known is not None else versions()
    caption = "Versions" if known is not None else "Versions that wrote this page"
    parts.append(plain_table({**used, **(more or {})}, caption))
    return section("How to get this again", *parts, keys)


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"

"""Traces of clusters: from a path to the reader of its format, and to its servers and jobs."""

from __future__ import annotations

import re
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.errors import TraceError, UnknownName
from gangwise.core.registry import belongs_elsewhere, entries
from gangwise.logs import format
from gangwise.logs.tables import Reader, Tables, load_tables
from gangwise.logs.text import Blocks, first_lines, header_of, listed, regular
from gangwise.logs.twins import arguments, open_twin

__all__ = ["open_reader", "open_tables"]

TWIN = "twin:"
"""Prefix that marks the name of a synthetic twin where a path is expected."""


def open_tables(path: Path | str, *, trace: str = "", **knobs: Any) -> Tables:
    """Servers and jobs, before anything is made of them.

    ``knobs`` are arguments of the reader, or of the twin; the others, and what is raised, are as of
    :func:`open_reader`.
    """
    path = Path(path)
    kind = without_reader(path)
    if not kind:
        tables = open_reader(path, trace=trace, **knobs).scan()
        # Servers alone are tables, but nothing can be played of them.
        if tables.no_jobs:
            raise TraceError(tables.no_jobs, path)
        return tables
    ready = ready_tables(path, knobs)
    # Taken out as they were used; one that is left over was misspelled.
    for knob in knobs:
        accepted = [] if path.exists() else arguments(path.name)
        raise UnknownName(f"argument of {kind}", knob, accepted)
    return ready


def without_reader(path: Path) -> str:
    """The kind of a path that needs no reader (twin, saved tables); empty for files of a trace."""
    if path.name.startswith(TWIN) and not path.exists():  # scenario files prepend their folder
        return "a synthetic twin"
    return "tables that were saved" if (path / format.SAVED).is_file() else ""


def ready_tables(path: Path, knobs: dict[str, Any]) -> Tables:
    """Tables that need no reader; the arguments that they take are taken out of ``knobs``."""
    knobs.pop("strict", None)  # no row of them can be bad
    if not path.exists():
        return open_twin(path.name, knobs)
    return load_tables(path)


def open_reader(path: Path | str, *, trace: str = "", **knobs: Any) -> Reader:
    """The reader of a trace, whose format is recognised unless ``trace`` names it.

    Raises TraceError when nothing is recognised: says what was looked for and what was found;
    UnknownName for a format or argument that does not exist.
    """
    reader = reader_of(Path(path), trace)
    accepted = reader_arguments(reader)
    for knob in knobs:
        # The signature tells which arguments there are, for readers made of TOML files as well.
        if knob not in accepted:
            raise UnknownName("argument of the reader of this trace", knob, accepted)
    opened: Reader = reader(path, **knobs)
    return opened


def reader_arguments(reader: Any) -> list[str]:
    """Names of a reader's arguments, without the path."""
    return list(signature(reader).parameters)[1:]


def reader_of(path: Path, trace: str = "") -> Any:
    """The class of the reader; arguments and errors as of :func:`open_reader`."""
    formats = entries("trace")
    if trace and trace not in formats:
        raise UnknownName("trace", trace, list(formats))
    require_there(path)
    # A pipe would block for ever, and a device never end.
    regular(path)
    if path.is_file() and not path.stat().st_size:
        raise TraceError("the file is empty", path)
    if path.is_dir() and not any(path.iterdir()):
        raise TraceError("the folder is empty", path)
    # All formats are loaded to be asked; none opens the file twice, as its start is kept.
    readers: dict[str, Any] = {name: entry.load() for name, entry in formats.items()}
    fit = [trace] if trace else [name for name in readers if readers[name].recognise(path)]
    # Several formats may read rows without a header: usual names and headers decide.
    if len(fit) > 1:
        forms = [form for name in fit if (form := getattr(readers[name], "FORMAT", None))]
        likely = {
            form.name for file in format.files_of(path) for form, _ in format.recognise(file, forms)
        }
        fit = [name for name in fit if name in likely] or fit
    # A CSV file needs its mapping, which is TOML.
    if len(fit) == 1 and (trace != "csv" or path.suffix == ".toml"):
        return readers[fit[0]]
    if len(fit) > 1:
        raise TraceError(f"this could be {' or '.join(fit)}; choose one with trace=", path)
    doubt = ""
    # Binary data is not drafted: its first line is no heading.
    if path.is_file() and not format.looks_like(first_lines(path)):
        from gangwise.logs.guess import HeadedTable, obvious

        try:
            obvious(path)
            # Headings that say everything need no mapping.
            return HeadedTable
        except TraceError as error:
            doubt = f"{str(error).removeprefix(f'{error.file}: ')}; "
    kind, contents = "first line", listed(header_of(path), 12)
    if path.is_file() and not contents:
        contents = "nothing readable" + _damage(path)
    if path.is_dir():
        kind, contents = "files", ", ".join(sorted(item.name for item in path.iterdir())[:12])
    texts = [file for file in format.files_of(path) if not format.looks_like(first_lines(file))]
    people = [file for file in format.all_files(path) if format.is_for_people(first_lines(file, 2))]
    hint = ""
    if people:
        hint = f"; {people[0].name} is {format.FOR_PEOPLE}"
    elif re.search(r"\bJOBID\b.*\bNODELIST\b", (first_lines(path, 1) or [""])[0]):
        hint = (
            "; of squeue the JSON is read, which says what jobs ask for: squeue --json > jobs.json"
        )
    elif texts:
        hint = f"; for a file of your own, draft a mapping: gangwise trace guess {texts[0]}"
    # What the headings lack says more than a list of formats.
    if doubt:
        raise TraceError(f"{doubt}no known trace format{hint}", path)
    looked = f"looked for {', '.join(formats) or 'none (none is formats)'}"
    raise TraceError(f"no known trace format{hint}; {kind} found: {contents}; {looked}", path)


def _damage(path: Path) -> str:
    """Damage of the packing of a file of which nothing can be read; empty for none."""
    blocks = Blocks(path)
    try:
        blocks.start(1)
    except TraceError as error:
        return f": {str(error).removeprefix(f'{path}: ')}"
    return f": {blocks.damage}" * bool(blocks.damage)


def require_there(path: Path) -> None:
    """Raise TraceError, with what else the name may stand for, where there is no such file."""
    from difflib import get_close_matches

    if path.exists():
        return
    beside = [item.name for item in path.parent.iterdir()] if path.parent.is_dir() else []
    close = get_close_matches(path.name, beside, n=1, cutoff=0.7)
    hint = f"; did you mean {path.with_name(close[0])}?" if close else ""
    if re.match(r"https?:/", str(path)):
        hint = "; nothing is fetched: download the file and give its path"
    # To look among schedulers imports them; their names do not end as files do, at most in 0.5.
    if not path.suffix[1:2].isalpha() and (instead := belongs_elsewhere("trace", str(path))):
        hint = f"; {instead}"
    raise TraceError(f"there is no such file or directory{hint}", path)


class RegisteredTrace(NamedTuple):
    """A registered trace; ``form`` has no tables where the files are a user's own."""

    name: str
    summary: str
    reader: Any
    form: format.Format


def registered_traces() -> list[RegisteredTrace]:
    traces = []
    for name, entry in entries("trace").items():
        reader = entry.load()
        own = format.Format(name, entry.summary, "nowhere: your own files", "your own", ())
        form = getattr(reader, "FORMAT", own)
        traces.append(RegisteredTrace(name, entry.summary, reader, form))
    return traces


def described() -> list[dict[str, Any]]:
    """Every registered trace: what its format says of it, ready for JSON.

    >>> [trace["name"] for trace in described() if trace["sha256"]]
    ['alibaba-v2017', 'alibaba-v2018']
    """
    descriptions = []
    for name, summary, _, form in registered_traces():
        tables: list[dict[str, Any]] = []
        for table in form.tables:
            entry = {key: getattr(table, key) for key in ("name", "gives", "needed", "parts")}
            tables.append({**entry, "columns": [column.name for column in table.schema.columns]})
        keys = ("title", "published", "licence", "span", "size")
        about = {"name": name, "summary": summary, **{key: getattr(form, key) for key in keys}}
        digests = {"sha256": dict(form.sha256), "checksums": form.checksums}
        descriptions.append({**about, **digests, "tables": tables})
    return descriptions

"""Draft a mapping for an unknown CSV or JSON file, with the load under each reading of it.

Columns are guessed by their names, units and times by names and values; what cannot be told from
the file (whether GPUs are of a node or of the whole job, MiB or GiB, what an empty end means) is
drafted one way and read every way, so that a person can choose by the load that comes out.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from itertools import combinations, permutations, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise import notation
from gangwise.core.arrays import Floats
from gangwise.core.errors import TraceError
from gangwise.core.registry import entries
from gangwise.core.settings import toml_value
from gangwise.logs.format import looks_like, recognise
from gangwise.logs.formats.own_csv import NAME, WHITESPACE, MappingFile, OwnCsv, json_paths
from gangwise.logs.reading import reasons
from gangwise.logs.tables import Tables, amount_text, device_hours, period_of
from gangwise.logs.text import (
    Blocks,
    fields_of_json,
    first_lines,
    lists_of_records,
    read_records,
    split_line,
    start_of,
    with_points,
)

SAMPLE = 1000  # rows that are looked at for units; loads are of the whole file
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ROLES: Mapping[str, Sequence[str]] = {role: n.split() for role, n in WORDS["roles"].items()}
# Words beside a role, such as `time` in `start_time`, which say nothing of their own.
IGNORED_WORDS: Mapping[str, frozenset[str]] = {
    role: frozenset(words.split())
    for roles, words in WORDS["beside"].items()
    for role in roles.split()
}
NOTHING, TIMES = WORDS["cells"]["nothing"], WORDS["cells"]["times"]
DEVICES = ("cpu", "mem", "gpu")
TIME_ROLES = ("created", "started", "deleted")
AMBIGUOUS = frozenset(WORDS["ambiguous"]["limit"].split())
"""Names of a run time in some systems and of a limit in others: the values decide."""
BASES, ASKED, RAN = (frozenset(WORDS["ambiguous"][of].split()) for of in ("bases", "asked", "ran"))
"""Words of lengths of time, and those beside them that say which of the two is meant."""
LENGTHS = frozenset(WORDS["ambiguous"]["created"].split())
"""Names of a time in some systems and of the length of a wait in others."""
RATES = frozenset(WORDS["rates"]["words"].split())
BETWEEN = WORDS["between"]["words"].split()
UNITS_OF_TIME: tuple[str, ...] = ("ns", "us", "ms", "s", "sec", "secs", "seconds", "min", "mins")
UNITS_OF_TIME += ("minutes", "h", "hour", "hours", "days")
TEXTS = (*("name", "user", "status", "models", "type", "hosts", "partition", "account", "qos"),)
"""Roles of columns that are no numbers."""
LIST_OF_DEVICES = re.compile(
    r"(?:[\w/:.-]+=[\d.]+[KMGTPE]?(?:,|$))+$|gpu:(?:[^,:]+:)?\d+(?:,|$|\()"
)
"""How Slurm lists what a job has: TRES, or GRES."""
LEAST_RUN, MOST_GAP = 5.0, 172_800.0
"""Seconds: where half of the jobs run less, or they come less often, times are in another unit."""
ENOUGH = 5
"""Rows that must have times, for their order to mean anything."""
COUNTS = 20, 0.5, 1024.0
"""Of so many rows, whose amounts differ in more than this share, and reach more than the last, the
amounts were measured: what jobs ask for comes again."""
YEAR = 31_557_600.0
"""Numbers larger than a year in seconds count from 1970, and 0 among them is no time."""


@dataclass(frozen=True)
class MappingOutcome:
    """The load that results when the file is read in one way."""

    # What is different from the draft, and the line of the mapping that makes the difference; both
    # are empty for the draft itself.
    what: str
    change: str
    jobs: int = 0  # usable, of ``rows``
    rows: int = 0
    # By device: device-hours, the mean over the time of the file, what the largest job asks for.
    hours: Mapping[str, float] = field(default_factory=dict)
    mean_in_use: Mapping[str, float] = field(default_factory=dict)
    largest_job: Mapping[str, float] = field(default_factory=dict)
    left_out: str = ""  # why rows are not among the jobs
    problem: str = ""  # why the file cannot be read in this way
    doubts: tuple[str, ...] = ()  # of the draft: what no cluster has, as in ``jobs.toml``

    def line(self, draft: MappingOutcome | None = None) -> str:
        """A line of a report, without the devices that are read as in the draft."""
        head = f"{self.what or 'as drafted'}" + f" ({self.change})" * bool(self.change)
        if self.problem:
            return f"{head}: cannot be read: {self.problem}"
        loads = "; ".join(
            f"{name}: {amount_text(self.hours[name])} hours, {self.mean_in_use[name]:.4g} in use "
            f"in the mean, largest job {self.largest_job[name]:.4g}"
            for name in self.hours
            if draft is None
            or (draft.hours.get(name), draft.largest_job.get(name))
            != (self.hours[name], self.largest_job[name])
        )
        out = f" ({self.left_out})" if self.left_out and draft is None else ""
        return f"{head}: {self.jobs:,} of {self.rows:,} rows{out}; {loads or 'the same load'}"


@dataclass(frozen=True)
class Guess:
    """A drafted mapping (as TOML would be read), the draft's reading and all others, and notes."""

    path: Path
    mapping: dict[str, Any]
    readings: tuple[MappingOutcome, ...]
    notes: tuple[str, ...]

    def toml(self, file: str = "") -> str:
        """The mapping as a file, with everything else in its comments."""
        lines = [f"# A draft for {self.path.name}: read it, choose, correct.", "#"]
        lines += [f"# - {note}" for note in self.notes]
        if self.readings:
            lines += ["#", "# What comes out, and what would if it were read otherwise:"]
        drafted = self.readings[0] if self.readings else None
        lines += [f"# - {r.line(None if r is drafted else drafted)}" for r in self.readings]
        lines.append("")
        mapping = {**self.mapping, "jobs": {**self.mapping["jobs"], "file": file or str(self.path)}}
        return "\n".join([*lines, *_toml(mapping)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        readings = [{**asdict(r), "what": r.what or "as drafted"} for r in self.readings]
        return {
            "file": str(self.path),
            "mapping": self.mapping,
            "notes": list(self.notes),
            "readings": readings,
        }


def guess(path: Path | str, doubts_of: Callable[[Tables], Sequence[str]] | None = None) -> Guess:
    """Draft a mapping; TraceError when the file is neither rows of fields nor JSON objects.

    ``doubts_of``, such as :func:`gangwise.logs.jobs.doubts_of`, says what no cluster has in the
    tables that the draft gives.
    """
    path = Path(path)
    if not path.is_file():
        raise TraceError("there is no such file to draft a mapping for", path)
    draft = _Draft(path, _sample(path))
    # Formats that are known are tried as well: their readers know more than any guess.
    readers: dict[str, Any] = {name: entry.load() for name, entry in entries("trace").items()}
    forms = [reader.FORMAT for reader in readers.values() if hasattr(reader, "FORMAT")]
    for form in sorted({form.name for form, _ in recognise(path, forms)}):
        note = f"this is a file of {form}: gangwise jobs reads it without a mapping"
        draft.notes.insert(0, note + _as_read(path, readers[form]))
    return draft.guess(doubts_of)


def obvious(path: Path) -> tuple[dict[str, Any], str]:
    """The mapping of a file whose headings say all that a job needs, and how columns are read.

    TraceError, with what is missing or doubtful, for any other file.
    """
    # By time and size: a file that was written again is guessed anew.
    version = path.stat()
    return _obvious(path.resolve(), version.st_mtime_ns, version.st_size)


@cache
def _obvious(path: Path, *version: int) -> tuple[dict[str, Any], str]:
    draft = _Draft(path, _sample(path))
    mapping, missing = draft.mapping()
    # Numbered columns have no names to read, so that nothing is obvious.
    if "header" in draft.sample.layout:
        missing.append("the file does not name its columns")
    if not {*DEVICES, "tasks"} & {*draft.role}:
        missing.append("no column says how many GPUs, cores or nodes a job had: add gpu = or cpu =")
    if missing or draft.disorder:
        raise TraceError("; ".join([*missing, *[draft.disorder] * bool(draft.disorder)]), path)
    read = []
    for role, entry in draft.entry.items():
        if "column" in entry:
            how = ", ".join(str(entry[key]) for key in ("unit", "time", "listed") if key in entry)
            # A length without a unit is in seconds, which is told so that a user can object.
            if role in ("duration", "limit", "wait") and "unit" not in entry:
                how = "seconds"
                if role == "duration" and not _named_unit(entry["column"], UNITS_OF_TIME):
                    how += f"; if minutes, name it {entry['column']}_minutes"
            read.append(f"{entry['column']} as {CALLED.get(role, role)}{f' ({how})' * bool(how)}")
    # Only notes that may change how columns are read are repeated here; the rest is for a draft.
    told = ("not used:", "numbers have", "times that are not used")
    unused = [note for note in draft.notes if note.startswith(told)]
    text = f"columns are read by their names: {', '.join(read)}{'; ' * bool(unused)}"
    return mapping, text + "; ".join(unused)


class HeadedTable(OwnCsv):
    """Reader of a table whose headings say all that a job needs, see :func:`obvious`."""

    def __init__(self, path: Path | str, *, strict: bool = False):
        self.path, self.strict = Path(path), strict
        content, text = obvious(self.path)
        self.mapping, self.notes = MappingFile(**content), [text]


CALLED = {"name": "the job", "created": "submission", "started": "start", "deleted": "end"}
CALLED |= {"duration": "run time", "cpu": "cores", "gpu": "GPUs", "mem": "memory"}
"""Roles of columns, as a reader would say them."""


def _as_read(path: Path, reader: Any) -> str:
    """Reading of a file by the reader of a format, to hold a draft against."""
    try:
        tables = reader(path).scan()
        if tables.no_jobs:
            return ""
        jobs = tables.jobs
    # A table of a format that needs others beside it cannot be held against the draft.
    except TraceError:  # one of several files that the format needs
        return ""
    hours = {d: float(device_hours(jobs, d).sum()) for d in DEVICES}
    amounts = ", ".join(f"{amount_text(h)} {d}-hours" for d, h in hours.items() if h)
    return f", as {len(jobs):,} jobs of {amounts}; where the draft gives others, it is wrong"


@dataclass(frozen=True)
class _Sample:
    layout: dict[str, Any]
    columns: dict[str, list[str]]
    notes: tuple[str, ...] = ()


def _sample(path: Path) -> _Sample:
    lines = first_lines(path, SAMPLE)
    start = start_of(path).decode("utf-8-sig", errors="replace").lstrip()
    # JSON is told by its first character; a CSV file may begin with one only inside quotes.
    if start.startswith(("{", "[")):
        return _of_json(path, start, lines)
    if not lines or (kind := looks_like(lines)):
        # What is wrong with the packing is a better message than what its bytes look like.
        next(iter(Blocks(path)), None)  # raises what is wrong with the packing
        raise TraceError(f"this is {kind if lines else 'an empty file'}: no rows of fields", path)
    mark = next((m for m in ("#", ";", "%") if lines[0].lstrip().startswith(m)), "")
    notes = [f"lines that begin with {mark} are comments"] if mark else []
    rows = [x for x in lines if x.strip() and not (mark and x.lstrip().startswith(mark))]
    if not rows:
        raise TraceError("there are comments only", path)
    layout: dict[str, Any] = {"comment": mark} if mark else {}
    separator = _separator(rows)
    if separator != ",":
        layout["separator"] = separator
    fields = [_split(row, separator) for row in rows]
    cells = [field.strip() for row in fields for field in row]
    # Only between semicolons is a comma inside a number one; between
    # commas it would be a new field.
    if separator == ";" and any(re.fullmatch(r"[-+]?\d+,\d+", cell) for cell in cells):
        layout["decimal"] = ","
        fields = [split_line(with_points(row.encode()).decode(), separator) or [] for row in rows]
        notes.append("numbers have a decimal comma")
    # The usual number of fields; rows of another are no rows of the table.
    width = max({len(row) for row in fields}, key=[len(row) for row in fields].count)
    fields = [[f.strip() for f in row] for row in fields if len(row) == width]
    header, body = fields[0], fields[1:]
    # pandas writes its index as a first column without a name.
    named = len(set(header)) == width and not any(map(_is_number, header)) and all(header[1:])
    words = _split(rows[0], separator)
    if len(words) not in (1, width) and not any(map(_is_number, words)):
        notes.append(f"line 1 has {len(words)} fields, most have {width}: do fields have blanks?")
    # A header of numbers is no header; without any number in the file it cannot be told.
    if body and any(_is_number(field) for row in body for field in row) and not named:
        header, body = [f"field_{n}" for n in range(1, width + 1)], fields
        layout["header"] = header
        notes.append("the file does not name its columns: they are numbered, give each its meaning")
    if not body:
        raise TraceError("there is a header and no rows", path)
    return _Sample(
        layout, {name: [row[n] for row in body] for n, name in enumerate(header)}, (*notes,)
    )


def _of_json(path: Path, start: str, lines: Sequence[str]) -> _Sample:
    """JSON: an object a line, or one document with a list of objects."""
    if start.startswith("{") and len(lines) > 1 and json_paths(lines[0]):
        records: Iterator[str] = iter(lines)
        layout: dict[str, Any] = {"format": "json-lines"}
    else:
        key = _key_of_jobs(path)
        # The sample is taken of the parsed document; a document cannot be read in part.
        parsed = read_records(path, key).records[:SAMPLE]
        records = (json.dumps(record) for record in parsed)
        layout = {"format": "json", **({"records": key} if key else {})}
    texts = list(records)
    # A field may be absent from the first records, so some are looked at.
    names = list(dict.fromkeys(name for text in texts[:100] for name in json_paths(text)))
    if not names:
        raise TraceError("the records are no JSON objects", path)
    rows = [fields_of_json(text, names)[0] for text in texts]
    return _Sample(layout, {name: [row[n] for row in rows] for n, name in enumerate(names)})


def _key_of_jobs(path: Path) -> str:
    """Key of the list whose objects have most of what a job has; of equal ones the longest."""
    words = {word for role in ROLES for word in ROLES[role]}

    def likeness(key: str) -> tuple[int, int]:
        records = lists[key]
        names = json_paths(json.dumps(records[0]))
        # Most words of jobs, then most records: pods are more than the nodes they run on.
        return sum(_bare_name(name) in words for name in names), len(records)

    lists = lists_of_records(path)
    return max(lists, key=likeness)


def _separator(rows: Sequence[str]) -> str:
    best, most = ",", (False, 1.0)
    for separator in (",", ";", "\t", "|", WHITESPACE):
        counts = [len(_split(row, separator)) for row in rows[:200]]
        usual = max(set(counts), key=counts.count)
        share = counts.count(usual) / len(counts)
        # Names and cells are in equal numbers; dates have blanks, which separate nothing.
        worth = counts[0] == usual, usual * share * (0.9 if separator == WHITESPACE else 1)
        if usual > 1 and worth > most:
            best, most = separator, worth
    return best


def _split(row: str, separator: str) -> list[str]:
    return row.split() if separator == WHITESPACE else split_line(row, separator) or []


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", text) is not None


def _mostly(texts: Sequence[str], fits: Callable[[str], object]) -> bool:
    return 2 * sum(bool(fits(text)) for text in texts) > len(texts)


def _bare_name(name: str) -> str:
    """Letters and digits of a name; of a field in an object with that of the object, if known.

    >>> _bare_name("GPU_num"), _bare_name("user.name"), _bare_name("resources.cpu")
    ('gpunum', 'username', 'cpu')
    """
    *_, parent, own = ["", *name.split(".")]
    together, alone = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (parent + own, own))
    # A field alone may be ambiguous: `resources.cpu` is one thing, `usage.cpu` another.
    return together if any(together in names for names in ROLES.values()) else alone


def _name_without(name: str, words: frozenset[str]) -> str:
    """The last part of a name without some words.

    >>> _name_without("jobStart_ts", IGNORED_WORDS["started"])
    'start'
    """
    return "".join(part for part in _parts(name) if part not in words)


def _parts(name: str) -> list[str]:
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", name.rpartition(".")[2])
    return [part.lower() for part in parts]


def _ends_with(name: str, words: Sequence[str]) -> bool:
    """Whether the last words of a name are one of these, and none makes it a rate or a time.

    >>> _ends_with("vm_num_cpus", ["numcpus"]), _ends_with("price_per_gpu", ["gpu"])
    (True, False)
    """
    parts = _parts(name)
    # From the second word on: a whole name that is one of them is found elsewhere.
    ends = {"".join(parts[n:]) for n in range(1, len(parts))}
    return bool(ends & {*words}) and not {*parts} & RATES


def _told_length(name: str) -> str:
    """Whether the words of a name say how long a job ran, or how long it was allowed to.

    >>> _told_length("wallclock_runtime_sec"), _told_length("max_minutes"), _told_length("wall")
    ('duration', 'limit', '')
    """
    parts = _parts(name)
    base = "".join(p for p in parts if p not in ASKED | RAN | IGNORED_WORDS["limit"])
    # Beside no such word a unit tells that it is a length of time.
    if base not in BASES and (base or not {*parts} & {*UNITS_OF_TIME}):
        return "duration" if not base and "runtime" in parts and not ASKED & {*parts} else ""
    return "limit" if ASKED & {*parts} else "duration" if RAN & {*parts} else ""


class _Times(NamedTuple):
    """A column read as points in time: its entry in a mapping, and seconds, NaN where empty."""

    column: str
    entry: dict[str, Any]
    seconds: Floats
    note: str = ""


class _Draft:
    def __init__(self, path: Path, sample: _Sample):
        self.path, self.sample = path, sample
        self.notes = list(sample.notes)
        self.disorder = ""  # times that are not in their order
        self.role: dict[str, str] = {}
        self.entry: dict[str, dict[str, Any]] = {}
        self.candidates = {role: self._named_like(role) for role in ROLES}
        self.times: dict[str, _Times] = {}

    def mapping(self) -> tuple[dict[str, Any], list[str]]:
        """The mapping, and what it lacks."""
        # The order matters: times first, for lengths are told apart by them;
        # devices before counts per task.
        jobs: dict[str, Any] = {"file": str(self.path.resolve()), **self.sample.layout}
        self._times()
        self._durations()
        self._waits()
        self._roles()
        self._devices()
        if "deleted" in self.entry and "duration" in self.entry:
            self._end_and_length()
        self._times_between()
        self._other_roles()
        self._say_second()
        if "tasks" in self.entry and any("column" in self.entry.get(d, {}) for d in DEVICES):
            jobs["per"] = "job"
            self._per_task()
        if nothing := self._nothing():
            jobs["missing"] = nothing
            self.notes.append(f"cells that say {', '.join(nothing)} count as empty")
        missing = self._missing()
        columns = {role: _short(entry) for role, entry in self.entry.items()}
        return {"trace": NAME, "jobs": {**jobs, "columns": columns}}, missing

    def _per_task(self) -> None:
        """Devices of which most jobs of several tasks have fewer than tasks are of each task."""
        tasks = _numbers(self.sample.columns[self.role["tasks"]])
        for device in [d for d in ("cpu", "gpu") if "column" in self.entry.get(d, {})]:
            amounts = _numbers(self.sample.columns[self.role[device]])
            several = (tasks > 1) & (amounts > 0)
            # More than half, since a few jobs of large nodes may still ask
            # for less than their nodes.
            if (amounts[several] < tasks[several]).sum() * 2 > several.sum():
                self.entry[device]["per"] = "task"
                self.notes.append(
                    f"{self.role[device]} is of each node: jobs have fewer than nodes"
                )

    def _end_and_length(self) -> None:
        """Without a start the end less the run time is one, if that is not before submission."""
        end, length = self.role["deleted"], self.role["duration"]
        run = self._lengths(length, self.entry["duration"].get("unit", ""))
        if not {"started", "wait"} & {*self.entry} and {"created", "deleted"} <= {*self.times}:
            waited = self.times["deleted"].seconds - run - self.times["created"].seconds
            # A minute before submission is a clock; more rows than one in a hundred
            # would be another meaning.
            if (waited[np.isfinite(waited)] >= -60).mean() >= 0.99:
                self.notes.append(f"no column says when jobs started: {end} less {length} does")
                return
            end, length = length, end
            del self.entry["deleted"]
        else:
            del self.entry["duration"]
        self.notes.append(f"{length} is not used: {end} says the same, without waiting")

    def guess(self, doubts_of: Callable[[Tables], Sequence[str]] | None) -> Guess:
        mapping, missing = self.mapping()
        if missing:
            self.notes += missing
            return Guess(self.path, mapping, (), tuple(self.notes))
        self.notes.append(
            "the file does not say which servers there are: add [servers] with a file of them, or "
            "say so with each command: replay --set nodes=16 --set devices=4 (16 nodes of 4), "
            "compare --set machines=16 --set shape=…"
        )
        readings = [_outcome(mapping, "", "", doubts_of)]
        self.notes += readings[0].doubts
        readings += [
            _outcome(changed, label, line) for changed, label, line in self._alternatives(mapping)
        ]
        return Guess(self.path, mapping, tuple(readings), tuple(self.notes))

    def _named_like(self, role: str) -> list[str]:
        """Columns that the words of a role name and that hold anything, the likeliest first."""
        filled = [name for name, cells in self.sample.columns.items() if any(map(_holds, cells))]
        ignored = IGNORED_WORDS.get(role, frozenset())
        keys: list[Callable[[str], str]] = [_bare_name]
        if ignored:
            # Without the words beside it; where nothing is left, a word that names the role.
            keys += [
                lambda name: _name_without(name, ignored),
                lambda name: "".join(
                    [p for p in _parts(name) if p in ROLES[role]][:1]
                    if not _name_without(name, ignored)
                    else []
                ),
            ]
        named = [
            name for key in keys for word in ROLES[role] for name in filled if key(name) == word
        ]
        named += [name for name in filled if _told_length(name) == role]
        if role in (*DEVICES, "tasks"):  # as in experiment_slots, if nothing is named better
            # By the end of a name only where no name says it as a whole, and with a note.
            ending = [name for name in filled if not named and _ends_with(name, ROLES[role])]
            meant = CALLED.get(role, role)
            self.notes += [f"{name} may be {meant}, by the end of its name" for name in ending]
            named += ending
        return list(dict.fromkeys(named))

    def _roles(self) -> None:
        """The roles that no values decide, by name alone; a column has one role."""
        for role in ROLES:
            # The roles that are first in the vocabulary choose first.
            free = [c for c in self.candidates[role] if c not in self.role.values()]
            if role == "name":  # names tell jobs apart
                others = {c for text in TEXTS[1:] for c in self.candidates[text]}
                ids = [c for c in self.sample.columns if c.lower().endswith("id")]
                # Where a row counts its tasks it is a whole job, and an id of jobs comes once.
                rows = max((len(cells) for cells in self.sample.columns.values()), default=0)
                least = rows / 2 if self.candidates["tasks"] else 0
                free += [c for c in ids if len(set(self.sample.columns[c])) >= least]
                free = [c for c in dict.fromkeys(free) if c not in {*self.role.values(), *others}]
                # The column with most different texts tells jobs apart best.
                free.sort(key=lambda c: -len(set(self.sample.columns[c])))
                # Without a name for it, one whose texts all differ may be it.
                free = free or [c for c in self.sample.columns if self._tells_apart(c)]
            if role in (*DEVICES, "tasks"):
                free = self._asked_for(free)
            if free and role not in (*TIME_ROLES, "duration", "limit", "wait"):
                self.role[role] = free[0]
        self._cores_of_tasks()

    def _cores_of_tasks(self) -> None:
        """Of two columns of tasks, and none of devices, the one that is never less is of cores."""
        counted = [c for c in self.candidates["tasks"] if c not in self.role.values()]
        if "tasks" not in self.role or {"cpu", "gpu"} & {*self.role}:
            return
        for column in self._asked_for(counted):
            nodes, cores = (_numbers(self.sample.columns[c]) for c in (self.role["tasks"], column))
            # In all rows: one row the other way, and the two mean something else.
            if (nodes < cores).all() or (cores < nodes).all():
                more, fewer = (column, self.role["tasks"])[:: 1 if (nodes < cores).all() else -1]
                self.role |= {"cpu": more, "tasks": fewer}
                self.notes.append(f"{more} is always more than {fewer}: read as cores")
                return

    def _tells_apart(self, column: str) -> bool:
        """Whether a column of no role has texts that all differ, or numbers that only grow."""
        cells = [cell for cell in self.sample.columns[column] if _holds(cell)]
        if len({*cells}) < len(self.sample.columns[column]) or any(
            column in listed for listed in self.candidates.values()
        ):
            return False
        if _mostly(cells, _is_number):
            numbers = _numbers(cells)
            # Times since 1970 grow as numbers of jobs do, and are no names.
            since_1970 = np.median(numbers) > 30 * YEAR
            return bool((np.diff(numbers) > 0).all() and not since_1970)
        return self._read_times(column) is None

    def _asked_for(self, columns: Sequence[str]) -> list[str]:
        """Columns of amounts that jobs ask for, not measured ones such as seconds of cores."""
        amounts = []
        for column in columns:
            texts = [text for text in self.sample.columns[column] if _holds(text)]
            numbers = _numbers(texts)
            # A quantity of Kubernetes is a text, such as `500m`; it counts as an amount.
            if not _mostly(texts, re.compile(notation.QUANTITY).fullmatch):
                self.notes.append(f"{column} is no amount, as {texts[0]!r:.40}")
            # Measured amounts hardly ever come twice; those asked for are a few round numbers.
            elif _are_measured(numbers[numbers > 0]):
                self.notes.append(f"{column} looks measured rather than asked for: not used")
            else:
                amounts.append(column)
        return amounts

    def _texts(self, role: str) -> list[str]:
        return [text for text in self.sample.columns[self.role[role]] if _holds(text)]

    def _nothing(self) -> list[str]:
        roles = [role for role in self.entry if role not in TEXTS and role in self.role]
        cells = {text for role in roles for text in self.sample.columns[self.role[role]]}
        # Sorted, so that a draft of the same file is the same.
        return sorted(text for text in cells if text.lower() in NOTHING)

    def _roles_with_values(self, *roles: str) -> Iterator[tuple[str, list[str], dict[str, Any]]]:
        """Roles whose columns hold anything, with their texts and the entry of the mapping."""
        for role in roles:
            if role in self.role and (texts := self._texts(role)):
                yield role, texts, {"column": self.role[role]}

    def _times(self) -> None:
        """Submission, start and end: columns so named whose times are in this order.

        The order of the vocabulary decides; a later column counts where the times of more rows are
        in order with it.
        """
        readings = {role: self._readings_of_times(role) for role in TIME_ROLES}
        # Times that are written out and plain numbers cannot be compared.
        named = max(
            # The kind of which more roles have a column is what the file is about.
            (
                [of_kind for listed in readings.values() if (of_kind := _of_kind(listed, written))]
                for written in (True, False)
            ),
            key=len,
        )
        # Two names of a start and none of a submission: one of the two may be that.
        if not readings["created"] and len(named) == 2 and len(readings["started"]) > 1:
            self._earlier_start(readings, named)
        # Each way to give the three roles to columns, the likeliest columns first.
        choices = [list(choice) for choice in product(*named)] if named else []
        # One column cannot be two times; a job would be submitted when it ends.
        choices = [c for c in choices if len({reading.column for reading in c}) == len(c)]
        if not choices:  # one column for two roles, and no other
            choices = [[listed[0]] for listed in named[:1]]
        # The first choice in which times are nearly always in order wins; ties keep the order of
        # words.
        best = max(choices, key=lambda choice: min(round(_in_order(choice), 2), 0.95), default=[])
        for role, listed in readings.items():
            for reading in listed:
                if any(reading is r for r in best) and reading.column not in self.role.values():
                    self._use(role, reading)
        share = _in_order(best)
        # One row in a hundred may be wrong in a sound log; more means that the columns are misread.
        if share < 0.99:
            self.disorder = (
                f"{', '.join(reading.column for reading in best)} are not in this order in "
                f"{100 * (1 - share):.0f} % of the rows: check what they mean"
            )
            self.notes.append(self.disorder)

    def _earlier_start(self, readings: dict[str, list[_Times]], named: list[list[_Times]]) -> None:
        """Of two columns that may be the start, without one of submission: the earlier is that."""
        for earlier, later in permutations(readings["started"], 2):
            waits = later.seconds - earlier.seconds
            # A tie in all rows means that the two are the same times, which decides nothing.
            if np.nanmin(waits, initial=0.0) >= 0 and (waits > 0).any():
                readings["created"] = [earlier]
                readings["started"].remove(earlier)
                named[:] = [
                    [earlier],
                    *([r for r in readings_of if r is not earlier] for readings_of in named),
                ]
                self.notes.append(
                    f"{earlier.column} may be the start, or the submission, as it is read: "
                    f"{later.column} is never before it"
                )
                return

    def _times_between(self) -> None:
        """Columns of times that no role has, and that fit between submission and end.

        One alone, where no column is named like a start, is the start. Without an end, those that
        are never before the start may be the end; without any, all are named.
        """
        used = {*self.role.values()}
        first = self.times.get("created", self.times.get("started"))
        last, end = self.times.get("started", first), self.times.get("deleted")
        if end is None and last is not None and (length := self.entry.get("duration")):
            run = self._lengths(length["column"], length.get("unit", ""))
            end = last._replace(seconds=last.seconds + run)
        between = []
        for column in self.sample.columns:
            reading = None if column in used else self._read_times(column)
            if reading is None or np.isfinite(reading.seconds).sum() < ENOUGH:
                continue
            written = "time" in reading.entry
            around = [t for t in (first, end) if t is not None]
            ordered = [t for t in (first if end else last, reading, end) if t is not None]
            same = any(_same_times(reading, other) for other in self.times.values())
            # Dates and plain numbers have no common zero, unless the numbers count from 1970.
            comparable = all(("time" in t.entry) == written for t in around)
            # Small numbers that are times of nothing known would be lengths or counts.
            numbered = not around and not written and np.nanmedian(reading.seconds) < YEAR
            if comparable and not same and not numbered and _in_order(ordered) >= 0.99:
                between.append(reading)
        # More than eight are no times of jobs but another kind of table.
        if not 0 < len(between) <= 8:
            return
        names = ", ".join(reading.column for reading in between)
        starts = {"started", "wait", "duration"} & {*self.entry}
        # Of several candidates no one is chosen: a wrong start would move all waits.
        if {"created", "deleted"} <= {*self.times} and not starts and len(between) == 1:
            self._use("started", between[0])
            self.notes.append(f"{names} is read as the start: it lies between submission and end")
            return
        roles = (
            "the start or the end" if first and end else "the end" if first else "the submission"
        )
        self.notes.append(f"times that are not used: {names}; is one {roles}?")

    def _use(self, role: str, reading: _Times) -> None:
        self.role[role], self.entry[role], self.times[role] = reading.column, reading.entry, reading
        self.notes += [reading.note] * bool(reading.note)

    def _say_second(self) -> None:
        """The columns that would have been chosen next, where no other role has them."""
        used = {str(entry.get("column")) for entry in self.entry.values()}
        for role, entry in self.entry.items():
            spare = [c for c in self.candidates.get(role, ()) if c not in used]
            if spare and "column" in entry:
                self.notes.append(f"{role} is {entry['column']}; the second choice is {spare[0]}")

    def _readings_of_times(self, role: str) -> list[_Times]:
        """At most four columns that may have a role, read as points in time."""
        readings = []
        # At most four columns for a role: their products are tried, 64 at most.
        for column in self.candidates[role][:4]:
            cells = self.sample.columns[column]
            texts = [text for text in cells if _holds(text)]
            numbers = _mostly(texts, _is_number)
            # Small values in a column named like a time of waiting are lengths.
            if numbers and _bare_name(column) in LENGTHS and np.nanmedian(_numbers(texts)) < YEAR:
                continue  # how long jobs waited
            if (reading := self._read_times(column)) is None:
                self.notes.append(f"{column} is no time that is known, as {texts[0]!r:.40}")
                continue
            form = reading.entry.get("time", "%z")
            # Hours of a clock without a zone are ambiguous when clocks change;
            # submission alone gets the hint.
            if not form.endswith(("%z", "Z")) and role == "created":
                zone = f'times such as {texts[0]!r:.40} have no zone: add zone = "…" where the '
                reading = reading._replace(note=f"{zone}clocks change")
            readings.append(reading)
        return readings

    def _read_times(self, column: str) -> _Times | None:
        """A column read as points in time; None where it is none."""
        cells = self.sample.columns[column]
        texts = [text for text in cells if _holds(text)]
        if _mostly(texts, _is_number):
            unit, note = self._unit_of_time(column, texts)
            seconds = _numbers(cells) * notation.UNITS[unit or "s"]
            seconds[[not _holds(cell) for cell in cells]] = np.nan
            # Times since 1970 are never 0; relative ones may be.
            if np.nanmedian(seconds) > YEAR:
                seconds[seconds <= 0] = np.nan
            entry = {"column": column, **({"unit": unit} if unit else {})}
            return _Times(column, entry, seconds, note)
        # The first form that fits nine of ten cells; forms are in the order of their likeliness.
        form = next((f for f in TIMES if _matches_format(texts, f)), "")
        if form.startswith(("%d/%m", "%m/%d")):
            form = self._day_or_month(column, texts, form)
        if not texts or not form:
            return None
        times = pl.Series(cells, dtype=pl.String).str.to_datetime(
            form, strict=False, time_unit="us"
        )
        seconds = times.dt.epoch("ms").cast(pl.Float64).fill_null(np.nan).to_numpy() / 1e3
        return _Times(column, {"column": column, "time": form}, seconds)

    def _day_or_month(self, column: str, texts: Sequence[str], form: str) -> str:
        """Of two readings of dates such as 3/4/2024 the one whose dates lie closer together."""
        forms = [form, f"{form[3:5]}/{form[:2]}{form[5:]}"]
        spans = {f: _span(texts, f) for f in forms if _matches_format(texts, f)}
        if len(spans) > 1:
            form = min(spans, key=lambda f: spans[f])
            self.notes.append(f"{column} is read as {form}, by its dates; the other way fits, too")
        return form

    def _unit_of_time(self, column: str, texts: Sequence[str]) -> tuple[str, str]:
        # A unit in the name of a column decides.
        if unit := _named_unit(column, UNITS_OF_TIME):
            return "" if unit == "s" else unit, ""
        numbers = np.array([abs(float(t)) for t in texts if _is_number(t)])
        middle = float(np.median(numbers))
        # A time in ns since 1970 is some 1.7e18, in us 1.7e15, in ms 1.7e12; each bound is less
        # than a tenth of that.
        for unit, least in (("ns", 1e17), ("us", 1e14), ("ms", 1e11)):
            # Times since 1970 are near one another, beside how long ago that is.
            if middle > least and np.ptp(numbers[numbers > 0]) < middle:
                return unit, f"{column} is read as {unit} since 1970, by its size"
        return "", ""

    def _durations(self) -> None:
        """Run time and limit, told apart by their values.

        A run time is the end less the start; a limit is as long or longer. Where the log has no
        start or no end, names decide, and a name that means either is a limit beside a run time.
        """
        columns = list(dict.fromkeys([*self.candidates["duration"], *self.candidates["limit"]]))
        columns = [c for c in columns if c not in self.role.values() and self._units_of(c)]
        # With a start and an end the run time is known: a column of it must agree.
        run, doubt = self._run_times(), False
        choice = None if run is None else self._matching_unit(columns, run)
        if choice is None and run is None:
            named = [c for c in columns if c in self.candidates["duration"]]
            sure = [
                c for c in named if _name_without(c, IGNORED_WORDS["duration"]) not in AMBIGUOUS
            ]
            sure = [c for c in sure if _told_length(c) != "limit"]
            # A job is ended at its limit, so that the run time is never the longer of the two.
            if not sure and len(named) > 1:  # of two lengths the shorter is how long jobs ran
                named.sort(
                    key=lambda c: float(np.nanmedian(self._lengths(c, self._units_of(c)[0])))
                )
            choice = next(((c, self._units_of(c)[0]) for c in (*sure, *named)), None)
            doubt = choice is not None and not sure
        if choice is not None:
            self.role["duration"], unit = choice
            self.entry["duration"] = {"column": choice[0], **({"unit": unit} if unit else {})}
            if run is None:
                run = self._lengths(*choice)
        limits = [c for c in columns if c not in self.role.values()]
        # Any column whose values never fall below the run time may be a
        # limit, if its words allow it.
        limits += [c for c in self.sample.columns if c not in columns and self._never_less(c, run)]
        for column in sorted(limits, key=lambda c: c not in self.candidates["limit"]):
            of_one_meaning = _name_without(column, IGNORED_WORDS["limit"]) not in AMBIGUOUS
            by_name = of_one_meaning and column in self.candidates["limit"]
            # A second column that says how long jobs ran is no limit.
            again = not by_name and run is not None and self._matching_unit([column], run)
            if again or self._is_from_submission(column):
                continue
            unit_of_limit = self._unit_of_limit(column, run)
            # People ask for whole minutes, or for what others ask for too; what was measured
            # (processors x seconds, a time from submission) is neither.
            lengths = self._lengths(column, unit_of_limit or "s")
            lengths = lengths[lengths > 0]
            # Limits are chosen by people: the same few come again.
            mostly_distinct = len(np.unique(lengths)) > 0.5 * lengths.size
            if not by_name and mostly_distinct and (lengths % 60 == 0).mean() < 0.5:
                self.notes.append(f"{column} looks measured rather than asked for: not used")
                continue
            if unit_of_limit is None:
                self.notes.append(f"{column} is neither how long jobs ran nor a limit: not used")
                continue
            self.role["limit"] = column
            self.entry["limit"] = {"column": column}
            if unit_of_limit:
                self.entry["limit"]["unit"] = unit_of_limit
            break
        if doubt and "limit" not in self.role and choice is not None:
            self.notes.append(
                f"{choice[0]} may be the limit that was asked for: no column says how long "
                "jobs ran, so it counts as the run time"
            )

    def _never_less(self, column: str, run: Floats | None) -> bool:
        """Whether a column whose name is of lengths of time is at least as long as jobs ran."""
        parts = {*_parts(column)}
        if run is None or not parts & BASES or parts & RAN or column in self.role.values():
            return False
        if not (units_of := self._units_of(column)):
            return False
        lengths = self._lengths(column, units_of[0])
        sure = np.isfinite(lengths) & np.isfinite(run)
        # One in twenty may exceed its limit, where a site is slow to end jobs.
        return bool(sure.any() and (lengths[sure] >= run[sure]).mean() >= 0.95)

    def _is_from_submission(self, column: str) -> bool:
        """Whether lengths are the time from submission to start or end in nine of ten rows."""
        for role in ("started", "deleted"):
            if not {"created", role} <= set(self.times):
                continue
            span = self.times[role].seconds - self.times["created"].seconds
            for unit in self._units_of(column):
                # Rounded to seconds, or to a hundredth of a long span.
                near = np.abs(self._lengths(column, unit) - span) <= np.maximum(1.0, 0.01 * span)
                if near[np.isfinite(span)].mean() >= 0.9:
                    end = "start" if role == "started" else "end"
                    self.notes.append(f"{column} is the time from submission to {end}: not used")
                    return True
        return False

    def _waits(self) -> None:
        """Choose the column of waits, where no column says when jobs started."""
        for column in self.candidates["wait"]:
            if "started" in self.entry or column in self.role.values():
                return
            if units := self._units_of(column):
                self.role["wait"] = column
                self.entry["wait"] = {"column": column, **({"unit": units[0]} if units[0] else {})}
                return

    def _run_times(self) -> Floats | None:
        if not {"started", "deleted"} <= set(self.times):
            return None
        run = self.times["deleted"].seconds - self.times["started"].seconds
        # One row could agree by chance.
        return run if np.isfinite(run).sum() > 1 else None

    def _units_of(self, column: str) -> list[str]:
        """Units in which a length of time may be written, the likeliest first."""
        texts = [text for text in self.sample.columns[column] if _holds(text)]
        if not _mostly(texts, _is_number):
            return ["clock"] if _mostly(texts, re.compile(notation.CLOCK).fullmatch) else []
        # A unit in its name leaves no choice; else the unit of times on the
        # same file is the likeliest.
        if unit := _named_unit(column, UNITS_OF_TIME):
            return ["" if unit == "s" else unit]
        fine = self.times["created"].entry.get("unit") if "created" in self.times else None
        return [fine] if fine in ("ms", "us", "ns") else ["", "minutes", "hours", "ms"]

    def _lengths(self, column: str, unit: str) -> Floats:
        cells = self.sample.columns[column]
        if unit == "clock":
            # Clock texts such as `1-02:00:00` are parsed by one expression for the whole column.
            seconds = (
                pl.DataFrame({"text": cells}).select(notation.clock(pl.col("text"))).to_series()
            )
            return seconds.fill_null(np.nan).to_numpy()
        return _numbers(cells) * notation.UNITS[unit or "s"]

    def _matching_unit(self, columns: Sequence[str], run: Floats) -> tuple[str, str] | None:
        """The column, and its unit, that is the end less the start in nine of ten rows."""
        for column in columns:
            for unit in self._units_of(column):
                lengths = self._lengths(column, unit)
                known_both = np.isfinite(lengths) & np.isfinite(run)
                # Minutes and hours are rounded, at most by one.
                rounding = notation.UNITS[unit] if unit in ("minutes", "hours") else 1.0
                # An hour of run time written in hours may be off by one.
                near = np.abs(lengths - run) <= np.maximum(rounding, 0.01 * run)
                if known_both.any() and near[known_both].mean() >= 0.9:
                    return column, unit
        return None

    def _unit_of_limit(self, column: str, run: Floats | None) -> str | None:
        """The smallest unit in which four of five jobs stay within their limit; None in none."""
        units = self._units_of(column)
        if run is None:
            return units[0]
        # Limits are seldom exceeded: the smallest unit in which they hold.
        for unit in [u for u in units if u != "ms"] or units:
            lengths = self._lengths(column, unit)
            sure = np.isfinite(lengths) & np.isfinite(run) & (lengths > 0)
            # A twentieth and a minute of tolerance: sites let jobs run a little
            # over before they end them.
            if not sure.any() or (lengths[sure] >= 0.95 * run[sure] - 60).mean() >= 0.8:
                if unit in ("minutes", "hours") and unit != units[0]:
                    self.notes.append(f"{column} is read in {unit}: in seconds jobs outlived it")
                return unit
        return None

    def _devices(self) -> None:
        self._in_lists()
        for role, texts, entry in self._roles_with_values(*DEVICES):
            if role in self.entry:
                continue
            name, plain = self.role[role], _bare_name(self.role[role])
            if not _mostly(texts, _is_number):
                entry["unit"] = "quantity"
            elif role == "mem":
                entry |= self._unit_of_memory(np.array([float(t) for t in texts if _is_number(t)]))
            # Alibaba's logs count thousandths of cards in `gpu_milli`, and
            # hundredths in `plan_gpu`.
            elif plain.endswith("milli"):
                entry["unit"] = "milli"
            elif plain.startswith("plan"):
                entry["unit"] = "percent"
            # An empty cell of a device means that none was asked for, as a rule.
            if len(texts) < len(self.sample.columns[name]):
                entry["empty"] = 0
                self.notes.append(f"empty cells of {name} count as 0")
            self.entry[role] = entry
        # A count of jobs is still worth a draft: one core each, which is said.
        if not any(d in self.entry for d in DEVICES):
            self.entry["cpu"] = {"value": 1}
            a_core = "node of a job" if "tasks" in self.role else "job"
            self.notes.append(f"no column of devices is known: every {a_core} counts as one core")

    def _in_lists(self) -> None:
        """Devices that no column has for itself, out of Slurm's lists (``cpu=4,gres/gpu=2``)."""
        for column, cells in self.sample.columns.items():
            texts = [text for text in cells if _holds(text)]
            if column in self.role.values() or not _mostly(texts, LIST_OF_DEVICES.match):
                continue
            for role, listed in (("cpu", "cpu"), ("mem", "mem"), ("gpu", "gres/gpu")):
                kind = re.compile(
                    rf"(?:^|,){listed}[:=]|(?:^|,)gpu:" if role == "gpu" else rf"(?:^|,){listed}="
                )
                if role not in self.role and any(map(kind.search, texts)):
                    self.role[role] = column
                    self.entry[role] = {"column": column, "listed": listed, "empty": 0}
                    self.notes.append(f"{role} is {listed} in the lists of {column}")

    def _unit_of_memory(self, sizes: Floats) -> dict[str, Any]:
        """The unit in its name, else the one that gives a core some 4 GiB."""
        named = _named_unit(
            self.role["mem"], ("KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB", "bytes")
        )
        cores = np.array([1.0])
        if "cpu" in self.entry and "column" in self.entry["cpu"]:
            cores = _numbers(self.sample.columns[self.entry["cpu"]["column"]])
        positive = sizes[sizes > 0]
        ratio = float(np.median(positive) / np.nanmedian(cores)) if positive.size else 4.0
        # A core has some 4 GiB: the unit that comes nearest, on a scale of ratios.
        unit = named or min(
            ("GiB", "MiB", "KiB", "bytes"),
            key=lambda u: abs(np.log(max(ratio * notation.UNITS.get(u, 1.0), 1e-12) / 4.0)),
        )
        if not named:
            self.notes.append(f"{self.role['mem']} is read as {unit}, by its size")
        return {} if unit == "GiB" else {"unit": unit}

    def _other_roles(self) -> None:
        for role in (
            *("name", "tasks", "user", "status", "models", "type", "hosts", "priority"),
            *("partition", "account", "qos"),
        ):
            if role not in self.role:
                continue
            numbers = [t for t in self._texts(role) if _is_number(t)]
            if role in ("tasks", "priority") and len(numbers) < len(self._texts(role)):
                continue
            # A column of nodes with halves or zeros in most rows counts something else.
            odd = sum(float(t) < 1 or float(t) % 1 != 0 for t in numbers)
            if role == "tasks" and 2 * odd > len(numbers):
                continue
            self.entry[role] = {"column": self.role[role]}
            if role == "tasks" and len(numbers) < len(self.sample.columns[self.role[role]]):
                self.entry[role]["empty"] = 1
        if "name" not in self.entry:
            self.entry["name"] = {"value": "job"}
            self.notes.append("no column of names is known: jobs are told apart by their row")
        used = {entry.get("column") for entry in self.entry.values()}
        if unused := [name for name in self.sample.columns if name not in used]:
            self.notes.append(f"not used: {', '.join(unused[:20])}" + " …" * (len(unused) > 20))

    def _missing(self) -> list[str]:
        problems = []
        if "created" not in self.entry and "started" in self.entry:
            # A start alone makes waits of zero; it is said, since a queue cannot be judged by that.
            self.entry["created"] = self.entry.pop("started")
            self.notes.append("no time of submission is known: jobs are submitted when they start")
        if "created" not in self.entry:
            problems.append("no column says when a job was submitted: add created =")
            between = [c for c in self.sample.columns if _bare_name(c) in BETWEEN]
            self.notes += [
                f"{c} is the time since the job before: add it up to times of submission"
                for c in between
            ]
        if not {"deleted", "duration"} & set(self.entry):
            problems.append(
                "no column says when a job ended or how long it ran: add deleted = or duration ="
            )
        return problems

    def _other_units(self) -> tuple[str, ...]:
        """Units of plain numbers in which jobs do not run too briefly or come too seldom."""
        run, first = self._run_times(), self.times.get("created", self.times.get("started"))
        # Five seconds in the median are no jobs of a cluster: times are likely in minutes or more.
        if run is not None and np.nanmedian(run) < LEAST_RUN:
            return "minutes", "hours", "days"
        # Two days between jobs on average: the unit is likely finer than read.
        if first is None or np.ptp(first.seconds[np.isfinite(first.seconds)]) < MOST_GAP * len(
            first.seconds
        ):
            return ()
        return "ms", "us"

    def _alternatives(self, mapping: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str, str]]:
        if "per" in mapping["jobs"]:
            devices = " and ".join(d for d in DEVICES if d in self.entry)
            yield _changed(mapping, per="task"), f"{devices} of each task", 'per = "task"'
        for role in ("deleted", "duration"):
            cells = self.sample.columns.get(self.role.get(role, ""), ())
            if role in self.entry and len(self._texts(role)) < len(cells):
                label = "jobs without an end last until the last time in the file"
                yield _changed(mapping, open_end="last"), label, 'open_end = "last"'
        units_of = [("mem", "memory", unit) for unit in ("MiB", "GiB")]
        plain = [role for role in TIME_ROLES if role in self.entry]
        # Units that a name or a value gave are not doubted.
        if all(self.entry[role].keys() == {"column"} for role in plain):
            for unit in self._other_units():
                read = {role: {**self.entry[role], "unit": unit} for role in plain}
                columns = {**mapping["jobs"]["columns"], **read}
                change = ", ".join(f"{role} = {toml_value(entry)}" for role, entry in read.items())
                yield _changed(mapping, columns=columns), f"times in {unit}", change
        # A unit that its name gives, or the end less the start, is no guess.
        sure = "started" in self.entry or _named_unit(self.role.get("duration", ""), UNITS_OF_TIME)
        units_of += [("duration", "duration", unit) for unit in ("s", "ms", "minutes") if not sure]
        for role, called, unit in units_of:
            entry = self.entry.get(role, {"unit": "quantity"})
            unit_now = entry.get("unit", "GiB" if role == "mem" else "s")
            if unit_now not in (unit, "quantity", "clock"):
                entry = {**entry, "unit": unit}
                columns = {**mapping["jobs"]["columns"], role: entry}
                changed = _changed(mapping, columns=columns)
                yield changed, f"{called} in {unit}", f"{role} = {toml_value(entry)}"


def _changed(mapping: dict[str, Any], **changed: Any) -> dict[str, Any]:
    return {**mapping, "jobs": {**mapping["jobs"], **changed}}


def _named_unit(name: str, units: Sequence[str]) -> str:
    # The unit is the last word of a name, after an underscore, a blank, a bracket or a capital.
    end = re.search(r"(?:_|\s|\(|\[|-|(?<=[a-z])(?=[A-Z]))([A-Za-z]+)[\])]?$", name)
    if end is None:
        return ""
    unit = next((u for u in units if u.lower() == end[1].lower()), "")
    alike = {"min": "minutes", "mins": "minutes", "h": "hours", "hour": "hours"}
    alike |= dict.fromkeys(("sec", "secs", "seconds"), "s")
    # GB in a heading is taken for GiB, as Slurm and most tools of clusters mean it.
    return alike.get(unit, re.sub(r"^([KMGT])B$", r"\1iB", unit))


def _holds(text: str) -> bool:
    """Whether a cell holds anything."""
    return bool(text) and text.lower() not in NOTHING


def _numbers(cells: Sequence[str]) -> Floats:
    return np.array([float(text) if _is_number(text) else np.nan for text in cells])


def _of_kind(readings: Sequence[_Times], written: bool) -> list[_Times]:
    return [reading for reading in readings if ("time" in reading.entry) == written]


def _same_times(reading: _Times, other: _Times) -> bool:
    """Whether two columns tell the same instants, up to rounding."""
    near = np.abs(reading.seconds - other.seconds) <= 1.0
    # Equal but for one row in a hundred: the second column adds nothing.
    return bool(near[np.isfinite(reading.seconds) & np.isfinite(other.seconds)].mean() > 0.99)


def _in_order(times: Sequence[_Times]) -> float:
    """Share of rows in which no time is before one that should precede it."""
    broken = np.zeros(len(times[0].seconds) if times else 1, dtype=bool)
    for earlier, later in combinations(times, 2):
        broken |= later.seconds < earlier.seconds - 1.0  # seconds may be rounded
    return 1.0 - float(broken.mean())


def _are_measured(amounts: Floats) -> bool:
    """Whether amounts differ as measurements do; see :data:`COUNTS`."""
    least, share, most = COUNTS
    if amounts.size < least or len(np.unique(amounts)) <= share * amounts.size:
        return False
    # Parts of a device are eighths or tenths of it.
    whole = np.isclose(amounts * 8 % 1, 0) | np.isclose(amounts * 10 % 1, 0)
    # A thousand devices and fractions of any size are not asked for by jobs.
    return bool(whole.mean() < 0.5 or amounts.max() > most)


def _span(texts: Sequence[str], form: str) -> float:
    times = pl.Series(texts, dtype=pl.String).str.to_datetime(form, strict=False, time_unit="ms")
    return float(np.ptp(times.drop_nulls().dt.epoch("ms").to_numpy()))


def _matches_format(texts: Sequence[str], form: str) -> bool:
    # The first two hundred cells are enough to know a form.
    series = pl.Series(texts[:200], dtype=pl.String)
    try:
        parsed = series.str.to_datetime(form, strict=False, time_unit="us")
    except pl.exceptions.PolarsError:
        return False
    # One cell in ten may be bad.
    return parsed.null_count() <= len(series) / 10


def _outcome(
    mapping: dict[str, Any],
    what: str,
    change: str,
    doubts_of: Callable[[Tables], Sequence[str]] | None = None,
) -> MappingOutcome:
    reading = MappingOutcome(what, change)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "mapping.toml")
        # Read through a real file, as the user's would be, so that the same messages come.
        file.write_text("\n".join(_toml(mapping)), encoding="utf-8")
        try:
            tables = OwnCsv(file).scan()
        except TraceError as error:
            return replace(reading, problem=str(error).replace(f"{file}: ", ""))
    jobs = tables.jobs
    start, end = period_of(jobs)
    tasks = jobs["tasks"] if "tasks" in jobs.columns else pl.Series([1] * len(jobs))
    devices = [d for d in DEVICES if (jobs[d] > 0).any()]
    hours = {d: float(device_hours(jobs, d).sum()) for d in devices}
    return replace(
        reading,
        jobs=len(jobs),
        rows=tables.stages[0].read,
        left_out=reasons(*(stage.dropped for stage in tables.stages)),
        doubts=tuple(doubts_of(tables)) if doubts_of else (),
        hours=hours,
        # A file of one instant has no mean over time; a second keeps it finite.
        mean_in_use={d: hours[d] * 3600 / max(end - start, 1.0) for d in devices},
        largest_job={d: float((jobs[d] * tasks).max()) for d in devices},  # type: ignore[arg-type]  # numbers
    )


def _short(entry: dict[str, Any]) -> Any:
    if set(entry) == {"column"}:
        return entry["column"]
    # A constant of 1 is what a missing column counts as; it is written plainly.
    return entry["value"] if set(entry) == {"value"} and entry["value"] == 1 else entry


def _toml(mapping: dict[str, Any]) -> list[str]:
    jobs = mapping["jobs"]
    lines = [f"trace = {toml_value(mapping['trace'])}", "", "[jobs]"]
    lines += [f"{key} = {toml_value(value)}" for key, value in jobs.items() if key != "columns"]
    lines += ["", "[jobs.columns]"]
    order = [*ROLES, *(k for k in jobs["columns"] if k not in ROLES)]
    columns = jobs["columns"]
    return lines + [f"{k} = {toml_value(columns[k])}" for k in order if k in columns]

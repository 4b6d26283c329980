"""A site's files as Slurm has and prints them: entries of settings, with where each stands.

A folder has any of these files, under any names but the first; each is known by what it begins
with. What the running controller prints counts before ``slurm.conf``::

    slurm.conf                         # with what it includes
    scontrol show config > config.txt
    scontrol show partition -o > partitions.txt
    scontrol show node -o > nodes.txt
    scontrol show res -o > reservations.txt
    sacctmgr -P show event start=2026-01-01 > events.txt
    sacctmgr -P show qos > qos.txt
    sacctmgr -P show assoc format=Cluster,Account,User,ParentName,… > assoc.txt

What becomes of each setting is data, ``slurm_settings.toml``; nothing is dropped silently.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from gangwise import notation
from gangwise.core.errors import ScenarioError

BEGINS = {
    "PartitionName": "partition",
    "NodeName": "node",
    "ReservationName": "reservation",
    "NodeSet": "nodeset",
    "SwitchName": "switch",
}
"""The setting with which an entry begins, in slurm.conf and as scontrol prints it."""
PAIR = re.compile(r'([\w.\[\]]+)\s*([-*/+]?)=\s*("[^"]*"(?=\s|$)|\S*)')
"""A setting, how it is set (``+=`` goes on with a list), and its value, alone in its quotes."""
NEEDED = "slurm.conf, or what `scontrol show partition -o` and `scontrol show node -o` print"
NAMED_BY = {"partition": "PartitionName", "qos": "Name", "node": "NodeName", "config": ""}
OTHER_FILES = re.compile(
    r"(acct_gather|burst_buffer|cgroup|cli_filter|gres|helpers|job_container|knl|mpi|namespace|oci"
    r"|plugstack|scrun|slurmdbd)\.conf"
)
"""Files next to slurm.conf that do not bear on scheduling."""
SHOWN = 4  # so many places of a setting are named
T = TypeVar("T")


@dataclass
class SettingRow:
    """An entry: its settings, under the names that ``slurm_settings.toml`` has."""

    kind: str
    where: str
    values: dict[str, str] = field(default_factory=dict)
    more: set[str] = field(default_factory=set)  # settings that go on with what stands before
    places: dict[str, str] = field(default_factory=dict)  # of a setting, where not `where`


@cache
def settings() -> dict[str, Any]:
    """``slurm_settings.toml``, by kind of entry: settings modelled, irrelevant, not modelled."""
    table = tomllib.loads(Path(__file__).with_name("slurm_settings.toml").read_text())
    for kind in table.values():
        # Words of the file become lists here, once: it is cached.
        kind |= {name: kind[name].split() for name in ("modelled", "irrelevant")}
        kind["alias"] = {
            former.lower(): names.split() for former, names in kind.get("alias", {}).items()
        }
    return table


def entries_of(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What scontrol prints, an entry a line; without ``-o`` the lines of one are indented.

    >>> list(entries_of(["NodeName=a CPUTot=4", "   State=IDLE", "", "NodeName=b"]))
    [(1, 'NodeName=a CPUTot=4 State=IDLE'), (4, 'NodeName=b')]
    """
    carried, at = "", 0
    for number, line in enumerate(lines, 1):
        # A line that begins at the margin begins an entry; indented lines go on with it.
        if line[:1].strip():
            if carried:
                yield at, carried
            carried, at = line.strip(), number
        elif line.strip():
            carried += " " + line.strip()
    if carried:
        yield at, carried


def table_of(columns: Sequence[str]) -> str:
    """What sacctmgr prints under these columns: entries of a kind; empty for none."""
    by_column = {"TimeStart": "event", "Account": "assoc", "Name": "qos"}
    return next((kind for name, kind in by_column.items() if name in columns), "")


def is_slip(given: str, name: str) -> bool:
    """Whether one was typed for the other: a letter too many, missing or wrong, or two swapped.

    Names that are further apart may mean something else.

    >>> is_slip("PriorityWeigthAge", "PriorityWeightAge"), is_slip("bf_continu", "bf_continue")
    (True, True)
    >>> is_slip("FastSchedule", "SchedulerType")
    False
    """
    a, b = given.lower(), name.lower()
    # What both have at the beginning and at the end is no difference.
    while a and b and a[0] == b[0]:
        a, b = a[1:], b[1:]
    while a and b and a[-1] == b[-1]:
        a, b = a[:-1], b[:-1]
    return max(len(a), len(b)) < 2 or (len(a) == 2 and a == b[::-1])


def continued(text: str) -> Iterator[tuple[int, str]]:
    r"""Lines of a file in the notation of slurm.conf, numbered, without comments.

    One that ends in an odd number of backslashes goes on with the next as that is written, so that
    a list may go on at its beginning.

    >>> list(continued("Nodes=a1,\\\na2 # both\nSize=2"))
    [(2, 'Nodes=a1,a2 '), (3, 'Size=2')]
    """
    carried = ""
    for number, line in enumerate(text.splitlines(), 1):
        # A # that an even number of backslashes precedes begins a comment.
        line = re.sub(r"(?<!\\)((?:\\\\)*)#.*", r"\1", line)
        ends = re.search(r"(\\*)\s*$", line)
        # Of two backslashes the first guards the second, so only an odd number continues the line.
        if ends and len(ends[1]) % 2:
            carried += line[: ends.end(1) - 1]
            continue
        yield number, carried + line
        carried = ""
    if carried:
        yield number, carried


class SlurmReading:
    """The files of a site, entry by entry, and notes on what in them is at fault or left out."""

    def __init__(self, folder: Path):
        self.folder, self.rows, self.notes = folder, list[SettingRow](), list[str]()
        self.left_out: dict[str, list[str]] = {}
        self.asked: dict[str, str] = {}  # changed values → the change
        self.included: set[Path] = set()
        if not folder.is_dir():
            raise ScenarioError(f"{folder} is not a folder; give one with {NEEDED}")
        if (folder / "slurm.conf").exists():
            self._conf(folder / "slurm.conf")
        for file in sorted(folder.iterdir()):
            # Files that slurm.conf includes are read already.
            if file.is_file() and file not in self.included:
                self._printed(file)
        if not any(row.kind in ("partition", "node") for row in self.rows):
            raise ScenarioError(f"{folder} names no partition and no node; add {NEEDED}")

    # -------------------------------------------------------------------------- what is written

    def _text(self, file: Path) -> str:
        try:
            text = file.read_text("utf-8", errors="replace")  # comments may be of another encoding
        except OSError as error:
            raise ScenarioError(f"{file}: {error}") from error
        if "\0" in text:
            raise ScenarioError(f"{file} is no text; give a folder with {NEEDED} alone")
        return text

    def _conf(self, file: Path) -> None:
        """A file in the notation of slurm.conf, with what it includes."""
        if file in self.included:
            raise ScenarioError(f"{file} includes itself")
        self.included.add(file)
        for number, line in continued(self._text(file)):
            line, place = line.strip(), f"{file.relative_to(self.folder)}, line {number}"
            if match := re.fullmatch(r"include\s+(\S+)", line, re.IGNORECASE):
                self._include(match[1], place)
            elif line:
                self.enter(self._kind(line), place, PAIR.findall(line))
                if rest := " ".join(PAIR.sub("", line).split()):
                    self.notes.append(f"{place}: {rest!r:.60} is no setting, and is left out")

    def _include(self, given: str, where: str) -> None:
        """Files of a pattern: where it says, seen from the folder, or under their bare names."""
        rows = (row.values.get("ClusterName", "") for row in self.rows)
        # %c is the name of the cluster, where a line before says it.
        wanted = given.replace("%c", next(filter(None, rows), "%c"))
        parts = Path(wanted).parts
        # From the whole path to the bare name: folders are often copied without their parents.
        tails = ["/".join(parts[i:]) for i in range(wanted.startswith("/"), len(parts))]
        inner = next(filter(None, (sorted(self.folder.glob(tail)) for tail in tails)), [])
        for file in inner:
            self._conf(file)
        if not inner:
            self.notes.append(f"{where}: {wanted} is not in the folder, and is left out")

    def _kind(self, line: str) -> str:
        word = re.split(r"[\s=]", line, maxsplit=1)[0].lower()
        return next((kind for at, kind in BEGINS.items() if word == at.lower()), "config")

    def _printed(self, file: Path) -> None:
        # Any other file is read, or named in the notes; these are known not to bear on scheduling.
        if file.name == "site.toml" or OTHER_FILES.fullmatch(file.name):
            return
        lines = self._text(file).splitlines()
        heading = next((line for line in lines if line.strip() and line[0] != "#"), "")
        columns = heading.split("|")
        # JSON that is neither scontrol's nor sacctmgr's is looked at as text.
        if heading.lstrip().startswith("{") and self._json(file):
            return
        if heading.startswith("Configuration data"):
            for number, line in enumerate(lines, 1):
                name, equals, value = line.partition("=")
                if equals:
                    place = f"{file.name}, line {number}"
                    self.enter("config", place, [(name.strip(), "", value)], True)
        elif self._kind(heading) != "config" and file.suffix == ".conf":
            self._conf(file)
        elif self._kind(heading) != "config":
            for number, line in entries_of(lines):
                # Words of a printed line: values there have no quotes.
                pairs = re.findall(r"(?:^|\s)(\w+)()=(\S*)", line)
                self.enter(self._kind(line), f"{file.name}, line {number}", pairs, True)
        elif len(columns) > 1 and (table := table_of(columns)):
            for number, line in enumerate(lines[1:], 2):
                place, fields = f"{file.name}, line {number}", line.split("|")
                if len(fields) != len(columns):
                    self.notes.append(f"{place}: {len(fields)} fields under {len(columns)} columns")
                else:
                    pairs = [(name, "", field) for name, field in zip(columns, fields)]
                    self.enter(table, place, pairs, True)
        elif heading and not re.match("No (reservations|topology)", heading):
            self.notes.append(f"{file.name} is not what scontrol or sacctmgr prints: left out")

    def _json(self, file: Path) -> bool:
        """Entries of what scontrol or sacctmgr prints with ``--json``, if it is that."""
        try:
            document = json.loads(self._text(file))
        except ValueError as error:
            raise ScenarioError(f"{file}: {error}") from error
        kinds = notation.WORDS["json"]["lists"]
        lists = {key: rows_of for key, rows_of in document.items() if key in kinds}
        for key, entries in lists.items():
            for entry in entries if isinstance(entries, list) else ():
                kind = kinds[key]
                pairs = [(name, "", value) for name, value in notation.json_settings(kind, entry)]
                self.enter(
                    kind, f"{file.name}, {key} {entry.get('name', '')}".rstrip(), pairs, True
                )
        return bool(lists)

    def enter(
        self, kind: str, where: str, pairs: Iterable[tuple[str, str, str]], printed: bool = False
    ) -> SettingRow:
        """Note an entry, and what of it a replay does not do or does not know."""
        table = settings()[kind]
        reasons = table["not_modelled"]
        names = {n.lower(): n for n in (*table["modelled"], *table["irrelevant"], *reasons)}
        row = SettingRow(kind, where)
        for name_given, how, value in pairs:
            # Printed lists are numbered, as SuspendExcNodes[0]; the name is what stands before.
            bare, value = re.sub(r"\[\d+\]$", "", name_given), value.strip('" ')
            value = "" if value in ("(null)", "N/A") else value
            alias = table["alias"].get(bare.lower())
            called = alias or [names.get(bare.lower(), "")]
            if not called[0]:
                # Only what a person typed can be a slip; what Slurm prints is spelled right.
                near = [] if printed else [n for n in names.values() if is_slip(bare, n)]
                hint = f" (did you mean {near[0]}?)" if len(near) == 1 else ""
                self._leave(f"unknown: {bare}={value}{hint}".replace("= ", " "), where)
                continue
            for name in called:
                if alias and name in row.values:
                    continue  # CPUs counts before Procs
                row.values[name] = value
                row.more |= {name} if how == "+" else set()
                reason, *harmless = reasons.get(name, ("", value))
                # Printed values may have a unit behind them: "60 sec" is compared as "60".
                spellings = {value.upper(), value.upper().partition(" ")[0]}
                if not spellings & {h.upper() for h in harmless}:
                    self._leave(
                        f"not modelled: {name}={value} ({reason})".replace("= ", " "), where
                    )
        if row.values:
            self.rows.append(row)
        return row

    def _leave(self, what: str, where: str) -> None:
        self.left_out.setdefault(what, []).append(where)

    def change(self, path: Sequence[str], how: str, given: str) -> list[str]:
        """Change a setting, or one in its list, as :func:`in_own_words` has it; the lines then.

        Of a setting that several files have, the lines are those of the first.
        """
        change, (kind, name, setting, *item) = ".".join(path) + how + given, _whole(path)
        rows = [row for row in self.rows if row.kind == kind]
        rows = [row for row in rows if row.values.get(NAMED_BY[kind], "") == name]
        if not rows:
            raise ScenarioError(f"change {change}: the files have no {kind} {name}".rstrip())
        # All entries that set it are changed, since the last one read counts.
        candidates = [row for row in rows if setting in row.values] or rows[-1:]
        before = candidates[-1].values.get(setting, "")
        parts = dict(part.partition("=")[::2] for part in before.split(",") if part)
        former, value_now = parts.get(item[0], "") if item else before, given.strip('"')
        if how != "=":
            try:
                number, by = float(former), float(given)
            except ValueError:
                raise ScenarioError(f"change {change}: {former!r} is no number; write =") from None
            changed = {"*=": number * by, "+=": number + by}.get(how, number - by)
            value_now = f"{changed:.12g}"
        if item:
            parts[item[0]] = value_now
            value_now = ",".join(f"{n}={value}" if value else n for n, value in parts.items())
        for row in candidates:
            row.values[setting] = value_now
        # What a change asks for must be understood, or the answer would be that of another change.
        self.asked[value_now] = change
        place = candidates[0].where if name or before else "slurm.conf"
        place += f", {NAMED_BY[kind]}={name}" * bool(name)
        return [f"  {place}", *[f"- {setting}={before}"] * bool(before), f"+ {setting}={value_now}"]

    # -------------------------------------------------------------------------- what it comes to

    def lines(self) -> list[str]:
        """What is not modelled, unknown, at fault or contradictory, with where it stands."""
        lines = []
        for setting, places in self.left_out.items():
            rest = f" and {len(places) - SHOWN} more" * (len(places) > SHOWN)
            lines.append(f"{setting}, {'; '.join(places[:SHOWN])}{rest}")
        return sorted(lines) + self.notes

    def value(self, row: SettingRow, name: str, read: Callable[[str], T], default: T) -> T:
        """A setting of an entry; the default where there is none, or where it makes no sense."""
        text = row.values.get(name, "")
        if not text:
            return default
        try:
            return read(text)
        except ValueError:
            place = row.places.get(name, row.where)
            if text in self.asked:
                raise ScenarioError(f"change {self.asked[text]}: {text} makes no sense") from None
            self.notes.append(f"{place}: {name}={text} makes no sense; {default!r} is taken")
            return default

    def config(self) -> SettingRow:
        """All settings of the whole cluster; what is printed counts before slurm.conf."""
        merged = SettingRow("config", "slurm.conf")
        for row in self.rows:
            for name, value in row.values.items() if row.kind == "config" else ():
                before = merged.values.get(name, "")
                printed = not row.where.startswith("slurm.conf")
                # Slurm prints NO_NORMAL_ALL for any flag NO_NORMAL_…: the file says which.
                if before and printed and "NO_NORMAL_ALL" in value.upper():
                    continue
                # `+=` goes on with the list; otherwise the later value counts.
                value = f"{before},{value}" if before and name in row.more else value
                unchanged = before.lower().replace(" ", "") == value.lower().replace(" ", "")
                with suppress(ValueError):  # 7-0 is printed as 7-00:00:00
                    unchanged = unchanged or notation.time_limit(before) == notation.time_limit(
                        value
                    )
                modelled = name in settings()["config"]["modelled"]
                if before and modelled and not unchanged and printed:
                    self.notes.append(f"{row.where}: {name}={value} is taken, not {before}")
                merged.values[name], merged.places[name] = value, row.where
        return merged

    def entries(self, kind: str, name: str) -> dict[str, SettingRow]:
        """Entries by name, lists of nodes written out, upon what the DEFAULT lines before say."""
        by_name: dict[str, SettingRow] = {}
        default: dict[str, str] = {}
        for row in self.rows:
            if row.kind != kind:
                continue
            name_given = row.values.get(name, "")
            # DEFAULT lines hold for all entries below them, one upon another.
            if name_given.upper() == "DEFAULT":
                default = {**default, **row.values}
                continue
            try:
                names = (
                    notation.expand_nodes(name_given) if kind == "node" else name_given.split(",")
                )
            except ValueError as error:
                self.notes.append(f"{row.where}: {error}; left out")
                continue
            for column in names:
                # A second entry of a name changes what it says and keeps the rest.
                before = by_name[column].values if column in by_name else default
                by_name[column] = SettingRow(
                    kind, row.where, {**before, **row.values, name: column}
                )
        return by_name


def _whole(path: Sequence[str]) -> list[str]:
    """Kind of entry, its name, and a setting, perhaps with one in its list."""
    return [*path] if path[0] in NAMED_BY else ["config", "", *path]


def in_own_words(path: Sequence[str]) -> bool:
    """Whether a path is of Slurm's own settings: those of a site file are in small letters.

    >>> in_own_words(["PriorityWeightAge"]), in_own_words(["qos", "long", "priority"])
    (True, False)
    >>> in_own_words(["qos", "long", "GrpTRES", "gres/gpu"])
    True
    """
    kind, _, setting, *_ = [*_whole(path), "", ""]
    table = settings().get(kind if kind in NAMED_BY else "", {})
    return setting in {*table.get("modelled", ()), *table.get("not_modelled", ())}


def switch_labels(
    below: Mapping[str, Sequence[str]], nodes: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The place of the leaf switch of each node among all, and the way to it from the top.

    ``below``: the switches below each; ``nodes``: the nodes on each.

    >>> switch_labels({"top": ["s1"], "s1": []}, {"top": [], "s1": ["n1"]})
    {'n1': '0:top/s1'}
    """
    above = {child: name for name, children in below.items() for child in children}
    place_of = {}
    for i, leaf in enumerate(name for name, children in below.items() if not children):
        # From the leaf up, as long as the switch above is not already on the way.
        path = [leaf]
        while path[0] in above and above[path[0]] not in path:
            path.insert(0, above[path[0]])
        for node in nodes[leaf]:
            place_of[node] = f"{i}:{'/'.join(path)}"
    return place_of

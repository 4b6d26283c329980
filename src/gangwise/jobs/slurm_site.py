"""A site as Slurm prints it: ``slurm.conf``, ``scontrol show``, ``sacctmgr -P show``.

A folder has any of these files, under any names but the first; each is known by what it begins
with. What the running controller prints counts before ``slurm.conf``::

    slurm.conf                         # with what it includes
    scontrol show config > config.txt
    scontrol show partition -o > partitions.txt
    scontrol show node -o > nodes.txt
    scontrol show res -o > reservations.txt
    sacctmgr -P show qos > qos.txt
    sacctmgr -P show assoc format=Cluster,Account,User,ParentName,… > assoc.txt

What becomes of each setting is data, ``slurm_settings.toml``; nothing is dropped silently.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gangwise.core.errors import ScenarioError
from gangwise.jobs.model import Node, Nodes
from gangwise.jobs.slurm_passes import SlurmPasses
from gangwise.traces.formats.slurm_notation import expand_nodes, gib, gpus, tres

SCONTROL = {"PartitionName=": "partition", "NodeName=": "node", "ReservationName=": "reservation"}
"""How entries begin, in slurm.conf as well."""
NEEDED = "slurm.conf, or what `scontrol show partition -o` and `scontrol show node -o` print"
NAMED_BY = {"partition": "PartitionName", "qos": "Name", "node": "NodeName", "config": ""}
FOREVER = ("INFINITE", "UNLIMITED", "NONE", "-1")
REQUEUED = 121.0
"""Seconds before a job that was requeued may start: what its credential lives, and one more."""
NO_AMOUNTS: Any = {}  # of a list that is not given
SHOWN = 4  # so many places of a setting are named
T = TypeVar("T")


@dataclass
class SettingRow:
    """An entry: its settings, under the names that ``slurm_settings.toml`` has."""

    kind: str
    where: str
    values: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)  # of a setting, where not `where`


@cache
def settings() -> dict[str, Any]:
    """``slurm_settings.toml``, by kind of entry: settings modelled, irrelevant, not modelled."""
    found = tomllib.loads(Path(__file__).with_name("slurm_settings.toml").read_text())
    for kind in found.values():
        kind |= {what: kind[what].split() for what in ("modelled", "irrelevant")}
    return found


def seconds(text: str) -> float:
    """Seconds of a time: minutes, ``M:S``, ``H:M:S``, ``D-H``, ``D-H:M``, ``D-H:M:S``; or inf.

    >>> [seconds(text) for text in ("90", "1:30", "2:00:00", "1-12", "UNLIMITED", "30 sec")]
    [5400.0, 90.0, 7200.0, 129600.0, inf, 30.0]
    """
    if text.upper() in FOREVER:
        return np.inf
    if match := re.fullmatch(r"(\d+) sec", text):
        return float(match[1])
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    if len(parts) > len(units):
        raise ValueError(f"{text!r} is not a time")
    return 86400 * float(days or 0) + sum(n * unit for n, unit in zip(parts, units))


def count(text: str) -> int:
    """A count of nodes; 0 where there may be any number."""
    return 0 if text.upper() in FOREVER else int(text)


def amounts(text: str) -> dict[str, float]:
    """Devices of a TRES list, memory in GiB.

    >>> amounts("cpu=8,gres/gpu=2,mem=512G,node=4")
    {'cpu': 8.0, 'gpu': 2.0, 'mem': 512.0, 'nodes': 4.0}
    """
    given = {name.lower().removeprefix("gres/"): amount for name, amount in tres(text).items()}
    names = {"node": "nodes"}
    return {names.get(n, n): gib(x) if n == "mem" else float(x) for n, x in given.items()}


def weights(text: str) -> dict[str, float]:
    """Weights of a unit of each device, those of memory of a GiB.

    >>> weights("CPU=1,Mem=0.5G,GRES/gpu=16")
    {'cpu': 1.0, 'mem': 0.5, 'gpu': 16.0}
    """
    found = {}
    for name, amount in tres(text).items():
        number, unit = amount.rstrip("KMGTP"), amount.lstrip("0123456789.")
        each = gib(f"1{unit}") if name.lower() == "mem" else 1.0
        found[name.lower().removeprefix("gres/")] = float(number) / each
    return found


def _licences(text: str) -> dict[str, float]:
    """How many there are of each: ``ansys:4,matlab=2``.

    >>> _licences("ansys:4,matlab")
    {'license/ansys': 4.0, 'license/matlab': 1.0}
    """
    parts = (re.split("[:=]", part) for part in text.split(",") if part)
    return {f"license/{name}": float(number[0]) if number else 1.0 for name, *number in parts}


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
            if file.is_file() and file not in self.included:
                self._printed(file)
        if not any(row.kind in ("partition", "node") for row in self.rows):
            raise ScenarioError(f"{folder} names no partition and no node; add {NEEDED}")

    # -------------------------------------------------------------------------- what is written

    def _text(self, file: Path) -> str:
        try:
            return file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ScenarioError(f"{file}: {error}") from error

    def _conf(self, file: Path) -> None:
        """A file in the notation of slurm.conf, with what it includes."""
        if file in self.included:
            raise ScenarioError(f"{file} includes itself")
        self.included.add(file)
        held = ""
        for number, line in enumerate(self._text(file).splitlines(), 1):
            line = held + re.sub(r"(?<!\\)#.*", "", line).strip()
            held = line[:-1] + " " if line.endswith("\\") else ""
            where = f"{file.relative_to(self.folder)}, line {number}"
            if held or not line:
                continue
            if match := re.fullmatch(r"include\s+(\S+)", line, re.IGNORECASE):
                inner = self.folder / Path(match[1]).name
                if inner.exists():
                    self._conf(inner)
                else:
                    self.notes.append(f"{where}: {match[1]} is not in the folder, and is left out")
                continue
            kind = self._kind(line)
            self.enter(kind, where, re.findall(r'([\w\[\]]+)\s*\+?=\s*("[^"]*"|\S*)', line))
            if "=" not in line:
                self.notes.append(f"{where}: {line!r} is no setting, and is left out")

    def _kind(self, line: str) -> str:
        low = line.lower()
        return next((kind for at, kind in SCONTROL.items() if low.startswith(at.lower())), "config")

    def _printed(self, file: Path) -> None:
        if file.name == "site.toml":
            return
        lines = self._text(file).splitlines()
        first = next((line for line in lines if line.strip()), "")
        columns = first.split("|")
        table = {"Name": "qos", "Cluster": "assoc"}.get(columns[0]) if "|" in first else None
        if first.startswith("Configuration data"):
            for number, line in enumerate(lines, 1):
                name, equals, value = line.partition("=")
                if equals:
                    where = f"{file.name}, line {number}"
                    self.enter("config", where, [(name.strip(), value)], True)
        elif self._kind(first) != "config":
            for number, line in enumerate(lines, 1):
                pairs = re.findall(r"(?:^|\s)(\w+)=(\S*)", line)
                self.enter(self._kind(line), f"{file.name}, line {number}", pairs, True)
        elif table:
            for number, line in enumerate(lines[1:], 2):
                where, fields = f"{file.name}, line {number}", line.split("|")
                if len(fields) != len(columns):
                    self.notes.append(f"{where}: {len(fields)} fields under {len(columns)} columns")
                else:
                    self.enter(table, where, list(zip(columns, fields)), True)
        elif first and not first.startswith("No reservations"):
            self.notes.append(f"{file.name} is not what scontrol or sacctmgr prints: left out")

    def enter(
        self, kind: str, where: str, pairs: Iterable[tuple[str, str]], printed: bool = False
    ) -> SettingRow:
        """Note an entry, and what of it a replay does not do or does not know."""
        known = settings()[kind]
        reasons = known["not_modelled"]
        names = {n.lower(): n for n in (*known["modelled"], *known["irrelevant"], *reasons)}
        row = SettingRow(kind, where)
        for given, value in pairs:
            bare, value = re.sub(r"\[\d+\]$", "", given), value.strip('" ')
            value = "" if value in ("(null)", "N/A") else value
            name = names.get(bare.lower())
            if name is None:
                near = [] if printed else get_close_matches(bare, names.values(), 1)
                hint = f" (did you mean {near[0]}?)" if near else ""
                self._leave(f"unknown: {bare}={value}{hint}".replace("= ", " "), where)
                continue
            row.values[name] = value
            why, *harmless = reasons.get(name, ("", value))
            if not {value.upper(), value.upper().partition(" ")[0]} & {h.upper() for h in harmless}:
                self._leave(f"not modelled: {name}={value} ({why})".replace("= ", " "), where)
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
        have = [row for row in rows if setting in row.values] or rows[-1:]
        before = have[-1].values.get(setting, "")
        parts = dict(part.partition("=")[::2] for part in before.split(",") if part)
        old, new = parts.get(item[0], "") if item else before, given.strip('"')
        if how != "=":
            try:
                number, by = float(old), float(given)
            except ValueError:
                raise ScenarioError(f"change {change}: {old!r} is no number; write =") from None
            changed = {"*=": number * by, "+=": number + by}.get(how, number - by)
            new = f"{changed:.12g}"
        if item:
            parts[item[0]] = new
            new = ",".join(f"{n}={value}" if value else n for n, value in parts.items())
        for row in have:
            row.values[setting] = new
        self.asked[new] = change
        where = have[0].where if name or before else "slurm.conf"
        where += f", {NAMED_BY[kind]}={name}" * bool(name)
        return [f"  {where}", *[f"- {setting}={before}"] * bool(before), f"+ {setting}={new}"]

    # -------------------------------------------------------------------------- what it comes to

    def lines(self) -> list[str]:
        """What is not modelled, unknown, at fault or contradictory, with where it stands."""
        found = []
        for what, places in self.left_out.items():
            more = f" and {len(places) - SHOWN} more" * (len(places) > SHOWN)
            found.append(f"{what}, {'; '.join(places[:SHOWN])}{more}")
        return sorted(found) + self.notes

    def value(self, row: SettingRow, name: str, read: Callable[[str], T], default: T) -> T:
        """A setting of an entry; the default where there is none, or where it makes no sense."""
        text = row.values.get(name, "")
        if not text:
            return default
        try:
            return read(text)
        except ValueError:
            where = row.places.get(name, row.where)
            if text in self.asked:
                raise ScenarioError(f"change {self.asked[text]}: {text} makes no sense") from None
            self.notes.append(f"{where}: {name}={text} makes no sense; {default!r} is taken")
            return default

    def config(self) -> SettingRow:
        """All settings of the whole cluster; what is printed counts before slurm.conf."""
        merged = SettingRow("config", "slurm.conf")
        for row in self.rows:
            for name, value in row.values.items() if row.kind == "config" else ():
                before = merged.values.get(name, "")
                same = before.lower().replace(" ", "") == value.lower().replace(" ", "")
                modelled = name in settings()["config"]["modelled"]
                if before and modelled and not same and not row.where.startswith("slurm.conf"):
                    self.notes.append(f"{row.where}: {name}={value} is taken, not {before}")
                merged.values[name], merged.places[name] = value, row.where
        return merged

    def entries(self, kind: str, name: str) -> dict[str, SettingRow]:
        """Entries by name, lists of nodes written out, upon what the DEFAULT lines before say."""
        found: dict[str, SettingRow] = {}
        default: dict[str, str] = {}
        for row in self.rows:
            if row.kind != kind:
                continue
            given = row.values.get(name, "")
            if given.upper() == "DEFAULT":
                default = {**default, **row.values}
                continue
            try:
                names = expand_nodes(given) if kind == "node" else given.split(",")
            except ValueError as error:
                self.notes.append(f"{row.where}: {error}; left out")
                continue
            for each in names:
                before = found[each].values if each in found else default
                found[each] = SettingRow(kind, row.where, {**before, **row.values, name: each})
        return found


# -------------------------------------------------------------------------- as a site's rules


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
    known = settings().get(kind if kind in NAMED_BY else "", {})
    return setting in {*known.get("modelled", ()), *known.get("not_modelled", ())}


def read_slurm(
    folder: Path | str, changes: Sequence[tuple[Sequence[str], str, str]] = ()
) -> dict[str, Any]:
    """What :class:`gangwise.jobs.site.Site` is made of, see :meth:`~gangwise.jobs.site.Site.read`.

    Gives ``rules``, its content in the names of a site file; ``nodes``; ``ignored``, device types
    that are not given out; ``scheduler``, who decides as Slurm does; ``notes``; and ``edits``, the
    lines that ``changes`` change, which are paths in Slurm's own words, how, and what.

    Raises ScenarioError where the folder names no partition and no node, or cannot be read.
    """
    r = SlurmReading(Path(folder))
    edits = [line for change in changes for line in r.change(*change)]
    config = r.config()
    nodes = _nodes(r)
    partitions = r.entries("partition", "PartitionName")
    pools = [_pool(r, row, nodes) for row in partitions.values()]
    several = config.values.get("PriorityType", "").endswith("multifactor")
    preemption = _preemption(r, config)
    priority = {"priority": _priority(r, config)} if several else {}
    qos = r.entries("qos", "Name")
    of_qos, caps = list[dict[str, Any]](), list[dict[str, Any]]()
    for name, row in qos.items():
        of_qos.append(_qos(r, row))
        caps += _caps_of_qos(r, row, {"qos": name})
    for row in partitions.values():
        own = row.values.get("QoS", "")
        if own in qos:
            caps += _caps_of_qos(r, qos[own], {"pool": row.values["PartitionName"]})
        elif own:
            r.notes.append(f"{row.where}: QoS={own} is not among the QOS printed: left out")
    accounts = _accounts(r, caps, config.values.get("ClusterName", ""))
    for of, amount in r.value(config, "Licenses", _licences, NO_AMOUNTS).items():
        caps.append({"scope": "all", "of": of, "most": amount})
    memory = "MEMORY" in config.values.get("SelectTypeParameters", "").upper()
    ignored = () if memory else ("mem",)
    given = {*nodes.devices, "nodes", "jobs"} - {*ignored} if nodes else {cap["of"] for cap in caps}
    lost = [c for c in caps if c["of"] not in given and not c["of"].startswith("license/")]
    r.notes += [f"a cap of {cap['of']} is left out: the nodes give out none" for cap in lost]
    caps = [cap for cap in caps if cap not in lost]
    order = "multifactor" if several or len({pool["tier"] for pool in pools}) > 1 else "fcfs"
    rules = {"pool": pools, "qos": of_qos, "cap": caps, "preemption": preemption}
    scheduler = _scheduler(r, config, order)
    return {
        "rules": {**rules, **priority, "account": accounts},
        "nodes": nodes,
        "ignored": ignored,
        "scheduler": scheduler,
        "notes": tuple(r.lines()),
        "edits": tuple(edits),
    }


def _qos(r: SlurmReading, row: SettingRow) -> dict[str, Any]:
    return {
        "name": row.values["Name"],
        "priority": r.value(row, "Priority", float, 0.0),
        "usage_factor": r.value(row, "UsageFactor", float, 1.0),
        "most_time": r.value(row, "MaxWall", seconds, np.inf),
        "preempts": tuple(n for n in row.values.get("Preempt", "").split(",") if n),
        "preempted": r.value(row, "PreemptMode", way, ""),
        "exempt": r.value(row, "PreemptExemptTime", seconds, None),
    }


def _nodes(r: SlurmReading) -> Nodes | None:
    """The nodes in the order in which Slurm takes them: those of small weight first."""
    found = []
    for name, row in r.entries("node", "NodeName").items():
        number = {n: r.value(row, n, float, 0.0) for n in ("CPUTot", "CPUs", "RealMemory")}
        cores = 1.0
        for part in ("Boards", "SocketsPerBoard", "Sockets", "CoresPerSocket", "ThreadsPerCore"):
            if part != "Boards" or "SocketsPerBoard" in row.values:
                cores *= r.value(row, part, float, 1.0)
        kinds = r.value(row, "Gres", gpus, NO_AMOUNTS)
        has = {
            "cpu": number["CPUTot"] or number["CPUs"] or cores,
            "mem": number["RealMemory"] / 1024,
        }
        model = next(iter(kinds), "")
        if len(kinds) > 1:
            r.notes.append(
                f"{row.where}: node {name} has GPUs of several models, played as {model}"
            )
        if kinds:
            has["gpu"] = float(sum(kinds.values()))
        weight = r.value(row, "Weight", int, 1)
        labels = {"model": model, "weight": str(weight)}
        for setting in ("AvailableFeatures", "Feature", "Features"):
            labels["features"] = row.values.get(setting, "") or labels.get("features", "")
        found.append((weight, name, has, labels))
    found.sort(key=lambda node: node[0])
    unlike = len({weight for weight, *_ in found}) > 1
    made = (
        Node(name, has, {k: v for k, v in labels.items() if v and (k != "weight" or unlike)})
        for _, name, has, labels in found
    )
    return Nodes.of(made) if found else None


def _pool(r: SlurmReading, row: SettingRow, nodes: Nodes | None) -> dict[str, Any]:
    name, given = row.values["PartitionName"], row.values.get("Nodes", "")
    every = ",".join(nodes.names) if nodes else ""
    pool: dict[str, Any] = {
        "name": name,
        "nodes": every if given.upper() == "ALL" else given,
        "most_time": r.value(row, "MaxTime", seconds, np.inf),
        "most_nodes": r.value(row, "MaxNodes", count, 0),
        "fewest_nodes": r.value(row, "MinNodes", count, 0),
        "tier": r.value(row, "PriorityTier", int, 1),
        "priority": r.value(row, "PriorityJobFactor", float, 1.0),
        "billing": r.value(row, "TRESBillingWeights", weights, NO_AMOUNTS),
        "preempted": r.value(row, "PreemptMode", way, ""),
    }
    if 0 < pool["most_nodes"] < pool["fewest_nodes"]:
        r.notes.append(
            f"{row.where}: partition {name} has MinNodes={pool['fewest_nodes']} above "
            f"MaxNodes={pool['most_nodes']}: no job may run there"
        )
    return pool


def _priority(r: SlurmReading, row: SettingRow) -> dict[str, Any]:
    flags = row.values.get("PriorityFlags", "").upper().split(",")
    for flag in flags:
        if flag not in ("", "FAIR_TREE", "NO_FAIR_TREE"):
            r.notes.append(f"not modelled: PriorityFlags={flag} (it is left out), {row.where}")
    names = {"age": "Age", "fair_share": "FairShare", "job_size": "JobSize"}
    names |= {"pool": "Partition", "qos": "QOS"}
    return {
        **{name: r.value(row, f"PriorityWeight{n}", float, 0.0) for name, n in names.items()},
        "tres": r.value(row, "PriorityWeightTRES", weights, NO_AMOUNTS),
        "max_age": r.value(row, "PriorityMaxAge", seconds, 604_800.0),
        "half_life": r.value(row, "PriorityDecayHalfLife", seconds, 604_800.0) or np.inf,
        "period": r.value(row, "PriorityCalcPeriod", seconds, 300.0),
        "favor_small": row.values.get("PriorityFavorSmall", "").upper() in ("YES", "TRUE", "1"),
        "fair": "classic" if "NO_FAIR_TREE" in flags else "tree",
    }


def way(text: str) -> str:
    """How those are preempted who are; cluster: as the whole cluster says.

    >>> way("SUSPEND,GANG"), way("cluster")
    ('suspend', '')
    """
    words = [word for word in text.lower().split(",") if word not in ("gang", "cluster")]
    if words and words[0] not in ("off", "requeue", "cancel", "suspend"):
        raise ValueError(f"{text!r} is no way to preempt")
    return words[0] if words else ""


def _preemption(r: SlurmReading, row: SettingRow) -> dict[str, Any]:
    kind = row.values.get("PreemptType", "") or "preempt/none"
    by = {"preempt/qos": "qos", "preempt/partition_prio": "tier"}.get(kind, "")
    if not by:
        if kind != "preempt/none":
            r.notes.append(f"{row.where}: PreemptType={kind} is not known: nobody is preempted")
        return {}
    if "GANG" in row.values.get("PreemptMode", "").upper():
        r.notes.append("jobs of one tier do not take turns (PreemptMode=GANG): only tiers count")
    given = [*row.values.get("PreemptParameters", "").split(",")]
    given += row.values.get("SchedulerParameters", "").replace("preempt_", "").split(",")
    known = dict(part.partition("=")[::2] for part in given)
    for name in {*row.values.get("PreemptParameters", "").split(",")} - {""}:
        if name.partition("=")[0] not in ("youngest_first", "strict_order", "reorder_count"):
            r.notes.append(f"not modelled: PreemptParameters={name}, {row.where}")
    exempt = r.value(row, "PreemptExemptTime", seconds, 0.0)
    return {
        "by": by,
        "how": r.value(row, "PreemptMode", way, "off") or "off",
        "exempt": exempt if exempt < np.inf else 0.0,
        "again": REQUEUED,
        "youngest_first": "youngest_first" in known,
        "strict": "strict_order" in known,
        "reorder": int(known.get("reorder_count", "1") or 1),
    }


def _caps_of_qos(r: SlurmReading, row: SettingRow, of: dict[str, str]) -> list[dict[str, Any]]:
    """Caps of a QOS, on the jobs of it, or of a partition that it is set for."""
    devices = {"GrpTRES": "all", "MaxTRES": "job", "MaxTRESPU": "user", "MaxTRESPA": "account"}
    jobs = {"GrpJobs": "all", "MaxJobsPU": "user", "MaxJobsPA": "account"}
    return _caps(r, row, devices, jobs, of)


def _caps(
    r: SlurmReading,
    row: SettingRow,
    devices: dict[str, str],
    jobs: dict[str, str],
    about: dict[str, Any],
) -> list[dict[str, Any]]:
    """Caps that an entry sets ``about`` some jobs: settings of devices, and of jobs, by scope."""
    found: list[dict[str, Any]] = []
    for name, scope in devices.items():
        for of, amount in r.value(row, name, amounts, NO_AMOUNTS).items():
            found.append({"scope": scope, "of": of, "most": amount, **about})
    for name, scope in jobs.items():
        if (amount := r.value(row, name, float, -1.0)) >= 0:
            found.append({"scope": scope, "of": "jobs", "most": amount, **about})
    return found


def _accounts(r: SlurmReading, caps: list[dict[str, Any]], cluster: str) -> list[dict[str, Any]]:
    """The tree of accounts; what limits them and their users is added to the caps."""
    found: dict[str, dict[str, Any]] = {}
    rows = [row for row in r.rows if row.kind == "assoc"]
    if any(row.values["Cluster"] == cluster for row in rows):
        rows = [row for row in rows if row.values["Cluster"] == cluster]
    if rows and "ParentName" not in rows[0].values:
        r.notes.append(
            f"{rows[0].where}: no ParentName is printed: every account is below the root"
        )
    of_user = [row for row in rows if row.values.get("User")]
    own: dict[str, dict[str, str]] = {}
    for row in rows:
        name, shares = row.values.get("Account", ""), row.values.get("Share", "1")
        if shares == "parent":
            r.notes.append(f"{row.where}: not modelled: Share=parent (1 is taken)")
            row.values["Share"] = "1"
        if row.values.get("User"):
            if name == "root":  # a leaf of the tree like any other
                found[name] = {"name": name, "parent": "", "shares": 1.0, "users": {}}
            continue
        if name == "root" and not row.values.get("ParentName"):
            continue
        parent = row.values.get("ParentName", "").replace("root", "")
        number = r.value(row, "Share", float, 1.0)
        found[name] = {"name": name, "parent": parent, "shares": number, "users": {}}
        own[name] = {n: row.values.get(n, "") for n in ("MaxTRES", "MaxJobs")}
    for row in rows:
        name, user = row.values.get("Account", ""), row.values.get("User", "")
        within = {"account": name} if name in found else {}
        if user:
            if name in found:  # also who has no job: Slurm's rank is one among all
                found[name]["users"][user] = r.value(row, "Share", float, 1.0)
            alone = {**within, "only": (user,), "pool": row.values.get("Partition", "")}
            jobs = {"GrpJobs": "user", "MaxJobs": "user"}
            caps += _caps(r, row, {"GrpTRES": "user"}, jobs, alone)
            if row.values.get("MaxTRES", "") not in ("", own.get(name, {}).get("MaxTRES")):
                of = f"MaxTRES={row.values['MaxTRES']} of user {user} alone"
                r.notes.append(f"{row.where}: not modelled: {of} (that of his account counts)")
            continue
        caps += _caps(r, row, {"GrpTRES": "all"}, {"GrpJobs": "all"}, within)
        at = name  # what it does not say of its users, an account above it may
        for _ in found:
            for setting, value in own.get(found.get(at, {}).get("parent", ""), {}).items():
                row.values[setting] = row.values.get(setting, "") or value
            at = found.get(at, {}).get("parent", "")
        mine = [u for u in of_user if u.values.get("Account") == name]
        others = tuple(u.values["User"] for u in mine if not u.values.get("MaxJobs"))
        caps += _caps(r, row, {"MaxTRES": "job"}, {}, within)
        if others or not mine:  # some user has no limit of his own
            only = {} if len(others) == len(mine) else {"only": others}
            caps += _caps(r, row, {}, {"MaxJobs": "user"}, {**within, **only})
    return list(found.values())


def _scheduler(r: SlurmReading, row: SettingRow, order: str) -> str:
    """Who decides as the main loop and the backfilling of Slurm do."""
    kind = row.values.get("SchedulerType", "sched/backfill")
    parts = (p.partition("=") for p in row.values.get("SchedulerParameters", "").split(",") if p)
    where = row.places.get("SchedulerParameters", row.where)
    asked = r.enter("SchedulerParameters", where, [(name, value) for name, _, value in parts])
    if kind not in ("sched/backfill", "sched/builtin"):
        r.notes.append(f"{row.where}: SchedulerType={kind} is not known: sched/backfill is taken")
    names = {"interval": "bf_interval", "resolution": "bf_resolution", "window": "bf_window"}
    names |= {"tested": "bf_max_job_test", "depth": "default_queue_depth"}
    usual, given = SlurmPasses(), dict[str, Any](order=order)
    for name, setting in names.items():
        unit = 60 if name == "window" else 1  # Slurm says it in minutes
        given[name] = unit * r.value(asked, setting, int, int(getattr(usual, name)) // unit)
    given["tested"] *= kind != "sched/builtin"
    other = [f"{name}={value}" for name, value in given.items() if value != getattr(usual, name)]
    return "slurm" + ":" * bool(other) + ",".join(other)

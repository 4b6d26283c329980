"""Accounting logs of batch systems, whose records are no rows of a table.

Each system has its own words for when a job was submitted, could start, started and ended, and for
what it asked for. A parser here says which; ``NAME.toml`` says how its files are recognised. PBS
Professional, OpenPBS and Torque, LSF, Grid Engine, HTCondor, Moab and Maui, Flux, OAR and Batsim.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from math import isfinite
from typing import Any

import polars as pl

from gangwise import notation
from gangwise.core.errors import TraceError
from gangwise.core.settings import Clock
from gangwise.logs.format import Format, all_files, declared
from gangwise.logs.reading import EARLIER, MALFORMED, PART, RecordError, RowAccount
from gangwise.logs.tables import Reader, Tables, server_table
from gangwise.logs.text import beginning, document, read_text, split_lines

Record = Mapping[str, Any]
TEXTS = ("name", "user", "account", "partition", "status", "application", "hosts")
TIMES = ("created", "started", "deleted")
COLUMNS: dict[str, Any] = {
    "row": pl.Int64,
    "tasks": pl.Int64,
    **dict.fromkeys(("cpu", "mem", "gpu"), pl.Float64),
}
COLUMNS |= dict.fromkeys((*TIMES, "limit", "elapsed", "lost", "begun"), pl.Float64)
COLUMNS |= dict.fromkeys((*TEXTS, "gang"), pl.String)
# Systems write kb for 1024 bytes, and a bare number for bytes.
GIB_OF = {"": 2.0**-30, "b": 2.0**-30, "k": 2.0**-20, "m": 2.0**-10, "g": 1.0, "t": 2.0**10}


@dataclass
class Jobs:
    """Jobs of a log by id, and counts of what was read otherwise than it is written.

    ``events`` are records that are no jobs of their own, ``runs`` those of jobs that ran before.
    """

    account: RowAccount
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: Counter[str] = field(default_factory=Counter)
    servers: int = 0  # processors of the cluster, where the log says so
    read: int = 0
    events: int = 0
    runs: int = 0
    document: Any = None  # of JSON, of which each job is a part

    def add(self, row: int, job: Mapping[str, Any]) -> None:
        """Add the record of a run of a job; a later record of the same run is the one that counts.

        A run that ended before the next began was lost: ``lost`` are its seconds, ``begun`` the
        start of the first. Raises RecordError where times or amounts are none.
        """
        filled: dict[str, Any] = {name: job.get(name) for name in COLUMNS} | {"row": row}
        times = [filled[name] for name in TIMES if filled[name] is not None]
        # Without a submission there is no telling when it came; a start alone would hide its wait.
        if filled["created"] is None:
            raise RecordError("no time of submission", job.get("name"))
        # Only times that are known are compared: a job in line has no start and no end.
        if any(later < earlier for earlier, later in pairwise(times)):
            raise RecordError("submission, start and end are not in this order", job.get("name"))
        amounts = [filled[name] or 0.0 for name in ("cpu", "mem", "gpu")]
        # A text such as `inf` is a number to Python; and a job without any amount would fit
        # everywhere.
        if not all(isfinite(amount) and amount >= 0 for amount in amounts) or not any(amounts):
            raise RecordError("it asks for no devices that are known", job.get("name"))
        if not filled["tasks"] or filled["tasks"] < 1:
            raise RecordError("it has no tasks", job.get("name"))
        filled |= {text: str(job.get(text) or "") for text in TEXTS}
        # An end without a start or a run time is that of a job that was taken out of the line.
        if filled["started"] is None and filled["deleted"] and filled["elapsed"] is None:
            filled["status"] = "cancelled"  # it ended before it started
        filled["groups"] = job.get("groups", ())
        key = f"{filled['name']} {filled['created']}"  # numbers come round again
        if earlier := self.rows.get(key):
            start, end, next_start = earlier["started"], earlier["deleted"], filled["started"]
            ran = start is not None and end is not None
            if ran and next_start is None:  # withdrawn when it was to run again
                # The runs before stay as they were; only the last word on the job is new.
                filled = earlier | {"status": filled["status"]}
            # A run that was over before the next began did its work in vain.
            elif ran and end <= next_start:
                filled["lost"] = (earlier["lost"] or 0.0) + (earlier["elapsed"] or end - start)
                filled["begun"] = earlier["begun"] or start
            else:
                # Of two records of the same run the later one knows more; the account has one job.
                self.account.leave_out(earlier["row"], EARLIER)
                self.runs -= 1
            self.runs += 1
        self.rows[key] = filled


# Amounts and times as these systems write them


def _duration(text: Any) -> float | None:
    return notation.clock_seconds(str(text or ""))


def gib(text: Any) -> float:
    """GiB of ``4gb``, ``512mb`` or bytes; 0 of what is none.

    >>> gib("4gb"), gib("1024mb"), gib("")
    (4.0, 1.0, 0.0)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", str(text or "").strip().lower())
    return float(match[1]) * GIB_OF[match[2]] if match else 0.0


def number(value: Any) -> float | None:
    """A positive number, or None: 0 and −1 stand for what has not happened."""
    # Zero is none as well: these systems write 0 for a time that has not come.
    try:
        parsed = float(value)
    except MALFORMED:
        return None
    return parsed if isfinite(parsed) and parsed > 0 else None


def roles_of(system: str, record: Mapping[Any, Any]) -> dict[str, Any]:
    """Values of a record by role, as ``[roles]`` of the system's TOML file names the fields."""
    roles: dict[str, Any] = {}
    for role, fields in declared(system).mapping["roles"].items():
        convert = _text if role in TEXTS else number
        values = (convert(record.get(field)) for field in fields)
        # The first of the fields that holds anything, since versions of a
        # system name them differently.
        roles[role] = next((value for value in values if value), None)
    return roles


def _text(value: Any) -> str:
    return str(value or "")


NO_DATE = "the record has no date that there is"

# PBS Professional, OpenPBS, Torque

PBS_RECORD = re.compile(r"(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d);([A-Za-z]);([^;]+);(.*)")
PBS_FIELD = re.compile(r'(\S+?)=("[^"]*"|\S*)')


def parse_pbs(text: str, jobs: Jobs) -> None:
    """``E`` and ``R`` records are runs that ended; ``S`` without one still runs.

    ``D`` and ``A`` without a start are jobs that never started. Torque's ``R`` says only when.
    From ``z`` to ``r`` a job is suspended. Records of a whole array (``7[].srv``) are no jobs.
    """
    idle = Counter[str]()  # seconds of suspension, and the instant of one that lasts
    since: dict[str, datetime] = {}
    open_runs: dict[str, tuple[int, dict[str, Any], datetime]] = {}
    stopped: dict[str, tuple[float, float]] = {}  # by name, start of the first run, seconds lost
    for row, line in _lines(text, jobs):
        match = PBS_RECORD.fullmatch(line.strip())
        if not match:
            jobs.account.refuse(row, "the line is no record: date;type;job;fields", line)
            continue
        date, kind, name, text_of_fields = match.groups()
        try:
            at = datetime.strptime(date, "%m/%d/%Y %H:%M:%S")
        except ValueError:
            jobs.account.refuse(row, NO_DATE, date)
            continue
        # Values with blanks stand in quotes.
        fields = {key: value.strip('"') for key, value in PBS_FIELD.findall(text_of_fields)}
        # `r` resumes a job, and `E` ends one that lies suspended.
        if kind in "Er" and name in since:
            idle[name] += round((at - since.pop(name)).total_seconds())
        # OpenPBS writes `R` with the usage of the run that was lost; Torque's
        # has neither start nor end.
        if (kind == "E" and "[]" not in name) or (kind == "R" and "end" in fields):
            open_runs.pop(name, None)
            jobs.facts["suspended"] += idle[name] > 0
            _try(jobs, row, _pbs_job, name, fields, stopped.get(name), idle.pop(name, 0))
        else:
            jobs.events += 1
            if kind == "z":
                since[name] = at
            if kind == "S":
                open_runs[name] = row, fields, at
            elif kind in "DA" and open_runs.pop(name, None) is None:
                jobs.facts["withdrawn"] += 1
            # What Torque's `R` does not say is taken of the `S` before it.
            elif kind == "R" and (run := open_runs.pop(name, None)):
                begun, lost = stopped.get(name, (number(run[1].get("start")) or 0.0, 0.0))
                stopped[name] = begun, lost + (at - run[2]).total_seconds()
    # Jobs that had started and not ended when the log was taken.
    for name, (row, fields, _) in open_runs.items():
        jobs.events -= 1
        _try(jobs, row, _pbs_job, name, fields, stopped.get(name))


def _pbs_job(
    name: str, given: Record, before: tuple[float, float] | None, idle: float = 0.0
) -> dict[str, Any]:
    begun, lost = before or (None, None)
    roles = roles_of("pbs", given)
    # Of a job that still runs this is no length; it is not used then.
    span = (roles["deleted"] or 0.0) - (roles["started"] or 0.0)
    hosts = _pbs_hosts(given.get("exec_vnode") or given.get("exec_host") or "")
    resources = {
        key.removeprefix("Resource_List."): v for key, v in given.items() if "List." in key
    }
    chunks = list(_pbs_chunks(resources.get("select") or resources.get("nodes") or ""))
    tasks = sum(count for count, _ in chunks) or len(hosts) or 1
    # Torque writes ncpus=1 beside nodes=1:ppn=4, and a host once where a chunk has several cores.
    of_chunks = sum(n * c["cpu"] for n, c in chunks)
    # The most of the three, for each of them may leave cores out.
    cores = max(number(resources.get("ncpus")) or 0.0, sum(hosts.values()), of_chunks)
    unlike = Counter[tuple[float, ...]]()
    for count, chunk in chunks:
        unlike[tuple(chunk.values())] += count
    gpus = number(resources.get("ngpus")) or sum(n * chunk["gpu"] for n, chunk in chunks)
    memory = gib(resources.get("mem")) or sum(n * chunk["mem"] for n, chunk in chunks)
    return {
        **roles,
        "name": name,
        "elapsed": max(span - idle, 0.0) if idle and roles["deleted"] else None,
        "hosts": "|".join(hosts),
        "limit": _duration(resources.get("walltime")),
        "tasks": tasks,
        "cpu": cores / tasks,
        "gpu": gpus / tasks,
        "mem": memory / tasks,
        "groups": list(unlike.items()) if len(unlike) > 1 else (),
        "begun": begun,
        "lost": lost,
        "status": _exit_status(given.get("Exit_status")),
    }


def _exit_status(text: Any) -> str:
    return "" if text is None else "completed" if str(text) == "0" else "failed"


def _pbs_hosts(text: str) -> dict[str, float]:
    """Cores by host, of ``n1/0*8+n2/0*8``, ``n1/0-7+n2/3`` or ``(n1:ncpus=8)+(n2:ncpus=8)``.

    >>> _pbs_hosts("n1/0*8+n2/0-3+n2/7"), _pbs_hosts("(n1:ncpus=8:ngpus=2)+(n2:ncpus=4)")
    ({'n1': 8.0, 'n2': 5.0}, {'n1': 8.0, 'n2': 4.0})
    """
    cores_of: Counter[str] = Counter()
    for part in filter(None, re.split(r"[+()]+", text)):
        # The first colon begins the sizes of a vnode, as the slash does the places of a host.
        host, _, places = part.replace(":", "/", 1).partition("/")
        if cores := re.search(r"ncpus=(\d+)", places):
            cores_of[host] += int(cores[1])
        elif "*" in places:
            cores_of[host] += int(places.rpartition("*")[2])
        elif "=" not in places:
            for span in filter(None, places.split(",")):
                low, _, high = span.partition("-")
                cores_of[host] += int(high or low) - int(low) + 1
    return {host: float(cores) for host, cores in cores_of.items()}


def _pbs_chunks(text: str) -> Iterator[tuple[int, dict[str, float]]]:
    """Chunks of ``2:ncpus=8:ngpus=2+1:ncpus=4`` or ``nodes=2:ppn=8``, and how many of each.

    >>> list(_pbs_chunks("2:ncpus=8:ngpus=2:mem=4gb"))
    [(2, {'cpu': 8.0, 'gpu': 2.0, 'mem': 4.0})]
    """
    for part in filter(None, text.split("+")):
        count, *fields = part.split(":")
        # `n17:ppn=4` names a node, and is one chunk.
        if not count.isdecimal():  # the name of a node, or a chunk without a number
            count, fields = "1", part.split(":")
        sizes = dict(field.split("=", 1) for field in fields if "=" in field)
        cores = sizes.get("ncpus") or sizes.get("ppn") or "1"
        gpus = sizes.get("ngpus") or sizes.get("gpus") or "0"
        size = {"cpu": float(cores), "gpu": float(gpus), "mem": gib(sizes.get("mem"))}
        yield int(count), size


# LSF: lsb.acct, JOB_FINISH; bacct -l


def parse_lsf(text: str, jobs: Jobs) -> None:
    """``JOB_FINISH`` of ``lsb.acct(5)``, fields by their place; or what ``bacct -l`` prints.

    Lists of hosts make later places move: the limit stands three before the requirement in effect.
    """
    if "JOB_FINISH" not in text:
        parse_bacct(text, jobs)
        return
    for row, line in _lines(text, jobs):
        try:
            fields = next(csv.reader([line], delimiter=" ", doublequote=True), [])
        except csv.Error as error:
            jobs.account.refuse(row, f"the line is no record of lsb.acct ({error})")
            continue
        if fields[:1] != ["JOB_FINISH"]:
            jobs.events += 1
            continue
        _try(jobs, row, _lsf_job, fields)


def _lsf_job(fields: list[str]) -> dict[str, Any]:
    # Up to the number of hosts asked for (field 23) all places are fixed.
    if len(fields) < 25:
        raise RecordError("the record of JOB_FINISH is cut short", fields[:4])
    job, slots = fields[3], fields[6]
    at = 23 + int(fields[22])  # behind the hosts that it asked for
    hosts = fields[at + 1 : at + 1 + int(fields[at])]
    status, behind = fields[at + 1 + len(hosts)], fields[at + 2 + len(hosts) :]
    cores = number(slots) or len(hosts)
    distinct = list(dict.fromkeys(host.rpartition("*")[2] for host in hosts))
    # Behind the status come some 60 fields, and strings before them may look like a requirement.
    effective = next((i for i, text in enumerate(behind) if i > 60 and "select[" in text), 0)
    gpus = re.search(r"ngpus_physical=(\d+)", behind[effective] if effective else fields[13])
    title = behind[1] if len(behind) > 1 else ""
    element = re.search(r"\[\d+\]$", title)  # of an array, whose elements share a number
    return {
        **roles_of("lsf", dict(enumerate(fields))),
        "name": job + (element[0] if element else ""),
        "tasks": int(cores),
        "cpu": 1.0,
        # LSF counts GPUs of each host, and tasks are slots.
        "gpu": int(gpus[1]) * max(len(distinct), 1) / cores if gpus else 0.0,  # of each host
        "limit": number(behind[effective - 3]) if effective else None,
        "hosts": "|".join(distinct),
        "application": re.sub(r"\[.*\]$", "", title),
        "status": {"64": "completed", "32": "failed"}.get(status, ""),
    }


LSF_EVENT = re.compile(r"(\w{3} \w{3} +\d+ \d\d:\d\d:\d\d)( \d{4})?: +(\w+)(.*)")
LSF_HOSTS = re.compile(r"<(?:(\d+)\*)?([\w.-]+)>")


def parse_bacct(text: str, jobs: Jobs) -> None:
    """Paragraphs of ``bacct -l``, whose lines are broken at a fixed width.

    Where dates have no year, it is one in which they fall on these days of the week.
    """
    row, near = 0, datetime(2024, 1, 1)
    for paragraph in re.split(r"^-{20,}$", text, flags=re.M):
        first_row, row = row + 1, row + paragraph.count("\n")
        # Broken lines go on behind 21 blanks.
        text_of_job = re.sub(r"\n {21}", "", paragraph).strip()
        if not text_of_job.startswith("Job <"):
            continue
        jobs.read += 1
        _try(jobs, first_row, _bacct_job, text_of_job, jobs, near)
        if event := next(LSF_EVENT.finditer(text_of_job), None):
            with suppress(ValueError):  # a date that there is not, for which the job is left out
                near = _date(event, near, jobs)


def _date(found: re.Match[str], near: datetime, jobs: Jobs) -> datetime:
    """A date in its year, else in the year about another in which it is this day of the week."""
    day, form = " ".join(found[1].split()), "%a %b %d %H:%M:%S %Y"
    if found[2]:
        return datetime.strptime(day + found[2], form)
    jobs.facts["yearless"] = 1
    # A day of the week falls on a date about every sixth year: the nearest such year is meant.
    years = sorted(range(near.year - 6, near.year + 7), key=lambda year: abs(year - near.year))
    dates = [
        datetime.strptime(f"{day[4:]} {year}", form[3:])
        for year in years
        if "Feb 29" not in day or year % 4 == 0
    ]
    return next((date for date in dates if date.strftime("%a") == day[:3]), dates[0])


def _bacct_job(text: str, jobs: Jobs, near: datetime) -> dict[str, Any]:
    fields = dict(re.findall(r"(?:^|, )(Job|Job Name|User|Project|Status|Queue) <([^>]*)>", text))
    at: dict[str, float] = {}
    slots: dict[str, int] = {}
    for match in LSF_EVENT.finditer(text):
        near = _date(match, near, jobs)
        event = {"dispatched": "Dispatched", "Starting": ""}.get(match[3], match[3])
        # A job may start several times; the last completion counts, and the first of all else.
        if event == "Completed" or event not in at:
            at[event] = near.replace(tzinfo=UTC).timestamp()
        if event == "Dispatched" and (
            on := re.findall(r"(?:^| to|Host\(s\)|Hosts/Processors) ((?:<[^>]*> ?)+)", match[4])
        ):
            # The last dispatch says where it ran in the end.
            slots = Counter()
            for count, host in LSF_HOSTS.findall(on[-1]):
                slots[host] += int(count or 1)
    request = re.search(r"(\d+) (?:Task\(s\)|Processors Requested)", text)
    limit = re.search(r"#BSUB -W *(?:(\d+):)?(\d+)", text)
    gpus = re.search(r"Requested GPU <num=(\d+)", text)
    tasks = sum(slots.values()) or (int(request[1]) if request else 1)
    return {
        **roles_of("lsf", fields | at),
        "name": fields.get("Job", "").replace(" ", ""),
        "application": re.sub(r"\[.*\]$", "", fields.get("Job Name", "")),
        "status": {"DONE": "completed", "EXIT": "failed"}.get(fields.get("Status", ""), ""),
        "tasks": tasks,
        "cpu": 1.0,
        "gpu": int(gpus[1]) * max(len(slots), 1) / tasks if gpus else 0.0,
        # `-W` is in minutes, or in hours and minutes.
        "limit": 60.0 * (60 * int(limit[1] or 0) + int(limit[2])) if limit else None,
        "hosts": "|".join(slots),
    }


# Moab and Maui: event logs and workload traces

MOAB = re.compile(
    r"(?:[\d:]+ \d+:\d+ +job )?(?P<name>\S+) +(?:(?:JOBEND|JOBCANCEL|JOBREJECT) +)?(?P<nodes>\d+)"
    r" +(?P<tasks>\d+) +(?P<user>\S+) +(?P<group>\S+) +(?P<limit>-?\d+) +(?P<state>\w+)"
    r" +(?P<queue>\[[^\]]*\]) +(?P<created>\d+) +\d+ +(?P<started>\d+) +(?P<completed>\d+)"
    r" +(?P<rest>.*)"
)


def parse_moab(text: str, jobs: Jobs) -> None:
    """Records of ``JOBEND``, and of jobs that were cancelled; or the lines of a workload trace."""
    for row, line in _lines(text, jobs):
        if match := MOAB.fullmatch(line.strip()):
            _try(jobs, row, _moab_job, match)
        else:
            jobs.events += 1


def _moab_job(line: re.Match[str]) -> dict[str, Any]:
    job = roles_of("moab", line.groupdict())
    fields = line["rest"].split()
    # What a job dedicated counts rather than what it asked for: sites may give whole nodes.
    cores = number(fields[19]) if len(fields) > 19 else None  # dedicated processors of a task
    named = len(fields) > 13 and fields[13] not in ("[NONE]", "0")
    return {
        **job,
        "account": fields[13] if named else line["group"],
        "partition": line["queue"].strip("[]").partition(":")[0],
        # Other states of Moab say nothing of how a job ended.
        "status": {"Completed": "completed", "Removed": "cancelled"}.get(line["state"], ""),
        "tasks": int(line["tasks"]) or int(line["nodes"]),
        "cpu": cores or 1.0,
        # Without a time of completion the start is none that can be relied on.
        "started": job["started"] if job["deleted"] else None,
    }


# Grid Engine: accounting(5)


def parse_sge(text: str, jobs: Jobs) -> None:
    """Rows of ``accounting(5)``, 45 or more fields between colons; later ones count."""
    for row, line in _lines(text, jobs):
        if line.startswith("#"):
            jobs.events += 1
            continue
        fields = line.split(":")
        # What was asked for, field 39, may have colons (-l cpu=24:00:00); a number is behind it.
        if asked := re.match(r"(.*?):(\d+\.\d+:[^:]*:.*)", ":".join(fields[39:])):
            fields[39:] = [asked[1], *asked[2].split(":")]
        # A parallel job has a row for each host and one for the whole.
        if len(fields) > 41 and fields[41] not in ("NONE", ""):  # pe_taskid
            jobs.account.leave_out(row, PART)
            continue
        _try(jobs, row, _sge_job, fields, jobs)


def _sge_job(fields: list[str], jobs: Jobs) -> dict[str, Any]:
    if len(fields) < 40:
        raise RecordError("fewer than the 45 fields of accounting(5)", fields[0])
    job = roles_of("sge", dict(enumerate(fields)))
    for role in TIMES:  # Univa writes milliseconds
        # A time in seconds stays below 1e11 for three thousand years.
        job[role] = job[role] / 1000 if (job[role] or 0.0) > 1e11 else job[role]
    category = fields[39]
    limit = re.search(r"h_rt=([\d:.]+)", category)
    gpus = re.search(r"(?:^|[, ])(?:gpu|gpus|ngpus)=(\d+)", category)
    slots = int(number(fields[34]) or 1)
    # Accounting names one host of a parallel job, and not the others.
    jobs.facts["unplaced"] += slots > 1
    return {
        **job,
        "name": fields[5] if fields[35] in ("0", "") else f"{fields[5]}.{fields[35]}",
        "account": fields[31] if fields[31] not in ("NONE", "") else fields[2],
        "limit": _duration(limit[1]) if limit else None,
        "tasks": slots,
        "cpu": 1.0,
        "gpu": int(gpus[1]) if gpus else 0,
        # Field 11 is a failure of the system, field 12 the exit status of the job.
        "status": "failed" if fields[11] not in ("0", "") else _exit_status(fields[12]),
    }


# JSON: HTCondor, Flux, OAR, Batsim


CONDOR_EVENT = re.compile(
    r"^(\d{3}) \((\d+)\.(\d+)\.\d+\) (?:(\d{4})-)?(\d\d)[-/](\d\d) (\d\d:\d\d:\d\d)", re.M
)


def parse_condor_log(text: str, jobs: Jobs) -> None:
    """The events of a user's log: 000 submitted, 001 executing, 005 terminated, 009 aborted.

    After 004 (evicted), 007 (shadow exception), 012 (held), 022 (disconnected) or 024 a job waits
    to run again. Old logs have no year: it is taken to be one, and grows when months go back.
    """
    rows: dict[str, dict[str, Any]] = {}
    year, month_before = 2024, 1
    # An event ends with three dots on a line of their own.
    for row, event in enumerate(re.split(r"^\.\.\.\s*$", text, flags=re.M), 1):
        if not (match := CONDOR_EVENT.search(event)):
            continue
        jobs.read, jobs.events = jobs.read + 1, jobs.events + 1
        kind, name, month = match[1], f"{int(match[2])}.{int(match[3])}", int(match[5])
        if not match[4]:
            jobs.facts["yearless"] = 1
        # Events are in order of time, so that a smaller month is of the next year.
        year += month < month_before and not match[4]
        month_before = month
        text_of_date = f"{match[4] or year}-{match[5]}-{match[6]}T{match[7]}"
        try:
            date = datetime.fromisoformat(f"{text_of_date}+00:00")
        except ValueError:
            jobs.events -= 1
            jobs.account.refuse(row, NO_DATE, text_of_date)
            continue
        job = rows.setdefault(name, {"name": name, "tasks": 1, "row": row})
        for unit, role, size in (
            ("Cpus", "cpu", 1.0),
            ("GPUs", "gpu", 1.0),
            (r"Memory \(MB\)", "mem", 1024.0),
        ):
            # Condor prints Usage, Request and Allocated; usage may be missing,
            # and the request is taken.
            if amount := re.search(rf"^\s*{unit}\s*:(?: +[\d.]+)? +(\d+) +\d+(?: |$)", event, re.M):
                job[role] = int(amount[1]) / size
        at = date.timestamp()
        if kind == "000":
            job["created"] = at
        elif kind == "001":
            job |= {"started": at, "begun": job.get("begun", at)}
        # An eviction ends a run whose work is lost, unless the job wrote
        # checkpoints, which is not told.
        elif kind in ("004", "007", "012", "022", "024") and job.get("started"):
            job |= {"lost": job.get("lost", 0.0) + at - job.pop("started")}
        elif kind == "010":
            job["since"] = at
        elif kind == "011" and "since" in job:
            job["idle"] = job.get("idle", 0.0) + at - job.pop("since")
        elif kind in ("005", "009"):
            job |= {"deleted": at, "status": "completed" if kind == "005" else "cancelled"}
    for job in rows.values():
        # A job is no event of its own; its events were counted as they came.
        jobs.events -= 1
        jobs.facts["unsaid"] += "cpu" not in job
        job.setdefault("cpu", 1.0)
        if job.get("idle") and job.get("deleted") and job.get("started"):
            job["elapsed"] = job["deleted"] - job["started"] - job["idle"]
            jobs.facts["suspended"] += 1
        _try(jobs, job["row"], lambda job: job, job)


def _condor_job(ad: Record, jobs: Jobs) -> dict[str, Any]:
    job = roles_of("htcondor", ad)
    ran, ended = job["elapsed"], job["deleted"] and job["started"]
    in_last = job["deleted"] - job["started"] if ended else None
    idle = number(ad.get("CumulativeSuspensionTime")) or 0.0
    if ran and idle:
        ran = max(ran - idle, 0.0)
        jobs.facts["suspended"] += 1
    jobs.facts["unsaid"] += job["cpu"] is None
    # A second of tolerance, for the two clocks are rounded apart.
    # Several runs after evictions are longer together than the last of them.
    lost = ran - in_last if in_last and ran and ran > in_last + 1 else None
    return {
        **job,
        "name": f"{ad['ClusterId']}.{ad.get('ProcId', 0)}",
        "status": {"4": "completed", "3": "cancelled"}.get(str(ad.get("JobStatus")), ""),
        "tasks": int(job["tasks"] or 1),
        "cpu": job["cpu"] or 1.0,
        "hosts": str(ad.get("LastRemoteHost") or "").rpartition("@")[2],
        "mem": (job["mem"] or 0.0) / 1024,
        "elapsed": ran if in_last and ran and ran < in_last else None,
        "lost": lost,
    }


def _flux_job(record: Record, jobs: Jobs) -> dict[str, Any]:
    """``duration`` is the limit, ``runtime`` how long the job ran."""
    job = roles_of("flux", record)
    # A job that still runs has no end, whatever its fields hold.
    over = record.get("state") == "INACTIVE" or number(record.get("t_inactive")) is not None
    if over and job["started"] is not None:
        ran = number(record.get("runtime"))
        ended = number(record.get("t_cleanup")) or job["deleted"]
        job["deleted"] = job["started"] + ran if ran is not None else ended
    # Flux places tasks on nodes; its cores are of the whole job.
    nodes = int(number(record.get("nnodes")) or 1)
    cores = number(record.get("ncores")) or number(record.get("ntasks")) or 1.0
    return {
        **job,
        "name": str(record.get("id", "")),
        "status": (job["status"] or "").lower(),
        "deleted": job["deleted"] if over else None,
        "tasks": nodes,
        "cpu": cores / nodes,
        "gpu": (number(record.get("ngpus")) or 0.0) / nodes,
        "hosts": "|".join(notation.expand_nodes(str(record.get("nodelist") or ""))),
    }


def _snake(name: str) -> str:
    """A name with underscores.

    >>> _snake("submissionTime"), _snake("Job_Id")
    ('submission_time', 'job_id')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _oar_job(record: Record, jobs: Jobs) -> dict[str, Any]:
    job = {_snake(key): value for key, value in record.items()}
    used = job.get("assigned_resources") or job.get("resources") or []
    count = len(used) if isinstance(used, list) else 0
    count = count or int(number(job.get("resource_count")) or 0)
    text = str(job.get("wanted_resources") or "")
    # The walltime is the last number of what was wanted, in seconds or as a clock.
    wanted = re.search(r"(\d+(?::\d+){0,2})[\\\"\s]*$", text)
    wanted = wanted or re.search(r"W=(\d+:\d+:\d+)", str(job.get("message") or ""))
    hosts = re.search(r"(?:network_address|host|nodes)=(\d+)", text)
    gpus = re.search(r"gpu(?:num|_?device)?=(\d+)", text)
    limit = _duration(job.get("walltime")) or (_duration(wanted[1]) if wanted else None)
    addresses = job.get("assigned_network_address") or []
    roles = roles_of("oar", job)
    status = (roles["status"] or "").lower()
    return {
        **roles,
        "tasks": count,
        "cpu": 1.0,
        # GPUs are wanted of each host, and resources of OAR are cores.
        "gpu": int(gpus[1]) * int(hosts[1] if hosts else 1) / count if gpus and count else 0.0,
        "limit": limit,
        "status": {"terminated": "completed", "error": "failed"}.get(status, status),
        "hosts": "|".join(map(str, addresses)) if isinstance(addresses, list) else "",
    }


def _batsim_job(job: Record, jobs: Jobs) -> dict[str, Any]:
    """A job runs for the delay of its profile, and not beyond walltime.

    Profiles that compute or communicate take as long as the simulated platform makes them: such
    jobs have no run time, and are left out.
    """
    workload = jobs.document
    if not isinstance(workload, dict) or not isinstance(workload.get("profiles"), dict):
        raise RecordError("a workload of Batsim has jobs and profiles")
    jobs.servers = int(number(workload.get("nb_res")) or 0)
    submitted = float(job["subtime"])
    delay = _batsim_delay(str(job.get("profile")), workload["profiles"])
    if delay is None:
        raise RecordError("its profile has no delay: it takes as long as a platform makes it", job)
    roles = roles_of("batsim", job)
    # Batsim kills a job at its walltime.
    ran = min(float(delay), roles["limit"] or float(delay))
    jobs.facts["walltime"] += ran < delay
    return {
        **roles,
        "name": str(job.get("id")),
        "tasks": int(roles["tasks"] or 0),
        "cpu": 1.0,
        "created": submitted,
        "deleted": submitted + ran,
        "elapsed": ran,
        "status": "completed" if ran == delay else "failed",
    }


def _batsim_delay(name: str, profiles: Record, within: tuple[str, ...] = ()) -> float | None:
    """Seconds of a profile that is a delay, or a sequence of such; None for any other.

    >>> _batsim_delay("b", {"a": {"delay": 5}, "b": {"seq": ["a", "a"], "repeat": 3}})
    30.0
    """
    profile = profiles.get(name)
    # A profile that holds itself would never end.
    if not isinstance(profile, dict) or name in within:
        return None
    if isinstance(parts := profile.get("seq"), list):
        seconds = [_batsim_delay(str(part), profiles, (*within, name)) for part in parts]
        delays = [delay for delay in seconds if delay is not None]
        return sum(delays) * float(profile.get("repeat", 1)) if None not in seconds else None
    delay = profile.get("delay")
    return float(delay) if isinstance(delay, int | float) and delay >= 0 else None


def _objects(found: Any, *keys: str) -> list[Record]:
    """The objects with one of some keys: of a list, of a list under a name, or by a name each."""
    # Breadth first: jobs stand near the top, and each may hold objects of its own.
    inside = [found]
    while inside:
        level = inside.pop(0)
        items = list(level.values()) if isinstance(level, dict) else level
        if not isinstance(items, list):
            continue
        objects: list[Record] = [
            item for item in items if isinstance(item, dict) and any(k in item for k in keys)
        ]
        if objects:
            return objects
        inside += items
    return []


# The reader


TEXT: dict[str, Callable[[str, Jobs], None]] = {
    "pbs": parse_pbs,
    "lsf": parse_lsf,
    "sge": parse_sge,
    "moab": parse_moab,
    "htcondor": parse_condor_log,
}
"""How the text of a log is parsed."""
JSON: dict[str, tuple[Callable[[Record, Jobs], dict[str, Any]], tuple[str, ...]]] = {
    "htcondor": (_condor_job, ("ClusterId",)),
    "flux": (_flux_job, ("t_submit",)),
    "oar": (_oar_job, ("submissionTime", "submission_time")),
    "batsim": (_batsim_job, ("subtime",)),
}
"""How an object of a JSON log is read, and the fields by one of which it is known as a job."""


def _lines(text: str, jobs: Jobs) -> Iterator[tuple[int, str]]:
    # Not splitlines, which parts a name at a form feed or U+2028 in it.
    for row, line in enumerate(split_lines(text), 1):
        if line.strip():
            jobs.read += 1
            yield row, line


def _try(jobs: Jobs, row: int, read: Callable[..., dict[str, Any]], *given: Any) -> None:
    """Add a job; one that cannot be read is left out, with its reason."""
    try:
        jobs.add(row, read(*given))
    except RecordError as bad:
        jobs.account.refuse(row, str(bad), bad.held)
    except MALFORMED:
        jobs.account.refuse(row, "a field of the record is not what the system writes there")


class Accounting(Reader):
    """Reader of the accounting log of one batch system, in one file or in a file a day."""

    def _read(self) -> Tables:
        form = self.FORMAT
        [table] = form.tables
        path = self.source.path
        files = [f for f in all_files(path) if f == path or table.fits(f)]
        if not files:
            raise TraceError(f"no {table.schema.name} here", path)
        stages, digests = [], {}
        rows: dict[str, dict[str, Any]] = {}
        facts: Counter[str] = Counter()
        servers = 0
        for file in files:
            jobs = Jobs(RowAccount(file, self.source.strict), rows)  # runs may be in two files
            # A log of HTCondor is text, its history JSON.
            if form.name not in TEXT or (
                form.name in JSON and beginning(file).lstrip()[:1] in ("{", "[")
            ):
                jobs.document, digest = document(file, lines=True)
                read, keys = JSON[form.name]
                for row, record in enumerate(_objects(jobs.document, *keys), 1):
                    jobs.read += 1
                    _try(jobs, row, read, record, jobs)
            else:
                text, digest = read_text(file)
                TEXT[form.name](text, jobs)
            stages.append(jobs.account.stage(file.name, jobs.read - jobs.events - jobs.runs))
            digests[file.name] = digest
            facts += jobs.facts
            servers = max(servers, jobs.servers)
        if not rows:
            raise TraceError("no job can be used" + _why(stages), path)
        return self._tables(form, rows.values(), servers, tuple(stages), digests, facts)

    def _tables(
        self,
        form: Format,
        rows: Iterable[Record],
        processors: int,
        stages: tuple[Any, ...],
        digests: Mapping[str, str],
        facts: Counter[str],
    ) -> Tables:
        seen = Counter[str]()
        # The order of files and rows, so that names that come again get the same numbers.
        parts = [part for job in rows for part in _parts(job, seen)]
        jobs = pl.DataFrame(parts, schema=COLUMNS).sort("created", "row", maintain_order=True)
        start = float(jobs["created"].min())  # type: ignore[arg-type]  # numbers
        # The last instant that any job knows is the end of the log.
        end = jobs.select(pl.max_horizontal(pl.col(TIMES).max())).item()
        jobs = jobs.with_columns(
            pl.col("cpu", "mem", "gpu").fill_null(0.0),
            unfinished=pl.col("deleted").is_null() & pl.col("started").is_not_null(),
            models=pl.lit(""),
            # A job that still runs ends with the log, and is marked as unfinished.
        ).with_columns(deleted=pl.when("unfinished").then(end).otherwise(pl.col("deleted")))
        rerun = pl.col("lost").fill_null(0) > 0
        ran = pl.coalesce("elapsed", pl.col("deleted") - pl.col("started")) + pl.col("lost")
        jobs = jobs.with_columns(
            # Work of all runs, of which the last alone was not in vain.
            elapsed=pl.when(rerun).then(ran).otherwise("elapsed"),
            started=pl.when(rerun).then(pl.coalesce("begun", "started")).otherwise("started"),
        ).drop("begun")
        # Tables count seconds from the first submission.
        jobs = jobs.with_columns(pl.col(name) - start for name in TIMES)
        if facts["unplaced"]:  # some hosts are known, and not those that most cores were on
            jobs = jobs.with_columns(hosts=pl.lit(""))
        facts["running"] = int(jobs["unfinished"].sum())
        notes = [
            entry["text"].format(facts[entry["count"]])
            for entry in form.mapping.get("facts", {}).get("notes", ())
            if facts[entry["count"]]
        ]
        pool = server_table([(1, "pool", "", float(processors), 0.0, 0.0)] if processors else ())
        if not processors:
            notes.append("the log does not list the nodes: set nodes, and devices of each")
        # Small times are of a simulator, and no dates.
        clock = Clock(start, "UTC") if start > 1e8 else None
        return Tables(form.name, pool, jobs, stages, digests, tuple(notes), clock=clock)


def _parts(job: Record, seen: Counter[str]) -> Iterator[dict[str, Any]]:
    """Rows of a job: one of each group of unlike tasks, of which ``gang`` says that they are one.

    Memory that the log gives for the whole job is divided by its tasks. Numbers come round again.
    """
    # Two jobs of one number are two, so that the later has a number behind its name.
    again = f" #{seen[job['name']] + 1}" if seen[job["name"]] else ""
    seen[job["name"]] += 1
    row = {name: value for name, value in job.items() if name != "groups"}
    for (cpu, gpu, mem), tasks in job["groups"]:
        # Memory of a chunk, or that of the job where chunks say none.
        asked = {"cpu": cpu, "gpu": gpu, "mem": mem or job["mem"], "tasks": tasks}
        yield row | asked | {"gang": f"{job['name']}{again}"}
    if not job["groups"]:
        yield row


def _why(stages: Iterable[Any]) -> str:
    dropped = [item for stage in stages for item in stage.dropped.items()]
    text = "; ".join(f"{reason} ({count})" for reason, (count, _) in dropped)
    return f": {text}" if text else ""


def __getattr__(name: str) -> type[Accounting]:
    """The reader of one batch system, as ``module:attribute`` of its TOML file asks for it."""
    if name not in {*TEXT, *JSON}:
        raise AttributeError(name)
    form = declared(name)
    doc = f"Reader of {form.title}; see :class:`Accounting`."
    return type(name, (Accounting,), {"FORMAT": form, "__doc__": doc})

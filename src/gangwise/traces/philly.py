"""Microsoft Philly: deep learning jobs on a cluster of servers with 2 and with 8 GPUs, 2017.

Published with "Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads"
(USENIX ATC 2019) at https://github.com/msr-fiddle/philly-traces, whose README describes the
fields. Files have no ending:

========================  ==================================================================
``cluster_job_log``       one JSON list of jobs
``jobid``, ``user``       text
``status``                ``Pass``, ``Killed`` or ``Failed``
``submitted_time``        ``2017-10-07 01:11:39``, no time zone
``attempts``              what was scheduled, in order; may be empty
``start_time``            of an attempt; may be None
``end_time``              of an attempt; None on the last: it was still running
``detail``                servers of an attempt: ``ip`` and the list ``gpus``
``cluster_machine_list``  CSV: ``machineId``, ``number of GPUs``, ``single GPU mem``
========================  ==================================================================

A task is what a job holds on one server in its first attempt, as the publisher's notebook counts
GPUs. The files give neither cores nor memory, of servers or of jobs: both are 0, and not a device
type of the cluster. GPUs have no model names; their memory (``12GB``, ``24GB``) stands for one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gangwise.core.errors import TraceError
from gangwise.traces.formats import Format, TableFile, all_files
from gangwise.traces.json_records import Account, beginning, read_records
from gangwise.traces.philly_log import Jobs
from gangwise.traces.schema import Check, Column, Schema, value
from gangwise.traces.source import Read, Source
from gangwise.traces.text import header_of
from gangwise.traces.trace import Reader, Tables, server_table

if TYPE_CHECKING:
    import polars as pl


NAME = "philly"

MACHINES = Schema(
    f"{NAME} machine list",
    (
        Column("machineId", number=False),
        Column("number of GPUs", whole=True),
        Column("single GPU mem", number=False, empty=True),
    ),
    unique="machineId",
    checks=(
        Check("the machine has no GPUs", ("number of GPUs",), lambda: value("number of GPUs") == 0),
    ),
)
FORMAT = Format(
    NAME,
    "Microsoft Philly 2017",
    "https://github.com/msr-fiddle/philly-traces",
    "see the repository",
    (TableFile("machines", MACHINES, usual="cluster_machine_list", gives="servers"),),
    span="2017-08-07 to 2017-12-22",
    size="6.6 GB, most of it utilisation that is not read",
)


class Philly(Reader):
    r"""Reader of the job log and the machine list.

    Parameters
    ----------
    path : path
        The unpacked folder, or the job log with the machine list beside it.
    capacity : {"listed", "seen"}
        GPUs of a server: as in the machine list, or all that the job log names on it, where these
        are more. The two disagree: https://github.com/msr-fiddle/philly-traces/issues/8.
    strict : bool
        Raise at the first bad record rather than leave it out and report it.

    Raises
    ------
    TraceError
        When there is no job log, or it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "cluster_machine_list").write_text(
    ...     "machineId, number of GPUs, single GPU mem\nm1,2, 12GB\n"
    ... )
    >>> size = Path(folder.name, "cluster_job_log").write_text('''[{"jobid": "a", "user": "u",
    ...     "status": "Pass", "vc": "v", "submitted_time": "2017-10-07 01:00:00", "attempts": [
    ...     {"start_time": "2017-10-07 01:00:30", "end_time": "2017-10-07 01:02:00",
    ...      "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}]}]}]''')
    >>> jobs = Philly(folder.name).scan().jobs
    >>> jobs.select("name", "gpu", "tasks", "created", "started", "deleted").rows()
    [('a', 2.0, 1, 0.0, 30.0, 120.0)]
    >>> folder.cleanup()
    """

    FORMAT = FORMAT

    def __init__(self, path: Path | str, *, capacity: str = "listed", strict: bool = False):
        if capacity not in ("listed", "seen"):
            raise TraceError(f"capacity is {capacity!r}; choose listed or seen")
        super().__init__(path, strict=strict)
        self.capacity = capacity

    @classmethod
    def recognise(cls, path: Path | str) -> bool:
        """Whether a file, or a file of a folder, begins as a job log."""
        return any(is_job_log(file) for file in all_files(Path(path)))

    def _read(self) -> Tables:
        log = read_records(_only(self.source.path, is_job_log, "job log"))
        account, jobs = Account(log.file, self.source.strict), Jobs()
        for row, record in enumerate(log.records, 1):
            jobs.add(row, record, account)
        account.require(len(jobs.rows), "job")
        stages = [account.stage(log.file.name, len(log.records))]
        digests = {log.file.name: log.digest}
        servers = self._machines()
        notes = [*NOTES, *jobs.notes()]
        if servers is None:
            notes.append("there is no machine list here, so servers and their GPUs are not known")
        else:
            stages, digests = [*servers.stages, *stages], {**servers.digests, **digests}
            notes += _disagreement(servers.frame, jobs.seen, self.capacity)
        table = _servers(servers, jobs.seen if self.capacity == "seen" else {})
        return Tables(NAME, table, jobs.table(), tuple(stages), digests, tuple(notes))

    def _machines(self) -> Read | None:
        path = self.source.path
        folder = path if path.is_dir() else path.parent
        if not any(_is_machine_list(file) for file in all_files(folder)):
            return None
        file = _only(folder, _is_machine_list, "machine list")
        return Source(file, FORMAT, strict=self.source.strict).read("machines")


NOTES = (
    "the files give no cores and no memory, of servers or of jobs: both are 0, and the cluster has "
    "GPUs only",
    "GPU models are not published: the memory of a GPU stands for its model, and a job may use any",
    "times have no zone; some that are compared across a change of the clocks are an hour off",
)


def _servers(machines: Read | None, seen: dict[str, set[str]]) -> pl.DataFrame:
    if machines is None:
        return server_table()
    return server_table(
        (row, name, memory or "gpu", 0.0, 0.0, max(gpus, float(len(seen.get(name, ())))))
        for row, name, gpus, memory in machines.frame.select(
            "row", "machineId", "number of GPUs", "single GPU mem"
        ).rows()
    )


def _disagreement(frame: pl.DataFrame, seen: dict[str, set[str]], capacity: str) -> list[str]:
    """What the job log says of servers that the machine list does not."""
    listed = dict(frame.select("machineId", "number of GPUs").rows())
    more = sum(len(gpus) > listed[name] for name, gpus in seen.items() if name in listed)
    absent = sum(name not in listed for name in seen)
    notes = []
    if more:
        taken = "of the machine list (capacity = listed)"
        if capacity == "seen":
            taken = "that the job log names (capacity = seen)"
        notes.append(
            f"the job log names more GPUs on {more} servers than the machine list gives them; "
            f"their GPUs are those {taken}"
        )
    if absent:
        notes.append(f"{absent} servers of the job log are not in the machine list, and left out")
    return notes


def is_job_log(file: Path) -> bool:
    """Whether a file begins as a job log."""
    start = beginning(file)
    return start.startswith("[") and '"jobid"' in start and '"attempts"' in start


def _is_machine_list(file: Path) -> bool:
    return MACHINES.matches(header_of(file))


def _only(path: Path, fits: Callable[[Path], bool], what: str) -> Path:
    found = [file for file in all_files(path) if fits(file)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(file.name for file in found)
        raise TraceError(f"{len(found)} files could be the {NAME} {what}: {names}; keep one", path)
    names = ", ".join(file.name for file in all_files(path)[:12]) or "nothing"
    raise TraceError(
        f"no {NAME} {what} here (published as cluster_job_log and cluster_machine_list, in "
        f"trace-data.tar.gz, which must be unpacked first); found {names}",
        path,
    )

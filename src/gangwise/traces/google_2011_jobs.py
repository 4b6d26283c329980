"""When the jobs of a window of Google ClusterData 2011 arrive and end, out of job events alone.

A job lasts from its first SUBMIT to its last event of kinds 2 to 6 (which must not be followed by
another SUBMIT). A job that is still there at the end of the window ends with the window. Jobs that
were there before the trace begins have no arrival and are left out, unless asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gangwise.core.errors import TraceError
from gangwise.traces.fidelity import Fidelity, Stage, period
from gangwise.traces.google_2011 import FORMAT, JOB_EVENTS, NAME
from gangwise.traces.source import Source
from gangwise.traces.tables import Dropped, Table, read_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["GoogleJobEvents", "Lifetimes"]

AFTER = 2.0**63 - 1024
"""Larger times stand for 2^63 - 1, after the end of the trace."""
OFFSET = 600.0
"""Seconds at which the trace begins; real events are later."""
PART = re.compile(r"part-(\d+)-of-(\d+)\.csv(?:\.gz)?")


@dataclass(frozen=True, eq=False)
class Lifetimes:
    """Jobs of the window, by arrival.

    Attributes
    ----------
    job : ndarray of int64, shape [n]
        Job ID.
    arrival, end : ndarray of float64, shape [n]
        Seconds since the window began; both within the window, ``end`` not before ``arrival``.
    running : ndarray of bool, shape [n]
        Still there at the end of the window, so that the true lifetime is longer.
    """

    job: npt.NDArray[np.int64]
    arrival: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    running: npt.NDArray[np.bool_]


class GoogleJobEvents:
    r"""Reader of the job events of a window that begins with the trace.

    Parameters
    ----------
    path : path
        The folder with the parts, or the one above it that holds ``job_events``, or one part. Parts
        are read from the first on, as far as the window needs them; none may be missing.
    hours : float
        Length of the window. The paper: "a 10-hour period".
    present : {"drop", "start"}
        What becomes of jobs that were there before the trace begins, about half as many as arrive
        in ten hours: left out, since their arrival is not known, or let arrive at the start.
    strict : bool
        Raise at the first bad row rather than leave it out and report it.

    Raises
    ------
    TraceError
        When a part is missing, damaged, cut short or not of this format; names the file and row.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> size = Path(folder.name, "part-00000-of-00500.csv").write_text(
    ...     "0,,1,0,u,3,n,l\n700000000,,2,0,u,1,n,l\n700000000,,2,1,u,1,n,l\n"
    ...     "760000000,,2,4,u,1,n,l\n4300000000,,1,5,u,3,n,l\n")
    >>> found = GoogleJobEvents(folder.name, hours=1).lifetimes()
    >>> found.job.tolist(), found.arrival.tolist(), found.end.tolist()
    ([2], [100.0], [160.0])
    >>> folder.cleanup()
    """

    def __init__(
        self, path: Path | str, *, hours: float = 10.0, present: str = "drop", strict: bool = False
    ):
        if not (np.isfinite(hours) and hours > 0):
            raise TraceError(f"hours is {hours}; the window needs a positive length")
        if present not in ("drop", "start"):
            raise TraceError(f"present is {present!r}; choose drop or start")
        self.path, self.hours, self.present, self.strict = Path(path), hours, present, strict
        self._read: tuple[Lifetimes, Fidelity] | None = None

    def lifetimes(self) -> Lifetimes:
        """Arrivals and ends of the jobs, read once."""
        if self._read is None:
            self._read = self._load()
        return self._read[0]

    def fidelity(self) -> Fidelity:
        """What was read and what was left out."""
        self.lifetimes()
        assert self._read is not None
        return self._read[1]

    def _load(self) -> tuple[Lifetimes, Fidelity]:
        import polars as pl

        end = OFFSET + self.hours * 3600.0
        tables = self._tables(end)
        frame = pl.concat(
            t.frame.select("row", "time", "job", pl.col("event").cast(pl.Int64), "missing_info")
            .with_columns(part=pl.lit(n)) for n, t in enumerate(tables)
        )  # fmt: skip
        notes = _out_of_order(frame, tables)
        filled = frame.filter(pl.col("missing_info") != "").height
        if filled:
            notes.append(f"{filled} rows were filled in by Google (missing_info); they are used")
        jobs = _jobs(frame, end * 1e6)
        first = pl.col("submitted")
        why = [
            ("no SUBMIT in the files, so its arrival is not known", first.is_null()),
            ("submitted after the window", first > end * 1e6),
        ]
        if self.present == "drop":
            why.insert(1, ("there before the trace begins, so its arrival is not known",
                           first < OFFSET * 1e6))  # fmt: skip
        jobs = jobs.with_columns(
            reason=pl.coalesce(
                *(pl.when(broken).then(pl.lit(text)) for text, broken in why),
                pl.lit(None, pl.String),
            )
        )
        kept = jobs.filter(pl.col("reason").is_null())
        dropped = {}
        for (reason,), group in jobs.filter(pl.col("reason").is_not_null()).group_by(
            "reason", maintain_order=True
        ):
            part, row = group.select("part", "row").row(0)
            dropped[f"{reason}; the row is of {tables[part].file.name}"] = (len(group), int(row))
        if kept.is_empty():
            raise TraceError(f"no job can be used: {'; '.join(dropped)}", self.path)
        ended = kept["ended"].fill_null(np.inf).to_numpy()
        found = Lifetimes(
            kept["job"].cast(pl.Int64).to_numpy(),
            np.maximum(kept["submitted"].to_numpy() / 1e6 - OFFSET, 0.0),
            np.minimum(ended / 1e6, end) - OFFSET,
            ended > end * 1e6,
        )
        notes.append(
            f"{int(found.running.sum())} jobs are still there at the end of the window, after "
            f"{period(self.hours * 3600)}; they end with it"
        )
        stages = tuple(
            Stage(t.file.name, t.read, len(t.frame), dict(t.dropped)) for t in tables
        )
        return found, Fidelity(
            NAME, (*stages, Stage("jobs", len(jobs), len(kept), dropped)), OFFSET, end, 0,
            len(kept), {}, {}, tuple(notes), {t.file.name: t.digest for t in tables},
        )  # fmt: skip

    def _tables(self, end: float) -> list[Table]:
        """Parts from the first on, until one reaches the end of the window."""
        tables: list[Table] = []
        latest = 0.0
        for number, part in enumerate(_parts(self.path)):
            found = PART.fullmatch(part.name)
            if found is not None and int(found[1]) != number:
                raise TraceError(
                    f"part {number:05d} is missing, before {part.name}: jobs submitted in it would "
                    "be absent, and others would never end; download it, or choose a window that "
                    f"ends before it (hours up to {_hours(latest)})", part.parent,
                )  # fmt: skip
            tables.append(self._table(part))
            times = tables[-1].frame["time"].to_numpy()
            latest = max(latest, float(times[times < AFTER].max(initial=0.0)) / 1e6)
            if latest >= end:
                return tables
            if any(why.startswith("CUT SHORT") for why in tables[-1].dropped):
                raise TraceError(
                    f"the file is cut short, at {latest:.0f} s of a window that ends at "
                    f"{end:.0f} s; download it again, or choose hours up to {_hours(latest)}", part,
                )  # fmt: skip
        raise TraceError(
            f"the parts here end at {latest:.0f} s; a window of {self.hours:g} h ends at "
            f"{end:.0f} s: download the parts that follow, or choose hours up to {_hours(latest)}",
            self.path,
        )


    def _table(self, part: Path) -> Table:
        """A part, as published or converted."""
        if part.exists():
            return read_table(part, JOB_EVENTS, strict=self.strict)
        read = Source(part, FORMAT, strict=self.strict).read("job_events")
        stage = read.stages[0]
        dropped = {why: Dropped(*lost) for why, lost in stage.dropped.items()}
        return Table(part, read.digests[part.name], read.frame, stage.read, dropped)


def _hours(latest: float) -> str:
    """Hours of the trace before a time in seconds, rounded down."""
    return f"{np.floor(max(latest - OFFSET, 0.0) / 36.0) / 100:g}"


def _out_of_order(frame: pl.DataFrame, tables: list[Table]) -> list[str]:
    import polars as pl

    late = frame.filter(pl.col("time") < pl.col("time").shift(1))
    if late.is_empty():
        return []
    part, row = late.select("part", "row").row(0)
    return [
        f"{len(late)} rows are earlier than the row before them, the first is row {row} of "
        f"{tables[part].file.name}; rows are put in order of time"
    ]


def _jobs(frame: pl.DataFrame, end: float) -> pl.DataFrame:
    """One row per job, by first submission: ``job submitted ended part row``, in microseconds.

    ``ended`` is null for a job that has not ended by the end of the window.
    """
    import polars as pl

    events = frame.sort("time", "part", "row", maintain_order=True)
    last = events.filter((pl.col("time") <= end) & pl.col("event").is_in([0, 2, 3, 4, 5, 6]))
    last = last.group_by("job", maintain_order=True).agg(
        pl.col("time").last().alias("ended"), (pl.col("event").last() == 0).alias("again"),
    )  # fmt: skip
    jobs = events.group_by("job", maintain_order=True).agg(
        pl.col("time").filter(pl.col("event") == 0).first().alias("submitted"),
        pl.col("part").first(), pl.col("row").first(),
    )  # fmt: skip
    ended = pl.when(~pl.col("again")).then("ended").alias("ended")
    joined = jobs.join(last, on="job", how="left", maintain_order="left")
    return joined.with_columns(ended).sort("submitted", "job", maintain_order=True)


def _parts(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if (source := Source(path, FORMAT)).converted is not None:
        return source.files("job_events")
    if not path.is_dir():
        raise TraceError("there is no such file or directory", path)
    folder = path / "job_events" if (path / "job_events").is_dir() else path
    found: dict[int, Path] = {}
    for file in sorted(folder.iterdir()):
        match = PART.fullmatch(file.name)
        if match is None:
            continue
        number = int(match[1])
        if number in found:
            raise TraceError(
                f"part {number:05d} is here twice, as {found[number].name} and {file.name}; keep "
                "one", folder,
            )  # fmt: skip
        found[number] = file
    if not found:
        listed = ", ".join(sorted(f.name for f in folder.iterdir())[:8]) or "nothing"
        raise TraceError(f"no part-NNNNN-of-NNNNN.csv.gz here; found {listed}", folder)
    return [found[number] for number in sorted(found)]

"""Gavel's measured throughputs: training steps per second of jobs on three GPU models.

Published with Gavel (Narayanan et al., OSDI 2020); get ``simulation_throughputs.json`` from
https://github.com/stanford-futuredata/gavel, licence MIT. Its keys are texts of Python tuples,
``('ResNet-50 (batch size 64)', 2)``: the job and its number of GPUs. Under a key, ``null`` is the
throughput alone; the other entries, of jobs that share a GPU, are not used here.

Two things that look wrong are measurements, and are kept: newer models that are slower than older
ones for some jobs (``slower_on_newer``), and zeros. A zero is read as "does not run there" (on the
model with the least memory): no channel comes of it (``zeros``). Nothing is scaled, and no model
stands in for another.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any, NamedTuple

from gangwise.core.errors import TraceError, UnknownName
from gangwise.traces.text import read_text

MODELS = ("k80", "p100", "v100")
"""GPU models, oldest first. The ``…_unconsolidated`` tables are of workers spread over servers."""


class Job(NamedTuple):
    """What is trained, and on how many GPUs."""

    name: str
    gpus: int


class GavelThroughputs:
    r"""The table of a file.

    Parameters
    ----------
    file : path
        ``simulation_throughputs.json``, plain or gzipped, or a folder with it.
    unconsolidated : bool
        Take the measurements of workers spread over servers.

    Attributes
    ----------
    models : tuple of str
        GPU models, oldest first.
    digest : str
        SHA-256 of the file.
    throughput : mapping of (model, Job) to float
        Steps per second alone, positive; a job that does not run on a model is absent.
    jobs : tuple of Job
        Jobs that run on at least one model.
    zeros : tuple of (model, Job)
        Measured as 0: they do not run.
    slower_on_newer : tuple of Job
        Jobs for which a newer model is slower than some older one.

    Raises
    ------
    TraceError
        Names the file, the GPU model and the key.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "simulation_throughputs.json")
    ...     size = file.write_text(
    ...         json.dumps(
    ...             {
    ...                 "k80": {"('LM', 1)": {"null": 2.0}, "('LM', 2)": {"null": 0.0}},
    ...                 "p100": {"('LM', 1)": {"null": 5.0}, "('LM', 2)": {"null": 8.0}},
    ...                 "v100": {"('LM', 1)": {"null": 4.0}, "('LM', 2)": {"null": 9.0}},
    ...             }
    ...         )
    ...     )
    ...     table = GavelThroughputs(folder)
    >>> table.throughput["v100", Job("LM", 2)], table.zeros
    (9.0, (('k80', Job(name='LM', gpus=2)),))
    >>> table.slower_on_newer
    (Job(name='LM', gpus=1),)
    """

    def __init__(self, file: Path | str, unconsolidated: bool = False):
        self.file = _find(Path(file))
        tables, self.digest = _load(self.file)
        suffix = "_unconsolidated" if unconsolidated else ""
        self.models = MODELS
        self.throughput: dict[tuple[str, Job], float] = {}
        zeros: list[tuple[str, Job]] = []
        jobs: dict[Job, None] = {}
        for model in MODELS:
            if model + suffix not in tables:
                missing = UnknownName("GPU model", model + suffix, list(tables))
                raise TraceError(str(missing), self.file)
            for text, entry in tables[model + suffix].items():
                job, speed = self._entry(model + suffix, text, entry)
                if speed > 0:
                    self.throughput[model, job] = speed
                    jobs[job] = None
                else:
                    zeros.append((model, job))
        if not jobs:
            raise TraceError("no job runs on any GPU model", self.file)
        self.jobs, self.zeros = tuple(jobs), tuple(zeros)
        self.slower_on_newer = tuple(job for job in self.jobs if self._slower(job))

    def _slower(self, job: Job) -> bool:
        speeds = [self.throughput[m, job] for m in MODELS if (m, job) in self.throughput]
        return speeds != sorted(speeds)

    def _entry(self, table: str, text: str, entry: Any) -> tuple[Job, float]:
        where = f"{table}, key {text!r}: "
        try:
            key = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            key = None
        if not (
            isinstance(key, tuple)
            and len(key) == 2
            and isinstance(key[0], str)
            and isinstance(key[1], int)
            and key[1] > 0
        ):
            raise TraceError(f"{where}this is not a tuple of a job and its GPUs", self.file)
        if not isinstance(entry, dict) or "null" not in entry:
            raise TraceError(f"{where}there is no throughput alone, under 'null'", self.file)
        speed = entry["null"]
        if isinstance(speed, bool) or not isinstance(speed, (int, float)) or not 0 <= speed < 1e12:
            raise TraceError(
                f"{where}the throughput is {speed!r}; it must be a finite number, zero or larger",
                self.file,
            )
        return Job(*key), float(speed)


def _find(path: Path) -> Path:
    if not path.is_dir():
        return path
    for name in ("simulation_throughputs.json", "simulation_throughputs.json.gz"):
        if (path / name).exists():
            return path / name
    listed = ", ".join(sorted(p.name for p in path.iterdir())[:8]) or "nothing"
    raise TraceError(f"no simulation_throughputs.json here; found {listed}", path)


def _load(file: Path) -> tuple[dict[str, dict[str, Any]], str]:
    text, digest = read_text(file)
    try:
        tables = json.loads(text)
    except json.JSONDecodeError as error:
        raise TraceError(f"this is not JSON ({error.msg})", file, error.lineno) from error
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise TraceError("expected GPU models, and under each its jobs", file)
    return tables, digest

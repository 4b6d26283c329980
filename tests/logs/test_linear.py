"""Cost that grows no faster than the work: files opened, rows looked at again."""

from __future__ import annotations

import builtins
import gzip
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from benchmarks.trace_scaling import FORMATS

from gangwise.logs import open_reader, reader_of
from gangwise.logs import text as texts
from gangwise.logs.formats import google
from gangwise.logs.inspect import inspect

from .test_google_2011 import event


@pytest.fixture
def opened(monkeypatch):
    """How often each file is opened, by name."""
    counts: Counter[str] = Counter()
    through_path, through_name = Path.open, builtins.open

    def path_open(self, *arguments, **named):
        counts[self.name] += 1
        return through_path(self, *arguments, **named)

    monkeypatch.setattr(Path, "open", path_open)

    def name_open(file, *arguments, **named):
        counts[Path(str(file)).name] += 1
        return through_name(file, *arguments, **named)

    monkeypatch.setattr(builtins, "open", name_open)
    return counts


def parts(folder, number):
    """Job events, a job and its user to a part; each user name occurs once."""
    (folder / "job_events").mkdir(parents=True)
    for n in range(number):
        rows = [event(10 * n + t, n, kind) for t, kind in ((0, 0), (1, 1), (5, 4))]
        text = "".join(f"{row}\n" for row in rows)
        name = f"part-{n:05d}-of-00500.csv.gz"
        (folder / "job_events" / name).write_bytes(gzip.compress(text.encode()))


def test_recognising_a_folder_opens_each_file_once(tmp_path, opened):
    parts(tmp_path, 7)
    (tmp_path / "notes.txt").write_text("nothing\n")
    opened.clear()
    assert reader_of(tmp_path).FORMAT.name == "google-2011"
    here = [file.name for file in tmp_path.rglob("*.*")]
    assert {name: opened[name] for name in here} == dict.fromkeys(here, 1)
    open_reader(tmp_path).scan()
    read = [name for name in here if name.startswith("part-")]
    assert {name: opened[name] for name in read} == dict.fromkeys(read, 2)  # to read it


def test_a_file_that_changed_is_looked_at_again(tmp_path, opened):
    file = tmp_path / "log.swf"
    row = "{} 0 5 60 4 -1 -1 4 120 -1 1 3 1 2 -1 -1 -1 -1\n"
    file.write_text(row.format(1))
    assert reader_of(file).FORMAT.name == "swf"
    file.write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n")
    assert inspect(file).traces[0].name == "alibaba-gpu-v2023"


def test_users_are_not_regrouped_for_every_batch(monkeypatch):
    """Rows that are grouped, against the number of batches: less than a few times all rows."""
    grouped, group_by = [], pl.DataFrame.group_by

    def counting(self, *arguments, **named):
        grouped.append(len(self))
        return group_by(self, *arguments, **named)

    monkeypatch.setattr(pl.DataFrame, "group_by", counting)
    users, size, number = google.Summaries(google.first_users), 50, 200
    for batch in range(number):
        jobs = range(size * batch, size * (batch + 1))
        users.add(pl.DataFrame({"job": jobs, "user": [f"u{batch:03d}"] * size}))
        users.add(pl.DataFrame({"job": jobs, "user": ["z"] * size}))
    found = users.frame().sort("job")
    assert found.rows() == [(job, f"u{job // size:03d}") for job in range(size * number)]
    assert sum(grouped) < 6 * size * number


def work_of(name, rows, folder):
    """Calls of functions, and rows of the frames that they give back, while rows are read."""
    case = FORMATS[name]
    folder.mkdir()
    case.write(folder, rows)
    reader = open_reader(folder / case.opened, trace=case.trace or name)
    work = 0

    def called(frame, event, argument):
        nonlocal work
        work += event in ("call", "c_call")
        if event == "return" and isinstance(argument, pl.DataFrame | pl.Series):
            work += len(argument)

    sys.setprofile(called)
    try:
        reader.scan()
    finally:
        sys.setprofile(None)
    return work


@pytest.mark.full
@pytest.mark.parametrize("name", FORMATS)
def test_the_work_of_every_reader_is_linear(name, tmp_path, monkeypatch):
    """Counted, not timed: four times the rows are at most 4^1.1 times the work.

    Blocks are small, so that what is done for each of them again is seen.
    """
    monkeypatch.setattr(texts, "BLOCK", 4096)
    work_of(name, 30, tmp_path / "first")  # what is done once
    few, many = (work_of(name, n, tmp_path / str(n)) for n in (300, 1200))
    assert few + 900 < many <= 4**1.1 * few

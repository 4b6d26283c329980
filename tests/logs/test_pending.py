"""Tables of jobs that were pending, and damaged ones."""

from __future__ import annotations

import pytest

from gangwise import TraceError
from gangwise.sites.wait_history import open_pending, pending_files

HEADER = "job_id,poll_time,submit_time,start_time,priority"
ROW = "7,2024-01-01 10:00:00,2024-01-01 09:00:00,2024-01-01 11:00:00,1"


def test_a_job_in_line_is_read(tmp_path):
    file = tmp_path / "polls.csv"
    file.write_text(f"{HEADER}\n{ROW}\n")
    assert pending_files(tmp_path) == [file]
    pending = open_pending([file])
    assert pending.features["waited"].tolist() == [3600.0]


@pytest.mark.parametrize("wrong", [f"{ROW},5,6".encode(), b"8,\xff"])
def test_a_table_that_cannot_be_read_is_named(tmp_path, wrong):
    file = tmp_path / "polls.csv"
    file.write_bytes(f"{HEADER}\n{ROW}\n".encode() + wrong + b"\n")
    with pytest.raises(TraceError, match=r"polls\.csv"):
        open_pending([file])

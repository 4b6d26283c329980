"""The numbers behind the pictures of a trace, against plain Python."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangwise.logs.tables import Tables
from gangwise.report.charts import arrivals, draw_trace, lifetimes, load, sizes

HOUR = 3600.0
SERVERS = pl.DataFrame(
    {
        "row": [1, 2],
        "name": ["a", "b"],
        "model": ["T4", ""],
        "cpu": [8.0, 4.0],
        "mem": [16.0, 16.0],
        "gpu": [2.0, 0.0],
    }
)


def tables(rows, servers=SERVERS):
    """From rows of (created, deleted, cpu, mem, gpu, tasks)."""
    kinds = dict.fromkeys(("created", "deleted", "cpu", "mem", "gpu", "tasks"), pl.Float64)
    frame = pl.DataFrame(rows, schema=kinds, orient="row")
    frame = frame.with_columns(models=pl.lit(""), name=pl.lit("x")).with_row_index("row")
    return Tables("made-up", servers, frame, ())


NUMBERS = st.integers(0, 40)
ROW = st.tuples(
    st.integers(0, 500_000), st.integers(0, 100_000), NUMBERS, NUMBERS, NUMBERS, st.integers(1, 5)
)
ROWS = st.lists(
    ROW.map(lambda row: (float(row[0]), float(row[0] + row[1]), *row[2:])), min_size=1, max_size=30
)


@given(ROWS)
def test_arrivals_are_counted_where_they_are(rows):
    found = arrivals(tables(rows))
    for place, count in enumerate(found.counts):
        low = found.first + place * found.width
        assert count == sum(low <= row[0] < low + found.width for row in rows)
    assert found.counts.sum() == len(rows)


def test_arrivals_by_hour_and_their_daily_cycle():
    """Three whole days, and a part of one before and after that do not count."""
    created = [23 * HOUR] * 7  # day 0, not whole
    for day in (1, 2, 3):
        for hour in range(24):
            created += [day * 24 * HOUR + hour * HOUR + 5] * (hour % 3 + day)
    created += [4 * 24 * HOUR + 1] * 50
    found = arrivals(tables([(t, t + 1, 1, 1, 0, 1) for t in created]))
    assert found.width == HOUR
    assert found.first == 23 * HOUR
    assert found.counts[0] == 7
    assert found.counts[-1] == 50
    assert found.days == 3
    assert found.cycle.tolist() == [hour % 3 + 2 for hour in range(24)]


def test_a_short_trace_has_shorter_bins_and_no_daily_cycle():
    found = arrivals(tables([(float(t), t + 1.0, 1, 1, 0, 1) for t in range(0, 5000, 10)]))
    assert (found.width, found.cycle) == (60.0, None)
    assert found.counts[:-1].tolist() == [6] * 83
    assert arrivals(tables([(9.0, 9.0, 1, 1, 0, 1)])).counts.tolist() == [1]
    assert arrivals(tables([(None, 9.0, 1, 1, 0, 1)])) is None


def test_a_trace_of_many_years_keeps_its_bins_few():
    found = arrivals(tables([(0.0, 1.0, 1, 1, 0, 1), (1e9, 1e9, 1, 1, 0, 1)]))
    assert found.counts.sum() == 2
    assert found.counts.size <= 10_001
    assert found.width >= 86400.0


@given(ROWS)
def test_distributions_are_shares_of_the_requests(rows):
    made = tables(rows)
    for name, place in (("cpu", 2), ("mem", 3), ("gpu", 4)):
        values = [row[place] for row in rows]
        found = sizes(made).get(name)
        assert (found is None) == (max(values) == 0)
        if found is not None:
            shares = {v: sum(w <= v for w in values) / len(values) for v in values}
            assert found.values.tolist() == sorted(shares)
            assert found.share == pytest.approx([shares[v] for v in sorted(shares)])
            assert found.zeros == pytest.approx(values.count(0) / len(values))
    last = lifetimes(made)
    assert last.values.tolist() == sorted({row[1] - row[0] for row in rows})


def test_what_is_not_known_is_counted_and_left_out():
    made = tables([(0.0, 10.0, None, 1.0, 0.0, 1), (0.0, None, 2.0, 3.0, 0.0, 1)])
    found = sizes(made)
    assert set(found) == {"cpu", "mem"}
    assert (found["cpu"].known, found["cpu"].unknown) == (1, 1)
    assert (lifetimes(made).known, lifetimes(made).unknown) == (1, 1)


@given(ROWS, st.integers(1, 12))
def test_load_is_the_mean_of_what_is_requested(rows, bins):
    """Each request overlaps each bin by so many seconds."""
    found = load(tables(rows), bins)
    if found is None:
        assert all(row[0] == row[1] == rows[0][0] for row in rows)
        return
    assert found.edges[0] == min(row[0] for row in rows)
    assert found.edges[-1] == max(row[1] for row in rows)
    for name, place, total in (("cpu", 2, 12.0), ("mem", 3, 32.0), ("gpu", 4, 2.0)):
        if not any(row[place] for row in rows):
            assert name not in found.requested
            continue
        assert found.capacity[name] == total
        for low, high, mean in zip(found.edges, found.edges[1:], found.requested[name]):
            held = sum(
                max(0.0, min(high, row[1]) - max(low, row[0])) * row[place] * row[5] for row in rows
            )
            assert mean == pytest.approx(held / (high - low), rel=1e-6, abs=1e-3)


def test_load_without_servers_has_no_capacity():
    found = load(tables([(0.0, 10.0, 1.0, 0.0, 0.0, 3)], SERVERS.clear()), 2)
    assert (found.capacity, list(found.requested)) == ({}, ["cpu"])
    assert found.requested["cpu"].tolist() == [3.0, 3.0]


@pytest.mark.full
def test_pictures_and_their_captions(tmp_path):
    rng = np.random.default_rng(1)
    rows = [
        (
            float(t),
            float(t + rng.exponential(4000)),
            float(rng.integers(1, 9)),
            2.0,
            float(rng.integers(0, 2)),
            2,
        )
        for t in rng.integers(0, 4 * 86400, 300)
    ]
    captions, left_out = draw_trace(tables(rows), tmp_path)
    assert list(captions) == ["arrivals", "sizes", "lifetimes", "load"]
    assert left_out == {}
    names = {f"{stem}{end}" for stem in captions for end in (".png", ".svg")}
    assert {file.name for file in tmp_path.iterdir()} == names
    assert "300 requests" in captions["sizes"]
    assert "12 cores (CPU), 32 GiB (memory) and 2 GPUs (GPUs)" in captions["load"]
    before = (tmp_path / "load.svg").read_bytes()
    draw_trace(tables(rows), tmp_path)
    assert (tmp_path / "load.svg").read_bytes() == before


def test_pictures_that_have_nothing_to_show_are_left_out(tmp_path):
    captions, left_out = draw_trace(tables([(None, None, None, None, None, None)]), tmp_path)
    assert captions == {}
    assert list(left_out) == ["arrivals", "sizes", "lifetimes", "load"]
    assert not list(tmp_path.iterdir())
    captions, _ = draw_trace(tables([(5.0, 5.0, 0.0, 0.0, 0.0, 1)], SERVERS.clear()), tmp_path)
    assert list(captions) == ["arrivals", "lifetimes"]

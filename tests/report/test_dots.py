import math

from gangwise.report.page import dots
from gangwise.study.statistics import Estimate


def test_places_are_in_per_cent_of_the_axis_and_zero_is_on_it() -> None:
    found = {"far": Estimate(60.0, 40.0, 80.0), "near": Estimate(1.0, -3.0, 5.0)}
    (drawn,) = dots("title", found, "caption")
    (first, first_label), *_, (last, last_label) = drawn.ticks
    assert (first, last) == (0.0, 100.0)
    low, high = (float(label.replace("\N{MINUS SIGN}", "-")) for label in (first_label, last_label))
    assert low <= -3.0
    assert high >= 80.0
    for row in drawn.rows:
        for place, value in zip((row.at, row.low, row.high), found[row.name]):
            assert math.isclose(low + place / 100 * (high - low), value or 0.0, abs_tol=0.02)
    assert math.isclose(low + drawn.zero / 100 * (high - low), 0.0, abs_tol=0.02)


def test_a_dot_is_hollow_where_it_may_be_chance() -> None:
    found = {
        "chance": Estimate(1.0, -1.0, 3.0),
        "more": Estimate(2.0, 1.0, 3.0),
        "less": Estimate(-2.0, -3.0, -1.0),
        "one seed": Estimate(9.0, None, None),
    }
    (drawn,) = dots("", found, "")
    clear = {row.name: row.clear for row in drawn.rows}
    assert clear == {"less": True, "chance": False, "more": True, "one seed": False}


def test_what_is_no_number_is_left_out() -> None:
    nothing = Estimate(math.nan, None, None)
    assert dots("", {"a": nothing}, "") == []
    (drawn,) = dots("", {"a": nothing, "b": Estimate(0.0, 0.0, 0.0)}, "")
    assert [row.name for row in drawn.rows] == ["b"]

import pytest

from gangwise.study.statistics import Estimate, decimals_for, estimate_text, number, scale_for


def around(mean: float, half: float) -> Estimate:
    return Estimate(mean, mean - half, mean + half)


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (around(2819.3, 12.2), "2,819 ± 12"),
        (around(2676.0, 121.6), "2,676 ± 122"),
        (around(25.04, 0.81), "25.0 ± 0.8"),
        (around(0.263, 0.121), "0.26 ± 0.12"),
        (around(-5.0, 0.0), "−5.000 ± 0.000"),
        (Estimate(2763.2, None, None), "2,763"),
        (Estimate(0.012345, None, None), "0.0123"),
        (Estimate(float("nan"), None, None), "–"),
    ],
)
def test_digits_follow_the_interval(estimate: Estimate, text: str) -> None:
    assert estimate_text(estimate, decimals_for([estimate])) == text


def test_a_narrow_interval_is_never_shown_as_zero() -> None:
    wide, narrow = around(70.0, 5.0), around(98.0, 0.0001)
    decimals = decimals_for([wide, wide, narrow])
    assert estimate_text(narrow, decimals) == "98.0 ± <0.1"


def test_minus_is_a_minus_and_zero_has_no_sign() -> None:
    assert number(-1234.5) == "−1,234"
    assert number(-0.001, 1, sign=True) == "0.0"


def test_scale_leaves_small_numbers_alone() -> None:
    assert scale_for([19_000.0, -3.0]) == (1.0, "")
    assert scale_for([float("nan"), -3e7]) == (1e6, "millions")

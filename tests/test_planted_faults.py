"""The list of planted faults can still be played: each has its one place in a syntax tree."""

from __future__ import annotations

import pytest
from benchmarks.mutations import FAULTS, ROOT, matches, planted

SOURCE = """
def share(x, most):
    total = sum(x)
    return x / total if most > 0.0 else 0.0
"""


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_planted_fault_still_has_its_place(fault):
    source = (ROOT / "src" / "gangwise" / fault.file).read_text(encoding="utf-8")
    assert len(matches(source, fault.old)) == 1
    assert planted(source, fault.old, fault.new) != source
    assert (ROOT / "tests" / fault.tests).exists()


def test_a_place_is_found_under_other_names_and_layout_alone():
    assert planted(SOURCE, "x / total", "x * total") == SOURCE.replace("x / total", "(x * total)")
    assert planted(SOURCE, "a / (b)", "a") == SOURCE.replace("x / total", "(x)")
    assert matches(SOURCE, "total / total") == matches(SOURCE, "most > 1.0") == []

"""The list of planted faults can still be played: what it replaces is there, once."""

from __future__ import annotations

import pytest
from benchmarks.mutations import FAULTS, ROOT


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_planted_fault_still_has_its_place(fault):
    source = (ROOT / "src" / "gangwise" / fault.file).read_text(encoding="utf-8")
    assert source.count(fault.old) == 1
    assert (ROOT / "tests" / fault.tests).exists()

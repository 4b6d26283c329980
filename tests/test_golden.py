"""Every built-in computes what it computed when its revision was last raised."""

from __future__ import annotations

import pytest

from tests import golden

CASES = [(kind, name) for kind in golden.KINDS for name in golden.names(kind)]


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_results_change_with_the_revision_alone(kind, name):
    assert name in golden.recorded()[kind], "record it: python -m tests.golden"
    revision, numbers = golden.recorded()[kind][name]
    assert revision == golden.names(kind)[name], "record them: python -m tests.golden"
    # Linear algebra rounds otherwise on another processor: bits of it are no behaviour.
    assert golden.results(kind, name) == pytest.approx(
        [float.fromhex(number) for number in numbers], rel=1e-9, abs=1e-12, nan_ok=True
    ), f"the results changed: raise the revision of {name} in catalogue.toml, then record them"


def test_only_names_that_exist_have_results():
    assert {(kind, name) for kind, rows in golden.recorded().items() for name in rows} == set(CASES)

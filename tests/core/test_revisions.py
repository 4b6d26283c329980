"""Built-ins whose code has changed since their revision was last looked at."""

from __future__ import annotations

import ast

import pytest

from tests import revisions

CODE = """
@kernel
def score(x: float, y=2) -> float:
    '''What it is worth.'''
    if x < 0:
        raise ValueError("below 0")
    return x * y  # a product
"""


def changed() -> list[str]:
    """Kind and name of what differs from the table."""
    before, now = revisions.recorded(), revisions.current()
    return [
        f"{kind} {name}"
        for kind in revisions.KINDS
        for name in before[kind].keys() | now[kind].keys()
        if before[kind].get(name) != now[kind].get(name)
    ]


def test_code_of_a_built_in_changes_with_its_revision_in_mind() -> None:
    found = sorted(changed())
    assert not found, (
        f"the code of {', '.join(found)} changed: if its results change, raise its revision in "
        "catalogue.toml; then run `python -m tests.revisions` to record the digest"
    )


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("What it is worth.", "Something else.", True),
        ("  # a product", "", True),
        ("x: float, y=2", "\n    x,\n    y = 2,\n", True),
        ("below 0", "x is below 0", True),
        ("x * y", "x + y", False),
        ("y=2", "y=3", False),
        ("x < 0", "x <= 0", False),
        ("@kernel\n", "", False),
    ],
)
def test_what_counts_as_a_change(old: str, new: str, same: bool) -> None:
    before, after = ("".join(revisions.told(ast.parse(t))) for t in (CODE, CODE.replace(old, new)))
    assert (before == after) is same


def test_a_kernel_of_the_same_package_is_part_of_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = "gangwise.papers.gain_overhead.policies:OGASchedReact"
    before, real = (
        revisions.digest(target),
        revisions.names("gangwise.papers.gain_overhead.kernels"),
    )
    name = next(name for name, (_, tree) in real.items() if name == "gradient" and tree)
    edited = {**real, name: (real[name][0], ast.parse("gradient = 0"))}
    known = revisions.names
    monkeypatch.setattr(
        revisions, "names", lambda m: edited if m.endswith("gain_overhead.kernels") else known(m)
    )
    revisions.piece.cache_clear()
    assert revisions.digest(target) != before
    revisions.piece.cache_clear()

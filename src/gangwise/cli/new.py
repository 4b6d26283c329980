"""``gangwise new``: a policy or a scheduler of your own to begin with, and its test."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Literal

import typer

from gangwise.cli.options import say
from gangwise.core.errors import ScenarioError

FAMILIES = {
    "gain_overhead": ("ogasched-default-v1:servers=16", "drf"),
    "fluctuating_speeds": ("esdp-default-v1", "hauf"),
    "approximation_jobs": ("opm-default-v1:machines=20", "fair"),
}
"""Families with the scenario and the rival that the test plays."""


def new_command(
    kind: Annotated[Literal["policy", "scheduler"], typer.Argument(help="What it is to be.")],
    name: Annotated[
        str, typer.Argument(help="Of the class: LongestWait, or longest-wait.", show_default=False)
    ],
    family: Annotated[
        Literal["gain_overhead", "fluctuating_speeds", "approximation_jobs"],
        typer.Option(help="Of a policy."),
    ] = "gain_overhead",
    folder: Annotated[Path, typer.Option(help="Where the files go.")] = Path(),
) -> None:
    """Write thirty lines that work, and their test, to begin with."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", name) if word]
    title = "".join(word[0].upper() + word[1:] for word in words)
    module = "_".join(word.lower() for word in words)
    if not title.isidentifier():
        raise ScenarioError(f"{name!r} is no name for a class; try LongestWait")
    scenario, other = FAMILIES[family]
    file, test = folder / f"{module}.py", folder / f"test_{module}.py"
    written = {file: family if kind == "policy" else "scheduler", test: f"{kind}_test"}
    for path in written:
        if path.exists():
            raise ScenarioError(f"{path} is there already; choose another name")
    starters = files("gangwise.cli") / "starters"
    folder.mkdir(parents=True, exist_ok=True)
    for path, starter in written.items():
        text = (starters / f"{starter}.py.txt").read_text(encoding="utf-8")
        for mark, value in {
            "CLASS": title,
            "FILE": file.name,
            "MODULE": module,
            "SCENARIO": scenario,
            "OTHER": other,
        }.items():
            text = text.replace(mark, value)
        path.write_text(text, encoding="utf-8")
    say(f"wrote {file} and {test}; try: pytest {test}")

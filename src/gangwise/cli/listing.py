"""``gangwise list`` and ``show``: what there is; ``new`` and ``check``: classes of your own."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import typer

from gangwise.cli.options import say, screen
from gangwise.core.errors import ScenarioError
from gangwise.core.settings import json_text

PLURAL = {
    "family": "families",
    "scenario": "scenarios",
    "policy": "policies",
    "comparator": "comparators",
    "scheduler": "schedulers",
    "trace": "traces",
    "engine": "engines",
}


def list_command(family: str | None = None, as_json: bool = False) -> None:
    """List scenarios, policies and comparators by family; schedulers; traces; engines."""
    from gangwise.core.errors import UnknownName
    from gangwise.core.registry import GROUPS, entries

    found = {
        kind: [
            {"name": e.name, "family": e.family, "summary": e.summary}
            for e in entries(kind).values()
        ]
        for kind in GROUPS
    }
    families = [row["name"] for row in found["family"]]
    if family is not None and family not in (*families, "jobs"):
        raise UnknownName("family", family, [*families, "jobs"])
    if as_json:
        mine = {
            PLURAL[kind]: [
                row
                for row in rows
                if family is None or family in (row["family"] or "jobs", row["name"])
            ]
            for kind, rows in found.items()
        }
        print(json_text(mine))
        return
    from rich.markup import escape

    console = screen()
    indent = 2 + max(len(row["name"]) for rows in found.values() for row in rows)

    def rows_of(kind: str, rows: list[dict[str, str]]) -> None:
        if rows:
            console.print(f"  {PLURAL[kind]}")
        for row in rows:
            name = "(any other)" if row["name"] == "*" else row["name"]
            console.print(f"    [cyan]{name:<{indent}}[/cyan]{escape(row['summary'])}")

    for each in found["family"]:
        if family in (None, each["name"]):
            console.print(f"\n[bold]{each['name']}[/bold]  {escape(each['summary'])}")
            for kind in ("scenario", "policy", "comparator"):
                rows_of(kind, [row for row in found[kind] if row["family"] == each["name"]])
    if family in (None, "jobs"):
        console.print("\n[bold]jobs[/bold]  a log or a drawn world of jobs: gangwise replay")
        rows_of("scenario", [row for row in found["scenario"] if row["family"] == "jobs"])
        rows_of("scheduler", found["scheduler"])
        rows_of("trace", found["trace"])
        rows_of("engine", found["engine"])


def show_command(equation: str, as_json: bool = False) -> None:
    """Show an equation of the papers: the code that implements it."""
    from gangwise.equations import find

    label, code = find(equation)
    if as_json:
        print(json_text({"label": label, "code": [place._asdict() for place in code]}))
        return
    for place in code:
        print(f"{place.symbol}\n    {place.file}:{place.line}\n")
        print("\n".join(f"    {line}".rstrip() for line in place.docstring.splitlines()) + "\n")


FAMILIES = {
    "gain_overhead": ("ogasched-default-v1:servers=16", "drf"),
    "fluctuating_speeds": ("esdp-default-v1", "hauf"),
    "approximation_jobs": ("opm-default-v1:machines=20", "fair"),
}
"""Families with the scenario and the rival that the test plays."""


def new_command(
    kind: Literal["policy", "scheduler"],
    name: str,
    family: Literal["gain_overhead", "fluctuating_speeds", "approximation_jobs"] = "gain_overhead",
    folder: Path = Path(),
) -> None:
    """Write a small policy or scheduler that works, and its test, as a start."""
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
        marks = {"CLASS": title, "FILE": file.name, "MODULE": module}
        for mark, value in {**marks, "SCENARIO": scenario, "OTHER": other}.items():
            text = text.replace(mark, value)
        path.write_text(text, encoding="utf-8")
    say(f"wrote {file} and {test}; try: pytest {test}")


def check_command(
    what: str,
    kind: Literal["policy", "scheduler"] | None = None,
    family: str | None = None,
    cases: int = 10,
    seed: int = 0,
    isolated: bool = True,
    as_json: bool = False,
) -> None:
    """Test a policy or scheduler on random problems, and say in a sentence what is wrong with it.

    It runs in a separate process that gets the problem and observations, but no future arrivals,
    work or rates; the check reports one that reads them anyway. Exit code 1 if it breaks the
    contract.
    """
    from gangwise.core.check import PolicyCheckFailed, check_policy
    from gangwise.jobs.check import SchedulerCheckFailed, check_scheduler

    kind = kind or _kind_of(what)
    fault = ""
    try:
        if kind == "policy":
            check_policy(what, cases, seed=seed, family=family, isolated=isolated)
        else:
            check_scheduler(what, cases, seed, isolated)
    except (PolicyCheckFailed, SchedulerCheckFailed) as error:
        fault = str(error)
    where = "in a process of its own" if isolated else "in this process"
    if as_json:
        answer: dict[str, Any] = {"name": what, "kind": kind, "cases": cases, "seed": seed}
        answer |= {"isolated": isolated, "sound": not fault, "fault": fault or None}
        print(json_text(answer))
    elif not fault:
        print(f"{what} keeps to the contract of a {kind}: tried on {cases} random cases, {where}")
    if fault:
        if not as_json:
            say(f"gangwise: {fault}")
        raise typer.Exit(1)


def _kind_of(what: str) -> Literal["policy", "scheduler"]:
    """By the registered name, or by what the class has; it is not imported here."""
    from gangwise.core.errors import UnknownName
    from gangwise.core.isolation import IsolatedProcess
    from gangwise.core.registry import ANY, entries, is_outside, parse
    from gangwise.jobs.scheduler import parts

    if is_outside(what):
        has = IsolatedProcess("policy", what, {}).about["methods"]
        return "scheduler" if "place" in has else "policy"
    policies, name = entries("policy"), parse(what)[0]
    schedulers = [each for each in entries("scheduler") if each != ANY]
    schedulers += [*parts("queue"), *parts("backfilling"), *parts("choice")]
    if name not in policies and name.split("+")[0] not in schedulers:
        raise UnknownName("policy or scheduler", name, [*policies, *schedulers])
    return "policy" if name in policies else "scheduler"

"""``gangwise list``, ``show``, ``new`` and ``check``; ``verify``, ``clean`` and ``explain``."""

from __future__ import annotations

import math
import os
import re
from dataclasses import asdict
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from gangwise.cli.options import command_line, echo, json_text, say, screen, table
from gangwise.cli.serve import HERE
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.terminal import one_line

if TYPE_CHECKING:
    from gangwise.core.files import Folder
    from gangwise.study.explain import Explained


def list_command(family: str | None = None, as_json: bool = False) -> None:
    """List scenarios, policies and comparators by family; schedulers; traces; engines."""
    from gangwise.core.registry import GROUPS, entries

    plural: dict[str, str] = {kind: f"{kind}s" for kind in GROUPS}
    plural |= {"family": "families", "policy": "policies"}
    groups = {
        kind: [
            {"name": e.name, "family": e.family, "summary": e.summary}
            for e in entries(kind).values()
        ]
        for kind in GROUPS
    }
    families = [*(row["name"] for row in groups["family"]), "jobs"]
    if family is not None and family not in families:
        raise UnknownName("family", family, families)
    if as_json:
        # Schedulers, engines and traces have no family: they are of jobs.
        mine = {
            plural[kind]: [
                row
                for row in rows
                if family is None or family in (row["family"] or "jobs", row["name"])
            ]
            for kind, rows in groups.items()
        }
        echo(json_text(mine))
        return
    from rich.text import Text

    console = screen()
    # All kinds have one width of names, so that summaries stand below each other over all groups.
    indent = 2 + max(len(row["name"]) for rows in groups.values() for row in rows)

    def rows_of(kind: str, rows: list[dict[str, str]]) -> None:
        if rows:
            console.print(f"  {plural[kind]}")
        for row in rows:
            name = "(any other)" if row["name"] == "*" else row["name"]
            console.print(Text.assemble("    ", (f"{name:<{indent}}", "cyan"), row["summary"]))

    for family_row in groups["family"]:
        if family in (None, family_row["name"]):
            console.print(
                Text.assemble("\n", (family_row["name"], "bold"), f"  {family_row['summary']}")
            )
            for kind in ("scenario", "policy", "comparator"):
                rows_of(kind, [row for row in groups[kind] if row["family"] == family_row["name"]])
    if family in (None, "jobs"):
        text = "  a log or a drawn world of jobs: gangwise replay"
        console.print(Text.assemble("\n", ("jobs", "bold"), text))
        rows_of("scenario", [row for row in groups["scenario"] if row["family"] == "jobs"])
        rows_of("scheduler", groups["scheduler"])
        rows_of("trace", groups["trace"])
        rows_of("engine", groups["engine"])
        rows_of("route", groups["route"])


def show_command(equation: str, as_json: bool = False) -> None:
    """Show an equation of the papers: the code that implements it."""
    from gangwise.catalogue import find

    label, code = find(equation)
    if as_json:
        echo(json_text({"label": label, "code": [place._asdict() for place in code]}))
        return
    for place in code:
        echo(f"{place.symbol}\n    {place.file}:{place.line}\n")
        echo("\n".join(f"    {line}".rstrip() for line in place.docstring.splitlines()) + "\n")


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
    from gangwise.core.files import write_whole

    # At all other signs, and before a capital letter.
    words = [word for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", name) if word]
    title = "".join(word[0].upper() + word[1:] for word in words)
    module = "_".join(word.lower() for word in words)
    if not title.isidentifier() or iskeyword(module):
        raise ScenarioError(f"{name!r} is no name for a class; try LongestWait")
    scenario, rival = FAMILIES[family]
    file, test = folder / f"{module}.py", folder / f"test_{module}.py"
    templates = {file: family if kind == "policy" else "scheduler", test: f"{kind}_test"}
    for path in templates:
        # Also a link that leads nowhere.
        if os.path.lexists(path):
            raise ScenarioError(f"{path} is there already; choose another name")
    starters = files("gangwise.cli") / "starters"
    marks = {"CLASS": title, "FILE": file.name, "MODULE": module}
    marks |= {"SCENARIO": scenario, "OTHER": rival}
    # Both are written only after both were found to be free: nothing of a user's is overwritten.
    for path, starter in templates.items():
        text = (starters / f"{starter}.py.txt").read_text(encoding="utf-8")
        for mark, value in marks.items():
            text = text.replace(mark, value)
        write_whole(path, text)
    say(f"wrote {file} and {test}; try: gangwise check {file}:{title}")


def check_command(
    what: str,
    kind: Literal["policy", "scheduler"] | None = None,
    family: str | None = None,
    cases: int = 10,
    seed: int = 0,
    as_json: bool = False,
) -> None:
    """Test a policy or scheduler on random problems, and say in a sentence what is wrong with it.

    One that reads what it is not shown (arrivals to come, work, rates) is reported. Exit code 1 if
    it breaks the contract.
    """
    from gangwise.core.simulation import PolicyCheckFailed, check_policy
    from gangwise.jobs.check import SchedulerCheckFailed, check_scheduler

    kind, fault = kind or _kind_of(what), ""
    try:
        if kind == "policy":
            check_policy(what, cases, seed=seed, family=family)
        else:
            check_scheduler(what, cases, seed)
    # A fault of the part is the answer; other errors are faults of the command.
    except (PolicyCheckFailed, SchedulerCheckFailed) as error:
        fault = str(error)
    if as_json:
        answer: dict[str, Any] = {"name": what, "kind": kind, "cases": cases, "seed": seed}
        answer |= {"sound": not fault, "fault": fault or None}
        echo(json_text(answer))
    elif fault:
        say(f"gangwise: {fault}")
    else:
        echo(f"{what} keeps to the contract of a {kind}: tried on {cases} random cases")
    if fault:
        raise typer.Exit(1)


def _kind_of(what: str) -> Literal["policy", "scheduler"]:
    """Kind of a registered name, or of a class by its methods."""
    from gangwise.catalogue import parts
    from gangwise.core.registry import ANY, belongs_elsewhere, entries, from_outside, parse

    if (outside := from_outside("policy", what)) is not None:
        return "scheduler" if hasattr(outside.load(), "place") else "policy"
    policies, name = entries("policy"), parse(what)[0]
    schedulers = [n for n in entries("scheduler") if n != ANY]
    schedulers += [*parts("queue"), *parts("backfilling"), *parts("choice")]
    # A scheduler is named by its parts, the first of which tells.
    if name not in policies and name.split("+")[0] not in schedulers:
        instead = belongs_elsewhere("policy", name)
        raise UnknownName("policy or scheduler", name, [*policies, *schedulers], instead)
    return "policy" if name in policies else "scheduler"


MOST_NAMES = 20
"""Names that are listed, of each kind, before the rest is counted."""


def verify_command(folder: Path, repair: bool = False, as_json: bool = False) -> None:
    """Compare every file of a folder of results with its digest, and audit the runs of a replay.

    The folder of a service is compared with the chain of its commits, of which --repair makes it
    again, up to the first that is damaged. Exit code 1 if a file differs, or a schedule breaks the
    rules; after --repair, if something is lost.
    """
    from gangwise.core.files import find_folders
    from gangwise.service.store import is_state

    # A service's folder has journals, which digests of results know nothing of.
    if is_state(folder):
        _verify_state(folder, repair, as_json)
        return
    if repair:
        raise ScenarioError(f"--repair: {folder} is no folder of a service; play its runs again")
    from gangwise.study import replay, statistics
    from gangwise.study.runs import older_runs

    checks = {place: place.verify() for place in find_folders(folder)}
    sound = all(place.sound for place in checks.values())
    older = {place: older_runs(place.path) for place in checks}
    # A damaged run cannot be audited.
    audits = {place: replay.audited(place.path) if checks[place].sound else {} for place in checks}
    reports = [a for place in audits.values() for a in place.values() if not isinstance(a, str)]
    lawful = not any(report.counts for report in reports)
    if as_json:
        about = []
        for place, check in checks.items():
            audited_runs = {
                run: {"said": a} if isinstance(a, str) else {**asdict(a), "said": a.line}
                for run, a in audits[place].items()
            }
            row = {"folder": str(place.path), **vars(check), "older": older[place]}
            about.append({**row, "audits": audited_runs})
        echo(json_text({"sound": sound, "kept": lawful, "folders": about}))
    else:
        unfinished = "unfinished: the same command goes on with it, or gangwise clean"
        for place, check in checks.items():
            echo(f"{place.path}: {len(check.whole)} files are as they were written")
            _print_names("damaged: not what was written", place, check.damaged)
            _print_names("missing", place, check.missing)
            _print_names(unfinished, place, check.unfinished)
            _print_names("not written by gangwise", place, check.unknown)
            for decider, runs in older[place].items():
                played = statistics.count(len(runs), "run was", "runs were")
                echo(f"  {played} played by {decider}: play them again")
            for run, report in audits[place].items():
                echo(f"  {run}: {report if isinstance(report, str) else report.line}")
                for finding in [] if isinstance(report, str) else report.findings[:MOST_NAMES]:
                    echo(f"    {finding}")
    if not sound:
        say("run the command that made them again; it repeats only what is damaged or missing")
    if not (sound and lawful):
        raise typer.Exit(1)


def clean_command(folder: Path, everything: bool = False, as_json: bool = False) -> None:
    """Remove leftovers of stopped runs and damaged files; files of other programs stay."""
    from gangwise.core.files import find_folders

    cleaned = {}
    # Innermost first, so that a folder is empty when the one above it is cleaned.
    for f in reversed(find_folders(folder)):
        # A run that still writes has the lock, and its files are no leftovers.
        with f.lock(command=command_line()):
            cleaned[f] = f.clean(everything)
    if as_json:
        about = [{"folder": str(f.path), **c._asdict()} for f, c in cleaned.items()]
        echo(json_text({"folders": about}))
        return
    for f, c in cleaned.items():
        echo(f"{f.path}: removed {len(c.removed)} files")
        _print_names("removed", f, c.removed)
        _print_names("left, for gangwise did not write it", f, c.left)


def _verify_state(folder: Path, repair: bool, as_json: bool) -> None:
    from gangwise.service import store

    if repair:
        from gangwise.service.loop import locked

        # No service may write while its files are replaced.
        lock = locked(folder / "lock")
    did = store.take_over(folder) if repair else []
    report = store.examine(folder)
    # Twice, since a file may have been read before a commit and its copy after it.
    if not (report.sound or repair):  # a service that works in it wrote meanwhile, perhaps
        report = store.examine(folder)
    did += store.repair(report) if repair else []
    # The lock stays until all is restored.
    if repair:
        os.close(lock)
    if as_json:
        about = {"damaged": report.damaged, "lost": report.lost, "restored": did}
        echo(json_text({"sound": report.sound, "commits": report.commits, **about}))
    else:
        echo(f"{folder}: {report.commits} commits of a service are as they were written")
        for verb, items in (("damaged", report.damaged), ("restored", did), ("lost", report.lost)):
            for name in items[:MOST_NAMES]:
                echo(f"  {verb}: {name}")
        if report.lost:
            echo("  when it starts, the service reads from the cluster who waits and who runs")
        if report.damaged and not repair:
            echo("  stop the service, and run the same with --repair")
    # What is lost is told by the exit code even after a repair, for a script must notice.
    if report.lost or (report.damaged and not repair):
        raise typer.Exit(1)


def _print_names(what: str, folder: Folder, names: list[str]) -> None:
    for name in names[:MOST_NAMES]:
        echo(f"  {what}: {one_line(str(folder.path / name))}")
    if len(names) > MOST_NAMES:
        echo(f"  {what}: {len(names) - MOST_NAMES} more")


def explain_command(
    what: str,
    job: str | None = None,
    scheduler: str = "",
    seed: int | None = None,
    state: Path = HERE,
    as_json: bool = False,
) -> None:
    """Explain why a job waits now, or why a job of a finished replay waited, and where it ran.

    gangwise explain 42 asks the live service what holds job 42 back, since when, what would free
    it, and when it is expected to start. With --job the replay is repeated from its seed.
    """
    if job is None:
        if Path(what).is_dir():
            raise ScenarioError(f"{what} is a folder: name a job of the replay in it with --job ID")
        _explain_live(what, state, as_json)
        return
    from gangwise.study.explain import explain_job

    explained = explain_job(what, job, scheduler, seed)
    if as_json:
        echo(json_text(explained.as_dict()))
    else:
        _print_explanation(explained)


def _explain_live(job: str, state: Path, as_json: bool) -> None:
    from gangwise.service.state import ServiceState, explained, present

    shown = ServiceState(state)
    row = shown.job(job)
    sentence = explained(one_line(row), present(shown.view("health") or {}))
    echo(json_text(row) if as_json else sentence)


def _print_explanation(explained: Explained) -> None:
    from rich.text import Text

    def cell(value: Any) -> str:
        if value is None or (isinstance(value, float) and math.isinf(value)):
            return "–"
        return f"{value:,.4g}" if isinstance(value, float) else str(value)

    console = screen()
    line = "{scenario}, {scheduler}, seed {seed}, job {job}".format_map(explained.about)
    console.print(Text(line, style="bold"))
    if explained.rows:
        # Rows may have different columns; the order is that of their first appearance.
        names = list(dict.fromkeys(name for row in explained.rows for name in row))
        rows = [[cell(row.get(name)) for name in names] for row in explained.rows]
        numbers = int | float | None
        # Columns with words are aligned to the left.
        words = {n for row in explained.rows for n in row if not isinstance(row[n], numbers)}
        columns = [i for i, name in enumerate(names) if name in words]
        console.print()
        console.print(table([name.replace("_", " ") for name in names], rows, columns))
        console.print()
    for sentence in explained.sentences:
        console.print(sentence, markup=False)

"""The ``gangwise`` command: parses, calls, prints.

Results go to standard output, progress and messages to standard error.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import gangwise
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError

if TYPE_CHECKING:
    from gangwise.core.environment import Scenario
    from gangwise.core.run import Run
    from gangwise.experiments.comparison import Progress

__all__ = ["app", "main"]

app = typer.Typer(
    name="gangwise",
    help="Schedulers that learn, for jobs that need many servers at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Target = Annotated[
    str,
    typer.Argument(
        metavar="SCENARIO_OR_TRACE",
        help="A scenario (see: gangwise list), with settings after a colon if wanted "
        "(ogasched-default-v1:contention=1,servers=64); a scenario file (.toml); or the file or "
        "folder of a trace.",
    ),
]
Slots = Annotated[int | None, typer.Option(help="Slots per run; the scenario's own by default.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of the scenario or trace."),
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(gangwise.__version__)
        raise typer.Exit


@app.command("compare")
def compare_command(
    target: Target,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Names separated by commas, arguments after a colon: "
            "drf,ogasched-react:steps=5,fraction=0.2. All of the family by default."
        ),
    ] = None,
    slots: Slots = None,
    seeds: Annotated[
        str, typer.Option(help="How many (5 means 0 to 4), or a list: 3,7,9.")
    ] = "5",
    out: Annotated[
        Path | None, typer.Option(help="Folder for rewards.parquet, figures and report.html.")
    ] = None,
    optimum_slots: Annotated[
        int, typer.Option(help="Slots per seed on which the optimum of a slot is solved.")
    ] = 200,
    comparators: Annotated[
        str | None, typer.Option(help="Names separated by commas, or 'none'. All by default.")
    ] = None,
    settings: Settings = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a comparison that was stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare policies: same instances, same arrivals, one table, and pictures with --out."""
    from gangwise.experiments.comparison import compare

    scenario = _scenario(target, settings)
    names = _policy_names(policies, scenario.family)
    checkpoints = None if out is None else _checkpoints(out, resume)
    with _progress(saved=out is not None) as tell:
        comparison = compare(
            scenario, names, slots, _seeds(seeds), _comparators(comparators), optimum_slots,
            checkpoints, tell,
        )  # fmt: skip
    if as_json:
        print(json.dumps(comparison.as_dict(), indent=2, allow_nan=False))
    else:
        from rich.console import Console

        from gangwise.report.tables import rich_table

        console = Console()
        console.print(rich_table(comparison))
    if out is not None:
        written = comparison.write(out, shlex.join(["gangwise", *sys.argv[1:]]))
        _write_fidelity(scenario, out)
        assert checkpoints is not None
        shutil.rmtree(checkpoints, ignore_errors=True)
        _say(f"wrote {', '.join(path.name for path in written)} to {out}")


@app.command()
def run(
    target: Target,
    policy: Annotated[str, typer.Argument(help="A policy, as in: ogasched-react:steps=5")],
    slots: Slots = None,
    seed: Annotated[int, typer.Option(help="Draws the instance, its arrivals and the noise.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="A .parquet or .csv file for the per-slot rows.")
    ] = None,
    versus: Annotated[
        str | None, typer.Option(help="Also report the regret against this comparator.")
    ] = None,
    settings: Settings = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a run that was stopped.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run one policy and print what it earned."""
    from gangwise.core.simulation import Simulation

    scenario = _scenario(target, settings)
    checkpoint = None if out is None else out.with_name(out.name + ".checkpoint")
    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise ScenarioError(f"--out {out}: write per-slot rows to a .parquet or .csv file")
    if checkpoint is not None and checkpoint.exists() and not resume:
        raise StoreError(f"{checkpoint} holds a run that was stopped; add --resume, or delete it")
    with _progress(saved=out is not None) as tell:
        if resume and checkpoint is not None and checkpoint.exists():
            simulation = Simulation.load(checkpoint)
        else:
            played = scenario.slots if slots is None else slots
            simulation = Simulation(
                scenario.instance(seed), gangwise.create_policy(policy), played, seed, policy
            )
        total = simulation.slots
        result = simulation.run(checkpoint, progress=lambda done: tell(policy, done, total))
    summary = {"scenario": scenario.name, **result.summary()}
    if versus is not None:
        summary["regret"] = {versus: result.regret(versus)}
    if out is not None:
        _write_rows(result, out)
        assert checkpoint is not None
        checkpoint.unlink(missing_ok=True)
        _say(f"wrote {result.slots} rows to {out}")
    if as_json:
        print(json.dumps(summary, indent=2))
    else:
        for key, value in summary.items():
            print(f"{key:>14}  {value:,.4f}" if isinstance(value, float) else f"{key:>14}  {value}")


@app.command("list")
def list_command(as_json: Json = False) -> None:
    """List families, scenarios, policies and trace formats."""
    from gangwise.core.registry import GROUPS, entries

    found = {
        kind: [
            {"name": e.name, "family": e.family, "summary": e.summary}
            for e in entries(kind).values()
        ]
        for kind in GROUPS
    }
    plural = {"policy": "policies", "scenario": "scenarios", "trace": "traces",
              "family": "families"}  # fmt: skip
    if as_json:
        print(json.dumps({plural[kind]: rows for kind, rows in found.items()}, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for kind in ("family", "scenario", "trace", "policy"):
        table.add_row(f"[bold]{plural[kind]}[/bold]")
        for row in found[kind]:
            table.add_row(f"  {row['name']}", str(row["summary"]), f"[dim]{row['family']}[/dim]")
    Console().print(table)


def _scenario(target: str, settings: list[str] | None) -> Scenario:
    from gangwise.core.registry import parse

    given = parse("x:" + ",".join(settings))[1] if settings else {}
    path = Path(target)
    if path.suffix == ".toml":
        from gangwise.scenarios.files import read_scenario

        return read_scenario(path, given)
    if path.exists() or "/" in target or target.endswith((".csv", ".gz")):
        from gangwise.traces import open_trace

        traced: Scenario = open_trace(path, **given)
        return traced
    return gangwise.create_scenario(target, **given)


def _policy_names(text: str | None, family: str) -> list[str]:
    from gangwise.core.registry import entries

    if text is None:
        return [name for name, entry in entries("policy").items() if entry.family == family]
    names: list[str] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        if names and "=" in part.split(":")[0]:  # a further argument of the policy before it
            names[-1] += f",{part}"
        else:
            names.append(part)
    return names


def _seeds(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 0:
        raise ScenarioError(f"--seeds {text!r}: give how many (5) or a list (3,7,9)")
    return list(range(numbers[0])) if "," not in text else numbers


def _comparators(text: str | None) -> list[str] | None:
    if text is None:
        return None
    names = (piece.strip() for piece in text.split(","))
    return [name for name in names if name not in ("", "none")]


def _checkpoints(out: Path, resume: bool) -> Path:
    folder = out / "checkpoints"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write results to {out}: {error}") from error
    if folder.exists() and any(folder.iterdir()) and not resume:
        raise StoreError(
            f"{folder} holds a comparison that was stopped; add --resume to go on with it, or "
            "delete the folder to start afresh"
        )
    return folder


def _write_rows(result: Run, out: Path) -> None:
    import polars as pl

    frame = pl.DataFrame(list(result.rows()))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.suffix == ".csv":
            frame.write_csv(out)
        else:
            frame.write_parquet(out)
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error}") from error


def _write_fidelity(scenario: Any, out: Path) -> None:
    """What a trace held and what was dropped, beside the results."""
    if hasattr(scenario, "fidelity"):
        report = scenario.fidelity()
        (out / "fidelity.json").write_text(json.dumps(report.to_dict(), indent=2) + "\n")
        (out / "fidelity.txt").write_text(str(report) + "\n")


def _say(text: str) -> None:
    print(text, file=sys.stderr)


@contextmanager
def _progress(saved: bool) -> Iterator[Progress]:
    """A progress bar on standard error, a word when kernels are compiled, and how to go on."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from gangwise.kernels import on_compile

    console = Console(stderr=True)
    told = False

    def compiling(name: str) -> None:
        nonlocal told
        if not told:
            told = True
            console.print("compiling kernels (only the first time on this machine) …")

    on_compile(compiling)
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeRemainingColumn(), console=console, transient=True,
    ) as bar:  # fmt: skip
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, of: int) -> None:
            if what not in tasks:
                for earlier in tasks.values():
                    bar.remove_task(earlier)
                tasks.clear()
                tasks[what] = bar.add_task(what, total=of)
            bar.update(tasks[what], completed=done)

        try:
            yield tell
        except KeyboardInterrupt as stop:
            bar.stop()
            _say(f"gangwise: interrupted: {stop or 'between two runs'}")
            if saved:
                again = shlex.join(["gangwise", *(a for a in sys.argv[1:] if a != "--resume")])
                _say(f"to go on: {again} --resume")
            else:
                _say("nothing was saved; with --out there is a checkpoint to go on from")
            raise typer.Exit(130) from None


def main() -> None:
    """Entry point: known errors end in one line and exit code 2."""
    try:
        app()
    except GangwiseError as error:
        _say(f"gangwise: {error}")
        sys.exit(2)

"""``gangwise compare`` and ``gangwise run``."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

import gangwise
from gangwise.cli.options import (
    Family,
    Json,
    Settings,
    Slots,
    Target,
    TraceOption,
    command_line,
    comparator_names,
    json_text,
    open_target,
    policy_names,
    progress,
    say,
    seed_list,
)
from gangwise.core.errors import ScenarioError, StoreError


def compare_command(
    target: Target = None,
    trace: TraceOption = None,
    family: Family = None,
    policies: Annotated[
        str | None,
        typer.Option(
            help="Names separated by commas, arguments after a colon: "
            "drf,ogasched-react:steps=5,fraction=0.2. All of the family by default."
        ),
    ] = None,
    slots: Slots = None,
    seeds: Annotated[str, typer.Option(help="How many (5 means 0 to 4), or a list: 3,7,9.")] = "5",
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
    from gangwise.experiments.compare import compare

    scenario = open_target(target, settings, trace, family)
    names = policy_names(policies, scenario.family)
    checkpoints = None if out is None else _checkpoints(out, resume)
    with progress(_after_stop(out)) as tell:
        comparison = compare(
            scenario,
            names,
            slots,
            seed_list(seeds),
            comparator_names(comparators),
            optimum_slots,
            checkpoints,
            tell,
        )
    if as_json:
        print(json_text(comparison.as_dict()))
    else:
        from rich.console import Console

        from gangwise.report.tables import rich_table

        console = Console()
        console.print(rich_table(comparison))
    if out is not None:
        written = comparison.write(out, command_line())
        _write_fidelity(scenario, out)
        assert checkpoints is not None
        shutil.rmtree(checkpoints, ignore_errors=True)
        say(f"wrote {', '.join(path.name for path in written)} to {out}")


def run_command(
    target: Target = None,
    policy: Annotated[
        str | None,
        typer.Argument(help="A policy, as in: ogasched-react:steps=5", show_default=False),
    ] = None,
    trace: TraceOption = None,
    family: Family = None,
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
    import polars as pl

    from gangwise.core.files import Folder
    from gangwise.core.identity import run_identity
    from gangwise.core.simulation import Simulation

    if trace is not None and policy is None:
        target, policy = None, target
    if policy is None:
        raise ScenarioError("give a policy after the scenario or trace; see: gangwise list")
    scenario = open_target(target, settings, trace, family)
    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise ScenarioError(f"--out {out}: write per-slot rows to a .parquet or .csv file")
    played, plays = scenario.slots if slots is None else slots, gangwise.create_policy(policy)
    identity = run_identity(scenario, plays, played, seed, policy)
    with ExitStack() as stack:
        folder = checkpoint = None
        if out is not None:
            folder = Folder(out.parent)
            stack.enter_context(folder.lock(out.name, command_line()))
            checkpoint = folder.checkpoint(out.name)
            if checkpoint.exists() and not resume:
                raise StoreError(
                    f"{checkpoint} holds a run that was stopped; add --resume, or delete it"
                )
        with progress(_after_stop(out)) as tell:
            if checkpoint is not None and checkpoint.exists():
                simulation = Simulation.load(checkpoint, identity)
            else:
                simulation = Simulation(
                    scenario.instance(seed), plays, played, seed, policy, identity
                )
            result = simulation.run(checkpoint, progress=lambda done: tell(policy, done, played))
        if folder is not None and out is not None and checkpoint is not None:
            frame = pl.DataFrame(list(result.rows()))
            write = frame.write_csv if out.suffix == ".csv" else frame.write_parquet
            folder.write(out.name, write, replace=True)
            checkpoint.unlink(missing_ok=True)
            say(f"wrote {result.slots} rows to {out}")
    summary = {"scenario": scenario.name, **result.summary()}
    if versus is not None:
        summary["regret"] = {versus: result.regret(versus)}
    if as_json:
        print(json_text(summary))
    else:
        for key, value in summary.items():
            print(f"{key:>14}  {value:,.4f}" if isinstance(value, float) else f"{key:>14}  {value}")


def _after_stop(out: Path | None) -> str:
    if out is None:
        return "nothing was saved; with --out there is a checkpoint to go on from"
    return f"to go on: {command_line('--resume')} --resume"


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


def _write_fidelity(scenario: Any, out: Path) -> None:
    """What a trace held and what was dropped, beside the results."""
    if hasattr(scenario, "fidelity"):
        report = scenario.fidelity()
        (out / "fidelity.json").write_text(json.dumps(report.to_dict(), indent=2) + "\n")
        (out / "fidelity.txt").write_text(str(report) + "\n")

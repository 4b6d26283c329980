"""``gangwise sweep``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import gangwise
from gangwise.cli.options import (
    Address,
    BackendName,
    Jobs,
    Json,
    Settings,
    say,
    seed_list,
    settings_of,
)
from gangwise.cli.progress import command_line, progress
from gangwise.core.errors import ScenarioError

if TYPE_CHECKING:
    from gangwise.experiments.results import Results

__all__ = ["sweep_command"]


def sweep_command(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="An experiment file (.toml).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; sweeps/NAME by default.")
    ] = None,
    jobs: Jobs = -1,
    backend: BackendName = "loky",
    address: Address = None,
    seeds: Annotated[
        str | None, typer.Option(help="Instead of the file's: how many, or a list: 3,7,9.")
    ] = None,
    settings: Settings = None,
    over: Annotated[
        str | None,
        typer.Option(help="The policy that others are compared with; the first by default."),
    ] = None,
    interval: Annotated[
        Literal["t", "bootstrap"], typer.Option(help="How confidence intervals are made.")
    ] = "t",
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON schema of experiment files.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment file: every policy in every cell with every seed.

    Stopped, or killed, it goes on where it was when it is started again.
    """
    from gangwise.experiments.specification import Experiment
    from gangwise.experiments.specification import schema as schema_of_files

    if schema:
        print(json.dumps(schema_of_files(), indent=2, ensure_ascii=False))
        return
    if file is None:
        raise ScenarioError("name an experiment file; --schema says what may be in one")
    from gangwise.experiments.provenance import write_provenance
    from gangwise.experiments.sweep import sweep

    changes: dict[str, Any] = {} if seeds is None else {"seeds": seed_list(seeds)}
    if settings:
        changes["settings"] = settings_of(settings)
    experiment = Experiment.read(file, **changes)
    known = list(experiment.labelled())
    over = known[0] if over is None else over
    if over not in known:
        raise ScenarioError(f"--over {over}: the policies are {', '.join(known)}")
    folder = Path("sweeps", experiment.name) if out is None else out
    again = command_line()
    with progress(f"every finished run is stored\nto go on: {again}") as tell:
        results = sweep(experiment, folder, jobs, backend, address, tell)
    write_provenance(folder, experiment.name, again)
    if as_json:
        print(json.dumps(_summary(results, over, interval), indent=2, allow_nan=False))
        return
    _print(results, experiment.metrics, over, interval)
    say(f"{len(results.runs)} runs in {folder}")


def _summary(results: Results, over: str, interval: Literal["t", "bootstrap"]) -> dict[str, Any]:
    metrics = [f"{name}.mean" for name in results.experiment["metrics"]]
    return {
        "experiment": results.experiment["name"],
        "version": gangwise.__version__,
        "runs": len(results.runs),
        "cells": results.cells,
        "table": results.table(*metrics, interval=interval).to_dicts(),
        "improvements": results.improvements(over, interval=interval).to_dicts(),
        "sentences": results.sentences(interval),
    }


def _print(
    results: Results, metrics: list[str], over: str, interval: Literal["t", "bootstrap"]
) -> None:
    from rich.console import Console
    from rich.table import Table

    from gangwise.experiments.statistics import Estimate
    from gangwise.report.numbers import NOTHING, decimals_for, estimate_text
    from gangwise.report.terminal import Breakable

    names = ["reward.mean", *(f"{name}.mean" for name in metrics)]
    rows = results.table(*names, interval=interval).to_dicts()
    columns = {
        name: [Estimate(row[name], row[f"{name}.low"], row[f"{name}.high"]) for row in rows]
        for name in names
    }
    where = [*results.cells, "policy"]
    ahead = {
        tuple(row[key] for key in where): Estimate(row["mean"], row["low"], row["high"])
        for row in results.improvements(over, interval=interval).to_dicts()
        if row["percent"]
    }
    table = Table(box=None, pad_edge=False)
    for name in where:
        table.add_column(name)
    for name in ["reward per slot", *metrics, f"% over {over}"]:
        table.add_column(name, justify="right")
    for i, row in enumerate(rows):
        lead = ahead.get(tuple(row[key] for key in where))
        if i and results.cells and any(row[key] != rows[i - 1][key] for key in results.cells):
            table.add_section()
        table.add_row(
            *(NOTHING if row[key] is None else str(row[key]) for key in results.cells),
            Breakable(row["policy"]),
            *(estimate_text(found[i], decimals_for(found)) for found in columns.values()),
            NOTHING if lead is None
            else estimate_text(lead, max(1, decimals_for([lead])), sign=True),
        )  # fmt: skip
    console = Console()
    console.print(table)
    for sentence in results.sentences(interval):
        console.print(f"{sentence}.", highlight=False, markup=False, soft_wrap=True)

"""``gangwise sweep``.

``gangwise tune``.

``gangwise report``.

``gangwise reproduce``.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import gangwise
from gangwise.cli import completion
from gangwise.cli.options import (
    Address,
    BackendName,
    Jobs,
    Json,
    Settings,
    Slots,
    command_line,
    progress,
    say,
    seed_list,
    settings_of,
)
from gangwise.core.errors import ScenarioError, UnknownName
from gangwise.core.json_text import json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangwise.experiments.results import Results
    from gangwise.experiments.tune import Tuning
    from gangwise.reproduce.artefact import Artefact
    from gangwise.reproduce.expected import Row


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
        print(json_text(schema_of_files()))
        return
    if file is None:
        raise ScenarioError("name an experiment file; --schema says what may be in one")
    from gangwise.experiments.store import write_provenance
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
        print(json_text(_summary(results, over, interval)))
        return
    _print_sweep(results, experiment.metrics, over, interval)
    say(f"{len(results.runs)} runs in {folder}")


def _summary(results: Results, over: str, interval: Literal["t", "bootstrap"]) -> dict[str, Any]:
    metrics = [f"{name}.mean" for name in results.experiment["metrics"]]
    return {
        "format": "gangwise-sweep-1",
        "version": gangwise.__version__,
        "experiment": results.experiment["name"],
        "runs": len(results.runs),
        "cells": results.cells,
        "fidelity": [dict(each) for each in results.fidelity],
        "objective": results.objective,
        "minimise": results.minimise,
        "table": results.table(*metrics, interval=interval).to_dicts(),
        "improvements": results.improvements(over, interval=interval).to_dicts(),
        "against": [
            {**row, "comparator": name}
            for name in results.comparators
            for row in results.standing(name, interval).to_dicts()
        ],
        "sentences": results.sentences(interval),
    }


def _print_sweep(
    results: Results, metrics: list[str], over: str, interval: Literal["t", "bootstrap"]
) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gangwise.experiments.statistics import NOTHING, Estimate, decimals_for, estimate_text
    from gangwise.report.tables import Breakable

    for line in results.told:
        print(line)
    names = [results.objective, *(f"{name}.mean" for name in metrics)]
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
        table.add_column(Text(name))
    for name in [_called(results.objective), *metrics, f"% over {over}"]:
        table.add_column(Text(name), justify="right")
    for i, row in enumerate(rows):
        lead = ahead.get(tuple(row[key] for key in where))
        if i and results.cells and any(row[key] != rows[i - 1][key] for key in results.cells):
            table.add_section()
        table.add_row(
            *(Text(NOTHING if row[key] is None else str(row[key])) for key in results.cells),
            Breakable(row["policy"]),
            *(estimate_text(found[i], decimals_for(found)) for found in columns.values()),
            NOTHING
            if lead is None
            else estimate_text(lead, max(1, decimals_for([lead])), sign=True),
        )
    console = Console()
    console.print(table)
    for sentence in results.sentences(interval):
        console.print(f"{sentence}.", highlight=False, markup=False, soft_wrap=True)


def _called(objective: str) -> str:
    return "reward per slot" if objective == "reward.mean" else objective


SHOWN = 5


def tune_command(
    scenario: Annotated[
        str,
        typer.Argument(
            help="A scenario (see: gangwise list), or a scenario file (.toml).",
            autocompletion=completion.scenario_or_file,
        ),
    ],
    policy: Annotated[
        str,
        typer.Argument(
            help="A policy, as in: ogasched-react:steps=5", autocompletion=completion.deciders
        ),
    ],
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="What to tune, may be repeated: fraction=0.05:0.8:log, steps=1:20:int, "
            "estimator=decay|window.",
        ),
    ] = None,
    knob: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    settings: Settings = None,
    trials: Annotated[int, typer.Option(help="In all, with those of an earlier start.")] = 30,
    seeds: Annotated[
        str, typer.Option(help="What trials are judged by: a list.")
    ] = "1000,1001,1002",
    validation: Annotated[
        str, typer.Option(help="What the best is compared with the default on: other seeds.")
    ] = ",".join(map(str, range(2000, 2010))),
    slots: Slots = None,
    metric: Annotated[
        str, typer.Option(help="What to tune for; the objective of the scenario by default.")
    ] = "",
    minimise: Annotated[bool, typer.Option("--minimise", help="Less of it is better.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of study and runs; tuned/POLICY by default.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Workers; all cores by default.")] = -1,
    as_json: Json = False,
) -> None:
    """Tune a policy's arguments with Optuna, then compare with the default on other seeds.

    Stopped, or killed, it goes on where it was when it is started again.
    """
    from gangwise.core.registry import parse
    from gangwise.experiments.results import Results
    from gangwise.experiments.store import write_provenance
    from gangwise.experiments.tune import TUNING, tune

    if knob:
        raise ScenarioError(f"--knob is called --range now: write --range {knob[0]}")
    folder = Path("tuned", parse(policy)[0]) if out is None else out
    again = command_line()
    with progress(f"every finished trial is stored\nto go on: {again}") as tell:
        tuning = tune(
            scenario,
            policy,
            ranges or [],
            folder,
            settings_of(settings),
            trials,
            seed_list(seeds),
            seed_list(validation, "--validation"),
            slots,
            metric,
            minimise,
            jobs,
            tell,
        )
    for name in ("tuning", "validation"):
        if (folder / f"{name}.plan.json").exists():
            write_provenance(folder, name, again)
    if as_json:
        print(json_text(tuning.as_dict()))
        return
    for line in Results.open(folder, TUNING).told:
        print(line)
    _print_tuning(tuning)
    say(f"{len(tuning.trials)} trials in {folder}; gangwise report {folder} shows all")


def _print_tuning(tuning: Tuning) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gangwise.experiments.statistics import NOTHING, Estimate, decimals_for, estimate_text

    shown = list(tuning.trials[:SHOWN])
    if tuning.default not in shown:
        shown.append(tuning.default)
    over = [tuning.over_default(trial) for trial in shown]
    percent = all(row["percent"] for row in over if row)
    table = Table(box=None, pad_edge=False)
    table.add_column("trial")
    ahead = f"{'% ' * percent}better than default"
    for name in (*tuning.default.arguments, tuning.metric, ahead):
        table.add_column(Text(name), justify="right")
    decimals = decimals_for([trial.estimate for trial in shown])
    for trial, row in zip(shown, over):
        told = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in trial.arguments.values())
        name = "default" if trial == tuning.default else str(trial.number)
        lead = NOTHING
        if row is not None:
            of = Estimate(row["mean"], row["low"], row["high"])
            lead = estimate_text(of, max(1, decimals_for([of])), sign=True)
        table.add_row(name, *map(Text, told), estimate_text(trial.estimate, decimals), lead)
    console = Console()
    console.print(table)
    text = tuning.sentence
    console.print(f"{text[0].upper()}{text[1:]}.", highlight=False, markup=False, soft_wrap=True)


def report_command(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="What was given as --out to sweep, reproduce, tune or compare."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; DIR/report.html by default.")
    ] = None,
    opened: Annotated[bool, typer.Option("--open", help="Show it in a browser.")] = False,
) -> None:
    """Write one page about a folder of results; it needs no network and no other file."""
    from gangwise.report.pages import write_report

    path = write_report(folder, out)
    say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if opened:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


_COLOURS = {
    "agrees": "green",
    "other-size": "cyan",
    "differs": "yellow",
    "open": "dim",
    "depends": "magenta",
    "uncompared": "dim",
}


def reproduce_command(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="ogasched, esdp or opm; all with --all.")
    ] = None,
    figure: Annotated[
        list[int] | None, typer.Option(help="A figure of the paper; may be repeated.")
    ] = None,
    table: Annotated[
        list[int] | None, typer.Option(help="A table of the paper; may be repeated.")
    ] = None,
    theorem: Annotated[
        list[int] | None, typer.Option(help="A theorem of the paper; may be repeated.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All figures, tables and theorems (the default).")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer slots, seeds and cells: minutes, not hours.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Instead of each artefact's own: how many, or a list.")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Folder with the folders of public traces, such as google-2011."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for pictures, numbers and the side-by-side table.")
    ] = Path("reproduced"),
    jobs: Jobs = -1,
    backend: BackendName = "loky",
    address: Address = None,
    check: Annotated[
        bool, typer.Option("--check", help="Fail where a result is not the committed one.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Commit the results as those to find again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce figures and tables of the papers, beside the papers' own numbers.

    Stopped, it goes on where it was when it is started again.
    """
    from gangwise.experiments.store import read_provenance, write_provenance
    from gangwise.reproduce import PAPERS, artefacts
    from gangwise.reproduce.artefact import Scale
    from gangwise.reproduce.expected import (
        differences,
        different_seeds,
        read_totals,
        write,
        write_totals,
    )
    from gangwise.reproduce.run import reproduce

    if paper is None and not everything:
        raise ScenarioError(f"name a paper ({', '.join(PAPERS)}), or give --all for all of them")
    wanted = [
        f"{kind}-{n}"
        for kind, given in (("figure", figure), ("table", table), ("theorem", theorem))
        for n in given or []
    ]
    if everything and wanted:
        raise ScenarioError(f"--all, or {wanted[0]} alone: give one of the two")
    if traces is not None and not traces.is_dir():
        raise ScenarioError(f"--traces {traces}: there is no such folder")
    if accept and seeds:
        raise ScenarioError("results to commit are of the artefacts' own seeds: leave out --seeds")
    found = [a for name in ([paper] if paper else PAPERS) for a in artefacts(name)]
    if wanted:
        found = _chosen(found, wanted)
    chosen = tuple(seed_list(seeds)) if seeds else None
    again = command_line()
    with progress(f"every finished run is stored\nto go on: {again}") as tell:
        done = reproduce(found, Scale(quick, chosen, traces), out, jobs, backend, address, tell)
    before = read_provenance(out, "reproduction") if done.joined else None
    commands = before.command.splitlines() if before else []
    commands.append(again)
    write_provenance(out, "reproduction", "\n".join(dict.fromkeys(commands)))
    for stem, why in done.left_out.items():
        say(f"left out {stem}: {why}")
    if as_json:
        rows = [row.as_dict() for row in done.rows]
        print(json_text({"rows": rows, "left_out": done.left_out}))
    else:
        _print_reproduced(done.rows)
        say(f"{len(done.written)} files in {out}; gangwise report {out} makes a page of them")
    if accept:
        say(f"committed to {write(done.rows, quick)} and {write_totals(done.totals, quick)}")
    elif check:
        changed = differences(done.rows, quick) + different_seeds(done.totals, quick)
        for text in changed:
            say(f"changed: {text}")
        if changed:
            raise typer.Exit(1)
        known = len(done.totals.keys() & read_totals(quick).keys())
        say(
            f"all {len(done.rows)} results are where they were committed, "
            f"in {known} of {len(done.totals)} experiments seed by seed"
        )


def _chosen(artefacts: Sequence[Artefact], wanted: Sequence[str]) -> list[Artefact]:
    known = list(dict.fromkeys(a.name for a in artefacts))
    for name in wanted:
        if not any(_is(name, other) for other in known):
            of = " or ".join(dict.fromkeys(a.paper for a in artefacts))
            raise UnknownName(f"figure, table or theorem of {of}", name, known)
    return [a for a in artefacts if any(_is(name, a.name) for name in wanted)]


def _is(wanted: str, name: str) -> bool:
    """Whether an artefact is the one wanted, or a panel or a version of it."""
    return name == wanted or (name.startswith(wanted) and not name[len(wanted)].isdigit())


def _print_reproduced(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gangwise.reproduce.expected import counts, over_readings

    table = Table(box=None, pad_edge=False)
    for name in ("where", "what", "the paper", "version", "ours", ""):
        table.add_column(name, justify="right" if name in ("the paper", "ours") else "left")
    rows = over_readings(rows)
    for row in rows:
        said = (f"{row.paper} {row.artefact}", row.says, str(row.number), row.version, row.text)
        table.add_row(*map(Text, said), Text(row.verdict, _COLOURS[row.verdict]))
    Console().print(table)
    told = ("agrees", "uncompared")
    for why in dict.fromkeys(row.why for row in rows if row.verdict not in told and row.why):
        Console().print(f"why not: {why}", markup=False, highlight=False, soft_wrap=True)
    Console().print(counts(rows), markup=False, highlight=False, soft_wrap=True)

"""``gangwise tune``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangwise.cli.options import Json, Settings, Slots, say, seed_list, settings_of
from gangwise.cli.progress import command_line, progress

if TYPE_CHECKING:
    from gangwise.experiments.tuning import Tuning

__all__ = ["tune_command"]

SHOWN = 5


def tune_command(
    scenario: Annotated[
        str,
        typer.Argument(help="A scenario (see: gangwise list), or a scenario file (.toml)."),
    ],
    policy: Annotated[str, typer.Argument(help="A policy, as in: ogasched-react:steps=5")],
    knob: Annotated[
        list[str],
        typer.Option(
            help="What to tune, may be repeated: fraction=0.05:0.8:log, steps=1:20:int, "
            "estimator=decay|window."
        ),
    ],
    settings: Settings = None,
    trials: Annotated[int, typer.Option(help="In all, with those of an earlier start.")] = 30,
    seeds: Annotated[
        str, typer.Option(help="What trials are judged by: a list.")
    ] = "1000,1001,1002",
    validation: Annotated[
        str, typer.Option(help="What the best is compared with the default on: other seeds.")
    ] = ",".join(map(str, range(2000, 2010))),
    slots: Slots = None,
    metric: Annotated[str, typer.Option(help="What to tune for.")] = "reward.mean",
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
    from gangwise.experiments.provenance import write_provenance
    from gangwise.experiments.tune import tune

    folder = Path("tuned", parse(policy)[0]) if out is None else out
    again = command_line()
    with progress(f"every finished trial is stored\nto go on: {again}") as tell:
        tuning = tune(
            scenario, policy, knob, folder, settings_of(settings), trials, seed_list(seeds),
            seed_list(validation, "--validation"), slots, metric, minimise, jobs, tell,
        )  # fmt: skip
    for name in ("tuning", "validation"):
        if (folder / f"{name}.plan.json").exists():
            write_provenance(folder, name, again)
    if as_json:
        print(json.dumps(tuning.as_dict(), indent=2, allow_nan=False))
        return
    _print(tuning)
    say(f"{len(tuning.trials)} trials in {folder}; gangwise report {folder} shows all")


def _print(tuning: Tuning) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("trial")
    for name in (*tuning.default.arguments, tuning.metric):
        table.add_column(name, justify="right")
    shown = list(tuning.trials[:SHOWN])
    if tuning.default not in shown:
        shown.append(tuning.default)
    for trial in shown:
        told = (f"{v:.4g}" if isinstance(v, float) else str(v) for v in trial.arguments.values())
        name = "default" if trial == tuning.default else str(trial.number)
        table.add_row(name, *told, f"{trial.value:.5g}")
    console = Console()
    console.print(table)
    text = tuning.sentence
    console.print(f"{text[0].upper()}{text[1:]}.", highlight=False, markup=False, soft_wrap=True)

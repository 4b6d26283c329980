"""The ``gangwise`` command: parses, calls, prints.

Results go to standard output, progress and messages to standard error. A module per group of
commands; what they share is in :mod:`gangwise.cli.options`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import gangwise
from gangwise.cli.compare import compare_command, run_command
from gangwise.cli.experiments import report_command, reproduce_command, sweep_command, tune_command
from gangwise.cli.jobs import jobs_command
from gangwise.cli.listing import list_command
from gangwise.cli.options import say
from gangwise.cli.trace import trace_app
from gangwise.core.errors import GangwiseError

__all__ = ["app", "main"]

app = typer.Typer(
    name="gangwise",
    help="Schedulers that learn, for jobs that need many servers at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(gangwise.__version__)
        raise typer.Exit


app.command("compare")(compare_command)
app.command("run")(run_command)
app.command("sweep")(sweep_command)
app.command("report")(report_command)
app.command("reproduce")(reproduce_command)
app.command("tune")(tune_command)
app.command("list")(list_command)
app.command("jobs")(jobs_command)
app.add_typer(trace_app, name="trace")


def main() -> None:
    """Entry point: known errors end in one line and exit code 2."""
    try:
        app()
    except GangwiseError as error:
        say(f"gangwise: {error}")
        sys.exit(2)

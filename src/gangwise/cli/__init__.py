"""The ``gangwise`` command: parses, calls, prints.

Results go to standard output, progress and messages to standard error. A module per group of
commands; what they share is in :mod:`gangwise.cli.options`.
"""

from __future__ import annotations

import platform
import re
import sys
import tempfile
import traceback
from importlib.metadata import requires
from importlib.metadata import version as version_of
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import gangwise
from gangwise.cli.compare import compare_command, run_command
from gangwise.cli.experiments import report_command, reproduce_command, sweep_command, tune_command
from gangwise.cli.files import clean_command, verify_command
from gangwise.cli.jobs import jobs_command
from gangwise.cli.listing import list_command, show_command
from gangwise.cli.new import new_command
from gangwise.cli.options import say
from gangwise.cli.replay import replay_command
from gangwise.cli.trace import trace_app
from gangwise.core.errors import GangwiseError
from gangwise.core.interrupt import exit_code, stop_at_once
from gangwise.core.json_text import json_text

__all__ = ["app", "main"]


class Commands(TyperGroup):
    """Commands that end when they are told to, whatever they are at, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; click would end it with "Aborted." and code 1."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            say("gangwise: interrupted")
            raise typer.Exit(exit_code(stop)) from None
        except EOFError as error:  # the same here: not the user's doing
            raise RuntimeError(f"unexpected end of a file: {error}") from error


app = typer.Typer(
    cls=Commands,
    name="gangwise",
    help="Schedulers that learn, for jobs that need many servers at once.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --version: of all that numbers depend on.")
    ] = False,
) -> None:
    if version:
        print(json_text(_versions()) if as_json else gangwise.__version__)
        raise typer.Exit


def _versions() -> dict[str, str]:
    """Versions of gangwise, Python, the platform, and the packages that gangwise needs."""
    found = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    found["platform"] = platform.platform()
    for needed in requires("gangwise") or ():
        if "extra ==" not in needed:
            name = re.split(r"[^A-Za-z0-9._-]", needed)[0]
            found[name] = version_of(name)
    return found


app.command("compare")(compare_command)
app.command("run")(run_command)
app.command("replay")(replay_command)
app.command("sweep")(sweep_command)
app.command("report")(report_command)
app.command("reproduce")(reproduce_command)
app.command("tune")(tune_command)
app.command("new")(new_command)
app.command("list")(list_command)
app.command("show")(show_command)
app.command("jobs")(jobs_command)
app.command("verify")(verify_command)
app.command("clean")(clean_command)
app.add_typer(trace_app, name="trace")


def main() -> None:
    """Entry point: known errors end in one line and exit code 2, being stopped in 130 or 143."""
    stop_at_once()
    try:
        app()
    except GangwiseError as error:
        say(f"gangwise: {error}")
        sys.exit(2)
    except Exception as error:
        say(f"gangwise: internal error, please report: {type(error).__name__}: {error}")
        say(_kept(error))
        sys.exit(70)


def _kept(error: Exception) -> str:
    """Keep what a report needs in a file; says where."""
    text = "".join(traceback.format_exception(error))
    about = f"gangwise {gangwise.__version__}, Python {sys.version}, {sys.platform}\n{sys.argv}\n"
    try:
        handle, path = tempfile.mkstemp(prefix="gangwise-error-", suffix=".txt")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(about + text)
    except OSError:
        return text
    return f"what happened is in {path}"

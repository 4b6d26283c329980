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
from gangwise.cli.check import check_command
from gangwise.cli.compare import compare_command, run_command
from gangwise.cli.experiments import report_command, reproduce_command, sweep_command, tune_command
from gangwise.cli.explain import explain_command
from gangwise.cli.files import clean_command, verify_command
from gangwise.cli.jobs import jobs_command
from gangwise.cli.listing import list_command, show_command
from gangwise.cli.new import new_command
from gangwise.cli.options import say
from gangwise.cli.replay import demo_command, replay_command
from gangwise.cli.serve import account_command, rank_command, serve_command, top_command
from gangwise.cli.trace import trace_app
from gangwise.cli.watch import watch_command
from gangwise.core.errors import GangwiseError
from gangwise.core.interrupt import exit_code, stop_at_once, stops_kept
from gangwise.core.json_text import json_text

__all__ = ["app", "main"]


class Commands(TyperGroup):
    """Commands that end when they are told to, whatever they are at, without a traceback."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; click would end it with "Aborted." and code 1."""
        try:
            with stops_kept():
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


JOBS, LIVE, SLOTS = "Jobs of a cluster", "A live cluster", "Slots of the papers"
FOLDERS, MORE = "Folders", "More"

for _panel, _command, _example in (
    (JOBS, demo_command, "gangwise demo"),
    (JOBS, jobs_command, "gangwise jobs jobs.swf"),
    (JOBS, replay_command, "gangwise replay jobs.swf --policies fcfs+easy+best-fit,sjf+easy"),
    (LIVE, serve_command, "gangwise serve --engine local --shadow"),
    (LIVE, top_command, "gangwise top"),
    (LIVE, account_command, "gangwise account"),
    (SLOTS, compare_command, "gangwise compare ogasched-default-v1 --policies drf,greedy"),
    (SLOTS, run_command, "gangwise run esdp-default-v1 thompson-beta --versus omniscient"),
    (SLOTS, sweep_command, "gangwise sweep experiment.toml --out results"),
    (SLOTS, tune_command, "gangwise tune opm-default-v1 opm --range eta=0.01:1:log"),
    (SLOTS, reproduce_command, "gangwise reproduce opm --quick --out reproduced"),
    (FOLDERS, report_command, "gangwise report results"),
    (FOLDERS, watch_command, "gangwise watch results"),
    (FOLDERS, explain_command, "gangwise explain results --slot 100"),
    (FOLDERS, verify_command, "gangwise verify results"),
    (FOLDERS, clean_command, "gangwise clean results"),
    (MORE, list_command, "gangwise list --family gain_overhead"),
    (MORE, show_command, 'gangwise show "OGASched (9)"'),
    (MORE, new_command, "gangwise new scheduler LongestWait"),
    (MORE, check_command, "gangwise check my_policy.py:MyPolicy"),
):
    app.command(
        _command.__name__.removesuffix("_command"),
        rich_help_panel=_panel,
        epilog=f"Example: {_example}",
    )(_command)
app.command(
    "rank",
    rich_help_panel=LIVE,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    epilog="Example: gangwise rank -- python train.py",
)(rank_command)
app.add_typer(trace_app, name="trace", rich_help_panel=JOBS)


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

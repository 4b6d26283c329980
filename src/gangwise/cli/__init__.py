"""The ``gangwise`` command: parses, calls, prints.

Results go to standard output, progress and messages to standard error. A command is a function
``NAME_command``; its options are described in ``commands.toml``, in plain words.
"""

from __future__ import annotations

import atexit
import gc
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
from gangwise.cli import experiments, folders, logs, serve
from gangwise.cli.options import add_command, echo, say
from gangwise.core.errors import GangwiseError, papers_wing
from gangwise.core.terminal import exit_code, stop_at_once, stops_kept

__all__ = ["app", "main"]

UsageError: Any = typer.BadParameter.__base__  # typer brings it along, under no name of its own


class Commands(TyperGroup):
    """Commands that stop on Ctrl-C or SIGTERM without a traceback, whatever they are doing."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with stops_kept():
                return super().invoke(ctx)
        except UsageError as error:  # one line, as every other refusal
            # The checker's own words, cut to what is to be given.
            text = re.sub(r"Input should be (.*?),.*", r"give \1", error.format_message())
            text = text.replace("Value error, ", "")
            command = (error.ctx or ctx).command_path
            say(f"gangwise: {text.rstrip('.')}; see {command} --help")
            raise typer.Exit(2) from None
        except KeyboardInterrupt as stop:
            say("gangwise: interrupted")
            raise typer.Exit(exit_code(stop)) from None
        # Click takes it for the end of input at a prompt; here a file has ended too early.
        except EOFError as error:
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
        bool,
        typer.Option(
            "--json", help="With --version: also of Python and the packages that results depend on."
        ),
    ] = False,
) -> None:
    if not version:
        return
    from gangwise.core.settings import json_text

    versions = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    versions["platform"] = platform.platform()
    for needed in requires("gangwise") or () if as_json else ():
        # What every installation has; extras are left out.
        if "extra ==" not in needed:
            name = re.split(r"[^A-Za-z0-9._-]", needed)[0]
            versions[name] = version_of(name)
    echo(json_text(versions) if as_json else gangwise.__version__)
    raise typer.Exit


for _module, _names in (  # in the order of the help
    (logs, "demo"),
    (logs, "jobs nodes"),
    (logs, "calibrate replay what_if audit forecast"),
    (experiments, "leaderboard"),
    (serve, "serve top account detach doctor"),
    (experiments, "compare run sweep tune reproduce report"),
    (folders, "explain verify clean list show new check"),
):
    for _name in _names.split():
        add_command(app, getattr(_module, f"{_name}_command"))
app.command(
    "rank",
    rich_help_panel="A live cluster",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
    epilog="Example: gangwise rank -- python train.py",
)(serve.rank_command)
app.add_typer(logs.trace_app, name="trace", rich_help_panel="Jobs of a cluster")


def main() -> None:
    """Entry point: known errors end in one line and exit code 2, being stopped in 130 or 143."""
    # Before anything is loaded that takes long.
    stop_at_once()
    gc.set_threshold(100_000)  # of objects, few are garbage: the default spends a tenth on looking
    atexit.register(gc.freeze)  # the process ends: to look for garbage once more takes 0.3 seconds
    try:
        with papers_wing():
            app()
    except GangwiseError as error:
        say(f"gangwise: {error}")
        sys.exit(2)
    except Exception as error:
        say(f"gangwise: internal error, please report: {type(error).__name__}: {error}")
        say(_written_report(error))
        # EX_SOFTWARE of sysexits.h.
        sys.exit(70)


def _written_report(error: Exception) -> str:
    """A sentence that says where the traceback is; the traceback itself if it cannot be written."""
    text = "".join(traceback.format_exception(error))
    about = f"gangwise {gangwise.__version__}, Python {sys.version}, {sys.platform}\n{sys.argv}\n"
    try:
        handle, path = tempfile.mkstemp(prefix="gangwise-error-", suffix=".txt")
        with open(handle, "w", encoding="utf-8") as file:
            file.write(about + text)
    except OSError:
        return text
    return f"what happened is in {path}"

"""``gangwise trace``: look at traces, convert them, draw them."""

from __future__ import annotations

import typer

from gangwise.cli.trace_convert import convert_command
from gangwise.cli.trace_inspect import inspect_command
from gangwise.cli.trace_list import list_command
from gangwise.cli.trace_plot import plot_command
from gangwise.cli.trace_workload import workload_command

__all__ = ["trace_app"]

trace_app = typer.Typer(help="Look at traces, convert them, draw them.", no_args_is_help=True)
trace_app.command("list")(list_command)
trace_app.command("inspect")(inspect_command)
trace_app.command("convert")(convert_command)
trace_app.command("plot")(plot_command)
trace_app.command("workload")(workload_command)

"""``gangwise trace``: list, inspect, convert and plot traces, and see what workload they become."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from gangwise.cli import completion
from gangwise.cli.options import Family, Json, Settings, say, settings_of
from gangwise.core.errors import StoreError
from gangwise.core.interrupt import Stopped, exit_code, requests_to_stop

TracePath = Annotated[
    Path,
    typer.Argument(
        metavar="PATH",
        help="A folder with files of a trace, or one of them; a "
        "converted trace; tables that trace workload wrote; or twin:NAME.",
        show_default=False,
    ),
]
TraceName = Annotated[
    str,
    typer.Option(
        "--trace",
        metavar="NAME",
        help="The format, when it is not to be recognised (trace list).",
        autocompletion=completion.trace_names,
    ),
]
ReaderSettings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An argument of the reader, or of the twin."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at the first bad row, and name it.")]


def inspect_command(
    path: TracePath,
    settings: ReaderSettings = None,
    strict: Strict = False,
    everything: Annotated[
        bool,
        typer.Option("--all", help="Read all rows also of large traces, not only their start."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Which trace it is, its tables, rows and load, what is missing and what was left out."""
    from gangwise.traces.inspect import inspect

    with reading_bar("reading") as tell:
        found = inspect(
            path, strict=strict, everything=everything, progress=tell, **settings_of(settings)
        )
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(found)
    if not found.usable:
        say("gangwise: nothing here can be used")
        raise typer.Exit(1)


def convert_command(
    path: TracePath,
    out: Annotated[
        Path,
        typer.Argument(
            metavar="OUT",
            help="An empty folder, or one that is not there yet; or that of a conversion that was "
            "stopped; or a file .swf or .swf.gz, for the jobs in the Standard Workload Format.",
            show_default=False,
        ),
    ],
    trace: TraceName = "",
    strict: Strict = False,
    as_json: Json = False,
) -> None:
    """Convert a trace to Parquet, in constant memory; or its jobs to SWF.

    Stopped, or killed, it goes on where it was when it is started again.
    """
    if out.name.endswith((".swf", ".swf.gz")):
        from gangwise.traces.jobs import open_jobs, save_swf

        log = open_jobs(path, trace=trace, strict=strict)
        save_swf(log, out)
        print(json.dumps(log.played.to_dict(), indent=2) if as_json else log.played.line)
        say(f"wrote {len(log.jobs):,} jobs to {out}")
        return
    from gangwise.traces.convert import convert

    try:
        with reading_bar("converting") as tell:
            made = convert(path, out, trace=trace, strict=strict, progress=tell)
    except KeyboardInterrupt as stop:
        say("gangwise: interrupted; what is converted is stored")
        say(f"to go on: {shlex.join(['gangwise', *sys.argv[1:]])}")
        raise typer.Exit(exit_code(stop)) from None
    if as_json:
        print(json.dumps(made.to_dict(), indent=2, ensure_ascii=False))
    else:
        print(made)
    if made.resumed:
        say("part of it was converted before")


def list_command(as_json: Json = False) -> None:
    """Every trace format: what it is, where it is published, and its tables."""
    from gangwise.traces.registered import described

    found = described()
    if as_json:
        print(json.dumps({"traces": found}, indent=2, ensure_ascii=False))
        return
    for trace in found:
        print("\n".join(_lines(trace)), end="\n\n")


def _lines(trace: dict[str, Any]) -> list[str]:
    lines = [f"{trace['name']}: {trace['title']}"]
    rows = [
        ("what", trace["summary"]),
        ("published", trace["published"]),
        ("licence", trace["licence"]),
        ("span", trace["span"] or "not stated"),
        ("size", trace["size"] or "not stated"),
    ]
    checksums = trace["checksums"] or "not published"
    if trace["licence"] == "your own":
        checksums = "none: the files are your own"
    if trace["sha256"]:
        checksums = f"SHA-256, from {trace['checksums']}"
    rows.append(("checksums", checksums))
    lines += [f"  {key:<11s}{text}" for key, text in rows]
    lines += [f"    {digest}  {file}" for file, digest in trace["sha256"].items()]
    for table in trace["tables"]:
        about = [table["gives"] or "not used yet"] + ["needed"] * table["needed"]
        about += ["in parts"] * table["parts"]
        lines.append(f"  table      {table['name']}: {'; '.join(about)}")
    return lines


def plot_command(
    path: TracePath,
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("trace-pictures"),
    settings: ReaderSettings = None,
    trace: TraceName = "",
    strict: Strict = False,
) -> None:
    """Draw arrivals, request sizes, lifetimes and load, as PNG and SVG."""
    from gangwise.report.traces import draw_trace
    from gangwise.traces import open_tables

    tables = open_tables(path, trace=trace, strict=strict, **settings_of(settings))
    try:
        out.mkdir(parents=True, exist_ok=True)
        drawn = draw_trace(tables, out)
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror or error}") from error
    for stem, caption in drawn.captions.items():
        print(f"{stem}: {caption}")
    for stem, why in drawn.left_out.items():
        say(f"left out {stem}: {why}")
    say(f"wrote {len(drawn.captions)} pictures, as PNG and SVG, to {out}")


PATIENCE = 2.0
"""Seconds before the bar is shown."""


@contextmanager
def reading_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with bytes done and bytes in all; draws on standard error.

    Where it is called, Ctrl-C and SIGTERM are heard, and nowhere else: compiled code that reads
    would drop them.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task, begun, shown = bar.add_task(what), time.monotonic(), False

    def tell(done: int, of: int) -> None:
        nonlocal shown
        if stop.is_set():
            raise Stopped(number=stop.signal)
        bar.update(task, completed=done, total=of)
        if not shown and time.monotonic() - begun > PATIENCE:
            bar.start()
            shown = True

    with requests_to_stop() as stop:
        try:
            yield tell
        finally:
            if shown:
                bar.stop()


def workload_command(
    path: TracePath,
    family: Family = None,
    settings: Settings = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the tables, as Parquet, and scenario.toml, which compare plays again."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """What a trace becomes: job types, channels, arrivals per slot, lifetimes and load."""
    from gangwise.traces.slots.opening import open_trace, outline

    given = settings_of(settings, family)
    scenario = open_trace(path, **given)
    found = outline(scenario)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(found.to_dict())
        print(scenario.fidelity())  # type: ignore[attr-defined]  # every scenario of a trace has one
    if out is not None:
        from gangwise.traces.slots.opening import write_outline

        try:
            written = write_outline(scenario, found, path, given, out)
        except OSError as error:
            raise StoreError(f"cannot write {out}: {error.strerror or error}") from error
        say(f"wrote {', '.join(file.name for file in written)} to {out}")
        say(f"to play it: gangwise compare {out / 'scenario.toml'}")


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"{found['scenario']}: {found['family']}")
    for key, value in found["numbers"].items():
        console.print(f"  {key.replace('_', ' '):<24s}{_text(value)}", highlight=False)
    if found["job_types"]:
        table = Table(box=None, pad_edge=False)
        for name in found["job_types"][0]:
            first = name == "job_type"
            table.add_column(
                name.replace("_", " "),
                justify="left" if first else "right",
                overflow="fold" if first else "ellipsis",
                min_width=16 if first else None,
            )
        for row in found["job_types"]:
            table.add_row(*(_text(value) for value in row.values()))
        console.print(table)


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def guess_command(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A CSV or JSON file that no format reads.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(help="Write the mapping here, not on the screen.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Draft a mapping for an unknown file, with the load under each reading of it.

    What is printed is the mapping itself; what was assumed is in its comments.
    """
    import os

    from gangwise.traces.guess import guess

    found = guess(file)
    if as_json:
        print(json.dumps(found.to_dict(), indent=2, ensure_ascii=False, allow_nan=False))
    if out is None:
        if not as_json:
            print(found.toml(), end="")
        return
    text = found.toml(os.path.relpath(file.resolve(), out.resolve().parent))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreError(f"cannot write {out}: {error.strerror or error}") from error
    say(f"wrote {out}; read it, choose, correct; then: gangwise jobs {out}")


trace_app = typer.Typer(help="Look at traces, convert them, draw them.", no_args_is_help=True)
for _command, _example in (
    (list_command, "gangwise trace list"),
    (inspect_command, "gangwise trace inspect path/to/download"),
    (guess_command, "gangwise trace guess my-log.csv"),
    (convert_command, "gangwise trace convert path/to/download jobs.swf"),
    (plot_command, "gangwise trace plot path/to/download --out pictures"),
    (workload_command, "gangwise trace workload path/to/download --family gain_overhead"),
):
    trace_app.command(_command.__name__.removesuffix("_command"), epilog=f"Example: {_example}")(
        _command
    )

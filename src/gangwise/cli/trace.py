"""``gangwise trace``: formats, what is in a trace, pictures; ``gangwise jobs``: jobs of a log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gangwise.cli import options
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.files import as_store_error

if TYPE_CHECKING:
    from gangwise.report.page import Page

NOTHING_KEPT = "nothing is kept"


def inspect_command(
    path: Path,
    settings: list[str] | None = None,
    strict: bool = False,
    everything: bool = False,
    as_json: bool = False,
) -> None:
    """Recognise a trace: its tables, rows and load, what is missing and what was left out."""
    from gangwise.logs.inspect import inspect

    # Reading compiles no kernels, so the bar is not kept for that.
    with options.progress(NOTHING_KEPT, compiles=False):
        report = inspect(
            path, strict=strict, everything=everything, **options.settings_of(settings)
        )
    options.echo(options.json_text(report.to_dict()) if as_json else report)
    if not report.usable:
        options.say("gangwise: nothing here can be used")
        raise typer.Exit(1)


def convert_command(
    path: Path,
    out: Path,
    settings: list[str] | None = None,
    trace: str = "",
    strict: bool = False,
    as_json: bool = False,
) -> None:
    """Write servers and jobs of a trace as Parquet, which every command reads; or jobs as SWF."""
    values = options.settings_of(settings)
    if out.exists() and path.exists() and out.samefile(path):
        raise StoreError(f"{out} is the trace itself; give another name")
    if out.suffix in (".csv", ".json", ".parquet", ".txt", ".xls", ".xlsx"):
        raise StoreError(f"{out}: give a folder, or a name that ends in .swf or .swf.gz")
    # The ending tells what is written: one file of jobs, or a folder of tables.
    if out.name.endswith((".swf", ".swf.gz")):
        from gangwise.logs import jobs

        with options.progress(NOTHING_KEPT, compiles=False):
            log = jobs.open_jobs(path, trace=trace, strict=strict, **values)
        # All jobs are in memory before the file is touched: it may be the log itself.
        jobs.save_swf(log, out)
        options.echo(options.json_text(log.played.to_dict()) if as_json else log.played.line)
        options.say(f"wrote {len(log.jobs):,} jobs to {out}")
        return
    from gangwise.logs import open_tables
    from gangwise.logs.format import SAVED
    from gangwise.logs.tables import of_tables, save_tables

    with options.progress(NOTHING_KEPT, compiles=False):
        tables = open_tables(path, trace=trace, strict=strict, **values)
    # Everything is read before anything is written, as the folder may hold the source.
    with as_store_error("write", out):
        names = sorted(item.name for item in out.iterdir()) if out.exists() else []
        # What an earlier conversion has written is written over.
        if names and SAVED not in names:
            raise StoreError(f"{out} holds something else ({names[0]}); choose an empty folder")
        files = save_tables(tables, out)
    options.echo(options.json_text(of_tables(tables).to_dict()) if as_json else of_tables(tables))
    options.say(f"wrote {', '.join(file.name for file in files)} to {out}")


def list_command(as_json: bool = False) -> None:
    """List the trace formats: what each is, where it is published, and its tables."""
    from gangwise.logs import described

    formats = described()
    if as_json:
        options.echo(options.json_text({"traces": formats}))
        return
    for trace in formats:
        options.echo(f"{trace['name']}: {trace['title']}\n  what       {trace['summary']}")
        for key in ("published", "licence", "span", "size"):
            options.echo(f"  {key:<11s}{trace[key] or 'not stated'}")
        checksums = trace["checksums"] or "not published"
        # Nobody has published digests of files of one's own.
        if trace["licence"] == "your own":
            checksums = "none: the files are your own"
        elif trace["sha256"]:
            checksums = f"SHA-256, from {trace['checksums']}"
        options.echo(f"  checksums  {checksums}")
        for file, digest in trace["sha256"].items():
            options.echo(f"    {digest}  {file}")
        for part in trace["tables"]:
            about = [part["gives"] or "not used yet"] + ["needed"] * part["needed"]
            about += ["in parts"] * part["parts"]
            options.echo(f"  table      {part['name']}: {'; '.join(about)}")
        options.echo()


def plot_command(
    path: Path,
    out: Path = Path("trace-pictures"),
    settings: list[str] | None = None,
    trace: str = "",
    strict: bool = False,
) -> None:
    """Draw arrivals, request sizes, lifetimes and load, as PNG and SVG."""
    from gangwise.logs import open_tables
    from gangwise.report.charts import draw_trace

    with options.progress(NOTHING_KEPT, compiles=False):
        tables = open_tables(path, trace=trace, strict=strict, **options.settings_of(settings))
    with as_store_error("write", out):
        out.mkdir(parents=True, exist_ok=True)
        captions, left_out = draw_trace(tables, out)
    for stem, caption in captions.items():
        options.echo(f"{stem}: {caption}")
    for stem, reason in left_out.items():
        options.say(f"left out {stem}: {reason}")
    options.say(f"wrote {len(captions)} pictures, as PNG and SVG, to {out}")


def workload_command(
    path: Path,
    family: str | None = None,
    settings: list[str] | None = None,
    out: Path | None = None,
    as_json: bool = False,
) -> None:
    """Show the workload that a trace becomes: job types, channels, arrivals, lifetimes, load."""
    from gangwise.papers.scenarios.opening import open_trace, outline, write_outline

    values = options.settings_of(settings, family)
    with options.progress(NOTHING_KEPT, compiles=False):
        scenario = open_trace(path, **values)
        summary = outline(scenario)
    about = summary.to_dict()
    if as_json:
        options.echo(options.json_text(about))
    else:
        console = options.screen(wide=False)
        console.print(f"{about['scenario']}: {about['family']}")
        for key, value in about["numbers"].items():
            console.print(f"  {key.replace('_', ' '):<24s}{_text(value)}", highlight=False)
        if types := about["job_types"]:
            rows = [[*map(_text, row.values())] for row in types]
            console.print(options.table([name.replace("_", " ") for name in types[0]], rows))
        options.echo(scenario.fidelity())  # type: ignore[attr-defined]  # every scenario of a trace has one
    if out is not None:
        with as_store_error("write", out):
            files = write_outline(scenario, summary, path, values, out)
        options.say(f"wrote {', '.join(file.name for file in files)} to {out}")
        options.say(f"to play it: gangwise compare {out / 'scenario.toml'}")


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "-" if value is None else str(value)


def guess_command(file: Path, out: Path | None = None, as_json: bool = False) -> None:
    """Draft a mapping for an unknown file, with the load under each reading of it.

    It prints the mapping itself, whose comments say what was assumed.
    """
    import os

    from gangwise.logs import jobs
    from gangwise.logs.guess import guess

    draft = guess(file, jobs.doubts_of)
    if as_json:
        options.echo(options.json_text(draft.to_dict()))
    # As JSON the draft was printed; the mapping itself is for a file.
    if out is None:
        if not as_json:
            options.echo(draft.toml(), end="")
        return
    # Relative to the mapping, as it is read.
    text = draft.toml(os.path.relpath(file.resolve(), out.resolve().parent))
    with as_store_error("write", out):
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    options.say(f"wrote {out}; read it, choose, correct; then: gangwise jobs {out}")


trace_app = typer.Typer(help="Look at traces, convert them, draw them.", no_args_is_help=True)


for _command in (
    *(list_command, inspect_command, guess_command),
    *(convert_command, plot_command, workload_command),
):
    options.add_command(trace_app, _command, "trace ")


def jobs_command(
    path: Path,
    job_type: str = "",
    out: Path | None = None,
    settings: list[str] | None = None,
    trace: str = "",
    strict: bool = False,
    as_json: bool = False,
) -> None:
    """Describe the jobs of a log: what can be replayed, load, sizes, waits, run times, users."""
    from gangwise.logs import jobs, open_tables
    from gangwise.logs.inspect import report, summary

    options.require_folder(out)
    # Reading compiles nothing, and the compiler takes a second to load.
    with options.progress(NOTHING_KEPT, compiles=False):
        tables = open_tables(path, trace=trace, strict=strict, **options.settings_of(settings))
    log = jobs.jobs_of(tables, job_type=job_type)
    facts = summary(log, tables)

    def page(command: str) -> Page:
        from gangwise.report.answers import jobs_page

        return jobs_page(path.name, facts, log.played, command)

    data = {"played": log.played.to_dict(), **facts}
    options.give("jobs", data, lambda: options.echo(report(log, facts)), page, out, as_json)


def nodes_command(
    path: Path,
    by: float = 0.01,
    topology: Path | None = None,
    out: Path | None = None,
    settings: list[str] | None = None,
    trace: str = "",
    strict: bool = False,
    as_json: bool = False,
) -> None:
    """Find slow nodes in a log with node lists: how unlike nodes are, and which changed when."""
    from gangwise.report.charts import node_page, node_text
    from gangwise.study.findings import find_slow_nodes

    # A share of 10 and more would find nothing, and most likely meant per cent.
    if not 0 <= by < 10:
        raise ScenarioError(f"--by {by:g}: give a share, such as 0.05")
    options.require_folder(out)
    knobs = options.settings_of(settings)
    with options.progress("nothing is kept") as advance:
        result = find_slow_nodes(
            path, trace=trace, by=by, topology=topology, progress=advance, strict=strict, **knobs
        )
    page = partial(node_page, result, path.name)
    show = partial(options.screen().print, node_text(result))
    options.give("nodes", result.as_dict(), show, page, out, as_json)

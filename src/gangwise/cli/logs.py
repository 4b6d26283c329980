"""Commands about logs: ``trace``, ``jobs``, ``replay``, ``what-if``, ``forecast``, ``calibrate``.

``trace`` says which formats there are, what is in a trace, and draws it; ``jobs`` shows the jobs of
a log. The others play them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from gangwise.cli import options
from gangwise.core.errors import ScenarioError, StoreError
from gangwise.core.files import as_store_error
from gangwise.core.registry import names_of

if TYPE_CHECKING:
    from gangwise.report.page import Page
    from gangwise.study.what_if import Needed

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


TWIN_SETTINGS = {"world": "unlike", "nodes": 8, "load": 0.9, "limits": "work"}
TWIN_SETTINGS |= {"longest": 100_000.0, "first": 1000}
"""Settings of the twin that is played where settings are given and no log."""

PRICE = "DEVICE=PRICE of a device-hour, such as gpu=2.1"  # how --price is written

DEMO_SCHEDULERS = (
    "fcfs+easy+label",
    "fcfs+easy+label:ends=learned",
    "fcfs+easy+learned",
    "sjf+easy+label",
    "sjf+easy+learned",
    "fcfs+easy+oracle:ends=learned",
)
"""They show what learned run times, learned speeds and another order are worth."""
DEMO_SEEDS, DEMO_STEPS = 10, 30


def replay_command(
    source: str = "",
    more: list[str] | None = None,
    policies: str | None = None,
    route: str | None = None,
    rules: str = "",
    seeds: str | None = None,
    world: str | None = None,
    load: float | None = None,
    site: str | None = None,
    bound: bool | None = None,
    out: Path | None = None,
    jobs: int = -1,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Replay a log's jobs under schedulers: waiting, completion time, and what is left to gain."""
    from gangwise.jobs.bounds import Certified
    from gangwise.report.jobs import results_of
    from gangwise.sites.site import together
    from gangwise.study import job_classes, replay_scenario
    from gangwise.study.replay import STEPS, replay, replay_source

    values = options.settings_of(settings)
    names = options.scheduler_names(policies or "")
    if policies == "":  # as of a variable that is not set
        raise ScenarioError("--policies is empty; leave it out to compare the usual six")
    # The folder of a service holds a recorded run, which is played round by round.
    if source and Path(source).is_dir():
        from gangwise.service.store import is_recording

        if is_recording(source):
            from gangwise.service.account import lines, replayed

            answer = replayed(source, names)
            options.echo(options.json_text(answer) if as_json else "\n".join(lines(answer)))
            return
    site = together(rules, site)
    named = {"world": world, "load": load, "site": site}
    # Options of their own go before --set.
    values |= {key: value for key, value in named.items() if value is not None}
    if more or route is not None:
        if rules or seeds or bound is not None:
            raise ScenarioError("--route plays no seeds and no bound: drop --as, --seeds, --bound")
        _replay_routes([source, *(more or ())], route, names, values, out, as_json)
        return
    chosen: Sequence[int] = options.seed_list(seeds) if seeds else ()
    # None leaves it to the number of jobs.
    steps = STEPS if bound else None
    if not source and values:
        # What the user sets wins over the twin's own settings.
        source, values = replay_scenario.TWIN, {**TWIN_SETTINGS, **values}
    elif not source:
        # A demonstration has its bound within seconds.
        source, steps = job_classes.DEMO, steps or DEMO_STEPS
        names, chosen = names or list(DEMO_SCHEDULERS), chosen or range(DEMO_SEEDS)
    # Before minutes of playing, not after: the folder may hold something else.
    options.require_folder(out, jobs=True)
    scenario = replay_source(source, values)
    with options.progress(options.after_stop(out)) as advance:
        # Before anything is played, as all of it would be wrong.
        for text in getattr(scenario.scenario(), "units", ()):
            options.say(f"check the units of the log: {text}")
        played = replay(scenario, names, chosen, out, jobs, advance, rules)
        # None is for the number of jobs to decide; only an explicit no saves the bound.
        bounds = [] if bound is False else played.bounds(steps, advance)
    certified = Certified.of(bounds)
    if as_json:
        options.echo(options.json_text(played.as_dict(certified)))
    else:
        results = results_of(played, certified, options.command_line())
        options.screen().print(results.terminal())
    if out is not None:
        from gangwise.report.pages import write_replay

        with options.progress(options.after_stop(out)) as advance:
            advance("page", 0, 1)
            files = write_replay(played, out, bounds, options.command_line())
        options.say(f"wrote report.html and {len(files) - 1} other files to {out}")


def _replay_routes(
    sources: Sequence[str],
    route: str | None,
    schedulers: Sequence[str],
    values: dict[str, Any],
    out: Path | None,
    as_json: bool,
) -> None:
    from gangwise.report import answers
    from gangwise.study.route import play_routes

    if len(sources) < 2 or route is None:
        text = "gangwise replay a.swf b.swf --route forecast,home"
        raise ScenarioError(f"give two logs or more and the routes between their clusters: {text}")
    if len(schedulers) > 1:
        raise ScenarioError("--route takes one scheduler, which all clusters have")
    with options.progress("nothing is kept") as advance:
        # Only a scheduler that was named replaces that of the scenario.
        values |= dict(zip(("scheduler",), schedulers))
        routed = play_routes(sources, names_of(route), progress=advance, **values)
    logs = [Path(path).name for path in sources]
    page = answers.route_page(routed, logs, options.command_line())

    sheets, heading = [answers.route_sheet(routed, logs)], f"{page.chapters[0].title}\n"
    show = partial(options.show, sheets, heading, [*routed.lines, ""])
    options.give("routes", routed.as_dict(), show, lambda _: page, out, as_json)


def demo_command(out: Path = Path("gangwise-demo")) -> None:
    """Play gangs of 1 to 16 nodes under six schedulers: seconds; the first time a minute or two."""
    replay_command(out=out)
    options.say(
        f"open {out / 'report.html'} in a browser; next, a log of your own: gangwise replay FILE"
    )


def calibrate_command(
    path: Path,
    out: Path | None = None,
    events: Path | None = None,
    trace: str = "",
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Find the pools, caps, closing hours and missing capacity that explain a log's waits."""
    from gangwise.core.files import write_whole
    from gangwise.study.findings import FILE, calibrate_log

    options.require_folder(out)
    # The file that was corrected by hand is worth more than what would be written.
    file = (out or Path()) / FILE
    if out is not None and os.path.lexists(file):
        raise StoreError(f"{file} is there already, perhaps corrected by hand; give another --out")
    with options.progress("nothing is kept") as advance:
        result = calibrate_log(path, trace, advance, events, **options.settings_of(settings))

    def page(command: str) -> Page:
        from gangwise.report.answers import calibration_page

        return calibration_page(result, command)

    options.give("calibration", result.as_dict(), lambda: options.echo(result), page, out, as_json)
    if out is not None:
        write_whole(file, result.toml())
        options.say(f"wrote {file}; read it, correct it; then: gangwise replay {path} --site {out}")


def forecast_command(
    source: str,
    at: str = "",
    scheduler: str = "fcfs+easy+best-fit",
    recorded: bool = False,
    draws: int = 100,
    from_history: bool = False,
    judge: bool = False,
    out: Path | None = None,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Say when waiting jobs will start: at the end of a log, at a time of it, or on a live cluster.

    A log that sacct or squeue print now, with jobs that still wait, ends now. For each job: the
    time by which it starts with an even chance (p50) and in nine cases of ten (p90), and when it
    would start if all jobs took as long as requested and no other came.
    """
    from gangwise.report import answers
    from gangwise.service.store import is_recording
    from gangwise.study.explain import forecast_from_history, forecast_log

    options.require_folder(out)
    # Judging compares with what came after, which only a history has.
    if judge and not from_history:
        raise ScenarioError("--judge goes with --from-history")
    judged, values = "", options.settings_of(settings)
    if from_history:
        with options.progress("nothing is kept") as advance:
            history = forecast_from_history(source, at, judge, values, advance)
        forecast, data, judged = history.found, history.as_dict(), str(history.judged or "")
    elif is_recording(source):
        from gangwise.service.account import forecast_live

        # A live service knows only now.
        if at:
            raise ScenarioError(f"{source} is of a live service: leave out --at")
        forecast = forecast_live(source)
        data = forecast.as_dict()
    else:
        with options.progress("nothing is kept") as advance:
            forecast = forecast_log(source, at or None, scheduler, recorded, draws, values, advance)
        data = forecast.as_dict()
    page = partial(answers.forecast_page, Path(source).name, forecast, judged)
    lines = filter(None, [forecast.basis, judged, " "])
    show = partial(options.show, [answers.starts_sheet(forecast)], lines=lines)
    options.give("forecast", data, show, page, out, as_json)


def what_if_command(
    source: str,
    change: list[str] | None = None,
    site: str | None = None,
    rules: str = "",
    load: float | None = None,
    world: str | None = None,
    seeds: str | None = None,
    price: list[str] | None = None,
    fail_if: list[str] | None = None,
    target: str = "",
    kinds: str = "",
    out: Path | None = None,
    jobs: int = -1,
    backend: Literal["loky", "dask", "ray"] = "loky",
    address: str | None = None,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Play your own rules on your own log, and changes beside them: who waits less, who pays.

    Nothing is applied: the last lines say what to change in the site's files.
    """
    from gangwise.report.jobs import results_of
    from gangwise.report.page import sentence_case
    from gangwise.study.replay import BASE
    from gangwise.study.sweep import Workers
    from gangwise.study.what_if import CurrentRules, Gate, as_dict, broken, capacity, what_if

    named = {"site": site, "load": load, "world": world}
    # A named option counts more than the same key in --set.
    values = options.settings_of(settings) | {
        k: value for k, value in named.items() if value is not None
    }
    # Wrong gates are refused before anything is played.
    gates = [Gate.of(text) for text in fail_if or ()]
    options.require_folder(out, jobs=True)
    if bool(target) != bool(kinds) or (target and change):
        raise ScenarioError("--target and --kinds belong together, and stand without --change")
    if not change and not target:
        raise ScenarioError(
            "name at least one --change, such as --change pool.gpu.most_time=1d, "
            "--change nodes.all+=8 or --change scheduler=sjf+easy+best-fit"
        )
    workers, listed = Workers(jobs, backend, address), options.seed_list(seeds) if seeds else ()
    prices = options.numbers_of(price, "--price", PRICE)
    current = CurrentRules(source, values, rules or BASE, listed, out, workers, prices)
    needed: list[Needed] = []
    with options.progress(options.after_stop(out)) as advance:
        if target:
            names = kinds.replace(",", " ").split()
            played, needed = capacity(current, Gate.of(target), names, advance)
        else:
            played = what_if(current, change or [], advance, gates)
    # As JSON and as a page alike, so that both have the same numbers.
    about = [need.as_dict(Gate.of(target)) for need in needed]
    results = replace(results_of(played, command=options.command_line()), capacity=about)
    reasons = broken(played.compared(), gates)
    if as_json:
        answer = as_dict(played) | {"fails": reasons}
        answer |= {"capacity": about} if target else {}
        options.echo(options.json_text(played.as_dict() | answer))
    else:
        options.screen().print(results.terminal())
        for need in needed:
            options.screen().print(f"\n{sentence_case(need.sentence(Gate.of(target)))}")
        # Numbers of nodes that were tried are no changes to be made.
        for name, lines in results.edits.items() if not target else ():
            head = "in the site's files:" if lines else "no line of a site's files"
            options.echo("\n".join([f"\n{name} changes {head}", *lines]))
    if out is not None:
        from gangwise.report.pages import write_replay

        write_replay(played, out, None, options.command_line(), about)
        options.say(f"wrote report.html and summary.json to {out}")
    for line in reasons:
        options.say(f"fails: {line}")
    # When all is shown and written: it is the gate that fails, and not the answer.
    if reasons:
        raise typer.Exit(1)


def audit_command(
    source: str,
    site: str | None = None,
    rules: str = "",
    queues: Path | None = None,
    price: list[str] | None = None,
    out: Path | None = None,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Say what is asked for and not used, what shorter limits save, and who lacks its share."""
    from gangwise.report.answers import shorter_text, usage_page, usage_sheets
    from gangwise.report.page import sentence_case
    from gangwise.study.replay import BASE
    from gangwise.study.usage import audit_log

    # An empty site is that of the log itself.
    values = options.settings_of(settings) | ({"site": site} if site else {})
    with options.progress("nothing is kept") as advance:
        prices = options.numbers_of(price, "--price", PRICE)
        audit = audit_log(source, rules or BASE, values, prices, advance, queues)

    def show() -> None:
        heading = f"{sentence_case(audit.verdict)}.\n"
        options.show(usage_sheets(audit), heading, [*audit.lines, ""])
        if audit.shorter is not None:
            options.screen().print(f"\n{shorter_text(audit.shorter)}")

    options.give("audit", audit.as_dict(), show, partial(usage_page, audit), out, as_json)

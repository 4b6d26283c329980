"""Commands about logs: ``gangwise replay``, ``what-if``, ``forecast`` and ``calibrate``."""

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
from gangwise.core.registry import names_of

if TYPE_CHECKING:
    from gangwise.report.page import Page
    from gangwise.study.what_if import Needed


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

"""Commands that play experiments: ``gangwise compare``, ``run``, ``sweep``, ``tune`` and others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

import gangwise
from gangwise.cli import options
from gangwise.cli.options import table
from gangwise.core.errors import ScenarioError, UnknownName, to_install

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangwise.core import contracts, simulation
    from gangwise.papers.reproduce.expected import Reproduction
    from gangwise.papers.reproduce.papers import Artefact
    from gangwise.study.compare import Comparison
    from gangwise.study.results import Results
    from gangwise.study.runs import NamedSource
    from gangwise.study.tune import Tuning


def compare_command(
    target: str | None = None,
    trace: str | None = None,
    family: str | None = None,
    policies: str | None = None,
    slots: int | None = None,
    seeds: str = "5",
    out: Path | None = None,
    optimum_slots: int = 200,
    comparators: str | None = None,
    settings: list[str] | None = None,
    jobs: int | None = None,
    resume: bool = False,
    as_json: bool = False,
) -> None:
    """Compare policies on the same instances and arrivals; with --out also figures and a page.

    Finished runs in --out are not repeated: after a stop, or for more seeds or policies, the same
    command does the rest.
    """
    from gangwise.study.compare import AUTO, COMPARISON, compare

    options.require_folder(out, jobs=False)
    source = options.source_of(target, settings, trace, family)
    if jobs == 0:
        raise ScenarioError("--jobs is how many workers, or -1 for all cores; not 0")
    if resume:
        _require_same(source, slots, out, COMPARISON)
    listed, judges = options.seed_list(seeds), options.comparator_names(comparators)
    workers = AUTO if jobs is None else jobs
    with options.progress(options.after_stop(out)) as advance:
        arguments = source, policies, slots, listed, judges, optimum_slots, out
        comparison = compare(*arguments, progress=advance, jobs=workers)
    if as_json:
        options.echo(options.json_text(comparison.as_dict()))
    else:
        from gangwise.report.experiments import terminal_sheets, verdict

        sheets, heading = terminal_sheets(comparison.results), verdict(comparison.results)
        options.show(sheets, heading, comparison.notes, wide=False)
    if out is not None:
        _write_pages(comparison, out)


def run_command(
    target: str | None = None,
    policy: str | None = None,
    trace: str | None = None,
    family: str | None = None,
    slots: int | None = None,
    seed: int = 0,
    out: Path | None = None,
    versus: str | None = None,
    settings: list[str] | None = None,
    resume: bool = False,
    as_json: bool = False,
) -> None:
    """Run one policy and print what it earned.

    If it is stopped or killed, start it again: it continues where it was.
    """
    from gangwise.study.compare import compare
    from gangwise.study.runs import MemoryStore

    # With --trace the only argument is the policy.
    if trace is not None and policy is None:
        target, policy = None, target
    if policy is None:
        raise ScenarioError("give a policy after the scenario or trace; see: gangwise list")
    source, file = options.source_of(target, settings, trace, family), None
    if out is not None and out.suffix:  # one file of rows instead of a folder of results
        if out.suffix not in (".parquet", ".csv"):
            raise ScenarioError(
                f"--out {out}: give a folder, or a .parquet or .csv file for per-slot rows"
            )
        file, out = out, None
    options.require_folder(out, jobs=False)
    # The rows are kept in memory, and an unfinished run beside the file.
    store: Any = out if file is None else MemoryStore(file)
    if resume and file is None:
        _require_same(source, slots, out, "run")
    elif resume and file is not None and file.exists() and not store.checkpoint("").exists():
        raise ScenarioError(
            f"{file} is finished, and --resume would only replace it: give another --out, or leave "
            "out --resume to play it again"
        )
    judges = [] if versus is None else [versus]
    with options.progress(options.after_stop(file or out)) as advance:
        # Of a single policy, a comparator may take every slot.
        arguments = source, [policy], slots, [seed], judges, None, store
        comparison = compare(*arguments, progress=advance, name="run")
    if file is not None:
        frame = comparison.frame()
        write = frame.write_csv if file.suffix == ".csv" else frame.write_parquet
        with store.lock():
            # The rows come first: killed between the two, the run is only written again.
            store.files.write(file.name, write, replace=True)
            store.forget_checkpoint("")
        options.say(f"wrote {comparison.slots} rows to {file}")
    elif out is not None:
        _write_pages(comparison, out)
    summary = _run_summary(comparison, versus)
    if as_json:
        options.echo(options.json_text(summary))
        return
    for line in comparison.notes:
        options.echo(line)
    for key, value in summary.items():
        if key not in ("fidelity", "format", "version", "regret", "versus"):
            options.echo(
                f"{key:>14}  {value:,.4f}" if isinstance(value, float) else f"{key:>14}  {value}"
            )
    if versus is not None:
        (run,) = comparison.runs.values()
        _print_versus(run, comparison.comparators[versus, seed])


def _run_summary(comparison: Comparison, versus: str | None) -> dict[str, Any]:
    from gangwise.study.statistics import batch_means, numbers

    ((_, seed), run), *_ = comparison.runs.items()
    summary: dict[str, Any] = {
        "format": "gangwise-run-output-1",
        "version": gangwise.__version__,
        "scenario": comparison.scenario.name,
        **run.summary(),
    }
    if comparison.fidelity is not None:
        summary["fidelity"] = comparison.fidelity
    if versus is not None:
        judge = run.comparator(comparison.comparators[versus, seed])
        own, regret = run.rewards[judge.slots], run.regret(judge)
        against = {
            "slots": int(judge.slots.size),
            "reward": float(own.mean()),
            "comparator": float(judge.rewards.mean()),
            "difference": numbers(batch_means(own - judge.rewards)),
            "share": run.share_of(judge),
            "regret": regret,
        }
        summary |= {"regret": {versus: regret}, "versus": {versus: against}}
    return summary


def _print_versus(run: simulation.Run, judge: contracts.Comparator) -> None:
    from gangwise.study.statistics import BATCHES, batch_means, decimals_for, estimate_text

    own = run.rewards[judge.slots]
    rows = [batch_means(own), batch_means(judge.rewards), batch_means(own - judge.rewards)]
    digits = decimals_for(rows)
    cells = [
        (run.policy, estimate_text(rows[0], digits), f"{100 * run.share_of(judge):.1f}"),
        (judge.name, estimate_text(rows[1], digits), "100"),
        ("difference, paired", estimate_text(rows[2], digits, sign=True), ""),
    ]
    console = options.screen(wide=False)
    console.print()
    console.print(table(["", "reward per slot", f"share of {judge.name}, %"], cells))
    parts = f"{BATCHES} batches of {judge.slots.size // BATCHES} slots"
    legend = f"± is half a 95 % interval of the means of {parts}: " if rows[2].half else ""
    console.print(
        f"\nOn {judge.slots.size:,} of {run.slots:,} slots, the same for both. {legend}"
        f"{'of this seed alone. ' if legend else ''}Total regret: {run.regret(judge):,.6g}."
    )


def _require_same(source: NamedSource, slots: int | None, out: Path | None, name: str) -> None:
    """See that a folder holds results of the same scenario, settings and slots."""
    from gangwise.core.simulation import differences
    from gangwise.study.runs import Store

    if out is None:
        raise ScenarioError("--resume goes on with what is in a folder: give --out too")
    store = Store(out)
    if name not in store.plans():
        return  # stopped before it had begun
    plan = store.read_plan(name)["experiment"]
    stored = {"scenario": plan.get("scenario") or plan.get("trace"), "slots": plan["slots"]}
    # As a plan has them.
    wanted = {"scenario": source.name, "slots": slots or source.scenario().slots}
    stored, wanted = plan["settings"] | stored, json.loads(source.settings) | wanted
    if stored != wanted:
        raise ScenarioError(
            f"{out} holds other results: {differences(stored, wanted)}. Leave out --resume to "
            "begin anew, or give another --out"
        )


def _write_pages(comparison: Comparison, out: Path) -> None:
    from gangwise.core.files import Folder
    from gangwise.report import pages
    from gangwise.study.compare import FIDELITY

    scenario: Any = comparison.scenario
    if hasattr(scenario, "fidelity"):
        report = scenario.fidelity()
        if report.kept is not None:
            # A comparison may be shorter than its trace: only what it played counts.
            report = replace(report, kept=report.kept.in_first(comparison.slots))
        with Folder(out).publish("fidelity") as publication:
            publication.write(FIDELITY, json.dumps(report.to_dict(), indent=2) + "\n")
            publication.write("fidelity.txt", f"{report}\n")
    files = pages.write_comparison(comparison, out, options.command_line())
    options.say(f"wrote {', '.join(path.name for path in files)} to {out}")
    # A page has its figures inside; files of them are made with matplotlib, which may be absent.
    if not any(path.suffix == ".svg" for path in files):
        options.say(f"no figures as files: they need matplotlib; {to_install('full')}")


def sweep_command(
    file: Path | None = None,
    out: Path | None = None,
    jobs: int = -1,
    backend: Literal["loky", "dask", "ray"] = "loky",
    address: str | None = None,
    seeds: str | None = None,
    settings: list[str] | None = None,
    over: str | None = None,
    schema: bool = False,
    as_json: bool = False,
) -> None:
    """Run an experiment file: every policy in every cell with every seed.

    If it is stopped or killed, start it again: it continues where it was.
    """
    from gangwise.study.sweep import Experiment
    from gangwise.study.sweep import schema as schema_of_files

    if schema:
        options.echo(options.json_text(schema_of_files()))
        return
    if file is None:
        raise ScenarioError("name an experiment file; --schema says what may be in one")
    from gangwise.study.runs import write_provenance
    from gangwise.study.sweep import sweep

    changes: dict[str, Any] = {} if seeds is None else {"seeds": options.seed_list(seeds)}
    if settings:
        changes["settings"] = options.settings_of(settings)
    experiment = Experiment.read(file, **changes)
    labels = list(experiment.labelled())
    # The first policy is the one that others are measured by.
    over = labels[0] if over is None else over
    if over not in labels:
        raise ScenarioError(f"--over {over}: the policies are {', '.join(labels)}")
    folder = Path("sweeps", experiment.name) if out is None else out
    options.require_folder(folder, jobs=False)
    command = options.command_line()
    with options.progress(options.after_stop(folder)) as advance:
        results = sweep(experiment, folder, jobs, backend, address, advance)
    # After all runs: what they say of how they were made is then true of each.
    write_provenance(folder, experiment.name, command)
    if as_json:
        options.echo(options.json_text(_summary(results, over)))
        return
    from gangwise.report.experiments import metrics_sheet, result_sheet

    for line in results.notes:
        options.echo(line)
    options.show(filter(None, [result_sheet(results, over), metrics_sheet(results)]), wide=False)
    for sentence in results.sentences():
        options.paragraph(f"{sentence}.")
    options.say(f"{len(results.runs)} runs in {folder}")


def _summary(results: Results, over: str) -> dict[str, Any]:
    metrics = [f"{name}.mean" for name in results.experiment["metrics"]] + results.endings
    return {
        "format": "gangwise-sweep-1",
        "version": gangwise.__version__,
        "experiment": results.experiment["name"],
        "runs": len(results.runs),
        "cells": results.cells,
        "fidelity": [dict(part) for part in results.fidelity],
        "objective": results.objective,
        "minimise": results.minimise,
        "table": results.table(*metrics).to_dicts(),
        "improvements": results.improvements(over).to_dicts(),
        "against": [
            {**row, "comparator": name}
            for name in results.comparators
            for row in results.standing(name).to_dicts()
        ],
        "sentences": results.sentences(),
    }


SHOWN = 5


def tune_command(
    scenario: str,
    policy: str = "",
    ranges: list[str] | None = None,
    settings: list[str] | None = None,
    site: str = "",
    parts: int = 12,
    trials: int = 30,
    seeds: str = "",
    validation: str = "",
    slots: int | None = None,
    metric: str = "",
    minimise: bool = False,
    out: Path | None = None,
    jobs: int = -1,
    as_json: bool = False,
) -> None:
    """Tune a policy's arguments with Optuna, then compare with the default on other seeds.

    With --site, tune the rules of a site file on some weeks of a log, and judge on the others.
    If it is stopped or killed, start it again: it continues where it was.
    """
    from gangwise.core.registry import parse
    from gangwise.study.replay import BASE
    from gangwise.study.results import Results
    from gangwise.study.runs import write_provenance
    from gangwise.study.tune import TUNING, tune

    fixed, numbers = options.settings_of(settings), [range(1000, 1003), range(2000, 2010)]
    if site:
        # Rules of a site are tuned by replays, of which the seeds are parts of the log.
        fixed |= {"source": scenario, "site": site, "parts": parts}
        scenario, policy = "replay", policy or BASE
        # Every second part, so that both are spread over the whole log.
        numbers = [range(0, parts, 2), range(1, parts, 2)]
    elif not policy:
        raise ScenarioError("name the policy to tune; or a log, with --site FILE")
    folder = Path("tuned", parse(policy)[0]) if out is None else out
    options.require_folder(folder, jobs=False)
    command = options.command_line()
    tuned_on = options.seed_list(seeds) if seeds else list(numbers[0])
    judged_on = options.seed_list(validation, "--validation") if validation else list(numbers[1])
    with options.progress(options.after_stop(folder)) as advance:
        study = scenario, policy, ranges or [], folder, fixed, trials, tuned_on, judged_on
        tuning = tune(
            *study, slots=slots, metric=metric, minimise=minimise, jobs=jobs, progress=advance
        )
    from gangwise.report.experiments import trials_sheet
    from gangwise.report.page import sentence_case

    # Where no trial was better, there is no validation.
    for name in ("tuning", "validation"):
        if (folder / f"{name}.plan.json").exists():
            write_provenance(folder, name, command)
    if as_json:
        options.echo(options.json_text(tuning.as_dict()))
        return
    results = Results.open(folder, TUNING)
    sheets, heading = [trials_sheet(tuning, results, SHOWN)], f"{sentence_case(tuning.sentence)}."
    options.show(sheets, heading, results.notes, wide=False)
    if site:
        options.echo(_bound_sentence(folder, tuning, fixed))
    _report_of(folder, f"{len(tuning.trials)} trials")


def _report_of(folder: Path, what: str) -> None:
    from gangwise.report import pages

    options.say(f"{what} in {folder}; open {pages.write_report(folder)} in a browser")


def _bound_sentence(folder: Path, tuning: Tuning, settings: dict[str, Any]) -> str:
    from gangwise.jobs.bounds import Certified
    from gangwise.notation import roughly
    from gangwise.study.replay import STEPS
    from gangwise.study.replay_scenario import EVERY, ReplayScenario
    from gangwise.study.results import Results
    from gangwise.study.tune import DEFAULT, TUNING

    name, seeds = "validation", tuning.validation
    # Then nothing else was played than the seeds of the tuning.
    if tuning.row is None:
        name, seeds = TUNING, tuning.seeds
    if tuning.metric != EVERY or any(r.name.startswith("nodes.") for r in tuning.ranges):
        return ""  # a bound is of the mean completion, on so many nodes
    results = Results.open(folder, name)
    by_seed = results.per_seed(tuning.metric)
    means = {str(label): g["value"].to_numpy().mean() for (label,), g in by_seed.group_by("policy")}
    scenario = ReplayScenario(**settings)
    # Rules only take schedules away: a bound without them holds under all rules.
    if scenario.site is not None and scenario.site.nodes is None and not scenario.site.rules.nodes:
        scenario = scenario.changed(site="")  # whatever the rules
    with options.progress("the tuning is stored") as advance:
        bounds = []
        for i, seed in enumerate(seeds):
            advance("lower bound", i, len(seeds))
            bounds.append(scenario.bound(seed, STEPS))
    mean = ", ".join(f"{n} {roughly(means[n])}" for n in (DEFAULT, "tuned") if n in means)
    least, of_all, _ = Certified.of(bounds)
    text = f"On those parts of the log, {tuning.metric}: {mean}; no schedule without preemption or "
    text += f"migration is below {roughly(sum(least) / len(least))}"
    if any((results.per_seed(way)["value"] > 0).any() for way in ("preempted", "failed")):
        text += f", and none at all below {roughly(sum(of_all) / len(of_all))}"
    return f"{text}."


def report_command(
    folder: Path,
    out: Path | None = None,
    wanted: Literal["html", "csv", "svg", "pdf", "png"] = "html",
    columns: int = 1,
    opened: bool = False,
) -> None:
    """Write one page about a folder of results; it needs no network and no other file."""
    from gangwise.report import pages, plotting

    if wanted != "html":
        target = Path(f"report-{wanted}") if out is None else out
        files = pages.write_files(folder, wanted, target, plotting.COLUMN_WIDTHS[columns])
        options.say(f"wrote {', '.join(path.name for path in files) or 'nothing'} to {target}")
        return
    path = pages.write_report(folder, out)
    options.say(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if opened:
        import webbrowser

        webbrowser.open(path.resolve().as_uri())


def leaderboard_command(
    traces: Path,
    out: Path = Path("leaderboard"),
    own: list[str] | None = None,
    jobs: int = -1,
    backend: Literal["loky", "dask", "ray"] = "loky",
    address: str | None = None,
) -> None:
    """Play every built-in scheduler, and your own, on public logs under committed rules.

    If it is stopped, start it again: it continues where it was.
    """
    from gangwise.study.replay import leaderboard
    from gangwise.study.sweep import Workers

    with options.progress(options.after_stop(out)) as advance:
        board = leaderboard(traces, out, own or [], Workers(jobs, backend, address), advance)
    from gangwise.report.answers import board_text, leaderboard_page

    page = leaderboard_page(board, options.command_line())
    options.echo(board_text(board))
    options.write_page(out, "leaderboard", page, options.json_text(board.as_dict()))


def reproduce_command(
    paper: str | None = None,
    figure: list[int] | None = None,
    table: list[int] | None = None,
    theorem: list[int] | None = None,
    everything: bool = False,
    quick: bool = False,
    seeds: str | None = None,
    traces: Path | None = None,
    out: Path = Path("reproduced"),
    jobs: int = -1,
    backend: Literal["loky", "dask", "ray"] = "loky",
    address: str | None = None,
    check: bool = False,
    accept: bool = False,
    as_json: bool = False,
) -> None:
    """Reproduce figures and tables of the papers, beside the papers' own numbers.

    If it is stopped, start it again: it continues where it was.
    """
    from gangwise.papers.reproduce.expected import reproduce
    from gangwise.papers.reproduce.papers import RunScale
    from gangwise.study.runs import read_provenance, write_provenance

    if traces is not None and not traces.is_dir():
        raise ScenarioError(f"--traces {traces}: there is no such folder")
    options.require_folder(out, jobs=False)
    if accept and seeds:
        raise ScenarioError("--accept commits results of the artefacts' own seeds: drop --seeds")
    kinds = {"figure": figure, "table": table, "theorem": theorem}
    wanted = [f"{kind}-{n}" for kind, numbers in kinds.items() for n in numbers or []]
    artefacts = _artefacts(paper, everything, wanted)
    chosen = tuple(options.seed_list(seeds)) if seeds else None
    command = options.command_line()
    with options.progress(options.after_stop(out)) as advance:
        result = reproduce(
            artefacts, RunScale(quick, chosen, traces), out, jobs, backend, address, advance
        )
    # What earlier commands have put there is part of this reproduction.
    provenance = read_provenance(out, "reproduction") if result.joined else None
    commands = provenance.command.splitlines() if provenance else []
    commands.append(command)
    # A command that was repeated is listed once.
    write_provenance(out, "reproduction", "\n".join(dict.fromkeys(commands)))
    for stem, reason in result.left_out.items():
        options.say(f"left out {stem}: {reason}")
    if as_json:
        rows = [row.as_dict() for row in result.rows]
        options.echo(options.json_text({"rows": rows, "left_out": result.left_out}))
    else:
        from gangwise.report import pages

        sheets = [pages.claims_sheet(result.rows, quick)]
        options.show(sheets, f"{pages.counts(result.rows, quick)}.")
        for reason in dict.fromkeys(r.why for r in result.rows if r.agrees is False and r.why):
            options.paragraph(f"why not: {reason}")
    if result.written:
        _report_of(out, f"{len(result.written)} files")
    if accept or check:
        _compare_with_committed(result, quick, accept)


def _artefacts(paper: str | None, everything: bool, wanted: Sequence[str]) -> list[Artefact]:
    """The artefacts of a paper, or of all; of ``wanted`` names also the panels and versions."""
    from gangwise.papers.reproduce import PAPERS, artefacts

    if paper is None and not everything:
        raise ScenarioError(f"name a paper ({', '.join(PAPERS)}), or give --all for all of them")
    if everything and wanted:
        raise ScenarioError(f"give --all, or {wanted[0]} alone; not both")
    every = [a for name in ([paper] if paper else PAPERS) for a in artefacts(name)]
    chosen = []
    for name in wanted:
        # figure-1 is not the beginning of figure-12.
        mine = [a for a in every if re.match(rf"{re.escape(name)}(?!\d)", a.name)]
        if not mine:
            papers = " or ".join(dict.fromkeys(a.paper for a in every))
            names = list(dict.fromkeys(a.name for a in every))
            raise UnknownName(f"figure, table or theorem of {papers}", name, names)
        chosen += mine
    return [a for a in every if a in chosen] if wanted else every


def _compare_with_committed(done: Reproduction, quick: bool, accept: bool) -> None:
    from gangwise.papers.reproduce import expected

    if accept:
        # Only at full scale: small numbers are no evidence.
        if not quick:
            expected.stamp(done.artefacts, done.played)
        rows, totals = expected.write(done.rows, quick), expected.write_totals(done.totals, quick)
        options.say(f"committed to {rows} and {totals}")
        return
    changed = expected.differences(done.rows, quick) + expected.different_seeds(done.totals, quick)
    for text in changed:
        options.say(f"changed: {text}")
    if changed:
        raise typer.Exit(1)
    # Totals are compared where some were committed.
    count = len(done.totals.keys() & expected.read_totals(quick).keys())
    options.say(
        f"all {len(done.rows)} results are where they were committed, "
        f"in {count} of {len(done.totals)} experiments seed by seed"
    )

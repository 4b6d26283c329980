"""``gangwise compare`` and ``gangwise run``: a folder of results, or an answer on the screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gangwise
from gangwise.cli.options import (
    after_stop,
    command_line,
    comparator_names,
    progress,
    say,
    seed_list,
    source_of,
    table,
)
from gangwise.core.errors import ScenarioError
from gangwise.core.settings import json_text

if TYPE_CHECKING:
    from gangwise.core.contracts import Comparator
    from gangwise.core.simulation import Run
    from gangwise.experiments.compare import Comparison
    from gangwise.experiments.runs import NamedSource
    from gangwise.experiments.store import MemoryStore

FILES = (".parquet", ".csv")
"""Endings of --out of ``run`` that ask for one file of rows instead of a folder of results."""


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
    isolated: bool = False,
    as_json: bool = False,
) -> None:
    """Compare policies on the same instances and arrivals; with --out also figures and a page.

    Finished runs in --out are not repeated: after a stop, or for more seeds or policies, the same
    command does the rest.
    """
    from gangwise.experiments.compare import AUTO, COMPARISON, compare

    source = source_of(target, settings, trace, family)
    if jobs == 0:
        raise ScenarioError("--jobs is how many workers, or -1 for all cores; not 0")
    if resume:
        _refuse_all_else(source, slots, out, COMPARISON)
    with progress(after_stop(out)) as advance:
        comparison = compare(
            source,
            policies,
            slots,
            seed_list(seeds),
            comparator_names(comparators),
            optimum_slots,
            out,
            progress=advance,
            jobs=AUTO if jobs is None else jobs,
            isolated=isolated,
        )
    if as_json:
        print(json_text(comparison.as_dict()))
    else:
        from rich.console import Console

        from gangwise.report.experiments import terminal_sheets
        from gangwise.report.tables import rich_tables

        console = Console()
        for line in comparison.notes:
            console.print(line, highlight=False, markup=False)
        console.print(rich_tables(terminal_sheets(comparison.results)))
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
    isolated: bool = False,
    as_json: bool = False,
) -> None:
    """Run one policy and print what it earned.

    If it is stopped or killed, start it again: it continues where it was.
    """
    from gangwise.experiments.compare import compare
    from gangwise.experiments.store import MemoryStore

    if trace is not None and policy is None:
        target, policy = None, target
    if policy is None:
        raise ScenarioError("give a policy after the scenario or trace; see: gangwise list")
    source, file = source_of(target, settings, trace, family), None
    if out is not None and out.suffix:
        if out.suffix not in FILES:
            raise ScenarioError(
                f"--out {out}: give a folder, or a .parquet or .csv file for per-slot rows"
            )
        file, out = out, None
    store = out if file is None else MemoryStore(file)
    if resume and file is None:
        _refuse_all_else(source, slots, out, "run")
    judges = [] if versus is None else [versus]
    with progress(after_stop(file or out)) as advance:
        comparison = compare(
            source,
            [policy],
            slots,
            [seed],
            judges,
            None,
            store,
            progress=advance,
            name="run",
            isolated=isolated,
        )
    if file is not None and isinstance(store, MemoryStore):
        _write_rows(comparison, store, file)
    elif out is not None:
        _write_pages(comparison, out)
    summary = _run_summary(comparison, versus)
    if as_json:
        print(json_text(summary))
        return
    for line in comparison.notes:
        print(line)
    for key, value in summary.items():
        if key not in ("fidelity", "format", "version", "regret", "versus"):
            print(f"{key:>14}  {value:,.4f}" if isinstance(value, float) else f"{key:>14}  {value}")
    if versus is not None:
        (run,) = comparison.runs.values()
        _print_versus(run, comparison.comparators[versus, seed])


def _run_summary(comparison: Comparison, versus: str | None) -> dict[str, Any]:
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
        summary["regret"] = {versus: run.regret(judge)}
        summary["versus"] = {versus: _against(run, judge)}
    return summary


def _write_rows(comparison: Comparison, store: MemoryStore, file: Path) -> None:
    frame = comparison.frame()
    with store.lock():
        write = frame.write_csv if file.suffix == ".csv" else frame.write_parquet
        store.files.write(file.name, write, replace=True)
        store.files.checkpoint(file.name).unlink(missing_ok=True)
    say(f"wrote {comparison.slots} rows to {file}")


def _against(run: Run, judge: Comparator) -> dict[str, Any]:
    from gangwise.experiments.statistics import batch_means, numbers

    own = run.rewards[judge.slots]
    return {
        "slots": int(judge.slots.size),
        "reward": float(own.mean()),
        "comparator": float(judge.rewards.mean()),
        "difference": numbers(batch_means(own - judge.rewards)),
        "share": run.share_of(judge),
        "regret": run.regret(judge),
    }


def _print_versus(run: Run, judge: Comparator) -> None:
    from rich.console import Console

    from gangwise.experiments.statistics import BATCHES, batch_means, decimals_for, estimate_text

    own = run.rewards[judge.slots]
    rows = [batch_means(own), batch_means(judge.rewards), batch_means(own - judge.rewards)]
    digits = decimals_for(rows)
    cells = [
        (run.policy, estimate_text(rows[0], digits), f"{100 * run.share_of(judge):.1f}"),
        (judge.name, estimate_text(rows[1], digits), "100"),
        ("difference, paired", estimate_text(rows[2], digits, sign=True), ""),
    ]
    console = Console(highlight=False)
    console.print()
    console.print(table(["", "reward per slot", f"share of {judge.name}, %"], cells))
    parts = f"{BATCHES} batches of {judge.slots.size // BATCHES} slots"
    legend = f"± is half a 95 % interval of the means of {parts}: " if rows[2].half else ""
    console.print(
        f"\nOn {judge.slots.size:,} of {run.slots:,} slots, the same for both. {legend}"
        f"{'of this seed alone. ' if legend else ''}Total regret: {run.regret(judge):,.6g}."
    )


def _refuse_all_else(source: NamedSource, slots: int | None, out: Path | None, name: str) -> None:
    """See that a folder holds results of the same scenario, settings and slots."""
    from gangwise.experiments.store import Store

    if out is None:
        raise ScenarioError("--resume goes on with what is in a folder: give --out too")
    store = Store(out)
    if name not in store.plans():
        return  # stopped before it had begun
    asked = store.read_plan(name)["experiment"]
    there = (asked.get("scenario") or asked.get("trace"), asked["settings"], asked["slots"])
    wanted = (source.name, json.loads(source.settings), slots or source.scenario().slots)
    if there != wanted:
        runs = [f"{name} {given}, {n} slots" for name, given, n in (there, wanted)]
        raise ScenarioError(
            f"{out} holds results of {runs[0]}; --resume was asked for with {runs[1]}. Leave out "
            "--resume to begin with it, or give another --out"
        )


def _write_pages(comparison: Comparison, out: Path) -> None:
    from gangwise.experiments.compare import FIDELITY
    from gangwise.report.pages import write_comparison

    scenario: Any = comparison.scenario
    if hasattr(scenario, "fidelity"):
        from dataclasses import replace

        from gangwise.core.files import Folder

        report = scenario.fidelity()
        if report.kept is not None:
            report = replace(report, kept=report.kept.in_first(comparison.slots))
        with Folder(out).publish("fidelity") as new:
            new.write(FIDELITY, json.dumps(report.to_dict(), indent=2) + "\n")
            new.write("fidelity.txt", f"{report}\n")
    written = write_comparison(comparison, out, command_line())
    say(f"wrote {', '.join(path.name for path in written)} to {out}")

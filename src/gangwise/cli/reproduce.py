"""``gangwise reproduce``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gangwise.cli.options import Address, BackendName, Jobs, Json, say, seed_list
from gangwise.cli.progress import command_line, progress
from gangwise.core.errors import ScenarioError, UnknownName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gangwise.reproduce.artefact import Artefact
    from gangwise.reproduce.expected import Row

__all__ = ["reproduce_command"]

_COLOURS = {"agrees": "green", "differs": "yellow", "open": "dim"}


def reproduce_command(
    paper: Annotated[
        str | None, typer.Argument(metavar="PAPER", help="ogasched, esdp or opm; all with --all.")
    ] = None,
    figure: Annotated[
        list[int] | None, typer.Option(help="A figure of the paper; may be repeated.")
    ] = None,
    table: Annotated[
        list[int] | None, typer.Option(help="A table of the paper; may be repeated.")
    ] = None,
    theorem: Annotated[
        list[int] | None, typer.Option(help="A theorem of the paper; may be repeated.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All figures, tables and theorems (the default).")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer slots, seeds and cells: minutes, not hours.")
    ] = False,
    seeds: Annotated[
        str | None, typer.Option(help="Instead of each artefact's own: how many, or a list.")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(help="Folder with the folders of public traces, such as google-2011."),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for pictures, numbers and the side-by-side table.")
    ] = Path("reproduced"),
    jobs: Jobs = -1,
    backend: BackendName = "loky",
    address: Address = None,
    check: Annotated[
        bool, typer.Option("--check", help="Fail where a result left its committed interval.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Commit the results as those to find again.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Reproduce figures and tables of the papers, beside the papers' own numbers.

    Stopped, it goes on where it was when it is started again.
    """
    from gangwise.experiments.provenance import read_provenance, write_provenance
    from gangwise.reproduce import PAPERS, artefacts
    from gangwise.reproduce.artefact import Scale
    from gangwise.reproduce.expected import differences, write
    from gangwise.reproduce.run import reproduce

    if paper is None and not everything:
        raise ScenarioError(f"name a paper ({', '.join(PAPERS)}), or give --all for all of them")
    wanted = [
        f"{kind}-{n}"
        for kind, given in (("figure", figure), ("table", table), ("theorem", theorem))
        for n in given or []
    ]
    if everything and wanted:
        raise ScenarioError(f"--all, or {wanted[0]} alone: give one of the two")
    if traces is not None and not traces.is_dir():
        raise ScenarioError(f"--traces {traces}: there is no such folder")
    if accept and seeds:
        raise ScenarioError("results to commit are of the artefacts' own seeds: leave out --seeds")
    found = [a for name in ([paper] if paper else PAPERS) for a in artefacts(name)]
    if wanted:
        found = _chosen(found, wanted)
    chosen = tuple(seed_list(seeds)) if seeds else None
    again = command_line()
    with progress(f"every finished run is stored\nto go on: {again}") as tell:
        done = reproduce(found, Scale(quick, chosen, traces), out, jobs, backend, address, tell)
    before = read_provenance(out, "reproduction") if done.joined else None
    commands = before.command.splitlines() if before else []
    commands.append(again)
    write_provenance(out, "reproduction", "\n".join(dict.fromkeys(commands)))
    for stem, why in done.left_out.items():
        say(f"left out {stem}: {why}")
    if as_json:
        rows = [row.as_dict() for row in done.rows]
        print(json.dumps({"rows": rows, "left_out": done.left_out}, indent=2, ensure_ascii=False))
    else:
        _print(done.rows)
        say(f"{len(done.written)} files in {out}; gangwise report {out} makes a page of them")
    if accept:
        say(f"committed to {write(done.rows, quick)}")
    elif check:
        changed = differences(done.rows, quick)
        for text in changed:
            say(f"changed: {text}")
        if changed:
            raise typer.Exit(1)
        say(f"all {len(done.rows)} results are where they were committed")


def _chosen(artefacts: Sequence[Artefact], wanted: Sequence[str]) -> list[Artefact]:
    known = list(dict.fromkeys(a.name for a in artefacts))
    for name in wanted:
        if not any(_is(name, other) for other in known):
            of = " or ".join(dict.fromkeys(a.paper for a in artefacts))
            raise UnknownName(f"figure, table or theorem of {of}", name, known)
    return [a for a in artefacts if any(_is(name, a.name) for name in wanted)]


def _is(wanted: str, name: str) -> bool:
    """Whether an artefact is the one wanted, or a panel or a version of it."""
    return name == wanted or (name.startswith(wanted) and not name[len(wanted)].isdigit())


def _print(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from gangwise.report.numbers import decimals_for, estimate_text

    table = Table(box=None, pad_edge=False)
    for name in ("where", "what", "the paper", "version", "ours", ""):
        table.add_column(name, justify="right" if name in ("the paper", "ours") else "left")
    for row in rows:
        ours = estimate_text(row.ours, decimals_for([row.ours]))
        said = (f"{row.paper} {row.artefact}", row.says, str(row.number), row.version, ours)
        table.add_row(*map(Text, said), Text(row.verdict, _COLOURS[row.verdict]))
    Console().print(table)
    for why in dict.fromkeys(row.why for row in rows if row.verdict != "agrees" and row.why):
        Console().print(f"differs or open: {why}", markup=False, highlight=False, soft_wrap=True)

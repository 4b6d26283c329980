"""``gangwise reproduce``."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gangwise.cli.options import Json, progress_bar, say, seed_list
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
    jobs: Annotated[int, typer.Option(help="Workers; all cores, or all of the cluster.")] = -1,
    backend: Annotated[
        Literal["loky", "dask", "ray"],
        typer.Option(help="loky: processes here; dask, ray: a cluster that is running."),
    ] = "loky",
    address: Annotated[
        str | None, typer.Option(help="Of the Dask scheduler or the Ray cluster.")
    ] = None,
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
    from gangwise.experiments.provenance import write_provenance
    from gangwise.reproduce import PAPERS, artefacts
    from gangwise.reproduce.artefact import Scale
    from gangwise.reproduce.expected import differences, write
    from gangwise.reproduce.run import reproduce

    if paper is None and not everything:
        raise ScenarioError(f"name a paper ({', '.join(PAPERS)}), or give --all for all of them")
    found = [a for name in ([paper] if paper else PAPERS) for a in artefacts(name)]
    if figure or table:
        found = _chosen(found, figure or [], table or [])
    chosen = tuple(seed_list(seeds)) if seeds else None
    with progress_bar(saved=False) as tell:
        try:
            done = reproduce(
                found, Scale(quick, chosen, traces), out, jobs, backend, address, tell
            )
        except KeyboardInterrupt:
            say("gangwise: interrupted; every finished run is stored")
            say(f"to go on: {shlex.join(['gangwise', *sys.argv[1:]])}")
            raise typer.Exit(130) from None
    write_provenance(out, "reproduction", shlex.join(["gangwise", *sys.argv[1:]]))
    for stem, why in done.left_out.items():
        say(f"left out {stem}: {why}")
    if as_json:
        rows = [row.as_dict() for row in done.rows]
        print(json.dumps({"rows": rows, "left_out": done.left_out}, indent=2, ensure_ascii=False))
    else:
        _print(done.rows)
        say(f"{len(done.written)} files in {out}")
    if accept:
        say(f"committed to {write(done.rows, quick)}")
    elif check:
        changed = differences(done.rows, quick)
        for text in changed:
            say(f"changed: {text}")
        if changed:
            raise typer.Exit(1)
        say(f"all {len(done.rows)} results are where they were committed")


def _chosen(
    artefacts: Sequence[Artefact], figures: Sequence[int], tables: Sequence[int]
) -> list[Artefact]:
    wanted = [f"figure-{n}" for n in figures] + [f"table-{n}" for n in tables]
    known = [a.name for a in artefacts]
    for name in wanted:
        if not any(_is(name, other) for other in known):
            raise UnknownName("artefact", name, known)
    return [a for a in artefacts if any(_is(name, a.name) for name in wanted)]


def _is(wanted: str, name: str) -> bool:
    """Whether an artefact is the one wanted, or a panel or a version of it."""
    return name == wanted or (name.startswith(wanted) and not name[len(wanted)].isdigit())


def _print(rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table

    from gangwise.report.numbers import decimals_for, estimate_text

    table = Table(box=None, pad_edge=False)
    for name in ("where", "what", "the paper", "version", "ours", ""):
        table.add_column(name, justify="right" if name in ("the paper", "ours") else "left")
    for row in rows:
        ours = estimate_text(row.ours, decimals_for([row.ours]))
        table.add_row(
            f"{row.paper} {row.artefact}", row.says, str(row.number), row.version, ours,
            f"[{_COLOURS[row.verdict]}]{row.verdict}[/]",
        )  # fmt: skip
    Console().print(table)
    for why in dict.fromkeys(row.why for row in rows if row.verdict != "agrees" and row.why):
        Console().print(f"differs or open: {why}", markup=False, highlight=False, soft_wrap=True)

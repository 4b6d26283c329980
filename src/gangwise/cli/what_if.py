"""``gangwise what-if``: the rules of a site, changed, on the jobs of its log."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from gangwise.cli.options import (
    after_stop,
    command_line,
    progress,
    say,
    screen,
    seed_list,
    settings_of,
)
from gangwise.core.errors import ScenarioError
from gangwise.core.json_text import finite, json_text

if TYPE_CHECKING:
    from gangwise.experiments.what_if import Gate, Needed


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
    from gangwise.experiments.replay import BASE
    from gangwise.experiments.sweep import Workers
    from gangwise.experiments.what_if import Asked, Gate, as_dict, broken, capacity, what_if
    from gangwise.report.jobs import job_report, results_of

    named = {"site": site, "load": load, "world": world}
    given = settings_of(settings) | {k: value for k, value in named.items() if value is not None}
    gates = [Gate.of(text) for text in fail_if or ()]
    if bool(target) != bool(kinds) or (target and change):
        raise ScenarioError("--target and --kinds belong together, and stand without --change")
    if not change and not target:
        raise ScenarioError(
            "name at least one --change, such as --change pool.gpu.most_time=1d, "
            "--change nodes.all+=8 or --change scheduler=sjf+easy+best-fit"
        )
    asked = Asked(
        source,
        given,
        rules or BASE,
        seed_list(seeds) if seeds else (),
        out,
        Workers(jobs, backend, address),
        _prices(price),
    )
    with progress(after_stop(out)) as tell:
        needed: list[Needed] = []
        if target:
            names = [name for name in kinds.replace(",", " ").split() if name]
            played, needed = capacity(asked, Gate.of(target), names, tell)
        else:
            played = what_if(asked, change or [], tell, gates)
    results = results_of(played, command=command_line())
    why = broken(results, gates)
    if as_json:
        told = as_dict(played, results) | {"fails": why}
        told |= {"capacity": [each._asdict() for each in needed]} if target else {}
        print(json_text(finite(played.as_dict() | told)))
    else:
        screen().print(job_report(results).terminal())
        for each in needed:
            print(f"\n{_needed(each, Gate.of(target))}")
        for name, lines in results.edits.items() if not target else ():
            head = "in the site's files:" if lines else "no line of a site's files"
            print("\n".join([f"\n{name} changes {head}", *lines]))
    if out is not None:
        from gangwise.report.pages import write_replay

        write_replay(played, out, None, command_line())
        say(f"wrote report.html and summary.json to {out}")
    for line in why:
        say(f"fails: {line}")
    if why:
        raise typer.Exit(1)


def _needed(each: Needed, target: Gate) -> str:
    from gangwise.experiments.statistics import Estimate, number, period

    def told(value: float) -> str:
        return target.told(Estimate(value, None, None))

    if each.needed is None:
        line = f"{each.kind}: no number of nodes tried reaches {target.text}; "
        line += f"the most has {told(each.value)}"
    else:
        line = f"{each.kind}: {each.needed:,} nodes reach {target.text}, and there are {each.now:,}"
        line += f" ({told(each.value)}; with one less {told(each.one_less)})"
    priced = ""
    if math.isfinite(each.bound):
        priced = f"; it lowers what no schedule can beat by {number(each.bound, 1)} s at most"
    longer = "shortens" if each.played >= 0 else "lengthens"
    line += f". One more than now {longer} mean completion by {period(abs(each.played))}"
    return f"{line}{priced}."


def _prices(given: list[str] | None) -> dict[str, float]:
    found = {}
    for text in given or ():
        device, _, value = text.partition("=")
        try:
            found[device.strip()] = float(value)
        except ValueError:
            raise ScenarioError(
                f"--price {text}: write DEVICE=PRICE of a device-hour, such as gpu=2.1"
            ) from None
    return found

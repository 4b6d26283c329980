"""``gangwise what-if``: the rules of a site, changed, on the jobs of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

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
from gangwise.core.json_text import json_text


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
    out: Path | None = None,
    jobs: int = -1,
    backend: Literal["loky", "dask", "ray"] = "loky",
    address: str | None = None,
    settings: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Play your own rules on your own log, and changes beside them: who waits less, who pays.

    Nothing is applied: the last lines say what to change in the site file.
    """
    from gangwise.experiments.replay import BASE
    from gangwise.experiments.sweep import Workers
    from gangwise.experiments.what_if import Asked, Gate, as_dict, broken, what_if
    from gangwise.report.jobs import job_report, results_of

    named = {"site": site, "load": load, "world": world}
    given = settings_of(settings) | {k: value for k, value in named.items() if value is not None}
    gates = [Gate.of(text) for text in fail_if or ()]
    if not change:
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
        played = what_if(asked, change, tell)
    results = results_of(played, command=command_line())
    why = broken(results, gates)
    if as_json:
        print(json_text(played.as_dict() | as_dict(played, results) | {"fails": why}))
    else:
        screen().print(job_report(results).terminal())
        for name, lines in results.edits.items():
            print("\n".join([f"\n{name} changes in the site file:", *(lines or ["  nothing"])]))
    if out is not None:
        from gangwise.report.pages import write_replay

        write_replay(played, out, None, command_line())
        say(f"wrote report.html and summary.json to {out}")
    for line in why:
        say(f"fails: {line}")
    if why:
        raise typer.Exit(1)


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

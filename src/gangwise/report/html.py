"""One self-contained page for a comparison: it opens offline and reads like a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path

import gangwise
from gangwise.experiments.compare import Comparison
from gangwise.experiments.store import versions
from gangwise.report.page import (
    document,
    drawing,
    plain_table,
    prose,
    section,
    setting_text,
    swatch,
    write_page,
)
from gangwise.report.palette import styles
from gangwise.report.sentences import (
    about_comparator,
    figure_caption,
    figure_title,
    seeds_text,
    summary,
)
from gangwise.report.tables import html_table, sheets


def write_html(
    comparison: Comparison, path: Path | str, figures: Sequence[Path] = (), command: str = ""
) -> Path:
    """Write the report of a comparison.

    Parameters
    ----------
    comparison : Comparison
    path : path
        The file to write.
    figures : sequence of path
        What :func:`gangwise.report.figures.draw` wrote; the SVG files are put into the page.
    command : str
        The command that made this comparison, to be shown as it is.

    Returns
    -------
    Path
        The file written.
    """
    return write_page(Path(path), _page(comparison, figures, command))


def _page(comparison: Comparison, figures: Sequence[Path], command: str) -> str:
    name = escape(comparison.scenario.name)
    n = len(comparison.policies)
    byline = ", ".join(
        [
            "1 policy" if n == 1 else f"{n} policies",
            seeds_text(comparison),
            f"{comparison.slots:,} slots",
            f"family {comparison.scenario.family}",
            f"gangwise {gangwise.__version__}",
        ]
    )
    parts = [
        f'<header><h1>{name}</h1><p class="byline">{escape(byline)}</p></header>',
        f'<p class="lead">{prose(summary(comparison))}</p>',
        _tables(comparison),
        _figures(comparison, figures),
        _comparators(comparison),
        _scenario(comparison),
        _policies(comparison),
        _again(comparison, command),
    ]
    return document(f"{comparison.scenario.name}: comparison of policies", parts)


def _tables(comparison: Comparison) -> str:
    looks = styles(comparison)
    first, *others = sheets(comparison)
    # The comparators have a section of their own here; the table keeps the first caption.
    shown = (replace(first, captions=first.captions[:1]), *others)
    tables = [html_table(sheet, lambda policy: swatch(looks[policy])) for sheet in shown]
    return section("Results", *tables)


def _figures(comparison: Comparison, figures: Sequence[Path]) -> str:
    shown = []
    for i, path in enumerate(path for path in figures if path.suffix == ".svg"):
        svg = path.read_text(encoding="utf-8")
        title, caption = (tell(comparison, path.stem) for tell in (figure_title, figure_caption))
        shown.append(drawing(svg, f"f{i}", title, caption))
    return section("Figures", *shown) if shown else ""


def _comparators(comparison: Comparison) -> str:
    if not comparison.comparator_names:
        return ""
    sentences = [about_comparator(comparison, name) for name in comparison.comparator_names]
    return section(
        "Comparators and bounds",
        "<p>Regret is measured against a comparator on the very same slots: its total reward minus "
        "the policy's, signed. Where a comparator was evaluated on some of the slots only, the "
        "mean difference on these is scaled to all of them.</p>",
        *(f"<p>{prose(sentence)}</p>" for sentence in sentences),
    )


def _scenario(comparison: Comparison) -> str:
    settings = comparison.scenario.describe()
    return section("Scenario", plain_table(settings)) if settings else ""


def _policies(comparison: Comparison) -> str:
    seed = comparison.seeds[0]
    order = [row.policy for row in comparison.table()]
    told = {
        policy: ", ".join(
            f"{key} = {setting_text(value)}"
            for key, value in comparison.runs[policy, seed].configuration.items()
        )
        or "no arguments"
        for policy in order
    }
    return section("Configuration of the policies", plain_table(told))


def _again(comparison: Comparison, command: str) -> str:
    seeds = ", ".join(str(seed) for seed in comparison.seeds)
    how = (
        f"<p>The same command gives the same rewards:</p><pre><code>{escape(command)}</code></pre>"
        if command
        else "<p>This comparison was made from Python; scenario, slots, seeds and the policies' "
        "arguments, as given on this page, define every reward in it.</p>"
    )
    return section(
        "How to get this again",
        how,
        plain_table({"slots": comparison.slots, "seeds": seeds}),
        "<p>Versions used:</p>",
        plain_table(versions()),
    )

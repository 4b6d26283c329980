"""What a page is made of, and how it becomes one HTML file.

A page is a list of chapters, a chapter a title and its parts: sentences, tables, figures, folds,
and sections of such. The template ``page.html`` has a macro for each kind of part. Every value is
escaped unless a filter here made it, and a page loads nothing from outside: style sheet, script and
drawings are part of it.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import gangwise
from gangwise.catalogue import parts
from gangwise.core import files, terminal
from gangwise.core.registry import Kind, entries
from gangwise.report import plotting, tables
from gangwise.report.plotting import COLOURS, INK, MUTED, Looks, Panel, Style, image, points
from gangwise.study.runs import read_provenance, versions
from gangwise.study.statistics import Estimate, decimals_for, enumerated, estimate_text, number


class Text(NamedTuple):
    """A paragraph, and where it leads; ``kind`` is a class of the style sheet: lead, note."""

    text: str
    kind: str = ""
    link: str = ""


class Code(NamedTuple):
    text: str


class Bullets(NamedTuple):
    items: Sequence[str]


class Values(NamedTuple):
    entries: Mapping[Any, Any]
    caption: str = ""


class Terms(NamedTuple):
    entries: Mapping[str, str]


class Fold(NamedTuple):
    summary: str
    parts: Sequence[Part]
    anchor: str = ""
    look: Style | None = None
    opened: bool = False
    kind: str = ""


class Choices(NamedTuple):
    """Values to choose rows of a section by: those with this data attribute are shown."""

    values: Mapping[str, Sequence[str]]


class Chart(NamedTuple):
    """The chart of nodes, one on a page: the data of ``gantt.js``, and a figure for files."""

    data: Mapping[str, Any]
    title: str
    figure: Callable[[], tuple[Iterable[Sequence[Any]], Sequence[Panel]]]


class Plot(NamedTuple):
    """A figure: how to read it, what its lines are, and what it is drawn from."""

    title: str
    caption: str
    key: Looks
    numbers: pl.DataFrame
    panels: Sequence[Panel]

    def plots(self) -> list[Markup]:
        """Its panels as SVG elements of a page."""
        return plotting.plots(self.numbers.iter_rows(), self.panels, self.key, self.title)


class Dot(NamedTuple):
    """A row of a dot plot: where its dot and the ends of its interval are, in per cent."""

    name: str
    at: float
    low: float
    high: float
    text: str
    clear: bool  # whether the interval leaves zero out
    cut: str = ""  # arrows: it goes on beyond the axis


class Dots(NamedTuple):
    """Paired differences on one axis: laid out by the page, so that it fits every screen."""

    title: str
    caption: str
    rows: tuple[Dot, ...]
    ticks: tuple[tuple[float, str], ...]
    zero: float
    looks: Looks = MappingProxyType({})


class Tile(NamedTuple):
    """One number that decides; ``tone`` is good, bad or empty."""

    label: str
    value: str
    note: str = ""
    tone: str = ""


class Tiles(NamedTuple):
    tiles: Sequence[Tile]


class Section(NamedTuple):
    title: str
    parts: Sequence[Part]
    anchor: str = ""


Part = (
    Text
    | Code
    | Bullets
    | Values
    | Terms
    | Fold
    | Choices
    | Chart
    | Plot
    | Dots
    | Tiles
    | Section
    | tables.Sheet
)


class Chapter(NamedTuple):
    title: str
    byline: str
    parts: Sequence[Part]
    name: str = ""  # what leads to it, where there are several


class Page(NamedTuple):
    """One HTML file; with several chapters it has a heading of its own and links to them."""

    title: str
    chapters: Sequence[Chapter]
    heading: str = ""
    byline: str = ""
    lead: str = ""


def html(page: Page) -> str:
    parts = [part for chapter in page.chapters for part in all_parts(chapter.parts)]
    # These add to the style sheet or the script of a page.
    choices, charts = ([p for p in parts if isinstance(p, kind)] for kind in (Choices, Chart))
    template = _ENVIRONMENT.get_template("page.html")
    text = template.render(page=page, choices=choices, charts=charts)
    # Empty lines go, except where they are part of a text.
    blocks = re.split(r"(<pre>.*?</pre>)", text, flags=re.DOTALL)
    # At even places is what stands between the texts.
    blocks[::2] = [re.sub(r"\n\s*\n+", "\n", block) for block in blocks[::2]]
    return "".join(blocks)


def all_parts(parts: Sequence[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, Section | Fold):
            yield from all_parts(part.parts)


Format = Literal["csv", "svg", "pdf", "png"]


def exported(page: Page, wanted: Format, width: float) -> dict[str, bytes]:
    """The tables or figures of a page as files, by their names; figures have a width in inches."""
    contents: dict[str, bytes] = {}
    for chapter in page.chapters:
        for part in all_parts(chapter.parts):
            if isinstance(part, tables.Sheet) and wanted == "csv":
                content = tables.csv_text(part).encode()
            elif isinstance(part, Dots | Chart | Plot) and wanted != "csv":
                content = image(_figure(part, width), wanted)
            else:
                continue
            named = f"{chapter.name} {part.title}".lower()
            stem = re.sub(r"[^a-z0-9]+", "-", named).strip("-")[:80]
            # Titles repeat, as those of cells do: later ones have a number.
            alike = sum(re.fullmatch(rf"{stem}(-\d+)?\..*", name) is not None for name in contents)
            contents[f"{stem}{f'-{alike + 1}' if alike else ''}.{wanted}"] = content
    return contents


def _figure(part: Dots | Chart | Plot, width: float) -> Any:
    """A part of a page as matplotlib's figure."""
    if isinstance(part, Chart):
        rows, panels = part.figure()
        return plotting.draw(part.title, points(rows), panels, None, width)
    if isinstance(part, Plot):
        return plotting.draw(part.title, part.numbers, part.panels, part.key or None, width)
    from matplotlib.figure import Figure

    with plotting.plot_settings():
        # A row takes 0.22 inches, with room for its name.
        figure = Figure((width, 0.7 + 0.22 * len(part.rows)), layout="constrained")
        axes = figure.subplots()
        plotting.style_axes(axes, "", "")
        for place, row in enumerate(part.rows):
            colour = part.looks[row.name].colour if row.name in part.looks else INK
            axes.hlines(place, row.low, row.high, color=colour, linewidth=1.2)
            # Hollow where the interval holds zero.
            axes.plot(row.at, place, "o", color=colour, mfc=colour if row.clear else "white", ms=5)
        axes.axvline(part.zero, color=MUTED, linewidth=0.8)
        axes.set_xticks([at for at, _ in part.ticks], [label for _, label in part.ticks])
        axes.set_yticks(range(len(part.rows)), [f"{r.name}{r.cut}" for r in part.rows], fontsize=8)
        axes.invert_yaxis()
        figure.suptitle(part.title, x=0.01, ha="left", fontsize=8.5, weight="bold", wrap=True)
    return figure


def pictured(
    title: str,
    numbers: pl.DataFrame | Iterable[Sequence[Any]],
    panels: Sequence[Panel],
    caption: str,
    looks: Looks | None = None,
) -> Plot:
    table = numbers if isinstance(numbers, pl.DataFrame) else points(numbers)
    maps = all(panel.kind == "map" for panel in panels)
    key = {} if maps else plotting.looks_of(table, looks)
    return Plot(title, caption, key, table, panels)


def answer(
    subject: str,
    verdict: str,
    facts: Sequence[str],
    parts: Sequence[Part],
    made: Section,
    glossary: Mapping[str, str],
) -> Page:
    """The frame of a page with one answer, the same for all commands.

    The verdict is its heading; ``parts`` are tiles, the chart that decides and sections; how it
    was made and the glossary end it.
    """
    byline = ", ".join([subject, *facts, f"gangwise {gangwise.__version__}"])
    ends = [made, Section("What the words mean", [Terms(glossary)])]
    return Page(subject, [Chapter(sentence_case(verdict), byline, [*parts, *ends])])


def notes(lines: Iterable[str]) -> list[Part]:
    """Notes on what was left out, assumed or drawn; a line that begins "warning:" stands out."""
    parts: list[Part] = []
    plain: list[str] = []
    for line in lines:
        if line.startswith("warning: "):
            parts.append(Text(f"{sentence_case(line.removeprefix('warning: '))}.", "warning"))
        else:
            # A name before a colon, such as that of a format, stays as it is written.
            text = line if line.split(" ")[0].endswith(":") else sentence_case(line)
            plain.append(f"{text.rstrip('.')}.")
    return [*parts, *[Text(" ".join(plain), "fidelity")] * bool(plain)]


def jobs_terms(*names: str) -> dict[str, str]:
    """The meanings of these terms on pages about jobs."""
    meanings = {**words("terms"), **words("jobs")}
    return {name: meanings[name] for name in names}


def terms(meanings: Mapping[str, str]) -> Fold:
    names = [f"“{name}”" if " " in name else name for name in meanings]
    summary = f"What {enumerated(names)} {'means' if len(names) == 1 else 'mean'} here"
    return Fold(summary, [Terms(meanings)], kind="words")


def interval(change: Estimate, name: str = "") -> str:
    """The 95 % interval of a change in per cent, behind the name of what changed."""
    of = f"{name}; " * bool(name)
    if change.low is None or change.high is None:
        return f"{of}no interval"
    low, high = (number(end, 1, sign=True) for end in (change.low, change.high))
    return f"{of}95 %: {low} to {high}"


MOST_DOTS = 40
"""A dot plot has at most this many rows."""

OUTLIER = 4.0
"""A row that reaches this many times as far from zero as the median row is cut off and marked."""


def dots(
    title: str, found: Mapping[str, Estimate], caption: str, looks: Looks | None = None
) -> list[Dots]:
    """The plot of some differences, the smallest first; none without any.

    Examples
    --------
    >>> (drawn,) = dots("%", {"a": Estimate(5.0, 2.0, 8.0), "b": Estimate(1.0, -1.0, 3.0)}, "")
    >>> [(row.name, row.clear) for row in drawn.rows], [label for _, label in drawn.ticks]
    ([('b', False), ('a', True)], ['−2', '0', '2', '4', '6', '8'])
    """
    sound = {name: e for name, e in found.items() if math.isfinite(e.mean)}
    if not sound:
        return []
    shown = dict(sorted(sound.items(), key=lambda item: item[1].mean)[:MOST_DOTS])
    reach = [max(abs(end) for end in e if end is not None) for e in shown.values()]
    # An outlier would press all others together: the axis ends at the largest of the rest.
    inside = [far for far in reach if far <= OUTLIER * median(reach)]
    most = max(inside) if len(inside) < len(reach) else math.inf
    ends = [0.0, *(end for e in shown.values() for end in e if end is not None)]
    ends = [min(max(end, -most), most) for end in ends]
    # An axis of nothing but zeros needs some width.
    if max(map(abs, ends)) < 1e-9:
        ends = [-1.0, 1.0]
    values = plotting.round_ticks(min(ends), max(ends))
    low, high = values[0], values[-1]
    digits = max(1, decimals_for(list(shown.values())))

    def place(value: float) -> float:
        # What lies beyond the axis stands at its end.
        return round(100 * (min(max(value, low), high) - low) / (high - low), 2)

    rows = []
    for name, e in shown.items():
        begin = e.mean if e.low is None else e.low
        stop = e.mean if e.high is None else e.high
        clear = e.half is not None and (begin > 0 or stop < 0)
        text = estimate_text(e, digits, True)
        cut = "◂" * (begin < low) + "▸" * (stop > high)
        rows.append(Dot(name, place(e.mean), place(begin), place(stop), text, clear, cut))
    if any(row.cut for row in rows):
        caption += " An arrow: it goes on beyond the axis, as its number says."
    labels = tuple((place(v), label) for v, label in zip(values, plotting.labels_of(values)))
    return [Dots(title, caption, tuple(rows), labels, place(0.0), looks or {})]


phrase = terminal.phrases("gangwise.report")


def words(table: str) -> Mapping[str, Any]:
    """A table of ``words.toml``: families, terms, metrics, jobs, or parts of schedulers."""
    return terminal.words_of("gangwise.report")[table]  # type: ignore[no-any-return]  # of TOML


# Filters of the templates


def breakable(name: str) -> Markup:
    """A name that may be broken after its separators.

    >>> breakable("a-b<script>")
    Markup('a-<wbr>b&lt;script&gt;')
    """
    return Markup("<wbr>").join(tables.pieces(name))


def prose(text: str) -> Markup:
    r"""A sentence with its numbers kept together with their signs, and `code` marked as such.

    >>> prose("12 % < 13 %"), prose("see `a<b`")
    (Markup('12\xa0% &lt; 13\xa0%'), Markup('see <code>a&lt;b</code>'))
    """
    # Escaped first, or the marks of code would be escaped as well.
    safe = str(escape(text.replace(" %", "\u00a0%").replace(" ± ", "\u00a0±\u00a0")))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", safe))


def setting(value: Any) -> str:
    """A setting as a reader would write it.

    >>> setting(None), setting("1"), setting([1, 2])
    ('none', '1', '[1, 2]')
    """
    if value is None or isinstance(value, str):
        return "none" if value is None else value
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        return repr(value)


def meaning(heading: str) -> str:
    r"""Meaning of a heading, or the label of a tile: the glossary's entry of a term in it.

    >>> meaning("completion\nmean, h")[:29], meaning("user")
    ('From submission to the end: w', '')
    """
    text = heading.replace("\n", " ").lower()
    named = [term for term in words("jobs") if re.search(rf"\b{re.escape(term)}\b", text)]
    # Of terms that contain each other the longest is meant.
    return str(words("jobs")[max(named, key=len)]) if named else ""


_ENVIRONMENT = Environment(
    loader=PackageLoader("gangwise.report"),
    autoescape=True,
    # A name that a template misspells is an error and no empty text.
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "breakable": breakable,
    "prose": prose,
    "setting": setting,
    "plain_number": lambda value: "" if math.isnan(value) else repr(float(value)),
    # By a function, as it is defined further below.
    "human": lambda name: human(name),
    "meaning": meaning,
    "kind": lambda part: type(part).__name__,
}
_LIGHT, _DARK = (
    " ".join(f"--c{i}: {shade};" for i, shade in enumerate(shades)) for shades in zip(*COLOURS)
)
_ENVIRONMENT.globals["colours"] = Markup(
    f":root {{ {_LIGHT} }}\n@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}"
)
# Jinja's tojson escapes what could close the script element that the data stand in.
_ENVIRONMENT.policies["json.dumps_kwargs"] = {
    "ensure_ascii": False,
    "separators": (",", ":"),
    "allow_nan": False,
}


def numbered(n: int, one: str, many: str) -> str:
    """A number of things as a sentence begins.

    >>> numbered(11, "policy", "policies"), numbered(1, "seed", "seeds")
    ('Eleven policies', 'One seed')
    """
    names = words("numbers")["to_twelve"]
    word = names[n] if n < len(names) else f"{n:,}"
    return f"{word} {one if n == 1 else many}"


def sentence_case(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def title(
    family: str, scenario: str, deciders: Sequence[str], many: str, varied: Sequence[str]
) -> str:
    """A title as a person would write it.

    >>> title("gain_overhead", "ogasched-default-v1", ["drf", "greedy"], "policies", ["contention"])
    'drf and greedy sharing servers among jobs as contention varies'
    >>> title("of my own", "my-cluster", list("abcde"), "policies", [])
    'Five policies on my-cluster'
    """
    subject = enumerated(deciders) if len(deciders) < 4 else numbered(len(deciders), "", many)
    families = words("families")
    doing = families[family]["doing"] if family in families else f"on {scenario}"
    vary = f" as {enumerated(varied)} {'varies' if len(varied) == 1 else 'vary'}" if varied else ""
    return f"{subject} {doing}{vary}"


def glossary(
    family: str, settings: Mapping[str, Any], comparators: Sequence[str]
) -> dict[str, str]:
    meanings, jobs = {}, family == "jobs"
    if (entry := words("families").get(family)) is not None:
        names = ("jobs", "ranked by") if jobs else ("slot", "reward")
        meanings = dict(zip(names, (entry["slot"], entry["reward"])))
    used = [*settings, *("comparator", "regret") * bool(comparators), *("seed",) * (not jobs)]
    return meanings | {name: meaning for name, meaning in words("terms").items() if name in used}


def in_words(metric: str) -> str:
    """A device type, or a metric of one number per run, as a reader would say it.

    >>> in_words("reward.mean"), in_words("completion.p95"), in_words("gpu")
    ('reward per slot', '95th percentile of completion', 'GPUs')
    """
    if metric in (devices := words("devices")):
        return str(devices[metric])
    name, _, stat = metric.rpartition(".")
    if name and stat == "mean" and name in (*words("metrics"), "reward"):
        return f"{name.replace('_', ' ')} per slot"
    patterns = {"mean": "mean {}", "total": "total {}", "p95": "95th percentile of {}"}
    return patterns[stat].format(name.replace("_", " ")) if name and stat in patterns else metric


def cell_text(names: Sequence[str], cell: Sequence[Any]) -> str:
    """A cell in words.

    >>> cell_text(["contention"], (5,)), cell_text([], ())
    ('contention = 5', 'all')
    """
    return ", ".join(f"{name} = {value}" for name, value in zip(names, cell)) or "all"


def plain(comparator: str) -> str:
    return str(words("comparators").get(comparator, {"plain": comparator})["plain"])


def about_scenario(name: str) -> str:
    """A scenario in words where the catalogue has some: what stands before its conditions."""
    return _summary("scenario", name).partition(";")[0]


def about_policy(name: str) -> str:
    return _sentence(_summary("policy", name))


def about_scheduler(name: str) -> str:
    """A scheduler in a sentence: that of the catalogue, or those of its parts.

    >>> about_scheduler("fcfs+easy+best-fit")
    'First come, first served; later jobs pass if they do not delay the first one; jobs go ...'
    >>> about_scheduler("sjf:ends=learned")
    'Shortest first, by the requested limit or by what is learned; run times are learned from ...'
    """
    if summary := _summary("scheduler", name):
        return _sentence(summary)
    texts: list[str] = []
    plain, _, arguments = name.partition(":")
    # A name has one part of a kind at most.
    for kind in ("queue", "backfilling", "choice"):
        for part in [p for p in plain.split("+") if p in parts(kind)][:1]:  # type: ignore[call-overload,unused-ignore]  # of a Literal
            texts.append(f"{'jobs go to ' * (kind == 'choice')}{words(kind).get(part, part)}")
    for argument in filter(None, arguments.split(",")):
        meanings = words("arguments")
        # By itself first, as ``ends=learned``, then by its name without the value.
        texts.append(meanings.get(argument, meanings.get(argument.partition("=")[0], argument)))
    return _sentence("; ".join(texts))


@cache
def short_name(name: str) -> str:
    """A scheduler as people say it: EASY is first come, first served unless another order is named.

    >>> short_name("fcfs+easy+best-fit"), short_name("sjf+easy"), short_name("fcfs")
    ('EASY, best fit', 'shortest first with EASY', 'first come, first served')
    >>> short_name("drf")
    'drf'
    """
    plain, _, arguments = name.partition(":")
    short, names = words("short"), plain.split("+")
    if not all(part in short for part in names):
        return name
    # EASY means first come, first served where no other order is named.
    if names[0] == "fcfs" and {"easy", "conservative"} & set(names):
        names = names[1:]
    extras = [short.get(argument, argument) for argument in arguments.split(",") if argument]
    order, *rest = [*(short[part] for part in names), *extras]
    with_it = len(names) > 1 and names[1] in words("backfilling")
    return ", ".join([f"{order} with {rest[0]}", *rest[1:]] if with_it else [order, *rest])


def human(name: str) -> str:
    """Plain name below the code name of a scheduler or comparator; empty where it is the same.

    >>> human("fcfs+easy"), human("best_fixed"), human("seed")
    ('EASY', 'best fixed decision', '')
    """
    short = plain(name) if name in words("comparators") else short_name(name)
    return "" if short == name else short


def documentation(family: str) -> tuple[str, str]:
    """The page of the documentation about a family: its path, and its address if one is known."""
    page = words("families").get(family, {"page": "reference"})["page"]
    urls: list[str] = []
    with suppress(PackageNotFoundError):  # used from a checkout without being installed
        urls = metadata("gangwise").get_all("Project-URL") or []
    # They are written as ``Documentation, https://…``.
    address = dict(url.split(", ", 1) for url in urls).get("Documentation", "")
    return page, f"{address.rstrip('/')}/{page}/" if address else ""


def _summary(kind: Kind, name: str) -> str:
    entry = entries(kind).get(name.partition(":")[0])
    return "" if entry is None else entry.summary


def _sentence(text: str) -> str:
    return f"{sentence_case(text)}." if text else ""


def by_command(command: str, what: str, otherwise: str) -> list[Part]:
    """The command that gives these results again; ``otherwise`` says how, without a command."""
    if not command:
        return [Text(otherwise)]
    give = "commands give" if "\n" in command else "command gives"
    return [Text(f"The same {give} the same {what}:"), Code(command)]


def how_to_repeat(
    how: Sequence[Part],
    used: Mapping[str, object],
    caption: str = "Versions",
    runs: Sequence[str] = (),
    digest: str = "",
    of: str = "",
) -> Section:
    """The last section of a page; ``digest`` is the SHA-256 of what ``of`` says."""
    parts = [*how, Values(used, caption)]
    if runs:
        says = "A run is stored under a hash of everything that defines it, in `runs/KEY.parquet`."
        keys: list[Part] = [Text(says), Code("\n".join(runs))]
        parts.append(Fold(f"Keys of the {len(runs)} runs", keys))
    if digest:
        parts.append(Text(f"Numbers on this page: SHA-256 `{digest}` of {of}.", "digest"))
    return Section("How to get this again", parts)


def answer_page(
    subject: str,
    verdict: str,
    facts: Sequence[str],
    parts: Sequence[Part],
    command: str,
    terms: Sequence[str],
    what: str = "numbers",
) -> Page:
    """The page of an answer without stored runs: the command says how it is made again."""
    how = by_command(command, what, f"These {what} were made from Python.")
    provenance = how_to_repeat(how, versions())
    return answer(subject, f"{verdict}.", facts, parts, provenance, jobs_terms(*terms))


def how_made(
    folder: Path,
    name: str,
    of: Sequence[str],
    file: str = "",
    more: Mapping[str, str] | None = None,
    runs: Sequence[str] = (),
) -> Section:
    """Text on how an experiment of a folder was made, whose numbers are in some of its files.

    Their digest is the SHA-256 of lines "name, a blank, SHA-256 of the file", sorted, so that
    ``sha256sum`` finds it as well. A file that is not there has no line.
    """
    origin, how = read_provenance(folder, name), list[Part]()
    if origin is not None and origin.command:
        how += by_command(origin.command, "rewards", "")
        how += [Text("As an experiment file, with all that the command changed:")] * bool(file)
    elif file:
        how.append(Text(phrase("made from Python", name=name)))
        how.append(Code(f"gangwise sweep {name}.toml --out {folder.name or 'results'}"))
    how += [Code(file.rstrip())] * bool(file)
    inside = files.Folder(folder)
    lines = [
        f"{file_name} {files.digest_of(files.read_whole(inside.place(file_name)))}\n"
        for file_name in sorted(set(of))
        if inside.is_there(file_name)
    ]
    return how_to_repeat(
        how,
        {**(origin.versions if origin is not None else versions()), **(more or {})},
        "Versions" if origin is not None else "Versions that wrote this page",
        runs,
        hashlib.sha256("".join(lines).encode()).hexdigest(),
        "1 file" if len(of) == 1 else f"{len(of):,} files",
    )

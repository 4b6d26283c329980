"""The artefacts of a paper, from the tables of ``papers/PAPER.toml``.

``[[figures]]``
    Figures, tables and theorems, with ``experiments``, ``panels`` and ``claims``. With
    ``each``, the name of another table, there is one for each of its entries, whose values
    stand in texts as ``{key}``; a claim with ``only`` is of that source alone. ``numbers``
    names a function that gives all that is drawn.
``claims``
    A row each: what the number ``says``; what the ``paper`` says, a number, words, or two
    printed values of which the first has a ``lead`` over the second, in per cent; when ours
    agrees, ``near`` the number (by this share of it), ``above`` or ``below`` a level, or never
    judged; which of its ``versions`` or settings (``on``) must agree, ``every`` one of them, and
    else each is a reading of the paper; the ``sentence`` if it is one of the ten of the paper's
    page; ``why`` ours differs, in words or by the name of a reason; and a ``measure`` with
    its parameters, by name (see :mod:`~gangwise.papers.reproduce.measures` and the module of the
    paper). It is measured for each of ``versions`` on each experiment of ``on``, or on all of
    them together (``join``). ``choice`` is the policy that is measured; in it and in
    parameters ``{}`` is the version's policy. ``answers`` names a function that gives the
    numbers of all versions instead.
``ours``
    Versions that are ours, or rivals: shown with the paper's and not tested.
``panels``
    Axes, and a measure of each of ``lines`` ``against`` something, see :func:`_axis`. Entries
    of one name are one panel, with the axes of the first; ``{on}`` is what an experiment is
    called.
``[lines]``
    Which policy a version or a line is, with parameters of its own if any. ``on`` and
    ``versions`` are names of such tables, lists, or tables; without ``on`` it is the figure's
    first experiment.
``[experiments]``
    Fields of an :class:`~gangwise.study.sweep.Experiment`, over those of
    ``[kinds]`` and ``[defaults]``; ``quick`` has those of the quick scale. ``seeds`` is how
    many, from 100 on. There is one experiment for each of ``variants`` or ``lengths`` (of
    slots). ``[policies]`` has the lists of policies that they name.
``[rows]``
    The artefacts that are played again on rows of the traces, see :func:`traced`.
"""

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from importlib import import_module
from itertools import pairwise, product
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from gangwise.core.errors import UnknownName
from gangwise.papers.reproduce import measures
from gangwise.report.pages import AT
from gangwise.report.plotting import Panel, points
from gangwise.study.results import Results
from gangwise.study.statistics import Estimate, mean_and_interval
from gangwise.study.sweep import Experiment

Found = Mapping[str, Results]
"""Results by the name of their experiment."""

ON_ROWS = "-traces"
"""The end of the name of an artefact that is played on rows of the traces."""


@dataclass(frozen=True)
class Rule:
    """When ours agrees with a claim: near a number, or with all of its interval on one side.

    Near a number, the mean decides: it is the number, give or take a share of it. Another size is
    another number, whatever its sign. ``above`` and ``below`` together are a range; without any of
    the three nothing is compared.

    >>> rule = Rule(near=10.0)
    >>> rule(Estimate(12.0, 9.0, 15.0)), rule(Estimate(14.0, 9.0, 19.0))
    (True, False)
    >>> Rule(above=0.0)(Estimate(1.0, -1.0, 3.0)), Rule(below=0.0, above=-5.0)(Estimate(-3, -4, -2))
    (False, True)
    >>> Rule()(Estimate(1.0, 0.0, 2.0)) is None
    True
    """

    near: float | None = None
    within: float = 0.25  # share of the number that is near
    above: float | None = None
    below: float | None = None

    @property
    def compares(self) -> bool:
        return (self.near, self.above, self.below) != (None, None, None)

    @property
    def text(self) -> str:
        if self.near is not None:
            return f"the mean is within {100 * self.within:.3g} % of {self.near:g}"
        sides = [
            f"{side} {level:g}"
            for side, level in (("above", self.above), ("below", self.below))
            if level is not None
        ]
        return f"the whole interval is {' and '.join(sides)}" if sides else "not judged"

    def __call__(self, found: Estimate) -> bool | None:
        """Whether an estimate agrees; None where nothing is compared."""
        if not self.compares:
            return None
        if self.near is not None:
            return abs(found.mean - self.near) <= self.within * abs(self.near)
        # Without an interval (a single seed, a formula) the mean stands for both ends.
        low, high = (found.mean if v is None else v for v in found[1:])
        return (self.above is None or low > self.above) and (
            self.below is None or high < self.below
        )


@dataclass(frozen=True)
class RunScale:
    """Scale of what is played: as much as in the paper, or less."""

    quick: bool = False  # small enough for a coffee break, rather than what the paper played
    seeds: tuple[int, ...] | None = None  # instead of the artefact's own
    traces: Path | None = None  # with folders of public traces, without which some are left out

    def first_seeds(self, own: int | list[int]) -> list[int]:
        """So many seeds from 100 on, or these, unless others were asked for."""
        own = own if isinstance(own, list) else list(range(100, 100 + own))
        return own if self.seeds is None else list(self.seeds)


@dataclass(frozen=True)
class Claim:
    """One statement of a paper, and our number for it.

    ValueError for a number of a paper that is to be judged by its sign alone.
    """

    says: str  # what the number is, with its unit: "ESDP over LWTF at T = 8000, %"
    paper: float | str  # the paper's number, or its statement where it gives none
    ours: Callable[[Found], Mapping[str, Estimate]]  # by version of the algorithm: "as printed"
    rule: Rule
    why: str = ""  # where ours differs or may: what the paper leaves open, a misprint, …
    timed: bool = False  # a computation time, which no run finds again
    # Versions that are shown and not tested: rivals of the paper's algorithm, measured with another
    # method than the paper's, or with a number that is what it is by definition.
    beside: tuple[str, ...] = ()
    every: str = ""  # all "versions", or all settings ("on"), must agree; else each is a reading
    # What a row is called → its version and its setting; empty where all must agree.
    readings: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    sentence: str = ""  # the claim as a sentence, if it is one of the ten of the paper's page

    def __post_init__(self) -> None:
        by_side = (self.rule.above, self.rule.below) != (None, None)
        # A number that only had to have the right sign would agree far too easily.
        if isinstance(self.paper, float) and by_side:
            raise ValueError(f"{self.says}: {self.paper} is a number; ours must be near it")

    def agrees(self, version: str, found: Estimate) -> bool | None:
        """Whether our number for a version does; None where it is not tested."""
        version = version.partition(AT)[0]
        # A row is called VERSION or VERSION, SETTING; a longer name may begin alike.
        rival = any(version == name or version.startswith(f"{name}, ") for name in self.beside)
        return None if rival else self.rule(found)

    @property
    def rule_text(self) -> str:
        """Rule of the claim in words, with all that decides its verdict: this is hashed."""
        every = {"versions": "; of every policy named", "on": "; in every setting"}
        beside = f"; not tested: {', '.join(self.beside)}" * bool(self.beside)
        return self.rule.text + every.get(self.every, "") + beside


@dataclass(frozen=True, eq=False)
class Artefact:
    """A figure, a table or a theorem; those that need the same runs share them."""

    paper: str  # "esdp"
    name: str  # "figure-2"
    title: str  # "AOU against time slots"
    experiments: Callable[[RunScale], Sequence[Experiment]]
    numbers: Callable[[Found], pl.DataFrame]  # what is drawn, see gangwise.report.plotting
    panels: Sequence[Panel]  # the paper's axes
    claims: Sequence[Claim] = ()
    trace: str = ""  # folder of the public trace that it needs, if any

    @property
    def stem(self) -> str:
        return f"{self.paper}-{self.name}"


Table = Mapping[str, Any]

ROWS_FOLDER = "alibaba-v2018"
"""The folder of the trace; the folder of gpu-v2020 is next to it."""

CLAIM = {
    *("says", "paper", "number", "near", "above", "below", "why", "timed", "beside", "only"),
    *("measure", "versions", "on", "named", "join", "choice", "every", "sentence"),
}
AXES = {field.name for field in fields(Panel)}
PANEL = AXES | {"measure", "printed", "lines", "on", "against", "label", "first", "since"}
"""Keys of claims and of panels that are no parameters of their measures."""


class LabelledExperiment(NamedTuple):
    """An experiment, what it is called in labels, and parameters that are for it alone."""

    label: str
    experiment: str
    parameters: Table = MappingProxyType({})


def _read(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name("papers") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _filled(value: Any, key: str, text: str) -> Any:
    if isinstance(value, str):
        return value.replace(f"{{{key}}}", text)
    if isinstance(value, dict):
        return {_filled(k, key, text): _filled(v, key, text) for k, v in value.items()}
    return [_filled(v, key, text) for v in value] if isinstance(value, list) else value


class Paper:
    """The tables of one of :data:`gangwise.papers.reproduce.PAPERS`, as artefacts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tables = _read(name)
        self._functions = {
            **vars(measures),
            **vars(import_module(f"gangwise.papers.reproduce.{name}")),
        }

    def artefacts(self) -> tuple[Artefact, ...]:
        """Figures, tables and theorems in order; then those on rows of the traces."""
        figures = (source for figure in self.tables["figures"] for source in self._sources(figure))
        artefacts = {figure["name"]: self._artefact(figure) for figure in figures}
        rows = self.tables.get("rows", {"slots": {}})
        # Readings of which rows the authors took are the same for
        # both papers, but for some of one alone.
        every = _read("traces")["readings"]
        readings = [source for source in every if source.get("only", self.name) == self.name]
        instead = self.tables["defaults"].get("scenario", "")
        again = [
            traced(artefacts[name], instead, rows["scenario"], readings, slots, rows["without"])
            for name, slots in rows["slots"].items()
        ]
        return *artefacts.values(), *again

    def _sources(self, figure: Table) -> Iterator[dict[str, Any]]:
        """A figure, or one for each source: the entries of the table that it names."""
        for source in self.tables[figure["each"]] if "each" in figure else [{}]:
            name = source.get("source")
            claims = [claim for claim in figure["claims"] if claim.get("only", name) == name]
            chosen = {**figure, "claims": claims}
            for key, text in source.items():
                chosen = _filled(chosen, key, text)
            yield chosen

    def _artefact(self, figure: Table) -> Artefact:
        names = figure["experiments"]

        def experiments(scale: RunScale) -> list[Experiment]:
            return [experiment for name in names for experiment in self.experiments(name, scale)]

        def numbers(found: Found) -> pl.DataFrame:
            panels = figure["panels"]
            return points(row for panel in panels for row in self._rows(panel, names[0], found))

        panels: dict[str, Panel] = {}
        for panel in figure["panels"]:
            axes = {key: value for key, value in panel.items() if key in AXES}
            for place in self.places(panel.get("on", [names[0]])):
                name = panel["name"].replace("{on}", place.label)
                if name not in panels:
                    panels[name] = Panel(**{**axes, "name": name})
        return Artefact(
            self.name,
            figure["name"],
            figure["title"],
            experiments,
            self._functions[figure["numbers"]] if "numbers" in figure else numbers,
            list(panels.values()),
            [self._claim(row, names[0]) for c in figure["claims"] for row in self._printed(c)],
            figure.get("trace", ""),
        )

    # Experiments

    def _specification(self, name: str) -> dict[str, Any]:
        own = self.tables["experiments"][name]
        kind = self.tables["kinds"][own["kind"]] if "kind" in own else {}
        layers = (self.tables["defaults"], kind, own)
        merged = {**self.tables["defaults"], **kind, **own}
        # Nested tables are merged key by key; {**a, **b} would replace the whole of them.
        merged["quick"] = {k: v for layer in layers for k, v in layer.get("quick", {}).items()}
        return merged

    def _variants(self, specification: Table, lengths: Sequence[int]) -> dict[str, dict[str, Any]]:
        if lengths:
            return {str(slots): {"name": str(slots), "slots": slots} for slots in lengths}
        chosen = specification.get("variants") or {"": {}}
        if isinstance(chosen, list):
            chosen = {label: self.tables["variants"][label] for label in chosen}
        return dict(chosen)

    def _name(self, name: str, variant: Table) -> str:
        return _label(self.name, name, variant.get("name", ""), by="-")

    def experiments(self, name: str, scale: RunScale) -> list[Experiment]:
        """The experiments of an entry of ``[experiments]`` at a scale."""
        specification = self._specification(name)
        quick = specification.pop("quick") if scale.quick else {}
        lengths = {**specification, **quick}.get("lengths", ())
        listed = []
        for variant in self._variants(specification, lengths).values():
            layers = (specification, variant, quick)
            fields = {**specification, **variant, **quick}
            fields["slots"] = variant.get("slots", fields.get("slots"))
            settings = {k: v for layer in layers for k, v in layer.get("settings", {}).items()}
            if "trace" in fields:
                folder = (scale.traces or Path()) / fields["trace"]
                key = "source" if "source" in settings else "folder"
                # A source is a file in the trace's folder; others take the folder itself.
                settings[key] = str(folder / settings.get(key, ""))
            sets = fields["policies"]
            policies = [
                policy
                for part in ([sets] if isinstance(sets, str) else sets)
                for entry in self.tables["policies"][part]
                for policy in self._rates(entry)
            ]
            fields |= {
                "name": self._name(name, variant),
                "settings": settings,
                "seeds": scale.first_seeds(fields["seeds"]),
                "policies": [_with_slots(policy, fields["slots"]) for policy in policies],
            }
            accepted = Experiment.model_fields.keys() - {"trace"}
            listed.append(Experiment(**{k: v for k, v in fields.items() if k in accepted}))
        return listed

    def _rates(self, policy: Any) -> list[Any]:
        """A policy, or with ``rates`` one for each pair of a learning rate and its decay."""
        if isinstance(policy, str) or "rates" not in policy:
            return [policy]
        return [
            {
                "name": policy["name"],
                "label": f"{policy['label']}, {eta:g}, {decay:g}",
                "arguments": {**policy.get("arguments", {}), "eta": eta, "decay": decay},
            }
            for eta, decay in self.tables["rates"]["pairs"]
        ]

    def _members(self, name: str) -> list[LabelledExperiment]:
        specification = self._specification(name)
        # Of either scale: what a claim names must exist whichever is played.
        lengths = {*specification.get("lengths", ()), *specification["quick"].get("lengths", ())}
        return [
            LabelledExperiment("" if lengths else label, self._name(name, variant))
            for label, variant in self._variants(specification, sorted(lengths)).items()
        ]

    def places(self, on: Sequence[str] | Table) -> list[LabelledExperiment]:
        """The experiments that a claim or a panel is ``on``: names, or a table by label."""
        if isinstance(on, Mapping):
            labelled = []
            for label, value in on.items():
                chosen = {"experiment": value} if isinstance(value, str) else dict(value)
                # One experiment exactly: a label stands for one.
                [(_, experiment, _)] = self._members(chosen.pop("experiment"))
                labelled.append(LabelledExperiment(label, experiment, chosen))
            return labelled
        places = []
        for name in on:
            if name in self.tables["experiments"]:
                places += self._members(name)
            else:  # one of several variants, by its whole name
                members = [m for group in self.tables["experiments"] for m in self._members(group)]
                places += [m for m in members if m.experiment == f"{self.name}-{name}"]
        return places

    # Measures

    def _measure(
        self, row: Table, keys: set[str]
    ) -> tuple[Callable[..., Estimate], dict[str, Any]]:
        """The estimate of a claim or a panel, and its parameters: what is not one of ``keys``."""
        parameters = {key: value for key, value in row.items() if key not in keys}
        name = row["measure"]
        if name not in self._functions:
            raise UnknownName("measure", name, [n for n in self._functions if n.islower()])
        measure = self._functions[name]
        # A misspelt parameter would otherwise be found only when results are there.
        accepted = inspect.signature(measure).parameters
        for key in parameters:
            if key not in accepted:
                raise UnknownName(f"parameter of the measure {name}", key, list(accepted))

        @wraps(measure)
        def estimated(*results: Any, **given: Any) -> Estimate:
            measured = measure(*results, **given)
            return measured if isinstance(measured, Estimate) else mean_and_interval(measured)

        return estimated, parameters

    def lines(self, chosen: str | Sequence[str] | Table) -> dict[str, dict[str, Any]]:
        """Lines or versions by label: the policy of each, and parameters that are for it alone."""
        lines = self.tables["lines"][chosen] if isinstance(chosen, str) else chosen
        listed = dict(lines) if isinstance(lines, Mapping) else {name: name for name in lines}
        return {
            label: {"policy": value} if isinstance(value, str) else dict(value)
            for label, value in listed.items()
        }

    def _printed(self, row: Table) -> Iterator[Table]:
        """A claim, or one for each value of a table that is ``printed``."""
        if "printed" not in row:
            yield row
            return
        table = self.tables["printed"][row["printed"]]
        for column in table["columns"]:
            ours, *theirs = column["averages"]
            chosen = {k: v for k, v in column.items() if k not in ("at", "averages")}
            for (name, policy), value in zip(table["baselines"].items(), theirs, strict=True):
                claim = {**row, **chosen, "over": [policy], "paper": {"lead": [ours, value]}}
                claim["says"] = row["says"].format(baseline=name, at=column["at"])
                claim["paper"]["digits"] = 2
                del claim["printed"]
                yield claim

    def _claim(self, row: Table, first: str) -> Claim:
        paper, whys = row["paper"], row.get("why", [])
        if isinstance(paper, dict):
            ours, theirs = paper["lead"]
            # Two printed values: the paper's own percentage often differs from what they give.
            paper = round(100 * (ours / theirs - 1), paper["digits"])
        reasons = self.tables["reasons"]
        every = row.get("every", "")
        versions, settings = {}, [""]
        if "answers" not in row:
            versions = self.lines(row.get("versions", "versions"))
        if not row.get("join") and row.get("named", True):
            settings = [place.label for place in self.places(row.get("on", [first]))]
        return Claim(
            row["says"],
            paper,
            self._functions[row["answers"]] if "answers" in row else self._ours(row, first),
            Rule(
                row.get("number", paper) if "near" in row else None,
                row.get("near", 0.25),
                row.get("above"),
                row.get("below"),
            ),
            "; ".join(
                reasons.get(reason, reason)
                for reason in ([whys] if isinstance(whys, str) else whys)
            ),
            row.get("timed", False),
            tuple(dict.fromkeys([*self.tables.get("ours", ()), *row.get("beside", ())])),
            every,
            {
                _label(version, place): (
                    "" if every == "versions" else version,
                    "" if every == "on" else place,
                )
                for version, place in product(versions, settings)
            },
            row.get("sentence", ""),
        )

    def _ours(self, row: Table, first: str) -> Callable[[Found], dict[str, Estimate]]:
        measure, parameters = self._measure(row, CLAIM)
        every = self.lines(row.get("versions", "versions"))
        places = self.places(row.get("on", [first]))

        def answer(line: Table, place: LabelledExperiment, *results: Results) -> Estimate:
            arguments = {**parameters, **line, **place.parameters}
            policy = arguments.pop("policy")
            # {} in parameters stands for the policy of the version that is measured.
            arguments = _filled(arguments, "", policy)
            chosen = row.get("choice", "{}").replace("{}", policy)
            if row.get("join") and "also" in inspect.signature(measure).parameters:
                arguments["also"] = results
            return measure(results[-1], chosen, **arguments)

        def ours(found: Found) -> dict[str, Estimate]:
            played = [place for place in places if place.experiment in found]
            versions = {
                label: line
                for label, line in every.items()
                if not any(self._left_out(line["policy"], found[p.experiment]) for p in played)
            }
            if row.get("join"):
                results = [found[place.experiment] for place in played]
                nowhere = LabelledExperiment("", "")
                return {label: answer(v, nowhere, *results) for label, v in versions.items()}
            return {
                _label(version, place.label if row.get("named", True) else ""): answer(
                    line, place, found[place.experiment]
                )
                for place in played
                for version, line in versions.items()
            }

        return ours

    def _left_out(self, who: str, results: Results) -> bool:
        return (
            who in self.tables.get("rows", {}).get("without", ())
            and who not in results.policies + results.comparators
        )

    def _rows(self, panel: Table, first: str, found: Found) -> Iterator[tuple[Any, ...]]:
        for line, means in panel.get("printed", {}).items():
            for x, mean in zip(panel["against"], means, strict=True):
                yield panel["name"], line, x, mean, None, None
        if "measure" not in panel:
            return
        measure, parameters = self._measure(panel, PANEL)
        lines = self.lines(panel["lines"])
        for place in self.places(panel.get("on", [first])):
            if place.experiment not in found:
                continue
            results = found[place.experiment]
            name = panel["name"].replace("{on}", place.label)
            base = panel.get("base", next(iter(lines.values()))["policy"])
            points = list(_axis(results, panel, base))
            for line, chosen in lines.items():
                for x, text, point in points:
                    base = chosen["policy"].replace("{x}", text)
                    if self._left_out(base, results):
                        continue
                    both = {**parameters, **point}
                    if "cell" in parameters and "cell" in point:
                        # The panel fixes some settings and the axis
                        # another: a cell names all of them.
                        both["cell"] = {**parameters["cell"], **point["cell"]}
                    yield name, line, x, *measure(results, base, **both)


def _called(policy: Any) -> str:
    return policy if isinstance(policy, str) else policy.label or policy.name


def _with_slots(policy: Any, slots: int | None) -> Any:
    if isinstance(policy, str) or "arguments" not in policy:
        return policy
    arguments = {k: slots if v == "{slots}" else v for k, v in policy["arguments"].items()}
    return {**policy, "arguments": arguments}


def _label(*parts: str, by: str = ", ") -> str:
    return by.join(filter(None, parts))


Point = tuple[float | str, str, dict[str, Any]]
"""x, what stands for ``{x}`` in the policy of a line, and parameters of the measure."""


def _axis(results: Results, panel: Table, who: str) -> Iterator[Point]:
    """The points of a panel ``against``: a setting that varies, or one of these.

    ``recorded`` slots, from ``first`` or T/``since`` on, or the ``ends`` of these; ``logarithmic``
    slots; ``intervals`` between such; a list of ``parts``: slots T/part; ``length``: T itself;
    names, by list or by label; ``:argument=``: the values of an argument in the policies' names.
    """
    against = panel["against"]
    if isinstance(against, Mapping):
        yield from ((label, value, {}) for label, value in against.items())
    elif isinstance(against, list) and isinstance(against[0], str):
        yield from ((name, name, {}) for name in against)
    elif against == "length":
        yield measures.slots_played(results), "", {}
    elif isinstance(against, str) and against.startswith(":"):
        texts = [name.partition(against)[2] for name in results.policies if against in name]
        yield from ((float(text), text, {}) for text in dict.fromkeys(texts))
    elif against in results.cells:
        for value in measures.values(results, against):
            x = value if isinstance(value, str) else float(value)
            label = panel["label"].replace("{x}", str(value)) if "label" in panel else x
            yield label, "", {"cell": {against: value}}
    else:
        yield from _slot_axis(measures.recorded(results, who), panel)


def _slot_axis(slots: Any, panel: Table) -> Iterator[Point]:
    against, T = panel["against"], float(slots[-1])
    if isinstance(against, list):
        yield from ((T / part, "", {"at": T / part}) for part in against)
    elif against == "logarithmic":
        yield from ((at, "", {"at": at}) for at in np.geomspace(10, T, 40))
    elif against == "intervals":
        edges = pairwise(np.geomspace(10, T, 25))
        yield from ((end, "", {"interval": (begin, end)}) for begin, end in edges)
    else:
        begin = panel.get("first", T / panel["since"] if "since" in panel else 0)
        chosen = [at for at in slots if at >= begin]
        if against == "ends":
            yield from ((at, "", {}) for at in (chosen[0], T))
        else:
            yield from ((at, "", {"at": at}) for at in chosen)


# On rows of the traces


def traced(
    artefact: Artefact,
    instead: str,
    scenario: str,
    readings: Sequence[Table],
    slots: Sequence[int],
    without: Sequence[str] = (),
) -> Artefact:
    """An artefact on rows of the traces, once for each reading of which rows the authors took.

    ``scenario`` replaces the scenario ``instead``, with its settings and those of a reading;
    experiments of other scenarios are not played. There are at most so many ``slots`` at the quick
    scale and at the full one, and 3 and 10 seeds. Policies ``without`` a claim of the paper are
    left out at full scale. The picture is of the first reading.
    """

    def experiments(scale: RunScale) -> list[Experiment]:
        most = slots[0 if scale.quick else 1]
        # Every reading is played: fewer seeds of each, for the same time.
        chosen = replace(scale, seeds=tuple(scale.first_seeds(3 if scale.quick else 10)))
        folder = {"folder": str(scale.traces or "")}
        left_out = () if scale.quick else without
        return [
            experiment.model_copy(
                update={
                    "name": f"{experiment.name}-rows-{i}",
                    "scenario": scenario,
                    "settings": {**experiment.settings, **reading.get("settings", {}), **folder},
                    "slots": min(experiment.slots or 2000, most),
                    "policies": [p for p in experiment.policies if _called(p) not in left_out],
                    "comparators": [c for c in experiment.comparators if c not in left_out],
                }
            )
            for i, reading in enumerate(readings)
            for experiment in artefact.experiments(chosen)
            # Only experiments of the replaced scenario have rows to be played on.
            if experiment.scenario == instead
        ]

    def of_reading(found: Found, i: int) -> dict[str, Results]:
        ending = f"-rows-{i}"
        return {k.removesuffix(ending): v for k, v in found.items() if k.endswith(ending)}

    def in_all(claim: Claim) -> Callable[[Found], dict[str, Estimate]]:
        def ours(found: Found) -> dict[str, Estimate]:
            with np.errstate(invalid="ignore", divide="ignore"):
                return {
                    f"{version}{AT}{reading['name']}": estimate
                    for i, reading in enumerate(readings)
                    for version, estimate in claim.ours(of_reading(found, i)).items()
                }

        return ours

    return Artefact(
        artefact.paper,
        f"{artefact.name}{ON_ROWS}",
        f"{artefact.title}, {readings[0]['name']}",
        experiments,
        lambda found: artefact.numbers(of_reading(found, 0)),
        artefact.panels,
        [
            replace(claim, ours=in_all(claim))
            for claim in artefact.claims
            if claim.rule.compares and not claim.timed
        ],
        ROWS_FOLDER,
    )

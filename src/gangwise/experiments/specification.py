"""Experiment files: which policies play which cells of which scenario, with which seeds.

.. code-block:: toml

    name = "contention"
    scenario = "ogasched-default-v1"    # a registered scenario or a scenario file (.toml), or
    # trace = "traces/alibaba"          # the file or folder of a trace
    slots = 500                         # the scenario's own by default
    seeds = 5                           # how many (0 to 4), or a list: [3, 7]
    comparators = ["best_fixed"]        # none by default
    policies = ["drf", "ogasched-react:steps=5"]

    [settings]                          # of the scenario, in every cell
    servers = 64

    [grid]                              # every combination is a cell
    contention = [1, 5, 10]

A policy may also be a table, with a grid of its own:

.. code-block:: toml

    [[policies]]
    name = "ogasched-react"
    label = "ascent"                    # what to call it in results
    arguments = { fraction = 0.2 }
    grid = { steps = [1, 5] }           # ascent:steps=1, ascent:steps=5
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from gangwise.core.contracts import Policy
from gangwise.core.errors import ScenarioError
from gangwise.core.registry import create
from gangwise.core.settings import MOST_LETTERS, MOST_SEEDS, read_toml, toml_text, toml_value
from gangwise.experiments.runs import NamedSource, RunSpec, deciders

_COLUMNS = (
    "policy comparator seed seeds metric at value key mean low high over percent share regret"
)
COLUMNS = frozenset(_COLUMNS.split())
"""Columns of results, whose names no setting that varies can have."""


def _differ(values: list[Any]) -> list[Any]:
    """Refuse to list something twice: it would count twice."""
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ValueError(f"{value!r} is listed twice")
    return values


Settings = dict[str, Any]
Grid = dict[str, Annotated[list[Any], Field(min_length=1), AfterValidator(_differ)]]


Seeds = (
    Annotated[int, Field(gt=0, le=MOST_SEEDS)]
    | Annotated[list[NonNegativeInt], Field(min_length=1, max_length=MOST_SEEDS)]
)


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PolicyTable(_Strict):
    """A policy with its arguments, and a grid over some of them."""

    name: str = Field(description="a registered policy, with arguments after a colon if wanted")
    label: str = Field(
        "", max_length=MOST_LETTERS, description="what to call it in results; its name by default"
    )
    arguments: Settings = Field({}, description="arguments of the policy")
    grid: Grid = Field({}, description="arguments to vary: every combination is a policy")
    settings: Settings = Field({}, description="settings with which it alone is played")

    def labelled(self, kind: Any = "policy") -> dict[str, Policy[Any, Any, Any]]:
        found: dict[str, Policy[Any, Any, Any]] = {}
        for chosen in _combinations(self.grid):
            fixed = {} if self.label else self.arguments
            arguments = ",".join(f"{key}={value}" for key, value in {**fixed, **chosen}.items())
            base = self.label or self.name
            label = base + (("," if ":" in base else ":") + arguments if arguments else "")
            found[label] = create(kind, self.name, **{**self.arguments, **chosen})
        return found


class Experiment(_Strict):
    """An experiment file, checked.

    >>> experiment = Experiment(
    ...     name="small",
    ...     scenario="ogasched-default-v1",
    ...     policies=["drf", "fairness"],
    ...     settings={"servers": 16},
    ...     grid={"contention": [1, 5]},
    ...     slots=20,
    ...     seeds=3,
    ... )
    >>> len(experiment.runs())
    12
    """

    name: str = Field(
        pattern=r"^[\w-][\w.-]*$", max_length=100, description="names the files of its results"
    )
    scenario: str = Field(
        "",
        description="a registered scenario, with settings after a colon if "
        "wanted, or a scenario file (.toml)",
    )
    trace: str = Field("", description="the file or folder of a trace, instead of a scenario")
    settings: Settings = Field({}, description="settings of the scenario or trace in every cell")
    grid: Grid = Field({}, description="settings to vary: every combination is a cell")
    cases: list[Settings] = Field(
        [], description="settings that vary together: each case is combined with the whole grid"
    )
    policies: list[str | PolicyTable] = Field(min_length=1, description="names or tables")
    seeds: Seeds = Field(5, description="how many, from 0 on, or which")
    slots: PositiveInt | None = Field(None, description="per run; the scenario's own by default")
    comparators: list[str] = Field([], description="comparators to evaluate in every cell and seed")
    optimum_slots: PositiveInt | None = Field(
        200, description="comparators that solve a programme per slot do so on so many slots"
    )
    points: PositiveInt = Field(
        150,
        description="slots, at most, at which cumulative curves are recorded: half of them "
        "evenly spaced, half of them evenly spaced on a logarithmic axis",
    )
    every_slot: bool = Field(
        False, description="keep rewards and metrics of every slot, as a comparison does"
    )
    objective: str = Field(
        "", description="the metric that policies are ranked by, the scenario's own by default"
    )
    minimise: bool = Field(False, description="whether less of the objective is better")
    metrics: list[str] = Field([], description="metrics that tables show beside the reward")

    @field_validator("seeds", "cases", "comparators")
    @classmethod
    def _once(cls, listed: Any) -> Any:
        return _differ(listed) if isinstance(listed, list) else listed

    @model_validator(mode="after")
    def _one_source(self) -> Experiment:
        if bool(self.scenario) == bool(self.trace):
            raise ValueError("give either scenario or trace")
        return self

    @model_validator(mode="after")
    def _cells_have_names_of_their_own(self) -> Experiment:
        varied = {key for case in self.cases for key in case}
        for key in self.grid:
            if key in varied:
                raise ValueError(f"{key} is both in grid and in cases")
        for key in varied.union(self.grid) & COLUMNS:
            raise ValueError(f"{key} cannot vary: results have a column of that name")
        return self

    @classmethod
    def read(cls, path: Path | str, **changes: Any) -> Experiment:
        """Read an experiment file.

        Paths in it are relative to its folder: a scenario file, a trace, and a setting ``folder``.
        ``changes`` are fields that win over the file's; ``settings`` are merged. Raises
        ScenarioError with the file and the key at fault.
        """
        path = Path(path)
        content = read_toml(path)
        settings = content.get("settings", {})
        if isinstance(settings, dict):
            _near(settings, "folder", path.parent)
            changes["settings"] = {**settings, **changes.get("settings", {})}
        _near(content, "trace", path.parent)
        if str(content.get("scenario", "")).endswith(".toml"):
            _near(content, "scenario", path.parent)
        return cls.of({**content, **changes}, str(path))

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str = "experiment") -> Experiment:
        """Check the content of an experiment file; raises ScenarioError with the key at fault."""
        try:
            return cls(**content)
        except ValidationError as error:
            first = max(error.errors(), key=_closeness)
            key = ".".join(str(part) for part in first["loc"] if part not in _BRANCHES)
            message = first["msg"].removeprefix("Value error, ")
            if first["type"] == "extra_forbidden":
                known = PolicyTable if "policies" in first["loc"] else cls
                message = f"there is no such key; known: {', '.join(known.model_fields)}"
            raise ScenarioError(f"{where}: {key + ': ' if key else ''}{message}") from error

    @property
    def cells(self) -> list[Settings]:
        """The settings of each cell that vary; a single empty cell where nothing varies."""
        return [
            {**case, **chosen} for case in self.cases or [{}] for chosen in _combinations(self.grid)
        ]

    def labelled(self) -> dict[str, Policy[Any, Any, Any]]:
        """The policies by label.

        Raises UnknownName for a policy or argument that does not exist, ScenarioError for two
        policies with one label.
        """
        source = self.scenario or self.trace
        first = NamedSource.of(source, bool(self.trace), {**self.settings, **self.cells[0]})
        kind = deciders(first.scenario())
        found: dict[str, Policy[Any, Any, Any]] = {}
        for table in self._tables:
            for label, policy in table.labelled(kind).items():
                if label in found:
                    raise ScenarioError(f"two policies are called {label!r}; give one a label")
                found[label] = policy
        return found

    @property
    def _tables(self) -> list[PolicyTable]:
        return [PolicyTable(name=e) if isinstance(e, str) else e for e in self.policies]

    def runs(self) -> list[RunSpec]:
        """All runs, cell by cell and seed by seed, so that neighbours share their instance."""
        everyone: dict[str, Policy[Any, Any, Any] | None] = {**self.labelled()}
        judges = [(name, None) for name in self.comparators]
        changes = {t.label or t.name: t.settings for t in self._tables if t.settings}
        seeds = self.seeds if isinstance(self.seeds, list) else range(self.seeds)
        found = []
        for cell in self.cells:
            settings = {**self.settings, **cell}
            source = NamedSource.of(self.scenario or self.trace, bool(self.trace), settings)
            slots = self.slots or source.scenario().slots
            if cell.get("slots", slots) != slots:
                raise ScenarioError(
                    f"slots = {cell['slots']} is one of the cells, but {slots} slots would be "
                    "played in it; leave slots out of the experiment"
                )
            how = self.optimum_slots, self.points
            of = {label: source.changed(each) for label, each in changes.items()}
            found += [
                RunSpec(
                    of.get(label, source), cell, seed, slots, *how, label, policy, self.every_slot
                )
                for seed in seeds
                for label, policy in [*everyone.items(), *judges]
            ]
        return found


_BRANCHES = ("str", "PolicyTable", "list[constrained-int]", "constrained-int")


def _closeness(error: Any) -> tuple[int, bool]:
    """The deepest error of a union is of the branch that was meant."""
    return len(error["loc"]), not error["type"].endswith("_type")


def schema() -> dict[str, Any]:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Experiment.model_json_schema(),
        "description": "An experiment file of gangwise.",
    }


def _combinations(grid: Mapping[str, list[Any]]) -> list[Settings]:
    return [dict(zip(grid, values)) for values in product(*grid.values())]


def _near(content: dict[str, Any], key: str, folder: Path) -> None:
    if isinstance(content.get(key), str) and (folder / content[key]).exists():
        content[key] = str(folder / content[key])


def experiment_toml(experiment: Mapping[str, Any]) -> str:
    """The text of an experiment file, without what is as by default.

    >>> print(experiment_toml({"name": "a", "seeds": 3, "trace": "", "grid": {"rho": [0.5, 1]}}))
    name = "a"
    seeds = 3
    <BLANKLINE>
    [grid]
    rho = [0.5, 1]
    <BLANKLINE>
    """
    plain, tables = [], []
    for key, value in experiment.items():
        if value is None or value in ("", [], {}):
            continue
        if isinstance(value, Mapping):
            tables.append(toml_text({key: value}))
        elif key in ("policies", "cases"):
            given = [
                {k: v for k, v in entry.items() if v not in ("", {})}
                if isinstance(entry, Mapping) and "name" in entry  # a policy's table
                else entry
                for entry in value
            ]
            each = "".join(f"    {toml_value(entry)},\n" for entry in given)
            plain.append(f"{key} = [\n{each}]")
        else:
            plain.append(f"{key} = {toml_value(value)}")
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"

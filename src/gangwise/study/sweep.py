"""Experiment files, and sweeps: all their runs that are not finished, on many cores or machines.

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

Workers compute, this process writes: a cluster needs no shared folder, and a run is stored once,
however often a worker that died made it be computed. What :func:`perform` does, a comparison, a
sweep, a tuning and a reproduction do alike.

Replays under built-in schedulers, which compiled code plays from end to end, have threads of this
process: compiled code holds no lock of the interpreter. Other runs have processes, here or on a
cluster: see :mod:`gangwise.study.workers`.
"""

from __future__ import annotations

import ast
import inspect
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import pydantic

from gangwise.core import contracts, registry
from gangwise.core.arrays import Checked
from gangwise.core.errors import GangwiseError, ScenarioError, StoreError, UnknownName
from gangwise.core.settings import (
    MOST_LETTERS,
    MOST_SEEDS,
    fault_text,
    read_toml,
    toml_text,
    toml_value,
)
from gangwise.study import runs as study_runs
from gangwise.study.results import Results
from gangwise.study.runs import NamedSource, Replay, Rows, RunSpec, Store

COLUMNS = {"policy", "comparator", "seed", "seeds", "metric", "at", "value", "key"}
COLUMNS |= {"mean", "low", "high", "over", "percent", "share", "regret"}
"""Columns of results, whose names no setting that varies can have."""


def _distinct(values: list[Any]) -> list[Any]:
    """Refuse to list something twice: it would count twice."""
    for i, value in enumerate(values):
        # No set, as values may be lists.
        if value in values[:i]:
            raise ValueError(f"{value!r} is listed twice")
    return values


Settings = dict[str, Any]
Grid = dict[
    str, Annotated[list[Any], pydantic.Field(min_length=1), pydantic.AfterValidator(_distinct)]
]


Seeds = (
    Annotated[int, pydantic.Field(gt=0, le=MOST_SEEDS)]
    | Annotated[list[pydantic.NonNegativeInt], pydantic.Field(min_length=1, max_length=MOST_SEEDS)]
)


class _FrozenModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class PolicyTable(_FrozenModel):
    """A policy with its arguments, and a grid over some of them."""

    name: str
    """a registered policy, with arguments after a colon if wanted"""
    label: str = pydantic.Field("", max_length=MOST_LETTERS)
    """what to call it in results; its name by default"""
    arguments: Settings = {}
    """arguments of the policy"""
    grid: Grid = {}
    """arguments to vary: every combination is a policy"""
    settings: Settings = {}
    """settings with which it alone is played"""

    def labelled(self, kind: Any = "policy") -> dict[str, contracts.Policy[Any, Any, Any]]:
        policies: dict[str, contracts.Policy[Any, Any, Any]] = {}
        for chosen in _combinations(self.grid):
            # A label stands for the fixed arguments; those of the grid always show.
            fixed = {} if self.label else self.arguments
            arguments = ",".join(f"{key}={value}" for key, value in {**fixed, **chosen}.items())
            base = self.label or self.name
            label = base + (("," if ":" in base else ":") + arguments if arguments else "")
            policies[label] = registry.create(kind, self.name, **{**self.arguments, **chosen})
        return policies


class Experiment(_FrozenModel):
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

    name: str = pydantic.Field(pattern=r"^[\w-][\w.-]*$", max_length=100)
    """names the files of its results"""
    scenario: str = ""
    """a registered scenario, with settings after a colon if wanted, or a scenario file (.toml)"""
    trace: str = ""
    """the file or folder of a trace, instead of a scenario"""
    settings: Settings = {}
    """settings of the scenario or trace in every cell"""
    grid: Grid = {}
    """settings to vary: every combination is a cell"""
    cases: list[Settings] = []
    """settings that vary together: each case is combined with the whole grid"""
    policies: list[str | PolicyTable] = pydantic.Field(min_length=1)
    """names or tables"""
    seeds: Seeds = 5
    """how many, from 0 on, or which"""
    slots: pydantic.PositiveInt | None = None
    """per run; the scenario's own by default"""
    comparators: list[str] = []
    """comparators to evaluate in every cell and seed"""
    optimum_slots: pydantic.PositiveInt | None = 200
    """comparators that solve a programme per slot do so on so many slots"""
    points: pydantic.PositiveInt = 150
    """slots, at most, of cumulative curves: half evenly spaced, half so on a logarithmic axis"""
    every_slot: bool = False
    """keep rewards and metrics of every slot, as a comparison does"""
    objective: str = ""
    """the metric that policies are ranked by, the scenario's own by default"""
    minimise: bool = False
    """whether less of the objective is better"""
    metrics: list[str] = []
    """metrics that tables show in addition to the reward"""

    @pydantic.field_validator("seeds", "cases", "comparators")
    @classmethod
    def _listed_once(cls, listed: Any) -> Any:
        return _distinct(listed) if isinstance(listed, list) else listed

    @pydantic.model_validator(mode="after")
    def _one_source(self) -> Experiment:
        if bool(self.scenario) == bool(self.trace):
            raise ValueError("give either scenario or trace")
        return self

    @pydantic.model_validator(mode="after")
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
            _make_relative(settings, "folder", path.parent)
            changes["settings"] = {**settings, **changes.get("settings", {})}
        _make_relative(content, "trace", path.parent)
        if str(content.get("scenario", "")).endswith(".toml"):
            _make_relative(content, "scenario", path.parent)
        return cls.of({**content, **changes}, str(path))

    @classmethod
    def of(cls, content: Mapping[str, Any], where: str = "experiment") -> Experiment:
        """Check the content of an experiment file; raises ScenarioError with the key at fault."""
        try:
            return cls(**content)
        except pydantic.ValidationError as error:
            deepest = max(  # the deepest error of a union is of the branch that was meant
                error.errors(), key=lambda e: (len(e["loc"]), not e["type"].endswith("_type"))
            )
            key = ".".join(str(part) for part in deepest["loc"] if part not in _BRANCHES)
            message = fault_text(deepest)
            if deepest["type"] == "extra_forbidden":
                model = PolicyTable if "policies" in deepest["loc"] else cls
                message = f"there is no such key; known: {', '.join(model.model_fields)}"
            raise ScenarioError(f"{where}: {key + ': ' if key else ''}{message}") from error

    @property
    def cells(self) -> list[Settings]:
        """The settings of each cell that vary; a single empty cell where nothing varies."""
        return [
            {**case, **chosen} for case in self.cases or [{}] for chosen in _combinations(self.grid)
        ]

    def labelled(self) -> dict[str, contracts.Policy[Any, Any, Any]]:
        """The policies by label.

        Raises UnknownName for a policy or argument that does not exist, ScenarioError for two
        policies with one label.
        """
        source = self.scenario or self.trace
        # Any cell will do, as all have deciders of one kind.
        origin = NamedSource.of(source, bool(self.trace), {**self.settings, **self.cells[0]})
        kind = study_runs.deciders(origin.scenario())
        policies: dict[str, contracts.Policy[Any, Any, Any]] = {}
        for table in self._tables:
            for label, policy in table.labelled(kind).items():
                if label in policies:
                    raise ScenarioError(f"two policies are called {label!r}; give one a label")
                policies[label] = policy
        return policies

    @property
    def _tables(self) -> list[PolicyTable]:
        return [PolicyTable(name=e) if isinstance(e, str) else e for e in self.policies]

    def runs(self) -> list[RunSpec]:
        """All runs, cell by cell and seed by seed, so that neighbours share their instance."""
        everyone: dict[str, contracts.Policy[Any, Any, Any] | None] = {**self.labelled()}
        judges = [(name, None) for name in self.comparators]
        changes = {t.label or t.name: t.settings for t in self._tables if t.settings}
        seeds = self.seeds if isinstance(self.seeds, list) else range(self.seeds)
        runs = []
        for cell in self.cells:
            settings = {**self.settings, **cell}
            source = NamedSource.of(self.scenario or self.trace, bool(self.trace), settings)
            require_drawn(source.scenario(), list(seeds))
            slots = self.slots or source.scenario().slots
            if cell.get("slots", slots) != slots:
                raise ScenarioError(
                    f"slots = {cell['slots']} is one of the cells, but {slots} slots would be "
                    "played in it; leave slots out of the experiment"
                )
            how = self.optimum_slots, self.points
            own = {label: source.changed(change) for label, change in changes.items()}
            runs += [
                RunSpec(
                    own.get(label, source), cell, seed, slots, *how, label, policy, self.every_slot
                )
                for seed in seeds
                for label, policy in [*everyone.items(), *judges]
            ]
        return runs


def require_drawn(scenario: Any, seeds: Sequence[int]) -> None:
    """Refuse several seeds of a replay in which nothing is drawn: all would play the same."""
    if (require := getattr(scenario, "require_drawn", None)) is not None:
        require(seeds)


_BRANCHES = ("str", "PolicyTable", "list[constrained-int]", "constrained-int")


def schema() -> dict[str, Any]:
    # pydantic gives the types; what fields mean stands in the source below each.
    about = Experiment.model_json_schema()
    for model, fields in ((Experiment, about), (PolicyTable, about["$defs"]["PolicyTable"])):
        for name, text in _described(model).items():
            fields["properties"][name]["description"] = text
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **about,
        "description": "An experiment file of gangwise.",
    }


def _described(model: type) -> dict[str, str]:
    """The text below each field; pydantic would read the source at every import."""
    (body,) = ast.parse(inspect.getsource(model)).body
    texts = {}
    for line, following in pairwise(getattr(body, "body", ())):
        match line, following:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                texts[name] = inspect.cleandoc(text)
    return texts


def _combinations(grid: Mapping[str, list[Any]]) -> list[Settings]:
    return [dict(zip(grid, values)) for values in product(*grid.values())]


def _make_relative(content: dict[str, Any], key: str, folder: Path) -> None:
    # A path counts from its file where that leads to something; other texts are names.
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
            entries = [
                {k: v for k, v in entry.items() if v not in ("", {})}
                if isinstance(entry, Mapping) and "name" in entry  # a policy's table
                else entry
                for entry in value
            ]
            lines = "".join(f"    {toml_value(entry)},\n" for entry in entries)
            plain.append(f"{key} = [\n{lines}]")
        else:
            plain.append(f"{key} = {toml_value(value)}")
    return "\n\n".join(["\n".join(plain), *tables]) + "\n"


Backend = Literal["loky", "dask", "ray"]

Progress = Callable[[str, int, int], None]
"""Receiver of progress: what is being done, how much of it, of how much."""


def silent(what: str, done: int, of: int) -> None: ...


@dataclass(frozen=True)
class Workers(Checked):
    """Processes or machines that play runs.

    Parameters
    ----------
    jobs : int
        How many at once; −1 for all cores, or all of the cluster. A single one is this process.
    backend : {"loky", "dask", "ray"}
        Processes of this machine (loky), or of a cluster.
    address : str, optional
        Address of the Dask scheduler or Ray cluster.
    """

    jobs: int = -1
    backend: Backend = "loky"
    address: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.backend == "loky" and self.address:
            raise ScenarioError(
                f"address {self.address} is for a cluster: choose the backend dask or ray"
            )
        if not isinstance(self.jobs, int) or self.jobs == 0:
            raise ScenarioError(f"jobs is how many workers, or -1 for all cores; not {self.jobs!r}")

    def alone(self, runs: int) -> bool:
        """Whether this process plays so many runs itself, without workers."""
        # A cluster is asked for even for one run, since its machines may be other than this one.
        if self.backend != "loky" or self.jobs == 1 or runs < 2:
            return self.backend == "loky"
        from joblib import effective_n_jobs  # a fifth of a second

        return bool(effective_n_jobs(self.jobs) == 1)


ATTEMPTS = 4  # dying workers are started again so often without finishing a single run


def sweep(
    experiment: Experiment | Path | str,
    out: Path | str,
    jobs: int = -1,
    backend: Backend = "loky",
    address: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """Play the runs of an experiment that are not finished, and return the results of all.

    Parameters
    ----------
    out : path
        Folder of the results. Experiments may share one: a run that is part of several is played
        once.
    jobs, backend, address : int, str, str
        As of :class:`Workers`.
    progress : callable, optional
        ``progress(what, done, of)``, in runs.

    Raises
    ------
    ScenarioError, UnknownName
        For an experiment that makes no sense, before anything is played.
    StoreError
        When results cannot be written, another process writes into the folder, or workers keep
        dying.
    GangwiseError
        Of the first run that failed, after all others are played.

    Examples
    --------
    >>> import tempfile
    >>> small = Experiment(
    ...     name="small",
    ...     scenario="ogasched-default-v1:servers=16,job_types=4",
    ...     slots=20,
    ...     seeds=2,
    ...     policies=["drf", "fairness"],
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sweep(small, folder, jobs=1).table().select("policy", "seeds").rows()
    [('drf', 2), ('fairness', 2)]
    """
    if not isinstance(experiment, Experiment):
        experiment = Experiment.read(experiment)
    content = experiment.model_dump(mode="json")
    specs, store = experiment.runs(), Store(out)
    scenario = specs[0].source.scenario()
    # A replay says itself what is to be improved, unless the experiment does.
    if isinstance(scenario, Replay) and not experiment.objective:
        content |= {"objective": scenario.objective, "minimise": scenario.minimise}
    # Names are checked on an instance, which has to be drawn.
    if experiment.comparators or experiment.metrics:
        check_names(specs[0], experiment.comparators, experiment.metrics)
    return perform(content, specs, store, Workers(jobs, backend, address), progress)


def perform(
    experiment: Mapping[str, Any],
    specs: Sequence[RunSpec],
    store: Store,
    workers: Workers,
    progress: Progress | None = None,
    slotwise: bool = False,
) -> Results:
    """Play the runs that are not in the store, and return the results of all.

    A run gives the same numbers on every backend. What cannot travel, such as a policy that does
    not pickle or that was defined in ``__main__``, is played in this process. ``experiment`` is
    stored in the plan and has at least a ``name``. ``progress`` counts runs, or slots if
    ``slotwise``. Errors are those of :func:`sweep`; on Ctrl-C, Interrupted, with the run in hand
    saved if this process played it.
    """
    name = str(experiment["name"])
    keys = [spec.key() for spec in specs]
    # Cells may share a run, which is played once.
    wanted = dict(zip(keys, specs))
    size = {key: spec.slots if slotwise else 1 for key, spec in wanted.items()}
    failed: dict[str, Failure] = {}
    with store.lock():
        # The plan before the runs: what was stopped can be shown, and goes on.
        store.write_plan(name, _plan(experiment, specs, keys))
        todo = {key: spec for key, spec in wanted.items() if not store.finished(key)}
        for key in wanted.keys() - todo.keys():
            store.forget_checkpoint(key)  # a run that was killed between the two leaves it behind

        # Nothing is played before everything can be.
        _require_playable(todo.values())
        played, total = (sum(size[key] for key in wanted.keys() - todo.keys()), sum(size.values()))

        def report(slots: int = 0) -> None:
            (progress or silent)(name, played + slots, total)

        def take(key: str, outcome: Rows | Failure) -> None:
            nonlocal played
            spec, played = todo.pop(key), played + size[key]
            if isinstance(outcome, Failure):
                failed[key] = outcome
            else:
                store.write(key, spec.identity(), outcome)
            report()

        report()
        # Threads share the log that was read; nothing has to be pickled.
        if workers.backend == "loky":
            _in_threads([k for k in todo if todo[k].whole], todo, store, workers.jobs, take)
        if not workers.alone(len(todo)):
            _in_processes(todo, store, workers, take)
        # A copy, since what is taken leaves it.
        for key, spec in list(todo.items()):
            take(key, _attempt(key, spec, store.checkpoint(key), report if slotwise else None)[1])
    if not failed:
        return Results.open(store, name)
    key, cause = next(iter(failed.items()))
    # Failures are reported after everything else is stored.
    text = f"{len(failed)} of {len(wanted)} runs failed"
    # Failures of one kind are raised as they are; of several kinds one error names the first.
    alike = len({type(failure.cause) for failure in failed.values()}) == 1
    if isinstance(cause.cause, GangwiseError) and alike:
        cause.cause.add_note(f"in {wanted[key]}; {text}")
        raise cause.cause
    error = GangwiseError(f"{text}, the others are stored; {wanted[key]}: {cause.error}")
    error.add_note(cause.traceback)
    raise error from cause.cause


def _require_playable(specs: Iterable[RunSpec]) -> None:
    """Refuse what cannot be played before anything is, rather than after what comes before it."""
    first_runs: dict[Any, dict[str, RunSpec]] = {}  # by source and label
    for spec in specs:
        if spec.policy is not None:
            first_runs.setdefault(spec.source, {}).setdefault(spec.label, spec)
    for source, by_label in first_runs.items():
        if (require := getattr(source.scenario(), "require_playable", None)) is not None:
            require(
                [spec.policy for spec in by_label.values()], min(s.seed for s in by_label.values())
            )


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _in_threads(
    keys: Sequence[str],
    left: Mapping[str, RunSpec],
    store: Store,
    jobs: int,
    take: Callable[[str, Rows | Failure], None],
) -> None:
    """Play runs of compiled code side by side; a single one is left to the process itself."""
    # As joblib counts: −1 is all cores, −2 all but one.
    at_once = min(len(keys), jobs if jobs > 0 else cores() + 1 + jobs)
    if at_once < 2:
        return
    tasks = [(key, left[key], store.checkpoint(key)) for key in keys]
    with ThreadPool(at_once) as pool:
        for key, outcome in pool.imap_unordered(lambda task: _attempt(*task), tasks):
            take(key, outcome)


def _in_processes(
    left: Mapping[str, RunSpec],
    store: Store,
    workers: Workers,
    take: Callable[[str, Rows | Failure], None],
) -> None:
    """Have workers play what can travel, starting them again when they die."""
    # Policies that do not pickle stay here; all others may travel.
    away = {key for key, spec in left.items() if _can_travel(spec)}
    if not away:
        return
    from gangwise.study.workers import WorkersLost, parallel  # loads joblib

    attempts, local, total = 0, workers.backend == "loky", len(left)
    while away & left.keys():
        count = len(left)
        tasks = [
            # A checkpoint is a file of this machine.
            (key, spec, store.checkpoint(key) if local else None, None, local, os.getpid())
            for key, spec in left.items()
            if key in away
        ]
        try:
            place = workers.jobs, workers.backend, workers.address
            parallel(_attempt, tasks, lambda done: take(*done), *place)
        except WorkersLost as lost:
            # Counted anew wherever a run was finished: then the sweep goes on.
            attempts = attempts + 1 if len(left) == count else 0
            if attempts == ATTEMPTS:
                raise StoreError(
                    f"workers died {ATTEMPTS} times without finishing a run ({lost}); "
                    f"{total - len(left)} of {total} runs are stored, start again to do the rest"
                ) from lost


def check_names(spec: RunSpec, comparators: Sequence[str], metrics: Sequence[str]) -> None:
    """Raise UnknownName for a comparator or metric that the instance of a run does not have."""
    if isinstance(spec.source.scenario(), Replay):
        return
    instance = spec.source.instance(spec.seed)
    names = [*instance.comparators, *registry.comparators(instance.family)]
    for name in comparators:
        if name not in names:
            raise UnknownName("comparator", name, list(dict.fromkeys(names)))
    if metrics:
        names = ["reward", *instance.environment().metrics]
        for name in metrics:
            if name not in names:
                raise UnknownName("metric", name, names)


class Failure(NamedTuple):
    """Failure of a run, as text: not every exception can be sent back from a worker.

    ``cause`` is the exception itself, where the run was played in this process.
    """

    error: str
    traceback: str
    cause: Exception | None = None


def _can_travel(spec: RunSpec) -> bool:
    if spec.policy is None and (judge := spec.registered) and not judge.built_in:
        return False  # this process alone knows a comparator that a user registered
    # The ``__main__`` of a worker is another one.
    if spec.policy is not None and type(spec.policy).__module__ == "__main__":
        return False
    try:
        pickle.dumps((spec.source, spec.policy))
    except Exception:  # whatever an object of a user raises when it is pickled
        return False
    return True


def _attempt(
    key: str,
    spec: RunSpec,
    checkpoint: Path | None = None,
    progress: Callable[[int], None] | None = None,
    local: bool = False,
    writer: int = 0,
) -> tuple[str, Rows | Failure]:
    """One run, here or in a worker; an error in it must not end the others.

    A worker that finds another key has other files or another version than this process.
    """
    main = threading.current_thread() is threading.main_thread()
    away = os.getpid() != writer and writer != 0
    if local and main and away:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that writes
    try:
        if writer and spec.key() != key:
            raise StoreError(
                "the worker finds something else under this scenario; give it the same version of "
                f"gangwise and the same files ({spec.source.name})"
            )
        return key, study_runs.measure(spec, checkpoint, progress)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return key, Failure(text, traceback.format_exc(), None if away else error)


def _plan(
    experiment: Mapping[str, Any], specs: Sequence[RunSpec], keys: Sequence[str]
) -> dict[str, object]:
    # By text, since a cell may hold lists.
    cells = {(str(spec.cell), spec.slots): spec for spec in specs}.values()
    pairs = [
        (spec.cell, study_runs.fidelity_of(spec.source.scenario(), spec.slots)) for spec in cells
    ]
    fidelity = [{"cell": dict(cell), **about} for cell, about in pairs if about is not None]
    runs = [
        {
            "key": key,
            "cell": dict(spec.cell),
            "label": spec.label,
            "comparator": spec.policy is None,
            "seed": spec.seed,
            "slots": spec.slots,
        }
        for key, spec in zip(keys, specs)
    ]
    plan: dict[str, object] = {"experiment": dict(experiment), "runs": runs}
    return plan | {"fidelity": fidelity} if fidelity else plan

"""Results of a sweep as tidy frames, and what they say about one policy against another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import polars as pl
from markupsafe import escape

from gangwise.core.arrays import Floats, Ints, Tabular
from gangwise.core.errors import StoreError, UnknownName
from gangwise.study import statistics
from gangwise.study.runs import TIMINGS, Store
from gangwise.study.statistics import Estimate, number

FEW_CELLS = 4  # at most so many kinds of cells are listed with how much of a log they play

Place = tuple[Any, ...]
"""Values of the settings that vary, in the order of :attr:`Results.cells`."""

TIMES = ("waiting", "completion", "makespan", "worst users")
"""Metrics that are seconds begin with one of these."""

At = tuple[Place, str]
"""A cell, and a policy or comparator."""

T = TypeVar("T")

Of = Mapping[At, Estimate]
"""An estimate over seeds for each cell and policy."""


class Series(NamedTuple):
    """Rewards of a run along its slots: places and values, by the name of the metric."""

    slots: int
    columns: dict[str, tuple[Ints, Floats]]

    def sums(self) -> tuple[Ints, Floats] | None:
        """Slots played, and the reward so far; None where only some of the slots are known."""
        at, rewards = self.columns.get("reward.slot", (None, None))
        if at is not None and rewards is not None and at.size == self.slots:
            return np.sort(at) + 1, np.cumsum(rewards[np.argsort(at, kind="stable")])
        return self.columns.get("reward.cumulative")


def _share_played(fidelity: Mapping[str, Any]) -> float:
    """Share of the jobs of a log, or of their device-hours, whichever is less; 1 where unknown."""
    parts = [fidelity.get(name) or {} for name in ("jobs", "device_hours")]
    return min(part["played"] / part["read"] if part.get("read") else 1.0 for part in parts)


def _per_text(method: Callable[[Any, str], T]) -> cached_property[Callable[[str], T]]:
    """A method of one text whose answers are kept as long as its object is."""
    # A cache on the method itself would keep every object alive.
    return cached_property(lambda self: cache(partial(method, self)))


class PrintedTable(Tabular, Protocol):
    @property
    def headline(self) -> str: ...

    def __repr__(self) -> str:
        with _plainly():
            return f"{self.headline}\n{self.to_polars()}"

    def _repr_html_(self) -> str:
        with _plainly():
            return f"<p>{escape(self.headline)}</p>{self.to_polars()._repr_html_()}"


def _plainly() -> pl.Config:
    return pl.Config(
        tbl_hide_dataframe_shape=True,
        tbl_hide_column_data_types=True,
        tbl_formatting="NOTHING",
        tbl_rows=50,
        tbl_cols=12,
        tbl_width_chars=150,
        fmt_str_lengths=48,
        float_precision=3,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Results(PrintedTable):
    """The finished runs of an experiment.

    Every frame has a column for each setting that varies between cells, and ``policy``, the label.

    Attributes
    ----------
    experiment : mapping
        The content of the experiment file.
    runs, missing : tuple of mapping
        Finished and unfinished runs: ``key``, ``cell``, ``label``, ``comparator``, ``seed``,
        ``slots``.
    fidelity : tuple of mapping
        How much of a log each cell plays: ``cell``, ``line``, ``warnings`` and the numbers behind
        them. Empty where no log is played.
    """

    store: Store
    experiment: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    missing: tuple[Mapping[str, Any], ...]
    fidelity: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def open(cls, folder: Store | Path | str, name: str = "") -> Results:
        """Results in a folder or store; of the only experiment there where none is named.

        Raises StoreError when there are none.
        """
        store = folder if isinstance(folder, Store) else Store(folder)
        plan = store.read_plan(name)
        finished = {key: store.finished(key) for key in {run["key"] for run in plan["runs"]}}
        runs = tuple(run for run in plan["runs"] if finished[run["key"]])
        missing = tuple(run for run in plan["runs"] if not finished[run["key"]])
        return cls(store, plan["experiment"], runs, missing, tuple(plan.get("fidelity", ())))

    @property
    def headline(self) -> str:
        progress = f"{len(self.runs)} of {len(self.runs) + len(self.missing)} runs"
        name = self.experiment.get("name") or "results"
        return f"{name}: {self.objective}, mean and 95 % interval over seeds; {progress}"

    def to_polars(self) -> pl.DataFrame:
        return self.table()

    @cached_property
    def digest(self) -> str:
        sha = hashlib.sha256()
        for run in sorted(self.runs, key=lambda run: str(run["key"])):
            sha.update(str(run["key"]).encode())
            for name, (at, values) in sorted(self.store.rows(run["key"]).items()):
                # Timings differ from one execution to the next.
                if name not in TIMINGS:
                    sha.update(name.encode() + at.tobytes() + values.tobytes())
        return sha.hexdigest()

    @cached_property
    def cells(self) -> list[str]:
        return list(dict.fromkeys(key for run in self.runs for key in run["cell"]))

    @cached_property
    def seeds(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(run["seed"] for run in self.runs))

    @property
    def slots(self) -> int:
        return max(int(run["slots"]) for run in self.runs)

    @cached_property
    def policies(self) -> list[str]:
        return list(dict.fromkeys(run["label"] for run in self.runs if not run["comparator"]))

    @cached_property
    def comparators(self) -> list[str]:
        return list(dict.fromkeys(run["label"] for run in self.runs if run["comparator"]))

    @property
    def objective(self) -> str:
        return self.experiment.get("objective") or "reward.mean"

    @property
    def rewarded(self) -> bool:
        """Whether policies are ranked by their reward per slot."""
        return self.objective == "reward.mean"

    @property
    def minimise(self) -> bool:
        return bool(self.experiment.get("minimise"))

    @cached_property
    def slotwise(self) -> bool:
        return "reward.mean" in self._single["metric"]

    @property
    def unit(self) -> str:
        """The unit of a difference of the objective: a mean over slots is per slot."""
        return " per slot" if self.slotwise and self.objective.endswith(".mean") else ""

    @cached_property
    def metrics(self) -> list[str]:
        """Names of what the environments measure in every slot, beside the reward."""
        names = self._single["metric"].unique(maintain_order=True).to_list()
        means = [name.removesuffix(".mean") for name in names if name.endswith(".mean")]
        return [name for name in means if name != "reward"]

    @cached_property
    def endings(self) -> list[str]:
        """Metrics of work that was not done: numbers of jobs, and device-hours."""
        names = self._single["metric"].unique(maintain_order=True).to_list()
        if "killed" not in names:
            return []
        from gangwise.jobs.metrics import ENDINGS  # its kernels load a while: replays have them

        return [name for name in names if name.partition(".")[0] in ENDINGS]

    @cached_property
    def losses(self) -> list[str]:
        positive = self._single.filter(pl.col("value") > 0)["metric"].unique().to_list()
        return [name for name in self.endings if name in positive]

    def plan(self) -> dict[str, Any]:
        every = [*self.runs, *self.missing]
        return {
            "experiment": dict(self.experiment),
            "runs": [dict(run) for run in every],
            **({"fidelity": [dict(row) for row in self.fidelity]} if self.fidelity else {}),
        }

    @property
    def notes(self) -> list[str]:
        """Lines above all that is shown: how much of a log is played, with warnings.

        Cells with equal lines share them; of many kinds, those of which least is played are listed.
        """
        by_line: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        # Least played first: where few cells are listed, those are the ones to know of.
        for row in sorted(self.fidelity, key=_share_played):
            head = (row["line"], *(f"warning: {text}" for text in row["warnings"]))
            by_line.setdefault(head, []).append(row["cell"])
        lines: list[str] = []
        for (line, *warnings), cells in list(by_line.items())[:FEW_CELLS]:
            about = ", ".join(f"{key} = {value}" for key, value in cells[0].items())
            about += f" and {len(cells) - 1} more cells" if len(cells) > 1 else ""
            lines += [f"{about}: {line}" if len(by_line) > 1 else line, *warnings]
        if len(by_line) > FEW_CELLS:
            lines.append(f"of {len(by_line) - FEW_CELLS} more kinds of cells more is played")
        return lines

    def rows(self, timings: bool = True) -> pl.LazyFrame:
        """All rows of all runs, to be filtered.

        Columns: the settings that vary, ``policy`` (or the name of a comparator), ``comparator``
        (bool), ``seed``, ``slots``, ``metric``, ``at``, ``value``, ``key``; see
        :mod:`gangwise.study.runs` for the metrics. Without ``timings``, the same experiment
        always gives the same rows.
        """
        if not self.runs:
            raise StoreError(f"no run in {self.store.folder} is finished; sweep first")
        plan = pl.DataFrame(
            {
                **{key: _column([run["cell"].get(key) for run in self.runs]) for key in self.cells},
                "policy": [run["label"] for run in self.runs],
                "comparator": [run["comparator"] for run in self.runs],
                "seed": [run["seed"] for run in self.runs],
                "slots": [run["slots"] for run in self.runs],
                "key": [run["key"] for run in self.runs],
            }
        )
        stored = self.store.scan(plan["key"])
        if not timings:
            stored = stored.filter(~pl.col("metric").is_in(TIMINGS))
        # In the order of the plan, in whatever order files are read.
        rows = plan.lazy().join(stored, on="key", maintain_order="left_right")
        return rows.select(*plan.columns[:-1], "metric", "at", "value", "key")

    def per_seed(self, metric: str = "") -> pl.DataFrame:
        """One number per cell, policy and seed; of the objective by default.

        Raises UnknownName for a metric that no run has; metrics of a single number are
        ``NAME.mean``, ``NAME.total``, ``us_per_slot``.
        """
        metric = metric or self.objective
        rows = self._single.filter(pl.col("metric") == metric)
        if rows.is_empty():
            raise UnknownName("metric", metric, self._single["metric"].unique().to_list())
        return rows.select(*self.cells, "policy", "seed", "value")

    @cached_property
    def _numbers(self) -> pl.DataFrame:
        """The rows of metrics that have a single number per run."""
        return self.rows().filter(pl.col("at").is_null()).collect()

    @cached_property
    def _single(self) -> pl.DataFrame:
        return self._numbers.filter(~pl.col("comparator"))

    def table(self, *metrics: str) -> pl.DataFrame:
        """Mean and 95 % interval over seeds: the objective and other metrics.

        Columns: cells, ``policy``, ``seeds``, and for each metric ``METRIC``, ``METRIC.low``,
        ``METRIC.high``; the best policy of each cell first.
        """
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        for metric in dict.fromkeys([self.objective, *metrics]):
            for group, row, part in _grouped(self.per_seed(metric), [*self.cells, "policy"]):
                columns = groups.setdefault(group, {**row, "seeds": part.height})
                columns |= _columns(metric, part["value"])
        # A cell is where the first of its groups is.
        cell = {group[:-1]: i for i, group in reversed(list(enumerate(groups)))}
        sign = 1 if self.minimise else -1
        # Cells stay in the order of the experiment; within each the best comes first.
        order = sorted(groups, key=lambda g: (cell[g[:-1]], sign * groups[g][self.objective]))
        return pl.DataFrame([groups[group] for group in order], infer_schema_length=None)

    def improvements(self, over: str, metric: str = "") -> pl.DataFrame:
        """Improvements of each policy over ``over``, paired by seed.

        Columns: cells, ``policy``, ``over``, ``seeds`` (common ones), ``percent``, ``mean``,
        ``low``, ``high``. Where ``over`` is not positive in every seed a percentage means nothing:
        ``percent`` is false and the numbers are differences.
        """
        if over not in self.policies:
            raise UnknownName("policy in these results", over, self.policies)
        values = self.per_seed(metric)
        base = values.filter(pl.col("policy") == over).drop("policy").rename({"value": "base"})
        # Paired by seed: both met the same arrivals, whose chance then cancels.
        pairs = values.filter(pl.col("policy") != over).join(
            # A setting that a cell lacks is null, and is the same in both.
            base,
            on=[*self.cells, "seed"],
            nulls_equal=True,
            maintain_order="left",
        )
        rows = []
        for _, row, part in _grouped(pairs, [*self.cells, "policy"]):
            lead, percent = statistics.paired(part["value"].to_numpy(), part["base"].to_numpy())
            row |= {"over": over, "seeds": part.height, "percent": percent, **lead._asdict()}
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def against(self, comparator: str) -> pl.DataFrame:
        """Each policy against a comparator, per cell and seed, on the comparator's slots.

        Columns: cells, ``policy``, ``seed``, ``share`` of the comparator's reward (null where it
        earned nothing), and ``regret``, signed, scaled to all slots where they were sampled.
        """
        if comparator not in self.comparators:
            raise UnknownName("comparator in these results", comparator, self.comparators)
        on = [*self.cells, "seed"]
        its = pl.col("comparator") & (pl.col("policy") == comparator)
        slot = pl.col("metric") == "reward.slot"
        rows = self.rows().filter(pl.col("metric").is_in(["reward.total", "reward.slot"])).collect()
        theirs, ours = rows.filter(its), rows.filter(~pl.col("comparator"))
        theirs = theirs.with_columns(slot.any().over(on).alias("sampled"))
        # Of a comparator that was evaluated slot by slot the slots count; of another its total.
        theirs = theirs.filter(slot | ~pl.col("sampled"))
        joined = ours.join(
            theirs.select(*on, "metric", "at", "sampled", pl.col("value").alias("best")),
            on=[*on, "metric", "at"],
            nulls_equal=True,
            maintain_order="left",
        )
        # A policy must have a reward on each slot of the comparator, or the sums are not
        # comparable.
        n = theirs.group_by(on).len("wanted")
        sums = (
            joined.group_by([*on, "policy", "slots", "sampled"], maintain_order=True)
            .agg(pl.col("value").sum(), pl.col("best").sum(), pl.len().alias("n"))
            .join(n, on=on, nulls_equal=True, maintain_order="left")
        )
        if (sums["n"] < sums["wanted"]).any() or sums.height < ours.select(
            pl.struct(*on, "policy").n_unique()
        ).item():
            raise StoreError(
                f"{comparator} was evaluated on other slots than the rewards of the runs were "
                "recorded for; sweep with a larger optimum_slots"
            )
        # A sum over n sampled slots stands for all slots: it is scaled by slots ÷ n.
        scale = pl.when(pl.col("sampled")).then(pl.col("slots") / pl.col("n")).otherwise(1.0)
        return sums.select(
            *self.cells,
            "policy",
            "seed",
            pl.when(pl.col("best") > 0).then(pl.col("value") / pl.col("best")).alias("share"),
            ((pl.col("best") - pl.col("value")) * scale).alias("regret"),
        )

    def standing(self, comparator: str) -> pl.DataFrame:
        """Share of a comparator and regret against it: mean and 95 % interval over seeds.

        Columns: cells, ``policy``, ``share``, ``share.low``, ``share.high``, ``regret`` and the
        like; a share is null where the comparator earned nothing with some seed.
        """
        by_seed = self.against(comparator)
        rows = [
            row
            | _columns("share", part["share"].fill_null(np.nan))
            | _columns("regret", part["regret"].fill_null(np.nan))
            for _, row, part in _grouped(by_seed, [*self.cells, "policy"])
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    # By cell and policy, as tables and pages ask for them

    @_per_text
    def of(self, metric: str) -> Of:
        """A metric of a single number per run: of each policy and comparator in each cell."""
        values = self._numbers.filter(pl.col("metric") == metric)
        return {
            (group[:-1], str(group[-1])): statistics.mean_and_interval(part["value"].to_numpy())
            for group, _, part in _grouped(values, [*self.cells, "policy"])
        }

    @cached_property
    def places(self) -> list[Place]:
        """The cells in which a policy has a finished run, in the order of the experiment."""
        ranked = self.of(self.objective)
        return list(dict.fromkeys(cell for cell, label in ranked if label in self.policies))

    def ranking(self, cell: Place) -> list[str]:
        """The policies of a cell by their mean objective, best first."""
        means = {
            label: estimate.mean
            for (at, label), estimate in self.of(self.objective).items()
            if at == cell and label in self.policies
        }
        sign = 1 if self.minimise else -1
        return sorted(means, key=lambda policy: sign * means[policy])

    @cached_property
    def ranked(self) -> list[At]:
        """Every policy in every cell, the best of each cell first."""
        return [(cell, policy) for cell in self.places for policy in self.ranking(cell)]

    def _by_place(self, frame: pl.DataFrame) -> dict[At, dict[str, Any]]:
        return {
            (tuple(row[name] for name in self.cells), row["policy"]): row
            for row in frame.iter_rows(named=True)
        }

    @_per_text
    def over(self, base: str) -> Mapping[At, Mapping[str, Any]]:
        """The rows of :meth:`improvements` over a policy, by cell and policy."""
        return self._by_place(self.improvements(base))

    def lead(self, base: str, at: At) -> Estimate:
        """Lead of a policy over another, in per cent; unknown where that says nothing."""
        row = self.over(base).get(at)
        return Estimate.of(row) if row and row["percent"] else statistics.UNKNOWN

    def better(self, cell: Place, best: str, other: str) -> Mapping[str, Any] | None:
        """The row that says how much better one policy is than another: positive is better."""
        row = self.over(other).get((cell, best))
        return statistics.turned(row) if row is not None and self.minimise else row

    @_per_text
    def versus(self, comparator: str) -> tuple[Of, Of]:
        """Regret against a comparator, and the share of its reward: see :meth:`standing`."""
        rows = self._by_place(self.standing(comparator))
        regret = {at: Estimate.of(row, "regret") for at, row in rows.items()}
        return regret, {at: Estimate.of(row, "share") for at, row in rows.items()}

    def share(self, at: At, comparator: str) -> Estimate:
        """Share of a comparator's reward; unknown where it earned nothing in some seed."""
        try:
            return self.versus(comparator)[1].get(at, statistics.UNKNOWN)
        except StoreError:
            return statistics.UNKNOWN

    def bounds(self, comparator: str) -> dict[str, Of]:
        """Theoretical bounds on the regret against a comparator, by name."""
        bounds: dict[str, Of] = {}
        names = self._numbers["metric"].unique(maintain_order=True)
        for name in filter(lambda name: name.startswith("bound."), names):
            if its := {at: bound for at, bound in self.of(name).items() if at[1] == comparator}:
                bounds[name.removeprefix("bound.")] = its
        return bounds

    @cached_property
    def series(self) -> Mapping[At, Mapping[int, Series]]:
        """Rewards of slots, and sums so far, of each cell and label by seed."""
        wanted = pl.col("metric").is_in(["reward.slot", "reward.cumulative"])
        rows = self.rows().filter(wanted).collect()
        series_at: dict[At, dict[int, Series]] = {}
        # Both metrics of a run are columns of one series, by the slots that they are at.
        by = [*self.cells, "policy", "seed", "slots", "metric"]
        for (*cell, label, seed, slots, metric), _, part in _grouped(rows, by):
            by_seed = series_at.setdefault((tuple(cell), str(label)), {})
            series = by_seed.setdefault(int(seed), Series(int(slots), {}))
            series.columns[str(metric)] = (part["at"].to_numpy(), part["value"].to_numpy())
        return series_at

    def evaluated(self, cell: Place, comparator: str) -> tuple[int, int]:
        """On how many slots a comparator was evaluated, and how many there are."""
        by_seed = self.series[cell, comparator].values()
        sizes = [
            path.columns["reward.slot"][0].size if "reward.slot" in path.columns else path.slots
            for path in by_seed
        ]
        return max(sizes), max(path.slots for path in by_seed)

    def proven_gap(self, comparator: str) -> float:
        """The largest proven gap of a comparator in any cell and seed, relative to its reward."""
        mine = (pl.col("policy") == comparator) & pl.col("metric").is_in(["gap", "reward.mean"])
        largest = 0.0
        numbers = self._numbers.filter(pl.col("comparator") & mine)
        for (*cell, _), _, part in _grouped(numbers, [*self.cells, "seed"]):
            value = dict(part.select("metric", "value").iter_rows())
            total = abs(value["reward.mean"]) * self.evaluated(tuple(cell), comparator)[0]
            # The gap is a sum over the slots that were evaluated, so it is held against their
            # total.
            largest = max(largest, value.get("gap", 0.0) / max(total, 1e-300))
        return largest

    # What was played

    @cached_property
    def _about(self) -> dict[str, Mapping[str, Any]]:
        """The description of the first run of each label."""
        first_key: dict[str, str] = {}
        for run in self.runs:
            first_key.setdefault(run["label"], run["key"])
        return {label: self.store.about(key) for label, key in first_key.items()}

    @property
    def family(self) -> str:
        return str(next(iter(self._about.values()))["family"])

    @property
    def deciders(self) -> tuple[str, str]:
        """The word for those that decide, singular and plural."""
        return ("scheduler", "schedulers") if self.family == "jobs" else ("policy", "policies")

    def configuration(self, policy: str) -> tuple[str, Mapping[str, Any]]:
        about = self._about[policy]
        return str(about["policy"]), about["configuration"] or {}

    def scenario(self) -> tuple[str, Mapping[str, Any]]:
        """Name and settings of the scenario; of a setting that varies, all its values."""
        about = next(iter(self._about.values()))
        settings = dict(about["settings"])
        if "slots" in settings:  # what was played counts
            played = sorted({run["slots"] for run in self.runs})
            settings["slots"] = played[0] if len(played) == 1 else played
        varied = {
            name: list(dict.fromkeys(cell[i] for cell in self.places))
            for i, name in enumerate(self.cells)
        }
        return str(about["scenario"]), {
            key: f"varies: {', '.join(map(str, varied[key]))}" if key in varied else value
            for key, value in settings.items()
        }

    @property
    def run_versions(self) -> list[str]:
        return sorted({str(about["version"]) for about in self._about.values()})

    def curves(self, metric: str = "reward") -> pl.DataFrame:
        """Cumulative curves of policies and comparators.

        Columns: cells, ``policy``, ``comparator``, ``at`` (slots played), ``mean``, ``low``,
        ``high`` over seeds. Raises UnknownName for a metric that no run has.
        """
        curves = self.rows().filter(pl.col("metric") == f"{metric}.cumulative").collect()
        if curves.is_empty():
            names = self.rows().select(pl.col("metric").unique()).collect()["metric"].to_list()
            metrics = [n.removesuffix(".cumulative") for n in names if n.endswith(".cumulative")]
            raise UnknownName("metric", metric, metrics)
        rows = [
            row | statistics.mean_and_interval(part["value"].to_numpy())._asdict()
            for _, row, part in _grouped(curves, [*self.cells, "policy", "comparator", "at"])
        ]
        return pl.DataFrame(rows, infer_schema_length=None)

    def jobs(self) -> pl.DataFrame:
        """Fate of each job, in families whose environments keep it.

        Columns: cells, ``policy``, ``seed``, ``at`` (its place in the order in which jobs left),
        and ``arrival``, ``deadline``, ``budget``, ``cost``, ``work``, ``utility`` for approximation
        jobs.
        """
        rows = self.rows().filter(pl.col("metric").str.starts_with("job.")).collect()
        if rows.is_empty():
            raise StoreError("these runs have no jobs of their own: their family keeps no results")
        return rows.with_columns(pl.col("metric").str.strip_prefix("job.")).pivot(
            "metric", index=[*self.cells, "policy", "seed", "at"], values="value"
        )

    def sentences(self) -> list[str]:
        """For each cell, the best policy against the next one, in words."""
        sentences, killed = [], self.of("killed") if "killed" in self.losses else None
        for cell in self.places:
            best, *rivals = self.ranking(cell)
            row = self.better(cell, best, rivals[0]) if rivals else None
            if row is None:
                continue
            named = ", ".join(f"{k} = {v}" for k, v in zip(self.cells, cell) if v is not None)
            text = f"{named}: " * bool(named) + statistics.verdict(row, self.unit)
            kills, its = (
                killed[cell, label].mean if killed else 0.0 for label in (best, rivals[0])
            )
            if kills != its:
                text += f", and kills {number(kills)} jobs instead of {number(its)}"
            sentences.append(text)
        return sentences


def _grouped(
    frame: pl.DataFrame, by: list[str]
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any], pl.DataFrame]]:
    for group, part in frame.group_by(by, maintain_order=True):
        yield group, dict(zip(by, group)), part


def _columns(name: str, values: pl.Series) -> dict[str, float | None]:
    estimate = statistics.mean_and_interval(values.to_numpy())
    return {name: estimate.mean, f"{name}.low": estimate.low, f"{name}.high": estimate.high}


def _column(values: list[Any]) -> Any:
    """A column of settings: as it is where all are of one kind, as JSON text otherwise."""
    # Cells may differ in the type of a setting: such a column is text.
    kinds = {type(value) for value in values if value is not None}
    # Whole numbers stay whole, unless one of them is missing.
    if kinds <= {int, float}:
        return (
            pl.Series(np.array([np.nan if v is None else v for v in values])).fill_nan(None)
            if float in kinds or None in values
            else pl.Series(values, dtype=pl.Int64)
        )
    if len(kinds) == 1 and kinds <= {bool, str}:
        return pl.Series(values)
    return pl.Series([v if v is None or isinstance(v, str) else json.dumps(v) for v in values])

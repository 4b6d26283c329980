"""Results of a sweep as tidy frames, and what they say about one policy against another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import polars as pl
from markupsafe import escape

from gangwise.core.errors import StoreError, UnknownName
from gangwise.core.frames import Tabular
from gangwise.experiments.runs import TIMINGS
from gangwise.experiments.statistics import Interval, estimate, paired, verdict
from gangwise.experiments.store import Store

FEW_CELLS = 4
"""Kinds of cells, at most, of which it is said how much of a log they play."""


def _share_played(fidelity: Mapping[str, Any]) -> float:
    """Share of the jobs of a log, or of their device-hours, whichever is less; 1 if not said."""
    parts = [fidelity.get(name) or {} for name in ("jobs", "device_hours")]
    return min(part["played"] / part["read"] if part.get("read") else 1.0 for part in parts)


class Shown(Tabular, Protocol):
    """What a result shows of itself in Python and in a notebook: a headline and its table."""

    @property
    def headline(self) -> str:
        """What the table is of, in a line."""

    def __repr__(self) -> str:
        with _plainly():
            return f"{self.headline}\n{self.to_polars()}"

    def _repr_html_(self) -> str:
        with _plainly():
            return f"<p>{escape(self.headline)}</p>{self.to_polars()._repr_html_()}"


def _plainly() -> pl.Config:
    """Frames whole, without their shapes and types."""
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
class Results(Shown):
    """The finished runs that an experiment asks for.

    Every frame has a column for each setting that varies between cells, and ``policy``, the label.

    Attributes
    ----------
    store : Store
    experiment : mapping
        The experiment, as its file says.
    runs : tuple of mapping
        Finished runs: ``key``, ``cell``, ``label``, ``comparator``, ``seed``, ``slots``.
    missing : tuple of mapping
        Runs that are not finished.
    fidelity : tuple of mapping
        How much of a log each cell plays, and on what terms: ``cell``, ``line``, ``warnings`` and
        what these are made of. Empty where no log is played.
    """

    store: Store
    experiment: Mapping[str, Any]
    runs: tuple[Mapping[str, Any], ...]
    missing: tuple[Mapping[str, Any], ...]
    fidelity: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def open(cls, folder: Store | Path | str, name: str = "") -> Results:
        """Results in a folder, or in a store; the name of the experiment if there are several.

        Raises
        ------
        StoreError
            When there are none.
        """
        store = folder if isinstance(folder, Store) else Store(folder)
        plan = store.read_plan(name)
        whole = {key: store.finished(key) for key in {run["key"] for run in plan["runs"]}}
        done = tuple(run for run in plan["runs"] if whole[run["key"]])
        missing = tuple(run for run in plan["runs"] if not whole[run["key"]])
        return cls(store, plan["experiment"], done, missing, tuple(plan.get("fidelity", ())))

    @property
    def headline(self) -> str:
        """What was swept, and how much of it is done."""
        done = f"{len(self.runs)} of {len(self.runs) + len(self.missing)} runs"
        name = self.experiment.get("name") or "results"
        return f"{name}: {self.objective}, mean and 95 % interval over seeds; {done}"

    def to_polars(self) -> pl.DataFrame:
        """The table of the objective, see :meth:`table`."""
        return self.table()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all numbers but the timings, whichever order they were made in."""
        made = hashlib.sha256()
        for run in sorted(self.runs, key=lambda run: str(run["key"])):
            made.update(str(run["key"]).encode())
            for name, (at, values) in sorted(self.store.rows(run["key"]).columns().items()):
                if name not in TIMINGS:
                    made.update(name.encode() + at.tobytes() + values.tobytes())
        return made.hexdigest()

    @cached_property
    def cells(self) -> list[str]:
        """The settings that vary."""
        return list(dict.fromkeys(key for run in self.runs for key in run["cell"]))

    @property
    def policies(self) -> list[str]:
        """Labels of the policies."""
        return list(dict.fromkeys(run["label"] for run in self.runs if not run["comparator"]))

    @property
    def comparators(self) -> list[str]:
        """Names of the comparators."""
        return list(dict.fromkeys(run["label"] for run in self.runs if run["comparator"]))

    @property
    def objective(self) -> str:
        """The metric that policies are ranked by."""
        return self.experiment.get("objective") or "reward.mean"

    @property
    def minimise(self) -> bool:
        """Whether less of it is better."""
        return bool(self.experiment.get("minimise"))

    @cached_property
    def slotwise(self) -> bool:
        """Whether runs are slots with a reward, not whole replays of jobs."""
        return "reward.mean" in self._single["metric"]

    @property
    def unit(self) -> str:
        """Behind a difference of the objective: a mean of slots is so much per slot."""
        return " per slot" if self.slotwise and self.objective.endswith(".mean") else ""

    @cached_property
    def metrics(self) -> list[str]:
        """What the environments measure in every slot, beside the reward."""
        names = self._single["metric"].unique(maintain_order=True).to_list()
        means = [name.removesuffix(".mean") for name in names if name.endswith(".mean")]
        return [name for name in means if name != "reward"]

    def plan(self) -> dict[str, Any]:
        """What the experiment asks for, as a store keeps it."""
        every = [*self.runs, *self.missing]
        return {
            "experiment": dict(self.experiment),
            "runs": [dict(run) for run in every],
            **({"fidelity": [dict(each) for each in self.fidelity]} if self.fidelity else {}),
        }

    @property
    def told(self) -> list[str]:
        """What comes above all that is shown: how much of a log is played, with warnings.

        Once for all cells of which the same is to be said; of more than a few, those of which least
        is played.
        """
        said: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
        for each in sorted(self.fidelity, key=_share_played):
            told = (each["line"], *(f"warning: {text}" for text in each["warnings"]))
            said.setdefault(told, []).append(each["cell"])
        lines: list[str] = []
        for (first, *warnings), cells in list(said.items())[:FEW_CELLS]:
            of = ", ".join(f"{key} = {value}" for key, value in cells[0].items())
            of += f" and {len(cells) - 1} more cells" if len(cells) > 1 else ""
            lines += [f"{of}: {first}" if len(said) > 1 else first, *warnings]
        if len(said) > FEW_CELLS:
            lines.append(f"of {len(said) - FEW_CELLS} more kinds of cells more is played")
        return lines

    def rows(self, timings: bool = True) -> pl.LazyFrame:
        """All rows of all runs, to be filtered.

        Columns: the settings that vary, ``policy`` (or the name of a comparator), ``comparator``
        (bool), ``seed``, ``slots``, ``metric``, ``at``, ``value``, ``key``; see
        :mod:`gangwise.experiments.runs` for the metrics. Without ``timings``, the same
        experiment gives the same rows, wherever and however often it was run.
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
        found = self.store.scan(plan["key"])
        if not timings:
            found = found.filter(~pl.col("metric").is_in(TIMINGS))
        rows = plan.lazy().join(found, on="key", maintain_order="left_right")
        return rows.select(*plan.columns[:-1], "metric", "at", "value", "key")

    def per_seed(self, metric: str = "") -> pl.DataFrame:
        """One number per cell, policy and seed; the objective unless another metric is named.

        Raises
        ------
        UnknownName
            For a metric that no run has; those of a single number are ``NAME.mean``,
            ``NAME.total``, ``us_per_slot``.
        """
        metric = metric or self.objective
        found = self._single.filter(pl.col("metric") == metric)
        if found.is_empty():
            raise UnknownName("metric", metric, self._single["metric"].unique().to_list())
        return found.select(*self.cells, "policy", "seed", "value")

    @cached_property
    def _single(self) -> pl.DataFrame:
        """Rows of a single number per run, of policies."""
        return self.rows().filter(~pl.col("comparator") & pl.col("at").is_null()).collect()

    def table(self, *metrics: str, interval: Interval = "t") -> pl.DataFrame:
        """Mean and 95 % interval over seeds: the objective and other metrics.

        Columns: cells, ``policy``, ``seeds``, and for each metric ``METRIC``, ``METRIC.low``,
        ``METRIC.high``; the best policy of each cell first.
        """
        names = list(dict.fromkeys([self.objective, *metrics]))
        groups: dict[tuple[Any, ...], dict[str, Any]] = {}
        for metric in names:
            by = [*self.cells, "policy"]
            for group, part in self.per_seed(metric).group_by(by, maintain_order=True):
                found = estimate(part["value"].to_numpy(), interval)
                row = groups.setdefault(group, {**dict(zip(by, group)), "seeds": part.height})
                row |= {
                    metric: found.mean,
                    f"{metric}.low": found.low,
                    f"{metric}.high": found.high,
                }
        cell = {group[:-1]: i for i, group in reversed(list(enumerate(groups)))}
        sign = 1 if self.minimise else -1
        order = sorted(groups, key=lambda g: (cell[g[:-1]], sign * groups[g][self.objective]))
        return pl.DataFrame([groups[group] for group in order], infer_schema_length=None)

    def improvements(self, over: str, metric: str = "", interval: Interval = "t") -> pl.DataFrame:
        """How much more each policy has than ``over``, seed by seed: the same arrivals and noise.

        Columns: cells, ``policy``, ``over``, ``seeds`` (common ones), ``percent``, ``mean``,
        ``low``, ``high``. Where ``over`` is not positive in every seed, a percentage would say
        nothing: ``percent`` is false and the numbers are plain differences.
        """
        if over not in self.policies:
            raise UnknownName("policy in these results", over, self.policies)
        found = self.per_seed(metric)
        base = found.filter(pl.col("policy") == over).drop("policy").rename({"value": "base"})
        both = found.filter(pl.col("policy") != over).join(
            base, on=[*self.cells, "seed"], nulls_equal=True, maintain_order="left"
        )
        rows = []
        for group, part in both.group_by([*self.cells, "policy"], maintain_order=True):
            of, percent = paired(part["value"].to_numpy(), part["base"].to_numpy(), interval)
            named = dict(zip([*self.cells, "policy"], group))
            rows.append(
                {
                    **named,
                    "over": over,
                    "seeds": part.height,
                    "percent": percent,
                    "mean": of.mean,
                    "low": of.low,
                    "high": of.high,
                }
            )
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
        theirs = theirs.filter(slot | ~pl.col("sampled"))
        joined = ours.join(
            theirs.select(*on, "metric", "at", "sampled", pl.col("value").alias("best")),
            on=[*on, "metric", "at"],
            nulls_equal=True,
            maintain_order="left",
        )
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
        scale = pl.when(pl.col("sampled")).then(pl.col("slots") / pl.col("n")).otherwise(1.0)
        return sums.select(
            *self.cells,
            "policy",
            "seed",
            pl.when(pl.col("best") > 0).then(pl.col("value") / pl.col("best")).alias("share"),
            ((pl.col("best") - pl.col("value")) * scale).alias("regret"),
        )

    def standing(self, comparator: str, interval: Interval = "t") -> pl.DataFrame:
        """Share of a comparator and regret against it: mean and 95 % interval over seeds.

        Columns: cells, ``policy``, ``share``, ``share.low``, ``share.high``, ``regret`` and the
        like; a share is null where the comparator earned nothing with some seed.
        """
        rows = []
        by = [*self.cells, "policy"]
        for group, part in self.against(comparator).group_by(by, maintain_order=True):
            row = dict(zip(by, group))
            for name in ("share", "regret"):
                of = estimate(part[name].fill_null(np.nan).to_numpy(), interval)
                row |= {name: of.mean, f"{name}.low": of.low, f"{name}.high": of.high}
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)

    def curves(self, metric: str = "reward", interval: Interval = "t") -> pl.DataFrame:
        """Cumulative curves of policies and comparators.

        Columns: cells, ``policy``, ``comparator``, ``at`` (slots played), ``mean``, ``low``,
        ``high`` over seeds.

        Raises
        ------
        UnknownName
            For a metric that no run has.
        """
        by = [*self.cells, "policy", "comparator", "at"]
        curves = pl.col("metric").str.ends_with(".cumulative")
        found = self.rows().filter(pl.col("metric") == f"{metric}.cumulative").collect()
        if found.is_empty():
            names = self.rows().filter(curves).select(pl.col("metric").unique()).collect()
            known = names["metric"].str.strip_suffix(".cumulative").to_list()
            raise UnknownName("metric", metric, known)
        rows = []
        for group, part in found.group_by(by, maintain_order=True):
            of = estimate(part["value"].to_numpy(), interval)
            rows.append({**dict(zip(by, group)), "mean": of.mean, "low": of.low, "high": of.high})
        return pl.DataFrame(rows, infer_schema_length=None)

    def jobs(self) -> pl.DataFrame:
        """What became of each job, in families whose environments keep it.

        Columns: cells, ``policy``, ``seed``, ``at`` (its place in the order in which jobs left),
        and ``arrival``, ``deadline``, ``budget``, ``cost``, ``work``, ``utility`` for approximation
        jobs.
        """
        of = self.rows().filter(pl.col("metric").str.starts_with("job.")).collect()
        if of.is_empty():
            raise StoreError("these runs have no jobs of their own: their family keeps no results")
        return of.with_columns(pl.col("metric").str.strip_prefix("job.")).pivot(
            "metric", index=[*self.cells, "policy", "seed", "at"], values="value"
        )

    def sentences(self, interval: Interval = "t") -> list[str]:
        """For each cell, the best policy against the next one, in words."""
        table, said = self.table(interval=interval), []
        over = cache(partial(self.improvements, interval=interval))
        groups = table.group_by(self.cells, maintain_order=True) if self.cells else [((), table)]
        for group, part in groups:
            if part.height < 2:
                continue
            best, other = part["policy"][:2]
            for row in over(other).iter_rows(named=True):
                if row["policy"] == best and tuple(row[c] for c in self.cells) == tuple(group):
                    where = ", ".join(
                        f"{key} = {value}"
                        for key, value in zip(self.cells, group)
                        if value is not None
                    )
                    better = turned(row) if self.minimise else row
                    said.append((f"{where}: " if where else "") + verdict(better, self.unit))
        return said

    def to_parquet(self, path: Path | str, timings: bool = True) -> Path:
        """Write all rows as one Parquet file, sorted."""
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.rows(timings).collect().write_parquet(path)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error}") from error
        return path


def turned(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of improvements of a metric of which less is better: positive is better then."""
    low, high = row["low"], row["high"]
    return {
        **row,
        "mean": -row["mean"],
        "low": None if high is None else -high,
        "high": None if low is None else -low,
    }


def _column(values: list[Any]) -> Any:
    """A column of settings: as it is where all are of one kind, as JSON text otherwise."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float}:
        return (
            pl.Series(np.array([np.nan if v is None else v for v in values])).fill_nan(None)
            if float in kinds or None in values
            else pl.Series(values, dtype=pl.Int64)
        )
    if len(kinds) == 1 and kinds <= {bool, str}:
        return pl.Series(values)
    return pl.Series([v if v is None or isinstance(v, str) else json.dumps(v) for v in values])

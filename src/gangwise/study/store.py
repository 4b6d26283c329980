"""The store: finished runs on disk, one Parquet file each, and together one tidy data set.

A folder of results holds ``runs/KEY.parquet`` and, for each experiment, ``NAME.plan.json`` (what it
asks for) and ``NAME.command.json`` (how it was made). The key is a hash of all that defines a run:
experiments share equal runs, and only runs that are missing are played.

Files go through :mod:`gangwise.core.files`, so that one under its final name is whole. A run also
carries a digest of its content: a copy of the folder without its ``.gangwise`` is still good, and a
file that a disk has damaged counts as not played.
"""

import hashlib
import io
import json
import platform
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import gangwise
from gangwise.core.errors import StoreError
from gangwise.core.files import Folder, read_whole, torn
from gangwise.core.registry import ANY, entries
from gangwise.study.runs import PLAN, Rows

FORMAT = "gangwise-run-1"


class Store:
    def __init__(self, folder: Path | str):
        self.folder = Path(folder)
        self.files = Folder(self.folder)
        self._seen: dict[str, tuple[tuple[int, ...], tuple[Mapping[str, Any], Rows], int]] = {}

    def lock(self) -> AbstractContextManager[None]:
        return self.files.lock()

    def path(self, key: str) -> Path:
        return self.files.place(f"runs/{key}.parquet")

    def checkpoint(self, key: str) -> Path | None:
        """Place of the checkpoint of an unfinished run; None where nothing can be kept."""
        return self.files.checkpoint(key)

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        texts = _texts(key, identity)
        seal = _seal_of(key, texts, rows)

        def parquet(file: Any) -> None:
            numbers = _frame(rows).get_columns()
            columns = [  # what a run is, in every row: a data set of all runs reads as one table
                pl.Series(
                    name, [text], pl.Int64 if name in ("seed", "slots") else pl.Categorical
                ).new_from_index(0, numbers[0].len())
                for name, text in texts.items()
            ]
            # Categories are encoded once, texts row by row; readers are to see texts.
            metadata = {ARROW: _arrow_schema(), **seal}
            # A reader that filters takes a run or leaves it: least and largest values help no one.
            pl.DataFrame([*columns, *numbers]).write_parquet(
                file, metadata=metadata, statistics=False
            )

        self.files.write(f"runs/{key}.parquet", parquet, replace=True)
        # After the file is written, as its mark is that of the new file.
        self._remember(key, _about(key, identity), rows)
        # Killed before this line, a run is finished and has a checkpoint,
        # which the next start removes.
        self.forget_checkpoint(key)

    def _remember(self, key: str, about: Mapping[str, Any], rows: Rows) -> None:
        self._seen.pop(key, None)
        size = sum(at.size + values.size for at, values in rows.values())
        self._seen[key] = self._mark(key), (about, rows), size
        # The last one stays, however large it is.
        while len(self._seen) > 1 and sum(size for *_, size in self._seen.values()) > KEPT:
            del self._seen[next(iter(self._seen))]

    def _mark(self, key: str) -> tuple[int, ...]:
        """Changes whenever the file does; empty where there is none."""
        try:
            status = self.files.tree.status(f"runs/{key}.parquet")
        except (OSError, StoreError):
            return ()
        # A file that was replaced within one tick of the clock is another inode.
        return (status.st_ino, status.st_size, status.st_mtime_ns) if status else ()

    def forget_checkpoint(self, key: str) -> None:
        if (checkpoint := self.checkpoint(key)) is not None:
            self.files.forget_checkpoint(checkpoint.name)

    def finished(self, key: str) -> bool:
        return self._load(key) is not None

    def rows(self, key: str) -> Rows:
        return self._whole(key)[1]

    def _whole(self, key: str) -> tuple[Mapping[str, Any], Rows]:
        stored = self._load(key)
        if stored is None:
            raise StoreError(
                f"{self.path(key)} is missing or damaged; run the command that made it again"
            )
        return stored

    def _load(self, key: str) -> tuple[Mapping[str, Any], Rows] | None:
        """The description and the rows of a run; None unless its file is there and whole."""
        mark = self._mark(key)
        if mark and key in self._seen and self._seen[key][0] == mark:
            return self._seen[key][1]
        try:
            data = read_whole(self.path(key))
            seal = pl.read_parquet_metadata(io.BytesIO(data))
            names = list(pl.read_parquet_schema(io.BytesIO(data)))
            # A large file column by column: most are one text a row, which takes room.
            parts = [names] if len(data) < LARGE else [[name] for name in names]
            numbers, texts = dict[str, Any](), dict[str, Any]()
            for part in parts:
                for column in pl.read_parquet(io.BytesIO(data), columns=part).iter_columns():
                    if column.name in ("at", "value"):
                        numbers[column.name] = column.fill_null(-1).to_numpy()
                    else:  # of a text, how often it stands
                        texts[column.name] = column.rle().struct.unnest().rows()
            rows, begin = Rows(), 0
            for n, name in texts.pop("metric"):
                of = slice(begin, begin + n)
                rows.add(name, numbers["value"][of], numbers["at"][of])
                begin += n
            # Each stands once, in every row: another one would be damage.
            about = {name: text for name, [(_, text)] in texts.items()}
            # Metadata has more than the seal: what Arrow writes there.
            if not _seal_of(key, about, rows).items() <= seal.items():
                return None
            about |= {name: json.loads(about[name]) for name in _JSON}
        # Of some damage Polars panics, which is no Exception in Python.
        except (OSError, KeyError, ValueError, *UNREADABLE):
            return None
        self._remember(key, about, rows)
        return about, rows

    def about(self, key: str) -> dict[str, Any]:
        """Description of a finished run: scenario, settings, policy, configuration, seed …"""
        return dict(self._whole(key)[0])

    def scan(self, keys: Iterable[str]) -> pl.LazyFrame:
        """Numbers of finished runs; columns ``key``, ``metric``, ``at`` and ``value``."""
        paths = [self.path(key) for key in dict.fromkeys(keys)]
        return pl.scan_parquet(paths).select("key", "metric", "at", "value")

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        text = json.dumps(plan, indent=1, allow_nan=False) + "\n"
        self.files.write(name + PLAN, text, replace=True)

    def plans(self) -> list[str]:
        return sorted(p.name.removesuffix(PLAN) for p in self.folder.glob(f"*{PLAN}"))

    def read_plan(self, name: str = "") -> dict[str, Any]:
        """The plan of an experiment; without a name, of the only one there.

        Raises StoreError when there is none, or several to choose from.
        """
        known = self.plans()
        if not name and len(known) == 1:
            name = known[0]
        if name not in known:
            which = f"choose one of {', '.join(known)}" if known else "name the folder of its --out"
            raise StoreError(f"{self.folder} has no results of {name or 'one experiment'}; {which}")
        with torn(self.folder / f"{name}{PLAN}", "sweep again to mend it"):
            plan = json.loads(self.files.read(name + PLAN))
            return {
                "experiment": dict(plan["experiment"]),
                "runs": list(plan["runs"]),
                "fidelity": list(plan.get("fidelity", ())),
            }


class MemoryStore(Store):
    """Finished runs that are kept in memory alone.

    The caller will write what it needs of them to ``file``; unfinished runs are saved next to it.
    """

    def __init__(self, file: Path | None = None) -> None:
        super().__init__("memory" if file is None else file.parent)
        self._file = file
        self._runs: dict[str, tuple[Mapping[str, Any], Rows]] = {}
        self._plans: dict[str, Mapping[str, Any]] = {}

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext() if self._file is None else self.files.lock(self._file.name)

    def checkpoint(self, key: str) -> Path | None:
        return None if self._file is None else self.files.checkpoint(self._file.name)

    def write(self, key: str, identity: Mapping[str, Any], rows: Rows) -> None:
        self._runs[key] = _about(key, identity), rows

    def _load(self, key: str) -> tuple[Mapping[str, Any], Rows] | None:
        return self._runs.get(key)

    def scan(self, keys: Iterable[str]) -> pl.LazyFrame:
        frames = [
            _frame(self._runs[key][1]).lazy().select(pl.lit(key).alias("key"), pl.all())
            for key in dict.fromkeys(keys)
        ]
        return pl.concat(frames)

    def write_plan(self, name: str, plan: Mapping[str, Any]) -> None:
        self._plans[name] = plan

    def plans(self) -> list[str]:
        return sorted(self._plans)

    def read_plan(self, name: str = "") -> dict[str, Any]:
        return dict(self._plans[name or next(iter(self._plans))])


def store_of(out: Store | Path | str | None) -> Store:
    """A store as it is, in a folder, or in memory alone."""
    return out if isinstance(out, Store) else MemoryStore() if out is None else Store(out)


ARROW = "ARROW:schema"  # key of a Parquet file's metadata


@cache
def _arrow_schema() -> str:
    """The types that readers give the columns of a run, as the metadata of its file has them."""
    numbers = {"seed": pl.Int64(), "slots": pl.Int64(), "at": pl.Int64(), "value": pl.Float64()}
    names, file = (*_about("", {}), "metric", "at", "value"), io.BytesIO()
    empty = pl.DataFrame(schema={name: numbers.get(name, pl.String()) for name in names})
    empty.write_parquet(file)
    return pl.read_parquet_metadata(file.getvalue())[ARROW]


_JSON = ("settings", "configuration")

KEPT = 4_000_000
"""Numbers of runs that stay in memory: a replay and its page ask for each several times."""
UNREADABLE = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""What Polars raises of a damaged file."""
LARGE = 1 << 20  # bytes of a file that is read column by column


def _frame(rows: Rows) -> pl.DataFrame:
    names, (at, values) = pl.Series(list(rows), dtype=pl.String), zip(*rows.values())
    metric = names.gather(np.repeat(np.arange(len(at)), [places.size for places in at]))
    times = pl.Series("at", np.concatenate(at))
    return pl.DataFrame(
        {"metric": metric, "at": times.set(times < 0, None), "value": np.concatenate(values)}
    )


def _about(key: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    names = ("scenario", "family", "settings", "policy", "configuration", "comparator")
    numbers = ("seed", "slots", "version")
    return {"key": key, **{name: identity.get(name) for name in (*names, *numbers)}}


def _texts(key: str, identity: Mapping[str, Any]) -> dict[str, Any]:
    about = _about(key, identity)
    return {name: json.dumps(v) if name in _JSON else v for name, v in about.items()}


def _seal_of(key: str, texts: Mapping[str, Any], rows: Rows) -> dict[str, str]:
    """The seal of a run: a digest of its content, however compressed."""
    digest, total = hashlib.sha256(), sum(at.size for at, _ in rows.values())
    # In the order of the file's columns, in which a reader meets them.
    for name, text in texts.items():
        digest.update(repr([name, [(total, text)] * bool(total)]).encode())
    runs = [(at.size, name) for name, (at, _) in rows.items() if at.size]
    digest.update(repr(["metric", runs]).encode())
    for at, _ in rows.values():
        # As they are read again: null has become −1.
        digest.update(np.ascontiguousarray(np.maximum(at, -1)).data)
    for _, values in rows.values():
        digest.update(np.ascontiguousarray(values).data)
    return {"format": FORMAT, "key": key, "digest": digest.hexdigest()}


class Provenance(NamedTuple):
    """Provenance of results: a command as it was typed, and the versions that it ran with."""

    command: str
    versions: dict[str, str]


def versions() -> dict[str, str]:
    """Versions of what results depend on, here and now.

    >>> list(versions())
    ['gangwise', 'python', 'numpy', 'numba', 'polars']
    """
    versions = {"gangwise": gangwise.__version__, "python": platform.python_version()}
    for package in ("numpy", "numba", "polars"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def provenance_text(command: str) -> str:
    """The content of a ``NAME.command.json``, here and now."""
    about = Provenance(command, versions())._asdict()
    return json.dumps(about, indent=1, ensure_ascii=False) + "\n"


def write_provenance(folder: Path, name: str, command: str) -> Path:
    """Write ``NAME.command.json``; raises StoreError when that fails."""
    return Folder(folder).write(f"{name}.command.json", provenance_text(command), replace=True)


def read_provenance(folder: Path, name: str) -> Provenance | None:
    """The provenance of results; None where there is none, as of a sweep from Python."""
    path = folder / f"{name}.command.json"
    if not Folder(folder).is_there(path.name):
        return None
    with torn(path, "delete it, or run the command again"):
        return Provenance(**json.loads(Folder(folder).read(path.name)))


def command_of(folder: Path, name: str) -> str:
    """The command that made an experiment; empty where none is known."""
    known = read_provenance(folder, name)
    return "" if known is None else known.command


def older_runs(folder: Path) -> dict[str, list[str]]:
    """Runs that an older revision of a built-in decider played: which revision → runs."""
    now = {e.name: e.revision for kind in ("policy", "scheduler") for e in entries(kind).values()}
    now["Composed"] = now.pop(ANY)  # the class of schedulers named by their parts
    store, runs_by_problem = Store(folder), dict[str, list[str]]()
    for name in store.plans():
        for run in store.read_plan(name)["runs"]:
            if not store.finished(run["key"]):
                continue
            decider, _, revision = str(store.about(run["key"])["policy"]).rpartition(" r")
            if decider in now and revision.isdigit() and int(revision) < now[decider]:
                what = f"{decider} of revision {revision}; it is at {now[decider]}"
                runs_by_problem.setdefault(what, []).append(f"{run['label']}, seed {run['seed']}")
    return runs_by_problem

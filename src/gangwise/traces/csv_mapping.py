"""The mapping of your own CSV files: what its entries are, and what is wrong with one."""

from __future__ import annotations

import tomllib
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from gangwise.core.errors import TraceError

NAME = "csv"
TIMES = ("created", "deleted", "started")
NUMBERS = ("cpu", "mem", "gpu", "tasks", "duration", *TIMES)
"""Fields that are numbers, unless a time is written out."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Mapped(_Strict):
    """Where a value comes from: a column, or the same value for every row.

    ``scale`` multiplies a number; ``time`` is how a time is written, as in ``strptime``.
    """

    column: str = ""
    value: float | str | None = None
    scale: float = 1.0
    time: str = ""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, given: Any) -> Any:
        if isinstance(given, str):
            return {"column": given}
        if isinstance(given, bool):
            raise ValueError("give a column, a number or a table, not true or false")
        return {"value": given} if isinstance(given, int | float) else given

    @model_validator(mode="after")
    def _one_of_them(self) -> Mapped:
        if bool(self.column) == (self.value is not None):
            raise ValueError('give a column ("cores") or a value ({ value = 4 }), one of the two')
        if self.time and self.scale != 1.0:
            raise ValueError("a time that is written out has no scale")
        if not (isfinite(self.scale) and self.scale > 0):
            raise ValueError(f"scale is {self.scale}; it must be a positive number")
        return self


class _Columns(_Strict):
    """Columns of a table: a field each."""

    def given(self) -> dict[str, Mapped]:
        """Those that are in the mapping."""
        return {name: held for name, held in self if held is not None}

    def _of_their_kind(self) -> None:
        given = self.given()
        for name, held in given.items():
            value = 0.0 if held.value is None or name not in NUMBERS else held.value
            if isinstance(value, str) or not (isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value!r}; it must be a number, zero or larger")
            if held.time and name not in TIMES:
                raise ValueError(f"{name} is no point in time, so time = means nothing there")
        written = [name for name in TIMES if name in given and given[name].time]
        plain = [name for name in TIMES if name in given and not given[name].time]
        if written and plain:
            raise ValueError(
                f"{written[0]} is written out (time =) and {plain[0]} is a number of "
                "seconds: write both in the same way"
            )


class JobColumns(_Columns):
    """What a job has."""

    name: Mapped
    created: Mapped
    deleted: Mapped | None = None
    duration: Mapped | None = None
    cpu: Mapped | None = None
    mem: Mapped | None = None
    gpu: Mapped | None = None
    tasks: Mapped | None = None
    models: Mapped | None = None
    started: Mapped | None = None
    job: Mapped | None = None
    status: Mapped | None = None
    user: Mapped | None = None

    @model_validator(mode="after")
    def _enough(self) -> JobColumns:
        if (self.deleted is None) == (self.duration is None):
            raise ValueError("give deleted or duration, one of the two")
        _some_device(self.cpu, self.mem, self.gpu)
        self._of_their_kind()
        return self


class ServerColumns(_Columns):
    """What a server has."""

    name: Mapped
    cpu: Mapped | None = None
    mem: Mapped | None = None
    gpu: Mapped | None = None
    model: Mapped | None = None

    @model_validator(mode="after")
    def _enough(self) -> ServerColumns:
        _some_device(self.cpu, self.mem, self.gpu)
        self._of_their_kind()
        return self


def _some_device(*devices: Mapped | None) -> None:
    if not any(devices):
        raise ValueError("give at least one of cpu, mem and gpu")


class _File(_Strict):
    file: str
    separator: str = ","

    @field_validator("separator")
    @classmethod
    def _one_character(cls, text: str) -> str:
        if len(text) != 1 or text in '"\r\n':
            raise ValueError("a separator is one character")
        return text


class JobFile(_File):
    """The file of jobs."""

    columns: JobColumns


class ServerFile(_File):
    """The file of servers."""

    columns: ServerColumns


class MappingFile(_Strict):
    """A mapping as a whole."""

    trace: str
    jobs: JobFile
    servers: ServerFile | None = None


def is_mapping(path: Path) -> bool:
    """Whether a file is TOML that has ``trace`` and ``[jobs]``, as no scenario file has."""
    if path.suffix != ".toml" or not path.is_file():
        return False
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return "trace" in content and isinstance(content.get("jobs"), dict)


def read_mapping(path: Path) -> MappingFile:
    """The mapping, checked.

    Raises
    ------
    TraceError
        Names the entry at fault, and what was probably meant.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise TraceError(f"the mapping cannot be read: {why}", path) from error
    if content.get("trace") != NAME:
        raise TraceError(f'a mapping has trace = "{NAME}", not {content.get("trace")!r}', path)
    try:
        return MappingFile(**content)
    except ValidationError as error:
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        where = [str(part) for part in first["loc"]]
        message = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            model: Any = {"jobs": JobFile, "servers": ServerFile}.get(where[0], MappingFile)
            if where[1:2] == ["columns"]:
                model = Mapped if len(where) > 3 else model.model_fields["columns"].annotation
            known = list(model.model_fields)
            close = get_close_matches(where[-1], known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}? " if close else ""
            message = f"there is no such entry; {hint}There are {', '.join(known)}"
        raise TraceError(f"{'.'.join(where)}: {message}", path) from error

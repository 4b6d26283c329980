"""What scenarios drawn from a generator have in common: checked settings, slots, description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from gangwise.core.errors import ScenarioError, UnknownName

__all__ = ["DrawnScenario", "checked"]


class _Settings(Protocol):
    @property
    def slots(self) -> int: ...

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


SettingsT = TypeVar("SettingsT", bound=_Settings)
ModelT = TypeVar("ModelT", bound=BaseModel)


def checked(model: type[ModelT], name: str, given: Mapping[str, Any]) -> ModelT:
    """Settings of the scenario ``name``.

    Raises
    ------
    UnknownName
        For a setting that does not exist; says what was probably meant.
    ScenarioError
        For a value that makes no sense; names the setting.
    """
    try:
        return model(**given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = list(model.model_fields)
            raise UnknownName(f"setting of scenario {name!r}", where, known) from error
        at = f"{where}: " if where else ""
        raise ScenarioError(f"scenario {name!r}: {at}{first['msg']}") from error


class DrawnScenario(Generic[SettingsT]):
    """A scenario whose instances are drawn as its settings say."""

    def __init__(self, name: str, settings: SettingsT):
        self.name, self.settings = name, settings

    @property
    def slots(self) -> int:
        """T unless told otherwise."""
        return self.settings.slots

    def describe(self) -> dict[str, Any]:
        """The settings."""
        return self.settings.model_dump(mode="json")

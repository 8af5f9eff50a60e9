"""The settings file, through pydantic-settings. Imported only where one is named: pydantic costs a wrapped server a tenth of a second and more.

The model is derived from ``definition``. Its sources are ours, because pydantic-settings' own ignore mistyped variables, know no line of the file
and tell of a wrong value only if nothing overrides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from pydantic import Field, TypeAdapter, create_model
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from samplegate.core.policyfile.tree import Mapping, dotted, plain
from samplegate.settings.definition import Setting, Table
from samplegate.settings.sources import Layer, Said, accepted, instead
from samplegate.settings.trees import tree_of

_SAME: Final = "gt ge lt le multiple_of pattern min_length max_length title description examples".split()
"""What msgspec's Meta and pydantic's Field call by one name."""


class _Source(PydanticBaseSettingsSource):
    """One layer as a source: each value is checked by its own, so that every problem is told at its place, also of what is overridden."""

    def __init__(self, settings_cls: type[BaseSettings], layer: Layer, table: Table, problems: list[str]) -> None:
        super().__init__(settings_cls)
        self._table = table
        self._layer = layer
        self._problems = problems

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        check = partial(TypeAdapter(field.rebuild_annotation()).validate_python, strict=True)
        return accepted(self._table[field_name], self._layer[field_name], check, self._problems), field_name, False

    def __call__(self) -> dict[str, Any]:
        fields = self.settings_cls.model_fields
        values = {name: self.get_field_value(fields[name], name)[0] for name in self._layer}
        return {name: value for name, value in values.items() if value is not None}


def settled(layers: Sequence[Layer], table: Table, problems: list[str]) -> dict[str, Any]:
    """The values that hold, from the layers in their order of precedence; a problem for every one that is wrong, overridden or not."""
    return model(layers, table, problems)().model_dump(exclude_unset=True)


def model(layers: Sequence[Layer], table: Table, problems: list[str]) -> type[BaseSettings]:
    """The settings as pydantic-settings takes them: the fields of the definition, and the layers as their only sources."""

    class Layered(BaseSettings):
        model_config = SettingsConfigDict(strict=True, frozen=True, extra="forbid")

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], *_: PydanticBaseSettingsSource, **__: PydanticBaseSettingsSource
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return tuple(_Source(settings_cls, layer, table, problems) for layer in layers)

    fields: dict[str, Any] = {name: (setting.type, _field(setting)) for name, setting in table.items() if not setting.is_section}
    return create_model("SettingsWithFile", __base__=Layered, **fields)


def _field(setting: Setting) -> Any:
    said = {name: getattr(setting.meta, name) for name in _SAME}
    return Field(setting.default, **{name: value for name, value in said.items() if value is not None})


def file_layer(file: Path, table: Table, problems: list[str]) -> Layer:
    """What the settings file says, each with its line and column; a key without a value says nothing, a section is left a node."""
    root = tree_of(file, problems)
    if root is None:
        return {}
    if not isinstance(root, Mapping):
        problems.append(f"{file}:1:1: is no mapping; write one setting a line, such as log_level: debug")
        return {}
    found = {}
    for name, entry in root.entries.items():
        where = f"{file}:{entry.mark.line}:{entry.mark.column}: {dotted((name,))}"
        if name not in table:
            problems.append(f"{where}: is no setting; {instead(name, table, 'one of ' + ', '.join(table))}")
        elif (value := plain(entry.node)) is not None:
            found[name] = Said(where, entry.node if table[name].is_section else value, file.parent, source=str(file))
    return found

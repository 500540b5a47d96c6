"""The Python classes behind a schema's named types: how their instances are made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ROW", "Binding", "key_of"]


@dataclass(frozen=True)
class Binding:
    """``kind``: "dataclass", "model" (pydantic), "enum", or "row" (a plain dict that may be given as a tuple)."""

    kind: str
    cls: type | None = None

    def maker(self, names: Sequence[str]) -> Callable[..., Any] | None:
        """From the values of these fields to an instance; None for what stays a dict."""
        if self.cls is None:
            return None
        return (_dataclass_maker if self.kind == "dataclass" else _model_maker)(self.cls, names)


ROW: Final = Binding("row")


def _dataclass_maker(cls: Any, names: Sequence[str]) -> Callable[..., Any]:
    """The constructor runs, with its ``__post_init__``; fields that it does not take are set afterwards."""
    fields = {each.name: each for each in dataclasses.fields(cls)}
    if cls.__dataclass_params__.init and all(fields[name].init and not fields[name].kw_only for name in names):
        made: Callable[..., Any] = cls
        return made

    def make(*values: Any) -> Any:
        taken = {name: value for name, value in zip(names, values, strict=True) if fields[name].init}
        instance = cls(**taken)
        for name, value in zip(names, values, strict=True):
            if name not in taken:
                object.__setattr__(instance, name, value)
        return instance

    return make


def _model_maker(cls: Any, names: Sequence[str]) -> Callable[..., Any]:
    """Through validation, so that validators, private attributes and new constraints have their say."""
    keys = [key_of(cls, name) for name in names]
    validate = cls.model_validate
    return lambda *values: validate(dict(zip(keys, values, strict=True)))


def key_of(cls: Any, name: str) -> str | None:
    """The key under which a model takes the value of a field when it is validated; None if it has none of its own."""
    config, alias = cls.model_config, cls.model_fields[name].validation_alias
    if alias is None or not config.get("validate_by_alias", True):
        return name
    named = [each for each in getattr(alias, "choices", [alias]) if isinstance(each, str)]
    by_name = config.get("validate_by_name") or config.get("populate_by_name")
    return named[0] if named else name if by_name else None

"""Schemas in Spark's words ("n long, tags array<string>"), read without Spark: tasks and testers have no JVM."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from changelog_state.errors import ConfigurationError

__all__ = ["parse_schema"]

_SIMPLE: Final[dict[str, Callable[[], DataType]]] = {
    "boolean": BooleanType,
    "byte": ByteType,
    "tinyint": ByteType,
    "short": ShortType,
    "smallint": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "long": LongType,
    "bigint": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "decimal": DecimalType,
    "dec": DecimalType,
    "numeric": DecimalType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}
_TOKEN: Final = re.compile(r"\s*(?:`((?:[^`]|``)+)`|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\w+)|([<>(),:]))")
_END: Final = ("end", "")


def parse_schema(text: str) -> StructType:
    parser = _Parser(text)
    schema = parser.fields(until=_END)
    if not schema.fields:
        raise parser.problem("has no fields")
    return schema


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(_tokens(text))
        self._at = 0

    def problem(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"schema {self._text!r} {what}; write it like 'total long, tags array<string>', or give a StructType"
        )

    def fields(self, until: tuple[str, str]) -> StructType:
        found = StructType()
        while self._peek() != until:
            if found.fields:
                self._expect(",")
            found = found.add(self._field())
        self._next()
        return found

    def _field(self) -> StructField:
        kind, name = self._next()
        if kind not in ("word", "quoted"):
            raise self.problem(f"has {name or 'its end'!r} where a field's name should be")
        self._skip(":")
        data_type = self._type()
        nullable = not self._words("not", "null")
        metadata = {}
        if self._words("comment"):
            kind, comment = self._next()
            if kind != "text":
                raise self.problem(f"has {comment!r} where the text of a comment should be")
            metadata["comment"] = comment
        return StructField(name, data_type, nullable, metadata)

    def _type(self) -> DataType:
        kind, word = self._next()
        name = word.lower()
        if kind == "word" and name == "array":
            [element] = self._inside(1)
            return ArrayType(element)
        if kind == "word" and name == "map":
            key, value = self._inside(2)
            return MapType(key, value)
        if kind == "word" and name == "struct":
            self._expect("<")
            return self.fields(until=("sign", ">"))
        if kind != "word" or name not in _SIMPLE:
            raise self.problem(
                f"has {word or 'its end'!r} where one of {', '.join(_SIMPLE)}, array, map or struct should be"
            )
        made = _SIMPLE[name]()
        return self._sized(made) if isinstance(made, DecimalType) else made

    def _inside(self, number: int) -> list[DataType]:
        self._expect("<")
        found = [self._type()]
        while len(found) < number:
            self._expect(",")
            found.append(self._type())
        self._expect(">")
        return found

    def _sized(self, plain: DecimalType) -> DecimalType:
        if not self._skip("("):
            return plain
        sizes = [self._number()]
        if self._skip(","):
            sizes.append(self._number())
        self._expect(")")
        return DecimalType(*sizes)

    def _number(self) -> int:
        _, word = self._next()
        if not word.isdigit():
            raise self.problem(f"has {word!r} where a number of digits should be")
        return int(word)

    # -- tokens ------------------------------------------------------------------------------------------

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _skip(self, sign: str) -> bool:
        if self._peek() != ("sign", sign):
            return False
        self._at += 1
        return True

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            raise self.problem(f"has {self._peek()[1] or 'its end'!r} where {sign!r} should be")

    def _words(self, *words: str) -> bool:
        found = self._tokens[self._at : self._at + len(words)]
        if [(kind, word.lower()) for kind, word in found] != [("word", word) for word in words]:
            return False
        self._at += len(words)
        return True


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigurationError(
                f"schema {text!r} has {text[at:].strip()[:1]!r}, which has no meaning there; "
                "write it like 'total long, tags array<string>', or give a StructType"
            )
        quoted, literal, word, sign = match.groups()
        if quoted is not None:
            found.append(("quoted", quoted.replace("``", "`")))
        elif literal is not None:
            found.append(("text", literal[1:-1]))
        else:
            found.append(("word", word) if word is not None else ("sign", sign))
        at = match.end()
    return found

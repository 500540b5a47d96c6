"""Codecs travel to tasks as Spark's pickler sends them, with classes that the task's process cannot import."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pyspark import cloudpickle

from changelog_state.schemas.classes import aliased
from changelog_state.schemas.declared import codec_for

TASK = """
import pickle, sys
codec, old, data, schema, value = pickle.load(sys.stdin.buffer)
assert codec.decode(codec.encode(value), None) == value
found = codec.decode(data, {old: schema}.__getitem__)
assert type(found) is type(value) and type(found.inner[0]) is type(value.inner[0])
assert type(found.inner[0].color) is type(value.inner[0].color)
print(found)
"""


def test_a_codec_in_another_process_with_classes_from_nowhere() -> None:
    class Color(Enum):
        RED = 1

    @dataclass
    class Inner:
        n: int
        color: Any

    Inner.__annotations__["color"] = Color

    @dataclass
    class Old:
        name: str
        inner: Any

    @dataclass
    class New:
        full_name: Any
        inner: Any
        size: float = 1.5
        double: float = field(init=False, default=0.0)
        last: int = field(kw_only=True, default=2)

        def __post_init__(self) -> None:
            self.double = self.size * 2

    for cls in (Old, New):
        cls.__annotations__["inner"] = list[Inner]
    from typing import Annotated

    New.__annotations__["full_name"] = Annotated[str, aliased("name")]
    for cls in (Inner, Old, New):
        cls.__module__ = "a_module_that_the_task_has_not"
    old, new = codec_for(Old, name="v"), codec_for(New, name="v", migrate=None)
    data = old.encode(Old("a", [Inner(1, Color.RED)]))
    value = New("b", [Inner(2, Color.RED)], 3.0, last=9)
    sent = cloudpickle.dumps((new, old.fingerprint, data, old.schema_json, value))
    done = subprocess.run([sys.executable, "-c", TASK], input=sent, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"full_name='a'" in done.stdout
    assert b"size=1.5, double=0.0, last=2" in done.stdout


def test_a_migration_travels_too() -> None:
    codec = codec_for(str, name="v", migrate=lambda old: f"was {old}")
    copy = cloudpickle.loads(cloudpickle.dumps(codec))
    assert copy.decode(codec_for(int, name="v").encode(5), None) == "was 5"

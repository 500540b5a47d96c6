"""Arrow batches as frames by key, and frames back: as Spark converts each key's rows, however batches are cut."""

from __future__ import annotations

import random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from changelog_state.errors import OutputSchemaError
from changelog_state.processors.frames import Group, grouped_frames
from changelog_state.processors.initial import rows_with_initial_state
from changelog_state.processors.output import OutputFrames
from changelog_state.processors.spark_frames import FrameRules, SparkFrames

FRAMES = SparkFrames(FrameRules("America/New_York"))
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("j", pa.int32()),
        ("n", pa.int64()),
        ("flag", pa.bool_()),
        ("x", pa.float64()),
        ("at", pa.timestamp("us", "America/New_York")),
        ("tags", pa.list_(pa.int32())),
        ("r", pa.struct([("a", pa.int32())])),
    ]
)


def as_spark_does(rows: list[dict[str, Any]]) -> pd.DataFrame:
    """Each key's rows by themselves."""
    table = pa.Table.from_pylist(rows, SCHEMA)
    series = [FRAMES.column(table.column(name).combine_chunks(), name) for name in SCHEMA.names]
    return pd.concat(series, axis=1)


def groups_of(rows: list[dict[str, Any]], size: int) -> list[Group]:
    batches = pa.Table.from_pylist(rows, SCHEMA).to_batches(max_chunksize=size)
    return [group for groups in grouped_frames(iter(batches), ["k", "j"], FRAMES) for group in groups]


@pytest.mark.parametrize("seed", range(20))
def test_frames_are_those_of_spark(seed: int) -> None:
    chance = random.Random(seed)
    keys = sorted({(chance.choice("abc"), chance.randrange(4)) for _ in range(8)})
    by_key = {
        key: [
            {
                "k": key[0],
                "j": key[1],
                "n": chance.choice((None, 1, 1 << 60)),
                "flag": chance.choice((None, True, False)),
                "x": chance.choice((None, 0.5)),
                "at": chance.choice((None, 1_704_067_200_000_000)),
                "tags": chance.choice((None, [1, None], [])),
                "r": chance.choice((None, {"a": None})),
            }
            for _ in range(chance.randint(1, 4))
        ]
        for key in keys
    }
    found = groups_of([row for rows in by_key.values() for row in rows], chance.choice((1, 3, 7, 100)))
    assert [group.key for group in found] == keys
    for group, rows in zip(found, by_key.values(), strict=True):
        [frame] = group.frames
        pd.testing.assert_frame_equal(frame, as_spark_does(rows))
        assert isinstance(frame.index, pd.RangeIndex)
        assert [type(part).__name__ for part in group.given_key] == ["str", "int32"]
        assert group.given_key == group.key


def test_a_processor_may_change_its_frame() -> None:
    first, second = groups_of([{"k": "a", "j": 1, "n": 1}, {"k": "b", "j": 1, "n": 2}], 10)
    with pd.option_context("mode.chained_assignment", "raise"):
        first.frames[0]["n"] = 7
        first.frames[0].loc[0, "x"] = 1.5
        first.frames[0]["new"] = "x"
    assert second.frames[0]["n"].tolist() == [2]


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_initial_state_of_a_key_may_be_in_several_batches(size: int) -> None:
    states = [{"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": "b", "n": 3}, {"k": "b", "n": 4}]
    rows = rows_with_initial_state([{"k": "b", "x": 0.5}, {"k": "b", "x": 1.5}], states, ["k"], None)
    kinds = {name: pa.Table.from_pylist(rows).schema.field(name).type for name in rows[0]}
    ordered = pa.Table.from_pylist(sorted(rows, key=lambda row: row["k"]), pa.schema(list(kinds.items())))
    batches = iter(ordered.to_batches(max_chunksize=size))
    first, second = (group for groups in grouped_frames(batches, ["k"], FRAMES) for group in groups)
    assert [(frame["n"].tolist(), first.frames) for frame in first.initial] == [([1], [])]
    assert [frame["n"].tolist() for frame in second.initial] == [[2, 3, 4]]
    assert [frame["x"].tolist() for frame in second.frames] == [[0.5, 1.5]]


def test_many_rows_of_a_key_are_several_frames() -> None:
    rows = [{"k": "a", "j": 1, "n": number} for number in range(25_000)]
    [group] = groups_of(rows, 4_000)
    assert [len(frame) for frame in group.frames] == [8_000, 8_000, 9_000]
    assert [n for frame in group.frames for n in frame["n"]] == list(range(25_000))


# -- output -----------------------------------------------------------------------------------------------

OUTPUT = pa.struct([("k", pa.string()), ("n", pa.int64())])


def rows_of(frames: list[Any], output: OutputFrames | None = None) -> list[dict[str, Any]]:
    output = output or OutputFrames(OUTPUT, FRAMES)
    given = [columns for number, frame in enumerate(frames) for columns in output.add(number, frame)]
    batches = [pa.RecordBatch.from_arrays(columns, names=["k", "n"]) for columns in (*given, *output.rest())]
    return [row for batch in batches for row in batch.to_pylist()]


def test_frames_of_different_types_keep_their_order_and_values() -> None:
    frames = [
        pd.DataFrame({"k": ["a"], "n": [(1 << 60) + 1]}),
        pd.DataFrame({"k": ["b"], "n": [(1 << 60) + 3]}),
        pd.DataFrame({"n": [1.0, float("nan")], "k": ["c", None]}),
        pd.DataFrame({"k": pd.Categorical(["d"]), "n": pd.array([None], dtype="Int64")}),
        pd.DataFrame({"k": [], "n": []}),
        pd.DataFrame({"k": ["e"], "n": [7], "more": [1]}),
    ]
    assert rows_of(frames) == [
        {"k": "a", "n": (1 << 60) + 1},
        {"k": "b", "n": (1 << 60) + 3},
        {"k": "c", "n": 1},
        {"k": None, "n": None},
        {"k": "d", "n": None},
        {"k": "e", "n": 7},
    ]


def test_columns_without_names_go_by_position() -> None:
    assert rows_of([pd.DataFrame([["a", 1], ["b", 2]])]) == [{"k": "a", "n": 1}, {"k": "b", "n": 2}]


def test_columns_by_position_if_the_session_says_so() -> None:
    by_position = OutputFrames(OUTPUT, SparkFrames(FrameRules(by_name=False)))
    assert rows_of([pd.DataFrame({"x": ["a"], "y": [1]})], by_position) == [{"k": "a", "n": 1}]


def test_a_frame_that_is_changed_later_was_given_as_it_was() -> None:
    output = OutputFrames(OUTPUT, FRAMES)
    frame = pd.DataFrame({"k": ["a"], "n": [1]})
    assert list(output.add("a", frame)) == []
    frame.loc[0, "n"] = 99
    [columns] = output.rest()
    assert columns[1].to_pylist() == [1]


def test_many_small_frames_are_converted_together() -> None:
    output = OutputFrames(OUTPUT, FRAMES)
    ready = [list(output.add(0, pd.DataFrame({"k": ["a"] * 100, "n": [1] * 100}))) for _ in range(150)]
    assert [len(columns[0]) for each in ready for columns in each] == [10_000]
    assert [len(columns[0]) for columns in output.rest()] == [5_000]


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        ({"k": "a", "n": 1}, "gave out a dict"),
        (pd.DataFrame({"k": ["a"]}), "for key 1 does not fit output_schema .* KeyError: 'n'"),
        (pd.DataFrame({"k": ["a"], "n": ["x"]}), "for key 1 does not fit output_schema"),
    ],
)
def test_the_key_of_a_frame_that_does_not_fit(frame: Any, problem: str) -> None:
    with pytest.raises(OutputSchemaError, match=problem):
        rows_of([pd.DataFrame({"k": ["a"], "n": [1]}), frame])

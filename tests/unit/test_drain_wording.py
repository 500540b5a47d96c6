"""What ``agent drain`` says when the agent goes on owning partitions."""

from __future__ import annotations

from changelog_state.cli.drain import _loneliness, _still_owning


def summary(seen: float | None) -> dict[str, object]:
    return {"draining": True, "owned": 3, "following": 0, "driver_seen_seconds_ago": seen}


def test_with_a_driver_it_is_a_matter_of_time() -> None:
    text = _still_owning("a", summary(0.4), 600)
    assert text.startswith("agent a still owns 3 partitions after 600 s; it goes on draining: wait for longer")
    assert _loneliness(summary(0.4)) == ""


def test_without_a_driver_nobody_moves_anything() -> None:
    text = _still_owning("a", summary(None), 600)
    assert "no driver is there to move them; start the query" in text
    assert "no driver is there to move them (the last was here 90 s ago)" in _still_owning("a", summary(90.0), 600)
    assert _loneliness(summary(90.0)) == "; no driver is there to move them (the last was here 90 s ago)"

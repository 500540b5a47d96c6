"""Two stores, record by record, over what a changelog has. Bounded memory: two ordered scans side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from changelog_state.codec.digest import PairDigest
from changelog_state.codec.kinds import DATA
from changelog_state.store.base import Store, next_prefix
from restore.entries import LOGGED_KINDS

__all__ = ["Comparison", "Difference", "Side", "compare"]

_DIGEST_CHUNK = 5_000


@dataclass(frozen=True)
class Difference:
    record_key: bytes
    store: bytes | None
    """None: not there."""
    changelog: bytes | None

    @property
    def problem(self) -> str:
        """Of the store, which should be as the changelog is."""
        if self.store is None:
            return "missing"
        return "extra" if self.changelog is None else "changed"


@dataclass
class Side:
    """What one of the two holds."""

    records: int = 0
    values: int = 0
    """Of those: state, the rest being markers, claims and schemas."""
    digest: str = ""
    _digest: PairDigest = field(default_factory=PairDigest, repr=False)
    _keys: list[bytes] = field(default_factory=list, repr=False)
    _data: list[bytes | None] = field(default_factory=list, repr=False)

    def add(self, key: bytes, data: bytes) -> None:
        self.records += 1
        self.values += key[:1] == DATA
        self._keys.append(key)
        self._data.append(data)
        if len(self._keys) >= _DIGEST_CHUNK:
            self._feed()

    def finish(self) -> None:
        self._feed()
        self.digest = self._digest.digest().hex()

    def _feed(self) -> None:
        self._digest.update(self._keys, self._data)
        self._keys, self._data = [], []


@dataclass(frozen=True)
class Comparison:
    store: Side
    changelog: Side
    differences: int
    undecided: int
    """Differences that may be due to what the log holds behind the store's position."""
    first: list[Difference]


def compare(
    store: Store, changelog: Store, most: int, is_undecided: Callable[[Difference], bool] = lambda found: False
) -> Comparison:
    """Count all differences, keep the first ``most``."""
    sides = Side(), Side()
    differences = undecided = 0
    first: list[Difference] = []
    for key, mine, theirs in _side_by_side(_records(store), _records(changelog)):
        if mine is not None:
            sides[0].add(key, mine)
        if theirs is not None:
            sides[1].add(key, theirs)
        if mine == theirs:
            continue
        found = Difference(key, mine, theirs)
        if is_undecided(found):
            undecided += 1
            continue
        differences += 1
        if len(first) < most:
            first.append(found)
    for side in sides:
        side.finish()
    return Comparison(*sides, differences, undecided, first)


def _records(store: Store) -> Iterator[tuple[bytes, bytes]]:
    for kind in LOGGED_KINDS:
        yield from store.scan(kind, next_prefix(kind))


def _side_by_side(
    left: Iterator[tuple[bytes, bytes]], right: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes | None, bytes | None]]:
    """Every key of either, with the value of both."""
    mine, theirs = next(left, None), next(right, None)
    while mine is not None or theirs is not None:
        if theirs is None or (mine is not None and mine[0] < theirs[0]):
            assert mine is not None
            yield mine[0], mine[1], None
            mine = next(left, None)
        elif mine is None or theirs[0] < mine[0]:
            yield theirs[0], None, theirs[1]
            theirs = next(right, None)
        else:
            yield mine[0], mine[1], theirs[1]
            mine, theirs = next(left, None), next(right, None)

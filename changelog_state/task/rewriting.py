"""Values of earlier generations, looked for in the whole partition, so that one batch writes all of them anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from changelog_state.codec.entries import is_header, split_suffix
from changelog_state.codec.expiring import encode_expiring, read_expiring
from changelog_state.codec.keys import KeyCodec
from changelog_state.codec.kinds import DATA
from changelog_state.schemas.value_codec import ValueCodec
from changelog_state.state.context import StateContext, StateReads
from changelog_state.state.variables import Variable
from changelog_state.store.base import next_prefix

__all__ = ["Rewriting"]

_PAGE = 1_000


class Rewriting:
    """Met in the order of the keys, between those that have rows, as what is due is."""

    def __init__(self, variables: Mapping[str, Variable], codec: KeyCodec, reads: StateReads) -> None:
        self._codecs = {
            name: variable.codec for name, variable in variables.items() if isinstance(variable.codec, ValueCodec)
        }
        self._key_codec = codec
        self._reads = reads
        self._found = self._search()
        self._next = next(self._found, None)
        self._values: dict[bytes, list[tuple[bytes, bytes]]] = {}

    def take_through(self, last: bytes | None, most: int | None = None) -> tuple[list[bytes], bytes | None]:
        """Keys up to this one that have values of earlier generations, and how far they go: ``last``, or not as far.

        ``last``: None: up to the end. ``most``: no more keys than so many, as their values are held until the next
        ones are taken.
        """
        self._values = {}
        while self._next is not None and (last is None or self._next[0] <= last):
            key, suffix, data = self._next
            if len(self._values) == most and key not in self._values:
                return list(self._values), next(reversed(self._values))
            self._values.setdefault(key, []).append((suffix, data))
            self._next = next(self._found, None)
        return list(self._values), last

    def changes(self, key: bytes, context: StateContext) -> Iterator[tuple[bytes, bytes, bytes]]:
        """Of a key that was just taken: what the record keys end with, new values, stored ones.

        What has expired is left to be removed: nobody reads it again, so it need not fit the declaration.
        """
        for suffix, data in self._values.get(key, ()):
            name, _ = split_suffix(suffix)
            codec = self._codecs[name]
            value = context.visible(data)
            if value is None:
                continue
            expiring = read_expiring(data)
            new = context.encode(codec, context.decode(codec, value, name), None)
            if expiring is not None:
                new = encode_expiring(
                    new, expiring.expires_ms, by_event_time=expiring.by_event_time, lives_ms=expiring.lives_ms
                )
            yield suffix, new, data

    def _search(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        start, end = DATA, next_prefix(DATA)
        assert end is not None
        while True:
            page = self._reads.scan(start, end, _PAGE)
            for record_key, data in page:
                _, at = self._key_codec.decode(record_key, 1)
                if self._is_old(record_key[at:], data):
                    yield record_key[1:at], record_key[at:], data
            if len(page) < _PAGE:
                return
            start = page[-1][0] + b"\0"

    def _is_old(self, suffix: bytes, data: bytes) -> bool:
        codec = self._codecs.get(split_suffix(suffix)[0])
        if codec is None:
            return False
        expiring = read_expiring(data)
        value = data if expiring is None else expiring.value
        return is_header(value) is None and not codec.is_current(value)

"""Any sequence of batches, crashes, rebuilds and replays equals a dict. The log is a list, the store in memory.

The same ``StateStore`` calls in the same order as an owner makes them: commit after the log has it, replay what is
behind the position, images from the last batch's begin on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from changelog_state.codec.digest import PairDigest
from changelog_state.codec.kinds import DATA, MARKER
from changelog_state.store.images import pack_images
from changelog_state.store.memory import MemoryStore
from changelog_state.store.meta import StoreMeta
from changelog_state.store.state_store import Chunk, StateStore

KEYS = [DATA + bytes([letter]) for letter in b"abcdef"]
changes_of_a_batch = st.dictionaries(
    st.sampled_from(KEYS), st.none() | st.binary(max_size=2), min_size=1, max_size=len(KEYS)
)


class CrashError(Exception):
    pass


@dataclass
class Log:
    """Committed records, and per batch where it began and the digest of what it replaced."""

    records: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    last_begin: int | None = None
    last_images: bytes = b""


class Owner(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.log = Log()
        self.memory = MemoryStore()
        self.state = StateStore(self.memory)
        self.now: dict[bytes, bytes] = {}
        self.before: dict[bytes, bytes] = {}
        self.batch = 0
        self._start()

    def _start(self) -> None:
        """Open what is there and replay what it lacks, in stretches of three records."""
        self.state = StateStore(self.memory)
        meta = self.state.meta or StoreMeta("topic", 0)
        begin = self.log.last_begin
        end = len(self.log.records)
        position = meta.position
        while position < end:
            upper = min(position + 3, end)
            if begin is not None and position < begin < upper:
                upper = begin
            images = begin if begin is not None and position >= begin else None
            meta = replace(meta, position=upper, images_begin=images, images_complete=False)
            self.state.replay(dict(self.log.records[position:upper]), meta, images_begin=images)
            position = upper
        if begin is not None and not (meta.images_complete and meta.images_begin == begin):
            complete = self.state.images_digest(begin) == self.log.last_images
            meta = replace(meta, images_begin=begin, images_complete=complete)
        self.state.replay({}, meta)

    def _commit(self, changes: dict[bytes, bytes | None], size: int, crash_after: int | None) -> None:
        """To the log, then to the store; ``crash_after`` chunks the process is gone."""
        begin = len(self.log.records)
        keys = sorted(changes)
        previous = self.state.read(keys)
        digest = PairDigest()
        digest.update(keys, previous)
        self.batch += 1
        marker = b"%d" % self.batch
        self.log.records += [*((key, changes[key]) for key in keys), (MARKER, marker)]
        self.log.last_begin, self.log.last_images = begin, digest.digest()
        self.before = dict(self.now)
        for key in keys:
            value = changes[key]
            if value is None:
                self.now.pop(key, None)
            else:
                self.now[key] = value

        def chunks() -> object:
            for number, start in enumerate(range(0, len(keys), size)):
                if number == crash_after:
                    raise CrashError
                part = keys[start : start + size]
                images = pack_images(part, previous[start : start + size])
                yield Chunk(part, [changes[key] for key in part], images)

        assert self.state.meta is not None
        meta = replace(self.state.meta, position=len(self.log.records), images_begin=begin, images_complete=True)
        try:
            self.state.commit(chunks(), marker, meta)  # type: ignore[arg-type]
        except CrashError:
            self._start()

    @rule(changes=changes_of_a_batch, size=st.integers(1, 3))
    def commit(self, changes: dict[bytes, bytes | None], size: int) -> None:
        self._commit(changes, size, None)

    @rule(changes=changes_of_a_batch, size=st.integers(1, 2), chunks=st.integers(0, 3))
    def commit_and_die_between_chunks(self, changes: dict[bytes, bytes | None], size: int, chunks: int) -> None:
        """What was written until then survives: RocksDB leaves a prefix, and this is the longest one."""
        self._commit(changes, size, chunks)

    @rule()
    def flush(self) -> None:
        self.memory.flush()

    @rule()
    def crash(self) -> None:
        """Back to the last flush: any shorter prefix."""
        self.memory.crash()
        self._start()

    @rule()
    def lose_the_disk(self) -> None:
        self.memory = MemoryStore()
        self._start()

    @precondition(lambda self: self.log.last_begin is not None)
    @rule()
    def clear(self) -> None:
        self.log.records += [*((key, None) for key in sorted(self.now)), (MARKER, None)]
        self.log.last_begin = None
        self.now, self.before = {}, {}
        assert self.state.meta is not None
        self.state.clear(
            replace(self.state.meta, position=len(self.log.records), images_begin=None, images_complete=False)
        )

    @invariant()
    def reads_equal_the_model(self) -> None:
        assert self.state.read(KEYS) == [self.now.get(key) for key in KEYS]
        assert dict(self.state.scan_prefix(DATA)) == self.now

    @invariant()
    def reads_in_replay_equal_the_model_before(self) -> None:
        if self.log.last_begin is not None:
            assert self.state.meta is not None
            assert self.state.meta.images_complete
            assert self.state.read_before(KEYS) == [self.before.get(key) for key in KEYS]
            assert dict(self.state.scan_prefix(DATA, before=True)) == self.before
            assert self.state.images_digest(self.log.last_begin) == self.log.last_images

    @invariant()
    def the_marker_is_the_last_batch_s(self) -> None:
        assert self.state.marker == (b"%d" % self.batch if self.log.last_begin is not None else None)


TestOwner = Owner.TestCase
TestOwner.settings = settings(max_examples=150, stateful_step_count=20, deadline=None)

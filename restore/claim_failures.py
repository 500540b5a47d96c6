"""Claims that failed: which are worth another try, and how many. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from changelog_state.errors import (
    AgentUnavailableError,
    BatchRefusedError,
    BatchRunningError,
    ChangelogStateError,
    ConfigurationError,
    FencedError,
    InvalidInputError,
    StaleClaimError,
    StaleEpochError,
    UnavailableError,
    error_named,
)

__all__ = ["MOST_FAILURES", "ClaimFailures", "error_of", "has_failed", "worth_retrying"]

logger = logging.getLogger(__name__)

MOST_FAILURES = 5
"""Claims of one partition, or searches for an agent, that may fail in a row before the user hears why."""


class ClaimFailures:
    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def note(self, statuses: Iterable[Mapping[str, Any]]) -> None:
        """What agents answered to a claim. Raises a failure that another try does not mend, or has not."""
        for status in statuses:
            if not has_failed(status):
                continue
            number, error = status["partition"], error_of(status["error"])
            self._counts[number] += 1
            if not worth_retrying(error) or self._counts[number] >= MOST_FAILURES:
                raise error
            logger.warning("partition %d: claiming again after: %s", number, error)


def has_failed(status: Mapping[str, Any]) -> bool:
    """One that failed earlier, and whose turn has not come, has not failed again."""
    return bool(status["phase"] == "FAILED" and not status["claim_pending"])


def worth_retrying(error: ChangelogStateError) -> bool:
    """Another claim may mend it. A newer driver, bad input, wrong settings or a missing broker stay as they are."""
    if isinstance(error, StaleEpochError):
        return False
    if isinstance(error, (StaleClaimError, AgentUnavailableError)):
        return True
    permanent = (
        ConfigurationError,
        InvalidInputError,
        BatchRefusedError,
        BatchRunningError,
        FencedError,
        UnavailableError,
    )
    return not isinstance(error, permanent)


def error_of(payload: Mapping[str, str] | None) -> ChangelogStateError:
    if payload is None:
        return ChangelogStateError("the agent gave no reason")
    return error_named(payload["class"], payload["message"])

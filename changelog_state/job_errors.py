"""What went wrong inside a Spark job, out of the text that Spark makes of it."""

from __future__ import annotations

import re

from changelog_state.errors import (
    AgentUnavailableError,
    ChangelogStateError,
    StaleClaimError,
    StoreError,
    error_named,
)

__all__ = ["job_error", "worth_another_run"]

_OURS = re.compile(r"changelog_state\.errors\.(\w+): (.*?)(?=\n\s*\n|\n\tat |\Z)", re.DOTALL)


def job_error(error: BaseException) -> ChangelogStateError | None:
    """The last of our errors in a failed job; None if it failed for a reason of its own."""
    found = _OURS.findall(str(error))
    if not found:
        return None
    name, message = found[-1]
    return error_named(name, message.strip())


def worth_another_run(error: ChangelogStateError) -> bool:
    """An owner, or its local store, was lost in the middle of the job: the same batch can run again at once."""
    return isinstance(error, (AgentUnavailableError, StaleClaimError, StoreError))

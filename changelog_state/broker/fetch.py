"""``python -m changelog_state.broker.fetch``: fill the jar cache ahead of time, as ``make`` does."""

from __future__ import annotations

import logging
import sys

from changelog_state.broker.jars import KAFKA, SPARK_CONNECTOR, fetch
from changelog_state.errors import ChangelogStateError


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        for jar_set in (KAFKA, SPARK_CONNECTOR):
            jars = fetch(jar_set)
            print(f"{jar_set.name}: {len(jars)} jars in {jars[0].parent}")
    except ChangelogStateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

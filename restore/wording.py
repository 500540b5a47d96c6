"""Figures as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from restore.figures import RestoreFigures

__all__ = ["bytes_text", "closing_line", "duration_text", "eta_text", "percent", "progress_line", "size_texts"]

_UNITS = ("B", "kB", "MB", "GB", "TB")


def percent(figures: RestoreFigures, begun_of_all: float = 1.0) -> str:
    """Rounded down, so that 100 % is said at the very end and not before."""
    return f"{int(figures.fraction * begun_of_all * 100)} %"


def size_texts(figures: RestoreFigures) -> tuple[str, str]:
    """Records and bytes, done of all."""
    if figures.finished:
        return f"{figures.records:,} records", bytes_text(figures.bytes)
    records = f"{figures.records:,} of about {figures.records + figures.records_to_do:,} records"
    if figures.position <= figures.start:
        return records, bytes_text(figures.bytes)
    return records, f"{bytes_text(figures.bytes)} of about {bytes_text(figures.bytes + figures.bytes_to_do)}"


def progress_line(title: str, total: RestoreFigures, figures: Sequence[RestoreFigures], waiting: int) -> str:
    count = len(figures) + waiting
    finished = sum(each.finished for each in figures)
    parts = [
        f"{title}: {percent(total, len(figures) / count if count else 1.0)}",
        f"{finished} of {count} partitions",
        *size_texts(total),
        f"{total.records_per_second:,.0f} records/s",
        eta_text(None if waiting else total.eta_seconds),
    ]
    return ", ".join(parts)


def closing_line(title: str, total: RestoreFigures, partitions: int, unfinished: int) -> str:
    records, size = f"{total.records:,} records", bytes_text(total.bytes)
    spent = f"{records}, {size} in {duration_text(total.seconds)}, {total.records_per_second:,.0f} records/s"
    if unfinished:
        return f"{title}: stopped with {partitions - unfinished} of {partitions} partitions restored; {spent}"
    return f"{title}: 100 %, {partitions} of {partitions} partitions; {spent}"


def eta_text(seconds: float | None) -> str:
    return "time left not known yet" if seconds is None else f"{duration_text(seconds)} left"


def duration_text(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def bytes_text(count: int) -> str:
    value = float(count)
    for unit in _UNITS:
        if value < 1000 or unit == _UNITS[-1]:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError("the last unit takes everything")

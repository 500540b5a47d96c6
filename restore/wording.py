"""Figures as people read them. Pure."""

from __future__ import annotations

from restore.figures import RestoreFigures, RestoreTotal

__all__ = [
    "bytes_text",
    "closing_line",
    "duration_text",
    "eta_text",
    "overall_fraction",
    "percent",
    "progress_line",
    "size_texts",
]

_UNITS = ("B", "kB", "MB", "GB", "TB")


def percent(fraction: float) -> str:
    """Rounded down, so that 100 % is said at the very end and not before."""
    return f"{int(fraction * 100)} %"


def size_texts(figures: RestoreFigures | RestoreTotal) -> tuple[str, str]:
    """Records and bytes, done of all."""
    records, size = f"{figures.records:,}", bytes_text(figures.bytes)
    if figures.finished:
        return f"{records} records", size
    records = f"{records} of ~{figures.records + figures.records_to_do:,} records"
    return records, f"{size} of ~{bytes_text(figures.bytes + figures.bytes_to_do)}" if figures.begun else size


def overall_fraction(total: RestoreTotal, waiting: int) -> float:
    """Partitions that wait count as much as those that have begun: what they need is not known yet."""
    count = len(total.figures) + waiting
    return total.fraction * len(total.figures) / count if waiting else total.fraction


def progress_line(title: str, total: RestoreTotal, waiting: int) -> str:
    finished = sum(each.finished for each in total.figures)
    parts = [
        f"{title}: {percent(overall_fraction(total, waiting))}",
        f"{finished} of {len(total.figures) + waiting} partitions",
        *size_texts(total),
        f"{total.records_per_second:,.0f} records/s",
        eta_text(None if waiting else total.eta_seconds),
    ]
    return ", ".join(parts)


def closing_line(title: str, total: RestoreTotal, waiting: int) -> str:
    count, finished = len(total.figures) + waiting, sum(each.finished for each in total.figures)
    done = f"{total.records:,} records, {bytes_text(total.bytes)} in {duration_text(total.seconds)}"
    if finished < count:
        return f"{title}: stopped with {finished} of {count} partitions restored; {done}"
    return f"{title}: 100 %, {finished} of {count} partitions; {done}, {total.records_per_second:,.0f} records/s"


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

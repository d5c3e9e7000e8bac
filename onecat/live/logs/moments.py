"""When a line was written, and since when lines are wanted. Pure."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

from onecat.errors import ExitCode, OnecatError

# RFC 3339, as every runtime writes it before a line; "2026-11-30 12:00:00+00:00" is allowed there as well.
_RFC_3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:?\d\d)", re.ASCII
)
# nginx's error log: local time of its host (ngx_cached_err_log_time).
_NGINX_ERROR = re.compile(r"(\d{4})/(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d) ", re.ASCII)
_IN_ACCESS_LOG = re.compile(r'"time": ?"([^"]+)"')
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)
_EXPECTED = "10m, 2h, 3d or 1h30m ago, a time of day (14:30), a date (2026-11-30) or RFC 3339 (2026-11-30T14:30:00Z)"


def moment_of(text: str, offset_seconds: int = 0) -> float | None:
    """When a line was written, in seconds since 1970; None where it does not begin with a time.

    offset_seconds: how far the host's local time is before UTC; for nginx's error log, which does not tell it.
    """
    found = _RFC_3339.match(text)
    if found is None and text.startswith("{"):
        inner = _IN_ACCESS_LOG.search(text)
        found = _RFC_3339.match(inner[1]) if inner else None
    if found is not None:
        return _seconds(found)
    found = _NGINX_ERROR.match(text)
    if found is None:
        return None
    seconds = _utc(*map(int, found.groups()))
    return None if seconds is None else seconds - offset_seconds


def offset_of(text: str) -> int:
    """Seconds of `+0200` as `date +%z` prints it; 0 where it is no such thing."""
    found = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text.strip())
    if found is None:
        return 0
    return (-1 if found[1] == "-" else 1) * (int(found[2]) * 3600 + int(found[3]) * 60)


def parse_since(text: str, now: datetime) -> float:
    """A word of `--since` in seconds since 1970.

    Parameters:
        now: with its time zone, in which a time of day and a date are meant. A time of day that is still to come is
            yesterday's.

    Raises OnecatError for anything else.
    """
    word = text.strip()
    duration = _DURATION.fullmatch(word)
    try:
        if word and duration is not None:
            days, hours, minutes, seconds = (int(part or 0) for part in duration.groups())
            return (now - timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)).timestamp()
        if clock := _CLOCK.fullmatch(word):
            at = now.replace(hour=int(clock[1]), minute=int(clock[2]), second=int(clock[3] or 0), microsecond=0)
            return (at if at <= now else at - timedelta(days=1)).timestamp()
        if found := _RFC_3339.fullmatch(word):
            seconds_since = _seconds(found)
            if seconds_since is not None:
                return seconds_since
        else:
            written = datetime.fromisoformat(word)
            return (written if written.tzinfo else written.replace(tzinfo=now.tzinfo)).timestamp()
    except (ValueError, OverflowError):
        pass  # told below
    raise OnecatError(f"--since {text}: no time", expected=_EXPECTED, next_steps=["--since 10m"], code=ExitCode.USAGE)


def _seconds(found: re.Match[str]) -> float | None:
    *parts, fraction, zone = found.groups()
    seconds = _utc(*map(int, parts))
    if seconds is None:
        return None
    return seconds - (0 if zone in "Zz" else offset_of(zone)) + (float(f"0.{fraction}") if fraction else 0.0)


def _utc(year: int, month: int, day: int, hour: int, minute: int, second: int) -> float | None:
    try:
        # A leap second, :60, is the next one.
        return datetime(year, month, day, hour, minute, tzinfo=timezone.utc).timestamp() + second
    except ValueError:
        return None

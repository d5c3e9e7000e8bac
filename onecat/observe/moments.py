"""The time that a log line says, in seconds, where its form is known; never by the time zone of this machine."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass

_MONTHS = {
    name: number
    for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)  # noqa: SIM905
}
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?P<fraction>[.,]\d+)?"
_FORMS = tuple(
    re.compile(form)
    for form in (
        rf"(?P<year>\d{{4}})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[-T ]{_CLOCK}(?P<zone>Z|[+-]\d\d:?\d\d)?$",
        rf"(?P<month>\d\d)-(?P<day>\d\d) {_CLOCK}$",
        rf"(?P<month>\d\d)(?P<day>\d\d) {_CLOCK}$",
        rf"(?P<name>[A-Z][a-z]{{2}}) (?P<day>[ \d]\d) {_CLOCK}$",
    )
)
_SOME_LEAP_YEAR = 2000
"""For forms without a year: only differences count, and any day of a year is a day of it."""


@dataclass(frozen=True)
class Moment:
    """seconds: since some begin that all moments of the same `clock` share."""

    seconds: float
    clock: str

    def minus(self, other: Moment | None) -> float | None:
        """Seconds from another moment to this one; None where the two clocks cannot be compared."""
        return self.seconds - other.seconds if other is not None and other.clock == self.clock else None


def moment(text: str | None) -> Moment | None:
    """The moment that a time in the words of a log means; None where it is of no known form."""
    for form in _FORMS:
        match = form.match(text or "")
        if match is not None:
            break
    else:
        return None
    found = match.groupdict()
    year = int(found.get("year") or _SOME_LEAP_YEAR)
    month = _MONTHS.get(found["name"], 0) if "name" in found else int(found["month"])
    hour, minute, second = (int(found[name]) for name in ("hour", "minute", "second"))
    try:
        at = datetime.datetime(year, month, int(found["day"]), hour, minute, second, tzinfo=datetime.timezone.utc)
    except ValueError:
        return None
    fraction = float("0." + (found["fraction"] or ".0")[1:])
    zone = found.get("zone")
    if zone in (None, ""):
        return Moment(at.timestamp() + fraction, "local" if "year" in found else "local, no year")
    return Moment(at.timestamp() + fraction - _offset(zone or "Z"), "UTC")


def _offset(zone: str) -> int:
    if zone == "Z":
        return 0
    digits = zone.replace(":", "")
    return (1 if zone[0] == "+" else -1) * (int(digits[1:3]) * 3600 + int(digits[3:5]) * 60)

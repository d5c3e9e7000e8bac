"""What all importers need of text: decoding, cleaning, reading values with units. Pure; never raises on any text."""

from __future__ import annotations

import re

LONGEST_LINE = 4096
"""Longer lines are cut before a pattern sees them: no line that tells a fact is that long."""

_UNKNOWN = frozenset(
    {
        "",
        "-",
        "n/a",
        "not available",
        "not supported",
        "not found",
        "unknown",
        "unknown error",
        "err!",
        "gpu is lost",
        "gpu requires reset",
        "insufficient permissions",
        "requested functionality has been deprecated",
        "could not collect",
        "function not found",
    }
)

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[()][0-9A-Za-z]|[0-9A-Za-z=>]?)")
_CONTROLS = {code: None for code in [*range(32), 127, 0xFEFF] if chr(code) not in "\t\n"}


def decode(data: bytes) -> str:
    """Text of any origin: UTF-8 or UTF-16, with or without a byte order mark; what is neither is replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    # PowerShell writes UTF-16 without a mark too: of Latin text every second byte is zero.
    head = data[:512]
    if len(head) >= 8 and head.count(0) * 5 >= len(head) * 2:
        little = head[1::2].count(0) > head[::2].count(0)
        return data.decode("utf-16-le" if little else "utf-16-be", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def clean(text: str) -> str:
    """The text without what terminals and other systems add: colours, carriage returns, control characters."""
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    return text.replace("\r\n", "\n").replace("\r", "\n").translate(_CONTROLS)


def short_lines(text: str, longest: int = LONGEST_LINE) -> list[str]:
    """The lines of a text, each cut at so many characters."""
    return [line if len(line) <= longest else line[:longest] for line in text.split("\n")]


def known(value: str | None) -> str | None:
    """A value as the program printed it, or None when the program says in any of its ways that it does not know."""
    if value is None:
        return None
    value = value.strip()
    return None if value.strip("[]<>").strip().lower() in _UNKNOWN else value


def whole(value: str | None) -> int | None:
    """The whole number that a value begins with ("16x", "0 %", "3 bank(s)"), or None."""
    match = re.match(r"-?[0-9]{1,18}(?![0-9])", known(value) or "")
    return int(match.group()) if match else None


def decimal(value: str | None) -> float | None:
    """The number that a value begins with ("127.86 W"), or None."""
    match = re.match(r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?", known(value) or "")
    return float(match.group()) if match else None


_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5, "e": 6}


def size(value: str | None) -> int | None:
    """A size with its unit in bytes: "143771 MiB", "125Gi", "64M", "1.5GB", "12 kB"; None without a unit.

    Every unit is taken as a power of 1024, as df -h, free -h and /proc/meminfo mean it.
    """
    match = re.match(r"([0-9]{1,15})(?:[.,]([0-9]{1,6}))? ?([KkMGTPE]?)(i?)(B|bytes)?(?![\w.])", known(value) or "")
    if match is None or not (match.group(3) or match.group(5)):
        return None
    number = float(f"{match.group(1)}.{match.group(2) or 0}") if match.group(2) else int(match.group(1))
    return int(number * 1024 ** _POWERS[match.group(3).lower()])


def enabled(value: str | None) -> bool | None:
    """Enabled, Yes, On, Active, True: True. Disabled, No, Off, Not Active, False: False. Anything else: None."""
    word = (known(value) or "").lower()
    if word in ("enabled", "yes", "on", "active", "true", "pending"):
        return True
    return False if word in ("disabled", "no", "off", "not active", "inactive", "false", "none") else None


def pci_address(value: str | None) -> str | None:
    """A PCI function as sysfs spells it: 00000000:3B:00.0, PCI:0000:3b:00 and 3b:00.0 become 0000:3b:00.0."""
    match = re.search(
        r"(?<![0-9A-Fa-f])(?<![0-9A-Fa-f]:)(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?(?![0-9A-Fa-f:])",
        value or "",
    )
    if match is None:
        return None
    domain, bus, device, function = match.groups()
    # Domains beyond 16 bits exist (Intel VMD); NVIDIA pads all to eight digits.
    number = f"{int(domain or '0', 16):04x}"
    return f"{number}:{bus.lower()}:{device.lower()}.{function or '0'}"

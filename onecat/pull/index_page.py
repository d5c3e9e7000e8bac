"""Directory listings of web servers: nginx's JSON, and the HTML of nginx, Apache and Python's http.server. Pure."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote, urljoin, urlsplit

from onecat.errors import ExitCode, OnecatError
from onecat.pull.names import checked_name
from onecat.pull.sources import origin, shown

MOST_LINKS = 50_000
_LINK = re.compile(
    r"""<a\s[^<>]{0,500}?\bhref\s*=\s*(?:"([^"<>]{1,4000})"|'([^'<>]{1,4000})'|([^\s"'<>]{1,4000}))""", re.I
)
"""A link of a page. All lengths are bounded: the time for a page of any content grows with its length alone."""


@dataclass(frozen=True)
class Entry:
    """One row of a listing. name: as it was written, decoded. url: without query. size: bytes, when it is told."""

    name: str
    url: str
    is_directory: bool
    size: int | None = None


def read_index(url: str, content_type: str, body: bytes) -> tuple[Entry, ...] | None:
    """The entries below `url`, which ends with a slash; None when the page is no listing.

    Raises OnecatError for a name that leads out of the directory, and for more links than a model has files.
    """
    text = body.decode("utf-8", errors="replace")
    if "json" in content_type:
        return _json_entries(url, text)
    if "html" not in content_type:
        return None
    entries: dict[str, Entry] = {}
    base = urlsplit(url).path
    for number, target in enumerate(_targets(url, text)):
        if number >= MOST_LINKS:
            raise OnecatError(
                f"{shown(url)} has more than {MOST_LINKS} links",
                expected="the directory of one model",
                code=ExitCode.NO,
            )
        parts = urlsplit(target)
        if parts.query or parts.fragment or origin(target) != origin(url) or not parts.path.startswith(base):
            continue  # columns to sort by, and the directory above
        encoded = parts.path[len(base) :]
        if encoded.rstrip("/") and "/" not in encoded.rstrip("/"):
            entry = _entry(url, unquote(encoded.rstrip("/"), errors="surrogateescape"), encoded.endswith("/"), None)
            entries.setdefault(entry.name, entry)
    return tuple(entries.values())


def _json_entries(url: str, text: str) -> tuple[Entry, ...] | None:
    """nginx's `autoindex_format json` (https://nginx.org/en/docs/http/ngx_http_autoindex_module.html)."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("name"), str) for row in rows
    ):
        return None
    entries = []
    for row in rows:
        size = row.get("size")
        known = size if isinstance(size, int) and not isinstance(size, bool) and size >= 0 else None
        entries.append(_entry(url, row["name"], row.get("type") == "directory", known))
    return tuple(entries)


def _entry(url: str, name: str, is_directory: bool, size: int | None) -> Entry:
    checked_name(name, shown(url))
    slash = "/" if is_directory else ""
    return Entry(name, f"{url}{quote(name)}{slash}", is_directory, size)


def _targets(url: str, text: str) -> Iterator[str]:
    for found in _LINK.finditer(text):
        target = html.unescape(found[1] or found[2] or found[3])
        try:
            target = urljoin(url, target)
            origin(target)
        except ValueError:
            continue  # no address at all, as http://[
        yield target

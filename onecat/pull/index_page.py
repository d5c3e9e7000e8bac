"""Directory listings of web servers: nginx's JSON, and the HTML of nginx, Apache and Python's http.server. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urljoin, urlsplit

from onecat.pull.names import checked_name
from onecat.pull.sources import origin, shown


@dataclass(frozen=True)
class Entry:
    """One row of a listing. name: as it was written, decoded. url: without query. size: bytes, when it is told."""

    name: str
    url: str
    is_directory: bool
    size: int | None = None


def read_index(url: str, content_type: str, body: bytes) -> tuple[Entry, ...] | None:
    """The entries below `url`, which ends with a slash; None when the page is no listing.

    Raises OnecatError for a name that leads out of the directory.
    """
    text = body.decode("utf-8", errors="replace")
    if "json" in content_type:
        return _json_entries(url, text)
    if "html" not in content_type:
        return None
    parser = _Links()
    parser.feed(text)
    entries: dict[str, Entry] = {}
    base = urlsplit(url).path
    for link in parser.links:
        target = urljoin(url, link)
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


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]

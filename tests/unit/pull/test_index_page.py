"""Directory listings of web servers."""

from __future__ import annotations

import json

import pytest

from onecat.errors import OnecatError
from onecat.pull.index_page import read_index

URL = "https://h.example/models/m/"
NGINX = """<html><head><title>Index of /models/m/</title></head><body><h1>Index of /models/m/</h1><hr><pre>
<a href="../">../</a>
<a href="original/">original/</a>                             30-Nov-2026 06:11       -
<a href="a%20b.json">a b.json</a>                             30-Nov-2026 06:11       3
<a href="%E6%A8%A1.safetensors">x</a>                         30-Nov-2026 06:11      1G
</pre><hr></body></html>"""
APACHE = """<table><tr><th><a href="?C=N;O=D">Name</a></th></tr><tr><td><a href="/models/">Parent</a></td></tr>
<tr><td><a href="config.json">config.json</a></td></tr><tr><td><a href="https://evil.example/models/m/x">x</a></td></tr>
<tr><td><a href="/models/m/y.json">y</a></td></tr><tr><td><a href="#top">top</a></td></tr></table>"""


def entries(content_type: str, body: str) -> list[tuple[str, bool, int | None]] | None:
    found = read_index(URL, content_type, body.encode())
    return None if found is None else [(each.name, each.is_directory, each.size) for each in found]


def test_html_of_nginx_and_apache_gives_what_is_below_and_nothing_else() -> None:
    assert entries("text/html", NGINX) == [
        ("original", True, None),
        ("a b.json", False, None),
        ("模.safetensors", False, None),
    ]
    assert entries("text/html;charset=UTF-8", APACHE) == [("config.json", False, None), ("y.json", False, None)]


def test_json_of_nginx_gives_sizes() -> None:
    rows = [{"name": "sub", "type": "directory"}, {"name": "a#b", "type": "file", "size": 3, "mtime": "x"}]
    found = read_index(URL, "application/json", json.dumps(rows).encode())
    assert found is not None
    assert [(each.url, each.is_directory, each.size) for each in found] == [
        ("https://h.example/models/m/sub/", True, None),
        ("https://h.example/models/m/a%23b", False, 3),
    ]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("text/html", '<a href="%2e%2e%2f%2e%2e%2fetc%2fpasswd">x</a>'),
        ("text/html", '<a href="..%2fx">x</a>'),
        ("text/html", '<a href="a%00b">x</a>'),
        ("application/json", '[{"name": "../x", "type": "file"}]'),
        ("application/json", '[{"name": "/etc/passwd", "type": "file"}]'),
        ("application/json", '[{"name": "a/b", "type": "file"}]'),
    ],
)
def test_rows_that_lead_elsewhere_are_refused(content_type: str, body: str) -> None:
    with pytest.raises(OnecatError, match="the listing names a file"):
        read_index(URL, content_type, body.encode())


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/octet-stream", "x"),
        ("application/json", "{}"),
        ("application/json", "[1]"),
        ("application/json", "["),
    ],
)
def test_other_answers_are_no_listing(content_type: str, body: str) -> None:
    assert entries(content_type, body) is None

"""Telling a web page from the file that was asked for: proxies answer with their login page, and a status of 200."""

from __future__ import annotations

import re

from onecat.errors import ExitCode, OnecatError
from onecat.pull.records import RemoteFile
from onecat.pull.sources import shown

BEGINNING = 512
"""Bytes of a file that are looked at."""
_PAGE = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*<(?:!doctype\s+html|html)\b", re.IGNORECASE)
_MAY_BE_PAGES = (".html", ".htm", ".xhtml", ".md", ".txt")


def refuse_web_page(file: RemoteFile, beginning: bytes) -> None:
    """Raises OnecatError when a file begins as a web page does, its name is of none, and no checksum will tell."""
    if file.check is not None or file.path.lower().endswith(_MAY_BE_PAGES):
        return
    if _PAGE.match(beginning):
        raise OnecatError(
            f"{shown(file.url)} is a web page, no file of a model",
            expected="the file itself",
            next_steps=[
                "a model's page of a hub: name the model, as ORG/NAME",
                "a page to log in: see what a browser shows there; a proxy may stand between",
            ],
            code=ExitCode.NO,
        )

"""JSON as engines read it, and why a file is none, in words that help."""

from __future__ import annotations

import codecs
import json
import re
from typing import Any

DOWNLOAD_AGAIN = "download this file again and compare its checksum with the one its publisher states"
SAVE_AS_UTF8 = "save it as UTF-8 without a byte order mark, or download it again"

_COMMENT = re.compile(r"\s*(//|/\*|#)")


class NotJson(ValueError):
    """A text that is no JSON: its text is the reason. fix: what to do."""

    def __init__(self, reason: str, fix: str = DOWNLOAD_AGAIN) -> None:
        super().__init__(reason)
        self.fix = fix


def parse_json(raw: bytes) -> Any:
    """The document in a file, NaN and Infinity as Python reads them: transformers does. Raises NotJson."""
    if not raw.strip(b"\0 \t\r\n"):
        raise NotJson("it is empty" if not raw else "it has nothing but blanks and zeros")
    if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise NotJson("it is UTF-16, and engines read UTF-8", SAVE_AS_UTF8)
    if raw.startswith(codecs.BOM_UTF8):
        raise NotJson("it begins with a byte order mark, which engines refuse", SAVE_AS_UTF8)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise NotJson(f"byte {error.start} is not UTF-8", SAVE_AS_UTF8) from error
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1] if error.lineno <= len(text.splitlines()) else ""
        if _COMMENT.match(line[error.colno - 1 :]):
            raise NotJson(f"a comment in line {error.lineno}", "remove the comments: JSON has none") from error
        raise NotJson(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise NotJson("it is nested too deep") from error
    except ValueError as error:  # an integer of more digits than Python reads
        raise NotJson(str(error).partition(";")[0]) from error

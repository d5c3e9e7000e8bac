"""What is before a message: only those forms of heads are tried that can begin with the character that is there."""

from __future__ import annotations

import re
from pathlib import Path

from onecat.observe import lines

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
PREFIXES = (
    "",
    "vllm-1  | ",
    "[pod/a-b/vllm] ",
    "Nov 29 16:59:51 gpu1 vllm[7]: ",
    "[  12.345678] ",
    "1764435591.123456 ",
)


def first_match(forms: tuple[re.Pattern[str], ...], text: str, begin: int) -> tuple[str, int] | None:
    matches = ((form.pattern, form.match(text, begin)) for form in forms)
    return next(((pattern, match.end()) for pattern, match in matches if match is not None), None)


def test_the_forms_tried_are_those_that_may_match() -> None:
    every = {line for path in LOGS.rglob("*.log") for line in path.read_text(encoding="utf-8").splitlines()}
    used: set[str] = set()
    for line in sorted(every)[::4]:
        for text in (prefix + line[:300] for prefix in PREFIXES):
            begin = 0
            while begin < len(text):
                found = first_match(lines.ALL_HEADS, text, begin)
                assert first_match(lines.heads_at(text, begin), text, begin) == found, text
                if found is None or found[1] == begin:
                    break
                used.add(found[0])
                begin = found[1]
    assert len(used) > 9


def test_a_character_that_is_not_ascii_may_begin_any_form() -> None:
    assert lines.heads_at("é-host  | all is well", 0) == lines.ALL_HEADS
    assert lines.read_line("é-host  | all is well").source == "é-host"
    assert lines.read_line("").text == ""

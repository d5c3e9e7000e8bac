"""Servers that fail and start again, over and over, alone and several in one log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from onecat.observe import Diagnoser, Diagnosis
from onecat.observe.finder import Finder, Words
from onecat.observe.patterns import compile_pattern
from onecat.observe.signatures import parse_signatures
from onecat.observe.starts import RepeatedStarts

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
START = "INFO 11-29 16:59:51 [utils.py:299] non-default args: {'model': 'm'}"
READY = "INFO:     Application startup complete."
TABLE = """
signatures:
  - {id: a.common, patterns: ["common fault"], cause: c., fix: [f], source: [https://s], confidence: high}
  - {id: a.rare, patterns: ["alpha.{0,9}beta"], cause: c., fix: [f], source: [https://s], confidence: high}
  - {id: a.pair, sequence: ["gamma begins", "delta ends"], within: 9, cause: c., fix: [f], source: [https://s],
     confidence: high}
"""


def chunks(lines: list[str]) -> Iterator[bytes]:
    log = ("\n".join(lines) + "\n").encode()
    return (log[begin : begin + (1 << 20)] for begin in range(0, len(log), 1 << 20))


def told(lines: list[str]) -> dict[str, Diagnosis]:
    diagnoser = Diagnoser(threads=0)
    diagnoser.read(chunks(lines))
    return {each.signature: each for each in diagnoser.finish(every=True)}


def told_by_table(starts: list[list[str]]) -> dict[str, Diagnosis]:
    diagnoser = Diagnoser(parse_signatures(TABLE), threads=0)
    lines = [line for start in starts for line in [START, *start]]
    diagnoser.read(chunks(lines))
    return {each.signature: each for each in diagnoser.finish(every=True)}


COMMON = ["a common fault", "a common fault again"]


def test_a_start_with_words_that_were_never_together_is_looked_at() -> None:
    """Each word was seen in many starts before: in those with the one, and in those with the other."""
    ones, others = [["x gamma begins", *COMMON]] * 30, [["x delta ends", *COMMON]] * 30
    found = told_by_table([*ones, *others, ["x gamma begins", "x delta ends", *COMMON], *others, *ones])
    assert found["a.pair"].standing == "earlier"
    assert "a.pair" not in told_by_table([*ones, *others, *ones])


def test_a_start_with_a_line_that_is_new_is_looked_at() -> None:
    """The same words as in all others, in a line that is another one."""
    usual = ["alpha is well", "beta 0x7f is well", *COMMON]
    found = told_by_table([*[usual] * 50, ["alpha, no beta", *usual], *[usual] * 50])
    assert found["a.rare"].standing == "earlier"
    assert found["a.common"].standing == "cause"
    assert "a.rare" not in told_by_table([usual] * 100)


@pytest.mark.parametrize("services", [1, 3])
def test_of_many_starts_alike_few_are_looked_at(services: int) -> None:
    """Places of starts alike are left out for each service, and those of another one between them are not."""
    words = Words([("start", compile_pattern("non-default args: ")), ("fault", compile_pattern("common fault"))])
    search = Finder(words).search
    lines = []
    for number in range(200):
        for service in range(services):
            prefix = f"vllm-{service}  | " if services > 1 else ""
            lines += [
                prefix + START,
                f"{prefix}INFO 11-29 17:{number % 60:02d}:00 [a.py:1] a common fault {number:03d}",
            ]
        if number == 100:
            lines.append("proxy-1  | another common fault")
    text = ("\n".join(lines) + "\n").encode()
    left = RepeatedStarts(lambda _: False).left_out(search.places(text), search.words, text)
    kept = [text[text.rfind(b"\n", 0, begin) + 1 : text.find(b"\n", begin)].decode() for _, begin, _ in left]
    assert sum("another common fault" in line for line in kept) == 1
    for service in range(services):
        own = [line for line in kept if f"vllm-{service} " in line or services == 1]
        # The first five and the last two of this service, with two places each.
        assert len([line for line in own if "another" not in line]) == 14
        assert any(line.endswith("fault 199") for line in own)


def test_what_each_of_several_services_ends_with_is_told() -> None:
    names = ("kv-cache-too-small", "truncated-safetensors", "port-in-use")
    logs = {name: (LOGS / f"{name}.log").read_text(encoding="utf-8").splitlines() for name in names}
    alone = {name: {key for key, each in told(log).items() if each.standing == "cause"} for name, log in logs.items()}
    lines: list[str] = []
    endless = {name: [*log * 40] for name, log in logs.items()}
    while any(endless.values()):
        for number, name in enumerate(names):
            lines += [f"vllm-{number}  | {line}" for line in endless[name][:3]]
            del endless[name][:3]
    found = told(lines)
    assert set().union(*alone.values()) <= {key for key, each in found.items() if each.standing == "cause"}


@pytest.mark.parametrize("count", [60, 80_000])
def test_a_fault_right_after_a_start_counts_though_it_was_left_out_before(count: int) -> None:
    """So many hits that nobody looks for it any more; then the server starts, serves, and has it again."""
    found = told_by_table([["a common fault"] * count, [READY, "a common fault"]])
    assert found["a.common"].standing == "cause"
    assert found["a.common"].evidence[0].line == count + 4
    assert told_by_table([["a common fault"] * count, [READY]])["a.common"].standing == "earlier"

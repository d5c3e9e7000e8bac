"""Whatever a text holds, importers read it without a fault, in time in proportion to it, to facts that can be saved.

ONECAT_FUZZ_EXAMPLES sets how many examples each test tries; the tests' own number keeps them to a few seconds.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onecat.errors import ExitCode, OnecatError
from onecat.facts import from_json, to_json
from onecat.probe import read_hosts
from onecat.probe.importers import Capture, all_importers, parse_capture
from onecat.probe.importers.text import decode
from onecat.probe.merging import facts_from_document, facts_from_parts, merge_parts

CAPTURES = Path(__file__).parents[3] / "fixtures" / "captures"
SHARED = Path(__file__).parents[5] / "shared" / "fixtures"
LARGEST_SEED = 20_000
SEEDS = [file.read_bytes()[:LARGEST_SEED] for file in sorted(CAPTURES.glob("*/*.txt"))]
SEEDS += [
    file.read_bytes()[:LARGEST_SEED]
    for file in sorted(SHARED.glob("*/*"))
    if file.is_file() and file.suffix != ".url" and file.parent.name != "config"
]
EXAMPLES = int(os.environ.get("ONECAT_FUZZ_EXAMPLES", "0"))

quick = settings(
    max_examples=EXAMPLES or 60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
each = settings(quick, max_examples=EXAMPLES or 4)


def read(text: str) -> None:
    """Read a text in every way that captures are read, and see that the facts can be saved and read back."""
    parts = parse_capture(Capture("capture.txt", text))
    facts = facts_from_parts("host", parts)
    assert from_json(json.loads(json.dumps(to_json(facts)))) == facts
    document = {"schema": facts.schema, "host": "host", "captures": [{"name": "dmesg", "text": text}]}
    facts_from_document(document)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A real capture, or two, after what happens to them on their way."""
    data = draw(st.sampled_from(SEEDS))
    if draw(st.booleans()):
        data += b"\n" + draw(st.sampled_from(SEEDS))
    chance = random.Random(draw(st.integers(0, 2**32)))
    for way in draw(st.lists(st.sampled_from(WAYS), max_size=4)):
        data = way(data, chance)
    return decode(data)


def cut(data: bytes, chance: random.Random) -> bytes:
    first, last = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return data[: last or 1] if chance.random() < 0.5 else data[first:]


def lose_lines(data: bytes, chance: random.Random) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") if chance.random() < 0.8)


def repeat_lines(data: bytes, chance: random.Random) -> bytes:
    return b"\n".join(line for line in data.split(b"\n") for _ in range(chance.choice((1, 1, 1, 2, 3))))


def swap_lines(data: bytes, chance: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(len(lines) // 10 + 1):
        first, second = chance.randrange(len(lines)), chance.randrange(len(lines))
        lines[first], lines[second] = lines[second], lines[first]
    return b"\n".join(lines)


def insert(data: bytes, chance: random.Random) -> bytes:
    pieces = (
        b"\x1b[4m",
        b"\x1b[0m",
        b"\0",
        b"\r",
        b"\t",
        b" " * 30,
        b"9" * 25,
        b"-1",
        b"\xff",
        "：".encode(),
        b"N/A",
        b"|",
        b"[",
        b'"',
    )
    for _ in range(chance.randrange(1, 20)):
        at = chance.randrange(len(data) + 1)
        data = data[:at] + chance.choice(pieces) + data[at:]
    return data


def change_digits(data: bytes, chance: random.Random) -> bytes:
    return bytes(
        chance.choice(b"0123456789ef.-") if 48 <= byte <= 57 and chance.random() < 0.1 else byte for byte in data
    )


def windows_line_ends(data: bytes, chance: random.Random) -> bytes:
    return data.replace(b"\n", b"\r\n")


def lose_indentation(data: bytes, chance: random.Random) -> bytes:
    return b"\n".join(line.strip() if chance.random() < 0.5 else line for line in data.split(b"\n"))


WAYS = (cut, lose_lines, repeat_lines, swap_lines, insert, change_digits, windows_line_ends, lose_indentation)


@quick
@given(damaged())
def test_damaged_captures_are_read(text: str) -> None:
    read(text)


@quick
@given(st.text(max_size=400) | st.binary(max_size=400).map(decode))
def test_any_text_is_read(text: str) -> None:
    read(text)


@pytest.mark.parametrize("one", all_importers(), ids=lambda one: one.name)
def test_every_importer_reads_what_it_does_not_recognise_too(one) -> None:  # type: ignore[no-untyped-def]
    @each
    @given(damaged() | st.text(max_size=300), st.sampled_from([None, "free -m", "df -Pk", "path a=/b", *one.sections]))
    def reads(text: str, command: str | None) -> None:
        part = one.read(Capture("capture.txt", text.replace("\r", "\n"), command))
        from_json({"schema": "onecat.facts/1", "host": "h", **merge_parts([part])})

    reads()


def test_merging_the_same_parts_twice_tells_nothing_new() -> None:
    for seed in SEEDS:
        parts = parse_capture(Capture("capture.txt", decode(seed)))
        once = facts_from_parts("host", parts)
        twice = facts_from_parts(
            "host", [*parts, *((name, part) for name, part in parts if "kernel_events" not in part)]
        )
        assert once == twice


def grown(seed: bytes, size: int) -> str:
    return decode((seed + b"\n") * (size // len(seed) + 1))[:size]


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_time_grows_with_the_text_and_not_with_its_square(seed: bytes) -> None:
    size = int(os.environ.get("ONECAT_FUZZ_BYTES", "60000"))
    started = time.process_time()
    read(grown(seed, size))
    # A hundred times what it takes; something quadratic takes thousands of times as long.
    assert time.process_time() - started < size / 60000 * 2


@pytest.mark.parametrize(
    "line",
    [
        " " * 4000,
        "a " * 2000,
        "NVRM: " * 600,
        "NVRM: Xid (PCI:0000:3b:00): 79 " + "name=" * 700,
        "nvidia " * 500 + "version magic",
        "| " * 2000,
        "|    0   N/A  N/A      1      C   " + "x " * 2000 + "|",
        "3b:00.0 " + "a" * 80 + " [" * 1500,
        "avc:  denied " + "comm" * 900,
        "<gpu " + "a" * 4000,
        "GPU 0: " + "( UUID: " * 500,
        "== " * 1300,
        "$ " * 2000,
        "1% " * 1300 + "/",
        "{" * 4000,
        "Docker version " * 250,
        "[" * 4000,
        "\x1b[" * 2000,
        "\x1b]" * 2000,
    ],
)
def test_no_line_takes_long(line: str) -> None:
    started = time.process_time()
    parse_capture(Capture("capture.txt", "\n".join([line] * 20)))
    assert time.process_time() - started < 1


@quick
@given(damaged() | st.text(max_size=200), st.sampled_from(["{}", "gpu1={}", "gpu1={}/..", "{}/.."]))
def test_any_file_gives_facts_or_one_clear_message(text: str, form: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "capture.txt").write_text(text, encoding="utf-8", errors="surrogatepass")
        argument = form.format(f"{folder}/capture.txt").replace("capture.txt/..", "")
        try:
            facts = read_hosts([argument])
        except OnecatError as error:
            assert error.code is ExitCode.USAGE and error.where
        else:
            assert len(facts) == 1


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=300), max_size=3))
@quick
def test_any_argument_gives_facts_or_one_clear_message(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(OnecatError):
        read_hosts([f"{folder}/nothing/{argument}" for argument in arguments])

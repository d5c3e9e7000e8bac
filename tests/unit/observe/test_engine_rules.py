"""What a row of the table means: sequences, what must stand before, what undoes a hit, versions, starts, effects."""

from __future__ import annotations

import json

import pytest

from onecat.observe import Diagnoser, Diagnosis, diagnose
from onecat.observe.signatures import parse_signatures, parse_tables


def row(name: str, **fields: object) -> str:
    shown = {"cause": "C.", "fix": ["f"], "source": ["https://s"], "confidence": "high", **fields}
    return f"  - {{id: {name}, " + ", ".join(f"{key}: {json.dumps(value)}" for key, value in shown.items()) + "}\n"


def told(rows: str, *lines: str, every: bool = True, **more: str) -> dict[str, str]:
    """Signatures with their standings, both as lines come one by one and as a whole log in bytes."""
    table = parse_signatures("signatures:\n" + rows + more.get("more", ""))
    whole, live = Diagnoser(table), Diagnoser(table)
    whole.read(["\n".join(lines).encode()])
    new: list[Diagnosis] = [each for line in lines for each in live.feed(line)]
    found = whole.finish(every)
    assert live.finish(every) == found == diagnose(lines, table, every)
    assert {each.signature for each in found if each.standing == "cause"} <= {each.signature for each in new}
    return {each.signature: each.standing for each in found}


SEQUENCE = row("a.a", sequence=["first thing", "second thing", "third thing"], within=3)


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        (["first thing", "second thing", "third thing"], True),
        (["first thing", "x", "second thing", "third thing"], True),
        (["first thing", "x", "second thing", "x", "third thing"], False),
        (["second thing", "first thing", "third thing"], False),
        (["first thing", "third thing", "second thing"], False),
        # The nearest begin counts.
        (["first thing", "x", "x", "first thing", "second thing", "third thing"], True),
        (["first thing", "second thing", "first thing", "x", "third thing"], False),
        (["(W pid=1) first thing", "(W pid=2) second thing", "(W pid=1) third thing"], False),
        (
            ["(W pid=1) first thing", "(W pid=2) first thing", "(W pid=2) second thing", "(W pid=2) third thing"],
            True,
        ),
        # A line of no process may be any one's.
        (["(W pid=1) first thing", "second thing", "(W pid=1) third thing"], True),
    ],
)
def test_a_sequence_is_of_one_process_in_order_and_near(lines: list[str], is_told: bool) -> None:
    assert ("a.a" in told(SEQUENCE, *lines)) == is_told


@pytest.mark.parametrize(("between", "is_told"), [(0, True), (59, True), (60, False), (200, False)])
def test_what_must_stand_before(between: int, is_told: bool) -> None:
    rows = row("a.a", patterns=["broken thing"], preceded_by=["some header"])
    assert ("a.a" in told(rows, "some header", *["x"] * between, "broken thing")) == is_told
    assert told(rows, "broken thing", "some header") == {}
    assert told(rows, "some header broken thing") == {"a.a": "cause"}


def test_what_undoes_a_hit_stands_in_the_same_line() -> None:
    rows = row("a.a", patterns=["broken thing"], excluded=["but fine"])
    assert told(rows, "broken thing but fine") == {}
    assert told(rows, "but fine", "broken thing") == {"a.a": "cause"}
    assert told(rows, "broken thing but fine", "broken thing") == {"a.a": "cause"}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_consequence_is_none_of_the_causes_in_whichever_order(is_first: bool) -> None:
    rows = row("a.root", patterns=["root thing"]) + row("a.effect", patterns=["later thing"], unless=["a.root"])
    lines = ["root thing", "later thing"] if is_first else ["later thing", "root thing"]
    assert told(rows, *lines) == {"a.root": "cause", "a.effect": "consequence"}
    assert told(rows, "later thing") == {"a.effect": "cause"}
    assert told(rows, *lines, every=False) == {"a.root": "cause"}


def test_anything_nearer_to_the_root_and_as_severe_explains_what_says_unless_all() -> None:
    rows = (
        row("a.root", patterns=["root thing"], priority=10)
        + row("a.far", patterns=["far thing"], priority=90)
        + row("a.warning", patterns=["warning thing"], priority=10, severity="warn")
        + row("a.effect", patterns=["later thing"], priority=50, unless=["*"])
    )
    assert told(rows, "root thing", "later thing")["a.effect"] == "consequence"
    assert told(rows, "far thing", "later thing")["a.effect"] == "cause"
    assert told(rows, "warning thing", "later thing")["a.effect"] == "cause"


@pytest.mark.parametrize(
    ("version", "is_told"), [("0.7.3", False), ("0.8.0", True), ("0.11.2.dev3+gabc", True), ("0.12.0", False)]
)
def test_a_row_of_some_versions(version: str, is_told: bool) -> None:
    rows = row("a.a", patterns=["broken thing"], engines=">=0.8,<0.12")
    lines = [f"INFO 11-29 17:00:00 [api.py:1] vLLM API server version {version}", "broken thing"]
    assert ("a.a" in told(rows, *lines)) == is_told
    assert told(rows, "broken thing") == {"a.a": "cause"}


START, READY = "vLLM API server version 0.27.1", "INFO:     Application startup complete."


def test_what_an_earlier_start_failed_by() -> None:
    rows = row("a.a", patterns=["broken thing"]) + row("a.b", patterns=["other thing"])
    assert told(rows, START, "broken thing", START) == {"a.a": "cause"}, "the second start has not come so far yet"
    assert told(rows, START, "broken thing", START, READY) == {"a.a": "earlier"}
    assert told(rows, START, "broken thing", START, "other thing") == {"a.b": "cause", "a.a": "earlier"}
    assert told(rows, START, READY, "broken thing") == {"a.a": "cause"}
    assert told(rows, START, "broken thing", START, "broken thing") == {"a.a": "cause"}


def test_starts_of_two_services_are_told_apart() -> None:
    rows = row("a.a", patterns=["broken thing"]) + row("a.b", patterns=["other thing"])
    lines = [f"one | {START}", "one | broken thing", f"two | {START}", f"two | {READY}"]
    assert told(rows, *lines) == {"a.a": "cause"}
    assert told(rows, *lines, f"one | {START}", f"one | {READY}") == {"a.a": "earlier"}


def test_lines_and_passages_that_mean_nothing() -> None:
    rows = row("a.a", patterns=["broken thing"])
    more = 'benign:\n  - {pattern: "just kidding"}\npassages:\n  - {begins: "begin of play", ends: "end of play"}\n'
    assert told(rows, "broken thing, just kidding", more=more) == {}
    assert told(rows, "begin of play", "broken thing", "end of play", more=more) == {}
    assert told(rows, "begin of play", "end of play", "broken thing", more=more) == {"a.a": "cause"}
    assert told(rows, "one | begin of play", "two | broken thing", more=more) == {"a.a": "cause"}


def traceback(error: str, prefix: str = "") -> list[str]:
    lines = ["Traceback (most recent call last):", '  File "a.py", line 1, in main', "    do()", error]
    return [prefix + line for line in lines]


@pytest.mark.parametrize("prefix", ["", "(EngineCore pid=7) ERROR 11-29 17:00:00 [core.py:1] "])
@pytest.mark.parametrize(
    "joint",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_the_first_exception_of_a_chain_is_the_root(prefix: str, joint: str) -> None:
    lines = [
        *traceback("KeyError: 'the root'", prefix),
        *(prefix + each for each in ("", joint, "")),
        *traceback("RuntimeError: what came of it", prefix),
    ]
    diagnoser = Diagnoser()
    diagnoser.feed_lines(lines)
    found = diagnoser.first_exception()
    assert found is not None
    assert (found.line, found.text) == (4, prefix + "KeyError: 'the root'")
    rows = row("a.a", patterns=["what came of it"])
    (told_of,) = diagnose(lines, parse_signatures("signatures:\n" + rows))
    assert [each.line for each in told_of.evidence] == [4, 11]


def test_tracebacks_of_two_processes_between_each_other() -> None:
    one = traceback("KeyError: 'of one'", "(Worker pid=1) ")
    two = traceback("RuntimeError: of two", "(Worker pid=2) ")
    mixed = [line for pair in zip(one, two, strict=True) for line in pair]
    diagnoser = Diagnoser()
    diagnoser.feed_lines(mixed)
    found = diagnoser.first_exception()
    assert found is not None
    assert found.text == "(Worker pid=1) KeyError: 'of one'"
    (told_of,) = diagnose(mixed, parse_signatures("signatures:\n" + row("a.a", patterns=["of two"])))
    assert [each.text for each in told_of.evidence] == ["(Worker pid=2) RuntimeError: of two"]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (row("a.a", patterns=["thing(?=x)"]), ["x.yaml", "a.a", "RE2"]),
        (row("a.a", patterns=["(?<!x)thing"]), ["x.yaml", "a.a", "RE2"]),
        (row("a.a", patterns=["(thing)\\1"]), ["x.yaml", "a.a", "RE2"]),
        (row("a.a", patterns=["(thing"]), ["x.yaml", "a.a", "RE2"]),
        (row("a.a", patterns=["thing"], excluded=["(x"]), ["x.yaml", "a.a", "RE2"]),
        (row("a.a", patterns=["thing"], colour="red"), ["x.yaml", "a.a", "colour"]),
        (row("a.a", patterns=["thing"], unless=["a.none"]), ["x.yaml", "a.a", "a.none"]),
        (row("a.a", patterns=["thing"], confidence="certain"), ["x.yaml", "a.a", "confidence", "certain"]),
        (row("a.a", patterns=["thing"], severity="bad"), ["x.yaml", "a.a", "severity", "bad"]),
        (row("a.a", patterns=["thing"], engines="new"), ["x.yaml", "a.a", "engines", "new"]),
        (row("a.a", patterns=["thing"], lookup="none"), ["x.yaml", "a.a", "lookup", "none"]),
        (row("a.a", patterns=["thing"], within=3), ["x.yaml", "a.a", "within"]),
        (row("a.a", sequence=["thing"], within=3), ["x.yaml", "a.a", "two patterns"]),
        (row("a.a", sequence=["thing", "other"]), ["x.yaml", "a.a", "within"]),
        (row("a.a"), ["x.yaml", "a.a", "patterns"]),
        (row("a.a", patterns=["thing"]) * 2, ["x.yaml", "a.a", "twice"]),
    ],
)
def test_a_row_that_is_wrong_is_refused_with_its_file_and_name(rows: str, words: list[str]) -> None:
    with pytest.raises(ValueError, match="signature") as refused:
        parse_tables([("x.yaml", "signatures:\n" + rows)])
    assert [word for word in words if word not in str(refused.value)] == []


def test_the_same_name_in_two_files_is_refused_with_both() -> None:
    text = "signatures:\n" + row("a.a", patterns=["thing"])
    with pytest.raises(ValueError, match=r"y\.yaml: signature a\.a stands twice, also in x\.yaml"):
        parse_tables([("x.yaml", text), ("y.yaml", text)])


def test_a_pattern_without_a_word_is_refused_where_logs_are_read() -> None:
    table = parse_signatures("signatures:\n" + row("a.a", patterns=[r"\d+"]))
    with pytest.raises(ValueError, match=r"a\.a.*no word"):
        Diagnoser(table)

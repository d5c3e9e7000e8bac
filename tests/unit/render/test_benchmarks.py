"""Reports on benchmarks: in a terminal, as Markdown, as a page."""

from __future__ import annotations

import base64
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from onecat.experiments.ab import compare
from onecat.experiments.places import Listing
from onecat.experiments.records import Arrivals, Experiment, Objectives
from onecat.experiments.report import Report, Run, make_report
from onecat.experiments.results import Outline
from onecat.render import benchmark_figures as figures
from onecat.render import columns
from onecat.render.benchmarks import experiment_lines, listing_lines, report_lines
from onecat.render.benchmarks_html import report_html
from onecat.render.benchmarks_markdown import report_markdown
from tests.measured import BEGUN, a_block, a_run, an_experiment

GOLDEN = Path(__file__).parents[2] / "fixtures" / "benchmarks"
HOSTILE = "<script>alert(1)</script>\x1b[31m|`*_"


def a_failing_run() -> Experiment:
    return replace(a_run(requests=40, failing=0.05), objectives=Objectives(ttft_ms=250, end_to_end_ms=1000))


def levels(speed: float = 1.0) -> Experiment:
    numbers = [(repetition, level) for repetition in range(2) for level in (1, 4, 16)]
    return an_experiment(
        [
            a_block(place, at=30.0 * place, seed=repetition, concurrency=level, requests=48, speed=speed)
            for place, (repetition, level) in enumerate(numbers)
        ]
    )


def an_ab() -> Experiment:
    blocks = []
    for pair in range(8):
        for arm in "AB" if pair % 2 == 0 else "BA":
            speed, endpoint = (1.0, "chat r3") if arm == "A" else (1.2, "chat r4")
            block = a_block(len(blocks), arm=arm, at=5.0 * len(blocks), seed=pair, requests=20, speed=speed)
            blocks.append(replace(block, endpoint=endpoint))
    verdict = compare(blocks, "per-token").document()
    return an_experiment(blocks, kind="ab", arms={"A": {}, "B": {"release": 4}}, verdict=verdict)


def with_samples(experiment: Experiment) -> Experiment:
    samples = [
        {"time": BEGUN.timestamp() + each, "engine": {"engines": [{"running": 8, "waiting": each % 5}]}}
        for each in range(100)
    ]
    return replace(experiment, samples=tuple(samples))


def other(experiment: Experiment, **arm: object) -> Experiment:
    arms = {name: {**known, **arm} for name, known in experiment.environment.arms.items()}
    return replace(experiment, environment=replace(experiment.environment, arms=arms))


def of_one(experiment: Experiment) -> Report:
    return make_report([Run("run 1", "run-chat.jsonl", experiment)])


def of_two(one: Experiment, two: Experiment) -> Report:
    return make_report([Run("before", "a.jsonl", one), Run("after", "b.jsonl", two)])


REPORTS = {
    "run": of_one(with_samples(a_failing_run())),
    "levels": of_one(levels()),
    "two": of_two(levels(), other(levels(1.08), release=4, server_args=["--max-num-seqs", "128"])),
    "ab": of_one(an_ab()),
    "not-comparable": of_two(a_run(requests=10), other(a_run(requests=10), model="qwen3-14b", gpus=["A100"])),
    "nothing": of_one(an_experiment([], finished=False)),
}
every = pytest.mark.parametrize("name", REPORTS)


def text_of(report: Report, width: int = 80) -> list[str]:
    return [each.text for each in report_lines(report, width, verbose=True)]


@every
@pytest.mark.parametrize("width", [60, 80, 100])
def test_text_fits_the_terminal(name: str, width: int) -> None:
    unbreakable = ("results: ", "a page with plots: ")
    too_wide = [line for line in text_of(REPORTS[name], width) if columns.width(line) > width]
    assert [line for line in too_wide if not line.startswith(unbreakable)] == []


def test_text_of_a_run_tells_what_people_look_for() -> None:
    text = "\n".join(text_of(REPORTS["run"]))
    summary = REPORTS["run"].series[0].summary
    assert text.startswith("Run of chat, 2026-07-28 10:15:02 UTC, ")
    assert "vllm 0.27.1, qwen3-8b, 2x Tesla V100-PCIE-32GB, release 3" in text
    assert f"{summary.answered} of 120 requests were answered" in text
    assert f"{summary.failed} of 120" in text
    p50 = summary.ttft.p50.scaled(1000)
    assert re.search(rf"first token +[\d.]+ +{p50.value:.1f} ", text)
    assert f"{p50.low:.1f}-{p50.high:.1f}" in text
    assert "http-503: 503 Service Unavailable" in text
    assert "onecat bench report run-chat --format html" in text


def test_text_tells_what_differs_before_the_figures() -> None:
    lines = text_of(REPORTS["not-comparable"])
    assert lines[0] == "not comparable: these runs differ in model, GPUs"
    assert lines.index("  model") < next(place for place, line in enumerate(lines) if line.startswith("Throughput"))


def test_later_runs_are_compared_with_the_first_at_the_same_load() -> None:
    table = figures.change_table(REPORTS["two"])
    assert table is not None
    assert [row.label for row in table.rows] == ["after, 1 at once", "after, 4 at once", "after, 16 at once"]
    assert [row.cells[3].text for row in table.rows] == ["-7.4 %"] * 3
    assert "onecat bench ab" in table.notes[0]


def test_an_ab_comparison_tells_its_verdict_and_each_metric() -> None:
    text = "\n".join(text_of(REPORTS["ab"]))
    assert re.search(r"^B is faster by \d+\.\d %, 95 % interval", text, re.MULTILINE)
    table = figures.paired_table(REPORTS["ab"].runs[0].experiment)
    assert table is not None
    (value, word) = table.rows[0].cells
    assert re.fullmatch(r"\+\d+\.\d %", value.text)
    assert re.fullmatch(r"\+\d+\.\d to \+\d+\.\d", value.interval)
    assert word.text == "faster"


def test_experiments_that_run_still_are_shown_as_far_as_they_are() -> None:
    lines = [each.text for each in experiment_lines(an_experiment([], finished=False), "a.jsonl")]
    assert lines[0].endswith("not finished")
    assert "Nothing was measured yet." in lines


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0"), (0.0412, "0.041"), (4.1234, "4.123"), (41.234, "41.23"), (99.999, "100.0"),
     (412.34, "412.3"), (999.96, "1000"), (41234.5, "41234"), (-4.5, "-4.500")],
)  # fmt: skip
def test_figures_have_four_digits_that_count(value: float | None, text: str) -> None:
    assert figures.figure(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.12, "4.1 s"), (62, "62 s"), (725, "12 min 5 s"), (11520, "3 h 12 min"), (119.7, "2 min 0 s")],
)
def test_durations_are_told_as_people_do(seconds: float, text: str) -> None:
    assert figures.duration_text(seconds) == text


def test_the_list_of_results_tells_state_and_verdict(tmp_path: Path) -> None:
    finished = replace(an_ab(), blocks=())
    cut = an_experiment([], finished=False)
    listing = Listing(
        tmp_path,
        (Outline(tmp_path / "ab-1.jsonl", finished, False, 10), Outline(tmp_path / "run-2.jsonl", cut, True, 10)),
        ((tmp_path / "x.jsonl", "no result file"),),
    )
    lines = [each.text for each in listing_lines(listing)]
    assert lines[0] == "finished  ab-1"
    assert lines[1].startswith("          B is faster by")
    assert "runs      run-2" in lines
    assert "x.jsonl: no result file" in lines
    empty = [each.text for each in listing_lines(Listing(tmp_path, (), ()))]
    assert empty == [f"There are no results in {tmp_path}.", "Measure a deployment: onecat bench run NAME"]


# Markdown.


@pytest.mark.parametrize("name", ["run", "two", "ab", "not-comparable"])
def test_markdown_is_as_it_was_read_and_approved(name: str) -> None:
    """After a wanted change run it with ONECAT_WRITE_GOLDEN=1, and read the difference."""
    file = GOLDEN / f"{name}.md"
    found = report_markdown(REPORTS[name])
    if os.environ.get("ONECAT_WRITE_GOLDEN"):
        file.write_text(found, encoding="utf-8")
    assert found == file.read_text(encoding="utf-8")


def test_markdown_tables_hold_whatever_names_hold() -> None:
    report = of_two(other(a_run(requests=5), release=HOSTILE), other(a_run(requests=5), release="2"))
    text = report_markdown(report)
    assert "<script" not in text.replace("\\<script", "")
    assert "\x1b" not in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()]
        assert len(set(rows)) == 1, table


# The page.


class Page(HTMLParser):
    """A page as a tree would have it: what is open, which attributes there are, which text where.

    Fails on an end tag that does not close what is open.
    """

    VOID = ("meta", "br", "path", "img", "link", "input")

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta",):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def named(self, tag: str) -> Iterator[dict[str, str | None]]:
        return (attributes for each, attributes in self.tags if each == tag)

    def text(self, tag: str) -> list[str]:
        return [data for each, data in self.texts if each == tag]


@every
def test_pages_are_whole_and_need_nothing_else(name: str) -> None:
    text = report_html(REPORTS[name])
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>\n<html lang=")
    assert not list(page.named("script"))
    assert not list(page.named("link"))
    assert not list(page.named("img"))
    for tag, attributes in page.tags:
        for attribute, value in attributes.items():
            assert attribute not in ("style", "src", "href", "xlink:href", "action"), (tag, attribute)
            assert not attribute.startswith("on"), (tag, attribute)
            assert attribute == "xmlns" or "://" not in (value or ""), (tag, attribute, value)
    (sheet,) = page.text("style")
    assert "@import" not in sheet and "url(" not in sheet and "://" not in sheet


@every
def test_ids_are_unique_and_what_is_referred_to_is_there(name: str) -> None:
    page = Page(report_html(REPORTS[name]))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for svg in page.named("svg"):
        assert set((svg.get("aria-labelledby") or "").split()) <= set(map(str, ids))


def test_the_policy_allows_the_pages_own_style_and_nothing_else() -> None:
    page = Page(report_html(REPORTS["run"]))
    (policy,) = (each["content"] for each in page.named("meta") if each.get("http-equiv"))
    (sheet,) = page.text("style")
    digest = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_names_of_others_are_text_in_the_page() -> None:
    experiment = other(a_run(requests=5, endpoint=HOSTILE), model=HOSTILE, server_args=[HOSTILE])
    experiment = replace(experiment, verdict={"sentence": HOSTILE})
    report = make_report([Run(HOSTILE, HOSTILE, experiment), Run("b", "b", other(experiment, release=HOSTILE))])
    text = report_html(report)
    page = Page(text)
    assert not list(page.named("script"))
    assert "\x1b" not in text
    assert any("<script>alert(1)</script>" in data for _, data in page.texts)


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        ("run", ["Time to first token", "End-to-end time", "Time between chunks of tokens", "Requests over time",
                 "Requests in the engine"]),
        ("two", ["Throughput against requests at once", "Time to first token against requests at once",
                 "End-to-end time against requests at once", "Time to first token", "End-to-end time",
                 "Time between chunks of tokens", "Requests over time"]),
        ("ab", ["B compared with A", "Time to first token", "End-to-end time", "Time between chunks of tokens",
                "Requests over time"]),
        ("nothing", []),
    ],
)  # fmt: skip
def test_pages_have_the_charts_that_the_measurements_allow(name: str, titles: list[str]) -> None:
    text = report_html(REPORTS[name])
    assert re.findall(r'<text class="title"[^>]*>([^<]*)</text>', text) == titles


def test_charts_are_told_in_words_with_the_figures_of_the_tables() -> None:
    text = report_html(REPORTS["run"])
    p50 = REPORTS["run"].series[0].summary.end_to_end.p50.scaled(1000).value
    (told,) = re.findall(r"<desc[^>]*>(chat: half took at most ([\d.]+) ms, 90 % [^<]*)</desc>", text)[1:2]
    assert float(told[1]) == pytest.approx(p50, rel=0.02)


def test_failed_requests_are_crosses_with_their_kind() -> None:
    text = report_html(REPORTS["run"])
    crosses = re.findall(r'<path d="[^"]*" class="cross"><title>chat: (\d+) ([a-z0-9-]+)</title>', text)
    summary = REPORTS["run"].series[0].summary
    assert sum(int(number) for number, _ in crosses) == summary.failed > 0
    assert {kind for _, kind in crosses} == set(summary.errors)


def test_runs_that_are_not_comparable_say_so_above_all() -> None:
    text = report_html(REPORTS["not-comparable"])
    assert text.index("These runs are not comparable") < text.index("<h2>Figures</h2>")
    assert "qwen3-14b" in text


def test_a_page_of_many_requests_stays_small() -> None:
    blocks = [a_block(each, at=900.0 * each, requests=10_000, output_tokens=2, failing=0.01) for each in range(2)]
    text = report_html(of_one(an_experiment(blocks, kind="soak")))
    assert len(text) < 120_000
    assert "none is left out" in text


def test_the_same_results_make_the_same_page() -> None:
    assert report_html(REPORTS["two"]) == report_html(REPORTS["two"])


def test_a_rate_is_no_level_of_load() -> None:
    blocks = [replace(block, arrivals=Arrivals(rate=4.0)) for block in a_run(requests=10).blocks]
    assert "against requests at once" not in report_html(of_one(an_experiment(blocks)))

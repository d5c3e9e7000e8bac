"""What a log tells. The files under fixtures/logs are logs of a real vLLM 0.27.1, less what only fills them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.observe import diagnose, load_signatures, to_json
from onecat.observe.diagnosis import plain
from onecat.observe.signatures import parse_signatures

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"
EXPECTED = json.loads((LOGS / "expected.json").read_text(encoding="utf-8"))

# One line each as reported in public (the signature's sources name the reports).
REPORTED_LINES = {
    "RuntimeError: CUDA error: no kernel image is available for execution on the device": "cuda.no-kernel-image",
    "Error 803: system has unsupported display driver / cuda driver combination": "cuda.driver-combination",
    "WorkerProc failed to start. Error 802: system not yet initialized": "cuda.fabric-manager",
    "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8, please update": "cuda.driver-too-old",
    "requirement error: unsatisfied condition: cuda >= 9.0": "cuda.driver-too-old",
    "nvml error: driver/library version mismatch: unknown.": "cuda.driver-library-mismatch",
    'could not select device driver "" with capabilities: [[gpu]]': "docker.no-gpu-runtime",
    'could not select device driver "nvidia" with capabilities: [[gpu]]': "docker.no-gpu-runtime",
    "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization "
    "(0.95, 45.01 GiB).": "memory.device-busy",
    "ValueError: Free memory on device cuda:0 (36.75/121.63 GiB) on startup is less than desired GPU memory "
    "utilization (0.85, 103.38 GiB).": "memory.device-busy",
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024": "cuda.sampler-out-of-memory",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "cuda.out-of-memory",
    "The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in "
    "KV cache (23648)": "memory.kv-cache-too-small",
    "Error while creating shared memory segment /dev/shm/nccl-pZafXL (size 7340384)": "memory.shm-too-small",
    "Illegal instruction (core dumped)": "cpu.illegal-instruction",
    "onecat: server killed by signal 4 (SIGILL) after 3.1 s, before it was ready": "cpu.illegal-instruction",
    "OSError: [Errno 28] No space left on device": "disk.full",
    "RuntimeError: Device string must not be empty": "install.device-undetected",
    "RuntimeError: operator torchvision::nms does not exist": "install.torchvision-mismatch",
    "ImportError: /opt/vllm/_C.abi3.so: undefined symbol: _ZN3c10": "install.undefined-symbol",
    "safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer": (
        "model.truncated-safetensors"
    ),
    "ValueError: Quantization method specified in the model config (gptq) does not match the quantization method "
    "specified in the `quantization` argument (gptq_marlin).": "model.quantization-mismatch",
    "ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 90.": (
        "model.quantization-unsupported"
    ),
    "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla "
    "V100-SXM2-32GB GPU has compute capability 7.0.": "model.bfloat16-unsupported",
    "As of transformers v4.44, default chat template is no longer allowed": "model.chat-template-missing",
    "onecat: server killed by signal 9 (SIGKILL) after 5.0 s; crash 1 of 10 in a row; next start in 1.0 s": (
        "process.killed"
    ),
    "onecat: server killed by signal 9 (SIGKILL), the kernel's OOM killer struck meanwhile after 5.0 s": (
        "memory.oom-killer"
    ),
}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_real_log_tells_its_cause_and_a_healthy_one_none(name: str) -> None:
    lines = (LOGS / name).read_text(encoding="utf-8").splitlines()
    assert [diagnosis.signature for diagnosis in diagnose(lines)] == EXPECTED[name]


def test_every_log_file_has_its_expectation() -> None:
    assert sorted(EXPECTED) == sorted(path.name for path in LOGS.glob("*.log"))


@pytest.mark.parametrize(("line", "signature"), REPORTED_LINES.items())
def test_a_reported_line_is_recognised(line: str, signature: str) -> None:
    assert [diagnosis.signature for diagnosis in diagnose([line])] == [signature]


@pytest.mark.parametrize(
    "prefix",
    [
        "2026-11-29T16:45:23.231Z ",
        "2026-11-29T16:45:23.231456789Z ",
        "2026-11-29T16:45:23+08:00 ",
        "(EngineCore pid=12) ERROR 11-29 16:59:51 [core.py:1349] ",
        "\x1b[1;31m",
    ],
)
def test_prefixes_and_colours_do_not_matter(prefix: str) -> None:
    line = "OSError: [Errno 98] Address already in use"
    (diagnosis,) = diagnose([prefix + line])
    assert diagnosis.signature == "network.port-in-use"
    assert diagnosis.evidence[0].text.endswith(line)


def test_a_diagnosis_names_line_numbers_and_fills_in_what_the_log_says() -> None:
    lines = ["INFO all is well", "vllm: error: unrecognized arguments: --swap-space 4"]
    (diagnosis,) = diagnose(lines)
    assert diagnosis.evidence[0].line == 2
    assert diagnosis.cause == "This engine version does not know: --swap-space 4"


def test_the_root_comes_first_and_a_consequence_is_left_out() -> None:
    lines = [
        "ERROR EngineCore failed to start.",
        "torch.OutOfMemoryError: CUDA out of memory.",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ]
    assert [diagnosis.signature for diagnosis in diagnose(lines)] == ["cuda.no-kernel-image", "cuda.out-of-memory"]


def test_a_dead_engine_without_a_known_reason_is_told_with_low_confidence() -> None:
    (diagnosis,) = diagnose(["ERROR EngineCore failed to start."])
    assert (diagnosis.signature, diagnosis.confidence) == ("engine.core-died", "low")


def test_an_orderly_stop_is_no_fault_but_what_follows_in_the_next_run_counts() -> None:
    stop = ["INFO [shutdown] API server: shutdown triggered", "ERROR EngineDeadError: EngineCore encountered an issue."]
    assert diagnose(stop) == ()
    again = [*stop, "INFO non-default args: {}", "OSError: [Errno 98] Address already in use"]
    assert [diagnosis.signature for diagnosis in diagnose(again)] == ["network.port-in-use"]


def test_a_wait_for_a_long_compilation_is_no_fault() -> None:
    assert (
        diagnose(["INFO [shm_broadcast.py:681] No available shared memory broadcast block found in 60 seconds."]) == ()
    )


@pytest.mark.parametrize(
    "line",
    [
        '192.0.2.7 - - [{time}] "GET /x?Segmentation%20fault HTTP/1.1" 200 1 "{words}" "{words}"',
        '192.0.2.7 - {words} [{time}] "GET / HTTP/1.1" 200 1 "-" "-"',
        '192.0.2.7 - - [{time}] "\\x16\\x03 {words}" 400 150 "-" "-"',
        '192.0.2.7 - - [{time}] "PROPFIND / HTTP/1.1" 405 150 "-" "{words}"',
    ],
)
def test_what_a_client_of_nginx_writes_is_no_fault(line: str) -> None:
    text = line.format(time="29/Nov/2026:17:00:00 +0000", words="Segmentation fault: No space left on device")
    assert diagnose([text], every=True) == ()
    answered = '192.0.2.7 - key1 [29/Nov/2026:17:00:00 +0000] "POST /v1/completions HTTP/1.1" 502 157 "-" "curl/8.5.0"'
    assert [each.signature for each in diagnose([answered])] == ["proxy.bad-gateway"]


def test_the_engine_configuration_line_is_no_fault() -> None:
    assert (
        diagnose(["INFO Initializing a V1 LLM engine with config: model='m', trust_remote_code=True, dtype=bfloat16"])
        == ()
    )


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_text_can_be_read(lines: list[str]) -> None:
    for diagnosis in diagnose(lines):
        assert diagnosis.evidence
        assert 1 <= diagnosis.evidence[0].line <= len(lines)


@given(st.text(alphabet=st.characters(exclude_characters="\r\n\x1b")))
def test_plain_takes_a_timestamp_off_once(text: str) -> None:
    stamped = f"2026-11-29T16:45:23.231Z {text}"
    assert plain(stamped) == text


def test_every_signature_has_an_https_source_and_a_fix() -> None:
    for signature in load_signatures().signatures:
        assert signature.fix, signature.id
        assert all(source.startswith("https://") for source in signature.source), signature.id
        assert signature.cause.endswith((".", "}")), signature.id


def test_the_json_document_has_the_agreed_fields() -> None:
    document = json.loads(json.dumps(to_json(diagnose(["Illegal instruction (core dumped)"]))))
    assert document["schema"] == "onecat.diagnose/1"
    assert set(document["diagnoses"][0]) == {
        *("signature", "confidence", "cause", "fix", "evidence", "source", "severity", "rule_out", "standing"),
    }
    assert document["diagnoses"][0]["evidence"] == [{"line": 1, "text": "Illegal instruction (core dumped)"}]


ROW = """
signatures:
  - {id: a.b, patterns: ["x"], cause: c., fix: [f], source: [s], confidence: high}
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (ROW.replace("high", "sure"), "confidence"),
        (ROW.replace('["x"]', '["("]'), "pattern"),
        (ROW.replace("fix: [f], ", ""), "missing fields"),
        (ROW.replace("cause:", "couse:"), "unknown or missing fields"),
        (ROW.replace("cause: c.", "unless: [z], cause: c."), "unknown signatures"),
        (ROW + ROW.splitlines()[2] + "\n", "twice"),
    ],
)
def test_a_wrong_row_is_refused_with_its_name(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        parse_signatures(text)
    assert "a.b" in str(raised.value)

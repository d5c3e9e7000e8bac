"""The exports for Prometheus and Grafana, in a real Prometheus that scrapes a real vLLM."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.testbed.cache import Cache
from tests.testbed.debian_packages import unpacked
from tests.testbed.ports import free_port
from tests.testbed.served import Served
from tests.unit.deploy.export.examples import exported, request

pytestmark = pytest.mark.testbed


@pytest.fixture(scope="module")
def programs(cache: Cache) -> Path:
    """Debian 12's Prometheus and promtool; the next one packs them apart."""
    return unpacked("monitoring", "bookworm", ("prometheus",), cache) / "usr/bin"


def promtool(programs: Path, directory: Path, *words: str) -> str:
    done = subprocess.run([str(programs / "promtool"), *words], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(directory: Path, profile: str, form: str = "prometheus", **changes: Any) -> Path:
    for file in exported(form, request(profile, **changes)).values():
        (directory / file.path).write_text(file.text)
    return directory


@pytest.mark.parametrize("profile", ["cpu", "v100x2-pcie"])
def test_prometheus_takes_configuration_and_rules(programs: Path, profile: str, tmp_path: Path) -> None:
    tls = {"tls": {"certificate": "/c.pem", "key": "/k.pem"}, "server_name": "llm.example"}
    written(tmp_path, profile, hosts=["gpu1"], proxy=tls)
    promtool(programs, tmp_path, "check", "config", "prometheus.yml")
    assert "SUCCESS" in promtool(programs, tmp_path, "check", "rules", "onecat-chat.rules.yml")


SERVER = 'job="onecat-chat", host="gpu1", instance="gpu1:8000", engine="0", model_name="m"'
GPU = 'job="onecat-chat-gpus", host="gpu1", gpu="1"'
# Alert, series with their values each minute, and the minute from which on it is told; None: never.
CASES: list[tuple[str, list[tuple[str, str]], int | None]] = [
    ("OnecatServerDown", [('up{job="onecat-chat", host="gpu1"}', "1x4 0x20")], 7),
    ("OnecatServerDown", [('up{job="onecat-chat", host="gpu1"}', "1 1 0 1x20")], None),
    (
        "OnecatNothingGenerated",
        [
            (f"vllm:num_requests_running{{{SERVER}}}", "4x30"),
            (f"vllm:generation_tokens_total{{{SERVER}}}", "0+100x5 500x25"),
            (f"vllm:prompt_tokens_total{{{SERVER}}}", "0+100x5 500x25"),
        ],
        15,
    ),
    (
        "OnecatNothingGenerated",
        [
            (f"vllm:num_requests_running{{{SERVER}}}", "1x30"),
            (f"vllm:generation_tokens_total{{{SERVER}}}", "500x30"),
            (f"vllm:prompt_tokens_total{{{SERVER}}}", "0+9000x30"),
        ],
        None,
    ),
    ("OnecatRequestsWait", [(f"vllm:num_requests_waiting{{{SERVER}}}", "0x3 7x30")], 19),
    ("OnecatRequestsWait", [(f"vllm:num_requests_waiting{{{SERVER}}}", "7 0 7 0 7 0 7 0 7 0 7 0 7 0 7 0 7 0")], None),
    ("OnecatKvCacheFull", [(f"vllm:kv_cache_usage_perc{{{SERVER}}}", "0.5x2 0.99x30")], 13),
    ("OnecatKvCacheFull", [(f"vllm:gpu_cache_usage_perc{{{SERVER}}}", "0.5x2 0.99x30")], 13),
    ("OnecatKvCacheFull", [(f"vllm:kv_cache_usage_perc{{{SERVER}}}", "0.94x40")], None),
    ("OnecatPreemptions", [(f"vllm:num_preemptions_total{{{SERVER}}}", "0x3 0+2x30")], 15),
    ("OnecatPreemptions", [(f"vllm:num_preemptions_total{{{SERVER}}}", "50x40")], None),
    (
        "OnecatSlowFirstToken",
        [
            (f'vllm:time_to_first_token_seconds_bucket{{{SERVER}, le="10.0"}}', "0+10x30"),
            (f'vllm:time_to_first_token_seconds_bucket{{{SERVER}, le="20.0"}}', "0+50x30"),
            (f'vllm:time_to_first_token_seconds_bucket{{{SERVER}, le="+Inf"}}', "0+50x30"),
        ],
        11,
    ),
    (
        "OnecatSlowFirstToken",
        [
            (f'vllm:time_to_first_token_seconds_bucket{{{SERVER}, le="10.0"}}', "0+50x30"),
            (f'vllm:time_to_first_token_seconds_bucket{{{SERVER}, le="+Inf"}}', "0+50x30"),
        ],
        None,
    ),
    ("OnecatGpuTelemetryDown", [('up{job="onecat-chat-gpus", host="gpu1"}', "0x30")], 10),
    ("OnecatGpuHot", [(f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}", "70x3 86x30")], 9),
    ("OnecatGpuHot", [(f"DCGM_FI_DEV_THERMAL_VIOLATION{{{GPU}}}", "5x3 5+1000x30")], 10),
    ("OnecatGpuHot", [(f"DCGM_FI_DEV_GPU_TEMP{{{GPU}}}", "75x40")], None),
    ("OnecatGpuXid", [(f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}", "0x5 79x5")], 6),
    ("OnecatGpuXid", [(f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}", "79x40")], None),
    ("OnecatGpuXid", [(f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}", "0x5 43x40")], None),
    ("OnecatGpuXidOther", [(f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}", "0x5 43x5")], 6),
    ("OnecatGpuXidOther", [(f"DCGM_FI_DEV_XID_ERRORS{{{GPU}}}", "0x5 79x40")], None),
    ("OnecatGpuMemoryErrors", [(f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{GPU}}}", "0x5 1x5")], 6),
    ("OnecatGpuMemoryErrors", [(f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}", "0x5 1x5")], 6),
    ("OnecatPcieReplays", [(f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU}}}", "0x3 0+9x40")], 21),
    ("OnecatPcieReplays", [(f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{GPU}}}", "7x40")], None),
]


def test_each_alert_comes_when_it_should_and_not_otherwise(programs: Path, tmp_path: Path) -> None:
    written(tmp_path, "v100x2-pcie", hosts=["gpu1"])
    told = yaml.safe_load((tmp_path / "onecat-chat.rules.yml").read_text())["groups"][0]["rules"]
    assert {each[0] for each in CASES} == {each["alert"] for each in told}
    before = {name: [case for case in CASES if case[0] == name] for name in {each[0] for each in CASES}}
    assert all(any(case[2] is not None for case in cases) for cases in before.values())
    tests = []
    for name, series, minute in CASES:
        looks = [(40 if minute is None else minute - 1, False)] + ([(minute, True)] if minute is not None else [])
        for at, fires in looks:
            # Which labels and annotations it has is not asked here: `count` of the alerts that stand.
            question = f'count(ALERTS{{alertname="{name}", alertstate="firing"}})'
            tests.append(
                {
                    "interval": "1m",
                    "input_series": [{"series": one, "values": values} for one, values in series],
                    "promql_expr_test": [
                        {
                            "expr": question,
                            "eval_time": f"{at}m",
                            "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                        }
                    ],
                }
            )
    document = {"rule_files": ["onecat-chat.rules.yml"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(json.dumps(document))
    promtool(programs, tmp_path, "test", "rules", "tests.yml")


@pytest.fixture
def prometheus(programs: Path, served: Served, tmp_path: Path) -> Iterator[str]:
    """A real Prometheus with our configuration, asking the real server each second; its URL."""
    written(tmp_path, "cpu", proxy={"listen": served.endpoint.removeprefix("http://")})
    configuration = (tmp_path / "prometheus.yml").read_text()
    (tmp_path / "prometheus.yml").write_text(configuration.replace('"15s"', '"1s"'))
    port = free_port()
    argv = [str(programs / "prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with subprocess.Popen(
        [*argv, f"--web.listen-address=127.0.0.1:{port}"], cwd=tmp_path, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


@pytest.mark.engine
def test_a_real_prometheus_answers_what_the_dashboard_asks(prometheus: str, served: Served) -> None:
    for _ in range(3):
        httpx.post(
            f"{served.endpoint}/v1/completions",
            json={"model": served.model, "prompt": "the cat", "max_tokens": 8, "ignore_eos": True},
            timeout=120,
            trust_env=False,
        ).raise_for_status()
    with httpx.Client(base_url=prometheus, trust_env=False, timeout=30) as client:
        deadline = time.monotonic() + 60
        answer: dict[str, Any] = {}
        while time.monotonic() < deadline:
            time.sleep(0.3)
            try:
                answer = _ask(client, 'count_over_time(vllm:num_requests_running{job="onecat-chat"}[1m]) >= 3')
            except httpx.TransportError:
                continue
            if answer["result"]:
                break
        assert answer["result"], answer
        panels = json.loads(exported("grafana", request("cpu"))["onecat-chat.dashboard.json"].text)["panels"]
        # Counters that have not changed have no quantiles; all others have a value.
        for panel in panels:
            for target in panel.get("targets", ()):
                expression = target["expr"].replace("$__rate_interval", "1m")
                result = _ask(client, expression)["result"]
                assert result or re.search(r"histogram_quantile|prefix_cache", expression), (panel["title"], expression)
        rules = client.get("/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert rules and {each["health"] for each in rules} <= {"ok", "unknown"}
        (target,) = client.get("/api/v1/targets").json()["data"]["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")


def _ask(client: httpx.Client, expression: str) -> dict[str, Any]:
    answer = client.get("/api/v1/query", params={"query": expression}).json()
    assert answer["status"] == "success", (expression, answer)
    found: dict[str, Any] = answer["data"]
    return found

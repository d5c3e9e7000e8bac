"""The Compose file, read as YAML; the real Compose reads it in tests/testbed/test_export.py."""

from __future__ import annotations

import re
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from onecat.deploy.export import Options
from onecat.deploy.export.yaml_text import dump
from tests.unit.deploy.export.examples import KEY, NASTY, exported, request

TEXTS = st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40)


def services(what: Any) -> Any:
    return yaml.safe_load(exported("compose", what)["compose.yaml"].text)["services"]


def interpolated(text: str) -> str:
    """What Compose makes of a text: `$$` is one `$`, and any other `$` begins a variable."""
    assert not re.search(r"(?<!\$)(\$\$)*\$(?!\$)", text), text
    return text.replace("$$", "$")


@given(st.dictionaries(TEXTS, TEXTS | st.lists(TEXTS)))
def test_yaml_reads_back_the_same_texts(document: dict[str, Any]) -> None:
    assert yaml.safe_load(dump(document)) == document


@given(st.sampled_from(["yes", "No", "on", "NULL", "~", "1e3", "0o17", "0x1f", "1_000", "1:30", "=", "<<", ".inf"]))
def test_no_text_looks_like_something_else(word: str) -> None:
    assert dump([word]) == f'- "{word}"\n'


def test_nasty_variables_arrive_as_they_are() -> None:
    server = services(request("cpu", env=NASTY))["server"]
    assert {name: interpolated(value) for name, value in server["environment"].items()}.items() >= NASTY.items()


def test_the_server_keeps_no_right_it_does_not_need() -> None:
    server = services(request("cpu", secrets=KEY))["server"]
    assert (server["read_only"], server["cap_drop"], server["user"]) == (True, ["ALL"], "10001:10001")
    assert server["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in server and "ports" not in server
    assert all(each.get("read_only") for each in server["volumes"] if each["type"] == "bind")
    assert server["secrets"] == [{"source": "api_key", "target": "api_key"}]
    assert "label=disable" in services(request("cpu", Options(selinux=True)))["server"]["security_opt"]


def test_a_start_of_half_an_hour_is_no_failure() -> None:
    found = services(request("cpu"))
    check = found["server"]["healthcheck"]
    assert check["timeout"] == "8760h" and "600" in check["test"]
    assert found["nginx"]["depends_on"]["server"]["condition"] == "service_started"
    assert (found["nginx"]["stop_signal"], found["nginx"]["stop_grace_period"]) == ("SIGQUIT", "300s")


def test_gpus_are_counted_or_named() -> None:
    def devices(what: Any) -> Any:
        (device,) = services(what)["server"]["deploy"]["resources"]["reservations"]["devices"]
        return device

    assert devices(request("v100x2-pcie")) == {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]}
    named = devices(request("v100x2-pcie", gpus=[1, "GPU-abc"]))
    assert named == {"driver": "nvidia", "device_ids": ["1", "GPU-abc"], "capabilities": ["gpu"]}
    assert "deploy" not in services(request("cpu"))["server"]
    ascend = services(request("ascend910b", Options(groups=(1000,))))["server"]
    assert "/dev/davinci0:/dev/davinci0" in ascend["devices"] and ascend["group_add"] == ["1000"]


def test_limits_of_onecat_yaml_are_kept() -> None:
    server = services(request("cpu", container={"memory_gib": 2, "cpus": 1.5, "host_ipc": True}))["server"]
    assert (server["mem_limit"], server["cpus"], server["ipc"]) == (2**31, 1.5, "host")
    assert "shm_size" not in server


def test_without_nginx_the_server_is_published_itself() -> None:
    found = services(request("cpu", proxy={"kind": "none"}))
    assert list(found) == ["server"]
    assert found["server"]["ports"][0] | {"mode": ""} == {
        "mode": "",
        "host_ip": "127.0.0.1",
        "target": 8000,
        "published": "8000",
        "protocol": "tcp",
    }


def test_nginx_finds_the_server_by_its_name_and_keys_lie_beside_it() -> None:
    files = exported("compose", request("cpu", proxy={"keys_file": "/etc/keys", "listen": "0.0.0.0:80"}))
    assert "server server:8000" in files["nginx/site.conf"].text
    assert "listen 0.0.0.0:8080" in files["nginx/site.conf"].text
    assert "NAME" in files["nginx/keys.conf.example"].text
    assert "/secrets/" in files[".gitignore"].text

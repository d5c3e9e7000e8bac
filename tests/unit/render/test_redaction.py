"""Redaction: what must never be in a report, planted everywhere; what must stay in it; relations that stay."""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onecat.facts import (
    Docker,
    DockerContainer,
    DockerImage,
    EngineEnvironment,
    Facts,
    KernelEvent,
    Note,
    OperatingSystem,
    ServerLog,
    SystemdUnit,
    from_json,
    to_json,
)
from onecat.render.redaction import Redactor, redact_facts, strings_of
from tests.unit.doctor.examples import HEALTHY

HOST, USER = "zeus-node-17", "amelie"
# Kept in pieces, so that no scanner for secrets takes this file for a leak.
SECRETS = {
    "OpenAI key": "sk-" + "proj-Zq8sWv2LmT0aXc9RbN4eKd",
    "Hugging Face token": "hf_" + "QzVbNmKjHgFdSaPoIuYtReWq",
    "GitHub token": "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "AWS key id": "AKIA" + "QZ7XW3EXAMPLE9TT",
    "AWS secret": "wJalrXUtnFEMIaK7MDENGbPxRfiCYzEX" + "AMPLEKEY",
    "JWT": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.SflKxwRJSMeKKF2QT4",
    "bearer": "Bearer " + "opaqueValueWithoutDigits",
    "password": "password=" + "hunter2hunter",
    "api key option": "--api-key " + "tiger9lily",
    "json secret": '"api_key": "' + 'correct-horse"',
    "URL with login": "http://svc:" + "p4ssw0rd@proxy.acme-corp.com:3128/",
    "private key": "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmU\n-----END",
    "address": "10.23.45.67",
    "address with port": "192.168.7.13:8000",
    "IPv6": "2001:db8:85a3::8a2e:370:7334",
    "MAC": "0c:42:a1:5e:9b:d3",
    "GPU UUID": "GPU-8f3a2c1b-77de-4c0a-9b1e-0f2d3c4b5a69",
    "MIG UUID": "MIG-1c2d3e4f-5a6b-4c7d-8e9f-0a1b2c3d4e5f",
    "machine id": "4c4c4544-0042-3510-8052-b4c04f4d3132",
    "serial": "Serial Number: 0323118067890",
    "bare serial": "1320921078812",
    "e-mail": "amelie.dupont@acme-corp.com",
    "domain": "gpu-rack-3.dc2.acme-corp.internal",
    "home": "/home/berthold/projects/moonshot/train.py",
    "Mac home": "/Users/ottokar/Desktop/notes",
    "other path": "/data/moonshot-weights/final",
    "container id": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "host": HOST,
    "user": USER,
}
# What of each secret must not be found again, in lower case; the rest of the text around it may stay.
GIVE_AWAY = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "OpenAI key": "zq8swv2",
        "Hugging Face token": "qzvbnm",
        "GitHub token": "a1b2c3d4",
        "AWS key id": "qz7xw3",
        "AWS secret": "wjalrx",
        "JWT": "hbgcioi|eyjzdw|sflkxw",
        "bearer": "opaquevalue",
        "password": "hunter2",
        "api key option": "tiger9lily",
        "json secret": "correct-horse",
        "URL with login": "p4ssw0rd|svc:|acme|proxy\\.",
        "private key": "b3blbnn",
        "address": r"10\.23\.45",
        "address with port": r"192\.168\.7",
        "IPv6": "2001:db8|370:7334",
        "MAC": "0c:42:a1",
        "GPU UUID": "8f3a2c1b",
        "MIG UUID": "1c2d3e4f",
        "machine id": "4c4c4544",
        "serial": "0323118",
        "bare serial": "13209210",
        "e-mail": "amelie|dupont|acme",
        "domain": "rack-3|dc2|acme",
        "home": "berthold|moonshot",
        "Mac home": "ottokar|desktop|notes",
        "other path": "moonshot|final",
        "container id": "9f86d081",
        "host": "zeus",
        "user": "amelie",
    }.items()
}


def leaks(text: str) -> list[str]:
    return [name for name, pattern in GIVE_AWAY.items() if pattern.search(text)]


def redactor(*texts: str) -> Redactor:
    return Redactor([HOST], [USER], texts)


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize(
    "around", ["{}", "seen {} there", "a=({}),", "[{}]", '"{}"', "x:{}\nnext line", "warn: {}; then"]
)
def test_nothing_secret_is_left_whatever_stands_around_it(name: str, around: str) -> None:
    text = around.format(SECRETS[name])
    assert leaks(redactor(text).text(text)) == []


@given(parts=st.lists(st.one_of(st.sampled_from(sorted(SECRETS.values())), st.text(max_size=10)), max_size=12))
def test_secrets_in_any_text_are_gone(parts: list[str]) -> None:
    text = " ".join(parts)
    planted = leaks(" ".join(part for part in parts if part not in SECRETS.values()))
    assert set(leaks(redactor(text).text(text))) <= set(planted)


RICH = replace(
    HEALTHY,
    host=HOST,
    user=USER,
    docker=Docker(
        state="reachable",
        containers=(DockerContainer("amelies-server", "registry.acme-corp.com:5000/team/vllm:1"),),
        images=(DockerImage("sha256:9f86d081884c7d65", ("team/secret:1",), labels=(("a", "b"),)),),
    ),
    environment=(("HF_TOKEN", "plain"), ("NCCL_DEBUG", "INFO")),
    kernel_events=(KernelEvent("xid", "NVRM: Xid (PCI:0000:3b:00): 79", "0000:3b:00.0", 79),),
    systemd_units=(SystemdUnit("vllm.service", "/etc/systemd/system/vllm.service", (("User", "amelie"),)),),
    engines=(EngineEnvironment("host", packages=(("nvidia-cublas-cu12", "12.8.4.1"),)),),
    server_logs=(ServerLog("vllm.log", ("INFO started",)),),
    notes=(Note("nvml", "error", "a note"),),
)


def planted_everywhere(value: Any, secret: str) -> Any:
    """A record with a secret behind every text in it that may be any text."""
    if isinstance(value, str):
        return f"{value} {secret}"
    if isinstance(value, tuple):
        return tuple(planted_everywhere(each, secret) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kinds = typing.get_type_hints(type(value))
        fixed = {
            name
            for name, kind in kinds.items()
            if Literal in (typing.get_origin(kind), *map(typing.get_origin, typing.get_args(kind)))
        }
        changes = {
            field.name: planted_everywhere(getattr(value, field.name), secret)
            for field in dataclasses.fields(value)
            if field.name not in {"schema", "host", "user", "collected_at"} | fixed
        }
        return replace(value, **changes)
    return value


@pytest.mark.parametrize("name", SECRETS)
def test_no_field_of_the_facts_can_carry_a_secret(name: str) -> None:
    facts: Facts = planted_everywhere(RICH, SECRETS[name])
    shown = redact_facts(facts, Redactor([facts.host], [USER], strings_of(facts)))
    assert {leak for text in strings_of(shown) for leak in leaks(text)} == set()
    assert from_json(to_json(shown)) == shown


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
        "00000000:AF:00.0 Off, link now: x4, card: x16, at 0000:af:00.0",
        "Linux 5.15.153.1-microsoft-standard-WSL2, e.g. vllm 0.1.dev",
        "listening on 127.0.0.1:8000 and 0.0.0.0:8080, and on [::1]:8000",
        "http://127.0.0.1:8000/v1/chat/completions",
        "driver 580.95.05, CUDA 13.0, torch 2.13.0+cu126, kernel 5.15.0-91-generic, Ubuntu 22.04.5 LTS",
        'File "/usr/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 12, in run',
        "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "INFO 11-29 12:00:01 [loggers.py:257] Avg prompt throughput: 10.0 tokens/s, max_num_batched_tokens=2048",
        "model.layers.0.self_attn.qkv_proj.weight_scale",
        "/var/lib/docker, /proc/driver/nvidia/version, /sys/bus/pci/devices/0000:3b:00.0",
        "libnvidia-ml.so.1: cannot open shared object file",
        "see https://docs.nvidia.com/deploy/xid-errors/index.html and https://github.com/vllm-project/vllm/issues/1",
        "Intel(R) Xeon(R) Gold 6130 CPU @ 2.10GHz, 2x Tesla V100-PCIE-32GB",
        "NVIDIA-Linux-x86_64-580.95.05.run, vllm/vllm-openai:v0.27.1",
        "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268",
    ],
)
def test_what_helps_to_find_a_fault_stays_as_it_is(text: str) -> None:
    assert redactor(text).text(text) == text


def test_the_same_name_gets_the_same_pseudonym_everywhere() -> None:
    log = f"Nov 29 12:00:01 {HOST} sshd[12]: {USER} from 10.1.1.1\n10.1.1.1 and 10.1.1.2, {HOST.upper()}: ~{USER}/x"
    assert redactor(log).text(log) == ("Nov 29 12:00:01 host1 sshd[12]: user1 from ip1\nip1 and ip2, host1: ~user1/x")


def test_a_host_that_only_the_system_log_names_is_found_in_all_texts() -> None:
    log = "Nov 29 12:00:01 hermes kernel: NVRM: loading"
    both = Redactor(texts=(log, "hermes is down"))
    assert both.text("hermes is down") == "host1 is down"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Accepted publickey for brunhild from 10.0.0.9 port 51000",
            "Accepted publickey for user1 from ip1 port 51000",
        ),
        ("uid=1000(brunhild) gid=1000, brunhild's job", "uid=1000(user1) gid=1000, user1's job"),
        (
            "Linux hermes 5.15.0-91-generic #101 SMP; hermes is up",
            "Linux host1 5.15.0-91-generic #101 SMP; host1 is up",
        ),
        ("user=brunhild, brunhild's job; user=root", "user=user1, user1's job; user=root"),
        ("no_proxy=localhost,.midgard.com,*.asgard.net", "no_proxy=localhost,.host1,*.host2"),
        ("cloned git@github.com:midgard/secret-model.git", "cloned email1"),
        ("ip-10-23-45-67 joined, enx0c42a15e9bd3 is up", "host1 joined, mac1 is up"),
    ],
)
def test_names_are_found_where_programs_print_them(text: str, shown: str) -> None:
    assert Redactor(texts=[text]).text(text) == shown


def test_hosts_that_differ_from_a_known_one_in_numbers_are_hosts() -> None:
    text = "zeus-node-18 and ZEUS-NODE-18, not zeus; node1, GPU0, rank 18"
    assert Redactor([HOST]).text(text) == "host2 and host2, not zeus; node1, GPU0, rank 18"
    assert Redactor(["gpu1", "node2", "server-3"]).text("gpu7 node0 server-9") == "gpu7 node0 server-9"


def test_of_the_kernel_command_line_stays_what_tells_how_the_machine_is_set_up() -> None:
    line = "BOOT_IMAGE=/vmlinuz root=LABEL=midgard ip=10.0.0.1::10.0.0.2:::eth0 owner=amelie intel_iommu=on"
    kept = "pcie_aspm=off iommu.passthrough=1 modprobe.blacklist=nouveau console=ttyS0 nvproxy.enable=1 ro quiet"
    system = OperatingSystem(kernel_command_line=f"{line} {kept}")
    shown = redact_facts(replace(HEALTHY, operating_system=system), redactor()).operating_system
    assert shown is not None
    assert shown.kernel_command_line == (
        f"BOOT_IMAGE=[redacted] root=[redacted] ip=[redacted] owner=[redacted] intel_iommu=on {kept}"
    )


def test_a_host_as_it_is_typed_is_the_host() -> None:
    typed = Redactor(["brunhild@zeus17.dc1.acme:2222"])
    assert typed.host("brunhild@zeus17.dc1.acme:2222") == "host1"
    assert typed.text("zeus17 and zeus17.dc1.acme know brunhild") == "host1 and host1 know user1"


def test_paths_keep_what_is_the_same_everywhere_and_their_relations() -> None:
    text = "/home/amelie/.venv/lib/python3.12/site-packages/vllm/a.py /data/moonshot/x /data/moonshot/config.json"
    assert redactor(text).text(text) == (
        "/home/user1/.venv/lib/python3.12/site-packages/vllm/a.py /data/dir1/dir2 /data/dir1/config.json"
    )


def test_redacting_twice_changes_nothing_more() -> None:
    text = "\n".join(SECRETS.values())
    once = redactor(text).text(text)
    assert Redactor(texts=[once]).text(once) == once


def test_redacted_facts_keep_what_checks_look_at() -> None:
    shown = redact_facts(RICH, Redactor([HOST], [USER], strings_of(RICH)))
    assert (shown.host, shown.user) == ("host1", "user1")
    assert shown.nvidia is not None and RICH.nvidia is not None
    assert [gpu.uuid for gpu in shown.nvidia.gpus] == ["GPU-1", "GPU-2"]
    assert shown.nvidia.pci_devices == RICH.nvidia.pci_devices
    assert shown.kernel_events == RICH.kernel_events
    assert shown.engines[0].packages == (("nvidia-cublas-cu12", "12.8.4.1"),)
    assert shown.environment == (("HF_TOKEN", "[redacted]"), ("NCCL_DEBUG", "INFO"))
    assert shown.docker is not None and shown.docker.containers is not None
    assert shown.docker.containers[0].image == "host2:5000/dir1/vllm:1"
    assert [each.path for each in shown.filesystems] == [
        "/home/user2/.local/share/onecat",
        "/var/lib/docker",
        "/tmp",
        "/dev/shm",
    ]


@pytest.mark.parametrize("folder", ["dmesg", "collect_env", "misc"])
def test_real_captures_can_be_redacted(folder: str) -> None:
    """Real text has every shape; what this looks for are the addresses and identities in it."""
    shared = Path("/work/shared/fixtures") / folder
    if not shared.is_dir():
        pytest.skip("the shared captures are not on this machine")
    for file in shared.iterdir():
        text = file.read_text(errors="replace")[:200_000]
        shown = Redactor(texts=[text]).text(text)
        assert not re.search(r"GPU-[0-9a-f]{8}-", shown)
        assert not re.search(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", shown)
        assert not re.search(r"/home/(?!user\d)", shown)

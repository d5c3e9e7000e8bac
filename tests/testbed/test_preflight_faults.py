"""`onecat preflight` on deployments of the small server that are well, and that have faults which were really made."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from onecat.checkpoints import write_tiny_checkpoint
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment

ONECAT = str(Path(sys.executable).with_name("onecat"))
OF_THE_MACHINE = {"preflight.memory", "preflight.clock", "preflight.disk", "preflight.spread"}
"""What a test machine is like, or does beside, is not the deployment's fault."""


def preflight(small: SmallDeployment, *words: str, code: int | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ONECAT_HOME": str(small.home.data), "COLUMNS": "80"}
    done = subprocess.run(
        [ONECAT, "preflight", *words],
        env=environment,
        cwd=small.home.data,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


def findings(small: SmallDeployment, *words: str) -> dict[str, dict[str, Any]]:
    """The gravest finding of each check, by its id."""
    document = json.loads(preflight(small, "--json", *words).stdout)
    assert document["schema"] == "onecat.preflight/1"
    order = ("fail", "warn", "info", "pass", "skip")
    found: dict[str, dict[str, Any]] = {}
    for each in document["hosts"][0]["findings"]:
        known = found.setdefault(each["check"], each)
        if order.index(each["status"]) < order.index(known["status"]):
            found[each["check"]] = each
    return found


def test_a_healthy_deployment_has_no_fault_and_a_page_of_80_columns(small: SmallDeployment) -> None:
    small.up()
    found = findings(small, "--quick")
    assert {each for each, finding in found.items() if finding["status"] in ("fail", "warn")} <= OF_THE_MACHINE
    passed = {each for each, finding in found.items() if finding["status"] == "pass"}
    assert passed >= {f"preflight.{name}" for name in ("health", "answer", "determinism", "log", "nginx-health")}
    assert found["preflight.nginx-streaming"]["status"] == "pass", found["preflight.nginx-streaming"]
    skipped = {each: finding["title"] for each, finding in found.items() if finding["status"] == "skip"}
    assert skipped["preflight.gpu"] == "Not checked: the profile cpu uses no GPU"
    assert "left out by --quick" in skipped["preflight.concurrency"]

    few = ("--quick", "--only", "preflight.health,preflight.a*,preflight.c*")
    page = preflight(small, *few, code=0).stdout
    assert max(map(len, page.splitlines())) <= 80
    assert "\x1b" not in page
    assert "no failure found, and not all was looked at" in " ".join(page.split()), "the load was left out"
    junit = ElementTree.fromstring(preflight(small, *few, "--format", "junit", code=0).stdout)
    assert junit.get("name") == "onecat preflight"
    assert junit.get("failures") == "0"
    table = preflight(small, *few, "--format", "markdown", code=0).stdout
    assert "| pass | `preflight.health` |" in table


def test_what_is_wrong_is_found_each_by_its_check(small: SmallDeployment, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "(EngineCore pid=7) ERROR 11-30 21:00:00 [core.py:900] EngineCore encountered something unheard of\n"
        "INFO 11-30 21:00:01 [api_server.py:1] all the same it goes on\n"
    )
    model = tmp_path / "tiny"
    write_tiny_checkpoint(model)
    (model / "SHA256SUMS").write_text(
        f"{hashlib.sha256((model / 'config.json').read_bytes()).hexdigest()}  config.json\n"
        f"{hashlib.sha256(b'something else').hexdigest()}  model.safetensors\n"
    )
    small.model = model
    small.up(
        *("--answer", "changing", "--disable-log-stats", "--say-file", str(log)),
        proxy={"listen": f"0.0.0.0:{small.proxy_port}"},
    )
    found = findings(small)
    page = preflight(small, "--only", "preflight.api-key", code=1).stdout
    assert "demo: not fit for traffic" in page

    def of(name: str) -> tuple[str, str]:
        return found[f"preflight.{name}"]["status"], found[f"preflight.{name}"]["title"]

    status, title = of("api-key")
    assert status == "fail"
    assert f"nginx at 0.0.0.0:{small.proxy_port} without a key" in title
    assert "the server at" not in title, "it listens on the loopback"
    assert of("determinism") == ("warn", "10 identical requests have 8 different texts, from character 1 on")
    assert of("statistics") == ("warn", "They are switched off")
    assert of("log") == ("warn", "1 error in the log that onecat knows no cause of")
    assert "unheard of" in found["preflight.log"]["evidence"][0]
    status, title = of("checksums")
    assert status == "fail"
    assert title.startswith("model.safetensors has the SHA-256")
    assert "found" not in of("health")[1]
    assert all(each["why"] and each["source"] for each in found.values())
    assert all(each["fix"] and each["evidence"] for each in found.values() if each["status"] in ("fail", "warn"))
    # Without hashing nothing of that can be known, and that is said.
    quick = findings(small, "--quick", "--only", "preflight.checksums")["preflight.checksums"]
    assert (quick["status"], "SHA256SUMS was left out" in quick["title"]) == ("pass", True)


def test_an_answer_that_was_cut_off_an_empty_one_and_none_are_told_apart(small: SmallDeployment) -> None:
    small.up("--answer", "endless")
    cut = findings(small, "--only", "preflight.answer")["preflight.answer"]
    assert (cut["status"], cut["title"].rpartition(": ")[2]) == ("warn", "finish_reason length")
    small.up("--errors-after", "1")
    none = findings(small, "--only", "preflight.answer,preflight.determinism,preflight.way-back")
    assert {none[f"preflight.{name}"]["status"] for name in ("answer", "determinism")} == {"fail"}
    assert none["preflight.answer"]["title"].startswith("No answer: the model computes NaN"), "as the server's 500 says"
    assert none["preflight.way-back"]["title"] == "Back to release 1 by: onecat rollback"


def test_an_nginx_that_collects_answers_and_one_that_is_slow_are_found(
    small: SmallDeployment, nginx: str, tmp_path: Path
) -> None:
    small.up()
    directory = Path(small.store.proxy_directory)
    site = next(path for path in directory.rglob("*.conf") if "proxy_buffering off" in path.read_text())
    written = site.read_text()

    def serve_by(text: str) -> None:
        site.write_text(text)
        subprocess.run([nginx, "-p", str(directory), "-c", "nginx.conf", "-s", "reload"], check=True, timeout=20)

    # For an answer in chunks, buffering alone does not delay pieces; together with compression it does.
    compressing = "gzip on; gzip_types text/event-stream; gzip_min_length 1; gzip_proxied any;"
    serve_by(written.replace("proxy_buffering off", "proxy_buffering on").replace("gzip off;", compressing))
    found = findings(small, "--only", "preflight.nginx-*")
    assert found["preflight.nginx-streaming"]["status"] == "fail", found["preflight.nginx-streaming"]
    assert "nginx collects the answer" in found["preflight.nginx-streaming"]["title"]
    assert found["preflight.nginx-health"]["status"] == "pass"

    # Requests above the rate wait in nginx for their turn.
    zone = "limit_req_zone $server_name zone=slow:1m rate=5r/s;\n"
    serve_by(zone + written.replace("location = /health {", "location = /health {\n limit_req zone=slow burst=99;"))
    slow = findings(small, "--only", "preflight.nginx-health")["preflight.nginx-health"]
    assert slow["status"] == "fail", slow
    assert "limit 100 ms" in slow["title"]


def test_a_disk_that_is_nearly_full_is_found(
    tiny_model: Path, free_port: Callable[[], int], nginx: str, small_disk: Callable[[int], Path]
) -> None:
    from onecat import deploy

    data = small_disk(160) / "home"
    small = SmallDeployment(Home(data, data / "cache"), tiny_model, free_port(), free_port())
    try:
        small.up()
        (data.parent / "filling").write_bytes(bytes(110 << 20))
        full = findings(small, "--only", "preflight.disk")["preflight.disk"]
        assert full["status"] == "fail"
        assert "MiB free of 160 MiB for onecat's data and logs; limit 5 GiB" in full["title"]
    finally:
        for store in deploy.deployments(small.machine):
            deploy.down(store)


def test_wrong_words_are_answered_with_what_to_type(small: SmallDeployment) -> None:
    small.up()
    for words, told in (
        (("nobody",), "there is no deployment nobody"),
        (("--only", "preflight.gpus"), "no check fits 'preflight.gpus'"),
        (("--requests", "3", "--concurrent", "8"), "3 requests cannot be 8 at once"),
        (("--concurrent", "99999"), "preflight.concurrent is 99999"),
        (("--fail-on", "never"), "never"),
    ):
        done = preflight(small, *words, code=2)
        assert told in done.stderr
        assert "Traceback" not in done.stderr

"""What `up`, `status`, `diff` and `history` tell of a deployment on this machine; the server is the small one."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from onecat import deploy
from onecat.deploy.preparing import prepare_run
from onecat.errors import ExitCode, OnecatError
from onecat.facts import Facts, Gpu, GpuProcess, Nvidia
from tests.testbed.deployments import SmallDeployment, SmallServer

LOGS = Path(__file__).parents[1] / "fixtures" / "logs" / "engine"
EAGER = LOGS / "h200-float16-eager.log"
ONECAT = str(Path(sys.executable).with_name("onecat"))


def command(small: SmallDeployment, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ONECAT_HOME": str(small.home.data), "COLUMNS": "80"}
    return subprocess.run(
        [ONECAT, *words], env=environment, cwd=small.home.data, capture_output=True, text=True, timeout=30, check=False
    )


# --- what the engine chose --------------------------------------------------------------------------------------------


def test_up_tells_what_the_engine_chose_and_status_shows_it_beside_the_plan(small: SmallDeployment) -> None:
    small.up("--say-file", str(EAGER), "--max-model-len", "4096")
    reported = "\n".join(small.reported)
    assert "engine: version 0.27.1, cuda, float16, eager" in reported
    assert "warning: the engine runs eagerly, planned were CUDA graphs" in reported
    assert "warning: the context length is 2048, planned was 4096" in reported

    (found,) = json.loads(command(small, "status", "--json").stdout)["deployments"]
    assert (found["engine"]["kv_tokens"], found["engine"]["planned"]["max_model_len"]) == (32768, 4096)
    assert {each["choice"] for each in found["engine"]["surprises"]} == {"execution", "max_model_len"}
    shown = command(small, "status")
    assert shown.returncode == 0
    assert "context length 2,048 planned: 4,096" in " ".join(shown.stdout.split())
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "its own nginx must be started again" in " ".join(shown.stdout.split()), "after a reboot"


def test_strict_makes_it_a_failed_start_and_the_release_before_serves_on(small: SmallDeployment) -> None:
    first = small.up("--say-file", str(EAGER), "--enforce-eager")
    words = ("--say-file", str(EAGER), "--enforce-eager", "--dtype", "bfloat16")
    request = deploy.UpRequest(small.deployment(), small.profile(), small.plan(*words), SmallServer(), strict=True)
    with pytest.raises(OnecatError) as failed:
        deploy.up(request, small.machine, small.reported.append)
    assert failed.value.code == ExitCode.ROLLED_BACK
    assert "not chosen what was planned: the engine calculates in float16, planned was bfloat16" in failed.value.found
    assert (small.status().state, small.status().release) == ("serving", first.number)
    refused = small.store.load(2)
    assert refused is not None
    assert (refused.outcome, refused.cause) == ("failed", failed.value.found)


# --- what was changed by hand -----------------------------------------------------------------------------------------


def test_other_keys_of_clients_are_a_change_until_nginx_has_them(small: SmallDeployment, tmp_path: Path) -> None:
    keys = tmp_path / "clients.keys"
    changes = {"proxy": {"listen": f"127.0.0.1:{small.proxy_port}", "keys_file": str(keys), "instance": "own"}}
    keys.touch(0o600)
    keys.write_text(f"ann {'a' * 32}\n")
    small.up(**changes)
    assert compared(small, **changes).changes == ()
    keys.write_text(f"bob {'b' * 32}\n")
    (change,) = compared(small, **changes).changes
    assert (change.kind, "onecat keys reload" in change.what) == ("key", True)
    assert deploy.reload_keys(small.store, small.deployment(**changes)).changed
    assert compared(small, **changes).changes == ()


def test_a_deployment_that_was_taken_down_can_be_had_back_without_its_onecat_yaml(small: SmallDeployment) -> None:
    small.up()
    deploy.down(small.store)
    assert small.status().next_steps == ("onecat up", "onecat restart demo   (as it was)")
    assert deploy.restart(small.store).origin == 1
    assert small.status().state == "serving"


def test_status_tells_what_a_command_is_doing_and_what_a_killed_one_left(small: SmallDeployment) -> None:
    current = small.up()
    number, directory = small.store.new_directory()
    small.store.save(replace(current, number=number, directory=directory, outcome="starting"))
    with small.store.lock("onecat up"):
        told = " ".join(command(small, "status").stdout.split())
        assert f"warning: release {number}: " in told and "runs `onecat up` since" in told
    told = " ".join(command(small, "status").stdout.split())
    assert f"release {number}: a command was ended before it was done" in told
    small.up()
    assert "before it was done" not in command(small, "status").stdout


@pytest.mark.parametrize(
    ("word", "file"),
    [("status", "engine.json"), ("diff", "request.json"), ("diff", "plan.json")],
)
def test_a_damaged_file_of_a_release_is_told_with_its_place_and_a_way_that_leads_on(
    small: SmallDeployment, word: str, file: str
) -> None:
    damaged = Path(small.up().directory, file)
    damaged.write_text("[1]")
    if word == "diff":
        with pytest.raises(OnecatError, match="damaged") as told:
            compared(small)
        found = told.value
        assert found.where == str(damaged)
        subprocess.run(["sh", "-c", found.next_steps[0].partition(": ")[2]], check=True)
        compared(small)
    else:
        told_by_command = command(small, word, "demo")
        assert told_by_command.returncode == ExitCode.NEEDS_PERSON
        (step, *_) = [line for line in told_by_command.stderr.splitlines() if "mv " in line]
        subprocess.run(["sh", "-c", step.partition("says: ")[2]], check=True)
        assert command(small, word, "demo").returncode == 0
    assert not damaged.exists()


def test_a_hand_edit_of_nginx_is_found_and_the_next_up_says_so_and_keeps_it(small: SmallDeployment) -> None:
    small.up()
    assert command(small, "diff", "demo").returncode == 0
    site = Path(small.store.proxy_directory, "site.conf")
    written = site.read_text(encoding="utf-8")
    edited = written.replace("server_tokens off;", "server_tokens on;  # by ann")
    site.write_text(edited, encoding="utf-8")

    told = command(small, "diff", "demo")
    assert told.returncode == 1
    assert f"{site} was changed by hand" in " ".join(told.stdout.split())
    assert "+    server_tokens on;  # by ann" in told.stdout
    document = json.loads(command(small, "diff", "demo", "--json").stdout)
    assert document["schema"] == "onecat.diff/1"
    assert [each["kind"] for each in document["deployments"][0]["drift"]] == ["nginx"]

    small.reported.clear()
    small.up()
    assert any(f"warning: {site} was changed by hand" in line for line in small.reported)
    assert site.read_text(encoding="utf-8") == written, "nothing else was to be done, and it is as it was written"
    assert site.with_name("site.conf.by-hand").read_text(encoding="utf-8") == edited
    assert command(small, "diff", "demo").returncode == 0
    history = json.loads(command(small, "history", "demo", "--json").stdout)
    assert history["schema"] == "onecat.history/1"
    assert history["entries"][-1]["event"] == "hand-edit"

    site.write_text(edited.replace("ann", "bob"), encoding="utf-8")
    small.reported.clear()
    deploy.down(small.store, small.reported.append)
    assert any("it goes with the deployment" in line for line in small.reported)
    assert "by bob" in site.with_name("site.conf.by-hand.2").read_text(encoding="utf-8")


def compared(small: SmallDeployment, *words: str, **changes: Any) -> deploy.Comparison:
    request = deploy.UpRequest(small.deployment(**changes), small.profile(), small.plan(*words), SmallServer())
    run = prepare_run(request, small.machine, small.reported.append)
    return deploy.compare_deployment(run, run.store)


def test_what_up_would_change_is_told_by_kind(small: SmallDeployment, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-first-key-of-all", encoding="utf-8")
    secrets = {"api_key": {"file": str(key)}}
    small.up("--dtype", "float32", secrets=secrets)
    assert compared(small, "--dtype", "float32", secrets=secrets).same

    changed = compared(small, "--dtype", "bfloat16", secrets=secrets, restart={"max_crashes": 3})
    assert {each.kind for each in changed.changes} == {"arguments", "settings"}
    arguments = next(each for each in changed.changes if each.kind == "arguments")
    assert {"- --dtype float32", "+ --dtype bfloat16"} <= set(arguments.diff)
    (site,) = compared(
        small,
        "--dtype",
        "float32",
        secrets=secrets,
        proxy={"listen": f"127.0.0.1:{small.proxy_port}", "max_body_mib": 9},
    ).changes
    assert site.kind == "nginx"
    assert "+max_body_mib: 9" in site.diff

    key.write_text("sk-second-key-of-all", encoding="utf-8")
    (other,) = compared(small, "--dtype", "float32", secrets=secrets).changes
    assert "API key" in other.what
    assert "sk-second" not in str(other)


def test_before_anything_is_deployed_diff_says_that_up_would_start_the_first(small: SmallDeployment) -> None:
    (first,) = compared(small).changes
    assert first.what == "nothing serves: onecat up would start the first release"


# --- claims -----------------------------------------------------------------------------------------------------------


def test_a_port_of_another_deployment_is_refused_before_anything_starts(
    small: SmallDeployment, free_port: Callable[[], int]
) -> None:
    small.up()
    other = replace(small, port=free_port(), reported=[])
    with pytest.raises(OnecatError) as refused:
        other.up(name="other")
    assert refused.value.found == f"port {small.proxy_port} is taken by deployment demo (release 1)"
    assert "or end the other one: onecat down demo" in refused.value.next_steps
    assert [store.name for store in deploy.deployments(small.machine)] == ["demo"]
    assert not any("starting" in line for line in other.reported)


def with_gpus(small: SmallDeployment, **changes: Any) -> deploy.Release:
    """Bring the deployment up as one for GPUs on a host with two; the server itself uses none."""
    gpus = (
        Gpu(0, "Tesla V100", uuid="GPU-aa", processes=(GpuProcess(4242, "train.py", 2**30),)),
        Gpu(1, "Tesla V100", uuid="GPU-bb", processes=()),
    )
    cpu = small.profile()
    profile = cpu.model_copy(update={"hardware": cpu.hardware.model_copy(update={"accelerator": "nvidia"})})
    plan = replace(small.plan(), deployment=changes.get("name", "demo"))
    facts = Facts("local", nvidia=Nvidia(gpus=gpus))
    request = deploy.UpRequest(small.deployment(**changes), profile, plan, SmallServer(), facts)
    return deploy.up(request, small.machine, small.reported.append)


def test_two_deployments_get_a_gpu_each_and_a_third_is_told_who_has_them(
    small: SmallDeployment, free_port: Callable[[], int]
) -> None:
    first = with_gpus(small)
    assert first.gpus == ("GPU-aa",)
    assert "warning: GPU 0 is used by pid 4242 (train.py), 1.0 GiB: no deployment of onecat" in small.reported
    environment = json.loads(Path(first.directory, "launch.json").read_text())["env"]
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-aa"

    second = replace(small, port=free_port(), proxy_port=free_port())
    assert with_gpus(second, name="second").gpus == ("GPU-bb",)
    third = replace(small, port=free_port(), proxy_port=free_port())
    with pytest.raises(OnecatError) as refused:
        with_gpus(third, name="third", gpus=[1])
    assert refused.value.found == "GPU 1 is taken by deployment second (release 1)"
    with pytest.raises(OnecatError, match="the plan needs 1 GPU and 0 of 2 are free"):
        with_gpus(third, name="third")

    again = with_gpus(small, restart={"max_crashes": 3})
    assert (again.strategy, again.gpus) == ("recreate", ("GPU-aa",)), "no GPU is free for both at once"
    deploy.down(deploy.find_deployment(small.machine, "second"))
    beside = with_gpus(small, restart={"max_crashes": 4})
    assert (beside.strategy, beside.gpus) == ("blue-green", ("GPU-bb",))


def test_of_two_that_start_at_once_one_gets_the_gpu_and_the_other_is_told_who_has_it(
    small: SmallDeployment, free_port: Callable[[], int]
) -> None:
    others = {name: replace(small, port=free_port(), proxy_port=free_port(), reported=[]) for name in ("left", "right")}
    ended: dict[str, deploy.Release | OnecatError] = {}

    def bring_up(name: str) -> None:
        try:
            ended[name] = with_gpus(others[name], name=name, gpus=[1])
        except OnecatError as error:
            ended[name] = error

    threads = [threading.Thread(target=bring_up, args=(name,)) for name in others]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [name for name, each in ended.items() if isinstance(each, deploy.Release)]
    (refused,) = [each for each in ended.values() if isinstance(each, OnecatError)]
    assert refused.found == f"GPU 1 is taken by deployment {winner} (release 1)"


# --- watching ---------------------------------------------------------------------------------------------------------


def test_watching_without_a_terminal_appends_lines_and_on_one_draws_a_view(small: SmallDeployment) -> None:
    small.up()
    environment = {**os.environ, "ONECAT_HOME": str(small.home.data), "COLUMNS": "80", "LINES": "30", "TERM": "xterm"}
    words = [ONECAT, "status", "--watch", "--interval", "0.1"]
    ours, theirs = pty.openpty()
    lines = subprocess.Popen(words, env=environment, cwd=small.home.data, stdout=subprocess.PIPE, text=True)
    view = subprocess.Popen(words, env=environment, cwd=small.home.data, stdout=theirs, stderr=theirs)
    os.close(theirs)
    assert lines.stdout is not None
    shown = [lines.stdout.readline()]
    while "watching; changes follow" not in shown[-1]:
        shown.append(lines.stdout.readline())
    assert shown[0] == "demo: serving\n"
    drawn = read_until(ours, ": serving")

    deploy.down(small.store)
    while "-> stopped" not in shown[-1]:
        shown.append(lines.stdout.readline())
        assert "\x1b" not in shown[-1]
    drawn += read_until(ours, "-> stopped")
    assert "\x1b[" in drawn
    for process in (lines, view):
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 1
    os.close(ours)


def read_until(descriptor: int, words: str) -> str:
    text, limit = "", time.monotonic() + 15
    while words not in text:
        assert time.monotonic() < limit, text
        if select.select([descriptor], [], [], 0.2)[0]:
            text += os.read(descriptor, 65536).decode(errors="replace")
    return text

"""`up`, `status`, `logs` and `down` with real processes and a real nginx; the server is the small one."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from onecat import deploy
from onecat.config.schema import SmokePrompt
from onecat.deploy import processes
from onecat.errors import ExitCode, OnecatError
from tests.testbed.deployments import SmallDeployment, SmallServer

KEY = "sk-Xq7-nobody-may-see-this"


def ask(url: str, key: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}], "logprobs": True}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, trust_env=False, timeout=30)


# --- a good start -----------------------------------------------------------------------------------------------------


def test_a_completion_through_nginx_and_a_second_up_that_changes_nothing(small: SmallDeployment) -> None:
    release = small.up()
    assert ask(release.endpoint).json()["choices"][0]["message"]["content"].startswith("one two")
    found = small.status()
    assert (found.state, found.health, found.model, found.release) == ("serving", "ok", "tiny", 1)
    began = time.monotonic()
    assert small.up().number == 1
    assert time.monotonic() - began < 10
    assert small.reported[-1] == "release 1 already serves this plan and is healthy: nothing to do"


def test_the_release_is_written_for_people_and_for_its_owner_alone(small: SmallDeployment) -> None:
    release = small.up()
    files = {str(path.relative_to(release.directory)) for path in Path(release.directory).rglob("*") if path.is_file()}
    assert {
        "release.json", "plan.json", "request.json", "launch.json", "state.json", "server.log", "nginx/nginx.conf",
        "nginx/site.conf", "systemd/onecat-demo.service",
    } <= files  # fmt: skip
    for path in small.home.deployments.rglob("*.json"):
        assert path.stat().st_mode & 0o077 == 0, path
    assert json.loads((Path(release.directory) / "plan.json").read_text())["schema"] == "onecat.plan/1"
    assert subprocess.run(["systemd-analyze", "--version"], capture_output=True, check=False).returncode == 0
    assert not any("systemd-analyze objects" in line for line in small.reported)


def test_a_new_plan_makes_a_new_release_and_ends_the_old_one(small: SmallDeployment) -> None:
    first = small.up()
    second = small.up("--max-num-seqs", "8")
    assert second.number == 2
    assert [release.outcome for release in small.store.releases()] == ["stopped", "serving"]
    assert first.endpoint == second.endpoint
    assert ask(second.endpoint).status_code == 200
    assert sum("openai_server" in line for line in small.processes()) == 2  # the server and its engine


def test_a_stream_arrives_piece_by_piece(small: SmallDeployment) -> None:
    release = small.up()
    arrivals: list[float] = []
    body = {"model": "tiny", "messages": [], "stream": True}
    with httpx.stream("POST", f"{release.endpoint}/v1/chat/completions", json=body, trust_env=False) as response:
        for line in response.iter_lines():
            if line.startswith("data: "):
                arrivals.append(time.monotonic())
    assert len(arrivals) == 9
    assert arrivals[-1] - arrivals[0] > 0.2  # the server waits 0.05 s after each of eight


def test_the_proxy_closes_what_is_not_for_clients_and_speaks_openais_form(small: SmallDeployment) -> None:
    release = small.up(proxy={"listen": f"127.0.0.1:{small.proxy_port}", "max_body_mib": 1})
    with httpx.Client(base_url=release.endpoint, trust_env=False) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/metrics").status_code == 200  # this machine may
        for path, status in (("/docs", 404), ("/v1/load_lora_adapter", 404)):
            response = client.get(path)
            assert (response.status_code, response.json()["error"]["code"]) == (status, "not_found")
        large = client.post("/v1/completions", content=b"x" * (2 * 2**20))
        assert (large.status_code, large.json()["error"]["type"]) == (413, "invalid_request_error")
        server = small.status().pid
        assert server is not None
        os.kill(server, signal.SIGSTOP)  # so that nobody answers while it is replaced
        os.kill(server, signal.SIGKILL)
        refused = client.get("/v1/models")
        while refused.status_code == 200:
            refused = client.get("/v1/models")
        assert refused.status_code == 502
        assert refused.json()["error"]["type"] == "server_error"
        assert refused.headers["Retry-After"] == "5"
    small.wait_for(lambda found: found.state == "serving")
    log = (Path(small.store.proxy_directory) / "logs" / "access.log").read_text().splitlines()
    assert {json.loads(line)["status"] for line in log} >= {404, 413, 502}


def test_nginx_comes_back_with_the_next_up(small: SmallDeployment) -> None:
    small.up()
    os.kill(int(Path(small.store.proxy_directory, "nginx.pid").read_text()), signal.SIGTERM)
    found = small.wait_for(lambda found: found.state == "proxy-down")
    assert "nginx" in (found.cause or "")
    small.up()
    assert small.status().state == "serving"


def test_without_a_proxy_the_server_answers_itself(small: SmallDeployment) -> None:
    release = small.up(proxy={"kind": "none"})
    assert release.endpoint == f"http://127.0.0.1:{small.port}"
    assert ask(release.endpoint).status_code == 200
    assert small.status().state == "serving"


# --- crashes ----------------------------------------------------------------------------------------------------------


def test_a_killed_server_comes_back(small: SmallDeployment) -> None:
    release = small.up("--orphans")
    first = small.status().pid
    assert first is not None
    engine = engine_of(small)
    os.kill(first, signal.SIGKILL)
    found = small.wait_for(lambda found: found.state == "serving" and found.pid != first)
    assert found.restarts == 1
    assert "killed by signal 9 (SIGKILL)" in (found.last_exit or "")
    assert processes.entry(engine) is None
    assert ask(release.endpoint).status_code == 200


def engine_of(small: SmallDeployment) -> int:
    (*_, last) = re.findall(r"engine pid=(\d+)", "\n".join(deploy.last_lines(small.store, 100)))
    return int(last)


def test_killed_ten_times_in_a_row_it_keeps_crashing_and_says_why(small: SmallDeployment) -> None:
    small.up("--orphans")
    previous = None
    for _ in range(10):
        found = small.wait_for(lambda found: found.pid is not None and found.pid != previous)  # noqa: B023
        assert found.pid is not None
        previous = found.pid
        os.kill(previous, signal.SIGKILL)
    found = small.wait_for(lambda found: found.state == "keeps-crashing")
    assert found.crashes_in_a_row == 10
    assert "killed by SIGKILL" in (found.cause or "")
    assert "onecat up" in found.next_steps
    assert not any("openai_server" in line for line in small.processes())
    small.up("--orphans")
    assert small.status().state == "serving"


def test_a_dead_supervisor_is_told_and_the_next_up_repairs_it(small: SmallDeployment) -> None:
    small.up("--orphans")
    state = json.loads((Path(small.store.releases()[-1].directory) / "state.json").read_text())
    os.kill(state["supervisor"]["pid"], signal.SIGKILL)
    found = small.wait_for(lambda found: found.state == "lost")
    assert "the supervisor was killed" in (found.cause or "")
    assert "onecat up" in found.next_steps
    small.up("--orphans")
    assert small.status().state == "serving"


# --- a failed start ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--fail-with", "torch.OutOfMemoryError: CUDA out of memory."), "The GPU's memory does not hold"),
        (("--fail-with", "something nobody knows"), "exited with status 1"),
        (("--answer", "repeated"), "one token 8 times: '!'"),
        (("--answer", "nan"), "NaN or infinite numbers"),
        (("--answer", "error"), "NaN or infinite numbers"),
        (("--answer", "no-logprobs"), "without log-probabilities"),
        (("--served-model-name", "another"), "serves another, not tiny"),
    ],
)
def test_a_failed_start_tells_its_cause_and_leaves_nothing_running(
    small: SmallDeployment, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(OnecatError) as raised:
        small.up(*words)
    assert told in raised.value.found
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert small.processes() == []
    found = small.status()
    assert found.state == "failed"
    assert told in (found.cause or "")


def test_the_release_before_a_failed_one_serves_again(small: SmallDeployment) -> None:
    small.up()
    with pytest.raises(OnecatError) as raised:
        small.up("--answer", "repeated")
    assert raised.value.code == ExitCode.ROLLED_BACK
    found = small.status()
    assert (found.state, found.release) == ("serving", 1)
    assert ask(f"http://127.0.0.1:{small.proxy_port}").status_code == 200
    assert small.reported[-1] == "release 1 serves again"
    assert any("GET /v1/models" in line for line in deploy.last_lines(small.store, 50, 2))


def test_a_server_that_does_nothing_is_given_up_and_one_that_works_is_not(small: SmallDeployment) -> None:
    with pytest.raises(OnecatError, match="it hangs"):
        small.up("--hang", start={"silence_seconds": 5})
    assert small.processes() == []
    small.up("--busy", "8", start={"silence_seconds": 5})
    assert small.status().state == "serving"


def test_random_weights_may_repeat_themselves_when_allowed(small: SmallDeployment) -> None:
    small.up("--answer", "repeated", start={"allow_repeated_token": True})
    assert small.status().state == "serving"


def test_a_model_without_a_chat_template_is_asked_for_a_text_completion(small: SmallDeployment) -> None:
    small.up("--answer", "no-chat-template")
    assert small.status().state == "serving"


def test_configured_prompts_decide(small: SmallDeployment) -> None:
    good = SmokePrompt(prompt="Count.", expect=("uno", "one"))
    small.up(smoke=[good.model_dump()])
    with pytest.raises(OnecatError, match="holds none of 'Paris'"):
        small.up("--max-num-seqs", "8", smoke=[{"prompt": "Capital?", "expect": ["Paris"]}])
    assert small.status().release == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_start_is_stopped_again(small: SmallDeployment, number: signal.Signals) -> None:
    program = f"""
import sys
from pathlib import Path
from onecat.cli import console
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
console.end_like_ctrl_c()
home = Path({str(small.home.data)!r})
small = SmallDeployment(Home(home, home), Path({str(small.model)!r}), {small.port}, {small.proxy_port})
try:
    small.up("--busy", "60")
except KeyboardInterrupt:
    print(small.reported[-1])
    sys.exit(130)
"""
    root = Path(__file__).parents[2]
    with subprocess.Popen([sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, text=True) as operator:
        limit = time.monotonic() + 20
        while not any("--busy 60" in line for line in small.processes()):
            assert time.monotonic() < limit
            time.sleep(0.05)
        operator.send_signal(number)
        output, _ = operator.communicate(timeout=20)
    assert operator.returncode == 130
    assert output == "interrupted: stopping release 1\n"
    assert small.processes() == []
    assert small.status().state == "stopped"
    small.up()
    assert small.status().release == 2


def test_an_up_that_was_killed_is_cleaned_up_by_the_next(small: SmallDeployment) -> None:
    program = f"""
import os, threading, time
from pathlib import Path
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
home = Path({str(small.home.data)!r})
small = SmallDeployment(Home(home, home), Path({str(small.model)!r}), {small.port}, {small.proxy_port})
threading.Timer(3, lambda: os.kill(os.getpid(), 9)).start()
small.up("--busy", "60")
"""
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False)
    found = small.status()
    assert (found.state, found.release) == ("starting", 1)
    small.up()
    assert [release.outcome for release in small.store.releases()] == ["interrupted", "serving"]


def killed_once(small: SmallDeployment, condition: str, *words: str) -> None:
    """An `up` that is killed, with no chance to clean up, as soon as `condition` holds for `small`."""
    program = f"""
import os, threading, time
from pathlib import Path
from onecat.paths import Home
from tests.testbed.deployments import SmallDeployment
home = Path({str(small.home.data)!r})
small = SmallDeployment(Home(home, home), Path({str(small.model)!r}), {small.port}, {small.proxy_port})
def watch():
    while not ({condition}):
        time.sleep(0.02)
    os.kill(os.getpid(), 9)
threading.Thread(target=watch, daemon=True).start()
small.up(*{words!r})
time.sleep(10)
"""
    killed = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL


def test_an_up_that_was_killed_with_the_old_release_stopped_does_not_lock_itself_out(small: SmallDeployment) -> None:
    small.up()
    killed_once(small, "any('ready after' in line for line in small.reported)", "--max-num-seqs", "8")
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", small.port)) == 0  # somebody listens: release 2, which nobody accepted
    assert small.up("--max-num-seqs", "9").number == 3
    assert [release.outcome for release in small.store.releases()] == ["stopped", "interrupted", "serving"]
    assert small.status().state == "serving"
    assert sum("openai_server" in line for line in small.processes()) == 2  # the server and its engine


def test_an_up_that_was_killed_before_its_release_became_the_current_one(small: SmallDeployment) -> None:
    first = small.up()
    second = small.up("--max-num-seqs", "8")
    small.store.end(first, "serving")
    small.store.set_current(first.number)
    assert second.outcome == "serving"
    assert small.up("--max-num-seqs", "9").number == 3
    assert [release.outcome for release in small.store.releases()] == ["stopped", "stopped", "serving"]
    assert sum("openai_server" in line for line in small.processes()) == 2


# --- nginx comes and goes with its release ----------------------------------------------------------------------------


def test_nginx_goes_when_the_new_release_has_no_proxy(small: SmallDeployment) -> None:
    small.up()
    release = small.up(proxy={"kind": "none"})
    assert not any("nginx: " in line for line in small.processes())
    assert ask(release.endpoint).status_code == 200
    assert small.up().proxied
    assert small.status().state == "serving"


def test_a_server_may_take_the_port_that_nginx_had(small: SmallDeployment) -> None:
    small.up()
    small.port = small.proxy_port
    release = small.up(proxy={"kind": "none"})
    assert not any("nginx: " in line for line in small.processes())
    assert ask(release.endpoint).status_code == 200


def test_nginx_stays_when_the_release_without_a_proxy_fails(small: SmallDeployment) -> None:
    first = small.up()
    with pytest.raises(OnecatError):
        small.up("--answer", "repeated", proxy={"kind": "none"})
    assert ask(first.endpoint).status_code == 200
    assert small.status().state == "serving"


def test_a_failed_start_after_a_crashed_release_leaves_no_nginx(small: SmallDeployment) -> None:
    small.up(restart={"max_crashes": 1})
    os.kill(small.status().pid or 0, signal.SIGKILL)
    small.wait_for(lambda found: found.state == "keeps-crashing")
    with pytest.raises(OnecatError) as raised:
        small.up("--answer", "repeated")
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert small.processes() == []


# --- what fails besides the start -------------------------------------------------------------------------------------


def test_an_accepted_release_stays_when_the_old_one_cannot_be_put_away(small: SmallDeployment) -> None:
    first = small.up()
    record = Path(first.directory, "release.json")

    def spoil() -> None:
        record.rename(f"{record}.kept")
        record.mkdir()

    def mend() -> None:
        record.rmdir()
        Path(f"{record}.kept").rename(record)

    small.reactions = {"stopping release 1": spoil, "the new release serves, but": mend}
    second = small.up("--max-num-seqs", "8")
    assert "could not be put away" in small.reported[-1]
    assert (small.status().state, small.status().release) == ("serving", second.number)
    assert small.up("--max-num-seqs", "9").number == 3
    assert [release.outcome for release in small.store.releases()] == ["stopped", "stopped", "serving"]


def test_a_failed_release_that_cannot_be_stopped_needs_a_person_and_the_old_one_serves(small: SmallDeployment) -> None:
    first = small.up()
    second = Path(small.store.release_directory(2))

    def spoil() -> None:
        while not (second / "server.log").exists():
            time.sleep(0.02)
        (second / "state.json").rename(second / "kept")
        (second / "state.json").mkdir()

    spoiler = threading.Thread(target=spoil)
    spoiler.start()
    with pytest.raises(OnecatError) as raised:
        small.up("--hang", start={"silence_seconds": 5})
    spoiler.join()
    assert raised.value.code == ExitCode.NEEDS_PERSON
    assert "release 2 could not be stopped" in raised.value.found
    assert ask(first.endpoint).status_code == 200
    (second / "state.json").rmdir()
    (second / "kept").rename(second / "state.json")
    deploy.down(small.store)
    assert small.processes() == []


def test_a_key_that_vanishes_during_the_start_is_a_start_rolled_back(small: SmallDeployment, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text(KEY)

    def vanish() -> None:
        while not (small.home.deployments / "demo" / "releases" / "0001" / "server.log").exists():
            time.sleep(0.02)
        key.unlink()

    thief = threading.Thread(target=vanish)
    thief.start()
    with pytest.raises(OnecatError, match="the API key cannot be read") as raised:
        small.up("--busy", "2", secrets={"api_key": {"file": str(key)}})
    thief.join()
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert small.processes() == []


# --- refused before anything changes ----------------------------------------------------------------------------------


def unchanged(small: SmallDeployment) -> bool:
    return not small.home.data.exists() or list(small.home.data.rglob("*")) == []


@pytest.mark.parametrize("which", ["port", "proxy_port"])
def test_a_port_in_use(small: SmallDeployment, which: str) -> None:
    port = getattr(small, which)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        with pytest.raises(OnecatError) as raised:
            small.up()
    assert raised.value.found == f"port {port} is in use"
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert unchanged(small)


def test_a_missing_model_directory(small: SmallDeployment) -> None:
    small.model = small.home.data.parent / "nothing"
    with pytest.raises(OnecatError) as raised:
        small.up()
    assert raised.value.code == ExitCode.USAGE
    assert unchanged(small)


def test_a_full_disk(small: SmallDeployment, small_disk: Callable[[int], Path]) -> None:
    full = small.with_home(small_disk(4) / "home")
    with pytest.raises(OnecatError) as raised:
        full.up()
    assert raised.value.found.startswith("the disk is full")
    assert raised.value.code == ExitCode.ROLLED_BACK
    assert unchanged(full)


def test_a_missing_runtime(small: SmallDeployment) -> None:
    class Missing(SmallServer):
        def serve_argv(self, server_args: object) -> list[str]:
            return ["/nonexistent/bin/vllm", "serve"]

    with pytest.raises(OnecatError) as raised:
        small.up(launcher=Missing())
    assert raised.value.next_steps == ("onecat build --profile cpu --runtime native",)
    assert unchanged(small)


def test_two_operators_at_once(small: SmallDeployment) -> None:
    outcomes: list[str] = []

    def one() -> None:
        try:
            small.up("--busy", "2")
            outcomes.append("up")
        except OnecatError as error:
            outcomes.append(error.found)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes.sort(key=len)
    assert outcomes[0] == "up"
    assert outcomes[1].startswith("deployment demo is being worked on:")


# --- secrets, logs, down ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", ["file", "env"])
def test_the_key_is_nowhere_but_where_it_belongs(
    small: SmallDeployment, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "file":
        (tmp_path / "key").write_text(KEY)
        secrets = {"api_key": {"file": str(tmp_path / "key")}}
    else:
        monkeypatch.setenv("DEMO_KEY", KEY)
        secrets = {"api_key": {"env": "DEMO_KEY"}}
    release = small.up(secrets=secrets)
    assert ask(release.endpoint).status_code == 401
    assert ask(release.endpoint, KEY).status_code == 200
    assert not any(KEY in line for line in small.processes())
    assert not any(KEY in line for line in small.reported)
    for path in small.home.data.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
    pid = small.status().pid
    os.kill(pid or 0, signal.SIGKILL)
    small.wait_for(lambda found: found.state == "serving" and found.pid != pid)
    assert ask(release.endpoint, KEY).status_code == 200


def test_the_log_can_be_followed_over_a_crash(small: SmallDeployment) -> None:
    small.up()
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(deploy.follow_log(small.store, 10)))
    reader.start()
    os.kill(small.status().pid or 0, signal.SIGKILL)
    small.wait_for(lambda found: found.restarts == 1 and found.state == "serving")
    deploy.down(small.store)
    reader.join(10)
    assert not reader.is_alive()
    text = "\n".join(lines)
    assert text.count("Application startup complete") == 2
    assert "crash 1 of 10 in a row" in text
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", lines[0])


def test_down_ends_everything_and_may_be_said_twice(small: SmallDeployment) -> None:
    small.up("--orphans")
    assert deploy.down(small.store) is True
    assert small.processes() == []
    assert small.status().state == "stopped"
    assert deploy.down(small.store) is False
    assert small.up("--orphans").number == 2


def test_down_ends_what_a_dead_supervisor_left(small: SmallDeployment) -> None:
    small.up()
    state = json.loads((Path(small.store.releases()[-1].directory) / "state.json").read_text())
    os.kill(state["server"]["pid"], signal.SIGSTOP)  # it cannot follow its supervisor
    os.kill(state["supervisor"]["pid"], signal.SIGKILL)
    deploy.down(small.store)
    assert small.processes() == []


def test_a_look_ahead_without_the_nginx_that_is_asked_for_answers_no(small: SmallDeployment) -> None:
    proxy = {"listen": f"127.0.0.1:{small.proxy_port}", "instance": "host"}
    with pytest.raises(OnecatError, match="it would fail: ") as refused:
        deploy.forecast_up(small.request(proxy=proxy), small.machine)
    assert refused.value.code is ExitCode.NO
    assert refused.value.next_steps

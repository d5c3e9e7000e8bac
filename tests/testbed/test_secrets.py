"""No key is where others may see it: after an `up` with an API key and clients' keys, everything is searched.

What is left to the owner: /proc/PID/environ of the server itself, because vLLM takes its key from VLLM_API_KEY. The
kernel shows it to the server's own user and to root alone (proc(5), PTRACE_MODE_READ_FSCREDS).
"""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from onecat import deploy
from tests.testbed import command
from tests.testbed.deployments import SmallDeployment
from tests.testbed.test_up_container import boxed, ours, server_image

__all__ = ["boxed", "server_image"]

SERVER_KEY = "sk-server-3fT9-nobody-may-see-this"
CLIENT_KEY = "sk-client-8wQ2-nobody-may-see-this"
KEYS = (SERVER_KEY.encode(), CLIENT_KEY.encode())
CONFIGURATION = """
name: demo
profile: ./small.yaml
runtime: container
model: {{path: {model}, served_name: tiny}}
port: {port}
secrets: {{api_key: {{file: {folder}/api_key}}}}
proxy: {{listen: "127.0.0.1:{proxy_port}", keys_file: {folder}/clients, instance: own}}
"""


def holds(data: bytes) -> bool:
    return any(key in data for key in KEYS)


def read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def command_lines() -> list[str]:
    """Command lines of this machine, those of containers too, that have a key in them."""
    found = {path: read(path) for path in Path("/proc").glob("[0-9]*/cmdline")}
    return [f"{path}: {data!r}" for path, data in found.items() if holds(data)]


def users_with_key_in_environment() -> set[int]:
    """Users of the processes that have a key in their environment."""
    return {path.stat().st_uid for path in Path("/proc").glob("[0-9]*/environ") if holds(read(path))}


def files_for_others(*folders: Path) -> list[Path]:
    """Files that hold a key and that others than their owner could open."""
    found = []
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_symlink() or not path.is_file() or not holds(read(path)):
                continue
            above = [path, *(each for each in path.parents if each.is_relative_to(folder))]
            reads = path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
            enters = all(each.stat().st_mode & (stat.S_IXGRP | stat.S_IXOTH) for each in above[1:])
            if reads and enters:
                found.append(path)
    return found


def layers_hold(client: Any, image: str) -> bool:
    """Whether a key is in what `docker save` writes of an image, which are its layers as plain tar files."""
    rest = b""
    for part in client.images.get(image).save(chunk_size=2**20):
        if holds(rest + part):
            return True
        rest = part[-max(map(len, KEYS)) :]
    return False


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Path]:
    """A folder of the operator's with both kinds of keys."""
    folder = tmp_path / "keys"
    folder.mkdir(mode=0o700)
    for name, text in (("api_key", SERVER_KEY), ("clients", f"alice {CLIENT_KEY}\n")):
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
    yield folder


def answers(endpoint: str, key: str | None) -> int:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "count"}]}
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    url = f"{endpoint}/v1/chat/completions"
    return httpx.post(url, json=body, headers=headers, trust_env=False, timeout=30).status_code


def test_no_key_of_a_container_is_where_others_see_it(
    boxed: SmallDeployment, docker_client: Any, onecat_with_docker: command.Onecat, keys: Path, tmp_path: Path
) -> None:
    (tmp_path / "small.yaml").write_text(f"name: small\nextends: [cpu]\nimage: {{tag: {boxed.image}}}\n")
    text = CONFIGURATION.format(model=boxed.model, port=boxed.port, proxy_port=boxed.proxy_port, folder=keys)
    (tmp_path / "onecat.yaml").write_text(text)
    onecat = onecat_with_docker
    before = set(Path("/tmp").iterdir())
    try:
        said = [onecat("--debug", "up", cwd=tmp_path).expect(0)]
        endpoint = f"http://127.0.0.1:{boxed.proxy_port}"
        assert [answers(endpoint, key) for key in (None, "sk-wrong", CLIENT_KEY)] == [401, 401, 200]
        for words in (("status", "--json"), ("logs", "--lines", "500"), ("releases",), ("history",), ("diff",)):
            said.append(onecat("--debug", *words, cwd=tmp_path))
        assert not [each.argv for each in said if holds((each.stdout + each.stderr).encode())]
        assert command_lines() == []
        (container,) = ours(docker_client)
        assert users_with_key_in_environment() <= {0, 65534}, "root and the server's own user"
        assert not holds(str(container.attrs).encode())
        assert not holds(container.logs())
        assert not holds(str(docker_client.images.get(boxed.image).history()).encode())
        assert not layers_hold(docker_client, str(boxed.image))
        new = [path for path in set(Path("/tmp").iterdir()) - before if path.is_dir()]
        assert files_for_others(onecat.home, *new) == []
        assert [path for path in set(Path("/tmp").iterdir()) - before if path.is_file() and holds(read(path))] == []
        logs = [
            path for path in onecat.home.rglob("*") if path.is_file() and (".log" in path.name or "audit" in path.name)
        ]
        assert logs and not [path for path in logs if holds(read(path))]
    finally:
        onecat("down", cwd=tmp_path)
    assert not [path for path in onecat.home.rglob("*") if path.is_file() and SERVER_KEY.encode() in read(path)]


def test_no_key_of_a_native_server_is_where_others_see_it(
    boxed: SmallDeployment, keys: Path, run_unprivileged: Callable[..., Any]
) -> None:
    native = replace(boxed, image=None, docker_host=None)
    release = native.up(
        secrets={"api_key": {"file": str(keys / "api_key")}},
        proxy={"listen": f"127.0.0.1:{native.proxy_port}", "keys_file": str(keys / "clients"), "instance": "own"},
    )
    try:
        assert [answers(release.endpoint, key) for key in (None, CLIENT_KEY)] == [401, 200]
        assert command_lines() == []
        assert users_with_key_in_environment() == {0}, "the server runs as the operator"
        environment = f"/proc/{native.status().pid}/environ"
        seen = subprocess.run(
            ["setpriv", "--reuid", "10000", "--clear-groups", "cat", environment], capture_output=True
        )
        assert seen.returncode != 0 and not seen.stdout
        assert files_for_others(native.home.data) == []
        assert not holds("\n".join([*native.reported, *deploy.last_lines(native.store, 500)]).encode())
        logs = [
            path
            for path in native.home.data.rglob("*")
            if path.is_file() and (".log" in path.name or "audit" in path.name)
        ]
        assert logs and not [path for path in logs if holds(read(path))]
    finally:
        deploy.down(native.store)

"""What is refused before anything changes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from onecat.deploy import preflight
from onecat.deploy.server import Secret
from onecat.errors import ExitCode, OnecatError


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OnecatError) as raised:
            preflight.check_port("127.0.0.1", port, "proxy.listen")
    assert raised.value.found == f"port {port} is in use"
    assert raised.value.where == f"127.0.0.1:{port} (proxy.listen)"
    assert raised.value.code == ExitCode.ROLLED_BACK
    preflight.check_port("127.0.0.1", port, "port")


def test_an_address_this_machine_does_not_have() -> None:
    with pytest.raises(OnecatError, match="this machine has no address 192.0.2.77"):
        preflight.check_port("192.0.2.77", 18000, "host")


def test_a_missing_model_directory(tmp_path: Path) -> None:
    with pytest.raises(OnecatError) as raised:
        preflight.check_model(tmp_path / "nothing")
    assert raised.value.code == ExitCode.USAGE


def test_a_truncated_safetensors_file(tmp_path: Path) -> None:
    from onecat.checkpoints import write_tiny_checkpoint

    write_tiny_checkpoint(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(OnecatError) as raised:
        preflight.check_model(tmp_path)
    assert raised.value.where == str(weights)
    assert raised.value.code == ExitCode.USAGE
    assert raised.value.next_steps


def test_a_file_the_containers_user_cannot_read(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.touch(mode=0o600)
    tmp_path.chmod(0o755)
    owner = weights.stat().st_uid
    preflight.check_readable_in_container(tmp_path, (owner, 12345))
    with pytest.raises(OnecatError, match="runs as user 54321 and could not read model.safetensors"):
        preflight.check_readable_in_container(tmp_path, (54321, 54321))
    weights.chmod(0o644)
    preflight.check_readable_in_container(tmp_path, (54321, 54321))


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_text("abc\n")
    monkeypatch.setenv("MY_KEY", "def")
    assert preflight.read_secret(Secret(file=str(key))) == "abc"
    assert preflight.read_secret(Secret(env="MY_KEY")) == "def"
    assert preflight.read_secret(None) is None


@pytest.mark.parametrize("secret", [Secret(file="/nonexistent/key"), Secret(env="ONECAT_NO_SUCH_VARIABLE")])
def test_a_key_that_is_not_there_is_refused(secret: Secret) -> None:
    with pytest.raises(OnecatError, match="the API key"):
        preflight.read_secret(secret)

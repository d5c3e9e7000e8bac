"""What is refused before anything changes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from onecat.config.schema import Deployment
from onecat.deploy import prerequisites
from onecat.deploy.server import Secret
from onecat.errors import ExitCode, OnecatError
from onecat.hosts import LocalMachine
from onecat.planner.records import ContainerPlan, HostMount

HERE = LocalMachine(Path("/nonexistent"))


def test_a_port_in_use_is_named_with_its_setting() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OnecatError) as raised:
            prerequisites.check_port(HERE, "127.0.0.1", port, "proxy.listen")
    assert raised.value.found == f"port {port} is in use"
    assert raised.value.where == f"127.0.0.1:{port} (proxy.listen)"
    assert raised.value.code == ExitCode.ROLLED_BACK
    prerequisites.check_port(HERE, "127.0.0.1", port, "port")


def test_a_missing_file_of_tls_is_told_with_its_key_before_nginx_stumbles_over_it(tmp_path: Path) -> None:
    certificate, key = tmp_path / "models.pem", tmp_path / "models.key"
    certificate.touch()

    def deployment(tls: dict[str, str] | None) -> Deployment:
        return Deployment.model_validate(
            {"name": "a", "profile": "cpu", "model": {"path": "/m"}, "proxy": {"tls": tls}}
        )

    asked = deployment({"certificate": str(certificate), "key": str(key)})
    with pytest.raises(OnecatError) as raised:
        prerequisites.check_tls(HERE, asked)
    assert (raised.value.found, raised.value.where) == (f"{key} does not exist on this machine", "proxy.tls.key")
    key.touch()
    prerequisites.check_tls(HERE, asked)
    prerequisites.check_tls(HERE, deployment(None))


def accelerator(*devices: str, mounts: tuple[str, ...] = ()) -> ContainerPlan:
    return ContainerPlan("image", "/models/m", 2**30, 0, devices, tuple(HostMount(path, path) for path in mounts))


def test_missing_files_of_the_driver_are_told_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(OnecatError) as raised:
        prerequisites.check_accelerator_files(
            HERE, "ascend910b", accelerator("/dev/null", "/dev/davinci0", mounts=("/no/dcmi",))
        )
    assert raised.value.found == "the accelerator's driver is not all here: /dev/davinci0 does not exist"
    assert raised.value.details == ("also missing: /no/dcmi",)
    assert raised.value.next_steps == ("onecat doctor --profile ascend910b",)


def test_device_nodes_of_root_alone_are_told_and_those_of_all_users_are_fine(tmp_path: Path) -> None:
    prerequisites.check_accelerator_files(HERE, "ascend910b", accelerator("/dev/null", mounts=(str(tmp_path),)))
    assert prerequisites.groups_of(HERE, ("/dev/null",)) == ()
    node = tmp_path / "davinci0"
    node.touch(0o600)
    with pytest.raises(OnecatError, match="only root may use"):
        prerequisites.check_accelerator_files(HERE, "ascend910b", accelerator(str(node)))


def test_an_address_this_machine_does_not_have() -> None:
    with pytest.raises(OnecatError, match="this machine has no address 192.0.2.77"):
        prerequisites.check_port(HERE, "192.0.2.77", 18000, "host")


def test_a_missing_model_directory(tmp_path: Path) -> None:
    with pytest.raises(OnecatError) as raised:
        prerequisites.check_model(HERE, str(tmp_path / "nothing"))
    assert raised.value.code == ExitCode.USAGE


def test_a_truncated_safetensors_file(tmp_path: Path) -> None:
    from onecat.checkpoints import write_tiny_checkpoint

    write_tiny_checkpoint(tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    with pytest.raises(OnecatError) as raised:
        prerequisites.check_model(HERE, str(tmp_path))
    assert raised.value.where == str(weights)
    assert raised.value.code == ExitCode.USAGE
    assert raised.value.next_steps


def test_a_file_the_containers_user_cannot_read(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.touch(mode=0o600)
    tmp_path.chmod(0o755)
    owner = weights.stat().st_uid
    prerequisites.check_readable_in_container(HERE, str(tmp_path), (owner, 12345))
    with pytest.raises(OnecatError, match="runs as user 54321 and could not read model.safetensors"):
        prerequisites.check_readable_in_container(HERE, str(tmp_path), (54321, 54321))
    weights.chmod(0o644)
    prerequisites.check_readable_in_container(HERE, str(tmp_path), (54321, 54321))


def test_a_snapshot_of_the_hugging_face_cache_is_refused_for_a_container(tmp_path: Path) -> None:
    blob = tmp_path / "blobs" / "0123abcd"
    snapshot = tmp_path / "snapshots" / "main"
    for directory in (blob.parent, snapshot):
        directory.mkdir(parents=True)
    blob.write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/0123abcd")
    with pytest.raises(OnecatError) as raised:
        prerequisites.check_readable_in_container(HERE, str(snapshot), (blob.stat().st_uid, 0))
    assert raised.value.found == "config.json is a link to ../../blobs/0123abcd, which the container does not see"
    assert raised.value.code == ExitCode.USAGE
    assert raised.value.next_steps[0].startswith(f"cp -rL {snapshot} ")
    assert "runtime: native" in raised.value.next_steps[1]


def test_links_that_stay_in_the_models_directory_are_fine(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "a").write_text("{}")
    (model / "b").symlink_to("a")
    (tmp_path / "by-link").symlink_to(model)
    owner = (model.stat().st_uid, model.stat().st_gid)
    prerequisites.check_readable_in_container(HERE, str(tmp_path / "by-link"), owner)
    (model / "c").symlink_to(model / "a")
    with pytest.raises(OnecatError, match="c is a link to"):
        prerequisites.check_readable_in_container(HERE, str(model), owner)


@pytest.mark.parametrize("address", ["tcp://10.0.0.1:2376", "ssh://me@gpu1", "tcp://127.0.0.1:2375"])
def test_a_docker_daemon_that_may_be_elsewhere_is_refused(address: str) -> None:
    with pytest.raises(OnecatError) as raised:
        prerequisites.check_docker_host(address)
    assert raised.value.found == f"the Docker daemon at {address} may be on another machine"
    assert raised.value.code == ExitCode.USAGE
    prerequisites.check_docker_host("unix:///run/user/1000/docker.sock")


def test_the_keys_file_is_meant_from_where_onecat_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deployment(**secrets: object) -> Deployment:
        return Deployment.model_validate(
            {"name": "demo", "profile": "cpu", "model": {"path": "/models/tiny"}, "secrets": secrets}
        )

    monkeypatch.chdir(tmp_path)
    assert prerequisites.secret_of(deployment()) is None
    assert prerequisites.secret_of(deployment(api_key={"file": "key"})) == Secret(file=str(tmp_path / "key"))
    assert prerequisites.secret_of(deployment(api_key={"env": "MY_KEY"})) == Secret(env="MY_KEY")


def test_keys_come_from_a_file_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_text("abc\n")
    monkeypatch.setenv("MY_KEY", "def")
    assert prerequisites.read_secret(Secret(file=str(key))) == "abc"
    assert prerequisites.read_secret(Secret(env="MY_KEY")) == "def"
    assert prerequisites.read_secret(None) is None


@pytest.mark.parametrize("secret", [Secret(file="/nonexistent/key"), Secret(env="ONECAT_NO_SUCH_VARIABLE")])
def test_a_key_that_is_not_there_is_refused(secret: Secret) -> None:
    with pytest.raises(OnecatError, match="the API key"):
        prerequisites.read_secret(secret)

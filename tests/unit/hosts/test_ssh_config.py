"""What ~/.ssh/config makes of a host, from files as people have them."""

from __future__ import annotations

import getpass
from pathlib import Path

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.hosts import Target, parse_target
from onecat.hosts.ssh_config import SshConfiguration, SshSettings


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def settings(home: Path, text: str, target: str = "gpu1", system: str = "") -> SshSettings:
    (home / ".ssh" / "config").write_text(text)
    (home / "system_config").write_text(system)
    files = (home / ".ssh" / "config", home / "system_config")
    return SshConfiguration.read(files, home).settings(parse_target(target))


def test_without_a_configuration_everything_is_as_ssh_has_it(home: Path) -> None:
    found = SshConfiguration.read((home / "absent",), home).settings(parse_target("gpu1"))
    assert (found.address, found.port, found.user) == ("gpu1", 22, getpass.getuser())
    assert found.identities == tuple(home / ".ssh" / name for name in ("id_ed25519", "id_ecdsa", "id_rsa"))
    assert found.known_hosts_files[:2] == (home / ".ssh" / "known_hosts", home / ".ssh" / "known_hosts2")
    assert found.known_as == ("gpu1", 22)
    assert (found.jumps, found.proxy_command, found.connect_timeout, found.strict) == ((), (), None, "yes")
    assert found.password and not found.identities_only and found.agent == ""


def test_an_alias_is_resolved(home: Path) -> None:
    found = settings(
        home,
        "Host gpu*\n  HostName %h.example.org\n  Port 2222\n  User ops\n  IdentityFile ~/.ssh/one\n"
        "  IdentityFile /keys/two\n  IdentitiesOnly yes\n  ConnectTimeout 3\n  UserKnownHostsFile ~/.ssh/kh\n"
        "  GlobalKnownHostsFile none\n  IdentityAgent none\n  PasswordAuthentication no\n",
    )
    assert (found.address, found.port, found.user) == ("gpu1.example.org", 2222, "ops")
    assert found.identities == (home / ".ssh" / "one", Path("/keys/two"))
    assert found.identities_only and found.agent is None and not found.password
    assert found.connect_timeout == 3
    assert found.known_hosts_files == (home / ".ssh" / "kh",)
    assert found.known_as == ("gpu1.example.org", 2222)


def test_what_the_person_wrote_stands_before_the_configuration(home: Path) -> None:
    found = settings(home, "Host *\n  User ops\n  Port 2222\n", "root@gpu1:22")
    assert (found.user, found.port) == ("root", 22)


def test_the_users_file_stands_before_the_systems(home: Path) -> None:
    found = settings(home, "Host gpu1\n  User ops\n", system="User other\nPort 2200\n")
    assert (found.user, found.port) == ("ops", 2200)


def test_a_key_alias_has_no_port(home: Path) -> None:
    assert settings(home, "HostKeyAlias rack7\nPort 2222\n").known_as == ("rack7", 22)


def test_jump_hosts_come_in_their_order(home: Path) -> None:
    found = settings(home, "ProxyJump ops@bastion:2222,ssh://inner\nProxyCommand nc %h %p\n")
    assert found.jumps == (
        Target("ops@bastion:2222", "bastion", "ops", 2222),
        Target("ssh://inner", "inner"),
    )
    assert found.proxy_command == ()
    assert settings(home, "ProxyJump none\n").jumps == ()


def test_a_proxy_command_is_a_program_with_arguments(home: Path) -> None:
    assert settings(home, "ProxyCommand exec nc -X 5 %h %p\n").proxy_command == ("nc", "-X", "5", "gpu1", "22")
    assert settings(home, "ProxyCommand none\n").proxy_command == ()


@pytest.mark.parametrize("command", ["ssh bastion nc %h %p 2>/dev/null", "a | b", "$(x)", "`x`", "a; b", "'"])
def test_a_proxy_command_that_needs_a_shell_is_refused(home: Path, command: str) -> None:
    with pytest.raises(OnecatError, match="needs a shell") as caught:
        settings(home, f"ProxyCommand {command}\n")
    assert caught.value.code is ExitCode.USAGE


def test_included_files_are_read_where_they_stand(home: Path) -> None:
    (home / ".ssh" / "conf.d").mkdir()
    (home / ".ssh" / "conf.d" / "a.conf").write_text("Host gpu1\n  Port 2201\n")
    (home / ".ssh" / "conf.d" / "b.conf").write_text("Host gpu2\n  Port 2202\n")
    text = "Include conf.d/*.conf\nUser ops\nHost gpu2\n  Include ~/absent\n  User root\n"
    assert settings(home, text).port == 2201
    assert settings(home, text).user == "ops"
    assert settings(home, text, "gpu2").port == 2202


def test_files_that_include_each_other_come_to_an_end(home: Path) -> None:
    assert settings(home, "Port 2201\nInclude config\n").port == 2201


@pytest.mark.parametrize(
    ("patterns", "port"), [("gpu1", 2222), ("gpu2 gpu?", 2222), ("gpu2", 22), ("gpu* !gpu1", 22), ("* !gpu2", 2222)]
)
def test_names_and_patterns_of_blocks(home: Path, patterns: str, port: int) -> None:
    assert settings(home, f"Host {patterns}\n  Port 2222\n").port == port


def test_the_system_is_asked_for_no_name_that_nothing_needs(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("socket.getfqdn", lambda: asked.append("name") or "operator.example.org")
    found = settings(home, "Host gpu1\n  IdentityFile ~/.ssh/one\n  IdentityFile /keys/two\n")
    assert found.identities == (home / ".ssh" / "one", Path("/keys/two")) and not asked
    assert settings(home, "Host *\n  IdentityFile /keys/%l\n").identities == (Path("/keys/operator.example.org"),)


def test_a_match_that_cannot_be_judged_fits_no_host(home: Path) -> None:
    text = "Match localnetwork 192.0.2.0/24\n  Port 2222\nMatch host gpu1\n  User ops\n"
    assert (settings(home, text).port, settings(home, text).user) == (22, "ops")


def test_match_exec_is_refused_and_never_run(home: Path) -> None:
    with pytest.raises(OnecatError, match="Match exec"):
        settings(home, f'Match exec "touch {home}/was-run"\n  Port 2222\n')
    assert not (home / "was-run").exists()


@pytest.mark.parametrize("text", ["Port twenty\n", "ConnectTimeout soon\n", "ProxyJump a b\n", "Nonsense\n"])
def test_a_value_that_cannot_be_used_is_a_mistake_of_the_configuration(home: Path, text: str) -> None:
    with pytest.raises(OnecatError) as caught:
        settings(home, text)
    assert caught.value.code is ExitCode.USAGE

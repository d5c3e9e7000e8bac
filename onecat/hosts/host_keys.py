"""Whether a host is the one it should be: its key against known_hosts, and what to do when it is not known there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import ExitCode, OnecatError
from onecat.hosts.known_hosts import Judgement, KnownHosts, fingerprint, name_in_file

if TYPE_CHECKING:
    from paramiko import PKey

    from onecat.hosts.ssh_config import SshSettings
    from onecat.hosts.target import Target


def check_host_key(key: PKey, target: Target, settings: SshSettings, known_hosts: KnownHosts) -> None:
    """Raise OnecatError (exit code 3) when a host has shown a key that is not known to be its own.

    `StrictHostKeyChecking accept-new` adds the key of a new host to the first known_hosts file, as ssh does. `no` is
    not followed: a host that is not known is refused.
    """
    name, port = settings.known_as
    judgement = known_hosts.judge(name, port, key.get_name(), key.asbytes())
    if judgement.verdict == "known":
        return
    if judgement.verdict == "unknown" and settings.strict == "accept-new":
        _add(settings.known_hosts_files[0], f"{name_in_file(name, port)} {key.get_name()} {key.get_base64()}\n")
        return
    raise _refusal(judgement, key, target, settings)


def _refusal(judgement: Judgement, key: PKey, target: Target, settings: SshSettings) -> OnecatError:
    name = name_in_file(*settings.known_as)
    kind = key.get_name().removeprefix("ssh-")
    file = settings.known_hosts_files[0] if settings.known_hosts_files else Path.home() / ".ssh" / "known_hosts"
    shown = f"shown now:  {fingerprint(key.asbytes())} ({kind})"
    listed = [f"known_hosts: {fingerprint(each.key)} ({each.key_type}) in {each.place}" for each in judgement.lines]
    key_file = f"/etc/ssh/ssh_host_{kind.partition('-')[0]}_key.pub"
    compare = f"on the console of {target.text}, compare: ssh-keygen -lf {key_file}"
    expected = "the key that known_hosts has for it"
    if judgement.verdict == "revoked":
        found = "the host shows a key that known_hosts marks as revoked"
        steps = ["give the host a new key, or find out who answers in its place"]
    elif judgement.verdict == "changed":
        found = "the host's key is not the one in known_hosts: it was installed anew, or another machine answers for it"
        lines_file = judgement.lines[0].file
        steps = [
            compare,
            f"if it is the same: ssh-keygen -f {lines_file} -R '{name}'",
            f"then take the new one, which ssh asks about: ssh {target.ssh_words} true",
        ]
    else:
        found = "the host's key is not in known_hosts"
        if judgement.has_authority:
            found += "; the certificate authority there cannot be used by onecat"
        elif settings.strict in ("no", "off"):
            found += ", and onecat does not follow `StrictHostKeyChecking no`"
        expected = f"a line for {name} in {file}"
        steps = [
            compare,
            f"if it is the same, let ssh add it: ssh {target.ssh_words} true",
            f"for many hosts: ssh-keyscan {_keyscan_words(settings)} >> {file}",
            f"and compare each of them, too: ssh-keygen -lf {file}",
        ]
    return OnecatError(
        found,
        expected=expected,
        where=target.text,
        details=[shown, *listed],
        next_steps=steps,
        code=ExitCode.UNREACHABLE,
    )


def _keyscan_words(settings: SshSettings) -> str:
    return settings.address if settings.port == 22 else f"-p {settings.port} {settings.address}"


def _add(file: Path, line: str) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as stream:
        stream.write(line)

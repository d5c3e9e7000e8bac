"""What ~/.ssh/config and the system's ssh_config say about a host.

The matching is paramiko's; `Include`, which it does not know, is put in place before. Where both files have a value the
user's stands, as in ssh_config(5): https://man.openbsd.org/ssh_config
"""

from __future__ import annotations

import getpass
import glob
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.errors import OnecatError
from onecat.hosts.target import Target, parse_target

if TYPE_CHECKING:
    from paramiko.config import SSHConfig, SSHConfigDict

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
SYSTEM_KNOWN_HOSTS = (Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2"))
DEFAULT_IDENTITIES = ("id_ed25519", "id_ecdsa", "id_rsa")
DEEPEST_INCLUDE = 16
"""Files within files that ssh reads (READCONF_MAX_DEPTH in its readconf.h)."""

_JUDGED = {"all", "canonical", "final", "host", "originalhost", "user", "localuser", "exec"}


@dataclass(frozen=True)
class SshSettings:
    """How one host is reached, after ~/.ssh/config.

    identities: files of private keys to try. are_identities_given: whether the configuration names them.
    identities_only: try no other key, also of the agent. agent: its socket, None for none, "" for SSH_AUTH_SOCK's.
    jumps: hosts to go through, first one first. proxy_command: a program to talk through, as arguments.
    known_as: the name and port by which known_hosts has it. strict: the word of StrictHostKeyChecking.
    connect_timeout: seconds, None when not set. password: whether a password may be asked for.
    """

    address: str
    port: int
    user: str
    identities: tuple[Path, ...]
    are_identities_given: bool
    identities_only: bool
    agent: str | None
    jumps: tuple[Target, ...]
    proxy_command: tuple[str, ...]
    known_hosts_files: tuple[Path, ...]
    known_as: tuple[str, int]
    strict: str
    connect_timeout: float | None
    password: bool


class SshConfiguration:
    """The configuration files of this machine's user, read once for a whole run."""

    def __init__(self, config: SSHConfig, home: Path) -> None:
        self._config = config
        self._home = home

    @classmethod
    def read(cls, files: Sequence[Path], home: Path) -> SshConfiguration:
        """Read the files that exist, first one first. Raises OnecatError (exit code 2) when one cannot be read."""
        from paramiko.ssh_exception import ConfigParseError

        lines = [line for file in files if file.exists() for line in ("Host *", *_lines(file, home, 0))]
        try:
            return cls(_config_class().from_text("\n".join(lines)), home)
        except (ConfigParseError, ValueError) as error:
            raise OnecatError(
                f"the configuration of ssh cannot be read: {error}",
                where=", ".join(str(file) for file in files if file.exists()),
                next_steps=["see what ssh says of it: ssh -G localhost"],
            ) from error

    @classmethod
    def of_this_user(cls) -> SshConfiguration:
        """The configuration that `ssh` would use."""
        home = Path.home()
        return cls.read((home / ".ssh" / "config", SYSTEM_CONFIG), home)

    def settings(self, target: Target) -> SshSettings:
        """How to reach a host. Raises OnecatError (exit code 2) when a value of the configuration cannot be used."""
        found = self._look_up(target.host)
        port = target.port or int(_number(found, "port", "22"))
        given = tuple(Path(each) for each in found.get("identityfile", ()) if each.lower() != "none")
        known_hosts = _words(found.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2"))
        system_files = _words(found.get("globalknownhostsfile", "")) or [str(file) for file in SYSTEM_KNOWN_HOSTS]
        alias = found.get("hostkeyalias")
        address = found.get("hostname", target.host)
        timeout = found.get("connecttimeout", "none")
        jump = found.get("proxyjump", "none")
        command = found.get("proxycommand")
        return SshSettings(
            address=address,
            port=port,
            user=target.user or found.get("user") or getpass.getuser(),
            identities=given or tuple(self._home / ".ssh" / name for name in DEFAULT_IDENTITIES),
            are_identities_given=bool(given),
            identities_only=found.get("identitiesonly", "no").lower() == "yes",
            agent=self._agent(found),
            jumps=() if jump.lower() == "none" else tuple(parse_target(each.strip()) for each in jump.split(",")),
            proxy_command=_proxy_command(command, target) if command and jump.lower() == "none" else (),
            known_hosts_files=tuple(self._path(word) for word in (*known_hosts, *system_files) if word != "none"),
            known_as=(alias, 22) if alias else (address, port),
            strict=found.get("stricthostkeychecking", "yes").lower(),
            connect_timeout=None if timeout.lower() == "none" else _number(found, "connecttimeout", "0") or None,
            password=found.get("passwordauthentication", "yes").lower() != "no"
            and found.get("batchmode", "no").lower() != "yes",
        )

    def _look_up(self, name: str) -> SSHConfigDict:
        from paramiko.ssh_exception import CouldNotCanonicalize

        try:
            return self._config.lookup(name)
        except (CouldNotCanonicalize, ValueError, KeyError) as error:
            raise OnecatError(f"the configuration of ssh cannot be used for {name}: {error}") from error

    def _agent(self, found: SSHConfigDict) -> str | None:
        value = found.get("identityagent", "")
        if value.lower() == "none":
            return None
        return "" if value in ("", "SSH_AUTH_SOCK") else str(self._path(value))

    def _path(self, word: str) -> Path:
        return self._home / word[2:] if word.startswith("~/") else Path(word.replace("%d", str(self._home)))


def _config_class() -> type[SSHConfig]:
    from paramiko.config import SSHConfig

    class Config(SSHConfig):
        """Does not run the commands of `Match exec`, which paramiko would do where the package invoke is there."""

        def _does_match(self, match_list: list[object], *rest: object) -> object:
            # A Host block has no conditions; paramiko would ask the system for the user's name before it sees that.
            return super()._does_match(match_list, *rest) if match_list else []  # type: ignore[misc]

        def _pattern_matches(self, patterns: str | Sequence[str], target: str) -> bool:
            # paramiko would look for a regular expression for each plain name of a long file, for each host.
            words = patterns.split(",") if isinstance(patterns, str) else patterns
            possible = [word for word in words if word == target or any(each in word for each in "*?[!")]
            return bool(possible) and bool(super()._pattern_matches(possible, target))  # type: ignore[misc]

        def _tokenize(self, config: SSHConfigDict, target_hostname: str, key: str, value: str) -> str:
            if key == "match-exec":
                raise OnecatError(
                    f"the configuration of ssh has `Match exec {value}`, which onecat does not run",
                    next_steps=["write that part as a `Host` block"],
                )
            if "%" not in value:
                # paramiko would ask the system for this machine's full name, which may take seconds, for each host.
                is_path = "~" in self._allowed_tokens(key)  # type: ignore[attr-defined]
                return value.replace("~", str(Path.home())) if is_path else value
            tokens: str = super()._tokenize(config, target_hostname, key, value)  # type: ignore[misc]
            return tokens

    return Config


def _number(found: SSHConfigDict, key: str, otherwise: str) -> float:
    value = str(found.get(key, otherwise))
    seconds = re.fullmatch(r"(\d+)([sm]?)", value)
    if seconds is None:
        raise OnecatError(
            f"the configuration of ssh has {value!r} for {key}",
            expected="a number",
            next_steps=[f"correct it, or see where it comes from: ssh -v {found.get('hostname', 'HOST')}"],
        )
    return int(seconds[1]) * (60 if seconds[2] == "m" else 1)


def _words(text: str) -> list[str]:
    return shlex.split(text)


def _proxy_command(text: str, target: Target) -> tuple[str, ...]:
    try:
        argv = shlex.split(text)
    except ValueError:
        argv = []
    argv = argv[1:] if argv[:1] == ["exec"] else argv
    if not argv or re.search(r"[|&;<>$`()\n]", text):
        raise OnecatError(
            f"the ProxyCommand of {target.text} needs a shell, which onecat does not start: {text}",
            expected="a program with its arguments, or ProxyJump",
            next_steps=["put the command into a script and name that as the ProxyCommand"],
        )
    return tuple(argv)


def _lines(file: Path, home: Path, depth: int) -> Iterator[str]:
    """The lines of a file with those of the included ones; after these goes on the block they stand in."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OnecatError(f"the configuration of ssh cannot be read: {error.strerror}", where=str(file)) from error
    block = "Host *"
    for line in text.splitlines():
        word, value = _setting(line)
        if word == "include" and depth < DEEPEST_INCLUDE:
            for included in _included(value, file, home):
                yield from _lines(included, home, depth + 1)
            yield block
        elif word in ("host", "match"):
            block = line if word == "host" or _can_be_judged(value) else "Host !*"
            yield block
        elif word != "include":
            yield line


def _setting(line: str) -> tuple[str, str]:
    found = re.fullmatch(r"\s*(\w+)(?:\s*=\s*|\s+)(.+?)\s*", line)
    return (found[1].lower(), found[2]) if found else ("", "")


def _included(patterns: str, file: Path, home: Path) -> Iterator[Path]:
    folder = home / ".ssh" if home in file.parents else SYSTEM_CONFIG.parent
    for word in _words(patterns):
        path = home / word[2:] if word.startswith("~/") else folder / word
        yield from (Path(each) for each in sorted(glob.glob(str(path))))  # noqa: PTH207 - the pattern may be absolute


def _can_be_judged(conditions: str) -> bool:
    """Whether paramiko knows every condition of a Match line: it takes one that it does not know for fulfilled."""
    words = _words(conditions)
    while words:
        keyword = words.pop(0).lower().lstrip("!")
        if keyword not in _JUDGED:
            return False
        if keyword not in ("all", "canonical", "final") and words:
            words.pop(0)
    return True

"""Takes out of facts and logs what tells whose machine it is, and every secret, before they are shown to strangers.

Names and addresses become pseudonyms, the same one wherever the same name stands, so that relations stay: host1, user1,
ip1, mac1, GPU-1, dir1. Secrets become [redacted]. What is kept is kept by lists of what is known to be harmless: PCI
addresses, port numbers, loopback addresses, versions, system paths, names of modules and files of known software.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import ipaddress
import re
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal

from onecat.facts import Facts
from onecat.knowledge.tables import table
from onecat.observe.secrets import SECRET, without_secrets

_ANCHORS = frozenset(("site-packages", "dist-packages", "vllm-workspace"))
_HOMES = frozenset(("home", "Users"))

_EMAIL = re.compile(r"(?<![\w.+-])[\w.+%-]+@(?!sha256:)[\w-]+(?:\.[\w-]+)*(?![\w@])(?::[\w./~-]+\.git\b)?")
_UUID = re.compile(
    r"\b(?P<kind>(?:MIG-)?GPU-|MIG-)[0-9A-Fa-f][0-9A-Fa-f-]{6,}(?:/\d+/\d+)?"
    r"|\b[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\b"
)
_MAC = re.compile(
    r"(?<![\w-])(?:[0-9A-Fa-f]{2}:){5,19}[0-9A-Fa-f]{2}(?!\w)|(?<![\w-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w-])"
    r"|\benx[0-9a-f]{12}\b"
)
_IPV4 = re.compile(r"(?<![\w.])(?<!==)(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\w|-microsoft)")
_IPV6 = re.compile(r"(?<![\w.])(?:[0-9A-Fa-f]{0,4}:){2,8}(?:[0-9A-Fa-f]{0,4}|(?:\d{1,3}\.){3}\d{1,3})(?:%\w+)?(?!\w)")
_HOME_PATH = re.compile(r"/(?:home|Users)/[^\s'\":,;()<>|]+")
_PATH = re.compile(r"(?<![\w./~<-])/(?:[\w.+@%,=~-]+/)*[\w.+@%,=~-]+/?")
_USER_NAMES = re.compile(
    r"(?:(?<![\w.])~|/(?:home|Users)/|\b(?:USER|LOGNAME|SUDO_USER|USERNAME|user)=|\bacct=\"|\buid=\d+\("
    r"|\bfor (?:invalid )?user )"
    r"([A-Za-z_][\w.-]{0,31})|\bfor ([A-Za-z_][\w.-]{0,31}) from [\d\[]"
)
_HOST_NAMES = re.compile(
    r"(?m)^(?:<\d+>)?(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) ([\w.-]+) [\w./()-]+(?:\[\d+\])?:"
    r"|\b(?:HOSTNAME|NodeName|nodename)[=:] ?([\w.-]+)|^Linux ([\w.-]+) \d+\.\d+\.\d+|\b(ip-\d+-\d+-\d+-\d+)\b"
)
_DOTTED = re.compile(r"(?:(?<![\w.@%/+~-])|(?<=[,=*]\.))[A-Za-z0-9][\w-]*(?:\.[\w-]+)*\.[A-Za-z][\w-]*(?![\w(])")
_SERIAL = re.compile(r"(?i)\b(serial(?:[ _-]*(?:number|no|num))?['\"]?\s*[:=#]?\s*)['\"]?([A-Z0-9][A-Z0-9-]{3,})")
_LONG_NUMBER = re.compile(r"(?<![\w.])\d{13,}(?![\w.])")
_LONG_WORD = re.compile(r"[A-Za-z0-9_+=-]{16,}")
_FORTY = re.compile(r"(?<![A-Za-z0-9/+=])(?!/)[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_PSEUDONYM = re.compile(r"(?:host|user|ip|mac|uuid|email|dir|id|serial|container)\d+")


def _harmless(kind: str) -> frozenset[str]:
    """Words that tell nothing of whose machine it is, by the lists of knowledge/harmless_words.yaml."""
    return _harmless_words()[kind]


@functools.cache
def _harmless_words() -> dict[str, frozenset[str]]:
    return {kind: frozenset(words.split()) for kind, words in table("harmless_words.yaml").items()}


class Redactor:
    """Knows the names on one host and gives each its pseudonym.

    Parameters:
        hosts, users: names that are known; names of homes and those that begin lines of a system log are found.
        texts: all that will be redacted, so that a name found in one text is not left in another.
    """

    def __init__(self, hosts: Iterable[str] = (), users: Iterable[str] = (), texts: Iterable[str] = ()) -> None:
        self._pseudonyms: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._siblings: set[str] = set()
        for host in hosts:
            login, _, name = host.rpartition("@")
            self._learn("user", login.removeprefix("ssh://"))
            self._learn("host", _bare_host(name))
        for user in users:
            self._learn("user", user)
        for text in texts:
            for found in _USER_NAMES.finditer(text):
                self._learn("user", found[1] or found[2])
            for found in _HOST_NAMES.finditer(text):
                self._learn("host", next(filter(None, found.groups())))

    def text(self, text: str) -> str:
        """A text without secrets, names and addresses."""
        text = without_secrets(text, self._url)
        text = _EMAIL.sub(self._email, text)
        text = _UUID.sub(self._uuid, text)
        text = _MAC.sub(lambda found: self._pseudonym("mac", found[0].lower()), text)
        text = _IPV6.sub(self._address, text)
        text = _IPV4.sub(self._address, text)
        text = _SERIAL.sub(self._serial, text)
        text = _HOME_PATH.sub(self._path, text)
        text = _PATH.sub(self._path, text)
        text = _DOTTED.sub(self._dotted, text)
        text = self._known_names(text)
        text = _FORTY.sub(self._random, text)
        text = _LONG_WORD.sub(self._random, text)
        return _LONG_NUMBER.sub(lambda found: self._pseudonym("serial", found[0]), text)

    def version(self, text: str) -> str:
        """A version, whose four numbers are no address."""
        return (
            text if re.fullmatch(r"v?\d+(?:\.\d+){1,4}(?:[-+.]?(?:dev|post|rc|a|b|cu)\d+)*", text) else self.text(text)
        )

    def host(self, name: str) -> str:
        """A host's name, also as it is typed: with a user and a port."""
        bare = _bare_host(name.rpartition("@")[2]).lower()
        if bare in ("local", "localhost", "captures", "") or _PSEUDONYM.fullmatch(bare):
            return bare
        return self._names.get(bare) or self._pseudonym("host", bare)

    def user(self, name: str) -> str:
        """A user's name."""
        return name if name in _harmless("accounts") or _PSEUDONYM.fullmatch(name) else self._pseudonym("user", name)

    def container(self, name: str) -> str:
        """A container's name."""
        is_known = all(word in _harmless("words") or word.isdigit() for word in re.split(r"[-_.]", name.lower()))
        return name if is_known or _PSEUDONYM.fullmatch(name) else self._pseudonym("container", name)

    def image(self, name: str) -> str:
        """An image's name: without its registry's host, and of its path the parts that are known and the last one."""
        if not re.fullmatch(r"[\w.:/@+-]+", name):
            return self.text(name)
        *parents, last = name.split("/")
        if parents and ("." in parents[0] or ":" in parents[0] or parents[0] == "localhost"):
            host, colon, port = parents[0].partition(":")
            parents[0] = host if host == "localhost" else f"{self.host(host)}{colon}{port if port.isdigit() else ''}"
        kept = [
            part if part in _harmless("words") or _PSEUDONYM.match(part) else self._directory(part) for part in parents
        ]
        return "/".join([*kept, self.text(last)])

    def _learn(self, kind: str, name: str) -> None:
        name = name.strip()
        if not name or name in _harmless("accounts") or name.isdigit() or _PSEUDONYM.fullmatch(name):
            return
        pseudonym = self.host(name) if kind == "host" else self.user(name)
        if len(name) >= 3 and name.lower() not in _harmless("words"):
            self._names.setdefault(name.lower(), pseudonym)
            if kind == "host" and "." in name and not re.fullmatch(r"[\d.]+", name):
                self._names.setdefault(name.partition(".")[0].lower(), pseudonym)
            if kind == "host":
                self._learn_siblings(name.partition(".")[0].lower())

    def _learn_siblings(self, name: str) -> None:
        """Hosts of a fleet are numbered: what differs from a host in its numbers only is one too."""
        words = re.findall(r"[a-z]{4,}", name)
        if re.search(r"\d", name) and any(word not in _harmless("words") for word in words):
            self._siblings.add(re.sub(r"\d+", r"\\d+", re.escape(name)))

    def _pseudonym(self, kind: str, what: str) -> str:
        key = (kind, what)
        if key not in self._pseudonyms:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._pseudonyms[key] = f"{kind}{self._counts[kind]}"
        return self._pseudonyms[key]

    def _known_names(self, text: str) -> str:
        if not self._names:
            return text
        names = "|".join([*map(re.escape, sorted(self._names, key=len, reverse=True)), *sorted(self._siblings)])
        pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])", re.IGNORECASE)
        return pattern.sub(lambda found: self._names.get(found[0].lower()) or self.host(found[0]), text)

    def _url(self, found: re.Match[str]) -> str:
        host, port, rest = found["host"], found["port"] or "", found["rest"] or ""
        if found["scheme"] in ("unix", "file", "npipe"):
            return f"{found['scheme']}://" + (
                _PATH.sub(self._path, rest) if not host and not found["login"] else SECRET
            )
        login = f"{SECRET}@" if found["login"] else ""
        if host.lower() in _harmless("public_hosts") and not login:
            path = re.split(r"[?#]", rest)[0]
            return f"{found['scheme']}://{host}{port}{path}"
        bare = host.strip("[]")
        shown = host if _is_loopback(bare) else self._address_or_host(bare)
        segments = [part for part in re.split(r"[?#]", rest)[0].split("/") if part]
        path = "".join(f"/{part if part in _harmless('url_segments') else '...'}" for part in segments)
        return f"{found['scheme']}://{login}{shown}{port}{path}"

    def _address_or_host(self, name: str) -> str:
        if not name:
            return ""
        try:
            return self._pseudonym("ip", str(ipaddress.ip_address(name.partition("%")[0])))
        except ValueError:
            return self.host(name)

    def _email(self, found: re.Match[str]) -> str:
        name, _, rest = found[0].partition("@")
        is_unit = re.fullmatch(r"[\w-]+\.service|\d+(\.\w+)*", rest) is not None and name in _harmless(
            "words"
        ) | _harmless("accounts")
        return found[0] if is_unit else self._pseudonym("email", found[0].lower())

    def _uuid(self, found: re.Match[str]) -> str:
        kind = "MIG-" if (found["kind"] or "").startswith("MIG") else found["kind"]
        return self._pseudonym(kind or "uuid", found[0].lower())

    def _address(self, found: re.Match[str]) -> str:
        """An address; the colons around it, as in `from:2001:db8::1: refused`, belong to the text."""
        whole = found[0]
        for before, after in ((0, 0), (0, 1), (1, 0), (1, 1)):
            candidate = whole[before : len(whole) - after]
            colons = whole[:before], whole[len(whole) - after :]
            if "".join(colons).strip(":"):
                continue
            try:
                address = ipaddress.ip_address(candidate.partition("%")[0])
            except ValueError:
                continue
            if _is_loopback(str(address)):
                return whole
            return colons[0] + self._pseudonym("ip", str(address)) + colons[1]
        return whole

    def _serial(self, found: re.Match[str]) -> str:
        return found[0] if not re.search(r"\d", found[2]) else found[1] + self._pseudonym("serial", found[2])

    def _path(self, found: re.Match[str]) -> str:
        parts = found[0].split("/")
        names = [part for part in parts if part]
        if names[0] in _harmless("system_roots"):
            return "/".join(parts)
        shown: list[str] = []
        is_free = False
        for number, part in enumerate(parts):
            if is_free or not part:
                shown.append(part)
            elif number == 2 and parts[1] in _HOMES:
                shown.append(self.user(part))
            else:
                shown.append(part if _is_plain_part(part) else self._directory(part))
            is_free = is_free or part in _ANCHORS
        return "/".join(shown)

    def _directory(self, part: str) -> str:
        return self._pseudonym("dir", part)

    def _dotted(self, found: re.Match[str]) -> str:
        word = found[0]
        labels = word.lower().split(".")
        if word.lower() in _harmless("public_hosts"):
            return word
        is_version = all(label.isdigit() for label in labels[:-1])
        is_domain = labels[-1] in _harmless("domain_endings") and not is_version
        is_software = (
            labels[-1] in _harmless("extensions")
            or labels[0] in _harmless("modules")
            or labels[0][0].isdigit()
            or any("_" in label for label in labels)
        )
        return word if is_software and not is_domain else self.host(word)

    def _random(self, found: re.Match[str]) -> str:
        word = found[0]
        runs = re.findall(r"[A-Za-z0-9]+", word)
        for run in runs:
            digits = sum(character.isdigit() for character in run)
            if len(run) >= 16 and 2 <= digits < len(run):
                return self._pseudonym("id", word)
        if found.re is _FORTY and any(map(str.isdigit, word)) and not word.islower() and not word.isupper():
            return self._pseudonym("id", word)
        return word


def _bare_host(name: str) -> str:
    """A host's name without scheme and port."""
    return re.sub(r"(?<=[^:]):\d+$", "", name.removeprefix("ssh://"))


def _is_loopback(address: str) -> bool:
    if address.lower() == "localhost":
        return True
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return False
    return known.is_loopback or known.is_unspecified


def _is_plain_part(part: str) -> bool:
    """Whether a part of a path is the same on many machines."""
    stem, _, extension = part.rpartition(".")
    return (
        part.lower().strip(".") in _harmless("words")
        or part in _ANCHORS
        or _PSEUDONYM.fullmatch(part) is not None
        or re.fullmatch(r"python\d(\.\d+)?|model-\d+-of-\d+\.safetensors|\.\.?|share|\.local|root|home|Users", part)
        is not None
        or (extension in _harmless("extensions") and stem.lower() in _harmless("words"))
        or (extension in ("json", "txt", "jinja") and re.fullmatch(r"[a-z_]{3,24}", stem) is not None)
        or part in ("onecat.yaml", "Dockerfile")
    )


def redact_facts(facts: Facts, redactor: Redactor) -> Facts:
    """Facts without what tells whose host it is. Checks find the same in them."""
    return dataclasses.replace(
        typing.cast(Facts, _redact("facts", facts, redactor)),
        host=redactor.host(facts.host),
        user=None if facts.user is None else redactor.user(facts.user),
        schema=facts.schema,
        collected_at=facts.collected_at,
    )


def strings_of(value: Any) -> Iterator[str]:
    """Every text in a record, at any depth."""
    if isinstance(value, str):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from strings_of(getattr(value, field.name))
    elif isinstance(value, tuple):
        for each in value:
            yield from strings_of(each)


def _redact(name: str, value: Any, redactor: Redactor) -> Any:
    """A value of the field `name` with every text in it redacted."""
    if isinstance(value, str):
        return _FIELDS.get(name, Redactor.text)(redactor, value)
    if isinstance(value, tuple):
        if name in ("packages", "versions", "toolkits"):
            return tuple((redactor.text(first), redactor.version(second)) for first, second in value)
        if name == "environment":
            return tuple((redactor.text(first), _variable(first, second, redactor)) for first, second in value)
        return tuple(_redact(name, each, redactor) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fixed = _fixed_fields(type(value))
        names = _NAMES.get(type(value).__name__, {})
        changed = {
            field.name: names.get(field.name, functools.partial(_redact, field.name))(
                getattr(value, field.name), redactor
            )
            for field in dataclasses.fields(value)
            if field.name not in fixed
        }
        return dataclasses.replace(value, **changed)
    return value


def _variable(name: str, value: str, redactor: Redactor) -> str:
    is_secret = re.search(r"(?i)key|token|secret|passw|credential", name) is not None
    return SECRET if is_secret else redactor.text(value)


def _container_name(value: str, redactor: Redactor) -> str:
    return redactor.container(value)


def _command_line(redactor: Redactor, text: str) -> str:
    # What follows root=, ip= or a parameter of somebody's own has names in no form that could be known.
    return " ".join(_parameter(redactor, each) for each in text.split(" "))


def _parameter(redactor: Redactor, text: str) -> str:
    name, sign, value = text.partition("=")
    is_known = any(fnmatch.fnmatchcase(name, pattern) for pattern in _harmless("kernel_parameters"))
    if is_known:
        return f"{name}{sign}{redactor.text(value)}"
    is_plain = re.fullmatch(r"\d{0,5}|on|off|yes|no|y|n", value) is not None
    shown = ".".join(map(redactor.text, name.split("."))) if sign else redactor.text(name)
    return f"{shown}{sign}{value if is_plain else SECRET}"


_FIELDS = {
    "kernel_command_line": _command_line,
    "image": Redactor.image,
    "tags": Redactor.image,
    "where": Redactor.image,
}
_NAMES: dict[str, dict[str, Any]] = {"DockerContainer": {"name": _container_name}}


@functools.cache
def _fixed_fields(record: type[Any]) -> frozenset[str]:
    """The fields that hold one of a few words."""
    return frozenset(name for name, kind in typing.get_type_hints(record).items() if _is_literal(kind))


def _is_literal(kind: Any) -> bool:
    return typing.get_origin(kind) is Literal or any(map(_is_literal, typing.get_args(kind)))

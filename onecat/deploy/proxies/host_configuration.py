"""What `nginx -T` and `nginx -t` tell about the host's nginx. Pure functions of their output."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onecat.deploy.nginx_build import NginxBuild
from onecat.deploy.site import Site

_HEADER = re.compile(r"^# configuration file (.+):$", re.MULTILINE)
_BEGINS = r"(?:^|(?<=[;{}\s]))"
_INCLUDE = re.compile(rf"""{_BEGINS}include\s+["']?([^\s"']*conf\.d/\*\.conf)["']?\s*;""")
_COMMENT_OR_STRING = re.compile(r"""(?m)("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?:^|(?<=[;{}\s]))#.*$""")
_CONFLICT = re.compile(r'conflicting server name "([^"]*)" on (\S+), ignored')


@dataclass(frozen=True)
class Dump:
    """All files of an nginx. main: the path of nginx.conf; files: (path, text) in the order of their reading.

    include: the pattern of the include of conf.d, as it is written; site_directory: conf.d.
    """

    main: str
    files: tuple[tuple[str, str], ...]
    include: str
    site_directory: str

    def pid_path(self, build: NginxBuild) -> str:
        """Where the process id of the master stands."""
        return self._path("pid", build) or build.path("pid-path") or "/run/nginx.pid"

    def error_log(self, build: NginxBuild) -> str:
        """Where the master writes what it could not do."""
        return self._path("error_log", build) or build.path("error-log-path") or "/var/log/nginx/error.log"

    def _path(self, directive: str, build: NginxBuild) -> str | None:
        """The path that the first directive of this name has; the master's stand before those of sites."""
        pattern = re.compile(rf"{_BEGINS}{directive}\s+([^;\s]+)[^;]*;")
        found = next((each for _, text in self.files if (each := pattern.search(without_comments(text)))), None)
        if found is None:
            return None
        path = found[1].strip("\"'")
        return path if path.startswith("/") else f"{build.path('prefix') or '/etc/nginx'}/{path}"


@dataclass(frozen=True)
class Clash:
    """Another site that stands in the way. told: what it is; where: its file, or address."""

    told: str
    where: str
    name: str = ""


def parse_dump(text: str) -> Dump | None:
    """The files in the output of `nginx -T`; None when nginx.conf includes no conf.d."""
    parts = _HEADER.split(text)
    files = tuple((parts[at], parts[at + 1]) for at in range(1, len(parts) - 1, 2))
    if not files:
        return None
    main = files[0][0]
    found = _INCLUDE.search(without_comments(files[0][1]))
    if found is None:
        return None
    return Dump(main, files, found[1], posixpath.dirname(posixpath.join(posixpath.dirname(main), found[1])))


def with_included(dump: Dump, paths: Sequence[str]) -> str:
    """nginx.conf with these files in place of those of conf.d."""
    text = without_comments(dict(dump.files)[dump.main])
    includes = "\n".join(f"include {path};" for path in paths)
    return _INCLUDE.sub(lambda found: includes if found[1] == dump.include else found[0], text)


def conflicting_names(words: str) -> list[Clash]:
    """The names that nginx warns of: it lets in the first site of a name and leaves the others without requests."""
    return [
        Clash(f"another site of the host's nginx has the name {name} on {address} already", address, name)
        for name, address in _CONFLICT.findall(words)
    ]


def clashes(dump: Dump, site: Site, ours: str) -> list[Clash]:
    """Sites of others at the address of a site that has no name to tell it from them."""
    if site.server_name != "_":
        return []
    address, _, port = site.listen.rpartition(":")
    return [
        Clash(f"another site of the host's nginx listens on {listen} already, and ours has no server name", path)
        for path, text in dump.files
        if path != ours
        for listen in listens(text)
        if _meets(listen, address, port)
    ]


def listens(text: str) -> Iterator[str]:
    """ADDRESS:PORT of each `listen` in a file; `*` where it names no address."""
    for words in re.findall(rf"{_BEGINS}listen\s+([^;{{}}]+);", without_comments(text)):
        first = words.split()[0].strip("\"'")
        if first.startswith("unix:"):
            continue
        if first.isdigit():
            yield f"*:{first}"
        elif re.search(r":\d+$", first):
            yield first
        else:
            yield f"{first}:80"


def without_comments(text: str) -> str:
    """nginx's files as they count; a # in a string is none."""
    return _COMMENT_OR_STRING.sub(lambda found: found[1] or "", text)


def _meets(listen: str, address: str, port: str) -> bool:
    """Whether nginx tells the requests for two sites by their names alone.

    Where one of both listens on all addresses, nginx takes requests of the other's address away from it.
    """
    other, _, other_port = listen.rpartition(":")
    everywhere = {"*", "0.0.0.0", "[::]"}  # noqa: S104 - compared, not bound
    return port == other_port and (other == address or {other, address} <= everywhere)

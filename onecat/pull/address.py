"""Listing what is at an address: one file, a directory of a web server, or a manifest of checksums."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from onecat.errors import ExitCode, OnecatError
from onecat.pull import manifest
from onecat.pull.asking import Asker, Told
from onecat.pull.connection import version_of
from onecat.pull.index_page import read_index
from onecat.pull.names import check_together, checked_path
from onecat.pull.ranges import byte_count
from onecat.pull.records import Listing, RemoteFile
from onecat.pull.sources import UrlSource, origin, shown

MOST_DIRECTORIES = 500
MOST_FILES = 20_000


def list_address(source: UrlSource, asker: Asker) -> Listing:
    """The files at an address. Raises OnecatError when it is none of the three, or names must not become files.

    A file whose size nobody tells has none: some servers tell it only when the file is fetched.
    """
    url = source.url
    name = unquote(urlsplit(url).path.rpartition("/")[2])
    if manifest.is_manifest(name):
        return Listing(source.text, tuple(_of_manifest(url, asker)))
    if not urlsplit(url).path.endswith("/"):
        seen = asker.head(url)
        if not urlsplit(seen.url).path.endswith("/"):
            return Listing(source.text, (_with_size(RemoteFile(checked_path(name, source.text), url), seen),))
        url = seen.url
    if origin(url) != source.origin:
        raise OnecatError(
            f"the directory {source.text} is at another host: {shown(url)}", expected="the address of the directory"
        )
    files = _walk(urlunsplit(urlsplit(url)._replace(query="")), asker)
    check_together((each.path for each in files), source.text)
    return Listing(source.text, tuple(_checksums_of(files, asker)))


def _walk(top: str, asker: Asker) -> list[RemoteFile]:
    files: list[RemoteFile] = []
    waiting, seen = [("", top)], 0
    while waiting:
        prefix, url = waiting.pop(0)
        seen += 1
        told = asker.get(url)
        entries = read_index(url, told.headers.get("content-type", ""), told.body)
        if entries is None:
            raise OnecatError(
                f"{shown(url)} is no listing of a directory",
                expected="an index page as nginx, Apache or `python -m http.server` make it",
                next_steps=["name a manifest there, as .../SHA256SUMS, or the files one by one"],
                code=ExitCode.NO,
            )
        for entry in entries:
            path = checked_path(f"{prefix}{entry.name}", shown(url))
            if entry.is_directory:
                waiting.append((f"{path}/", entry.url))
            else:
                files.append(RemoteFile(path, entry.url, entry.size))
        if seen + len(waiting) > MOST_DIRECTORIES or len(files) > MOST_FILES:
            raise OnecatError(
                f"{shown(top)} has more than {MOST_DIRECTORIES} directories or {MOST_FILES} files",
                expected="the directory of one model",
                code=ExitCode.NO,
            )
    return _with_headers(files, asker)


def _with_headers(files: list[RemoteFile], asker: Asker) -> list[RemoteFile]:
    return [_with_size(file, told) for file, told in zip(files, asker.heads([each.url for each in files]), strict=True)]


def _with_size(file: RemoteFile, told: Told) -> RemoteFile:
    """The size, the version and, from a hub's or mirror's address, the SHA-256 that the headers tell."""
    if told.status != 200:
        return file
    linked = byte_count(told.first.get("x-linked-size") or told.headers.get("content-length") or "")
    etag = (told.first.get("x-linked-etag") or "").strip('"').lower()
    return replace(
        file,
        size=file.size if linked is None else linked,
        sha256=etag if re.fullmatch("[0-9a-f]{64}", etag) else None,
        validator=version_of(told.headers),
    )


def _checksums_of(files: list[RemoteFile], asker: Asker) -> list[RemoteFile]:
    """The files with the checksums that manifests beside them tell."""
    for each in files:
        folder, _, name = each.path.rpartition("/")
        if not folder and name.upper().startswith(manifest.NAME) and manifest.is_manifest(name):
            sums = manifest.parse(asker.get(each.url).body.decode("utf-8", errors="replace"), shown(each.url))
            return with_checksums(files, sums, shown(each.url))
    return files


def with_checksums(files: list[RemoteFile], sums: dict[str, str], where: str) -> list[RemoteFile]:
    """The files with the checksums of a manifest. Raises OnecatError when the source itself tells another one."""
    result = []
    for each in files:
        told = sums.get(each.path)
        if told is not None and each.sha256 is not None and told != each.sha256:
            raise OnecatError(
                f"the source and the manifest tell different checksums of {each.path}",
                expected=told,
                where=where,
                details=[f"the source: {each.sha256}"],
                next_steps=["one of the two is of another version: look for the manifest of this one"],
                code=ExitCode.NO,
            )
        result.append(replace(each, sha256=told or each.sha256))
    return result


def _of_manifest(url: str, asker: Asker) -> list[RemoteFile]:
    sums = manifest.parse(asker.get(url).body.decode("utf-8", errors="replace"), shown(url))
    base = urlunsplit(urlsplit(url)._replace(query=""))
    folder = base[: base.rindex("/") + 1]
    paths = [checked_path(name, shown(url)) for name in sums]
    check_together(paths, shown(url))
    files = _with_headers([RemoteFile(path, folder + quote(path)) for path in paths], asker)
    return with_checksums(files, sums, shown(url))

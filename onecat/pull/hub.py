"""Listing a model of a hub that speaks the API of the Hugging Face Hub.

Source: https://huggingface.co/docs/hub/api (revision, tree), and huggingface_hub's `HfApi.list_repo_tree`: a file of
Git LFS has its SHA-256 as `lfs.oid`, another one its git blob's SHA-1 as `oid`; pages follow by the header Link.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit, urlunsplit

from onecat.errors import ExitCode, OnecatError
from onecat.pull.asking import Asker, Told
from onecat.pull.names import check_together, checked_path
from onecat.pull.records import Listing, RemoteFile
from onecat.pull.sources import HubSource

MOST_FILES = 100_000
MOST_PAGES = 1_000
"""The hub tells 1000 files a page (https://huggingface.co/docs/hub/api)."""
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def list_model(source: HubSource, asker: Asker) -> Listing:
    """All files of the model at the commit that its revision names now.

    Raises OnecatError for an answer that is not the API's, and for names that must not become files.
    """
    about = _document(asker.get(source.revision_url), dict)
    commit = str(about.get("sha") or "")
    if not _COMMIT.fullmatch(commit):
        # A mirror may not tell it: the branch's own name works, only it may move on in the middle.
        commit = source.revision
    files = tuple(_files(source, commit, asker))
    check_together((each.path for each in files), source.text)
    return Listing(source.text, files, commit if _COMMIT.fullmatch(commit) else None)


def _files(source: HubSource, commit: str, asker: Asker) -> Iterator[RemoteFile]:
    url: str | None = source.tree_url(commit)
    count, seen = 0, set()
    while url is not None and url not in seen:
        seen.add(url)
        page = asker.get(url)
        for row in _document(page, list):
            if isinstance(row, dict) and row.get("type") == "file":
                count += 1
                yield _file(source, commit, row)
        if count > MOST_FILES or len(seen) >= MOST_PAGES:
            raise _strange(f"the hub lists more than {MOST_FILES} files or {MOST_PAGES} pages", page.url)
        url = next_page(page, source.endpoint)


def _file(source: HubSource, commit: str, row: dict[str, Any]) -> RemoteFile:
    named = row.get("path")
    path = checked_path(named if isinstance(named, str) else "", source.text)
    stored = row.get("lfs") if isinstance(row.get("lfs"), dict) else None
    size = (stored or row).get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise _strange(f"the hub tells no size of {path}", source.text)
    digest = str((stored or {}).get("oid") or (stored or {}).get("sha256") or "").removeprefix("sha256:").lower()
    blob = str(row.get("oid") or "").lower() if stored is None else ""
    return RemoteFile(
        path,
        source.file_url(commit, path),
        size,
        digest if _SHA256.fullmatch(digest) else None,
        blob if _COMMIT.fullmatch(blob) else None,
    )


def next_page(page: Told, endpoint: str) -> str | None:
    """The address of the next page, from the header Link (RFC 8288), at the endpoint's own host: a mirror hands on the
    link of the hub that it mirrors."""
    for link in re.finditer(r"<([^>]*)>([^<]*)", page.headers.get("link", "")):
        if re.search(r';\s*rel="?next"?', link[2]):
            there, own = urlsplit(urljoin(page.url, str(link[1]))), urlsplit(endpoint)
            prefix = own.path.rstrip("/")
            path = there.path if there.path.startswith(f"{prefix}/") else prefix + there.path
            return str(urlunsplit((own.scheme, own.netloc, path, there.query, "")))
    return None


def _document(told: Told, kind: type) -> Any:
    try:
        document = json.loads(told.body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, kind):
        raise _strange("the answer is not that of a hub's API", told.url)
    return document


def _strange(found: str, where: str) -> OnecatError:
    return OnecatError(
        found,
        expected="the API of the Hugging Face Hub",
        where=where.partition("?")[0],
        next_steps=["check --endpoint or HF_ENDPOINT"],
        code=ExitCode.UNREACHABLE,
    )

"""What a hub's API tells of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from onecat.errors import OnecatError
from onecat.pull.asking import Asker, Told
from onecat.pull.hub import list_model
from onecat.pull.records import Listing, RemoteFile
from onecat.pull.sources import HubSource

COMMIT, SHA256, BLOB = "c0ffee" * 6 + "c0ff", "ab" * 32, "12" * 20
SOURCE = HubSource("https://hub.example", "org/name")
TREE = SOURCE.tree_url(COMMIT)
WEIGHTS = {"type": "file", "path": "model.safetensors", "oid": BLOB, "size": 5, "lfs": {"oid": SHA256, "size": 5}}
CONFIG = {"type": "file", "path": "config.json", "oid": BLOB, "size": 2}


@dataclass
class Answers:
    """Answers by address: a document, or a document and its header Link."""

    documents: Mapping[str, Any]
    asked: list[str] = field(default_factory=list)

    def get(self, url: str) -> Told:
        self.asked.append(url)
        document = self.documents[url]
        body, headers = document if isinstance(document, tuple) else (document, {})
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Told(url, 200, headers, headers, content)


def listed(tree: Any, about: Any = None, **more: Any) -> Listing:
    documents = {SOURCE.revision_url: {"sha": COMMIT} if about is None else about, TREE: tree, **more}
    return list_model(SOURCE, cast("Asker", Answers(documents)))


def test_large_files_have_a_sha256_and_small_ones_a_git_blob() -> None:
    found = listed([{"type": "directory", "path": "sub", "oid": "x", "size": 0}, WEIGHTS, CONFIG])
    address = f"https://hub.example/org/name/resolve/{COMMIT}"
    assert found.revision == COMMIT
    assert found.files == (
        RemoteFile("model.safetensors", f"{address}/model.safetensors", 5, SHA256),
        RemoteFile("config.json", f"{address}/config.json", 2, None, BLOB),
    )


def test_pages_follow_at_the_endpoints_own_host_also_where_a_mirror_names_the_hub() -> None:
    link = {"link": f'<https://elsewhere.example/api/models/org/name/tree/{COMMIT}?cursor=b>; rel="next"'}
    following = f"https://hub.example/api/models/org/name/tree/{COMMIT}?cursor=b"
    found = listed(([WEIGHTS], link), **{following: [CONFIG]})
    assert [each.path for each in found.files] == ["model.safetensors", "config.json"]


def test_a_page_that_names_itself_as_the_next_one_ends_the_list() -> None:
    assert len(listed(([WEIGHTS], {"link": f'<{TREE}>; rel="next"'})).files) == 1


def test_a_mirror_that_tells_no_commit_is_asked_by_the_revisions_name() -> None:
    documents = {SOURCE.revision_url: {}, SOURCE.tree_url("main"): [WEIGHTS]}
    found = list_model(SOURCE, cast("Asker", Answers(documents)))
    assert (found.revision, found.files[0].url) == (None, "https://hub.example/org/name/resolve/main/model.safetensors")


@pytest.mark.parametrize(
    "path", ["../../etc/cron.d/x", "/etc/passwd", "a\0b", "", ".git/hooks/post-checkout", "a/../b", 7, None]
)
def test_paths_that_lead_elsewhere_are_refused(path: object) -> None:
    with pytest.raises(OnecatError, match="the listing names a file"):
        listed([{**CONFIG, "path": path}])


@pytest.mark.parametrize(
    "tree",
    [
        {},
        b"<html>",
        b"",
        b"[" * 100_000,
        [{**CONFIG, "size": -1}],
        [{**CONFIG, "size": "2"}],
        [{**CONFIG, "size": True}],
    ],
)
def test_answers_of_something_else_are_told(tree: object) -> None:
    with pytest.raises(OnecatError, match="not that of a hub's API|tells no size") as caught:
        listed(tree)
    assert "?" not in str(caught.value.where)


def test_checksums_that_are_none_are_not_taken_for_some() -> None:
    found = listed([{**WEIGHTS, "lfs": {"oid": "short", "size": 5}}, {**CONFIG, "oid": None}])
    assert [(each.sha256, each.blob) for each in found.files] == [(None, None), (None, None)]

"""What SOURCE means, and which addresses are not opened."""

from __future__ import annotations

import pytest

from onecat.errors import OnecatError
from onecat.pull.sources import HubSource, Source, UrlSource, parse_source, shown


def parsed(text: str, revision: str | None = None, endpoint: str | None = None, insecure: bool = False) -> Source:
    return parse_source(text, revision, endpoint, insecure)


def test_a_model_of_a_hub_has_a_revision_and_the_hubs_own_addresses() -> None:
    assert parsed("org/name") == HubSource("https://huggingface.co", "org/name", "main")
    assert parsed("org/name@v1.0") == parsed("org/name", "v1.0")
    source = parsed("org/name@refs/pr/7", endpoint="https://mirror.example/hf/")
    assert isinstance(source, HubSource)
    assert source.revision_url == "https://mirror.example/hf/api/models/org/name/revision/refs%2Fpr%2F7"
    assert source.tree_url("0" * 40) == f"https://mirror.example/hf/api/models/org/name/tree/{'0' * 40}?recursive=true"
    assert source.file_url("main", "a b/c#1.json") == "https://mirror.example/hf/org/name/resolve/main/a%20b/c%231.json"


def test_an_address_is_one_with_its_query_and_without_its_fragment() -> None:
    assert parsed("https://models.example/m/?sig=1#top") == UrlSource("https://models.example/m/?sig=1")


@pytest.mark.parametrize("text", ["http://127.0.0.1:8000/m/", "http://localhost/m/", "http://[::1]:8/m/"])
def test_plain_http_is_opened_on_this_machine(text: str) -> None:
    assert parsed(text) == UrlSource(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://models.example/m/", "is plain HTTP"),
        ("http://127.0.0.1.evil.example/", "is plain HTTP"),
        ("ftp://models.example/m/", "ftp:// is not opened"),
        ("file:///etc/passwd", "file:// is not opened"),
        ("https://me:secret@models.example/m", "holds a user name or password"),
        ("https://models.example:99999/m", "has no valid port"),
        ("org/name@", "neither an address nor a model"),
        ("../name", "neither an address nor a model"),
        ("org/../name", "neither an address nor a model"),
        ("org/na..me", "neither an address nor a model"),
        ("name", "neither an address nor a model"),
        ("org/name?x", "neither an address nor a model"),
    ],
)
def test_other_texts_are_refused(text: str, found: str) -> None:
    with pytest.raises(OnecatError, match=found) as caught:
        parsed(text)
    assert "secret" not in str(vars(caught.value))


def test_plain_http_to_others_must_be_allowed_plainly() -> None:
    assert parsed("http://models.example/m/", insecure=True) == UrlSource("http://models.example/m/")


def test_two_different_revisions_or_one_with_an_address_are_refused() -> None:
    with pytest.raises(OnecatError, match="two revisions"):
        parsed("org/name@a", "b")
    with pytest.raises(OnecatError, match="--revision goes with ORG/NAME"):
        parsed("https://models.example/m", "b")


def test_addresses_are_shown_without_what_may_be_secret() -> None:
    assert shown("https://me:pw@h.example:8443/a/b?X-Amz-Signature=1#f") == "https://h.example:8443/a/b"

"""A token that others can read is refused and never shown; a model that does not fit is refused at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from onecat.errors import OnecatError
from onecat.pull.connection import Connection
from onecat.pull.credentials import token_for
from onecat.pull.records import PullRequest
from onecat.pull.sources import Source, parse_source
from onecat.pull.token import Token, read_token
from onecat.space import Room, check_room, gigabytes, margin

SECRET = "hf_abcdefghijklmnop"


def token_file(path: Path, content: str, mode: int) -> Path:
    path.write_text(content)
    path.chmod(mode)
    return path


def test_a_token_of_a_private_file_is_read_and_not_shown(tmp_path: Path) -> None:
    token = read_token(token_file(tmp_path / "token", f"{SECRET}\n", 0o600))
    assert token.header == f"Bearer {SECRET}"
    assert SECRET not in f"{token!r} {token} {vars(type(token))}"


@pytest.mark.parametrize(
    ("content", "mode", "found"),
    [
        (SECRET, 0o644, "others than you may read the token"),
        (SECRET, 0o640, "others than you may read the token"),
        ("", 0o600, "does not hold one token"),
        (f"{SECRET} {SECRET}", 0o600, "does not hold one token"),
        ("hf_é", 0o600, "does not hold one token"),
    ],
)
def test_other_files_are_refused_without_their_content(tmp_path: Path, content: str, mode: int, found: str) -> None:
    with pytest.raises(OnecatError, match=found) as caught:
        read_token(token_file(tmp_path / "token", content, mode))
    assert SECRET not in str(vars(caught.value))


def test_a_missing_token_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(OnecatError, match="the token cannot be read: No such file"):
        read_token(tmp_path / "none")


def test_a_token_never_goes_out_in_plain_http() -> None:
    with pytest.raises(OnecatError, match="in plain HTTP"):
        Connection(("http", "hub.example", 80), Token(SECRET), 1.0, 1, True)
    Connection(("http", "127.0.0.1", 80), Token(SECRET), 1.0, 1, False).close()


def test_what_does_not_fit_is_refused_with_what_is_missing() -> None:
    with pytest.raises(OnecatError, match="not enough room: 100.0 GB are to be fetched and 50.0 GB are free") as caught:
        check_room(Path("/models"), Room(50 * 10**9, None), 100 * 10**9, 10)
    assert caught.value.code == 1
    assert any("free 50.3 GB" in step for step in caught.value.next_steps)
    check_room(Path("/models"), Room(101 * 10**9, None), 100 * 10**9, 10)


def test_inodes_count_too_where_the_file_system_has_a_number_of_them() -> None:
    with pytest.raises(OnecatError, match="20 more files"):
        check_room(Path("/models"), Room(10**12, 20), 10**9, 10)
    check_room(Path("/models"), Room(10**12, 26), 10**9, 10)


def test_a_pull_with_nothing_to_fetch_fits_everywhere() -> None:
    check_room(Path("/models"), Room(0, None), 0, 0)


def test_the_margin_grows_with_the_model_within_bounds() -> None:
    assert (margin(0), margin(10**9), margin(10**12)) == (2**20, 2 * 10**7, 256 * 2**20)


def test_sizes_are_told_in_decimal_units() -> None:
    assert [gigabytes(each) for each in (999, 1500, 2_500_000, 123_456_789_000)] == [
        "999 bytes", "1.50 kB", "2.50 MB", "123.5 GB",
    ]  # fmt: skip


MODEL = parse_source("org/name", None, None, False)


def asked(source: Source, environment: dict[str, str], **request: Any) -> tuple[str | None, list[str]]:
    """The header that a pull would send, and what it says."""
    said: list[str] = []
    token = token_for(PullRequest("org/name", Path("model"), **request), source, environment, said.append)
    return (token.header if token is not None else None), said


def test_the_environments_token_is_for_the_hub_alone() -> None:
    mine = {"HF_TOKEN": f" {SECRET}\n"}
    assert asked(MODEL, mine) == (f"Bearer {SECRET}", [])
    assert asked(MODEL, {}) == (None, [])
    assert asked(MODEL, {**mine, "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}) == (None, [])
    page = parse_source("https://huggingface.co/org/name/resolve/main/config.json", None, None, False)
    assert asked(page, mine)[0] == f"Bearer {SECRET}"
    other = parse_source("https://example.org/model/", None, None, False)
    header, said = asked(other, mine)
    assert header is None and said == ["HF_TOKEN is not sent: it is for https://huggingface.co, by https"]
    mirror = parse_source("org/name", None, "http://hub.example", True)
    assert asked(mirror, {**mine, "HF_ENDPOINT": "http://hub.example"})[0] is None
    local = parse_source("org/name", None, "http://127.0.0.1:8000", False)
    assert asked(local, mine, endpoint="http://127.0.0.1:8000")[0] == f"Bearer {SECRET}"


def test_a_token_file_wins_and_a_broken_variable_is_refused_without_its_text(tmp_path: Path) -> None:
    file = token_file(tmp_path / "token", "hf_of_the_file", 0o600)
    assert asked(MODEL, {"HF_TOKEN": SECRET}, token_file=file)[0] == "Bearer hf_of_the_file"
    with pytest.raises(OnecatError, match="HF_TOKEN does not hold one token") as caught:
        asked(MODEL, {"HF_TOKEN": f"{SECRET} {SECRET}"})
    assert SECRET not in str(vars(caught.value))

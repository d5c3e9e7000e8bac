"""What quickstart tells at its end can be typed as it stands."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from onecat.cli.quickstart import _put_small_model, _tell
from onecat.config import Deployment
from onecat.deploy import Release
from onecat.resources import small_model


def told(capsys: pytest.CaptureFixture[str], answer: str = "the people", **secrets: Any) -> str:
    release = Release(
        deployment="mine",
        number=3,
        directory="/home/me/releases/0003",
        runtime="native",
        profile="cpu",
        model="small",
        host="127.0.0.1",
        port=8000,
        endpoint="http://127.0.0.1:8080",
        proxy_kind="own",
        protected=bool(secrets),
        fingerprint="0123456789ab",
        created_at="2026-11-29T16:00:00Z",
    )
    values = {"name": "mine", "profile": "cpu", "model": {"path": "/models/small"}, "secrets": secrets}
    _tell(release, Deployment.model_validate(values), Path("/home/me/onecat.yaml"), answer)
    return capsys.readouterr().out


def curl(text: str) -> list[str]:
    """The words of the curl command, as a shell reads them."""
    return shlex.split(text[text.index("curl") : text.index("  change it")].replace("\\\n", " "))


def test_the_commands_name_the_deployment_that_was_started(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys)
    assert "onecat status mine\n" in text and "onecat down mine\n" in text
    assert curl(text)[:4] == [
        "curl",
        "http://127.0.0.1:8080/v1/chat/completions",
        "-H",
        "Content-Type: application/json",
    ]
    assert "Authorization" not in text


def test_a_long_answer_is_told_in_80_columns_and_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = told(capsys, "And he said,\x1b[2J\n" * 20)
    start = text.index("answer:")
    lines = text[start : text.index("from a real vLLM")].splitlines()
    assert len(lines) > 4 and max(map(len, lines)) <= 80 and "\x1b" not in text


def test_with_a_key_the_command_sends_it_without_showing_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Authorization: Bearer $(cat /home/me/key)" in curl(told(capsys, api_key={"file": "/home/me/key"}))
    assert "Authorization: Bearer $MY_KEY" in curl(told(capsys, api_key={"env": "MY_KEY"}))


def test_the_small_model_is_copied_once_and_repaired_when_a_file_is_damaged(tmp_path: Path) -> None:
    place = tmp_path / "quickstart" / "small"

    def copied() -> dict[str, int]:
        _put_small_model(place)
        assert {path.name: path.read_bytes() for path in place.iterdir()} == shipped
        # A server in a container reads them as another user.
        assert all(path.stat().st_mode & 0o444 == 0o444 for path in place.iterdir())
        return {path.name: path.stat().st_ino for path in place.iterdir()}

    shipped = {path.name: path.read_bytes() for path in small_model().iterdir()}
    first = copied()
    assert copied() == first
    (place / "tokenizer.json").unlink()
    with (place / "model.safetensors").open("r+b") as stream:
        stream.truncate(1000)
    again = copied()
    assert {name for name in first if first[name] != again[name]} >= {"model.safetensors"}

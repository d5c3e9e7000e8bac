"""`onecat model pull` against servers that lie, prepared target directories, and proxies that are gone."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.pull import Pulled, PullRequest, Teller, pull
from onecat.pull.retries import RetryPolicy
from tests.testbed.command import Onecat
from tests.testbed.hostile_server import Asked, HostileServer, Script, answer

COMMIT = "ab" * 20


def pulled(script: Script, directory: Path, path: str = "/m/", **options: Any) -> Pulled:
    with HostileServer(script).running() as server:
        source = f"{server.address}{path}" if path.startswith("/") else path
        request = PullRequest(source, directory, endpoint=server.address, stall_seconds=1.0, **options)
        return pull(request, Teller(lambda line: None, lambda progress: None), RetryPolicy(3, first_seconds=0.02))


def refused(script: Script, directory: Path, path: str = "/m/", **options: Any) -> OnecatError:
    with pytest.raises(OnecatError) as caught:
        pulled(script, directory, path, **options)
    return caught.value


def site(files: Mapping[str, bytes], links: str | None = None) -> Script:
    """A directory /m/ of files, listed by `links` (HTML), or by their names."""
    page = links if links is not None else "".join(f'<a href="{name}">{name}</a>' for name in files)

    def script(asked: Asked) -> bytes:
        content = page.encode() if asked.path == "/m/" else files.get(asked.path.removeprefix("/m/"))
        if content is None:
            return answer(status="404 Not Found")
        kind = "text/html" if asked.path == "/m/" else "application/octet-stream"
        body = b"" if asked.method == "HEAD" else content
        return answer(body, Content_Length=str(len(content)), Content_Type=kind)

    return script


ONE = site({"config.json": b"{}"})


@pytest.mark.parametrize("name", ["lock", "reserve", "finished.jsonl"])
def test_a_link_among_the_records_destroys_no_other_file(tmp_path: Path, name: str) -> None:
    victim, target = tmp_path / "victim", tmp_path / "m"
    victim.write_text("precious")
    (target / ".onecat-pull").mkdir(parents=True)
    (target / ".onecat-pull" / name).symlink_to(victim)
    try:
        pulled(ONE, target)
    except OnecatError as error:
        assert "is a link" in error.found and error.code == ExitCode.NO
    assert victim.read_text() == "precious"


def test_records_are_not_kept_in_a_directory_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "m").mkdir()
    (tmp_path / "m/.onecat-pull").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in refused(ONE, tmp_path / "m").found
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_the_place_of_a_file_is_replaced_and_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "m").mkdir()
    (tmp_path / "m/config.json").symlink_to(tmp_path / "victim")
    assert "config.json is there and is not what the source has" in refused(ONE, tmp_path / "m").found
    pulled(ONE, tmp_path / "m", replace=True)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "m/config.json").is_symlink() and (tmp_path / "m/config.json").read_text() == "{}"


def test_a_folder_that_becomes_a_link_while_bytes_come_is_not_written_through(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "m"
    outside.mkdir()
    files = site({"sub/a.json": b"{}"})

    def script(asked: Asked) -> bytes:
        if asked.path == "/m/":
            return answer(b'<a href="sub/">', Content_Type="text/html")
        if asked.path == "/m/sub/":
            return answer(b'<a href="a.json">', Content_Type="text/html")
        if asked.method == "GET":
            (target / "sub").symlink_to(outside)
        raw = files(asked)
        assert raw is not None
        return raw

    assert "a link that leads out" in refused(script, target).found
    assert list(outside.iterdir()) == []


def test_checksums_that_were_there_are_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/SHA256SUMS").write_text("of the publisher\n")
    found = pulled(ONE, tmp_path / "m")
    assert (tmp_path / "m/SHA256SUMS").read_text() == "of the publisher\n"
    assert any("SHA256SUMS was there and no pull wrote it" in note for note in found.notes)
    pulled(ONE, tmp_path / "m", replace=True)
    assert (tmp_path / "m/SHA256SUMS").read_text().endswith("  config.json\n")
    # Its own list is written anew as files come and go.
    found = pulled(site({"config.json": b"{}", "b.json": b"[]"}), tmp_path / "m")
    assert not any("kept" in note for note in found.notes)
    assert "b.json" in (tmp_path / "m/SHA256SUMS").read_text()


def test_a_signature_beside_the_checksums_is_not_taken_for_them(tmp_path: Path) -> None:
    files = {
        "SHA256SUMS.asc": b"-----BEGIN PGP SIGNATURE-----\n",
        "SHA256SUMS": b"0" * 64 + b"  a.json\n",
        "a.json": b"{}",
    }
    assert (
        refused(site(files), tmp_path / "m").found
        == "a.json has another SHA-256 than the source tells, and was removed"
    )


@pytest.mark.parametrize("page", [b"<!DOCTYPE html><title>Log in", b"\n <HTML lang=en>"])
def test_a_page_to_log_in_is_not_taken_for_a_file(tmp_path: Path, page: bytes) -> None:
    error = refused(site({"config.json": page}), tmp_path / "m")
    assert error.found.endswith("/m/config.json is a web page, no file of a model")
    assert not (tmp_path / "m/config.json").exists()
    assert any("ORG/NAME" in step for step in error.next_steps)
    pulled(site({"model_card.html": page, "README.md": page}), tmp_path / "other")


def test_links_and_numbers_that_are_none_end_no_pull_with_a_traceback(tmp_path: Path) -> None:
    odd = '<a href="http://[::1"><a href="http://h:99999/m/x"><a href="config.json">'
    assert [each.path for each in pulled(site({"config.json": b"{}"}, odd), tmp_path / "m").files] == ["config.json"]

    def long_numbers(asked: Asked) -> bytes:
        if asked.path == "/m/":
            return answer(b'<a href="config.json">', Content_Type="text/html")
        if asked.method == "HEAD":
            return answer(X_Linked_Size="9" * 6000, Content_Length="2")
        return answer(b"{}", "206 Partial Content", Content_Range=f"bytes 0-1/{'9' * 6000}")

    assert "another range than it was asked for" in refused(long_numbers, tmp_path / "other").found


def test_a_listing_without_an_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onecat.pull.hub.MOST_PAGES", 20)
    numbers = itertools.count()

    def script(asked: Asked) -> bytes:
        if "/revision/" in asked.path:
            return answer(json.dumps({"sha": COMMIT}).encode())
        path = asked.path.partition("?")[0]
        return answer(b"[]", Link=f'<{path}?cursor={next(numbers)}>; rel="next"')

    assert "or 20 pages" in refused(script, tmp_path / "m", "org/name").found


@pytest.mark.parametrize("stalls", ["listing", "file"])
def test_ctrl_c_ends_at_once_also_while_nobody_answers(onecat: Onecat, tmp_path: Path, stalls: str) -> None:
    def script(asked: Asked) -> bytes | None:
        if asked.path == "/m/":
            return answer(b"".join(b'<a href="%d.json">' % number for number in range(30)), Content_Type="text/html")
        if stalls == "listing" or asked.method == "GET":
            return None
        return answer(Content_Length="100")

    with HostileServer(script).running() as server:
        process = subprocess.Popen(
            onecat.argv("model", "pull", f"{server.address}/m/", tmp_path / "m"),
            env=onecat.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        method = "HEAD" if stalls == "listing" else "GET"
        limit = time.monotonic() + 20
        while sum(each.method == method for each in server.asked) < 8 and time.monotonic() < limit:
            time.sleep(0.02)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, time.monotonic() - began < 4) == (130, True)
        assert "Traceback" not in errors

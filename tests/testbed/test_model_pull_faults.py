"""`onecat model pull` against servers that lie, prepared target directories, and proxies that are gone."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from onecat.errors import ExitCode, OnecatError
from onecat.pull import Pulled, PullRequest, Teller, pull
from onecat.pull.retries import RetryPolicy
from tests.testbed.command import Onecat
from tests.testbed.hostile_server import Asked, HostileServer, Script, answer
from tests.testbed.waiting import wait_until

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


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("file:///etc/passwd", "redirects to an address that is not opened: file:// is not opened"),
        ("http://me:do-not-show@127.0.0.1/", "redirects to an address that is not opened: the address of 127.0.0.1"),
        ("http://169.254.169.254/latest/meta-data", "http://169.254.169.254/latest/meta-data is plain HTTP"),
        ("/m/config.json", "redirects more than 10 times"),
        ("", "redirects to nowhere"),
    ],
)
def test_a_redirect_to_where_no_file_can_be_is_refused(tmp_path: Path, location: str, told: str) -> None:
    error = refused(lambda asked: answer(status="302 Found", Location=location), tmp_path / "m", "/m/config.json")
    assert told in error.found and "do-not-show" not in error.found
    assert error.code in (ExitCode.NO, ExitCode.UNREACHABLE)


def test_a_server_elsewhere_redirects_nobody_to_programs_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def script(asked: Asked) -> bytes:
        return answer(status="302 Found", Location="http://127.0.0.1:1/shutdown")

    with HostileServer(script).running() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        error = refused(ONE, tmp_path / "m", "http://models.example/m/config.json", insecure_http=True)
    assert "redirects to this machine itself: http://127.0.0.1:1/shutdown" in error.found


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
        try:
            wait_until(lambda: sum(each.method == method for each in server.asked) >= 8)
        finally:
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        assert (process.returncode, time.monotonic() - began < 4) == (130, True)
        assert "Traceback" not in errors


def test_a_proxy_that_is_gone_is_named_without_its_password(
    onecat: Onecat, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    port = free_port()
    environment = {"HTTPS_PROXY": f"http://me:do-not-show@127.0.0.1:{port}"}
    done = onecat("model", "pull", "https://hub.example/m/", tmp_path / "m", environment=environment).expect(3)
    told = f"hub.example: the proxy http://127.0.0.1:{port} (HTTPS_PROXY) cannot be reached: [Errno 111]"
    assert told in done.stderr and "do-not-show" not in done.stdout + done.stderr
    environment = {"ALL_PROXY": "socks5://127.0.0.1:1080"}
    done = onecat("model", "pull", "https://hub.example/m/", tmp_path / "m", environment=environment).expect(2)
    assert "ALL_PROXY names a proxy with socks5://" in done.stderr


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("407 Proxy Authentication Required", "answers 407 Proxy Authentication Required"),
        ("403 Forbidden", "answers 403"),
    ],
)
def test_a_proxy_that_refuses_is_told_as_the_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: str, told: str
) -> None:
    with HostileServer(lambda asked: answer(status=status)).running() as proxy:
        monkeypatch.setenv("https_proxy", proxy.address)
        error = refused(ONE, tmp_path / "m", "https://hub.example/m/")
    assert error.code == ExitCode.UNREACHABLE
    assert error.found.startswith(f"no way to hub.example: the proxy {proxy.address} (https_proxy) {told}")


def test_a_pull_through_a_proxy_asks_it_for_the_host_and_hands_it_no_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("hf_secret")
    token.chmod(0o600)
    with HostileServer(lambda asked: answer(status="502 Bad Gateway")).running() as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.address.replace("//", "//me:word@"))
        refused(ONE, tmp_path / "m", "https://hub.example/m/", token_file=token)
        asked = proxy.asked[0]
        assert (asked.method, asked.path) == ("CONNECT", "hub.example:443")
        assert asked.headers["proxy-authorization"] == "Basic bWU6d29yZA==" and "authorization" not in asked.headers

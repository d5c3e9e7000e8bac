"""Hand edits of files that onecat has written."""

from __future__ import annotations

from pathlib import Path

from onecat.deploy.hand_edits import keep_hand_edits
from onecat.deploy.written_files import HandEdit, compare, kept_file, record_rendered, rendered_edits
from onecat.hosts import LocalMachine

SITE = "/etc/nginx/conf.d/onecat-demo.conf"


def test_a_changed_file_is_told_with_what_was_changed() -> None:
    written = {SITE: kept_file(SITE, b"server {\n  listen 80;\n}\n")}
    (edit,) = compare(written, {SITE: b"server {\n  listen 81;\n}\n"})
    assert (edit.path, edit.edit) == (SITE, "changed")
    assert edit.diff == (
        f"--- {SITE} (as written)",
        f"+++ {SITE} (on the host)",
        "@@ -1,3 +1,3 @@",
        " server {",
        "-  listen 80;",
        "+  listen 81;",
        " }",
    )


def test_a_file_as_it_was_written_is_no_edit_and_a_missing_one_is() -> None:
    written = {SITE: kept_file(SITE, b"a")}
    assert compare(written, {SITE: b"a"}) == ()
    assert compare(written, {}) == (HandEdit(SITE, "removed"),)


def test_of_keys_it_is_told_that_they_differ_and_never_what_they_are() -> None:
    for path in ("/etc/nginx/conf.d/onecat-demo.keys", "/data/proxy/keys.conf"):
        kept = kept_file(path, b"sk-secret")
        assert kept["text"] is None
        assert compare({path: kept}, {path: b"sk-other"}) == (HandEdit(path, "changed"),)


def test_the_edited_file_is_kept_beside_and_none_of_before_is_lost(tmp_path: Path) -> None:
    machine, path = LocalMachine(tmp_path), tmp_path / "site.conf"
    path.write_text("first edit", encoding="utf-8")
    path.chmod(0o644)
    copies = [keep_hand_edits(machine, {str(path): text})[str(path)] for text in (b"one", b"one", b"two")]
    assert copies == [f"{path}.by-hand", f"{path}.by-hand", f"{path}.by-hand.2"]
    assert Path(copies[0]).read_bytes() == b"one"
    assert Path(copies[2]).read_bytes() == b"two"
    assert Path(copies[0]).stat().st_mode & 0o777 == 0o644


def test_what_was_rendered_is_remembered_and_what_lives_is_not(tmp_path: Path) -> None:
    machine, directory = LocalMachine(tmp_path), tmp_path / "0001"
    for name in (
        "plan.json",
        "container.json",
        "nginx/site.conf",
        "systemd/a.service",
        "release.json",
        "secrets/api_key",
    ):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    record_rendered(machine, str(directory))
    assert rendered_edits(machine, str(directory)) == ()

    for name in ("release.json", "secrets/api_key", "server.log", "engine.json"):
        (directory / name).write_text("another", encoding="utf-8")
    assert rendered_edits(machine, str(directory)) == (), "these change while a release lives"

    (directory / "container.json").write_text("by hand", encoding="utf-8")
    (directory / "systemd" / "a.service").unlink()
    assert rendered_edits(machine, str(directory)) == (
        HandEdit(f"{directory}/container.json", "changed"),
        HandEdit(f"{directory}/systemd/a.service", "removed"),
    )


def test_of_a_release_without_hashes_nothing_is_said(tmp_path: Path) -> None:
    assert rendered_edits(LocalMachine(tmp_path), str(tmp_path)) == ()

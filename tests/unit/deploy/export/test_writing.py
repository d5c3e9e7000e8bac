"""Nothing that somebody else wrote or changed is overwritten unasked."""

from __future__ import annotations

from pathlib import Path

import pytest

from onecat.deploy.export import ExportedFile, write_files
from onecat.deploy.export.marking import condition, marked
from onecat.errors import ExitCode, OnecatError

FIRST = (ExportedFile("a.conf", marked("nginx", ("note",), "one\n")),)
FILES = (
    ExportedFile("a.conf", marked("nginx", ("note",), "two\n")),
    ExportedFile("below/run", marked("nginx", (), "#!/bin/sh\ntrue\n"), 0o755),
)


def test_a_marked_text_knows_whether_it_is_as_written() -> None:
    text = marked("compose", ("first", "", "second\nthird\x1b[31m"), "body: 1\n")
    assert text.splitlines()[1:] == ["# first", "#", "# second", "# third?[31m", "body: 1"]
    assert condition(text) == "ours"
    assert condition(text.replace("body: 1", "body: 2")) == "edited"
    assert condition(text + "\n") == "edited"
    assert condition("body: 1\n") == "foreign"
    assert FILES[1].text.startswith("#!/bin/sh\n# Written by") and condition(FILES[1].text) == "ours"


def test_files_are_written_with_their_modes_and_only_where_they_differ(tmp_path: Path) -> None:
    target = tmp_path / "new" / "directory"
    assert write_files(FILES, target, "nginx") == (target / "a.conf", target / "below/run")
    assert (target / "a.conf").stat().st_mode & 0o777 == 0o644
    assert (target / "below/run").stat().st_mode & 0o777 == 0o755
    assert write_files(FILES, target, "nginx") == ()
    (target / "below/run").chmod(0o600)
    assert write_files(FILES, target, "nginx") == (target / "below/run",)


def test_an_older_export_is_replaced(tmp_path: Path) -> None:
    write_files(FIRST, tmp_path, "nginx")
    assert write_files(FILES, tmp_path, "nginx") == (tmp_path / "a.conf", tmp_path / "below/run")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.conf", "below"]


@pytest.mark.parametrize(
    ("text", "told"),
    [("mine\n", "was not written by onecat"), (FIRST[0].text + "mine\n", "was changed by hand since onecat wrote it")],
)
def test_a_file_of_somebody_stays_and_so_does_everything_else(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "a.conf").write_text(text)
    with pytest.raises(OnecatError) as raised:
        write_files(FILES, tmp_path, "nginx")
    assert told in raised.value.found and raised.value.code == ExitCode.USAGE
    assert f"onecat export nginx --output {tmp_path} --force" in raised.value.next_steps[0]
    assert [path.name for path in tmp_path.iterdir()] == ["a.conf"]
    assert (tmp_path / "a.conf").read_text() == text
    write_files(FILES, tmp_path, "nginx", force=True)
    assert (tmp_path / "a.conf").read_text() == FILES[0].text
    assert (tmp_path / "a.conf.old").read_text() == text


def test_a_link_is_never_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(FIRST[0].text)
    (tmp_path / "a.conf").symlink_to("elsewhere")
    for force in (False, True):
        with pytest.raises(OnecatError, match="no plain file"):
            write_files(FILES, tmp_path, "nginx", force)
    assert (tmp_path / "elsewhere").read_text() == FIRST[0].text


def test_a_file_that_is_no_text_is_somebodys(tmp_path: Path) -> None:
    (tmp_path / "a.conf").write_bytes(b"\xff\xfe\0")
    with pytest.raises(OnecatError, match="was not written by onecat"):
        write_files(FILES, tmp_path, "nginx")


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OnecatError, match="cannot be") as raised:
        write_files(FILES, tmp_path / "file", "nginx")
    assert raised.value.code == ExitCode.USAGE

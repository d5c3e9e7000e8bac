"""onecat patch, as a person types it."""

from __future__ import annotations

import json
import sys
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onecat.cli.application import run
from onecat.cli.patch_options import choose_series
from onecat.config import list_profiles, load_profile
from onecat.errors import OnecatError
from onecat.patching import Series, list_series, load_series
from tests.unit.patching.small_series import FILES, everything, pin, write_archive, write_series, write_tree


@dataclass(frozen=True)
class Done:
    """What a command printed."""

    stdout: str
    stderr: str


class Bench:
    """A folder with a source archive, a series for it, and an ONECAT_HOME; commands run in this process."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.root, self.capture = root, capture
        self.archive = write_archive(root / "engine-1.0.tar.gz")
        self.series: Series = write_series(root / "series", pin(self.archive))

    def run(self, *arguments: str | Path, code: int = 0, series: bool = True) -> Done:
        named = ["--series", "./series"] if series else []
        sys.argv[1:] = ["patch", *map(str, arguments), *named]
        with pytest.raises(SystemExit) as ended:
            run()
        printed = self.capture.readouterr()
        assert ended.value.code == code, printed
        return Done(printed.out, printed.err)

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bench:
    monkeypatch.setenv("ONECAT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "argv", ["onecat"])
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path, capsys)


def test_list_names_the_shipped_series_and_what_their_patches_are_for(bench: Bench) -> None:
    text = bench.run("list", series=False).stdout
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(bench.run("list", "--json", series=False).stdout)
    assert document["schema"] == "onecat.patch-list/1"
    assert [each["name"] for each in document["series"]] == list(list_series())
    for each in document["series"]:
        series = load_series(each["name"])
        assert each["digest"] == f"sha256:{series.digest}"
        assert [patch["name"] for patch in each["patches"]] == [patch.name for patch in series.patches]
        assert all(patch.name in text for patch in series.patches)


def test_show_has_what_is_said_about_a_patch_and_its_diff(bench: Bench) -> None:
    for name in ("0001-first", "0001-first.patch", "1"):
        text = bench.run("show", name).stdout
        assert "Purpose of 0001-first.patch" in text and "drop when" in text and "+line five" in text
        assert all(each == "\n" or unicodedata.category(each) != "Cc" for each in text)
    assert bench.json("show", "2")["files"] == [
        "engine/core.py",
        "engine/run.sh",
        "engine/gone.py",
        "engine/fresh/new.py",
    ]
    assert "one of: 0001-first, 0002-second" in bench.run("show", "3", code=2).stderr


def test_verify_takes_an_archive_its_folder_or_an_unpacked_source(bench: Bench) -> None:
    for source in (bench.archive, bench.root, write_tree(bench.root / "tree")):
        document = bench.json("verify", "--source", source)
        assert (document["schema"], document["clean"]) == ("onecat.patch/1", True)
        assert [(row["name"], row["state"]) for row in document["patches"]] == [
            ("0001-first", "applies"),
            ("0002-second", "applies"),
            ("add", "applies"),
        ]
        assert all(row["purpose"] for row in document["patches"])


def test_verify_shows_the_hunk_and_what_the_file_has_there(bench: Bench) -> None:
    tree = write_tree(bench.root / "tree", {**FILES, "engine/core.py": FILES["engine/core.py"].replace(b"5\n", b"V\n")})
    text = bench.run("verify", "--source", tree, code=1).stdout
    assert "0001-first   conflict" in text
    assert "-line 5" in text and "+line five" in text and "5  line V" in text
    row = bench.json("verify", "--source", tree, code=1)["patches"][0]
    assert row["state"] == "conflict"
    assert row["hunks"][0]["file"] == "engine/core.py" and "line V" in row["hunks"][0]["found"]


def test_a_wrong_archive_is_refused_with_both_hashes(bench: Bench) -> None:
    bench.archive.write_bytes(bench.archive.read_bytes() + b"x")
    error = bench.run("verify", "--source", bench.archive, code=1).stderr
    assert bench.series.upstream.sha256 in error and pin(bench.archive).sha256 in error
    assert "released anew or replaced" in error


def test_apply_unpacks_where_there_is_nothing_and_reverse_leaves_the_source(bench: Bench) -> None:
    tree = bench.root / "new" / "tree"
    document = bench.json("apply", "--to", tree, "--source", bench.archive)
    assert document["schema"] == "onecat.patch-apply/1" and len(document["changed"]) == 8
    assert "applied already, no change" in bench.run("apply", "--to", tree).stdout
    status = bench.json("status", tree)
    assert status["applied"] and not status["edited"] and not status["interrupted"]
    assert "reversed, 8 files changed" in bench.run("reverse", "--to", tree).stdout
    assert not bench.json("status", tree, code=1)["applied"]
    assert {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()} == FILES
    assert "not applied, no change" in bench.run("reverse", "--to", tree).stdout


def test_apply_refuses_as_a_whole_and_takes_fuzz_only_when_asked(bench: Bench) -> None:
    tree = write_tree(
        bench.root / "tree", {**FILES, "engine/core.py": FILES["engine/core.py"].replace(b"2\n", b"II\n")}
    )
    before = everything(tree)
    error = bench.run("apply", "--to", tree, code=1).stderr
    assert "nothing was changed" in error and "fits nowhere" in error
    assert everything(tree) == before
    text = bench.run("apply", "--to", tree, "--fuzz", "1").stdout
    assert "fuzz 1" in text
    bench.run("reverse", "--to", tree)
    assert everything(tree) == before


def test_status_tells_edits_and_a_change_that_was_cut_off(bench: Bench) -> None:
    tree = write_tree(bench.root / "tree")
    bench.run("apply", "--to", tree)
    (tree / "engine/windows.txt").write_bytes(b"mine\n")
    text = bench.run("status", tree, code=1).stdout
    assert "edited since: engine/windows.txt" in text
    assert "engine/windows.txt" in bench.run("reverse", "--to", tree, code=1).stderr
    (tree / ".onecat-patching").mkdir()
    (tree / ".onecat-patching/journal.json").write_text("{}")
    assert "was cut off in the middle" in bench.run("status", tree, code=1).stdout
    assert "cut off" in bench.run("verify", "--source", tree, code=1).stderr
    assert "the journal of a change that was cut off is damaged" in bench.run("apply", "--to", tree, code=5).stderr


def test_new_and_refresh_write_the_series(bench: Bench) -> None:
    tree = write_tree(bench.root / "tree")
    bench.run("apply", "--to", tree)
    core = tree / "engine/core.py"
    core.write_bytes(core.read_bytes().replace(b"line 25", b"line XXV"))
    words = ("--from", tree, "--source", bench.archive)
    document = bench.json("new", "more", *words, "--purpose", "More: of it", "--drop-when", "never")
    assert document["written"] == ["0003-more.patch", "series.yaml"] and document["edited"] == ["engine/core.py"]
    assert bench.json("show", "3")["purpose"] == "More: of it"
    assert "nothing to write" in bench.run("refresh", *words).stdout
    core.write_bytes(core.read_bytes().replace(b"line XXV", b"line 5 x 5"))
    assert bench.json("refresh", *words)["written"] == ["0003-more.patch"]
    assert bench.json("status", tree)["applied"]
    bench.run("reverse", "--to", tree)
    assert core.read_bytes() == FILES["engine/core.py"]


def test_a_profile_means_the_patches_of_its_image() -> None:
    patched = [each for each in map(load_profile, list_profiles()) if each.image.patches]
    assert {"cpu", "v100x2-pcie"} <= {each.name for each in patched}
    for profile in patched:
        assert choose_series(None, profile.name) == load_series(str(profile.image.patches)).for_profile(profile)
    with pytest.raises(OnecatError, match="which is not patched"):
        choose_series(None, "h200")


def test_rebase_reports_writes_and_exits_by_whether_all_of_it_moves(bench: Bench) -> None:
    core = FILES["engine/core.py"]
    other = write_archive(
        bench.root / "engine-2.0.tar.gz", {**FILES, "engine/core.py": core.replace(b"5\n", b"V\n")}, "engine-2.0"
    )
    words = ("rebase", "--to", "2.0", "--source", bench.archive, "--to-source", other)
    done = bench.run(*words, "--output", "next", code=1)
    assert f"recorded as seen now: sha256 {pin(other).sha256}" in done.stderr
    assert "0001-first   partly, 2 of 3 hunks fit" in done.stdout
    assert "upstream changed there:" in done.stdout and "+line V" in done.stdout
    assert (bench.root / "next/0001-first.rej").is_file()
    document = bench.json(*words, code=1)
    assert document["schema"] == "onecat.patch-rebase/1"
    assert [row["verdict"] for row in document["patches"]] == ["partly", "partly"]
    write_archive(other, {**FILES, "PKG-INFO": b"Name: engine\nVersion: 2.0\n"}, "engine-2.0")
    assert "another" in bench.run(*words, code=1).stderr or "not the file" in bench.run(*words, code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("verify", "--series", "nothing"), 2, "there is no patch series nothing"),
        (("verify", "--profile", "nothing"), 2, "nothing"),
        (("show", "0001-frist", "--series", "series"), 2, "did you mean `0001-first`?"),
        (("show", "frist", "--series", "series"), 2, "did you mean `0001-first`?"),
        (("verify", "--series", "."), 2, "the folder . has no series.yaml"),
        (("status", "nowhere"), 2, "nowhere does not exist"),
        (("status", "engine-1.0.tar.gz"), 2, "engine-1.0.tar.gz is not a directory"),
        (("reverse", "--to", "nowhere"), 2, "nowhere does not exist"),
        (("reverse", "--to", "nowhere", "--series", "./series"), 2, "nowhere does not exist"),
        (("verify", "--source", "nowhere.tar.gz", "--series", "./series"), 2, "nowhere.tar.gz does not exist"),
        (("apply", "--to", "engine-1.0.tar.gz"), 2, "is not a directory"),
        (("apply", "--to", "engine-1.0.tar.gz", "--series", "./series"), 2, "is not a directory"),
        (("refresh", "--from", "nowhere"), 2, "nowhere does not exist"),
        (("refresh", "--from", "nowhere", "--series", "./series"), 2, "nowhere does not exist"),
        (("new", "x", "--from", "."), 2, "purpose"),
    ],
)
def test_what_cannot_be_is_told_in_a_few_lines(bench: Bench, arguments: tuple[str, ...], code: int, words: str) -> None:
    done = bench.run(*arguments, code=code, series=False)
    assert words in done.stderr
    assert done.stdout == ""

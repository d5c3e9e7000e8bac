"""Our own applying against git's: the same bytes, the same verdict, and back again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onecat.patching.archive import MemorySource
from onecat.patching.diff import parse_diff
from onecat.patching.source import SourceFile
from onecat.patching.states import Attempt, try_changes

GIT = shutil.which("git")
pytestmark = pytest.mark.skipif(GIT is None, reason="git, the other implementation, is not installed")

# Few different lines, so that hunks fit in more than one place; line ends and separators that are none in a diff.
LINES = st.sampled_from([b"a", b"b", b"c", b"", b"a\r", b"\x0c", b"-- x", b"++ y", "\u2028z".encode(), b"\xff"])
ENDS = st.sampled_from([b"\n", b""])


@st.composite
def contents(draw: st.DrawFn, most: int = 30, ends: st.SearchStrategy[bytes] = ENDS) -> bytes:
    lines = draw(st.lists(LINES, min_size=1, max_size=most))
    return b"\n".join(lines) + draw(ends)


@st.composite
def edited(draw: st.DrawFn, content: bytes) -> bytes:
    """The content with some lines put in, changed or taken out."""
    lines = content.split(b"\n")
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines)))
        lines[at : at + draw(st.integers(0, 2))] = draw(st.lists(LINES, max_size=2))
    return b"\n".join(lines)


# git takes a last line without its end for the beginning of a longer line (`a` for `a\\n`) and then joins two lines:
# where the tree is another version, only whole lines are compared.
WHOLE = st.just(b"\n")


def whole(content: bytes) -> bytes:
    """The content with an end behind its last line."""
    return content if not content or content.endswith(b"\n") else content + b"\n"


NAMES = ("x.py", "dir/y.py", "dir/deep/z and space.txt", "run.sh")
Tree = dict[str, SourceFile]


@st.composite
def trees(draw: st.DrawFn) -> tuple[Tree, Tree]:
    """A tree and what became of it: files edited, new, gone, moved, of another mode."""
    modes = st.sampled_from([0o644, 0o755])
    old = {name: SourceFile(draw(contents()), draw(modes)) for name in NAMES if draw(st.booleans())}
    new: Tree = {}
    for name, file in old.items():
        fate = draw(st.sampled_from(["same", "edit", "edit", "gone", "moved", "mode", "empty"]))
        if fate == "edit":
            new[name] = SourceFile(draw(edited(file.content)), file.mode)
        elif fate == "moved":
            new[f"moved/{name}"] = SourceFile(file.content + b"tail\n", file.mode)
        elif fate == "mode":
            new[name] = SourceFile(file.content, draw(modes))
        elif fate == "empty":
            new[name] = SourceFile(b"", file.mode)
        elif fate == "same":
            new[name] = file
    if draw(st.booleans()):
        new["fresh/new.py"] = SourceFile(draw(contents(5)), draw(modes))
    return old, new


class Git:
    """git in a folder of its own, without anybody's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CEILING_DIRECTORIES": str(folder.parent),
        }

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [str(GIT), *arguments], cwd=self.folder, input=stdin, capture_output=True, env=self.environment
        )

    def fill(self, tree: Tree) -> None:
        for path in self.folder.iterdir():
            if path.name != ".git":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        for name, file in tree.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(file.content)
            place.chmod(file.mode)

    def tree(self) -> Tree:
        paths = (path for path in self.folder.rglob("*") if path.is_file() and ".git" not in path.parts)
        return {
            path.relative_to(self.folder).as_posix(): SourceFile(path.read_bytes(), path.stat().st_mode & 0o777)
            for path in paths
        }

    def diff(self, old: Tree, new: Tree) -> str:
        """`git diff` from one tree to the other."""
        written = []
        for tree in (old, new):
            self.fill(tree)
            self.run("add", "-A")
            written.append(self.run("write-tree").stdout.decode().strip())
        return self.run("diff", "-M", "--text", *written).stdout.decode("utf-8", "surrogateescape")

    def apply(self, tree: Tree, diff: str, *options: str) -> Tree | None:
        """The tree after `git apply`, None when git refuses."""
        self.fill(tree)
        arguments = ("apply", "--whitespace=nowarn", *options, "-")
        done = self.run(*arguments, stdin=diff.encode("utf-8", "surrogateescape"))
        return self.tree() if done.returncode == 0 else None


@pytest.fixture(scope="module")
def git() -> Iterator[Git]:
    with tempfile.TemporaryDirectory() as folder:
        made = Git(Path(folder))
        made.run("init", "-q")
        yield made


def after(tree: Tree, attempt: Attempt) -> Tree:
    changed = {**tree, **attempt.writes}
    return {name: file for name, file in changed.items() if file is not None}


@settings(max_examples=80)
@given(trees())
def test_a_diff_of_git_gives_the_bytes_that_git_gives_and_reversed_the_ones_before(
    git: Git, versions: tuple[Tree, Tree]
) -> None:
    old, new = versions
    diff = git.diff(old, new)
    if not diff:
        assert old == new
        return
    changes = parse_diff(diff, "")
    forward = try_changes(changes, MemorySource(old))
    assert forward.fits, forward.changes
    assert after(old, forward) == new == git.apply(old, diff)
    assert all(fit.is_exact for change in forward.changes for fit in change.fits)
    backward = try_changes([change.reversed() for change in changes], MemorySource(new))
    assert backward.fits
    assert after(new, backward) == old


@settings(max_examples=150)
@given(st.data())
def test_on_another_version_the_verdict_and_the_bytes_are_those_of_git(git: Git, data: st.DataObject) -> None:
    old = data.draw(contents(ends=WHOLE))
    new, other = whole(data.draw(edited(old))), whole(data.draw(edited(old)))
    diff = git.diff({"x.py": SourceFile(old)}, {"x.py": SourceFile(new)})
    if not diff:
        return
    tree = {"x.py": SourceFile(other)}
    attempt = try_changes(parse_diff(diff, ""), MemorySource(tree))
    expected = git.apply(tree, diff)
    assert attempt.fits == (expected is not None)
    if expected is not None:
        assert after(tree, attempt) == expected


@settings(max_examples=60)
@given(st.data())
def test_reversed_on_another_version_the_verdict_is_that_of_git(git: Git, data: st.DataObject) -> None:
    old = data.draw(contents(ends=WHOLE))
    new = whole(data.draw(edited(old)))
    other = whole(data.draw(edited(new)))
    diff = git.diff({"x.py": SourceFile(old)}, {"x.py": SourceFile(new)})
    if not diff:
        return
    tree = {"x.py": SourceFile(other)}
    attempt = try_changes([change.reversed() for change in parse_diff(diff, "")], MemorySource(tree))
    expected = git.apply(tree, diff, "--reverse")
    assert attempt.fits == (expected is not None)
    if expected is not None:
        assert after(tree, attempt) == expected

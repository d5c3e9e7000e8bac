"""What a diff says, and what a patch must not do."""

from __future__ import annotations

import pytest

from onecat.errors import OnecatError
from onecat.patching.diff import FileChange, Hunk, parse_diff

EDIT = """\
diff --git a/vllm/a.py b/vllm/a.py
index 1111111..2222222 100644
--- a/vllm/a.py
+++ b/vllm/a.py
@@ -1,3 +1,3 @@ def f():
 one
-two
+TWO
 three
"""


def refusal(text: str) -> OnecatError:
    with pytest.raises(OnecatError) as raised:
        parse_diff(text, "0001-x.patch")
    assert str(raised.value.where).startswith("0001-x.patch")
    return raised.value


def test_an_edit_is_read_with_its_lines_and_their_ends() -> None:
    lines = ((" ", b"one\n"), ("-", b"two\n"), ("+", b"TWO\n"), (" ", b"three\n"))
    assert parse_diff(EDIT, "") == (FileChange("vllm/a.py", "vllm/a.py", (Hunk(1, 1, lines, "def f():"),)),)


def test_a_hunk_writes_its_header_as_git_does() -> None:
    assert parse_diff(EDIT, "")[0].hunks[0].header == "@@ -1,3 +1,3 @@ def f():"
    assert Hunk(5, 5, (("-", b"a\n"), ("+", b"b\n"))).header == "@@ -5 +5 @@"


def test_a_carriage_return_is_part_of_the_line() -> None:
    (change,) = parse_diff(EDIT.replace("one\n", "one\r\n").replace("TWO\n", "TWO\r\n"), "")
    assert change.hunks[0].new == (b"one\r\n", b"TWO\r\n", b"three\n")


def test_only_a_line_feed_ends_a_line() -> None:
    (change,) = parse_diff(EDIT.replace("TWO", "T\x0cW\u2028\x0bO\rX"), "")
    assert change.hunks[0].new[1] == "T\x0cW\u2028\x0bO\rX\n".encode()


def test_bytes_that_are_no_text_come_through() -> None:
    (change,) = parse_diff(EDIT.encode().replace(b"TWO", b"T\xffO").decode("utf-8", "surrogateescape"), "")
    assert change.hunks[0].new[1] == b"T\xffO\n"


def test_the_mark_for_a_missing_line_end_takes_it_from_the_line_before() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"
    (change,) = parse_diff(text, "")
    assert (change.hunks[0].old, change.hunks[0].new) == ((b"a",), (b"a\n",))
    (back,) = parse_diff(
        text.replace("-a\n\\ No newline at end of file\n+a\n", "-a\n+a\n\\ No newline at end of file\n"), ""
    )
    assert (back.hunks[0].old, back.hunks[0].new) == ((b"a\n",), (b"a",))


def test_new_removed_renamed_and_executable_files_are_told_apart() -> None:
    text = (
        "diff --git a/new b/new\nnew file mode 100755\nindex 0000000..1111111\n"
        "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+a\n"
        "diff --git a/old b/old\ndeleted file mode 100644\nindex 1111111..0000000\n"
        "--- a/old\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"
        "diff --git a/from me b/to me\nsimilarity index 100%\nrename from from me\nrename to to me\n"
        "diff --git a/run b/run\nold mode 100644\nnew mode 100755\n"
        "diff --git a/empty b/empty\nnew file mode 100644\nindex 0000000..e69de29\n"
    )
    new, old, renamed, mode, empty = parse_diff(text, "")
    assert (new.old, new.new, new.new_executable) == (None, "new", True)
    assert (old.old, old.new, old.old_executable) == ("old", None, False)
    assert (renamed.old, renamed.new, renamed.hunks) == ("from me", "to me", ())
    assert (mode.old_executable, mode.new_executable) == (False, True)
    assert (empty.old, empty.new, empty.hunks) == (None, "empty", ())


def test_a_change_reversed_twice_is_the_change() -> None:
    (change,) = parse_diff(EDIT, "")
    assert change.reversed().hunks[0].old == change.hunks[0].new
    assert change.reversed().reversed() == change


def test_a_name_in_gits_quotes_is_read() -> None:
    text = EDIT.replace("a/vllm/a.py", '"a/t\\303\\244\\"st.py"').replace("b/vllm/a.py", '"b/t\\303\\244\\"st.py"')
    assert parse_diff(text, "")[0].new == 'tä"st.py'


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("../outside", "leads out of the source tree"),
        ("vllm/../../outside", "leads out of the source tree"),
        ("/etc/passwd", "leads out of the source tree"),
        (".git/hooks/pre-commit", "is no source file"),
        (".onecat-patches.json", "is no source file"),
        ("vllm//a.py", "is no path of a file"),
        ("./a.py", "is no path of a file"),
    ],
)
def test_a_path_that_leaves_the_source_is_refused(name: str, found: str) -> None:
    assert found in refusal(EDIT.replace("vllm/a.py", name)).found
    renamed = f"diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to {name}\n"
    assert found in refusal(renamed).found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "a symbolic link"),
        ("diff --git a/l b/l\nold mode 100644\nnew mode 120000\n", "a symbolic link"),
        (
            "diff --git a/l b/l\nindex 1111111..2222222 120000\n--- a/l\n+++ b/l\n@@ -1 +1 @@\n-a\n+b\n",
            "a symbolic link",
        ),
        ("diff --git a/m b/m\nnew file mode 160000\n--- /dev/null\n+++ b/m\n@@ -0,0 +1 @@\n+x\n", "a submodule"),
        ("diff --git a/x b/x\nold mode 100644\nnew mode 104755\n", "of mode 104755"),
        ("diff --git a/x.so b/x.so\nindex 1..2 100644\nBinary files a/x.so and b/x.so differ\n", "a binary hunk"),
        ("diff --git a/x.so b/x.so\nindex 1..2 100644\nGIT binary patch\nliteral 1\nIcmZPo\n\n", "a binary hunk"),
        ("diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n", "copies a file"),
        ("--- a/x\n+++ b/y\n@@ -1 +1 @@\n-a\n+b\n", "names one file x and y"),
        ("--- x\n+++ x\n@@ -1 +1 @@\n-a\n+b\n", "names x"),
        (EDIT + EDIT, "changes vllm/a.py twice"),
        ("", "holds no change"),
        ("From 1234 Mon\nSubject: x\n\n" + EDIT, "belong to no file"),
        (EDIT + "+one line more than the header says\n", "belong to no file"),
        (EDIT.replace("-1,3 +1,3", "-1,9 +1,9"), "no well-formed diff"),
    ],
)
def test_what_a_patch_must_not_do_is_refused(text: str, found: str) -> None:
    assert found in refusal(text).found


def test_a_hunk_whose_line_count_is_wrong_is_named_by_the_line_where_that_shows() -> None:
    told = refusal(EDIT.replace("@@ -1,3 +1,3 @@", "@@ -1,3 +1,9 @@") + EDIT.replace("a.py", "b.py"))
    assert told.where == f"0001-x.patch:{len(EDIT.splitlines()) + 1}"
    assert told.details == ("Hunk diff line expected: diff --git a/vllm/b.py b/vllm/b.py",)

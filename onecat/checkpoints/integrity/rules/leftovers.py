"""Files that a download or a copy left unfinished."""

from __future__ import annotations

from collections.abc import Iterator

from onecat.checkpoints.integrity.contents import Contents
from onecat.checkpoints.integrity.records import Fault
from onecat.checkpoints.integrity.registry import rule
from onecat.checkpoints.json_text import DOWNLOAD_AGAIN
from onecat.checkpoints.safetensors_header import LFS_POINTER

ENDINGS = (".incomplete", ".aria2", ".part", ".partial", ".crdownload", ".tmp", ".download", ".!ut")
LFS_SOURCE = "https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md"
ARIA2_SOURCE = "https://aria2.github.io/manual/en/html/aria2c.html"


@rule
def unfinished(contents: Contents) -> Iterator[Fault]:
    """No tool has left a file that says it did not finish."""
    for name in contents.sizes:
        base, dot, _ = name.rpartition(".")
        if name.endswith(".aria2") and base in contents.sizes:
            why = "aria2 gives a file its whole length before its bytes are there: no size tells that some are missing."
            fix = f"run aria2c again with the same arguments until {name} is gone"
            yield Fault("unfinished-download", "fail", "is not all there: aria2 has not finished it", base, fix, why,
                        ARIA2_SOURCE)  # fmt: skip
        elif dot and name.endswith(ENDINGS):
            text = "is what an unfinished download or copy leaves"
            fix = "let the download finish, then remove this file"
            yield Fault("unfinished-download", "warn", text, name, fix, "Files may be missing or old.")


@rule
def pointers(contents: Contents) -> Iterator[Fault]:
    """No file is a Git LFS pointer, empty, a web page, or a link to nothing."""
    for name, start in contents.starts.items():
        if start.startswith(LFS_POINTER):
            words = dict(line.split(" ", 1) for line in start.decode("utf-8", "replace").splitlines() if " " in line)
            size = words.get("size", "")
            told = f" of a file of {int(size)} bytes" if size.isdigit() and len(size) < 19 else ""
            yield Fault(
                "lfs-pointer",
                "fail",
                f"is a Git LFS pointer{told}, not the file",
                name,
                "run `git lfs pull` in that directory",
                "The repository was cloned without git-lfs.",
                LFS_SOURCE,
            )
        elif start.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
            fix = "download it again, with a token if the model needs one"
            yield Fault(
                "web-page", "fail", "is a web page, not the file", name, fix, "A login or error page was saved."
            )
        elif not start and name.endswith((".json", ".model", ".jinja", "merges.txt", ".py")):
            yield Fault("empty-file", "fail", "is empty", name, DOWNLOAD_AGAIN)
    for name, length in contents.sizes.items():
        if length < 0 and "/" not in name:
            fix = "download it again; a hub cache's blobs may have been removed"
            yield Fault("dead-link", "fail", "is a link to a file that is not there", name, fix)

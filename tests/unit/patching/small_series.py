"""A small source, its archive, and a series for it."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from onecat.patching import Series, Upstream, load_series

NAME = "engine-1.0"
FILES = {
    "PKG-INFO": b"Metadata-Version: 2.1\nName: engine\nVersion: 1.0\n",
    "engine/core.py": b"".join(b"line %d\n" % number for number in range(1, 31)),
    "engine/run.sh": b"#!/bin/sh\necho run\n",
    "engine/windows.txt": b"one\r\ntwo\r\nthree\r\n",
    "engine/unended.txt": b"alpha\nbeta",
    "engine/gone.py": b"old\n",
}

FIRST = """\
diff --git a/engine/core.py b/engine/core.py
--- a/engine/core.py
+++ b/engine/core.py
@@ -2,7 +2,7 @@ line 1
 line 2
 line 3
 line 4
-line 5
+line five
 line 6
 line 7
 line 8
diff --git a/engine/windows.txt b/engine/windows.txt
--- a/engine/windows.txt
+++ b/engine/windows.txt
@@ -1,3 +1,3 @@
 one\r
-two\r
+TWO\r
 three\r
diff --git a/engine/unended.txt b/engine/unended.txt
--- a/engine/unended.txt
+++ b/engine/unended.txt
@@ -1,2 +1,3 @@
 alpha
-beta
\\ No newline at end of file
+beta
+gamma
\\ No newline at end of file
"""

SECOND = """\
diff --git a/engine/core.py b/engine/core.py
--- a/engine/core.py
+++ b/engine/core.py
@@ -2,7 +2,8 @@ line 1
 line 2
 line 3
 line 4
-line five
+line FIVE
+line five and a half
 line 6
 line 7
 line 8
diff --git a/engine/run.sh b/engine/run.sh
old mode 100644
new mode 100755
diff --git a/engine/gone.py b/engine/gone.py
deleted file mode 100644
--- a/engine/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-old
diff --git a/engine/fresh/new.py b/engine/fresh/new.py
new file mode 100644
--- /dev/null
+++ b/engine/fresh/new.py
@@ -0,0 +1 @@
+new
"""

PATCHES = {"0001-first.patch": FIRST, "0002-second.patch": SECOND}
ADDED = {"ours/kernels.py": b"ours = True\n", "ours/csrc/kernel.cu": b"__global__ void k() {}\n"}


def write_tree(root: Path, files: Mapping[str, bytes] = FILES) -> Path:
    """The unpacked source below a folder."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        place.chmod(0o664)
    return root


def write_archive(path: Path, files: Mapping[str, bytes] = FILES, top: str = NAME) -> Path:
    """A source archive."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(content), 0o664
            tar.addfile(member, io.BytesIO(content))
    return path


def pin(archive: Path, version: str = "1.0") -> Upstream:
    """The pin of an archive."""
    return Upstream("engine", version, archive.name, hashlib.sha256(archive.read_bytes()).hexdigest(), "MIT")


def write_series(
    directory: Path,
    upstream: Upstream | None = None,
    patches: Mapping[str, str] = PATCHES,
    added: Mapping[str, bytes] = ADDED,
    guards: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]] | None = None,
) -> Series:
    """A series in a folder."""
    directory.mkdir(parents=True, exist_ok=True)
    upstream = upstream or Upstream("engine", "1.0", "engine-1.0.tar.gz", "0" * 64, "MIT")
    (directory / "upstream.yaml").write_text(yaml.safe_dump(dict(vars(upstream))), encoding="utf-8")
    rows = []
    for file, text in patches.items():
        (directory / file).write_bytes(text.encode("utf-8", "surrogateescape"))
        row: dict[str, Any] = {"file": file, "purpose": f"Purpose of {file}", "author": "onecat"}
        row |= {"reference": "not sent", "drop_when": "upstream has it", "guard": dict((guards or {}).get(file, {}))}
        rows.append(row)
    text = "# Kept comment.\n" + yaml.safe_dump({"patches": rows}, sort_keys=False)
    (directory / "series.yaml").write_text(text, encoding="utf-8")
    for path, content in added.items():
        place = directory / "add" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return load_series(f"{directory}/")


def everything(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Each file and folder below a root: its mode and its bytes."""
    return {
        path.relative_to(root).as_posix(): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in root.rglob("*")
    }

"""vLLM's Python files that the series changes, with the series on them, as an archive: `overlay.py OUT.tar`."""

from __future__ import annotations

import io
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from onecat.images.sources import fetch_source  # noqa: E402
from onecat.patching import load_series, patched_files, read_members, touched_paths  # noqa: E402
from onecat.paths import home  # noqa: E402


def is_wanted(path: str) -> bool:
    """Whether a path of the source is one of vLLM's Python files."""
    return path.startswith("vllm/") and path.endswith(".py")


def main() -> None:
    """Read the originals from the pinned source archive, and pack the patched files."""
    series = load_series("vllm-0.27.1")
    archive = fetch_source(series.upstream, home(), print)
    upstream = read_members(archive, series.upstream, {path for path in touched_paths(series) if is_wanted(path)})
    contents = patched_files(series, {path: file.content for path, file in upstream.files.items()}.get, is_wanted)
    with tarfile.open(sys.argv[1], "w") as packed:
        for path, content in sorted(contents.items()):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            packed.addfile(member, io.BytesIO(content))
    print(f"{sys.argv[1]}: {len(contents)} files")


if __name__ == "__main__":
    main()

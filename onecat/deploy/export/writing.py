"""Write an export into a directory: nothing that somebody else wrote or changed is overwritten unasked."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onecat.deploy.export.marking import condition
from onecat.deploy.export.records import ExportedFile, Form, Request
from onecat.errors import OnecatError
from onecat.files import write_atomically

SCHEMA = "onecat.export/1"


def write_files(files: Sequence[ExportedFile], directory: Path, form: str, force: bool = False) -> tuple[Path, ...]:
    """Write the files, all or none of them as far as can be known before; returns those that were changed.

    Parameters:
        force: replace files that are not as an export wrote them; the old ones are kept as FILE.old.

    Raises OnecatError (exit code 2) when a file is somebody's, was edited by hand, or cannot be written.
    """
    targets = [(directory / each.path, each) for each in files]
    blocked = [told for path, each in targets if (told := _obstacle(path, each, force)) is not None]
    if blocked:
        raise OnecatError(
            blocked[0],
            details=blocked[1:],
            expected="files that `onecat export` wrote and nobody has changed, or none",
            where=str(directory.absolute()),
            next_steps=[
                f"onecat export {form} --output {shlex.quote(str(directory))} --force, to replace them "
                "(the old ones are kept as FILE.old)",
                f"onecat export {form} --output ANOTHER-DIRECTORY",
            ],
        )
    changed = []
    try:
        for path, each in targets:
            old = _read(path)
            if old == each.text and path.stat().st_mode & 0o7777 == each.mode:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if old is not None and condition(old) != "ours":
                path.replace(path.with_name(f"{path.name}.old"))
            write_atomically(path, each.text, each.mode)
            changed.append(path)
    except OSError as error:
        raise OnecatError(
            f"{error.filename or directory} cannot be written: {error.strerror}",
            expected="a directory of yours with room for it",
            where=str(directory.absolute()),
            next_steps=[f"onecat export {form} --output ANOTHER-DIRECTORY"],
        ) from error
    return tuple(changed)


def document(form: Form, request: Request, files: Sequence[ExportedFile], written: Sequence[Path] | None) -> Any:
    """The export as an `onecat.export/1` document. written: paths that were changed; None when none was asked for."""
    return {
        "schema": SCHEMA,
        "form": form.name,
        "deployment": request.deployment.name,
        "files": [{"path": each.path, "mode": f"{each.mode:04o}", "text": each.text} for each in files],
        "written": None if written is None else [str(path) for path in written],
        "warnings": list(request.plan.warnings),
    }


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return None


def _obstacle(path: Path, file: ExportedFile, force: bool) -> str | None:
    """Why the file must not be written; None when it may."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        return f"{path} is no plain file and was left as it is"
    try:
        old = _read(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}"
    if force or old is None or old == file.text:
        return None
    return {
        "ours": None,
        "edited": f"{path} was changed by hand since onecat wrote it, and was left as it is",
        "foreign": f"{path} was not written by onecat and was left as it is",
    }[condition(old)]

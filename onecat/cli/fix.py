"""Writing fix scripts. `onecat doctor --fix-script` calls it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onecat.cli import console
from onecat.errors import OnecatError

if TYPE_CHECKING:
    from onecat.config import Profile
    from onecat.doctor import HostReport, Settings
    from onecat.facts import Facts


def write_fix_scripts(
    target: Path,
    examined: Sequence[tuple[HostReport, Facts | None]],
    profile: Profile | None,
    settings: Settings,
) -> tuple[Path, ...]:
    """Write the fix script of one host to `target`, or those of several into the directory `target`, as HOST.sh.

    Nothing that exists is replaced. Hosts that could not be reached (no facts) get none. Returns the files written.

    Raises OnecatError (exit code 2) when the target is of the wrong kind, a file is there already, or a distribution
    has no script.
    """
    from onecat.doctor.fix import fix_script

    reached = [(host, facts) for host, facts in examined if facts is not None]
    files = _files(target, [host.name for host, _ in reached], several=len(examined) > 1)
    for file in files:
        if file.exists() or file.is_symlink():
            raise OnecatError(
                "the fix script is there already and was left as it is",
                where=str(file),
                next_steps=[f"remove it: rm {file}", "or name another one"],
            )
    texts = [fix_script(host, facts, profile, settings) for host, facts in reached]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
        console.progress(f"fix script: {file}; read it, then on that host, as root: sh {file.name}")
    return files


def _files(target: Path, names: Sequence[str], several: bool) -> tuple[Path, ...]:
    import re

    if not several and not target.is_dir():
        return (target,) * len(names)
    if not target.is_dir():
        raise OnecatError(
            f"several hosts have several fix scripts, and {target} is no directory",
            expected="--fix-script DIRECTORY",
            next_steps=[f"mkdir {target}"],
        )
    files = tuple(target / f"{re.sub(r'[^A-Za-z0-9.-]', '_', name)}.sh" for name in names)
    if len(set(files)) < len(files):
        raise OnecatError("two hosts would get the same file name", expected="hosts whose names differ in letters")
    return files

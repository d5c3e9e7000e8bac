"""Values that need no conversion come to what Typer makes of them, and pydantic is not loaded for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import typer.core

from onecat.checkpoints.tiny import write_tiny_checkpoint
from onecat.cli.application import build_app
from onecat.cli.plain_values import take_plain_values


def parameters(command: Any) -> Iterator[Any]:
    with command.make_context("x", [], resilient_parsing=True) as context:
        yield from command.get_params(context)
    for below in getattr(command, "commands", {}).values():
        yield from parameters(below)


def outcome(parameter: Any, value: Any) -> tuple[type, Any]:
    """The value that a command would get, or the error that its user would."""
    try:
        got = parameter.get_runtime_param().coerce(value, param=parameter, ctx=None)
    except typer.BadParameter as error:
        return type(error), error.message
    return type(got), got


def test_every_parameter_of_every_command_gets_what_typer_would_give_it() -> None:
    ours, typers = typer.main.get_command(build_app()), typer.main.get_command(build_app())
    take_plain_values(ours)
    pairs = list(zip(parameters(ours), parameters(typers), strict=True))
    assert len(pairs) > 200
    for value in (None, "", "word", "-", "1", "~", "\u00e9", "a\0b", "\udc80", "/", "nowhere/x"):
        for mine, other in pairs:
            assert outcome(mine, value) == outcome(other, value), (mine.opts, value)


def test_what_typer_looks_at_closely_it_still_does(tmp_path: Path) -> None:
    app = typer.Typer()

    @app.command()
    def command(
        there: Annotated[Path, typer.Option(exists=True)] = Path(),
        a_file: Annotated[Path, typer.Option(dir_okay=False)] = Path(),
        whole: Annotated[Path, typer.Option(resolve_path=True)] = Path(),
        made: Annotated[str, typer.Option(parser=lambda text: str(text).upper())] = "",
        number: int = 0,
        several: Annotated[list[str] | None, typer.Option()] = None,
    ) -> None: ...

    ours, typers = typer.main.get_command(app), typer.main.get_command(app)
    take_plain_values(ours)
    for value in (None, str(tmp_path), str(tmp_path / "nowhere"), "7", ["a", "b"]):
        for mine, other in zip(parameters(ours), parameters(typers), strict=True):
            assert outcome(mine, value) == outcome(other, value), (mine.opts, value)


def test_a_path_that_may_not_be_read_is_refused_as_typer_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    command = typer.main.get_command(build_app("model"))
    take_plain_values(command)
    path = next(each for each in parameters(command) if each.name == "path")
    assert outcome(path, str(tmp_path / "nowhere")) == (type(tmp_path), tmp_path / "nowhere")
    assert outcome(path, str(tmp_path)) == (typer.BadParameter, f"path '{tmp_path}' is not readable.")


def test_inspect_loads_no_pydantic(tmp_path: Path) -> None:
    path = write_tiny_checkpoint(tmp_path / "tiny")
    program = (
        f"import sys; from onecat.cli.main import main; sys.argv = ['onecat', 'model', 'inspect', {str(path)!r}]\n"
        "try: main()\n"
        "except SystemExit as ended: assert ended.code == 0\n"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL).returncode == 0

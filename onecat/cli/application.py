"""Gathers the commands of `onecat` and turns failures into messages and exit codes.

Command modules are found in this package by their `register` function, so a new command is a new file with its name.
They import nothing heavier than typer at the top: `onecat --help` loads all of them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import onecat.cli
from onecat import __version__
from onecat.cli import console
from onecat.cli.main import INTERRUPTED
from onecat.cli.plain_values import take_plain_values
from onecat.errors import OnecatError

GLOBAL_OPTIONS = ("--debug", "--quiet", "-q")
HELP = ("-h", "--help")


class CommandList(TyperGroup):
    """A group whose help says in full what each command does; Typer cuts it off at the width of the terminal."""

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(400)) for name in self.list_commands(ctx)]
            )


def build_app(command: str | None = None) -> typer.Typer:
    """The Typer application with every command of this package registered.

    Parameters:
        command: the one that will run; the others are then left out, which takes half the time. All are there where
            no command has that name, so that what was typed is compared with all. For an option of HELP they are only
            listed.
    """
    app = typer.Typer(
        name="onecat",
        cls=CommandList,
        invoke_without_command=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": list(HELP), "max_content_width": 100},
        help="Find what is wrong on a GPU host, build a vLLM that runs on it, start it behind nginx, and say why.",
    )

    def options(
        context: typer.Context,
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no progress.")] = False,
        version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    ) -> None:
        if version:
            print(f"onecat {__version__}")
        elif context.invoked_subcommand is None:
            print(context.get_help())

    app.callback()(options)
    modules = sorted(module.name for module in pkgutil.iter_modules(onecat.cli.__path__))
    alone = (command or "").replace("-", "_")
    if alone not in modules or not _register(alone, app):
        for name in modules:
            _register(name, app)
    if command in HELP:
        _leave_names_only(app)
    _evaluate_annotations(app)
    return app


def _leave_names_only(app: typer.Typer) -> None:
    """Leave of each command what the list of commands shows: most of the time goes into their options."""
    for command in app.registered_commands:
        if command.help is not None:
            command.callback = _nothing
    for group in app.registered_groups:
        if group.typer_instance is not None:
            group.typer_instance.registered_commands.clear()


def _nothing() -> None:
    """Stands for a command that is only listed."""


def _register(module: str, app: typer.Typer) -> bool:
    """Add a module's command, if it is the module of one."""
    register = getattr(importlib.import_module(f"onecat.cli.{module}"), "register", None)
    if register is None:
        return False
    register(app)
    return True


def _evaluate_annotations(app: typer.Typer) -> None:
    """Evaluate the annotations of all commands once; Typer would evaluate their texts four times each."""
    for command in app.registered_commands:
        if command.callback is not None:
            command.callback.__annotations__ = inspect.get_annotations(command.callback, eval_str=True)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            _evaluate_annotations(group.typer_instance)


def run() -> None:
    """Run the command line that `sys.argv` holds.

    Raises SystemExit with the exit code; KeyboardInterrupt after Ctrl-C.
    """
    console.prepare_streams()
    words, options = split_global_options(sys.argv[1:])
    console.configure(quiet=bool({"--quiet", "-q"} & set(options)))
    as_json = "--json" in words
    debug = "--debug" in options
    try:
        command = typer.main.get_command(build_app(*words[:1]))
        take_plain_values(command)
        code = command([*options, *words], prog_name="onecat", standalone_mode=False)
        sys.stdout.flush()  # a reader that went away shows here, not while Python ends
    except typer.Abort as aborted:  # what Typer makes of a Ctrl-C
        raise KeyboardInterrupt from aborted
    except (BrokenPipeError, SystemExit) as ended:
        # Typer makes exit code 1 of a closed pipe, which here would mean "the answer is no".
        if not any(isinstance(each, BrokenPipeError) for each in (ended, ended.__context__)):
            raise
        console.drop_output()
        sys.exit(128 + signal.SIGPIPE)
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user never sees a traceback unasked
        if debug and not isinstance(error, OnecatError):
            raise
        _end(console.as_onecat_error(error), as_json)
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    sys.exit(code if isinstance(code, int) else 0)


def _end(failure: OnecatError, as_json: bool) -> NoReturn:
    try:
        console.print_error(failure, as_json)
        sys.stdout.flush()
    except OSError:
        # The streams cannot be written (a full disk, a reader that went away): the exit code still tells.
        console.drop_output()
    sys.exit(int(failure.code))


def split_global_options(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Take `--debug`, `--quiet` and `-q` out of the words, wherever they stand before a `--`.

    Returns the other words and the options found.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = [word for word in arguments[:end] if word in GLOBAL_OPTIONS]
    words = [word for word in arguments[:end] if word not in GLOBAL_OPTIONS]
    return [*words, *arguments[end:]], options

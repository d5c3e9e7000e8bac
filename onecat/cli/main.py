"""Entry point of the `onecat` command: gathers the commands and turns failures into messages and exit codes.

Command modules are found in this package by their `register` function, so a new command is a new file. They import
nothing heavier than typer at the top: `onecat --help` loads all of them.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Annotated

import typer

import onecat.cli
from onecat import __version__
from onecat.cli import console
from onecat.errors import ExitCode, OnecatError


def build_app() -> typer.Typer:
    """The Typer application with every command of this package registered."""
    app = typer.Typer(
        name="onecat",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        help="Find what is wrong on a GPU host, build a vLLM that runs on it, start it behind nginx, and say why.",
    )

    def options(
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")] = False,
        quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no progress.")] = False,
        version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    ) -> None:
        if version:
            print(f"onecat {__version__}")
            raise typer.Exit()

    app.callback()(options)
    modules = sorted(module.name for module in pkgutil.iter_modules(onecat.cli.__path__))
    for name in modules:
        register = getattr(importlib.import_module(f"onecat.cli.{name}"), "register", None)
        if register is not None:
            register(app)
    return app


def main() -> None:
    """Run the command line; never shows a traceback unless `--debug` is given."""
    debug = "--debug" in sys.argv
    as_json = "--json" in sys.argv
    try:
        build_app()()
    except OnecatError as error:
        console.print_error(error, as_json=as_json)
        sys.exit(int(error.code))
    except KeyboardInterrupt:
        print("\nonecat: interrupted; run the same command again to go on from here", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        if debug:
            raise
        console.print_error(console.from_os_error(error), as_json=as_json)
        sys.exit(int(ExitCode.NEEDS_PERSON))
    except Exception as error:  # noqa: BLE001 - the last line of defence: a user never sees a traceback unasked
        if debug:
            raise
        console.print_error(console.from_bug(error), as_json=as_json)
        sys.exit(int(ExitCode.NEEDS_PERSON))

"""The command line in processes that have its modules already: most of what a short command takes is loading them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess

from onecat.cli.main import main

_MODULES = ("tests.testbed.forked_command", "onecat.cli.application")


def start(argv: Sequence[str], environment: Mapping[str, str], modules: Sequence[str]) -> BaseProcess:
    """Start a command, silent, in a process of its own. modules: what it loads; the first call says it for all."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_MODULES, *modules])
    process = context.Process(target=_call, args=(list(argv), dict(environment)))
    process.start()
    return process


def _call(argv: list[str], environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # multiprocessing has its processes ignore it
    for descriptor in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
    sys.argv = argv
    main()

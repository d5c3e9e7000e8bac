"""Runs the setup.py of the current folder and prints as JSON what it hands to setuptools; nothing is built."""

from __future__ import annotations

import json
import runpy
import sys
from typing import Any

import setuptools

given: dict[str, Any] = {}


def keep(**arguments: Any) -> None:
    given.update(arguments)


setuptools.setup = keep
sys.argv = ["setup.py", "bdist_wheel"]
runpy.run_path("setup.py")
extensions = [[extension.name, bool(extension.optional)] for extension in given["ext_modules"]]
answer = {"version": given["version"], "extensions": extensions, "requirements": given["install_requires"]}
print(json.dumps(answer))

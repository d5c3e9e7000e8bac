"""Programs that run in the engine's interpreter, with vllm_volta and a vLLM of our choice first on its path.

checks       numbers: each check is a function that raises; `python checks.py NAMES`. panel_checks: more of them
choices      what is chosen on a CUDA platform of compute capability 7.0; `python choices.py DOCUMENT`
stock        what the plugin does to a vLLM without our patches
generate     answers of several checkpoints in one process
"""

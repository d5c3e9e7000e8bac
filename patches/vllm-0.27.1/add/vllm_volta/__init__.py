"""Weight-only NVFP4 and FP8 for vLLM on GPUs of compute capability 7.0, and for every machine that has PyTorch.

plugin       what vLLM calls in each of its processes (entry point `vllm.general_plugins`)
dequantize   the number formats in plain PyTorch
ops          torch.ops.vllm_volta: the linear layers, and the compiled kernels where they were built
nvfp4, fp8   the kernel classes that vLLM chooses from
quasar       `--quantization quasar_nvfp4`
"""

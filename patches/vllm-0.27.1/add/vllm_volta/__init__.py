"""Weight-only NVFP4 and FP8, and attention, for vLLM on GPUs of compute capability 7.0; the weights also without a GPU.

plugin       what vLLM calls in each of its processes (entry point `vllm.general_plugins`)
dequantize   the number formats in plain PyTorch
panels       weights repacked for tensor cores, in plain PyTorch
ops          torch.ops.vllm_volta: the linear layers
row_major    those of weights as checkpoints have them
extension    the compiled kernels, where they were built
nvfp4, fp8   the kernel classes that vLLM chooses from
attention_ops  paged attention: the compiled kernels, and what they compute in plain PyTorch
attention    the attention backend that vLLM chooses
gdn          which variants of its kernels for gated delta nets Triton tries
layout       whether a layer's weights become panels
compile_cache  what vLLM's cache of compiled code has to tell apart
quasar       `--quantization quasar_nvfp4`
"""

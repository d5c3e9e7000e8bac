"""Where the compilers are, and what they are told."""

import os

CUDA_HOME = os.environ.get("CUDA_HOME")
ROCM_HOME = None
COMMON_NVCC_FLAGS = ["--expt-relaxed-constexpr"]

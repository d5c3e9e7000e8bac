// All kernels: what is compiled to the device code that the extension embeds (launch.h).

#include "attention_split.cuh"
#include "attention_tiled.cuh"
#include "dequantize.cuh"
#include "panel_dequantize.cuh"
#include "panel_matmul.cuh"
#include "write_cache.cuh"

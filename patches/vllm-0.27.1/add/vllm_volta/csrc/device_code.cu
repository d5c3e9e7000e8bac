// All kernels: what is compiled to the device code that the extension embeds (launch.h).

#include "dequantize.cuh"
#include "panel_dequantize.cuh"
#include "panel_matmul.cuh"

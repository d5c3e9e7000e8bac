// Values of the narrow number formats that Volta has no instructions for.
// Plain arithmetic on 32-bit words, the same on the device and on the host; needs no header, so NVRTC takes it too.

#pragma once

#if defined(__CUDACC__)
  #define VOLTA_FUNCTION __host__ __device__ __forceinline__
#else
  #define VOLTA_FUNCTION inline
#endif

namespace vllm_volta {

// Values that share one scale in NVFP4.
constexpr int NVFP4_BLOCK = 16;

VOLTA_FUNCTION float float_of_bits(unsigned int bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

// E4M3 without infinities (OCP 8-bit floating point, revision 1.0): sign, 4 exponent bits with bias 7, 3 mantissa bits;
// 0x7f and 0xff are NaN. Only the lowest 8 bits of `code` count.
VOLTA_FUNCTION float e4m3_value(unsigned int code) {
  const unsigned int sign = (code & 0x80u) << 24;
  const unsigned int magnitude = code & 0x7fu;
  if (magnitude == 0x7fu) {
    return float_of_bits(sign | 0x7fc00000u);
  }
  if (magnitude < 8u) {  // subnormal: multiples of 2^-9
    const float value = static_cast<float>(magnitude) * 0.001953125f;
    return sign ? -value : value;
  }
  // The exponent moves from bias 7 to bias 127.
  return float_of_bits(sign | ((magnitude << 20) + (120u << 23)));
}

// E2M1 (OCP microscaling formats, revision 1.0): 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
// Only the lowest 4 bits of `code` count.
VOLTA_FUNCTION float e2m1_value(unsigned int code) {
  const unsigned int sign = (code & 8u) << 28;
  const unsigned int magnitude = code & 7u;
  if (magnitude < 2u) {
    return float_of_bits(sign | (magnitude ? 0x3f000000u : 0u));
  }
  // The exponent moves from bias 1 to bias 127.
  return float_of_bits(sign | ((magnitude << 22) + (126u << 23)));
}

// Eight NVFP4 values of one word, the first in its lowest bits, times their block's scale.
VOLTA_FUNCTION void decode_nvfp4(unsigned int word, float scale, float values[8]) {
  for (int i = 0; i < 8; ++i) {
    values[i] = e2m1_value(word >> (4 * i)) * scale;
  }
}

// Four FP8 values of one word, the first in its lowest bits, times their scale.
VOLTA_FUNCTION void decode_fp8(unsigned int word, float scale, float values[4]) {
  for (int i = 0; i < 4; ++i) {
    values[i] = e4m3_value(word >> (8 * i)) * scale;
  }
}

}  // namespace vllm_volta

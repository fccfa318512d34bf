// Products of int8 matrices, and float rows as int8 with a scale.
//
//   x[k] = scale * q[k] + error,   |error| <= scale / 2,   scale = max |x| / 127
//
// A window of the convolution is one row: it has one scale, which depends on nothing outside it, so that a sequence that is
// cut gives the same integers. Sums of products are exact in int32: 2^31 / 127^2 is 133,000 columns.
#pragma once

#include <cstdint>

namespace quasirnn {

constexpr int64_t kMostInt8Columns = 133000;

// Who multiplies. kAuto: the library for many rows, own code for few; where the CPU has no VNNI always own code, as the
// library may then add pairs of products in 16 bits, where they saturate.
enum Int8Path : int64_t { kAuto = 0, kPlain = 1, kVnni = 2, kLibrary = 3, kAvx2 = 4 };

bool has_vnni();
bool has_avx2();
bool has_int8_library();

// Bits of the largest magnitude; those of a NaN are larger than any number's.
uint32_t largest_bits(const float* x, int64_t n);

// The scale that belongs to it: zero for a row of zeros, NaN for one that holds a NaN or an infinity.
float int8_scale(uint32_t bits);

// q = round(x / scale), at most 127 in magnitude; zeros for a scale that is zero or NaN.
void quantize_row(const float* x, float scale, int8_t* q, int64_t n);

// out[j] = (row_scale * scales[j]) * sums[j]
void dequantize_row(const int32_t* sums, float row_scale, const float* scales, float* out, int64_t n);

// out = rows * weight^T, (n, W) from (n, K) and (W, K), on torch's threads.
void int8_product(const int8_t* rows, int64_t n, int64_t K, const int8_t* weight, int64_t W, int32_t* out, Int8Path path);

}  // namespace quasirnn

// The product of a few rows with a matrix in bfloat16, as in a single step: reading the weight once is what it costs.
#pragma once

#include <cstdint>

namespace quasirnn {

// So many rows repay no library's set-up.
constexpr int64_t kFewRows = 4;

// out[r][j] = sum over k of rows[r][k] * weight[j][k], in float, rounded once; on torch's threads. A stride is that of a row.
void multiply_few_rows(const uint16_t* rows, int64_t n, int64_t row_stride, int64_t K, const uint16_t* weight, int64_t W,
                       int64_t weight_stride, uint16_t* out, int64_t out_stride);

}  // namespace quasirnn

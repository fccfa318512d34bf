#include "few_rows.h"

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <vector>

#include "nonlinearity.h"
#include "rows.h"
#include "simd.h"
#include "stored.h"

namespace quasirnn {
namespace {

// So many sums side by side, as several vectors, so that one addition need not wait for the one before it.
constexpr int64_t kLanes = 64;

QUASIRNN_CLONES float dot(const float* x, const uint16_t* w, int64_t K) {
  float sums[kLanes] = {};
  int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) sums[l] += x[k + l] * wide(w[k + l]);
  }
  for (int64_t l = 0; k < K; ++k, ++l) sums[l] += x[k] * wide(w[k]);
  for (int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (int64_t l = 0; l < half; ++l) sums[l] += sums[l + half];
  }
  return sums[0];
}

}  // namespace

void multiply_few_rows(const uint16_t* rows, int64_t n, int64_t row_stride, int64_t K, const uint16_t* weight, int64_t W,
                       int64_t weight_stride, uint16_t* out, int64_t out_stride) {
  std::vector<float> wide(n * K);
  for (int64_t r = 0; r < n; ++r) widen_bfloat16(rows + r * row_stride, wide.data() + r * K, K);
  // A thread's share is at least some 10 us of work.
  const int64_t grain = std::max<int64_t>(16, (int64_t{1} << 17) / std::max<int64_t>(1, n * K));
  torch::stable::parallel_for(0, W, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> sums(end - begin);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t j = begin; j < end; ++j) sums[j - begin] = dot(wide.data() + r * K, weight + j * weight_stride, K);
      narrow_bfloat16(sums.data(), out + r * out_stride + begin, end - begin);
    }
  });
}

}  // namespace quasirnn

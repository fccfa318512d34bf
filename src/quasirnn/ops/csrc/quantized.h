// The layer forward with an int8 weight: windows are quantised as they are gathered, and the fused pass undoes the scales.
#pragma once

#include "int8.h"
#include "layer.h"

namespace quasirnn {

// As copy_windows, in int8, and the scale of each window.
inline void quantize_windows(const PoolShape& shape, const Window& window, const Input<float>& input, int64_t begin,
                             int64_t end, int8_t* windows, float* scales) {
  const int64_t B = shape.B, D = input.D, k = window.k;
  const int64_t grain = std::max<int64_t>(1, 16384 / (k * D));
  torch::stable::parallel_for(begin * B, end * B, grain, [&](int64_t first, int64_t last) {
    std::vector<const float*> inputs(k);
    int64_t t = first / B, b = first % B;
    for (int64_t row = first; row < last; ++row) {
      uint32_t most = 0;
      for (int64_t j = 0; j < k; ++j) {
        const int64_t from = t + window.shift(j);
        inputs[j] = nullptr;
        // A step behind the row's length has an output of zero: its window is not looked at.
        // One behind its end is zero, and `together` may not look there: starts has no more than T steps.
        if (std::max(t, from) >= shape.length(b) || !shape.together(from, t, b)) continue;
        if (from >= 0) {
          inputs[j] = input.x + (from * B + b) * input.stride;
        } else if (input.context != nullptr) {
          inputs[j] = input.context + (b * (k - 1) + (k - 1 + from)) * D;
        }
        if (inputs[j] != nullptr) most = std::max(most, largest_bits(inputs[j], D));
      }
      const float scale = scales[row - begin * B] = int8_scale(most);
      int8_t* to = windows + (row - begin * B) * k * D;
      for (int64_t j = 0; j < k; ++j, to += D) {
        if (inputs[j] != nullptr) {
          quantize_row(inputs[j], scale, to, D);
        } else {
          std::fill_n(to, D, int8_t{0});
        }
      }
      if (++b == B) b = 0, ++t;
    }
  });
}

inline void run_quantized_layer(const Input<float>& input, const int8_t* weight, const float* weight_scales,
                                const Window& window, PoolForward<float> pass) {
  const PoolShape& shape = pass.shape;
  const int64_t T = shape.T, B = shape.B, W = shape.width(), K = window.k * input.D;
  STD_TORCH_CHECK(K <= kMostInt8Columns, "quasirnn: an int8 layer sums at most ", kMostInt8Columns, " products, got k * D = ", K);
  const int64_t steps = steps_per_chunk(kForwardRows<float>, T, B);
  const Scratch<int8_t> windows(steps * B * K);
  const Scratch<float> scales(steps * B);
  const Scratch<int32_t> sums(steps * B * W);
  pass.row_scales = scales.data();
  pass.gate_scales = weight_scales;
  for (int64_t done = 0; done < T; done += steps) {
    const int64_t n = std::min(steps, T - done);
    const int64_t begin = shape.reverse ? T - done - n : done;
    quantize_windows(shape, window, input, begin, begin + n, windows.data(), scales.data());
    int8_product(windows.data(), n * B, K, weight, W, sums.data(), kAuto);
    pass.run(Span{begin, begin + n, shape.reverse}, sums.data());
  }
}

}  // namespace quasirnn

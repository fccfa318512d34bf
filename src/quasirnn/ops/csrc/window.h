// Which inputs a step of the convolution sees.
#pragma once

#include <cstring>

#include "pool.h"

namespace quasirnn {

// Column j of the window of step t is x[t + shift(j)].
struct Window {
  int64_t k, look_ahead;
  bool reverse;

  int64_t left() const { return k - 1 - look_ahead; }
  int64_t shift(int64_t j) const { return reverse ? left() - j : j - left(); }
};

// A layer's input: rows (t, b) of D channels, `stride` apart, and the k - 1 inputs of each row before the first step.
template <class S>
struct Input {
  const S* x;
  int64_t D;
  int64_t stride;
  const S* context;  // (B, k - 1, D) or null: zeros
};

// The windows of the steps [begin, end), one row of k * D for each (t, b). What lies outside a row's own length
// or in another of its sequences is zero and never read.
template <class S>
void copy_windows(const PoolShape& shape, const Window& window, const Input<S>& input, int64_t begin, int64_t end,
                  S* windows) {
  const int64_t B = shape.B, D = input.D, k = window.k;
  const int64_t grain = std::max<int64_t>(1, 16384 / (k * D));
  torch::stable::parallel_for(begin * B, end * B, grain, [&](int64_t first, int64_t last) {
    int64_t t = first / B, b = first % B;
    S* to = windows + (first - begin * B) * k * D;
    for (int64_t row = first; row < last; ++row) {
      for (int64_t j = 0; j < k; ++j, to += D) {
        const int64_t from = t + window.shift(j);
        if (from >= shape.length(b) || !shape.together(from, t, b)) {
          std::fill_n(to, D, S(0));
        } else if (from >= 0) {
          std::memcpy(to, input.x + (from * B + b) * input.stride, D * sizeof(S));
        } else if (input.context != nullptr) {
          std::memcpy(to, input.context + (b * (k - 1) + (k - 1 + from)) * D, D * sizeof(S));
        } else {
          std::fill_n(to, D, S(0));
        }
      }
      if (++b == B) b = 0, ++t;
    }
  });
}

// The gradient of a layer's input: where the windows were copied from, their gradient is added.
template <class S>
struct InputGradient {
  S* x;  // (T, B, D); null: not wanted
  int64_t D;
  S* context;  // (B, k - 1, D) or null
};

// Adds the windows of the steps [begin, end) to what is there. Every target row is visited by one thread, its windows in
// the order of their columns, so that sums do not depend on the number of threads.
template <class S>
void add_windows(const PoolShape& shape, const Window& window, const S* windows, int64_t begin, int64_t end,
                 const InputGradient<S>& gradient) {
  const int64_t B = shape.B, D = gradient.D, k = window.k;
  const int64_t earliest = begin + std::min(window.shift(0), window.shift(k - 1));
  const int64_t latest = end + std::max(window.shift(0), window.shift(k - 1));
  const int64_t grain = std::max<int64_t>(1, 16384 / (k * D));
  torch::stable::parallel_for(earliest * B, latest * B, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t to = row >= 0 ? row / B : -((-row + B - 1) / B);
      const int64_t b = row - to * B;
      S* target = nullptr;
      if (to >= 0 && to < shape.length(b) && gradient.x != nullptr) target = gradient.x + row * D;
      if (to < 0 && gradient.context != nullptr) target = gradient.context + (b * (k - 1) + (k - 1 + to)) * D;
      for (int64_t j = 0; target != nullptr && j < k; ++j) {
        const int64_t t = to - window.shift(j);
        if (t >= begin && t < end && shape.together(to, t, b)) add_row(windows + (((t - begin) * B + b) * k + j) * D, target, D);
      }
    }
  });
}

}  // namespace quasirnn

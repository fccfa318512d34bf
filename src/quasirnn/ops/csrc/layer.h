// The layer forward, chunk by chunk: convolution over time and pooling.
//
// A chunk is some hundred rows (t, b). Its windows are copied side by side, multiplied with the weight into a buffer that
// stays in cache, and pooled there. Nothing the size of the windows or of the gates is made for the whole sequence,
// except the gates that the backward needs, which are computed in their place.
#pragma once

#include "gemm.h"
#include "pool.h"
#include "scratch.h"
#include "window.h"

namespace quasirnn {

// Rows of one chunk forward: few enough for windows and gates to stay in cache; as many bytes of every type.
template <class S>
constexpr int64_t kForwardRows = std::max<int64_t>(512, 2048 / static_cast<int64_t>(sizeof(S)));

// Steps of one chunk: chunks of about that many rows, as even as they can be. A last chunk of a few rows would cost a whole
// visit to the weight.
inline int64_t steps_per_chunk(int64_t rows, int64_t T, int64_t B) {
  const int64_t chunks = std::clamp<int64_t>((T * B + rows / 2) / rows, 1, std::max<int64_t>(1, T));
  return (T + chunks - 1) / chunks;
}

inline int64_t chunks_of(int64_t T, int64_t steps) { return steps > 0 ? (T + steps - 1) / steps : 0; }

template <class S>
void run_layer(const Input<S>& input, const S* weight, const Window& window, const PoolForward<S>& pass,
               const Multiplier& multiply) {
  const PoolShape& shape = pass.shape;
  const int64_t T = shape.T, B = shape.B, W = shape.width(), K = window.k * input.D;
  const int64_t steps = steps_per_chunk(kForwardRows<S>, T, B);
  const Scratch<S> windows(window.k > 1 ? steps * B * K : 0);
  const Scratch<S> buffer(pass.activated == nullptr ? steps * B * W : 0);
  const Matrix transposed_weight = Matrix{weight, W, K, K, 1}.transposed();
  const auto arranged = multiply.arranged(transposed_weight, steps * B, chunks_of(T, steps));
  for (int64_t done = 0; done < T; done += steps) {
    const int64_t n = std::min(steps, T - done);
    const int64_t begin = shape.reverse ? T - done - n : done;
    Matrix rows{input.x + begin * B * input.stride, n * B, K, input.stride, 1};
    if (window.k > 1) {
      copy_windows<S>(shape, window, input, begin, begin + n, windows.data());
      rows = Matrix{windows.data(), n * B, K, K, 1};
    }
    S* room = pass.activated != nullptr ? pass.activated + begin * B * W : buffer.data();
    const auto [gates, owner] = multiply.template fastest<S>(Matrix{room, n * B, W, W, 1}, rows, transposed_weight, arranged);
    pass.run(Span{begin, begin + n, shape.reverse}, gates);
  }
}

}  // namespace quasirnn

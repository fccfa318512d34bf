// Operators quasirnn::quantized_layer, quantized_linear and int8_mm; their contract is in ops/quantized.py.
#include "quantized.h"

#include "tensors.h"

namespace quasirnn {

std::tuple<Tensor, Tensor, Tensor, Tensor> quantized_layer(
    Tensor x, Tensor weight, Tensor scale, Maybe bias, Maybe context, Maybe c0, Maybe lengths, Maybe starts,
    double zoneout, int64_t kinds, int64_t look_ahead, bool reverse, bool keep) {
  const ScalarType type = ScalarType::Float;
  check_gates(kinds);
  STD_TORCH_CHECK(x.dim() == 3, "quasirnn: x must have shape (T, B, D), got ", shape_of(x));
  const int64_t T = x.size(0), B = x.size(1), D = x.size(2);
  check(x, "x", type, {T, B, D});
  STD_TORCH_CHECK(D > 0, "quasirnn: x must have at least one channel, got ", shape_of(x));
  STD_TORCH_CHECK(weight.dim() == 3 && weight.size(0) % kinds == 0 && weight.size(1) >= 1,
                  "quasirnn: weight must have shape (", kinds, " * H, k, D), got ", shape_of(weight));
  const int64_t W = weight.size(0), k = weight.size(1), H = W / kinds;
  check(weight, "weight", ScalarType::Char, {W, k, D});
  check(scale, "scale", type, {W});
  STD_TORCH_CHECK(look_ahead >= 0 && look_ahead < k, "quasirnn: look_ahead must lie in 0..k - 1 = ", k - 1, ", got ",
                  look_ahead);
  STD_TORCH_CHECK(!context || (look_ahead == 0 && !reverse), "quasirnn: a context goes with a causal forward layer only");
  check(context, "context", type, {B, k - 1, D});
  const PoolShape shape{T, B, H, kinds, reverse, lengths_of(lengths, T, B), starts_of(starts, T, B)};
  Tensor state = start_state(c0, B, H, type);
  Tensor h = empty({T, B, H}, type);
  Tensor c = keep && kinds != kF ? empty({T, B, H}, type) : empty({0}, type);
  Tensor activated = keep ? empty({T, B, W}, type) : empty({0}, type);
  const Bias<float> added(bias, type, B, W);
  const PoolForward<float> pass{.shape = shape,
                                .zoneout = zoneout_of(zoneout, {}),
                                .bias = added.rows,
                                .bias_stride = added.stride,
                                .state = mutable_data<float>(state),
                                .state_stride = H,
                                .h = mutable_data<float>(h),
                                .h_stride = H,
                                .activated = keep ? mutable_data<float>(activated) : nullptr,
                                .c = keep && kinds != kF ? mutable_data<float>(c) : nullptr};
  run_quantized_layer(Input<float>{data<float>(x), D, D, data<float>(context)}, data<int8_t>(weight), data<float>(scale),
                      Window{k, look_ahead, reverse}, pass);
  return {h, state, c, activated};
}

// x W^T + b for rows of x; each row has its own scale.
Tensor quantized_linear(Tensor x, Tensor weight, Tensor scale, Maybe bias) {
  const ScalarType type = ScalarType::Float;
  STD_TORCH_CHECK(x.dim() == 2 && weight.dim() == 2, "quasirnn: x and weight must have 2 dimensions");
  const int64_t n = x.size(0), K = x.size(1), W = weight.size(0);
  check(x, "x", type, {n, K});
  check(weight, "weight", ScalarType::Char, {W, K});
  check(scale, "scale", type, {W});
  check(bias, "bias", type, {W});
  STD_TORCH_CHECK(K > 0 && K <= kMostInt8Columns, "quasirnn: an int8 product sums 1 to ", kMostInt8Columns, " products");
  Tensor out = empty({n, W}, type);
  if (W == 0) return out;
  const int64_t step = std::max<int64_t>(1, std::min<int64_t>(n, (int64_t{1} << 20) / std::max<int64_t>(1, W)));
  const Scratch<int8_t> rows(step * K);
  const Scratch<float> scales(step);
  const Scratch<int32_t> sums(step * W);
  const float* added = data<float>(bias);
  for (int64_t begin = 0; begin < n; begin += step) {
    const int64_t count = std::min(step, n - begin);
    const float* from = data<float>(x) + begin * K;
    float* to = mutable_data<float>(out) + begin * W;
    for (int64_t r = 0; r < count; ++r) {
      scales.data()[r] = int8_scale(largest_bits(from + r * K, K));
      quantize_row(from + r * K, scales.data()[r], rows.data() + r * K, K);
    }
    int8_product(rows.data(), count, K, data<int8_t>(weight), W, sums.data(), kAuto);
    torch::stable::parallel_for(0, count, std::max<int64_t>(1, 16384 / W), [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        dequantize_row(sums.data() + r * W, scales.data()[r], data<float>(scale), to + r * W, W);
        for (int64_t j = 0; added != nullptr && j < W; ++j) to[r * W + j] += added[j];
      }
    });
  }
  return out;
}

// The product alone, by a given path, for tests: 0 as the layer chooses, 1 plain, 2 VNNI, 3 torch's library, 4 AVX2.
Tensor int8_mm(Tensor rows, Tensor weight, int64_t path) {
  STD_TORCH_CHECK(rows.dim() == 2 && weight.dim() == 2, "quasirnn: rows and weight must have 2 dimensions");
  const int64_t n = rows.size(0), K = rows.size(1), W = weight.size(0);
  check(rows, "rows", ScalarType::Char, {n, K});
  check(weight, "weight", ScalarType::Char, {W, K});
  STD_TORCH_CHECK(K > 0 && K <= kMostInt8Columns, "quasirnn: an int8 product sums 1 to ", kMostInt8Columns, " products");
  STD_TORCH_CHECK(path >= kAuto && path <= kAvx2, "quasirnn: there is no path ", path);
  STD_TORCH_CHECK(path != kVnni || has_vnni(), "quasirnn: this CPU has no AVX-512 VNNI");
  STD_TORCH_CHECK(path != kAvx2 || has_avx2(), "quasirnn: this CPU has no AVX2");
  STD_TORCH_CHECK(path != kLibrary || has_int8_library(), "quasirnn: this torch has no int8 product");
  Tensor out = empty({n, W}, ScalarType::Int);
  int8_product(data<int8_t>(rows), n, K, data<int8_t>(weight), W, mutable_data<int32_t>(out), static_cast<Int8Path>(path));
  return out;
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("quantized_layer", TORCH_BOX(&quasirnn::quantized_layer));
  m.impl("quantized_linear", TORCH_BOX(&quasirnn::quantized_linear));
  m.impl("int8_mm", TORCH_BOX(&quasirnn::int8_mm));
}

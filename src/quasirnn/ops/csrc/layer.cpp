// Operators quasirnn::layer and quasirnn::layer_backward; their contract is in ops/operators.py.
#include "layer.h"
#include "tensors.h"
#include "transpose.h"

namespace quasirnn {
namespace {

// Rows of one chunk backward: enough that adding up the weight's gradient from chunk to chunk costs little.
constexpr int64_t kBackwardRows = 2048;

// Below, turning the weight round takes as long as the product.
constexpr int64_t kRowsWorthFlipping = 1024;

struct LayerShape {
  PoolShape pool;
  Window window;
  int64_t D;
  ScalarType type;
};

LayerShape layer_shape(const Tensor& x, const Tensor& weight, const Maybe& context, const Maybe& lengths,
                       const Maybe& starts, int64_t kinds, int64_t look_ahead, bool reverse) {
  check_gates(kinds);
  STD_TORCH_CHECK(x.dim() == 3, "quasirnn: x must have shape (T, B, D), got ", shape_of(x));
  const ScalarType type = x.scalar_type();
  const int64_t T = x.size(0), B = x.size(1), D = x.size(2);
  check(x, "x", type, {T, B, D});
  STD_TORCH_CHECK(D > 0, "quasirnn: x must have at least one channel, got ", shape_of(x));
  STD_TORCH_CHECK(weight.dim() == 3 && weight.size(0) % kinds == 0 && weight.size(1) >= 1,
                  "quasirnn: weight must have shape (", kinds, " * H, k, D), got ", shape_of(weight));
  const int64_t W = weight.size(0), k = weight.size(1);
  check(weight, "weight", type, {W, k, D});
  STD_TORCH_CHECK(look_ahead >= 0 && look_ahead < k, "quasirnn: look_ahead must lie in 0..k - 1 = ", k - 1, ", got ",
                  look_ahead);
  STD_TORCH_CHECK(!context || (look_ahead == 0 && !reverse), "quasirnn: a context goes with a causal forward layer only");
  check(context, "context", type, {B, k - 1, D});
  return {PoolShape{T, B, W / kinds, kinds, reverse, lengths_of(lengths, T, B), starts_of(starts, T, B)},
          Window{k, look_ahead, reverse}, D, type};
}

// Adds up the weight's gradient over chunks. Each chunk's product is made apart and then added, in float where the type has
// 16 bits: a product that starts from the sum so far would round it at every row.
template <class S>
class WeightGradient {
 public:
  WeightGradient(const Multiplier& multiply, S* out, int64_t rows, int64_t columns, bool one_chunk)
      : multiply_(multiply), out_(out), rows_(rows), columns_(columns), product_(one_chunk ? 0 : rows * columns),
        sum_(kIsWide<S> || one_chunk ? 0 : rows * columns) {}

  void add(const Matrix& grad_gates, const Matrix& windows) {
    S* to = product_.data() == nullptr || (kIsWide<S> && first_) ? out_ : product_.data();
    multiply_transposed<S>(multiply_, Matrix{to, rows_, columns_, columns_, 1}, grad_gates, windows);
    if (to != out_) {
      each([&](int64_t begin, int64_t n) {
        if constexpr (kIsWide<S>) {
          accumulate_row<S>(to + begin, out_ + begin, n);
        } else if (first_) {
          widen<S>(to + begin, sum_.data() + begin, n);
        } else {
          accumulate_row<S>(to + begin, sum_.data() + begin, n);
        }
      });
    }
    first_ = false;
  }

  void finish() {
    if constexpr (!kIsWide<S>) {
      if (sum_.data() != nullptr) each([&](int64_t begin, int64_t n) { narrow<S>(sum_.data() + begin, out_ + begin, n); });
    }
  }

 private:
  template <class F>
  void each(const F& work) const {
    torch::stable::parallel_for(0, rows_ * columns_, 16384, [&](int64_t begin, int64_t end) { work(begin, end - begin); });
  }

  const Multiplier& multiply_;
  S* out_;
  int64_t rows_, columns_;
  Scratch<S> product_;
  Scratch<float> sum_;
  bool first_ = true;
};

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> layer(
    Tensor x, Tensor weight, Maybe bias, Maybe context, Maybe c0, Maybe lengths, Maybe starts, Maybe seed,
    double zoneout, int64_t kinds, int64_t look_ahead, bool reverse, bool keep) {
  const LayerShape shape = layer_shape(x, weight, context, lengths, starts, kinds, look_ahead, reverse);
  const PoolShape& pool = shape.pool;
  const int64_t T = pool.T, B = pool.B, W = pool.width();
  Tensor state = start_state(c0, B, pool.H, shape.type);
  Tensor h = empty({T, B, pool.H}, shape.type);
  Tensor c = keep && kinds != kF ? empty({T, B, pool.H}, shape.type) : empty({0}, shape.type);
  Tensor activated = keep ? empty({T, B, W}, shape.type) : empty({0}, shape.type);
  with_type(shape.type, [&]<class S>() {
    const Bias<S> added(bias, shape.type, B, W);
    const PoolForward<S> pass{.shape = pool,
                              .zoneout = zoneout_of(zoneout, seed),
                              .bias = added.rows,
                              .bias_stride = added.stride,
                              .state = mutable_data<Compute<S>>(state),
                              .state_stride = pool.H,
                              .h = mutable_data<S>(h),
                              .h_stride = pool.H,
                              .activated = keep ? mutable_data<S>(activated) : nullptr,
                              .c = keep && kinds != kF ? mutable_data<S>(c) : nullptr};
    run_layer<S>(Input<S>{data<S>(x), shape.D, shape.D, data<S>(context)}, data<S>(weight), shape.window, pass,
                 Multiplier(shape.type));
  });
  return {h, state, c, activated};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> layer_backward(
    Maybe grad_h, Maybe grad_c_last, Maybe grad_c, Maybe grad_activated, Tensor x, Tensor weight, Maybe context,
    Tensor activated, Tensor c, Maybe c0, Maybe lengths, Maybe starts, double zoneout, int64_t kinds, int64_t look_ahead, bool reverse,
    int64_t bias_rows, bool need_x) {
  const LayerShape shape = layer_shape(x, weight, context, lengths, starts, kinds, look_ahead, reverse);
  const PoolShape& pool = shape.pool;
  const int64_t T = pool.T, B = pool.B, H = pool.H, W = pool.width(), D = shape.D, k = shape.window.k;
  check(activated, "activated", shape.type, {T, B, W});
  check(c, "c", shape.type, {T, B, H});
  check(c0, "c0", state_type(shape.type), {B, H});
  check(grad_h, "grad_h", shape.type, {T, B, H});
  check(grad_c, "grad_c", shape.type, {T, B, H});
  check(grad_activated, "grad_activated", shape.type, {T, B, W});
  STD_TORCH_CHECK(bias_rows == 0 || bias_rows == 1 || bias_rows == B, "quasirnn: bias_rows must be 0, 1 or B");
  Tensor carry = start_state(grad_c_last, B, H, shape.type);
  Tensor grad_weight = B > 0 ? empty({W, k, D}, shape.type) : zeros({W, k, D}, shape.type);
  Tensor grad_x = need_x ? zeros({T, B, D}, shape.type) : empty({0}, shape.type);
  Tensor grad_context = context ? zeros({B, k - 1, D}, shape.type) : empty({0}, shape.type);
  Tensor grad_bias = empty({0}, shape.type);
  with_type(shape.type, [&]<class S>() {
    std::vector<double> sums(B * W, 0.0);
    const PoolBackward<S> pass{pool, check_zoneout(zoneout), data<S>(activated), data<S>(c), data<Compute<S>>(c0), data<S>(grad_h),
                               data<S>(grad_c), data<S>(grad_activated), mutable_data<Compute<S>>(carry), sums.data()};
    const Input<S> input{data<S>(x), D, D, data<S>(context)};
    const InputGradient<S> gradient{need_x ? mutable_data<S>(grad_x) : nullptr, D,
                                    context ? mutable_data<S>(grad_context) : nullptr};
    const int64_t steps = steps_per_chunk(kBackwardRows, T, B);
    const Scratch<S> gates(steps * B * W), windows(steps * B * k * D);
    const Multiplier multiply(shape.type);
    WeightGradient<S> weight_gradient(multiply, mutable_data<S>(grad_weight), W, k * D, steps == T);
    const int64_t K = k * D;
    // Rows of the weight side by side, where the faster library wants them so: one copy for all chunks, which so many rows repay.
    const int64_t rows_of_chunk = steps * B;
    const bool flip = (need_x || context) && rows_of_chunk >= kRowsWorthFlipping && multiply.prefers_onednn(rows_of_chunk, W, K);
    const Scratch<S> flipped(flip ? W * K : 0);
    if (flip) transpose(data<S>(weight), W, K, flipped.data());
    const Matrix all_weights = flip ? Matrix{flipped.data(), W, K, 1, W} : Matrix{data<S>(weight), W, K, K, 1};
    const auto arranged = flip ? multiply.arranged(all_weights, rows_of_chunk, chunks_of(T, steps)) : std::nullopt;
    for (int64_t done = 0; done < T; done += steps) {
      const int64_t n = std::min(steps, T - done);
      const int64_t begin = reverse ? done : T - done - n, end = begin + n;
      pass.run(Span{begin, end, !reverse}, gates.data());
      const Matrix grad_gates{gates.data(), n * B, W, W, 1}, rows{windows.data(), n * B, k * D, k * D, 1};
      copy_windows<S>(pool, shape.window, input, begin, end, windows.data());
      weight_gradient.add(grad_gates, rows);
      if (!need_x && !context) continue;
      const auto [grad_windows, owner] = multiply.template fastest<S>(rows, grad_gates, all_weights, arranged);
      add_windows<S>(pool, shape.window, grad_windows, begin, end, gradient);
    }
    if (B > 0) weight_gradient.finish();
    if (bias_rows > 0) grad_bias = finish_grad_bias<S>(sums, bias_rows, B, W, shape.type);
  });
  return {grad_x, grad_weight, grad_bias, grad_context, carry};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("layer", TORCH_BOX(&quasirnn::layer));
  m.impl("layer_backward", TORCH_BOX(&quasirnn::layer_backward));
}

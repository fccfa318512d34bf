// Operators quasirnn::layer and quasirnn::layer_backward: convolution over time and pooling, chunk by chunk.
//
// A chunk is some hundred rows (t, b). Its windows are copied side by side, multiplied with the weight into a buffer that
// stays in cache, and pooled there. Nothing the size of the windows or of the gates is made for the whole sequence,
// except the gates that the backward needs, which are computed in their place.
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <cstring>

#include "pool.h"
#include "tensors.h"

namespace quasirnn {
namespace {

// Rows of one chunk: forward, few enough for windows and gates to stay in cache; backward, enough that adding up the
// weight's gradient from chunk to chunk costs little.
constexpr int64_t kForwardRows = 512;
constexpr int64_t kBackwardRows = 4096;

// Column j of the window of step t is x[t + shift(j)].
struct Window {
  int64_t k, look_ahead;
  bool reverse;

  int64_t left() const { return k - 1 - look_ahead; }
  int64_t shift(int64_t j) const { return reverse ? left() - j : j - left(); }
};

struct LayerShape {
  PoolShape pool;
  Window window;
  int64_t D;
  ScalarType type;

  int64_t chunk(int64_t rows) const { return std::max<int64_t>(1, rows / std::max<int64_t>(1, pool.B)); }
};

LayerShape layer_shape(const Tensor& x, const Tensor& weight, const Maybe& context, const Maybe& lengths, int64_t kinds,
                       int64_t look_ahead, bool reverse) {
  check_gates(kinds);
  STD_TORCH_CHECK(x.dim() == 3, "quasirnn: x must have shape (T, B, D), got ", shape_of(x));
  const ScalarType type = x.scalar_type();
  const int64_t T = x.size(0), B = x.size(1), D = x.size(2);
  check(x, "x", type, {T, B, D});
  STD_TORCH_CHECK(weight.dim() == 3 && weight.size(0) % kinds == 0 && weight.size(1) >= 1,
                  "quasirnn: weight must have shape (", kinds, " * H, k, D), got ", shape_of(weight));
  const int64_t W = weight.size(0), k = weight.size(1);
  check(weight, "weight", type, {W, k, D});
  STD_TORCH_CHECK(look_ahead >= 0 && look_ahead < k, "quasirnn: look_ahead must lie in 0..k - 1 = ", k - 1, ", got ",
                  look_ahead);
  STD_TORCH_CHECK(!context || (look_ahead == 0 && !reverse), "quasirnn: a context goes with a causal forward layer only");
  check(context, "context", type, {B, k - 1, D});
  return {PoolShape{T, B, W / kinds, kinds, reverse, lengths_of(lengths, T, B)}, Window{k, look_ahead, reverse}, D, type};
}

// A matrix in memory that is owned elsewhere.
struct Matrix {
  const void* at;
  int64_t rows, columns, row_stride, column_stride;

  Matrix transposed() const { return {at, columns, rows, column_stride, row_stride}; }
};

class Multiplier {
 public:
  explicit Multiplier(ScalarType type)
      : type_(torch::stable::detail::to<int32_t>(torch::stable::detail::from(type))) {}

  // out = a b, or out += a b.
  void operator()(const Matrix& out, const Matrix& a, const Matrix& b, bool add) const {
    if (out.rows == 0 || out.columns == 0 || a.columns == 0) return;
    const Tensor to = wrap(out), left = wrap(a), right = wrap(b);
    if (add) {
      STABLE_TORCH_ERROR_CODE_CHECK(
          aoti_torch_cpu_addmm_out(to.get(), to.get(), left.get(), right.get(), 1.0, 1.0));
    } else {
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(to.get(), left.get(), right.get()));
    }
  }

 private:
  Tensor wrap(const Matrix& m) const {
    const int64_t sizes[] = {m.rows, m.columns};
    const int64_t strides[] = {m.row_stride, m.column_stride};
    AtenTensorHandle handle;
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
        const_cast<void*>(m.at), 2, sizes, strides, 0, type_, aoti_torch_device_type_cpu(), 0, &handle));
    return Tensor(handle);
  }

  int32_t type_;
};

// The windows of the steps [begin, end), one row of k * D for each (t, b). What lies outside a row's own length is zero
// and never read.
template <class S>
void copy_windows(const LayerShape& shape, const S* x, const S* context, int64_t begin, int64_t end, S* windows) {
  const int64_t B = shape.pool.B, D = shape.D, k = shape.window.k;
  const int64_t grain = std::max<int64_t>(1, 16384 / (k * D + 1));
  torch::stable::parallel_for(begin * B, end * B, grain, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const int64_t t = row / B, b = row % B;
      S* to = windows + (row - begin * B) * k * D;
      for (int64_t j = 0; j < k; ++j, to += D) {
        const int64_t from = t + shape.window.shift(j);
        if (from >= 0 && from < shape.pool.length(b)) {
          std::memcpy(to, x + (from * B + b) * D, D * sizeof(S));
        } else if (from < 0 && context != nullptr) {
          std::memcpy(to, context + (b * (k - 1) + (k - 1 + from)) * D, D * sizeof(S));
        } else {
          std::fill_n(to, D, S(0));
        }
      }
    }
  });
}

template <class S>
void zero_padding(const PoolShape& shape, int64_t D, S* x) {
  for (int64_t t = 0; shape.lengths != nullptr && t < shape.T; ++t) {
    for (int64_t b = 0; b < shape.B; ++b) {
      if (t >= shape.length(b)) std::fill_n(x + (t * shape.B + b) * D, D, S(0));
    }
  }
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor, Tensor> layer(
    Tensor x, Tensor weight, Maybe bias, Maybe context, Maybe c0, Maybe lengths, Maybe seed, double zoneout,
    int64_t kinds, int64_t look_ahead, bool reverse, bool keep) {
  const LayerShape shape = layer_shape(x, weight, context, lengths, kinds, look_ahead, reverse);
  const PoolShape& pool = shape.pool;
  const int64_t T = pool.T, B = pool.B, W = pool.width(), K = shape.window.k * shape.D;
  Tensor state = start_state(c0, B, pool.H, shape.type, x);
  Tensor h = empty({T, B, pool.H}, shape.type, x);
  Tensor c = keep && kinds != kF ? empty({T, B, pool.H}, shape.type, x) : empty({0}, shape.type, x);
  Tensor activated = keep ? empty({T, B, W}, shape.type, x) : empty({0}, shape.type, x);
  const int64_t steps = std::min(T, shape.chunk(kForwardRows));
  Tensor windows = shape.window.k > 1 ? empty({steps * B, K}, shape.type, x) : empty({0}, shape.type, x);
  Tensor buffer = keep ? empty({0}, shape.type, x) : empty({steps * B, W}, shape.type, x);
  with_type(shape.type, [&]<class S>() {
    const Bias<S> added(bias, shape.type, B, W);
    const PoolForward<S> pass{pool, zoneout_of(zoneout, seed), added.rows, added.stride,
                              mutable_data<Compute<S>>(state), mutable_data<S>(h),
                              keep ? mutable_data<S>(activated) : nullptr,
                              keep && kinds != kF ? mutable_data<S>(c) : nullptr};
    const Multiplier multiply(shape.type);
    const Matrix transposed_weight = Matrix{weight.const_data_ptr(), W, K, K, 1}.transposed();
    for (int64_t done = 0; done < T; done += steps) {
      const int64_t n = std::min(steps, T - done);
      const int64_t begin = reverse ? T - done - n : done;
      const S* rows = data<S>(x) + begin * B * shape.D;
      if (shape.window.k > 1) {
        copy_windows<S>(shape, data<S>(x), data<S>(context), begin, begin + n, mutable_data<S>(windows));
        rows = data<S>(windows);
      }
      S* gates = keep ? mutable_data<S>(activated) + begin * B * W : mutable_data<S>(buffer);
      multiply(Matrix{gates, n * B, W, W, 1}, Matrix{rows, n * B, K, K, 1}, transposed_weight, false);
      pass.run(Span{begin, begin + n, reverse}, gates);
    }
  });
  return {h, state, c, activated};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> layer_backward(
    Maybe grad_h, Maybe grad_c_last, Maybe grad_c, Maybe grad_activated, Tensor x, Tensor weight, Maybe context,
    Tensor activated, Tensor c, Maybe c0, Maybe lengths, int64_t kinds, int64_t look_ahead, bool reverse,
    int64_t bias_rows, bool need_x) {
  const LayerShape shape = layer_shape(x, weight, context, lengths, kinds, look_ahead, reverse);
  const PoolShape& pool = shape.pool;
  const int64_t T = pool.T, B = pool.B, H = pool.H, W = pool.width(), D = shape.D, k = shape.window.k;
  check(activated, "activated", shape.type, {T, B, W});
  check(c, "c", shape.type, {T, B, H});
  check(c0, "c0", state_type(shape.type), {B, H});
  check(grad_h, "grad_h", shape.type, {T, B, H});
  check(grad_c, "grad_c", shape.type, {T, B, H});
  check(grad_activated, "grad_activated", shape.type, {T, B, W});
  STD_TORCH_CHECK(bias_rows == 0 || bias_rows == 1 || bias_rows == B, "quasirnn: bias_rows must be 0, 1 or B");
  Tensor carry = start_state(grad_c_last, B, H, shape.type, x);
  Tensor grad_weight = empty({W, k, D}, shape.type, x);
  Tensor grad_x = need_x ? empty({T, B, D}, shape.type, x) : empty({0}, shape.type, x);
  Tensor grad_context = context ? torch::stable::new_zeros(x, {B, k - 1, D}) : empty({0}, shape.type, x);
  Tensor grad_bias = empty({0}, shape.type, x);
  // Padding may hold anything, NaN included, and zero times NaN would reach the weight's gradient.
  const Tensor clean = lengths ? torch::stable::clone(x) : x;
  with_type(shape.type, [&]<class S>() {
    if (lengths) zero_padding(pool, D, mutable_data<S>(clean));
    std::vector<double> sums(B * W, 0.0);
    const PoolBackward<S> pass{pool, data<S>(activated), data<S>(c), data<Compute<S>>(c0), data<S>(grad_h),
                               data<S>(grad_c), data<S>(grad_activated), mutable_data<Compute<S>>(carry), sums.data()};
    // Sums over chunks would be rounded to 16 bits each time: those types go in one piece.
    const int64_t steps = kIsWide<S> ? std::min(T, shape.chunk(kBackwardRows)) : T;
    const Tensor buffer = empty({steps * B, W}, shape.type, x);
    S* gates = mutable_data<S>(buffer);
    const Multiplier multiply(shape.type);
    const auto weight_column = [&](const Tensor& w, int64_t j) {
      return Matrix{static_cast<const S*>(w.const_data_ptr()) + j * D, W, D, k * D, 1};
    };
    std::vector<char> weight_begun(k, 0);
    const auto to_weight = [&](int64_t j, const Matrix& grad_gates, const Matrix& inputs) {
      multiply(weight_column(grad_weight, j), grad_gates.transposed(), inputs, weight_begun[j]);
      weight_begun[j] = 1;
    };
    bool x_begun = steps < T;
    if (need_x && x_begun) torch::stable::zero_(grad_x);
    for (int64_t done = 0; done < T; done += steps) {
      const int64_t n = std::min(steps, T - done);
      const int64_t begin = reverse ? done : T - done - n, end = begin + n;
      pass.run(Span{begin, end, !reverse}, gates);
      const auto gate_rows = [&](int64_t from, int64_t to) {
        return Matrix{gates + (from - begin) * B * W, (to - from) * B, W, W, 1};
      };
      // The column that does not shift comes first: it reaches every step, and the others add to it.
      for (int64_t turn = 0; turn < k; ++turn) {
        const int64_t j = (shape.window.left() + turn) % k;
        const int64_t shift = shape.window.shift(j);
        const int64_t from = std::max(begin, -shift), to = std::min(end, T - shift);
        if (from < to) {
          const int64_t offset = (from + shift) * B * D;
          to_weight(j, gate_rows(from, to), Matrix{data<S>(clean) + offset, (to - from) * B, D, D, 1});
          if (need_x) {
            multiply(Matrix{data<S>(grad_x) + offset, (to - from) * B, D, D, 1}, gate_rows(from, to),
                     weight_column(weight, j), x_begun);
            x_begun = true;
          }
        }
        for (int64_t t = begin; context && t < std::min(end, -shift); ++t) {
          const int64_t offset = (k - 1 + t + shift) * D;
          to_weight(j, gate_rows(t, t + 1), Matrix{data<S>(*context) + offset, B, D, (k - 1) * D, 1});
          multiply(Matrix{data<S>(grad_context) + offset, B, D, (k - 1) * D, 1}, gate_rows(t, t + 1),
                   weight_column(weight, j), true);
        }
      }
    }
    for (int64_t j = 0; j < k; ++j) {
      if (weight_begun[j] && B > 0) continue;
      for (int64_t row = 0; row < W; ++row) std::fill_n(mutable_data<S>(grad_weight) + (row * k + j) * D, D, S(0));
    }
    if (need_x) zero_padding(pool, D, mutable_data<S>(grad_x));
    if (bias_rows > 0) grad_bias = finish_grad_bias<S>(sums, bias_rows, B, W, x, shape.type);
  });
  return {grad_x, grad_weight, grad_bias, grad_context, carry};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("layer", TORCH_BOX(&quasirnn::layer));
  m.impl("layer_backward", TORCH_BOX(&quasirnn::layer_backward));
}

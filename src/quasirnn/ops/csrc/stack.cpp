// Operator quasirnn::stack: all layers of a causal, one-directional QRNN at once, for inference.
//
// One call for the whole stack is what makes a single step cheap, and its state has the form in which the caller holds it:
// row b of layer l is the cells, then the last (k - 1) * D inputs of that layer, then zeros up to the widest layer.
#include "layer.h"
#include "quantized.h"
#include "tensors.h"

namespace quasirnn {
namespace {

struct StackShape {
  int64_t T, B, D, H, kinds, layers;
  int64_t state_width = 0;  // H + C
  std::vector<int64_t> k, inputs;
};

StackShape stack_shape(const Tensor& x, const std::vector<Tensor>& weights, const std::vector<Tensor>& biases,
                       const Maybe& state, int64_t kinds, bool dense, ScalarType type, ScalarType weight_type) {
  check_gates(kinds);
  STD_TORCH_CHECK(x.dim() == 3, "quasirnn: x must have shape (T, B, D), got ", shape_of(x));
  STD_TORCH_CHECK(!weights.empty() && weights[0].dim() == 3 && weights[0].size(0) % kinds == 0,
                  "quasirnn: a stack needs at least one weight of shape (", kinds, " * H, k, D)");
  STD_TORCH_CHECK(biases.empty() || biases.size() == weights.size(), "quasirnn: there must be a bias for every weight");
  StackShape s{x.size(0), x.size(1), x.size(2), weights[0].size(0) / kinds, kinds, static_cast<int64_t>(weights.size())};
  check(x, "x", type, {s.T, s.B, s.D});
  STD_TORCH_CHECK(s.T > 0 && s.D > 0 && s.H > 0, "quasirnn: a stack needs at least one step and one channel");
  int64_t width = s.D, context = 0;
  for (int64_t l = 0; l < s.layers; ++l) {
    const int64_t k = weights[l].dim() == 3 ? weights[l].size(1) : 0;
    STD_TORCH_CHECK(k >= 1, "quasirnn: weight must have 3 dimensions, got ", shape_of(weights[l]));
    check(weights[l], "weight", weight_type, {kinds * s.H, k, width});
    if (!biases.empty()) check(biases[l], "bias", type, {kinds * s.H});
    s.k.push_back(k);
    s.inputs.push_back(width);
    context = std::max(context, (k - 1) * width);
    width = (dense ? width : 0) + s.H;
  }
  s.state_width = s.H + context;
  check(state, "state", state_type(type), {s.layers, s.B, s.state_width});
  return s;
}

// The k - 1 inputs before the first step, from the state.
template <class S>
void read_context(const Compute<S>* state, int64_t width, int64_t B, int64_t n, S* context) {
  for (int64_t b = 0; b < B; ++b) narrow<S>(state + b * width, context + b * n, n);
}

// The last k - 1 inputs, into the state: from x, or from the old context where the sequence is shorter than that.
template <class S>
void write_context(const StackShape& s, int64_t k, const Input<S>& input, Compute<S>* state) {
  const int64_t D = input.D;
  for (int64_t b = 0; b < s.B; ++b) {
    for (int64_t n = 0; n < k - 1; ++n) {
      const int64_t t = s.T - (k - 1) + n;
      Compute<S>* to = state + b * s.state_width + n * D;
      if (t >= 0) {
        widen<S>(input.x + (t * s.B + b) * input.stride, to, D);
      } else if (input.context != nullptr) {
        widen<S>(input.context + (b * (k - 1) + (k - 1 + t)) * D, to, D);
      } else {
        std::fill_n(to, D, Compute<S>(0));
      }
    }
    std::fill(state + b * s.state_width + (k - 1) * D, state + (b + 1) * s.state_width - s.H, Compute<S>(0));
  }
}

// `run(l, input, window, pass)` runs one layer.
template <class S, class Run>
void run_stack(const StackShape& s, const S* x, const std::vector<Tensor>& biases, const Compute<S>* state_in,
               double zoneout, bool dense, Compute<S>* state, S* h_last, S* output, const Run& run) {
  using C = Compute<S>;
  const int64_t W = s.kinds * s.H, rows = s.T * s.B;
  // Dense layers read the input and all outputs so far side by side; they are written there in the first place.
  const int64_t wide = dense ? s.inputs.back() : 0;
  const Scratch<S> beside(dense && s.layers > 1 ? rows * wide : 0);
  const bool side_by_side = beside.data() != nullptr;
  const Scratch<S> one(!side_by_side && s.layers > 1 ? rows * s.H : 0);
  const Scratch<S> other(!side_by_side && s.layers > 2 ? rows * s.H : 0);
  if (side_by_side) {
    for (int64_t row = 0; row < rows; ++row) std::copy_n(x + row * s.D, s.D, beside.data() + row * wide);
  }
  std::vector<C> bias(W, C(0));
  Input<S> input{side_by_side ? beside.data() : x, s.D, side_by_side ? wide : s.D, nullptr};
  for (int64_t l = 0; l < s.layers; ++l) {
    const int64_t n = (s.k[l] - 1) * input.D;
    const Scratch<S> context(state_in != nullptr ? s.B * n : 0);
    C* cells = state + l * s.B * s.state_width;
    if (state_in != nullptr) {
      const C* before = state_in + l * s.B * s.state_width;
      for (int64_t b = 0; b < s.B; ++b) {
        const C *row = before + b * s.state_width + s.H + n, *end = before + (b + 1) * s.state_width;
        STD_TORCH_CHECK(std::all_of(row, end, [](C x) { return x == C(0); }),
                        "quasirnn: the state of another network: layer ", l, " has ", n, " inputs in its window");
      }
      read_context<S>(before + s.H, s.state_width, s.B, n, context.data());
      for (int64_t b = 0; b < s.B; ++b) std::copy_n(before + b * s.state_width, s.H, cells + b * s.state_width);
      input.context = context.data();
    } else {
      for (int64_t b = 0; b < s.B; ++b) std::fill_n(cells + b * s.state_width, s.H, C(0));
    }
    if (!biases.empty()) widen<S>(data<S>(biases[l]), bias.data(), W);
    const bool last = l + 1 == s.layers;
    S* h = last ? output : side_by_side ? beside.data() + input.D : l % 2 == 0 ? one.data() : other.data();
    const int64_t h_stride = !last && side_by_side ? wide : s.H;
    const PoolForward<S> pass{.shape = {s.T, s.B, s.H, s.kinds, false, nullptr, nullptr},
                              .zoneout = zoneout_of(zoneout, {}),
                              .bias = bias.data(),
                              .bias_stride = 0,
                              .state = cells,
                              .state_stride = s.state_width,
                              .h = h,
                              .h_stride = h_stride,
                              .activated = nullptr,
                              .c = nullptr};
    run(l, input, Window{s.k[l], 0, false}, pass);
    write_context<S>(s, s.k[l], input, cells + s.H);
    for (int64_t b = 0; b < s.B; ++b) {
      std::copy_n(h + ((s.T - 1) * s.B + b) * h_stride, s.H, h_last + (l * s.B + b) * s.H);
    }
    input = side_by_side ? Input<S>{beside.data(), input.D + s.H, wide, nullptr} : Input<S>{h, s.H, s.H, nullptr};
  }
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> stack(Tensor x, std::vector<Tensor> weights, std::vector<Tensor> biases, Maybe state,
                                         double zoneout, int64_t kinds, bool dense) {
  const ScalarType type = x.scalar_type();
  const StackShape s = stack_shape(x, weights, biases, state, kinds, dense, type, type);
  Tensor output = empty({s.T, s.B, s.H}, type);
  Tensor h_n = empty({s.layers, s.B, s.H}, type);
  Tensor c_n = empty({s.layers, s.B, s.state_width}, state_type(type));
  with_type(type, [&]<class S>() {
    const Multiplier multiply(type);
    run_stack<S>(s, data<S>(x), biases, data<Compute<S>>(state), zoneout, dense, mutable_data<Compute<S>>(c_n),
                 mutable_data<S>(h_n), mutable_data<S>(output),
                 [&](int64_t l, const Input<S>& input, const Window& window, const PoolForward<S>& pass) {
                   run_layer<S>(input, data<S>(weights[l]), window, pass, multiply);
                 });
  });
  return {output, h_n, c_n};
}

std::tuple<Tensor, Tensor, Tensor> quantized_stack(Tensor x, std::vector<Tensor> weights, std::vector<Tensor> scales,
                                                   std::vector<Tensor> biases, Maybe state, double zoneout, int64_t kinds,
                                                   bool dense) {
  const ScalarType type = ScalarType::Float;
  const StackShape s = stack_shape(x, weights, biases, state, kinds, dense, type, ScalarType::Char);
  STD_TORCH_CHECK(scales.size() == weights.size(), "quasirnn: there must be scales for every weight");
  for (const Tensor& scale : scales) check(scale, "scale", type, {kinds * s.H});
  Tensor output = empty({s.T, s.B, s.H}, type);
  Tensor h_n = empty({s.layers, s.B, s.H}, type);
  Tensor c_n = empty({s.layers, s.B, s.state_width}, type);
  run_stack<float>(s, data<float>(x), biases, data<float>(state), zoneout, dense, mutable_data<float>(c_n),
                   mutable_data<float>(h_n), mutable_data<float>(output),
                   [&](int64_t l, const Input<float>& input, const Window& window, const PoolForward<float>& pass) {
                     run_quantized_layer(input, data<int8_t>(weights[l]), data<float>(scales[l]), window, pass);
                   });
  return {output, h_n, c_n};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("stack", TORCH_BOX(&quasirnn::stack));
  m.impl("quantized_stack", TORCH_BOX(&quasirnn::quantized_stack));
}

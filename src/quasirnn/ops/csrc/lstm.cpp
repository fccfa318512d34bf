// Operators quasirnn::lstm and its gradient: the LSTM that a QRNN is compared with, in lower precision.
//
// nn.LSTM in bfloat16 keeps its cells in that type too. Here, as in a QRNN, the products are made in the tensors' type and
// the cells stay in float. The products with the input are made outside, for all steps at once; what is here is what only
// an LSTM has: at every step a product of its last output, which needs the step before.
#include "gemm.h"
#include "nonlinearity.h"
#include "scratch.h"
#include "simd.h"
#include "stored.h"
#include "tensors.h"

namespace quasirnn {
namespace {

// The gates in nn.LSTM's order.
enum : int64_t { kInput, kForget, kCandidate, kOutput, kLstmGates };

// One time step of one batch row; gates lie `stride` apart, and n channels are computed.
template <class S, class C>
struct LstmRow {
  const S* from_input;   // the gates' part of the input
  const S* from_output;  // of the last output; null: that is zero
  const C* bias;
  int64_t stride;
  C* state;      // cells, updated
  S* h;
  S* activated;  // null: not kept
  C* c;
  int64_t n;
};

template <class S, class C, bool Recurrent, bool Keep>
QUASIRNN_CLONES void forward(const LstmRow<S, C>& row) {
  const int64_t s = row.stride, n = row.n;
  const S *x = row.from_input, *r = row.from_output;
  const C* bias = row.bias;
  C *state = row.state, *c_out = row.c;
  S *h = row.h, *kept = row.activated;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    C a[kLstmGates];
    for (int64_t g = 0; g < kLstmGates; ++g) {
      a[g] = wide(x[g * s + j]) + bias[g * s + j];
      if constexpr (Recurrent) a[g] += wide(r[g * s + j]);
    }
    const C i = sigmoid(a[kInput]), f = sigmoid(a[kForget]), z = tanh(a[kCandidate]), o = sigmoid(a[kOutput]);
    const C c = f * state[j] + i * z;
    state[j] = c;
    store(o * tanh(c), h + j);
    if constexpr (Keep) {
      c_out[j] = c;
      store(i, kept + kInput * s + j);
      store(f, kept + kForget * s + j);
      store(z, kept + kCandidate * s + j);
      store(o, kept + kOutput * s + j);
    }
  }
}

template <class S, class C>
struct LstmBackwardRow {
  const S* activated;
  int64_t stride;
  const C *c, *c_before;
  const S* grad_h;
  const S* from_output;  // the gradient that reaches h through the next step; null: none
  C* carry;              // gradient of the cells, updated from step t to the step before
  S* grad_gates;
  int64_t n;
};

template <class S, class C, bool Recurrent>
QUASIRNN_CLONES void backward(const LstmBackwardRow<S, C>& row) {
  const int64_t s = row.stride, n = row.n;
  const S *kept = row.activated, *grad_h = row.grad_h, *r = row.from_output;
  const C *cells = row.c, *before = row.c_before;
  C* carry = row.carry;
  S* out = row.grad_gates;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const C i = wide(kept[kInput * s + j]), f = wide(kept[kForget * s + j]);
    const C z = wide(kept[kCandidate * s + j]), o = wide(kept[kOutput * s + j]);
    C d_h = wide(grad_h[j]);
    if constexpr (Recurrent) d_h += wide(r[j]);
    const C t = tanh(cells[j]);
    const C d_c = carry[j] + d_h * o * (C(1) - t * t);
    store(d_c * z * i * (C(1) - i), out + kInput * s + j);
    store(d_c * before[j] * f * (C(1) - f), out + kForget * s + j);
    store(d_c * i * (C(1) - z * z), out + kCandidate * s + j);
    store(d_h * t * o * (C(1) - o), out + kOutput * s + j);
    carry[j] = d_c * f;
  }
}

template <class F>
auto with_lstm_type(ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Float: return f.template operator()<float>();
    case ScalarType::Double: return f.template operator()<double>();
    case ScalarType::BFloat16: return f.template operator()<BFloat16>();
    default: STD_TORCH_CHECK(false, "quasirnn: gates must be float32, float64 or bfloat16"); throw 0;
  }
}

struct LstmShape {
  int64_t T, B, H, W;

  LstmShape(const Tensor& gates, const char* name) {
    STD_TORCH_CHECK(gates.dim() == 3 && gates.size(2) % kLstmGates == 0, "quasirnn: ", name,
                    " must have shape (T, B, 4 * H), got ", shape_of(gates));
    T = gates.size(0), B = gates.size(1), W = gates.size(2), H = W / kLstmGates;
    check(gates, name, gates.scalar_type(), {T, B, W});
  }
};

}  // namespace

// h, the last cells, and for the backward all cells and the activated gates.
std::tuple<Tensor, Tensor, Tensor, Tensor> lstm(Tensor gates, Tensor weight, Tensor bias, Maybe h0, Maybe c0, bool keep) {
  const ScalarType type = gates.scalar_type();
  const LstmShape shape(gates, "gates");
  const int64_t T = shape.T, B = shape.B, H = shape.H, W = shape.W;
  check(weight, "weight", type, {W, H});
  check(bias, "bias", state_type(type), {W});
  check(h0, "h0", type, {B, H});
  Tensor state = start_state(c0, B, H, type);
  Tensor h = empty({T, B, H}, type);
  Tensor c = keep ? empty({T, B, H}, state_type(type)) : empty({0}, state_type(type));
  Tensor activated = keep ? empty({T, B, W}, type) : empty({0}, type);
  with_lstm_type(type, [&]<class S>() {
    using C = Compute<S>;
    using E = Element<S>;
    const Multiplier multiply(type);
    const Matrix recurrent{data<S>(weight), H, W, 1, H};
    const auto arranged = multiply.arranged(recurrent, B, T);
    const Scratch<S> room(B * W);
    for (int64_t t = 0; t < T; ++t) {
      const S* last = t > 0 ? data<S>(h) + (t - 1) * B * H : data<S>(h0);
      std::pair<const S*, std::optional<Tensor>> product{nullptr, std::nullopt};
      if (last != nullptr) {
        product = multiply.template fastest<S>(Matrix{room.data(), B, W, W, 1}, Matrix{last, B, H, H, 1}, recurrent, arranged);
      }
      share_rows(B, H, 1, [&](const Share& share) {
        share.each([&](int64_t b, int64_t j, int64_t n) {
          const int64_t row = t * B + b;
          const LstmRow<E, C> leaf{
              .from_input = reinterpret_cast<const E*>(data<S>(gates)) + row * W + j,
              .from_output = product.first != nullptr ? reinterpret_cast<const E*>(product.first) + b * W + j : nullptr,
              .bias = data<C>(bias) + j,
              .stride = H,
              .state = mutable_data<C>(state) + b * H + j,
              .h = reinterpret_cast<E*>(mutable_data<S>(h)) + row * H + j,
              .activated = keep ? reinterpret_cast<E*>(mutable_data<S>(activated)) + row * W + j : nullptr,
              .c = keep ? mutable_data<C>(c) + row * H + j : nullptr,
              .n = n};
          if (leaf.from_output != nullptr) {
            keep ? forward<E, C, true, true>(leaf) : forward<E, C, true, false>(leaf);
          } else {
            keep ? forward<E, C, false, true>(leaf) : forward<E, C, false, false>(leaf);
          }
        });
      });
    }
  });
  return {h, state, c, activated};
}

// The gradients of the gates before their non-linearity, of h0 and of c0. `flipped` is the weight transposed, (H, 4 * H).
std::tuple<Tensor, Tensor, Tensor> lstm_backward(Tensor grad_h, Maybe grad_c_last, Tensor activated, Tensor c, Maybe c0,
                                                 Tensor flipped) {
  const ScalarType type = activated.scalar_type();
  const LstmShape shape(activated, "activated");
  const int64_t T = shape.T, B = shape.B, H = shape.H, W = shape.W;
  check(grad_h, "grad_h", type, {T, B, H});
  check(c, "c", state_type(type), {T, B, H});
  check(c0, "c0", state_type(type), {B, H});
  check(flipped, "flipped", type, {H, W});
  Tensor carry = start_state(grad_c_last, B, H, type, "grad_c_last");
  Tensor grad_gates = empty({T, B, W}, type);
  Tensor grad_h0 = zeros({B, H}, type);
  with_lstm_type(type, [&]<class S>() {
    using C = Compute<S>;
    using E = Element<S>;
    const Multiplier multiply(type);
    const Matrix recurrent{data<S>(flipped), W, H, 1, W};
    const auto arranged = multiply.arranged(recurrent, B, T);
    const Scratch<S> room(B * H);
    const std::vector<C> no_cells(c0 ? 0 : B * H, C(0));
    const C* first_cells = c0 ? data<C>(c0) : no_cells.data();
    std::pair<const S*, std::optional<Tensor>> product{nullptr, std::nullopt};
    for (int64_t t = T - 1; t >= 0; --t) {
      const C* before = t > 0 ? data<C>(c) + (t - 1) * B * H : first_cells;
      share_rows(B, H, 1, [&](const Share& share) {
        share.each([&](int64_t b, int64_t j, int64_t n) {
          const int64_t row = t * B + b;
          const LstmBackwardRow<E, C> leaf{
              .activated = reinterpret_cast<const E*>(data<S>(activated)) + row * W + j,
              .stride = H,
              .c = data<C>(c) + row * H + j,
              .c_before = before + b * H + j,
              .grad_h = reinterpret_cast<const E*>(data<S>(grad_h)) + row * H + j,
              .from_output = product.first != nullptr ? reinterpret_cast<const E*>(product.first) + b * H + j : nullptr,
              .carry = mutable_data<C>(carry) + b * H + j,
              .grad_gates = reinterpret_cast<E*>(mutable_data<S>(grad_gates)) + row * W + j,
              .n = n};
          leaf.from_output != nullptr ? backward<E, C, true>(leaf) : backward<E, C, false>(leaf);
        });
      });
      const Matrix gradient{mutable_data<S>(grad_gates) + t * B * W, B, W, W, 1};
      S* to = t > 0 ? room.data() : mutable_data<S>(grad_h0);
      product = multiply.template fastest<S>(Matrix{to, B, H, H, 1}, gradient, recurrent, arranged);
    }
    if (T > 0 && product.first != data<S>(grad_h0)) std::copy_n(product.first, B * H, mutable_data<S>(grad_h0));
  });
  return {grad_gates, grad_h0, carry};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("lstm", TORCH_BOX(&quasirnn::lstm));
  m.impl("lstm_backward", TORCH_BOX(&quasirnn::lstm_backward));
}

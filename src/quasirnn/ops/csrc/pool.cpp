// Operators quasirnn::pool and quasirnn::pool_backward; their contract is in ops/operators.py.
#include "pool.h"

#include "tensors.h"

namespace quasirnn {

using PoolResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;

PoolResult pool(Tensor gates, Maybe bias, Maybe c0, Maybe lengths, Maybe starts, Maybe seed, double zoneout, int64_t kinds,
                bool reverse, bool keep) {
  check_gates(kinds);
  STD_TORCH_CHECK(gates.dim() == 3 && gates.size(2) % kinds == 0, "quasirnn: gates must have shape (T, B, ", kinds,
                  " * H), got ", shape_of(gates));
  const ScalarType type = gates.scalar_type();
  const int64_t T = gates.size(0), B = gates.size(1), W = gates.size(2), H = W / kinds;
  check(gates, "gates", type, {T, B, W});
  PoolShape shape{T, B, H, kinds, reverse, lengths_of(lengths, T, B), starts_of(starts, T, B)};
  Tensor state = start_state(c0, B, H, type);
  Tensor h = empty({T, B, H}, type);
  Tensor c = keep && kinds != kF ? empty({T, B, H}, type) : empty({0}, type);
  Tensor activated = keep ? empty({T, B, W}, type) : empty({0}, type);
  with_type(type, [&]<class S>() {
    const Bias<S> added(bias, type, B, W);
    const PoolForward<S> pass{.shape = shape,
                              .zoneout = zoneout_of(zoneout, seed),
                              .bias = added.rows,
                              .bias_stride = added.stride,
                              .state = mutable_data<Compute<S>>(state),
                              .state_stride = H,
                              .h = mutable_data<S>(h),
                              .h_stride = H,
                              .activated = keep ? mutable_data<S>(activated) : nullptr,
                              .c = keep && kinds != kF ? mutable_data<S>(c) : nullptr};
    pass.run(Span{0, T, reverse}, data<S>(gates));
  });
  return {h, state, c, activated};
}

std::tuple<Tensor, Tensor, Tensor> pool_backward(
    Maybe grad_h, Maybe grad_c_last, Maybe grad_c, Maybe grad_activated, Tensor activated, Tensor c, Maybe c0,
    Maybe lengths, Maybe starts, double zoneout, int64_t kinds, bool reverse, int64_t bias_rows) {
  check_gates(kinds);
  STD_TORCH_CHECK(activated.dim() == 3 && activated.size(2) % kinds == 0, "quasirnn: activated must have shape (T, B, ",
                  kinds, " * H), got ", shape_of(activated));
  const ScalarType type = activated.scalar_type();
  const int64_t T = activated.size(0), B = activated.size(1), W = activated.size(2), H = W / kinds;
  check(activated, "activated", type, {T, B, W});
  check(c, "c", type, {T, B, H});
  check(c0, "c0", state_type(type), {B, H});
  check(grad_h, "grad_h", type, {T, B, H});
  check(grad_c, "grad_c", type, {T, B, H});
  check(grad_activated, "grad_activated", type, {T, B, W});
  STD_TORCH_CHECK(bias_rows == 0 || bias_rows == 1 || bias_rows == B, "quasirnn: bias_rows must be 0, 1 or B");
  PoolShape shape{T, B, H, kinds, reverse, lengths_of(lengths, T, B), starts_of(starts, T, B)};
  Tensor carry = start_state(grad_c_last, B, H, type);
  Tensor grad_gates = empty({T, B, W}, type);
  Tensor grad_bias = empty({0}, type);
  with_type(type, [&]<class S>() {
    std::vector<double> sums(B * W, 0.0);
    PoolBackward<S> pass{shape, check_zoneout(zoneout), data<S>(activated), data<S>(c), data<Compute<S>>(c0), data<S>(grad_h),
                         data<S>(grad_c), data<S>(grad_activated), mutable_data<Compute<S>>(carry), sums.data()};
    pass.run(Span{0, T, !reverse}, mutable_data<S>(grad_gates));
    if (bias_rows > 0) grad_bias = finish_grad_bias<S>(sums, bias_rows, B, W, type);
  });
  return {grad_gates, grad_bias, carry};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("pool", TORCH_BOX(&quasirnn::pool));
  m.impl("pool_backward", TORCH_BOX(&quasirnn::pool_backward));
}

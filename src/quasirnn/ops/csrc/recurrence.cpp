// Operators quasirnn::recurrence and quasirnn::recurrence_backward: h[t] = a[t] h[t-1] + b[t].
#include "tensors.h"

namespace quasirnn {
namespace {

struct RecurrenceShape {
  ScalarType type;
  PoolShape pool;
};

RecurrenceShape recurrence_shape(const Tensor& a, const Maybe& lengths, const Maybe& starts, bool reverse) {
  STD_TORCH_CHECK(a.dim() == 3, "quasirnn: a must have shape (T, B, H), got ", shape_of(a));
  const ScalarType type = a.scalar_type();
  const int64_t T = a.size(0), B = a.size(1), H = a.size(2);
  check(a, "a", type, {T, B, H});
  return {type, PoolShape{T, B, H, 1, reverse, lengths_of(lengths, T, B), starts_of(starts, T, B)}};
}

}  // namespace

std::tuple<Tensor, Tensor> recurrence(Tensor a, Tensor b, Maybe h0, Maybe lengths, Maybe starts, bool reverse) {
  const auto [type, shape] = recurrence_shape(a, lengths, starts, reverse);
  check(b, "b", type, {shape.T, shape.B, shape.H});
  Tensor state = start_state(h0, shape.B, shape.H, type, "h0");
  Tensor h = empty({shape.T, shape.B, shape.H}, type);
  with_type(type, [&, &shape = shape]<class S>() {
    using C = Compute<S>;
    C* running = mutable_data<C>(state);
    S* out = mutable_data<S>(h);
    const S *a_in = data<S>(a), *b_in = data<S>(b);
    const Span span{0, shape.T, reverse};
    share_rows(shape.B, shape.H, shape.T, [&](const Share& share) {
      Rows<S, C> rows(shape.H);
      for (int64_t step = 0; step < span.size(); ++step) {
        const int64_t t = span.at(step);
        share.each([&](int64_t row, int64_t j, int64_t n) {
          const int64_t at = shape.cell(t, row, j);
          if (t >= shape.length(row)) {
            std::fill_n(out + at, n, S(0));
            return;
          }
          if (shape.cut(t, row)) std::fill_n(running + row * shape.H + j, n, C(0));
          recurrence_row<C>({rows.in(a_in + at, n), rows.in(b_in + at, n), running + row * shape.H + j,
                             rows.out(out + at), n});
          rows.flush(n);
        });
      }
    });
  });
  return {h, state};
}

std::tuple<Tensor, Tensor, Tensor> recurrence_backward(Maybe grad_h, Maybe grad_h_last, Tensor a, Tensor h, Maybe h0,
                                                       Maybe lengths, Maybe starts, bool reverse) {
  const auto [type, shape] = recurrence_shape(a, lengths, starts, reverse);
  check(h, "h", type, {shape.T, shape.B, shape.H});
  check(h0, "h0", state_type(type), {shape.B, shape.H});
  check(grad_h, "grad_h", type, {shape.T, shape.B, shape.H});
  Tensor carry = start_state(grad_h_last, shape.B, shape.H, type, "grad_h_last");
  Tensor grad_a = empty({shape.T, shape.B, shape.H}, type);
  Tensor grad_b = empty({shape.T, shape.B, shape.H}, type);
  with_type(type, [&, &shape = shape]<class S>() {
    using C = Compute<S>;
    const S *a_in = data<S>(a), *h_in = data<S>(h), *g_in = data<S>(grad_h);
    const C* first = data<C>(h0);
    C* carried = mutable_data<C>(carry);
    S *a_out = mutable_data<S>(grad_a), *b_out = mutable_data<S>(grad_b);
    const std::vector<S> no_row(shape.H, S(0));
    const std::vector<C> no_state(shape.H, C(0));
    const Span span{0, shape.T, !reverse};
    share_rows(shape.B, shape.H, shape.T, [&](const Share& share) {
      Rows<S, C> rows(shape.H);
      for (int64_t step = 0; step < span.size(); ++step) {
        const int64_t t = span.at(step);
        const int64_t before = shape.reverse ? t + 1 : t - 1;
        share.each([&](int64_t row, int64_t j, int64_t n) {
          const int64_t at = shape.cell(t, row, j);
          if (t >= shape.length(row)) {
            std::fill_n(a_out + at, n, S(0));
            std::fill_n(b_out + at, n, S(0));
            return;
          }
          const C* h_before = first != nullptr ? first + row * shape.H + j : no_state.data();
          const bool cut = shape.cut(t, row);
          if (cut) {
            h_before = no_state.data();
          } else if (before >= 0 && before < shape.length(row)) {
            h_before = rows.in(h_in + shape.cell(before, row, j), n);
          }
          recurrence_backward_row<C>({rows.in(a_in + at, n), h_before,
                                      rows.in(g_in != nullptr ? g_in + at : no_row.data(), n),
                                      carried + row * shape.H + j, rows.out(a_out + at), rows.out(b_out + at), n});
          if (cut) std::fill_n(carried + row * shape.H + j, n, C(0));
          rows.flush(n);
        });
      }
    });
  });
  return {grad_a, grad_b, carry};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("recurrence", TORCH_BOX(&quasirnn::recurrence));
  m.impl("recurrence_backward", TORCH_BOX(&quasirnn::recurrence_backward));
}

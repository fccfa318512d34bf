// Operators quasirnn::recurrence and quasirnn::recurrence_backward: pooling on gates that are activated already.
#include "tensors.h"

namespace quasirnn {
namespace {

struct RecurrenceShape {
  ScalarType type;
  PoolShape pool;
};

RecurrenceShape recurrence_shape(const Tensor& f, const Tensor& z, const Maybe& i, const Maybe& lengths, int64_t weight,
                                 bool reverse) {
  STD_TORCH_CHECK(weight >= kComplement && weight <= kOne, "quasirnn: weight must be 0, 1 or 2, got ", weight);
  STD_TORCH_CHECK(i.has_value() == (weight == kInput), "quasirnn: an input gate goes with weight 1 and no other");
  STD_TORCH_CHECK(f.dim() == 3, "quasirnn: f must have shape (T, B, H), got ", shape_of(f));
  const ScalarType type = f.scalar_type();
  const int64_t T = f.size(0), B = f.size(1), H = f.size(2);
  check(f, "f", type, {T, B, H});
  check(z, "z", type, {T, B, H});
  check(i, "i", type, {T, B, H});
  return {type, PoolShape{T, B, H, 1, reverse, lengths_of(lengths, T, B)}};
}

}  // namespace

std::tuple<Tensor, Tensor> recurrence(Tensor f, Tensor z, Maybe i, Maybe c0, Maybe lengths, int64_t weight,
                                      bool reverse) {
  const auto [type, shape] = recurrence_shape(f, z, i, lengths, weight, reverse);
  Tensor state = start_state(c0, shape.B, shape.H, type);
  Tensor c = empty({shape.T, shape.B, shape.H}, type);
  with_type(type, [&, &shape = shape]<class S>() {
    using C = Compute<S>;
    C* cells = mutable_data<C>(state);
    S* out = mutable_data<S>(c);
    const S *f_in = data<S>(f), *z_in = data<S>(z), *i_in = data<S>(i);
    const Span span{0, shape.T, reverse};
    share_rows(shape.B, shape.H, shape.T, [&](const Share& share) {
      Rows<S> rows(shape.H);
      for (int64_t step = 0; step < span.size(); ++step) {
        const int64_t t = span.at(step);
        share.each([&](int64_t b, int64_t j, int64_t n) {
          const int64_t at = shape.cell(t, b, j);
          if (t >= shape.length(b)) {
            std::fill_n(out + at, n, S(0));
            return;
          }
          recurrence_row<C>(weight, {rows.in(f_in + at, n), rows.in(z_in + at, n),
                                     i_in != nullptr ? rows.in(i_in + at, n) : nullptr, cells + b * shape.H + j,
                                     rows.out(out + at), n});
          rows.flush(n);
        });
      }
    });
  });
  return {c, state};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> recurrence_backward(
    Maybe grad_c, Maybe grad_c_last, Tensor f, Tensor z, Maybe i, Tensor c, Maybe c0, Maybe lengths, int64_t weight,
    bool reverse) {
  const auto [type, shape] = recurrence_shape(f, z, i, lengths, weight, reverse);
  check(c, "c", type, {shape.T, shape.B, shape.H});
  check(c0, "c0", state_type(type), {shape.B, shape.H});
  check(grad_c, "grad_c", type, {shape.T, shape.B, shape.H});
  Tensor carry = start_state(grad_c_last, shape.B, shape.H, type);
  Tensor grad_f = empty({shape.T, shape.B, shape.H}, type);
  Tensor grad_z = empty({shape.T, shape.B, shape.H}, type);
  Tensor grad_i = i ? empty({shape.T, shape.B, shape.H}, type) : empty({0}, type);
  with_type(type, [&, &shape = shape]<class S>() {
    using C = Compute<S>;
    const S *f_in = data<S>(f), *z_in = data<S>(z), *i_in = data<S>(i), *c_in = data<S>(c), *g_in = data<S>(grad_c);
    const C* first = data<C>(c0);
    C* carried = mutable_data<C>(carry);
    S *f_out = mutable_data<S>(grad_f), *z_out = mutable_data<S>(grad_z);
    S* i_out = i ? mutable_data<S>(grad_i) : nullptr;
    const std::vector<S> no_row(shape.H, S(0));
    const std::vector<C> no_cells(shape.H, C(0));
    const Span span{0, shape.T, !reverse};
    share_rows(shape.B, shape.H, shape.T, [&](const Share& share) {
      Rows<S> rows(shape.H);
      for (int64_t step = 0; step < span.size(); ++step) {
        const int64_t t = span.at(step);
        const int64_t before = shape.reverse ? t + 1 : t - 1;
        share.each([&](int64_t b, int64_t j, int64_t n) {
          const int64_t at = shape.cell(t, b, j);
          if (t >= shape.length(b)) {
            for (S* out : {f_out, z_out, i_out}) {
              if (out != nullptr) std::fill_n(out + at, n, S(0));
            }
            return;
          }
          const C* c_before = first != nullptr ? first + b * shape.H + j : no_cells.data();
          if (before >= 0 && before < shape.length(b)) c_before = rows.in(c_in + shape.cell(before, b, j), n);
          recurrence_backward_row<C>(
              weight, {rows.in(f_in + at, n), rows.in(z_in + at, n),
                       i_in != nullptr ? rows.in(i_in + at, n) : nullptr, c_before,
                       rows.in(g_in != nullptr ? g_in + at : no_row.data(), n), carried + b * shape.H + j,
                       rows.out(f_out + at), rows.out(z_out + at), rows.out(i_out != nullptr ? i_out + at : nullptr),
                       n});
          rows.flush(n);
        });
      }
    });
  });
  return {grad_f, grad_z, grad_i, carry};
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("recurrence", TORCH_BOX(&quasirnn::recurrence));
  m.impl("recurrence_backward", TORCH_BOX(&quasirnn::recurrence_backward));
}

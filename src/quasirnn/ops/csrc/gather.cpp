// Operators quasirnn::sum_rows and quasirnn::add_rows, each other's derivative; their contract is in ops/gather.py.
//
// A sum is made in the compute type in one visit to its rows, and rounded once. Gradients are added to the table a block of
// columns at a time, so that the table's share of a block stays in cache; the order of additions is that of the sums, for
// any number of threads.
#include <algorithm>

#include "rows.h"
#include "storage.h"
#include "tensors.h"

namespace quasirnn {
namespace {

// Columns of one block backward: with the 700 rows of a small vocabulary's table it is half a megabyte.
constexpr int64_t kColumns = 192;

void check_rows(const Tensor& rows, int64_t N, int64_t k, int64_t count) {
  check(rows, "rows", ScalarType::Long, {N, k});
  const int64_t* row = data<int64_t>(rows);
  for (int64_t n = 0; n < N * k; ++n) {
    STD_TORCH_CHECK(row[n] >= 0 && row[n] < count, "quasirnn: rows[", n / k, ", ", n % k, "] = ", row[n],
                    " is outside 0..", count - 1);
  }
}

}  // namespace

Tensor sum_rows(Tensor table, Tensor rows) {
  STD_TORCH_CHECK(table.dim() == 2 && rows.dim() == 2, "quasirnn: table must be (R, W) and rows (N, k), got ",
                  shape_of(table), " and ", shape_of(rows));
  const ScalarType type = table.scalar_type();
  const int64_t R = table.size(0), W = table.size(1), N = rows.size(0), k = rows.size(1);
  check(table, "table", type, {R, W});
  check_rows(rows, N, k, R);
  Tensor out = empty({N, W}, type);
  with_type(type, [&]<class S>() {
    using C = Compute<S>;
    const S* from = data<S>(table);
    const int64_t* row = data<int64_t>(rows);
    S* to = mutable_data<S>(out);
    torch::stable::parallel_for(0, N, 16, [&](int64_t begin, int64_t end) {
      std::vector<C> sum(W);
      for (int64_t n = begin; n < end; ++n) {
        std::fill(sum.begin(), sum.end(), C(0));
        for (int64_t j = 0; j < k; ++j) accumulate_row<S>(from + row[n * k + j] * W, sum.data(), W);
        narrow<S>(sum.data(), to + n * W, W);
      }
    });
  });
  return out;
}

Tensor add_rows(Tensor values, Tensor rows, int64_t size) {
  STD_TORCH_CHECK(values.dim() == 2 && rows.dim() == 2 && size >= 0,
                  "quasirnn: values must be (N, W) and rows (N, k), got ", shape_of(values), " and ", shape_of(rows));
  const ScalarType type = values.scalar_type();
  const int64_t N = values.size(0), W = values.size(1), k = rows.size(1);
  check(values, "values", type, {N, W});
  check_rows(rows, N, k, size);
  Tensor out = zeros({size, W}, state_type(type));
  with_type(type, [&]<class S>() {
    const S* from = data<S>(values);
    const int64_t* row = data<int64_t>(rows);
    Compute<S>* to = mutable_data<Compute<S>>(out);
    torch::stable::parallel_for(0, (W + kColumns - 1) / kColumns, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kColumns, width = std::min(kColumns, W - first);
        for (int64_t n = 0; n < N; ++n) {
          for (int64_t j = 0; j < k; ++j) accumulate_row<S>(from + n * W + first, to + row[n * k + j] * W + first, width);
        }
      }
    });
  });
  return out;
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("sum_rows", TORCH_BOX(&quasirnn::sum_rows));
  m.impl("add_rows", TORCH_BOX(&quasirnn::add_rows));
}

// Operator quasirnn::softmax_loss: the loss of a softmax and its gradient in one visit to each row of logits.
//
// A row of logits becomes its gradient in place while it is in the cache: bias and largest, exponentials and their sum,
// quotient and column sums. In 16-bit types each row is computed in float: it is widened by the first of these visits and
// rounded by the last.
#include <cmath>
#include <limits>

#include "gemm.h"
#include "nonlinearity.h"
#include "simd.h"
#include "stored.h"
#include "tensors.h"

namespace quasirnn {
namespace {

// Sums and maxima are kept in so many lanes, which become one vector; their order never changes.
constexpr int64_t kLanes = 16;
// Column sums are taken over blocks of so many rows: the same blocks, and so the same bits, for any number of threads.
constexpr int64_t kBlock = 64;
// The target of a row that does not count, as in torch's cross_entropy.
constexpr int64_t kIgnored = -100;

template <class S, class C>
QUASIRNN_CLONES void add_bias(const S* from, C* row, const C* bias, int64_t V) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < V; ++j) row[j] = wide(from[j]) + bias[j];
}

template <class C>
QUASIRNN_CLONES C largest_of(const C* row, int64_t V) {
  C largest[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) largest[l] = -std::numeric_limits<C>::infinity();
  int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) largest[l] = row[j + l] > largest[l] ? row[j + l] : largest[l];
  }
  for (; j < V; ++j) largest[0] = row[j] > largest[0] ? row[j] : largest[0];
  C most = largest[0];
  for (int64_t l = 1; l < kLanes; ++l) most = largest[l] > most ? largest[l] : most;
  return most;
}

template <class C>
QUASIRNN_INLINE C exp_of(C x) {
  const ScaledExp<C> e = scaled_exp(x);
  return e.scale + e.scale * e.fraction;
}

template <class C>
QUASIRNN_CLONES double exponentials(C* row, C most, int64_t V) {
  C sums[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const C e = exp_of(row[j + l] - most);
      row[j + l] = e;
      sums[l] += e;
    }
  }
  for (; j < V; ++j) {
    row[j] = exp_of(row[j] - most);
    sums[0] += row[j];
  }
  double sum = 0;
  for (int64_t l = 0; l < kLanes; ++l) sum += sums[l];
  return sum;
}

template <class S, class C>
QUASIRNN_CLONES void divide(const C* row, S* to, C* columns, C by, int64_t V) {
  const C factor = C(1) / by;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < V; ++j) {
    const C p = row[j] * factor;
    store(p, to + j);
    columns[j] += p;
  }
}

// Softmax minus one-hot into the row, its loss as the result. `work` is the row itself, or room for it in the wider type.
template <class S, class C>
C loss_of_row(S* row, C* work, const C* bias, int64_t target, C* columns, int64_t V) {
  add_bias(row, work, bias, V);
  const C most = largest_of(work, V);
  const C chosen = work[target];
  const double sum = exponentials(work, most, V);
  const C p = work[target] * (C(1) / static_cast<C>(sum));
  divide(work, row, columns, static_cast<C>(sum), V);
  store(p - C(1), row + target);
  columns[target] -= C(1);
  return static_cast<C>(std::log(sum) + (static_cast<double>(most) - static_cast<double>(chosen)));
}

}  // namespace

std::tuple<Tensor, Tensor> softmax_loss(Tensor logits, Tensor bias, Tensor targets) {
  STD_TORCH_CHECK(logits.dim() == 2, "quasirnn: logits must have shape (N, V), got ", shape_of(logits));
  const ScalarType type = logits.scalar_type();
  const int64_t N = logits.size(0), V = logits.size(1);
  check(logits, "logits", type, {N, V});
  check(bias, "bias", state_type(type), {V});
  check(targets, "targets", ScalarType::Long, {N});
  const int64_t* target = data<int64_t>(targets);
  for (int64_t n = 0; n < N; ++n) {
    STD_TORCH_CHECK(target[n] == kIgnored || (target[n] >= 0 && target[n] < V), "quasirnn: targets[", n, "] = ",
                    target[n], " is outside 0..", V - 1);
  }
  const int64_t blocks = (N + kBlock - 1) / kBlock;
  Tensor losses = empty({N}, state_type(type));
  Tensor grad_bias = zeros({V}, state_type(type));
  with_type(type, [&]<class S>() {
    using C = Compute<S>;
    S* rows = mutable_data<S>(logits);
    C* loss = mutable_data<C>(losses);
    const C* added = data<C>(bias);
    std::vector<C> columns(static_cast<size_t>(blocks) * V);
    torch::stable::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      std::vector<C> copy(kIsWide<S> ? 0 : V);
      for (int64_t n = begin * kBlock; n < std::min(N, end * kBlock); ++n) {
        S* own = rows + n * V;
        if (target[n] == kIgnored) {
          std::fill_n(own, V, S(0));
          loss[n] = C(0);
          continue;
        }
        C* sums = columns.data() + n / kBlock * V;
        if constexpr (kIsWide<S>) {
          loss[n] = loss_of_row(own, own, added, target[n], sums, V);
        } else if constexpr (std::is_same_v<S, BFloat16>) {
          loss[n] = loss_of_row(reinterpret_cast<uint16_t*>(own), copy.data(), added, target[n], sums, V);
        } else {
          widen(own, copy.data(), V);
          loss[n] = loss_of_row(copy.data(), copy.data(), added, target[n], sums, V);
          narrow(copy.data(), own, V);
        }
      }
    });
    C* total = mutable_data<C>(grad_bias);
    torch::stable::parallel_for(0, V, 1024, [&](int64_t begin, int64_t end) {
      for (int64_t block = 0; block < blocks; ++block) {
        const C* sums = columns.data() + block * V;
        for (int64_t j = begin; j < end; ++j) total[j] += sums[j];
      }
    });
  });
  return {losses, grad_bias};
}

// a^T b: the gradient of the softmax's weight, and of an LSTM's.
Tensor transposed_mm(Tensor a, Tensor b) {
  const ScalarType type = a.scalar_type();
  STD_TORCH_CHECK(a.dim() == 2 && b.dim() == 2 && a.size(0) == b.size(0), "quasirnn: a and b must be (N, ...), got ",
                  shape_of(a), " and ", shape_of(b));
  const int64_t N = a.size(0), W = a.size(1), K = b.size(1);
  check(a, "a", type, {N, W});
  check(b, "b", type, {N, K});
  Tensor out = N > 0 ? empty({W, K}, type) : zeros({W, K}, type);
  with_type(type, [&]<class S>() {
    multiply_transposed<S>(Multiplier(type), Matrix{mutable_data<S>(out), W, K, K, 1}, Matrix{data<S>(a), N, W, W, 1},
                           Matrix{data<S>(b), N, K, K, 1});
  });
  return out;
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("softmax_loss", TORCH_BOX(&quasirnn::softmax_loss));
  m.impl("transposed_mm", TORCH_BOX(&quasirnn::transposed_mm));
}

// Operator quasirnn::dropout; its mask is defined in ops/random_masks.py.
//
// The random word of an element is a function of the seed and of its place, so nothing is kept for the backward, which
// applies the same operator to the gradient.
#include "rows.h"
#include "tensors.h"

namespace quasirnn {
namespace {

// Elements that share the first two words of the counter.
constexpr int64_t kRow = 4096;

}  // namespace

Tensor dropout(Tensor x, Tensor seed, double probability) {
  const ScalarType type = x.scalar_type();
  STD_TORCH_CHECK(x.is_cpu() && x.is_contiguous(), "quasirnn: x must be contiguous and on the CPU");
  STD_TORCH_CHECK(probability > 0 && probability < 1, "quasirnn: dropout must lie between 0 and 1, got ", probability);
  const Zoneout random = zoneout_of(probability, seed);
  STD_TORCH_CHECK(random.zone == kRandomZone, "quasirnn: dropout ", probability, " is too small");
  Tensor out = torch::stable::empty_like(x);
  const int64_t n = x.numel();
  with_type(type, [&]<class S>() {
    using C = Compute<S>;
    const S* from = data<S>(x);
    S* to = mutable_data<S>(out);
    const C scale = static_cast<C>(1.0 / (1.0 - probability));
    torch::stable::parallel_for(0, (n + kRow - 1) / kRow, 4, [&](int64_t begin, int64_t end) {
      std::vector<uint32_t> words(kRow);
      std::vector<C> wide(kIsWide<S> ? 0 : kRow);
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row * kRow, count = std::min(kRow, n - first);
        random_row(random.seed, row, 0, 0, count, words.data());
        if constexpr (kIsWide<S>) {
          dropout_row<C>(from + first, to + first, words.data(), random.up_to, scale, count);
        } else {
          widen<S>(from + first, wide.data(), count);
          dropout_row<C>(wide.data(), wide.data(), words.data(), random.up_to, scale, count);
          narrow<S>(wide.data(), to + first, count);
        }
      }
    });
  });
  return out;
}

// sum += part, the sum in float32: what several products of a 16-bit type add up to.
void accumulate(Tensor sum, Tensor part) {
  const ScalarType type = part.scalar_type();
  STD_TORCH_CHECK(sum.is_cpu() && part.is_cpu() && sum.is_contiguous() && part.is_contiguous(),
                  "quasirnn: sum and part must be contiguous and on the CPU");
  STD_TORCH_CHECK(sum.scalar_type() == state_type(type) && sum.numel() == part.numel(),
                  "quasirnn: sum must have the state's type and as many elements as part");
  with_type(type, [&]<class S>() {
    const S* from = data<S>(part);
    Compute<S>* to = mutable_data<Compute<S>>(sum);
    torch::stable::parallel_for(0, part.numel(), 16384, [&](int64_t begin, int64_t end) {
      accumulate_row<S>(from + begin, to + begin, end - begin);
    });
  });
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("dropout", TORCH_BOX(&quasirnn::dropout));
  m.impl("accumulate", TORCH_BOX(&quasirnn::accumulate));
}

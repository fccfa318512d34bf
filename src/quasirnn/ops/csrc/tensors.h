// Checks and typed access for tensors that cross the operator boundary. A failed check is a Python exception.
#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "pool.h"
#include "storage.h"

namespace quasirnn {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Maybe = std::optional<Tensor>;

inline std::string shape_of(const Tensor& t) {
  std::ostringstream out;
  out << "(";
  for (int64_t d = 0; d < t.dim(); ++d) out << (d ? ", " : "") << t.size(d);
  out << ")";
  return out.str();
}

// The type of the state that goes with a storage type: 16-bit gates have a float state.
inline ScalarType state_type(ScalarType type) { return type == ScalarType::Double ? type : ScalarType::Float; }

inline void check(const Tensor& t, const char* name, ScalarType type, std::initializer_list<int64_t> sizes) {
  STD_TORCH_CHECK(t.is_cpu(), "quasirnn: ", name, " must be on the CPU");
  STD_TORCH_CHECK(t.scalar_type() == type, "quasirnn: ", name, " has the wrong element type");
  STD_TORCH_CHECK(t.is_contiguous(), "quasirnn: ", name, " must be contiguous");
  bool right = t.dim() == static_cast<int64_t>(sizes.size());
  int64_t d = 0;
  std::ostringstream expected;
  for (int64_t size : sizes) {
    expected << (d ? ", " : "") << size;
    right = right && t.size(d) == size;
    ++d;
  }
  STD_TORCH_CHECK(right, "quasirnn: ", name, " must have shape (", expected.str(), "), got ", shape_of(t));
}

inline void check(const Maybe& t, const char* name, ScalarType type, std::initializer_list<int64_t> sizes) {
  if (t) check(*t, name, type, sizes);
}

template <class T>
const T* data(const Tensor& t) {
  return static_cast<const T*>(t.const_data_ptr());
}

template <class T>
const T* data(const Maybe& t) {
  return t ? data<T>(*t) : nullptr;
}

template <class T>
T* mutable_data(const Tensor& t) {
  return static_cast<T*>(t.mutable_data_ptr());
}

// Uninitialised memory on the CPU. By the direct call: through the dispatcher each would cost a step 2 us more.
inline Tensor empty(std::initializer_list<int64_t> sizes, ScalarType type) {
  std::array<int64_t, 3> strides{};
  int64_t stride = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    strides[d] = stride;
    stride *= std::max<int64_t>(1, sizes.begin()[d]);
  }
  AtenTensorHandle made;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      sizes.size(), sizes.begin(), strides.data(), torch::stable::detail::to<int32_t>(torch::stable::detail::from(type)),
      aoti_torch_device_type_cpu(), 0, &made));
  return Tensor(made);
}

inline Tensor zeros(std::initializer_list<int64_t> sizes, ScalarType type) {
  Tensor made = empty(sizes, type);
  return torch::stable::zero_(made);
}

// Checked lengths, or null. Values out of 1..T would read and write out of bounds.
inline const int64_t* lengths_of(const Maybe& lengths, int64_t T, int64_t B) {
  check(lengths, "lengths", ScalarType::Long, {B});
  const int64_t* values = data<int64_t>(lengths);
  for (int64_t b = 0; values != nullptr && b < B; ++b) {
    STD_TORCH_CHECK(
        values[b] >= 1 && values[b] <= T, "quasirnn: lengths[", b, "] = ", values[b], " is outside 1..", T,
        ", the length of the sequence");
  }
  return values;
}

inline const bool* starts_of(const Maybe& starts, int64_t T, int64_t B) {
  check(starts, "starts", ScalarType::Bool, {T, B});
  return data<bool>(starts);
}

inline double check_zoneout(double probability) {
  STD_TORCH_CHECK(probability >= 0 && probability <= 1, "quasirnn: zoneout must lie in [0, 1], got ", probability);
  return probability;
}

// With a seed a random mask, without one its expectation.
inline Zoneout zoneout_of(double probability, const Maybe& seed) {
  if (check_zoneout(probability) == 0) return {};
  if (!seed) return {kExpectedZone, probability};
  const uint64_t threshold = static_cast<uint64_t>(probability * 4294967296.0 + 0.5);
  if (threshold == 0) return {};
  STD_TORCH_CHECK(seed->is_cpu() && seed->scalar_type() == ScalarType::Long && seed->numel() == 1,
                  "quasirnn: zoneout's seed must be one int64 on the CPU");
  return {kRandomZone, probability, static_cast<uint64_t>(*data<int64_t>(*seed)), static_cast<uint32_t>(threshold - 1)};
}

inline void check_gates(int64_t gates) {
  STD_TORCH_CHECK(gates >= kF && gates <= kIFO, "quasirnn: gates must be 2 (f), 3 (fo) or 4 (ifo), got ", gates);
}

// A bias row for every b: the tensor's own memory where its type is the compute type, else a widened copy.
template <class S>
struct Bias {
  std::vector<Compute<S>> copy;
  const Compute<S>* rows;
  int64_t stride;

  Bias(const Maybe& bias, ScalarType type, int64_t B, int64_t width) {
    const bool shared = !bias || bias->dim() == 1;
    const int64_t n = shared ? 1 : B;
    if (shared) {
      check(bias, "bias", type, {width});
    } else {
      check(bias, "bias", type, {B, width});
    }
    stride = shared ? 0 : width;
    if constexpr (kIsWide<S>) {
      if (bias) {
        rows = data<S>(*bias);
        return;
      }
    }
    copy.resize(n * width);
    if (bias) widen(data<S>(*bias), copy.data(), n * width);
    rows = copy.data();
  }
};

// Sums over the batch where the bias was shared by it, and narrows.
template <class S>
Tensor finish_grad_bias(const std::vector<double>& sums, int64_t bias_rows, int64_t B, int64_t width, ScalarType type) {
  Tensor out = empty({bias_rows, width}, type);
  S* to = mutable_data<S>(out);
  for (int64_t r = 0; r < bias_rows; ++r) {
    for (int64_t j = 0; j < width; ++j) {
      double total = 0;
      for (int64_t b = bias_rows == B ? r : 0; b < (bias_rows == B ? r + 1 : B); ++b) total += sums[b * width + j];
      to[r * width + j] = static_cast<S>(static_cast<Compute<S>>(total));
    }
  }
  return out;
}

// The running state: c0 copied, or zeros.
inline Tensor start_state(const Maybe& c0, int64_t B, int64_t H, ScalarType type, const char* name = "c0") {
  check(c0, name, state_type(type), {B, H});
  return c0 ? torch::stable::clone(*c0) : zeros({B, H}, state_type(type));
}

// Calls f.template operator()<S>() with the C++ type of the tensor's elements.
template <class F>
auto with_type(ScalarType type, const F& f) {
  switch (type) {
    case ScalarType::Float: return f.template operator()<float>();
    case ScalarType::Double: return f.template operator()<double>();
    case ScalarType::Half: return f.template operator()<Half>();
    case ScalarType::BFloat16: return f.template operator()<BFloat16>();
    default: STD_TORCH_CHECK(false, "quasirnn: gates must be float32, float64, float16 or bfloat16"); throw 0;
  }
}

}  // namespace quasirnn

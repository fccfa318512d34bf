// How a tensor's element type is computed with: float and double as they are, the 16-bit types in float.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "rows.h"

namespace quasirnn {

using torch::headeronly::BFloat16;
using torch::headeronly::Half;

template <class S>
using Compute = std::conditional_t<std::is_same_v<S, double>, double, float>;

template <class S>
constexpr bool kIsWide = std::is_same_v<S, Compute<S>>;

// What the leaves of the pooling read and write of a tensor's row: its own elements, of bfloat16 the bits, or copies in float.
template <class S>
using Element = std::conditional_t<std::is_same_v<S, BFloat16>, uint16_t, Compute<S>>;

template <class S>
void widen(const S* in, Compute<S>* out, int64_t n) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    widen_bfloat16(reinterpret_cast<const uint16_t*>(in), out, n);
  } else if constexpr (kIsWide<S>) {
    std::copy_n(in, n, out);
  } else {
    for (int64_t j = 0; j < n; ++j) out[j] = static_cast<Compute<S>>(in[j]);
  }
}

template <class S>
void narrow(const Compute<S>* in, S* out, int64_t n) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    narrow_bfloat16(in, reinterpret_cast<uint16_t*>(out), n);
  } else if constexpr (kIsWide<S>) {
    std::copy_n(in, n, out);
  } else {
    for (int64_t j = 0; j < n; ++j) out[j] = static_cast<S>(in[j]);
  }
}

// to += from, rounded once.
template <class S>
void add_row(const S* from, S* to, int64_t n) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    add_bfloat16(reinterpret_cast<const uint16_t*>(from), reinterpret_cast<uint16_t*>(to), n);
  } else {
    for (int64_t j = 0; j < n; ++j) to[j] = static_cast<S>(static_cast<Compute<S>>(to[j]) + static_cast<Compute<S>>(from[j]));
  }
}

// sum += from, in the compute type.
template <class S>
void accumulate_row(const S* from, Compute<S>* sum, int64_t n) {
  if constexpr (std::is_same_v<S, BFloat16>) {
    accumulate_bfloat16(reinterpret_cast<const uint16_t*>(from), sum, n);
  } else {
    for (int64_t j = 0; j < n; ++j) sum[j] += static_cast<Compute<S>>(from[j]);
  }
}

// Rows of a tensor as leaves that work on E want them: the tensor's own memory, or copies held here.
//
// `in` returns a row to read, `out` a row to write; `flush` carries what was written into the copies to the tensor. One
// set of rows lives for one step of one batch row and is used again for the next. Gates lie H apart in both.
template <class S, class E = Element<S>>
class Rows {
 public:
  explicit Rows(int64_t H) : H_(H) {
    // Room for every row a step can ask for, made once: the pointers handed out stay good.
    if constexpr (!kInPlace) memory_.resize(kMostRows * H);
  }

  const E* in(const S* row, int64_t n, int64_t gates = 1) {
    if constexpr (kInPlace) {
      return reinterpret_cast<const E*>(row);
    } else {
      E* copy = take(gates);
      for (int64_t g = 0; g < gates; ++g) widen(row + g * H_, copy + g * H_, n);
      return copy;
    }
  }

  // A null row stays null.
  E* out(S* row, int64_t gates = 1) {
    if constexpr (kInPlace) {
      return reinterpret_cast<E*>(row);
    } else {
      if (row == nullptr) return nullptr;
      E* copy = take(gates);
      written_.push_back({row, copy, gates});
      return copy;
    }
  }

  void flush(int64_t n) {
    if constexpr (!kInPlace) {
      for (const Written& w : written_) {
        for (int64_t g = 0; g < w.gates; ++g) narrow(w.copy + g * H_, w.row + g * H_, n);
      }
      written_.clear();
      used_ = 0;
    }
  }

 private:
  struct Written {
    S* row;
    E* copy;
    int64_t gates;
  };

  E* take(int64_t gates) {
    E* start = memory_.data() + used_ * H_;
    used_ += gates;
    return start;
  }

  static constexpr bool kInPlace = sizeof(S) == sizeof(E);
  static constexpr int64_t kMostRows = 24;
  int64_t H_;
  int64_t used_ = 0;
  std::vector<E> memory_;
  std::vector<Written> written_;
};

}  // namespace quasirnn

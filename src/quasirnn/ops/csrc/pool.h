// The fused pass over gates: bias, non-linearity, zoneout, recurrence, output gate; and its gradient.
//
// Both work on a span of time steps at a time and keep the running state between calls, so that the layer can feed them
// chunk by chunk.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "int8.h"
#include "rows.h"
#include "steps.h"
#include "storage.h"

namespace quasirnn {

struct PoolShape {
  int64_t T, B, H, gates;
  bool reverse;
  const int64_t* lengths;  // null: every row is T long
  const bool* starts;      // (T, B), true where a new sequence starts inside a row; null: nowhere

  int64_t width() const { return gates * H; }
  int64_t length(int64_t b) const { return lengths != nullptr ? lengths[b] : T; }
  // Whether the step that is read before t belongs to another sequence.
  bool cut(int64_t t, int64_t b) const {
    if (starts == nullptr) return false;
    return reverse ? t + 1 < length(b) && starts[(t + 1) * B + b] : starts[t * B + b];
  }
  // Whether the steps s and t, of which s may lie before the first, belong to one sequence.
  bool together(int64_t s, int64_t t, int64_t b) const {
    if (starts == nullptr) return true;
    for (int64_t n = std::max<int64_t>(0, std::min(s, t) + 1); n <= std::max(s, t); ++n) {
      if (starts[n * B + b]) return false;
    }
    return true;
  }
  // Where channel j of (t, b) stands in a (T, B, H) and in a (T, B, gates * H) tensor.
  int64_t cell(int64_t t, int64_t b, int64_t j) const { return (t * B + b) * H + j; }
  int64_t gate(int64_t t, int64_t b, int64_t j) const { return (t * B + b) * width() + j; }
};

struct Zoneout {
  Zone zone = kNoZone;
  double probability = 0;
  uint64_t seed = 0;
  uint32_t up_to = 0;  // zoned out where the random word is at most this
};

template <class S>
struct PoolForward {
  using C = Compute<S>;
  PoolShape shape;
  Zoneout zoneout;
  const C* bias;        // (1 or B, gates * H)
  int64_t bias_stride;  // 0 or gates * H
  C* state;             // rows of H, in: initial cells, out: last cells
  int64_t state_stride;
  S* h;                 // rows (t, b) of H
  int64_t h_stride;
  S* activated;         // (T, B, gates * H) or null
  S* c;                 // (T, B, H) or null
  // For gates that are sums of int8 products, in int32: the scales of the span's rows and of the gates. Null: gates are S.
  const float* row_scales = nullptr;
  const float* gate_scales = nullptr;

  // `gates` are the pre-activations of the span, its earliest step first.
  void run(Span span, const void* gates) const {
    share_rows(shape.B, shape.H, span.size(), [&](const Share& share) {
      Rows<S> rows(shape.H);
      std::vector<C> dequantized(row_scales != nullptr ? shape.width() : 0);
      std::vector<uint32_t> random(zoneout.zone == kRandomZone ? shape.H + kGroup : 0);
      for (int64_t step = 0; step < span.size(); ++step) {
        const int64_t t = span.at(step);
        share.each([&](int64_t b, int64_t j, int64_t n) {
          if (t < shape.length(b)) {
            const int64_t at = shape.gate(t - span.begin, b, j);
            const S* own = static_cast<const S*>(gates) + at;
            if constexpr (std::is_same_v<S, float>) {
              if (row_scales != nullptr) {
                const float scale = row_scales[(t - span.begin) * shape.B + b];
                const int32_t* sums = static_cast<const int32_t*>(gates) + at;
                for (int64_t g = 0; g < shape.width(); g += shape.H) {
                  dequantize_row(sums + g, scale, gate_scales + g + j, dequantized.data() + g, n);
                }
                own = dequantized.data();
              }
            }
            row(own, t, b, j, n, rows, random.data());
          } else {
            padding(t, b, j, n);
          }
        });
      }
    });
  }

 private:
  void row(const S* gates, int64_t t, int64_t b, int64_t j, int64_t n, Rows<S>& rows, uint32_t* random) const {
    if (zoneout.zone == kRandomZone) random_row(zoneout.seed, t, b, j, n, random);
    ForwardRow<Element<S>, C> leaf;
    leaf.gates = rows.in(gates, n, shape.gates);
    leaf.bias = bias + b * bias_stride + j;
    leaf.stride = shape.H;
    leaf.state = state + b * state_stride + j;
    if (shape.cut(t, b)) std::fill_n(leaf.state, n, C(0));
    leaf.h = rows.out(h + (t * shape.B + b) * h_stride + j);
    leaf.activated = rows.out(activated != nullptr ? activated + shape.gate(t, b, j) : nullptr, shape.gates);
    leaf.c = rows.out(c != nullptr ? c + shape.cell(t, b, j) : nullptr);
    leaf.zone = zoneout.zone;
    leaf.random = random;
    leaf.probability = static_cast<C>(zoneout.probability);
    leaf.zone_up_to = zoneout.up_to;
    leaf.n = n;
    forward_row(shape.gates, leaf);
    rows.flush(n);
  }

  void padding(int64_t t, int64_t b, int64_t j, int64_t n) const {
    std::fill_n(h + (t * shape.B + b) * h_stride + j, n, S(0));
    if (c != nullptr) std::fill_n(c + shape.cell(t, b, j), n, S(0));
    if (activated == nullptr) return;
    for (int64_t g = 0; g < shape.gates; ++g) std::fill_n(activated + shape.gate(t, b, j) + g * shape.H, n, S(0));
  }
};

template <class S>
struct PoolBackward {
  using C = Compute<S>;
  PoolShape shape;
  double zoneout;            // the expected one; 0: none, or a random one, which `activated` has in it
  const S* activated;
  const S* c;                // for f-pooling, h
  const C* c0;               // (B, H) or null
  const S* grad_h;           // (T, B, H) or null
  const S* grad_c;           // (T, B, H) or null
  const S* grad_activated;   // (T, B, gates * H) or null
  C* carry;                  // (B, H), in: gradient of the last cells, out: of the initial ones
  double* grad_bias;         // (B, gates * H), added to

  // Writes the gradient of the span's pre-activations, its earliest step first.
  void run(Span span, S* grad_gates) const {
    const std::vector<S> no_row(shape.H, S(0));
    const std::vector<C> no_cells(shape.H, C(0));
    std::vector<C> partial(shape.B * shape.width(), C(0));
    share_rows(shape.B, shape.H, span.size(), [&](const Share& share) {
      Rows<S> rows(shape.H);
      std::vector<C> cells_before(kIsWide<S> ? 0 : shape.H);
      for (int64_t step = 0; step < span.size(); ++step) {
        const int64_t t = span.at(step);
        share.each([&](int64_t b, int64_t j, int64_t n) {
          S* out = grad_gates + shape.gate(t - span.begin, b, j);
          if (t < shape.length(b)) {
            row(out, partial.data() + b * shape.width() + j, t, b, j, n, rows, cells_before.data(), no_row.data(),
                no_cells.data());
          } else {
            for (int64_t g = 0; g < shape.gates; ++g) std::fill_n(out + g * shape.H, n, S(0));
          }
        });
        // Sums of many steps in single precision lose digits: short ones go into a double.
        if (step % 32 == 31 || step + 1 == span.size()) {
          share.each([&](int64_t b, int64_t j, int64_t n) { add_up(partial.data(), b, j, n); });
        }
      }
    });
  }

 private:
  void row(S* out, C* sum, int64_t t, int64_t b, int64_t j, int64_t n, Rows<S>& rows, C* cells_before,
           const S* no_row, const C* no_cells) const {
    const int64_t cell = shape.cell(t, b, j);
    const int64_t before = shape.reverse ? t + 1 : t - 1;
    BackwardRow<Element<S>, C> leaf;
    leaf.activated = rows.in(activated + shape.gate(t, b, j), n, shape.gates);
    leaf.stride = shape.H;
    leaf.c = rows.in(c + cell, n);
    const bool cut = shape.cut(t, b);
    if (cut) {
      leaf.c_before = no_cells;
    } else if (before >= 0 && before < shape.length(b)) {
      const S* cells = c + shape.cell(before, b, j);
      if constexpr (kIsWide<S>) {
        leaf.c_before = cells;
      } else {
        widen(cells, cells_before, n);
        leaf.c_before = cells_before;
      }
    } else {
      leaf.c_before = c0 != nullptr ? c0 + b * shape.H + j : no_cells;
    }
    leaf.grad_h = rows.in(grad_h != nullptr ? grad_h + cell : no_row, n);
    leaf.grad_c = rows.in(grad_c != nullptr ? grad_c + cell : no_row, n);
    const bool from_gates = grad_activated != nullptr;
    leaf.grad_activated = from_gates ? rows.in(grad_activated + shape.gate(t, b, j), n, shape.gates) : rows.in(no_row, n);
    leaf.grad_stride = from_gates ? shape.H : 0;
    leaf.probability = static_cast<C>(zoneout);
    leaf.carry = carry + b * shape.H + j;
    leaf.grad_gates = rows.out(out, shape.gates);
    leaf.grad_bias = sum;
    leaf.n = n;
    backward_row(shape.gates, leaf);
    if (cut) std::fill_n(leaf.carry, n, C(0));
    rows.flush(n);
  }

  void add_up(C* partial, int64_t b, int64_t j, int64_t n) const {
    for (int64_t g = 0; g < shape.gates; ++g) {
      const int64_t at = b * shape.width() + g * shape.H + j;
      for (int64_t m = 0; m < n; ++m) {
        grad_bias[at + m] += partial[at + m];
        partial[at + m] = C(0);
      }
    }
  }
};

}  // namespace quasirnn

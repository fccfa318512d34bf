#include "rows.h"

#include "nonlinearity.h"
#include "philox.h"
#include "simd.h"
#include "stored.h"

namespace quasirnn {
namespace {

template <class T, int64_t G, bool Keep, Zone Z>
QUASIRNN_CLONES void forward(const ForwardRow<T>& row) {
  const int64_t s = row.stride;
  const T* gates = row.gates;
  const T* bias = row.bias;
  T* state = row.state;
  T* h_out = row.h;
  T* kept = row.activated;
  T* c_out = row.c;
  const uint32_t* random = row.random;
  const uint32_t zone_up_to = row.zone_up_to;
  const T p = row.probability;
  const int64_t n = row.n;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const T z = tanh(gates[j] + bias[j]);
    T f = sigmoid(gates[s + j] + bias[s + j]);
    T i = T(0);
    if constexpr (G == kIFO) i = sigmoid(gates[3 * s + j] + bias[3 * s + j]);
    if constexpr (Z == kRandomZone) {
      const bool zoned = random[j] <= zone_up_to;
      f = zoned ? T(1) : f;
      if constexpr (G == kIFO) i = zoned ? T(0) : i;
    }
    if constexpr (Keep) {
      kept[j] = z;
      kept[s + j] = f;
      if constexpr (G == kIFO) kept[3 * s + j] = i;
    }
    if constexpr (Z == kExpectedZone) {
      f = p + (T(1) - p) * f;
      if constexpr (G == kIFO) i = (T(1) - p) * i;
    }
    const T c = G == kIFO ? f * state[j] + i * z : f * state[j] + (T(1) - f) * z;
    state[j] = c;
    if constexpr (G == kF) {
      h_out[j] = c;
    } else {
      const T o = sigmoid(gates[2 * s + j] + bias[2 * s + j]);
      if constexpr (Keep) {
        kept[2 * s + j] = o;
        c_out[j] = c;
      }
      h_out[j] = o * c;
    }
  }
}

template <class T, int64_t G>
QUASIRNN_CLONES void backward(const BackwardRow<T>& row) {
  const int64_t s = row.stride;
  const int64_t gs = row.grad_stride;
  const T* gate = row.activated;
  const T* cells = row.c;
  const T* before = row.c_before;
  const T* grad_h = row.grad_h;
  const T* grad_c = row.grad_c;
  const T* upstream = row.grad_activated;
  T* carry = row.carry;
  T* out = row.grad_gates;
  T* sum = row.grad_bias;
  // The expectation of zoneout scales what reaches f and i; without it p = 0 and q = 1 change no bit.
  const T p = row.probability;
  const T q = T(1) - p;
  const int64_t n = row.n;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const T z = gate[j];
    const T kept_f = gate[s + j];
    const T f = p + q * kept_f;
    T d_c = carry[j] + grad_c[j];
    if constexpr (G == kF) {
      d_c += grad_h[j];
    } else {
      const T o = gate[2 * s + j];
      d_c += grad_h[j] * o;
      const T d_o = grad_h[j] * cells[j] + upstream[2 * gs + j];
      const T d_pre = d_o * o * (T(1) - o);
      out[2 * s + j] = d_pre;
      sum[2 * s + j] += d_pre;
    }
    T d_z, d_f;
    if constexpr (G == kIFO) {
      const T i = gate[3 * s + j];
      const T d_i = q * d_c * z + upstream[3 * gs + j];
      const T d_pre = d_i * i * (T(1) - i);
      out[3 * s + j] = d_pre;
      sum[3 * s + j] += d_pre;
      d_z = q * d_c * i;
      d_f = d_c * before[j];
    } else {
      d_z = d_c * (T(1) - f);
      d_f = d_c * (before[j] - z);
    }
    // A channel that the mask zoned out was kept with f = 1 (and i = 0), so the products below are zero and no mask is needed.
    const T d_pre_z = (d_z + upstream[j]) * (T(1) - z * z);
    const T d_pre_f = (q * d_f + upstream[gs + j]) * kept_f * (T(1) - kept_f);
    out[j] = d_pre_z;
    sum[j] += d_pre_z;
    out[s + j] = d_pre_f;
    sum[s + j] += d_pre_f;
    carry[j] = d_c * f;
  }
}

template <class T>
QUASIRNN_CLONES void recurrence(const RecurrenceRow<T>& row) {
  const T *a = row.a, *b = row.b;
  T *state = row.state, *out = row.h;
  const int64_t n = row.n;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const T h = a[j] * state[j] + b[j];
    state[j] = h;
    out[j] = h;
  }
}

template <class T>
QUASIRNN_CLONES void recurrence_backward(const RecurrenceBackwardRow<T>& row) {
  const T *a = row.a, *before = row.h_before, *grad_h = row.grad_h;
  T *carry = row.carry, *grad_a = row.grad_a, *grad_b = row.grad_b;
  const int64_t n = row.n;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const T d_h = carry[j] + grad_h[j];
    grad_a[j] = d_h * before[j];
    grad_b[j] = d_h;
    carry[j] = d_h * a[j];
  }
}

QUASIRNN_CLONES void philox_row(
    uint64_t seed, uint64_t t, uint32_t b, uint32_t first_block, int64_t blocks, uint32_t* words) {
  philox_blocks(seed, t, b, first_block, blocks, words);
}

QUASIRNN_CLONES void widen(const uint16_t* bits, float* out, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) out[j] = wide(bits[j]);
}

QUASIRNN_CLONES void narrow(const float* in, uint16_t* bits, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) store(in[j], bits + j);
}

QUASIRNN_CLONES void add(const uint16_t* from, uint16_t* to, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) store(wide(to[j]) + wide(from[j]), to + j);
}

QUASIRNN_CLONES void accumulate(const uint16_t* from, float* sum, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) sum[j] += wide(from[j]);
}

template <class T>
QUASIRNN_CLONES void drop(const T* in, T* out, const uint32_t* random, uint32_t up_to, T scale, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) out[j] = random[j] <= up_to ? T(0) : in[j] * scale;
}

}  // namespace

template <class T, int64_t G, bool Keep>
void forward_with(const ForwardRow<T>& row) {
  if (row.zone == kNoZone) return forward<T, G, Keep, kNoZone>(row);
  if (row.zone == kRandomZone) return forward<T, G, Keep, kRandomZone>(row);
  forward<T, G, Keep, kExpectedZone>(row);
}

template <class T, int64_t G>
void forward_with(const ForwardRow<T>& row) {
  row.activated != nullptr ? forward_with<T, G, true>(row) : forward_with<T, G, false>(row);
}

template <class T>
void forward_row(int64_t gates, const ForwardRow<T>& row) {
  if (gates == kF) return forward_with<T, kF>(row);
  if (gates == kFO) return forward_with<T, kFO>(row);
  forward_with<T, kIFO>(row);
}

template <class T>
void backward_row(int64_t gates, const BackwardRow<T>& row) {
  if (gates == kF) return backward<T, kF>(row);
  if (gates == kFO) return backward<T, kFO>(row);
  backward<T, kIFO>(row);
}

template <class T>
void recurrence_row(const RecurrenceRow<T>& row) {
  recurrence<T>(row);
}

template <class T>
void recurrence_backward_row(const RecurrenceBackwardRow<T>& row) {
  recurrence_backward<T>(row);
}

template void forward_row<float>(int64_t, const ForwardRow<float>&);
template void forward_row<double>(int64_t, const ForwardRow<double>&);
template void backward_row<float>(int64_t, const BackwardRow<float>&);
template void backward_row<double>(int64_t, const BackwardRow<double>&);
template void recurrence_row<float>(const RecurrenceRow<float>&);
template void recurrence_row<double>(const RecurrenceRow<double>&);
template void recurrence_backward_row<float>(const RecurrenceBackwardRow<float>&);
template void recurrence_backward_row<double>(const RecurrenceBackwardRow<double>&);

void random_row(uint64_t seed, int64_t t, int64_t b, int64_t first, int64_t n, uint32_t* words) {
  philox_row(
      seed, static_cast<uint64_t>(t), static_cast<uint32_t>(b), static_cast<uint32_t>(first / kPhiloxWords),
      (n + kPhiloxWords - 1) / kPhiloxWords, words);
}

void widen_bfloat16(const uint16_t* bits, float* out, int64_t n) { widen(bits, out, n); }
void narrow_bfloat16(const float* in, uint16_t* bits, int64_t n) { narrow(in, bits, n); }
void add_bfloat16(const uint16_t* from, uint16_t* to, int64_t n) { add(from, to, n); }
void accumulate_bfloat16(const uint16_t* from, float* sum, int64_t n) { accumulate(from, sum, n); }

template <class T>
void dropout_row(const T* in, T* out, const uint32_t* random, uint32_t up_to, T scale, int64_t n) {
  drop<T>(in, out, random, up_to, scale, n);
}
template void dropout_row<float>(const float*, float*, const uint32_t*, uint32_t, float, int64_t);
template void dropout_row<double>(const double*, double*, const uint32_t*, uint32_t, double, int64_t);

const char* instruction_set() {
#if defined(__GNUC__) && defined(__x86_64__) && defined(__ELF__) && !defined(QUASIRNN_SANITIZE)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4 (AVX-512)";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3 (AVX2)";
  return "x86-64 (SSE2)";
#else
  return "as compiled";
#endif
}

}  // namespace quasirnn

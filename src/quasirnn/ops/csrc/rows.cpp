#include "rows.h"

#include "nonlinearity.h"
#include "philox.h"
#include "simd.h"
#include "stored.h"

namespace quasirnn {
namespace {

template <class E, class T, int64_t G, bool Keep, Zone Z>
QUASIRNN_CLONES void forward(const ForwardRow<E, T>& row) {
  const int64_t s = row.stride;
  const E* gates = row.gates;
  const T* bias = row.bias;
  T* state = row.state;
  E* h_out = row.h;
  E* kept = row.activated;
  E* c_out = row.c;
  const uint32_t* random = row.random;
  const uint32_t zone_up_to = row.zone_up_to;
  const T p = row.probability;
  const int64_t n = row.n;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const T z = tanh(wide(gates[j]) + bias[j]);
    T f = sigmoid(wide(gates[s + j]) + bias[s + j]);
    T i = T(0);
    if constexpr (G == kIFO) i = sigmoid(wide(gates[3 * s + j]) + bias[3 * s + j]);
    if constexpr (Z == kRandomZone) {
      const bool zoned = random[j] <= zone_up_to;
      f = zoned ? T(1) : f;
      if constexpr (G == kIFO) i = zoned ? T(0) : i;
    }
    if constexpr (Keep) {
      store(z, kept + j);
      store(f, kept + s + j);
      if constexpr (G == kIFO) store(i, kept + 3 * s + j);
    }
    if constexpr (Z == kExpectedZone) {
      f = p + (T(1) - p) * f;
      if constexpr (G == kIFO) i = (T(1) - p) * i;
    }
    const T c = G == kIFO ? f * state[j] + i * z : f * state[j] + (T(1) - f) * z;
    state[j] = c;
    if constexpr (G == kF) {
      store(c, h_out + j);
    } else {
      const T o = sigmoid(wide(gates[2 * s + j]) + bias[2 * s + j]);
      if constexpr (Keep) {
        store(o, kept + 2 * s + j);
        store(c, c_out + j);
      }
      store(o * c, h_out + j);
    }
  }
}

template <class E, class T, int64_t G>
QUASIRNN_CLONES void backward(const BackwardRow<E, T>& row) {
  const int64_t s = row.stride;
  const int64_t gs = row.grad_stride;
  const E* gate = row.activated;
  const E* cells = row.c;
  const T* before = row.c_before;
  const E* grad_h = row.grad_h;
  const E* grad_c = row.grad_c;
  const E* upstream = row.grad_activated;
  T* carry = row.carry;
  E* out = row.grad_gates;
  T* sum = row.grad_bias;
  // The expectation of zoneout scales what reaches f and i; without it p = 0 and q = 1 change no bit.
  const T p = row.probability;
  const T q = T(1) - p;
  const int64_t n = row.n;
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const T z = wide(gate[j]);
    const T kept_f = wide(gate[s + j]);
    const T f = p + q * kept_f;
    const T d_h = wide(grad_h[j]);
    T d_c = carry[j] + wide(grad_c[j]);
    if constexpr (G == kF) {
      d_c += d_h;
    } else {
      const T o = wide(gate[2 * s + j]);
      d_c += d_h * o;
      const T d_o = d_h * wide(cells[j]) + wide(upstream[2 * gs + j]);
      const T d_pre = d_o * o * (T(1) - o);
      store(d_pre, out + 2 * s + j);
      sum[2 * s + j] += d_pre;
    }
    T d_z, d_f;
    if constexpr (G == kIFO) {
      const T i = wide(gate[3 * s + j]);
      const T d_i = q * d_c * z + wide(upstream[3 * gs + j]);
      const T d_pre = d_i * i * (T(1) - i);
      store(d_pre, out + 3 * s + j);
      sum[3 * s + j] += d_pre;
      d_z = q * d_c * i;
      d_f = d_c * before[j];
    } else {
      d_z = d_c * (T(1) - f);
      d_f = d_c * (before[j] - z);
    }
    // A channel that the mask zoned out was kept with f = 1 (and i = 0), so the products below are zero and no mask is needed.
    const T d_pre_z = (d_z + wide(upstream[j])) * (T(1) - z * z);
    const T d_pre_f = (q * d_f + wide(upstream[gs + j])) * kept_f * (T(1) - kept_f);
    store(d_pre_z, out + j);
    sum[j] += d_pre_z;
    store(d_pre_f, out + s + j);
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

template <class E, class T, int64_t G, bool Keep>
void forward_with(const ForwardRow<E, T>& row) {
  if (row.zone == kNoZone) return forward<E, T, G, Keep, kNoZone>(row);
  if (row.zone == kRandomZone) return forward<E, T, G, Keep, kRandomZone>(row);
  forward<E, T, G, Keep, kExpectedZone>(row);
}

template <class E, class T, int64_t G>
void forward_with(const ForwardRow<E, T>& row) {
  row.activated != nullptr ? forward_with<E, T, G, true>(row) : forward_with<E, T, G, false>(row);
}

template <class E, class T>
void forward_row(int64_t gates, const ForwardRow<E, T>& row) {
  if (gates == kF) return forward_with<E, T, kF>(row);
  if (gates == kFO) return forward_with<E, T, kFO>(row);
  forward_with<E, T, kIFO>(row);
}

template <class E, class T>
void backward_row(int64_t gates, const BackwardRow<E, T>& row) {
  if (gates == kF) return backward<E, T, kF>(row);
  if (gates == kFO) return backward<E, T, kFO>(row);
  backward<E, T, kIFO>(row);
}

template <class T>
void recurrence_row(const RecurrenceRow<T>& row) {
  recurrence<T>(row);
}

template <class T>
void recurrence_backward_row(const RecurrenceBackwardRow<T>& row) {
  recurrence_backward<T>(row);
}

template void forward_row<float, float>(int64_t, const ForwardRow<float, float>&);
template void forward_row<double, double>(int64_t, const ForwardRow<double, double>&);
template void backward_row<float, float>(int64_t, const BackwardRow<float, float>&);
template void backward_row<double, double>(int64_t, const BackwardRow<double, double>&);
template void forward_row<uint16_t, float>(int64_t, const ForwardRow<uint16_t, float>&);
template void backward_row<uint16_t, float>(int64_t, const BackwardRow<uint16_t, float>&);
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

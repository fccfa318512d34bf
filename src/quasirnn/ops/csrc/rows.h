// One time step of one batch row: the only code that does arithmetic on gates and cells.
//
// A row holds the gates side by side, z f o i, each `stride` elements from the last; the leaf works on `n` channels of it.
// Its elements are of type E, a number or the bits of a bfloat16 (stored.h), and it computes in T.
#pragma once

#include <cstdint>

namespace quasirnn {

// The number of gates names the pooling: 2 is f, 3 is fo, 4 is ifo.
enum Gates : int64_t { kF = 2, kFO = 3, kIFO = 4 };

// Zoneout: none, a random mask (training), or its expectation (eval), f' = p + (1 - p) f and i' = (1 - p) i.
enum Zone : int64_t { kNoZone = 0, kRandomZone = 1, kExpectedZone = 2 };

template <class E, class T>
struct ForwardRow {
  const E* gates;    // pre-activations without bias
  const T* bias;     // as gates
  int64_t stride;    // from one gate to the next
  T* state;          // cells, updated
  E* h;              // output
  E* activated;      // gates after non-linearity and random zoneout; may be `gates` itself. Null: not kept
  E* c;              // cells kept for the backward; null with `activated`, and where h is the cells
  Zone zone;
  const uint32_t* random;  // the words of a random zoneout
  uint32_t zone_up_to;     // a channel is zoned out where its word is at most this
  T probability;           // p of an expected zoneout
  int64_t n;
};

template <class E, class T>
struct BackwardRow {
  const E* activated;
  int64_t stride;
  const E* c;
  const T* c_before;
  const E* grad_h;
  const E* grad_c;
  const E* grad_activated;  // gate g at grad_activated + g * grad_stride
  int64_t grad_stride;
  T probability; // p of an expected zoneout, 0 for none: `activated` has the gates before it
  T* carry;      // gradient of the cells, updated from step t to the step before
  E* grad_gates; // as activated
  T* grad_bias;  // as activated, added to
  int64_t n;
};

template <class E, class T>
void forward_row(int64_t gates, const ForwardRow<E, T>& row);

template <class E, class T>
void backward_row(int64_t gates, const BackwardRow<E, T>& row);

// h = a * h + b
template <class T>
struct RecurrenceRow {
  const T* a;
  const T* b;
  T* state;
  T* h;
  int64_t n;
};

template <class T>
struct RecurrenceBackwardRow {
  const T* a;
  const T* h_before;
  const T* grad_h;
  T* carry;
  T* grad_a;
  T* grad_b;
  int64_t n;
};

template <class T>
void recurrence_row(const RecurrenceRow<T>& row);

template <class T>
void recurrence_backward_row(const RecurrenceBackwardRow<T>& row);

// The zoneout words of channels [first, first + n) of one (t, b); first is a multiple of 4, and room for n rounded up to
// a multiple of 4 is needed.
void random_row(uint64_t seed, int64_t t, int64_t b, int64_t first, int64_t n, uint32_t* words);

// Rows of bfloat16 as float and back. `bits` is the 16-bit pattern.
void widen_bfloat16(const uint16_t* bits, float* out, int64_t n);
void narrow_bfloat16(const float* in, uint16_t* bits, int64_t n);
// to += from, rounded once; and sum += from, not rounded.
void add_bfloat16(const uint16_t* from, uint16_t* to, int64_t n);
void accumulate_bfloat16(const uint16_t* from, float* sum, int64_t n);

// out = in * scale where the random word is above `up_to`, else 0. `out` may be `in`.
template <class T>
void dropout_row(const T* in, T* out, const uint32_t* random, uint32_t up_to, T scale, int64_t n);

// Name of the instruction set the loader chose for the leaves.
const char* instruction_set();

}  // namespace quasirnn

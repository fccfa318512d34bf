// sigmoid and tanh as straight-line code that a compiler turns into vector instructions.
//
// Both rest on  e^r - 1  for |r| <= ln(2) / 2, which is accurate relative to its own size, so that tanh keeps its
// relative accuracy near zero. Measured over the whole range: within one unit in the last place.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd.h"

namespace quasirnn {

template <class To, class From>
QUASIRNN_INLINE To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To out;
  std::memcpy(&out, &value, sizeof(To));
  return out;
}

// e^x = scale * (1 + fraction), scale a power of two.
template <class T>
struct ScaledExp {
  T scale;
  T fraction;
};

// x between -87 and 88, beyond which e^x leaves the normal numbers; a NaN stays one. On the bits, not by comparing floats:
// of two comparisons gcc 12 makes a case of its own with the bound put into all that follows, computes it for every channel,
// and where a gate of e^-88 multiplies a cell the product is subnormal, at a hundred cycles each on Intel's CPUs.
QUASIRNN_INLINE float within_exponents(float x) {
  const uint32_t word = bits_as<uint32_t>(x), sign = word & 0x80000000u, magnitude = word ^ sign;
  const uint32_t bound = 0x42B00000u - (sign >> 14);  // 88, or for a negative x 87
  const uint32_t bounded = magnitude < bound ? magnitude : bound;
  return bits_as<float>(sign | (magnitude > 0x7F800000u ? magnitude : bounded));
}

QUASIRNN_INLINE ScaledExp<float> scaled_exp(float x) {
  x = within_exponents(x);
  const float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  const float shifted = x * 1.44269504088896341f + round;
  const float n = shifted - round;
  float r = x - n * 0.693359375f;  // ln 2 in two parts, the first exact in few bits
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const int32_t exponent = (bits_as<int32_t>(shifted) - bits_as<int32_t>(round)) + 127;
  return {bits_as<float>(exponent << 23), p * (r * r) + r};
}

QUASIRNN_INLINE ScaledExp<double> scaled_exp(double x) {
  x = x < -708.0 ? -708.0 : x;
  x = x > 709.0 ? 709.0 : x;
  const double round = 6755399441055744.0;  // 1.5 * 2^52
  const double shifted = x * 1.44269504088896340736 + round;
  const double n = shifted - round;
  double r = x - n * 6.93147180369123816490e-1;
  r = r - n * 1.90821492927058770002e-10;
  // The series of (e^r - 1 - r) / r^2; its first left-out term is below 2^-60 of the sum.
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 1.0 / 2.0;
  const int64_t exponent = (bits_as<int64_t>(shifted) - bits_as<int64_t>(round)) + 1023;
  return {bits_as<double>(static_cast<uint64_t>(exponent) << 52), p * (r * r) + r};
}

template <class T>
QUASIRNN_INLINE T sigmoid(T x) {
  const ScaledExp<T> e = scaled_exp(-x);
  return T(1) / (T(1) + (e.scale + e.scale * e.fraction));
}

// With e = exp(-2 |x|): (1 - e) / (1 + e) where x is small, and 1 - 2 e / (1 + e) where tanh is near one, so that what is
// rounded is small against the result. 1 - tanh^2, which the gradient takes, needs that.
template <class T>
QUASIRNN_INLINE T tanh(T x) {
  const T magnitude = x < T(0) ? -x : x;
  const ScaledExp<T> e = scaled_exp(T(-2) * magnitude);
  const T e_minus_one = e.scale * e.fraction + (e.scale - T(1));
  const bool small = magnitude < T(0.5);
  const T quotient = (small ? -e_minus_one : T(2) * (e.scale * e.fraction + e.scale)) / (T(2) + e_minus_one);
  const T t = small ? quotient : T(1) - quotient;
  return x < T(0) ? -t : t;
}

}  // namespace quasirnn

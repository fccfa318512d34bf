// Elements as leaf functions read and write them: a number, or the bits of a bfloat16, which is computed in float.
#pragma once

#include <cstdint>

#include "nonlinearity.h"
#include "simd.h"

namespace quasirnn {

template <class C>
QUASIRNN_INLINE C wide(C x) {
  return x;
}
QUASIRNN_INLINE float wide(uint16_t bits) { return bits_as<float>(static_cast<uint32_t>(bits) << 16); }

template <class C>
QUASIRNN_INLINE void store(C x, C* to) {
  *to = x;
}
// Rounded to the nearest, of two to the even one.
QUASIRNN_INLINE void store(float x, uint16_t* to) {
  const uint32_t word = bits_as<uint32_t>(x);
  *to = static_cast<uint16_t>(x != x ? 0x7FC0u : (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16);
}

}  // namespace quasirnn

// Philox-4x32-10: random words as a pure function of a key and a position, nothing stored.
//
// Zoneout's word for (t, b, channel) is word channel % 4 of the block with counter (channel / 4, b, t low, t high) under
// the seed as key. Every back end computes the same words, so the mask can be made again wherever it is needed.
#pragma once

#include <cstdint>

#include "simd.h"

namespace quasirnn {

constexpr int64_t kPhiloxWords = 4;

// Writes the words of `blocks` consecutive blocks, 4 a block, for one (t, b).
QUASIRNN_INLINE void philox_blocks(
    uint64_t seed, uint64_t t, uint32_t b, uint32_t first_block, int64_t blocks, uint32_t* words) {
  QUASIRNN_INDEPENDENT
  for (int64_t n = 0; n < blocks; ++n) {
    uint32_t c0 = first_block + static_cast<uint32_t>(n);
    uint32_t c1 = b;
    uint32_t c2 = static_cast<uint32_t>(t);
    uint32_t c3 = static_cast<uint32_t>(t >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed);
    uint32_t k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    words[4 * n + 0] = c0;
    words[4 * n + 1] = c1;
    words[4 * n + 2] = c2;
    words[4 * n + 3] = c3;
  }
}

}  // namespace quasirnn

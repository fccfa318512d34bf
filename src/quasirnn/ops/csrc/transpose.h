// A matrix turned round in memory.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace quasirnn {

#if defined(__SSE2__)
// Eight rows of eight elements of 16 bits.
inline void transpose_8x8(const uint16_t* from, int64_t columns, uint16_t* to, int64_t rows) {
  __m128i row[8], pairs[8], quads[8];
  for (int i = 0; i < 8; ++i) row[i] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * columns));
  for (int i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm_unpacklo_epi16(row[2 * i], row[2 * i + 1]);
    pairs[2 * i + 1] = _mm_unpackhi_epi16(row[2 * i], row[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    for (int half = 0; half < 2; ++half) {
      quads[4 * i + 2 * half] = _mm_unpacklo_epi32(pairs[4 * i + half], pairs[4 * i + 2 + half]);
      quads[4 * i + 2 * half + 1] = _mm_unpackhi_epi32(pairs[4 * i + half], pairs[4 * i + 2 + half]);
    }
  }
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i * rows), _mm_unpacklo_epi64(quads[i], quads[4 + i]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (2 * i + 1) * rows), _mm_unpackhi_epi64(quads[i], quads[4 + i]));
  }
}
#endif

// to[c][r] = from[r][c], in blocks that stay in cache.
template <class S>
void transpose(const S* from, int64_t rows, int64_t columns, S* to) {
  constexpr int64_t kBlock = 32;
  torch::stable::parallel_for(0, (columns + kBlock - 1) / kBlock, 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t c0 = block * kBlock, c1 = std::min(columns, c0 + kBlock);
      for (int64_t r0 = 0; r0 < rows; r0 += kBlock) {
        const int64_t r1 = std::min(rows, r0 + kBlock);
#if defined(__SSE2__)
        if constexpr (sizeof(S) == 2) {
          if (c1 - c0 == kBlock && r1 - r0 == kBlock) {
            for (int64_t c = c0; c < c1; c += 8) {
              for (int64_t r = r0; r < r1; r += 8) {
                transpose_8x8(reinterpret_cast<const uint16_t*>(from) + r * columns + c, columns,
                              reinterpret_cast<uint16_t*>(to) + c * rows + r, rows);
              }
            }
            continue;
          }
        }
#endif
        for (int64_t c = c0; c < c1; ++c) {
          for (int64_t r = r0; r < r1; ++r) to[c * rows + r] = from[r * columns + c];
        }
      }
    }
  });
}

}  // namespace quasirnn

#include "int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gemm.h"
#include "nonlinearity.h"
#include "scratch.h"
#include "simd.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define QUASIRNN_X86
// GCC 12 warns of variables in its own header that are undefined on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#endif

namespace quasirnn {
namespace {

QUASIRNN_CLONES uint32_t largest(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t j = 0; j < n; ++j) {
    const uint32_t bits = bits_as<uint32_t>(x[j]) & 0x7FFFFFFFu;
    most = bits > most ? bits : most;
  }
  return most;
}

QUASIRNN_CLONES void quantize(const float* x, float inverse, int8_t* q, int64_t n) {
  const float round = 12582912.0f;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  for (int64_t j = 0; j < n; ++j) {
    float y = x[j] * inverse;
    y = y > 127.0f ? 127.0f : y;
    y = y < -127.0f ? -127.0f : y;
    q[j] = static_cast<int8_t>(bits_as<int32_t>(y + round) - bits_as<int32_t>(round));
  }
}

QUASIRNN_CLONES void dequantize(const int32_t* sums, float row_scale, const float* scales, float* out, int64_t n) {
  for (int64_t j = 0; j < n; ++j) out[j] = (row_scale * scales[j]) * static_cast<float>(sums[j]);
}

// In 16 bits each product fits, and the sums are in 32: nothing saturates, on any instruction set.
QUASIRNN_CLONES int32_t dot(const int8_t* a, const int8_t* w, int64_t K) {
  int32_t sum = 0;
  for (int64_t k = 0; k < K; ++k) sum += static_cast<int16_t>(a[k]) * static_cast<int16_t>(w[k]);
  return sum;
}

void plain_columns(const int8_t* rows, int64_t n, int64_t K, const int8_t* weight, int64_t W, int64_t begin, int64_t end,
                   int32_t* out) {
  for (int64_t j = begin; j < end; ++j) {
    for (int64_t r = 0; r < n; ++r) out[r * W + j] = dot(rows + r * K, weight + j * K, K);
  }
}

#if defined(QUASIRNN_X86)
#define QUASIRNN_VNNI_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

// R rows with J rows of the weight. The instruction multiplies unsigned with signed bytes: a + 128 is unsigned, and what
// 128 adds, 128 * sum of w, is summed beside it, which costs nothing where reading the weight is what takes time.
template <int R, int J>
QUASIRNN_VNNI_TARGET void vnni_tile(const int8_t* rows, int64_t K, const int8_t* weight, int64_t W, int32_t* out) {
  const __m512i flip = _mm512_set1_epi8(static_cast<char>(0x80));
  __m512i sums[R][J], excess[J];
  for (int j = 0; j < J; ++j) {
    excess[j] = _mm512_setzero_si512();
    for (int r = 0; r < R; ++r) sums[r][j] = _mm512_setzero_si512();
  }
  for (int64_t k = 0; k < K; k += 64) {
    const __mmask64 valid = K - k >= 64 ? ~__mmask64{0} : (__mmask64{1} << (K - k)) - 1;
    __m512i a[R];
    for (int r = 0; r < R; ++r) a[r] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(valid, rows + r * K + k), flip);
    for (int j = 0; j < J; ++j) {
      const __m512i w = _mm512_maskz_loadu_epi8(valid, weight + j * K + k);
      excess[j] = _mm512_dpbusd_epi32(excess[j], flip, w);
      for (int r = 0; r < R; ++r) sums[r][j] = _mm512_dpbusd_epi32(sums[r][j], a[r], w);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < J; ++j) out[r * W + j] = _mm512_reduce_add_epi32(_mm512_sub_epi32(sums[r][j], excess[j]));
  }
}

// Some rows with columns begin..end, four at a time, and one at a time at the end.
template <auto Four, auto One>
void columns(const int8_t* rows, int64_t K, const int8_t* weight, int64_t W, int64_t begin, int64_t end, int32_t* out) {
  int64_t j = begin;
  for (; j + 4 <= end; j += 4) Four(rows, K, weight + j * K, W, out + j);
  for (; j < end; ++j) One(rows, K, weight + j * K, W, out + j);
}

template <int R>
constexpr auto vnni_columns = columns<vnni_tile<R, 4>, vnni_tile<R, 1>>;

void vnni_all(const int8_t* rows, int64_t n, int64_t K, const int8_t* weight, int64_t W, int64_t begin, int64_t end,
              int32_t* out) {
  for (; n >= 4; n -= 4, rows += 4 * K, out += 4 * W) vnni_columns<4>(rows, K, weight, W, begin, end, out);
  if (n == 3) vnni_columns<3>(rows, K, weight, W, begin, end, out);
  if (n == 2) vnni_columns<2>(rows, K, weight, W, begin, end, out);
  if (n == 1) vnni_columns<1>(rows, K, weight, W, begin, end, out);
}

#define QUASIRNN_AVX2_TARGET __attribute__((target("avx2")))

QUASIRNN_AVX2_TARGET inline __m256i widened(const int8_t* from) {
  return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// The same in 16 bits: two products of bytes and their sum in 32 bits are one instruction, and nothing saturates.
template <int R, int J>
QUASIRNN_AVX2_TARGET void avx2_tile(const int8_t* rows, int64_t K, const int8_t* weight, int64_t W, int32_t* out) {
  __m256i sums[R][J];
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < J; ++j) sums[r][j] = _mm256_setzero_si256();
  }
  int64_t k = 0;
  for (; k + 16 <= K; k += 16) {
    __m256i w[J];
    for (int j = 0; j < J; ++j) w[j] = widened(weight + j * K + k);
    for (int r = 0; r < R; ++r) {
      const __m256i a = widened(rows + r * K + k);
      for (int j = 0; j < J; ++j) sums[r][j] = _mm256_add_epi32(sums[r][j], _mm256_madd_epi16(a, w[j]));
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < J; ++j) {
      const __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sums[r][j]), _mm256_extracti128_si256(sums[r][j], 1));
      const __m128i pair = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
      int32_t sum = _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xB1)));
      for (int64_t i = k; i < K; ++i) sum += rows[r * K + i] * weight[j * K + i];
      out[r * W + j] = sum;
    }
  }
}

template <int R>
constexpr auto avx2_columns = columns<avx2_tile<R, 4>, avx2_tile<R, 1>>;

// Many rows: the same instruction without a sum over a vector at the end. Sixteen rows of the weight become a panel of pairs,
// panel[p][j] = (w[j][2p], w[j][2p + 1]), and one pair of an input row meets all sixteen at once.
constexpr int64_t kPanelColumns = 16, kPanel = 2 * kPanelColumns;
constexpr int kPanelRows = 6;  // 12 sums, a pair and two vectors of the panel are what 16 registers hold

// A row in 16 bits is its pairs one after the other; a zero fills up the last one.
QUASIRNN_AVX2_TARGET void widen_row(const int8_t* row, int64_t K, int16_t* pairs) {
  int64_t k = 0;
  for (; k + 16 <= K; k += 16) _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs + k), widened(row + k));
  for (; k < K; ++k) pairs[k] = row[k];
  if (K % 2 == 1) pairs[K] = 0;
}

// Eight rows of eight pairs each become eight columns.
QUASIRNN_AVX2_TARGET void transpose(const __m256i* in, int16_t* panel) {
  __m256i two[8], four[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {
    two[i] = _mm256_unpacklo_epi32(in[i], in[i + 1]);
    two[i + 1] = _mm256_unpackhi_epi32(in[i], in[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4) {
    four[i] = _mm256_unpacklo_epi64(two[i], two[i + 2]);
    four[i + 1] = _mm256_unpackhi_epi64(two[i], two[i + 2]);
    four[i + 2] = _mm256_unpacklo_epi64(two[i + 1], two[i + 3]);
    four[i + 3] = _mm256_unpackhi_epi64(two[i + 1], two[i + 3]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    auto* low = reinterpret_cast<__m256i*>(panel + i * kPanel);
    auto* high = reinterpret_cast<__m256i*>(panel + (i + 4) * kPanel);
    _mm256_store_si256(low, _mm256_permute2x128_si256(four[i], four[i + 4], 0x20));
    _mm256_store_si256(high, _mm256_permute2x128_si256(four[i], four[i + 4], 0x31));
  }
}

QUASIRNN_AVX2_TARGET void pack_panel(const int8_t* weight, int64_t K, int64_t columns, int16_t* panel) {
  const int64_t P = (K + 1) / 2;
  int64_t p = 0;
  if (columns == kPanelColumns) {
    for (; 2 * p + 16 <= K; p += 8) {
      for (int64_t half = 0; half < kPanelColumns; half += 8) {
        __m256i rows[8];
        for (int i = 0; i < 8; ++i) rows[i] = widened(weight + (half + i) * K + 2 * p);
        transpose(rows, panel + p * kPanel + 2 * half);
      }
    }
  }
  for (; p < P; ++p) {
    for (int64_t i = 0; i < kPanel; ++i) {
      const int64_t j = i / 2, k = 2 * p + i % 2;
      panel[p * kPanel + i] = j < columns && k < K ? weight[j * K + k] : int8_t{0};
    }
  }
}

template <int R>
QUASIRNN_AVX2_TARGET void panel_tile(const int16_t* pairs, int64_t P, const int16_t* panel, int64_t columns, int64_t W,
                                     int32_t* out) {
  __m256i sums[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
  for (int64_t p = 0; p < P; ++p) {
    const auto* w = reinterpret_cast<const __m256i*>(panel + p * kPanel);
    const __m256i left = _mm256_load_si256(w), right = _mm256_load_si256(w + 1);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      int32_t pair;
      std::memcpy(&pair, pairs + 2 * (r * P + p), sizeof(pair));
      const __m256i a = _mm256_set1_epi32(pair);
      sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(a, left));
      sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(a, right));
    }
  }
  alignas(32) int32_t tile[R][kPanelColumns];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    _mm256_store_si256(reinterpret_cast<__m256i*>(tile[r]), sums[r][0]);
    _mm256_store_si256(reinterpret_cast<__m256i*>(tile[r] + 8), sums[r][1]);
  }
  for (int r = 0; r < R; ++r) std::copy_n(tile[r], columns, out + r * W);
}

// n rows, n <= R.
template <int R>
void panel_rows(const int16_t* pairs, int64_t n, int64_t P, const int16_t* panel, int64_t columns, int64_t W, int32_t* out) {
  if (n == R) return panel_tile<R>(pairs, P, panel, columns, W, out);
  if constexpr (R > 1) panel_rows<R - 1>(pairs, n, P, panel, columns, W, out);
}

void avx2_few(const int8_t* rows, int64_t n, int64_t K, const int8_t* weight, int64_t W, int64_t begin, int64_t end,
              int32_t* out) {
  for (; n >= 2; n -= 2, rows += 2 * K, out += 2 * W) avx2_columns<2>(rows, K, weight, W, begin, end, out);
  if (n == 1) avx2_columns<1>(rows, K, weight, W, begin, end, out);
}

void avx2_many(const int8_t* rows, int64_t n, int64_t K, const int8_t* weight, int64_t W, int32_t* out) {
  const int64_t P = (K + 1) / 2, panels = (W + kPanelColumns - 1) / kPanelColumns;
  const Scratch<int16_t> pairs(n * 2 * P);
  for (int64_t r = 0; r < n; ++r) widen_row(rows + r * K, K, pairs.data() + r * 2 * P);
  torch::stable::parallel_for(0, panels, 1, [&](int64_t begin, int64_t end) {
    const Scratch<int16_t> panel(P * kPanel);
    for (int64_t j = begin * kPanelColumns; j < std::min(W, end * kPanelColumns); j += kPanelColumns) {
      const int64_t columns = std::min(kPanelColumns, W - j);
      pack_panel(weight + j * K, K, columns, panel.data());
      for (int64_t r = 0; r < n; r += kPanelRows) {
        panel_rows<kPanelRows>(pairs.data() + r * 2 * P, std::min<int64_t>(kPanelRows, n - r), P, panel.data(), columns, W,
                               out + r * W + j);
      }
    }
  });
}
#endif

// Fewer rows than these do not repay what the library does before it multiplies, and the packing of panels.
constexpr int64_t kLibraryRows = 16, kPackedRows = 12;

Int8Path chosen(int64_t n, int64_t K, Int8Path path) {
  // torch._int_mm over a single column writes nothing at all, without an error.
  const bool library = has_int8_library() && K > 1;
  if (path != kAuto && (path != kLibrary || library)) return path;
  if (!has_vnni()) return has_avx2() ? kAvx2 : kPlain;
  return n >= kLibraryRows && library ? kLibrary : kVnni;
}

}  // namespace

bool has_vnni() {
#if defined(QUASIRNN_X86)
  static const bool has = [] {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  }();
  return has;
#else
  return false;
#endif
}

bool has_avx2() {
#if defined(QUASIRNN_X86)
  static const bool has = (__builtin_cpu_init(), __builtin_cpu_supports("avx2"));
  return has;
#else
  return false;
#endif
}

bool has_int8_library() { return torch_internals::int_mm() != nullptr; }

uint32_t largest_bits(const float* x, int64_t n) { return largest(x, n); }

float int8_scale(uint32_t bits) {
  const float most = bits_as<float>(bits);
  if (!std::isfinite(most)) return std::nanf("");
  // Where 1 / scale would be infinite the row is taken for zeros: it is below 1e-36.
  const float scale = most / 127.0f;
  return std::isfinite(1.0f / scale) ? scale : 0.0f;
}

void quantize_row(const float* x, float scale, int8_t* q, int64_t n) {
  if (!(scale > 0.0f)) {
    std::fill_n(q, n, int8_t{0});
  } else {
    quantize(x, 1.0f / scale, q, n);
  }
}

void dequantize_row(const int32_t* sums, float row_scale, const float* scales, float* out, int64_t n) {
  dequantize(sums, row_scale, scales, out, n);
}

void int8_product(const int8_t* rows, int64_t n, int64_t K, const int8_t* weight, int64_t W, int32_t* out, Int8Path path) {
  if (n == 0 || W == 0) return;
  const Int8Path who = chosen(n, K, path);
  if (who == kLibrary) {
    const auto code = [](ScalarType type) { return torch::stable::detail::to<int32_t>(torch::stable::detail::from(type)); };
    const MatrixHandle to({out, n, W, W, 1}, code(ScalarType::Int)), left({rows, n, K, K, 1}, code(ScalarType::Char)),
        right(Matrix{weight, W, K, K, 1}.transposed(), code(ScalarType::Char));
    STABLE_TORCH_ERROR_CODE_CHECK(torch_internals::int_mm()(to.tensor, left.tensor, right.tensor));
    return;
  }
#if defined(QUASIRNN_X86)
  if (who == kAvx2 && n >= kPackedRows) return avx2_many(rows, n, K, weight, W, out);
#endif
  // A thread's share is at least some 10 us of work.
  const int64_t grain = std::max<int64_t>(4, (int64_t{1} << 18) / std::max<int64_t>(1, n * K));
  torch::stable::parallel_for(0, W, grain, [&](int64_t begin, int64_t end) {
#if defined(QUASIRNN_X86)
    if (who == kVnni) return vnni_all(rows, n, K, weight, W, begin, end, out);
    if (who == kAvx2) return avx2_few(rows, n, K, weight, W, begin, end, out);
#endif
    plain_columns(rows, n, K, weight, W, begin, end, out);
  });
}

}  // namespace quasirnn

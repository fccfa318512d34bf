// Matrix products on memory that is owned elsewhere, by the libraries that torch brings and on its threads.
//
// torch.mm is BLAS. Where torch has oneDNN, which computes nn.LSTM, its float32 products are the faster ones on AMD's CPUs, and
// for a few rows on Intel's (docs/decisions/006); torch.backends.mkldnn.flags(enabled=False) switches it off. Both follow
// torch's settings of float32 precision. A few rows of bfloat16 are multiplied here: setting up a library costs more than that.
#pragma once

#if defined(__GNUC__) && defined(__x86_64__)
#include <cpuid.h>
#endif

#include <optional>

#include "few_rows.h"
#include "scratch.h"
#include "tensors.h"
#include "torch_internals.h"
#include "transpose.h"

namespace quasirnn {

struct Matrix {
  const void* at;
  int64_t rows, columns, row_stride, column_stride;

  Matrix transposed() const { return {at, columns, rows, column_stride, row_stride}; }
};

// A tensor over the matrix for the length of one call.
struct MatrixHandle {
  AtenTensorHandle tensor;

  MatrixHandle(const Matrix& m, int32_t type) {
    const int64_t sizes[] = {m.rows, m.columns};
    const int64_t strides[] = {m.row_stride, m.column_stride};
    STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
        const_cast<void*>(m.at), 2, sizes, strides, 0, type, aoti_torch_device_type_cpu(), 0, &tensor));
  }
  ~MatrixHandle() { aoti_torch_delete_tensor_object(tensor); }
  MatrixHandle(const MatrixHandle&) = delete;
  MatrixHandle& operator=(const MatrixHandle&) = delete;
};

class Multiplier {
 public:
  explicit Multiplier(ScalarType type)
      : single_(type == ScalarType::Float), bfloat16_(type == ScalarType::BFloat16),
        type_(torch::stable::detail::to<int32_t>(torch::stable::detail::from(type))) {}

  // out = a b, or out += a b.
  void operator()(const Matrix& out, const Matrix& a, const Matrix& b, bool add = false) const {
    if (out.rows == 0 || out.columns == 0 || a.columns == 0) return;
    const MatrixHandle to(out, type_), left(a, type_), right(b, type_);
    if (add) {
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(to.tensor, to.tensor, left.tensor, right.tensor, 1.0, 1.0));
    } else {
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(to.tensor, left.tensor, right.tensor));
    }
  }

  // Whether `fastest` takes oneDNN for such a product. It needs b with its columns whole in memory, as a transposed weight
  // has them; on other strides it would fall back to a loop a thousand times slower.
  bool prefers_onednn(int64_t rows, int64_t inner, int64_t columns) const {
    return single_ && worth_it(rows, inner, columns) && torch_internals::onednn_linear() != nullptr &&
           torch_internals::onednn_enabled();
  }

  // b as oneDNN arranges it, for several products with so many rows each: it would do so for every one of them. Nothing
  // where oneDNN is not used. In float32 the bits of the products are those without.
  std::optional<Tensor> arranged(const Matrix& b, int64_t rows, int64_t products) const {
    if (products < 2 || b.row_stride != 1 || !(prefers_onednn(rows, b.rows, b.columns) || has_fast_bfloat16(rows))) return {};
    AtenTensorHandle found = torch_internals::onednn_arranged(MatrixHandle(b.transposed(), type_).tensor, rows);
    return found != nullptr ? std::optional(Tensor(found)) : std::nullopt;
  }

  // The product as the library made it, or `out`, filled, where that is no worse. `ready` is what `arranged` made of b.
  template <class S>
  std::pair<const S*, std::optional<Tensor>> fastest(const Matrix& out, const Matrix& a, const Matrix& b,
                                                     const std::optional<Tensor>& ready = {}) const {
    const bool whole_columns = b.row_stride == 1 && a.column_stride == 1;
    if (whole_columns && (ready || prefers_onednn(a.rows, a.columns, b.columns))) {
      const MatrixHandle left(a, type_), right(b.transposed(), type_);
      const char* none = "";
      AtenTensorHandle product = nullptr;
      STABLE_TORCH_ERROR_CODE_CHECK(torch_internals::onednn_linear()(
          left.tensor, ready ? ready->get() : right.tensor, nullptr, "none", nullptr, 0, &none, &product));
      Tensor owner(product);
      return {data<S>(owner), std::move(owner)};
    }
    if constexpr (std::is_same_v<S, BFloat16>) {
      if (whole_columns && a.rows <= kFewRows) {
        multiply_few_rows(static_cast<const uint16_t*>(a.at), a.rows, a.row_stride, a.columns,
                          static_cast<const uint16_t*>(b.at), b.columns, b.column_stride,
                          static_cast<uint16_t*>(const_cast<void*>(out.at)), out.row_stride);
        return {static_cast<const S*>(out.at), std::nullopt};
      }
    }
    (*this)(out, a, b);
    return {static_cast<const S*>(out.at), std::nullopt};
  }

 private:
  // Setting up oneDNN costs some 10 us, more than it saves on a small product.
  static bool worth_it(int64_t rows, int64_t inner, int64_t columns) {
    // Intel's BLAS is slow for a few rows on several threads only.
    if (intel_on_intel() && (rows == 1 || rows >= 64 || torch::stable::get_num_threads() == 1)) return false;
    return rows > 0 && inner * columns >= (rows == 1 ? int64_t{1} << 19 : (int64_t{1} << 22) / rows);
  }

  // torch.mm is oneDNN in bfloat16, but takes no arranged weight.
  bool has_fast_bfloat16(int64_t rows) const {
#if defined(__GNUC__) && defined(__x86_64__)
    static const bool supported = [] {
      __builtin_cpu_init();
      return __builtin_cpu_supports("avx512bf16") != 0;
    }();
    return bfloat16_ && supported && rows > kFewRows && torch_internals::onednn_linear() != nullptr &&
           torch_internals::onednn_enabled();
#else
    return false;
#endif
  }

  // Intel's BLAS on Intel's CPU.
  static bool intel_on_intel() {
#if defined(__GNUC__) && defined(__x86_64__)
    static const bool both = [] {
      __builtin_cpu_init();
      return __builtin_cpu_is("intel") && torch_internals::has_mkl();
    }();
    return both;
#else
    return false;
#endif
  }

  bool single_, bfloat16_;
  int32_t type_;
};

// Whether the CPU multiplies 16-bit numbers in tiles (AMX).
inline bool has_tiles() {
#if defined(__GNUC__) && defined(__x86_64__)
  static const bool found = [] {
    constexpr unsigned kFeatures = 7, kAmxBfloat16 = 1u << 22;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid_count(kFeatures, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx & kAmxBfloat16) != 0;
  }();
  return found;
#else
  return false;
#endif
}

// out = a^T b, as in the gradient of a weight. On CPUs with AMX, oneDNN reads a transposed operand of 16 bits at half the
// speed, and turning it round first is worth that from some rows on. Elsewhere it only costs (4 to 13 % of the product).
template <class S>
void multiply_transposed(const Multiplier& multiply, const Matrix& out, const Matrix& a, const Matrix& b) {
  constexpr int64_t kFewest = 128;
  if (sizeof(S) > 2 || !has_tiles() || a.rows < kFewest || a.row_stride != a.columns || a.column_stride != 1) {
    multiply(out, a.transposed(), b);
    return;
  }
  const Scratch<S> turned(a.rows * a.columns);
  transpose(static_cast<const S*>(a.at), a.rows, a.columns, turned.data());
  multiply(out, Matrix{turned.data(), a.columns, a.rows, a.rows, 1}, b);
}

}  // namespace quasirnn

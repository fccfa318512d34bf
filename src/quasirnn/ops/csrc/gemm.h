// Matrix products on memory that is owned elsewhere, by the libraries that torch brings and on its threads.
//
// torch.mm is BLAS. Where torch has oneDNN, its product of a single row with a matrix is faster and more exact on the CPUs
// measured (docs/performance.md); it is looked up when the library runs, since not every build of torch has it.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

#include <optional>

#include "tensors.h"

namespace quasirnn {

struct Matrix {
  const void* at;
  int64_t rows, columns, row_stride, column_stride;

  Matrix transposed() const { return {at, columns, rows, column_stride, row_stride}; }
};

class Multiplier {
 public:
  explicit Multiplier(ScalarType type)
      : single_(type == ScalarType::Float), type_(torch::stable::detail::to<int32_t>(torch::stable::detail::from(type))) {}

  // out = a b, or out += a b.
  void operator()(const Matrix& out, const Matrix& a, const Matrix& b, bool add = false) const {
    if (out.rows == 0 || out.columns == 0 || a.columns == 0) return;
    const Handle to(out, type_), left(a, type_), right(b, type_);
    if (add) {
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_addmm_out(to.tensor, to.tensor, left.tensor, right.tensor, 1.0, 1.0));
    } else {
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_cpu_mm_out(to.tensor, left.tensor, right.tensor));
    }
  }

  // The product as the library made it, or `out`, filled, where that is no worse.
  template <class S>
  std::pair<const S*, std::optional<Tensor>> fastest(const Matrix& out, const Matrix& a, const Matrix& b) const {
    static const OneDnnLinear linear = find_linear();
    if (!single_ || linear == nullptr || !worth_it(a, b)) {
      (*this)(out, a, b);
      return {static_cast<const S*>(out.at), std::nullopt};
    }
    const Handle left(a, type_), right(b.transposed(), type_);
    const char* none = "";
    AtenTensorHandle product = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(linear(left.tensor, right.tensor, nullptr, "none", nullptr, 0, &none, &product));
    Tensor owner(product);
    return {data<S>(owner), std::move(owner)};
  }

 private:
  using OneDnnLinear = AOTITorchError (*)(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle*, const char*,
                                          const double**, int64_t, const char**, AtenTensorHandle*);

  static OneDnnLinear find_linear() {
    return reinterpret_cast<OneDnnLinear>(dlsym(RTLD_DEFAULT, "aoti_torch_cpu__linear_pointwise"));
  }

  // One row with a large weight. Setting up oneDNN costs some 10 us, more than it saves on a small one; and with several
  // rows it adds up the products of a row one by one where BLAS does it in pieces, with twice the rounding error.
  static bool worth_it(const Matrix& a, const Matrix& b) {
    return a.rows == 1 && b.rows * b.columns >= (int64_t{1} << 19);
  }

  // A tensor over the matrix for the length of one call.
  struct Handle {
    AtenTensorHandle tensor;

    Handle(const Matrix& m, int32_t type) {
      const int64_t sizes[] = {m.rows, m.columns};
      const int64_t strides[] = {m.row_stride, m.column_stride};
      STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
          const_cast<void*>(m.at), 2, sizes, strides, 0, type, aoti_torch_device_type_cpu(), 0, &tensor));
    }
    ~Handle() { aoti_torch_delete_tensor_object(tensor); }
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;
  };

  bool single_;
  int32_t type_;
};

}  // namespace quasirnn

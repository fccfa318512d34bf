// What is used of torch beyond its stable interface: here and nowhere else.
//
// Everything is looked up by name when it is first needed, and only in the version of torch whose headers this was compiled
// with: the signatures may change in the next one. Where something is missing, callers do without it, more slowly.
// QUASIRNN_TORCH_INTERNALS=off does so on purpose, which is how the tests see that it works.
#pragma once

#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/version.h>

#include <cstdlib>
#include <cstring>
#include <optional>

namespace quasirnn::torch_internals {

inline bool same_version() {
  static const bool same = [] {
    const char* wanted = std::getenv("QUASIRNN_TORCH_INTERNALS");
    constexpr int kMinor = 48;  // bits below major and minor
    return (wanted == nullptr || std::strcmp(wanted, "off") != 0) &&
           aoti_torch_abi_version() >> kMinor == static_cast<uint64_t>(TORCH_ABI_VERSION) >> kMinor;
  }();
  return same;
}

template <class F>
F find(const char* name) {
  return same_version() ? reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name)) : nullptr;
}

// x W^T in float32 by oneDNN, the library behind nn.LSTM; a new tensor. Null where torch was built without it. The type is
// that of torch's shim_cpu.h, which a stable extension cannot include.
using Linear = AOTITorchError (*)(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* bias, const char* attr,
                                  const double** scalars, int64_t scalars_len, const char** algorithm,
                                  AtenTensorHandle* out);
inline Linear onednn_linear() {
  static const auto found = find<Linear>("aoti_torch_cpu__linear_pointwise");
  return found;
}

// A weight of (W, K) as oneDNN arranges it for products with so many rows, which `onednn_linear` takes in its place; null
// where torch cannot.
inline AtenTensorHandle onednn_arranged(AtenTensorHandle weight, int64_t rows) {
  if (!same_version()) return nullptr;
  AtenTensorHandle own = nullptr;
  if (aoti_torch_new_tensor_handle(weight, &own) != AOTI_TORCH_SUCCESS) return nullptr;
  StableIValue stack[] = {torch::stable::detail::from(torch::stable::Tensor(own)),
                          torch::stable::detail::from(std::optional<int64_t>(rows))};
  if (torch_call_dispatcher("mkldnn::_reorder_linear_weight", "", stack, TORCH_ABI_VERSION) != AOTI_TORCH_SUCCESS) return nullptr;
  return torch::stable::detail::to<AtenTensorHandle>(stack[0]);
}

// int8 by int8 into int32.
using IntMm = decltype(&aoti_torch_cpu__int_mm_out);
inline IntMm int_mm() {
  static const auto found = find<IntMm>("aoti_torch_cpu__int_mm_out");
  return found;
}

// Whether torch.backends.mkldnn.flags left oneDNN on; no where torch does not say.
inline bool onednn_enabled() {
  static const auto context = find<void* (*)()>("_ZN2at13globalContextEv");
  static const auto enabled = find<bool (*)(const void*)>("_ZNK2at7Context17userEnabledMkldnnEv");
  return context != nullptr && enabled != nullptr && enabled(context());
}

// Whether torch.mm is Intel's library; no where torch does not say.
inline bool has_mkl() {
  static const auto has = find<bool (*)()>("_ZN2at7Context6hasMKLEv");
  return has != nullptr && has();
}

}  // namespace quasirnn::torch_internals

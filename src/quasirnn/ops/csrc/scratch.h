#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace quasirnn {

// Memory that is written before it is read, aligned for vector instructions.
template <class S>
class Scratch {
 public:
  explicit Scratch(int64_t n) : memory_(n > 0 ? static_cast<S*>(::operator new(n * sizeof(S), kAlignment)) : nullptr) {}
  S* data() const { return memory_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(S* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<S, Free> memory_;
};

}  // namespace quasirnn

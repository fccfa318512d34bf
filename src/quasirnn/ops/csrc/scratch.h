#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>

namespace quasirnn {

// Large blocks that were given back, kept for the next call: memory that is new to the process costs a page fault for every
// 4 KB. Never more than `kMost` bytes. Who finds it busy does without it, so nothing waits, also after a fork.
class ScratchPool {
  struct Block {
    void* memory;
    int64_t bytes;
  };

 public:
  static constexpr std::align_val_t kAlignment{64};

  static void* take(int64_t bytes) {
    if (bytes >= kLarge && !busy_.test_and_set(std::memory_order_acquire)) {
      Block* best = nullptr;
      for (Block& each : blocks_) {
        if (each.bytes >= bytes && each.bytes <= 2 * bytes && (best == nullptr || each.bytes < best->bytes)) best = &each;
      }
      void* memory = best != nullptr ? best->memory : nullptr;
      if (best != nullptr) *best = Block{nullptr, 0};
      busy_.clear(std::memory_order_release);
      if (memory != nullptr) return memory;
    }
    return ::operator new(bytes, kAlignment);
  }

  static void give_back(void* memory, int64_t bytes) {
    if (bytes >= kLarge && !busy_.test_and_set(std::memory_order_acquire)) {
      int64_t kept = bytes;
      Block* empty = nullptr;
      for (Block& each : blocks_) {
        kept += each.bytes;
        if (each.memory == nullptr) empty = &each;
      }
      const bool keep = empty != nullptr && kept <= kMost;
      if (keep) *empty = Block{memory, bytes};
      busy_.clear(std::memory_order_release);
      if (keep) return;
    }
    ::operator delete(memory, kAlignment);
  }

 private:
  static constexpr int64_t kLarge = 1 << 16, kMost = 32 << 20;
  static inline Block blocks_[8] = {};
  static inline std::atomic_flag busy_;
};

// Memory that is written before it is read, aligned for vector instructions.
template <class S>
class Scratch {
 public:
  explicit Scratch(int64_t n)
      : memory_(n > 0 ? static_cast<S*>(ScratchPool::take(n * sizeof(S))) : nullptr, GiveBack{n * int64_t{sizeof(S)}}) {}
  S* data() const { return memory_.get(); }

 private:
  struct GiveBack {
    int64_t bytes;
    void operator()(S* p) const { ScratchPool::give_back(p, bytes); }
  };
  std::unique_ptr<S, GiveBack> memory_;
};

}  // namespace quasirnn

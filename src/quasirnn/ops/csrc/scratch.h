#pragma once

#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

namespace quasirnn {

// Large blocks that were given back, kept for the next call: memory that is new to the process costs a page fault for every
// 4 KB. Never more than `kMost` bytes. Who finds it busy does without it, so nothing waits, also after a fork.
class ScratchPool {
 public:
  struct Block {
    void* memory;
    int64_t bytes;  // its own size, which may be up to twice what was asked for
  };

  static Block take(int64_t bytes) {
    if (bytes >= kLarge && !busy_.test_and_set(std::memory_order_acquire)) {
      Block* best = nullptr;
      for (Block& each : blocks_) {
        if (each.bytes >= bytes && each.bytes <= 2 * bytes && (best == nullptr || each.bytes < best->bytes)) best = &each;
      }
      const Block taken = best != nullptr ? std::exchange(*best, Block{}) : Block{};
      busy_.clear(std::memory_order_release);
      if (taken.memory != nullptr) return taken;
    }
    return {::operator new(bytes, kAlignment), bytes};
  }

  static void give_back(const Block& block) {
    if (block.bytes >= kLarge && !busy_.test_and_set(std::memory_order_acquire)) {
      int64_t kept = block.bytes;
      Block* empty = nullptr;
      for (Block& each : blocks_) {
        kept += each.bytes;
        if (each.memory == nullptr) empty = &each;
      }
      const bool keep = empty != nullptr && kept <= kMost;
      if (keep) *empty = block;
      busy_.clear(std::memory_order_release);
      if (keep) return;
    }
    ::operator delete(block.memory, kAlignment);
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr int64_t kLarge = 1 << 16, kMost = 32 << 20;
  static inline Block blocks_[8] = {};
  static inline std::atomic_flag busy_;
};

// Memory that is written before it is read, aligned for vector instructions.
template <class S>
class Scratch {
 public:
  explicit Scratch(int64_t n)
      : block_(n > 0 ? ScratchPool::take(n * int64_t{sizeof(S)}) : ScratchPool::Block{}) {}
  ~Scratch() {
    if (block_.memory != nullptr) ScratchPool::give_back(block_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  S* data() const { return static_cast<S*>(block_.memory); }

 private:
  ScratchPool::Block block_;
};

}  // namespace quasirnn

// The order in which time steps, batch rows and channels are visited, and how they are shared among threads.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cstdint>

namespace quasirnn {

// Rows are cut at multiples of this many channels only, so a channel's place in its vector, and with it every bit of its
// result, does not depend on the number of threads. A multiple of 4, as zoneout's words come in fours.
constexpr int64_t kGroup = 16;

// The time steps [begin, end) in the order of time, or backwards.
struct Span {
  int64_t begin;
  int64_t end;
  bool backwards;

  int64_t size() const { return end - begin; }
  int64_t at(int64_t step) const { return backwards ? end - 1 - step : begin + step; }
};

// Splits B rows of H channels among torch's threads. `work(Share)` runs once a thread.
struct Share {
  int64_t begin;  // in groups of channels, row after row
  int64_t end;
  int64_t H;
  int64_t groups;

  // Calls row(b, first_channel, channels) for every piece of a row in this share.
  template <class F>
  void each(const F& row) const {
    for (int64_t item = begin; item < end;) {
      const int64_t b = item / groups;
      const int64_t first = item - b * groups;
      const int64_t last = std::min(groups, first + (end - item));
      row(b, first * kGroup, std::min(H, last * kGroup) - first * kGroup);
      item += last - first;
    }
  }
};

template <class F>
void share_rows(int64_t B, int64_t H, int64_t steps, const F& work) {
  const int64_t groups = (H + kGroup - 1) / kGroup;
  // Below some thousands of channel steps a second thread costs more than it brings.
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, kGroup * steps));
  torch::stable::parallel_for(0, B * groups, grain, [&](int64_t begin, int64_t end) {
    work(Share{begin, end, H, groups});
  });
}

}  // namespace quasirnn

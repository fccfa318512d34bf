// Operators of one update of a float32 parameter; their contract is in ops/training_step.py.
//
// Each is one visit: L2, clipping and the optimizer's own arithmetic on an element while it is in a register. Sums are taken
// over blocks of a fixed size, so that they do not depend on the number of threads.
#include <cmath>

#include "simd.h"
#include "tensors.h"

namespace quasirnn {
namespace {

constexpr int64_t kBlock = 16384;
constexpr int64_t kLanes = 16;

QUASIRNN_CLONES double squares(const float* gradient, const float* parameter, float l2, int64_t n) {
  float sums[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      const float g = gradient[j + l] + l2 * parameter[j + l];
      sums[l] += g * g;
    }
  }
  for (int64_t l = 0; j < n; ++j, ++l) {
    const float g = gradient[j] + l2 * parameter[j];
    sums[l] += g * g;
  }
  double sum = 0;
  for (int64_t l = 0; l < kLanes; ++l) sum += sums[l];
  return sum;
}

struct Factors {
  float l2, clip, rate;
};

QUASIRNN_CLONES void sgd(const float* gradient, float* parameter, Factors by, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const float w = parameter[j];
    parameter[j] = w - by.rate * (by.clip * (gradient[j] + by.l2 * w));
  }
}

QUASIRNN_CLONES void rmsprop(const float* gradient, float* parameter, float* square, Factors by, float alpha, float eps,
                             int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const float w = parameter[j], g = by.clip * (gradient[j] + by.l2 * w);
    const float v = alpha * square[j] + (1.0f - alpha) * (g * g);
    square[j] = v;
    parameter[j] = w - by.rate * (g / (std::sqrt(v) + eps));
  }
}

// `rate` has the first correction in it, `root` the square root of the second.
QUASIRNN_CLONES void adam(const float* gradient, float* parameter, float* mean, float* square, Factors by, float beta1,
                          float beta2, float root, float eps, int64_t n) {
  QUASIRNN_INDEPENDENT
  for (int64_t j = 0; j < n; ++j) {
    const float w = parameter[j], g = by.clip * (gradient[j] + by.l2 * w);
    const float m = beta1 * mean[j] + (1.0f - beta1) * g;
    const float v = beta2 * square[j] + (1.0f - beta2) * (g * g);
    mean[j] = m;
    square[j] = v;
    parameter[j] = w - by.rate * (m / (std::sqrt(v) / root + eps));
  }
}

void check_same(const Tensor& tensor, const char* name, const Tensor& parameter) {
  STD_TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == ScalarType::Float &&
                      tensor.numel() == parameter.numel(),
                  "quasirnn: ", name, " must be float32, contiguous, on the CPU and as large as the parameter");
}

template <class F>
void each_block(int64_t n, const F& work) {
  torch::stable::parallel_for(0, (n + kBlock - 1) / kBlock, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) work(block, block * kBlock, std::min(kBlock, n - block * kBlock));
  });
}

}  // namespace

double sum_of_squares(Tensor parameter, Tensor gradient, double l2) {
  check_same(parameter, "parameter", parameter);
  check_same(gradient, "gradient", parameter);
  const int64_t n = parameter.numel();
  std::vector<double> sums((n + kBlock - 1) / kBlock);
  each_block(n, [&](int64_t block, int64_t first, int64_t count) {
    sums[block] = squares(data<float>(gradient) + first, data<float>(parameter) + first, static_cast<float>(l2), count);
  });
  double sum = 0;
  for (const double each : sums) sum += each;
  return sum;
}

void sgd_update(Tensor parameter, Tensor gradient, double l2, double clip, double rate) {
  check_same(parameter, "parameter", parameter);
  check_same(gradient, "gradient", parameter);
  const Factors by{static_cast<float>(l2), static_cast<float>(clip), static_cast<float>(rate)};
  each_block(parameter.numel(), [&](int64_t, int64_t first, int64_t count) {
    sgd(data<float>(gradient) + first, mutable_data<float>(parameter) + first, by, count);
  });
}

void rmsprop_update(Tensor parameter, Tensor gradient, Tensor square, double l2, double clip, double rate, double alpha,
                    double eps) {
  check_same(parameter, "parameter", parameter);
  check_same(gradient, "gradient", parameter);
  check_same(square, "square_avg", parameter);
  const Factors by{static_cast<float>(l2), static_cast<float>(clip), static_cast<float>(rate)};
  each_block(parameter.numel(), [&](int64_t, int64_t first, int64_t count) {
    rmsprop(data<float>(gradient) + first, mutable_data<float>(parameter) + first, mutable_data<float>(square) + first, by,
            static_cast<float>(alpha), static_cast<float>(eps), count);
  });
}

void adam_update(Tensor parameter, Tensor gradient, Tensor mean, Tensor square, double l2, double clip, double rate,
                 double beta1, double beta2, double eps, double step) {
  check_same(parameter, "parameter", parameter);
  check_same(gradient, "gradient", parameter);
  check_same(mean, "exp_avg", parameter);
  check_same(square, "exp_avg_sq", parameter);
  STD_TORCH_CHECK(step >= 1, "quasirnn: the first step is 1, got ", step);
  const Factors by{static_cast<float>(l2), static_cast<float>(clip), static_cast<float>(rate / (1 - std::pow(beta1, step)))};
  const float root = static_cast<float>(std::sqrt(1 - std::pow(beta2, step)));
  each_block(parameter.numel(), [&](int64_t, int64_t first, int64_t count) {
    adam(data<float>(gradient) + first, mutable_data<float>(parameter) + first, mutable_data<float>(mean) + first,
         mutable_data<float>(square) + first, by, static_cast<float>(beta1), static_cast<float>(beta2), root,
         static_cast<float>(eps), count);
  });
}

}  // namespace quasirnn

STABLE_TORCH_LIBRARY_IMPL(quasirnn, CPU, m) {
  m.impl("sum_of_squares", TORCH_BOX(&quasirnn::sum_of_squares));
  m.impl("sgd_update", TORCH_BOX(&quasirnn::sgd_update));
  m.impl("rmsprop_update", TORCH_BOX(&quasirnn::rmsprop_update));
  m.impl("adam_update", TORCH_BOX(&quasirnn::adam_update));
}

// Runs the package that export.py made, without Python: main PACKAGE.pt2 LIBRARY.so, as export.py prints them.
//
// The library registers the operators quasirnn::... and their kernels; the package calls them by name. Built by build.sh.
#include <ATen/ATen.h>
#include <dlfcn.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <cstdio>

namespace {

void show(const at::Tensor& output) {
  for (int64_t t = 0; t < output.size(0); ++t) {
    for (int64_t j = 0; j < output.size(2); ++j) {
      std::printf(j ? " %.6f" : "%.6f", output[t][0][j].item<float>());
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s PACKAGE.pt2 LIBRARY.so\n", argv[0]), 2;
  if (dlopen(argv[2], RTLD_NOW) == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  torch::inductor::AOTIModelPackageLoader model(argv[1]);

  const at::Tensor x = at::sin(at::arange(7 * 8, at::kFloat)).view({7, 1, 8});
  const at::Tensor h = at::zeros({2, 1, 16}), c = at::zeros({2, 1, 16 + 16});
  // Output, h and c: the state of the first piece starts the second.
  std::vector<at::Tensor> first = model.run({x.slice(0, 0, 6).contiguous(), h, c});
  std::vector<at::Tensor> second = model.run({x.slice(0, 6, 7).contiguous(), first[1], first[2]});
  show(first[0]);
  show(second[0]);
}

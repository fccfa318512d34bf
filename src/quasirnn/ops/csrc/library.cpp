// The operators' schemas, so that loading this library is enough to run a saved program: no Python is needed.
//
// ops/schemas.inc is also what Python defines them from where this library could not be built.
#include <torch/csrc/stable/library.h>

#include "rows.h"

STABLE_TORCH_LIBRARY(quasirnn, m) {
  for (const char* schema : {
#include "../schemas.inc"
       }) {
    m.def(schema);
  }
}

// Name of the instruction set chosen for this CPU.
extern "C" __attribute__((visibility("default"))) const char* quasirnn_instruction_set() {
  return quasirnn::instruction_set();
}

#include "kernels/cpu/testing/cpu_op_contents.h"

namespace neuroshard::testing {

std::unique_ptr<OpContents> ContentsOf(EmbeddingOp& op) {
  return std::make_unique<CpuOpContents>(dynamic_cast<CpuEmbeddingOp&>(op));
}

}  // namespace neuroshard::testing

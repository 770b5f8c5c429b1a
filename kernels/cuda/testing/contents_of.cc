#include "kernels/cpu/testing/cpu_op_contents.h"
#include "kernels/cuda/testing/gpu_op_contents.h"

namespace neuroshard::testing {

std::unique_ptr<OpContents> ContentsOf(EmbeddingOp& op) {
  if (auto* const of_gpu = dynamic_cast<cuda::GpuEmbeddingOp*>(&op); of_gpu != nullptr) {
    return std::make_unique<GpuOpContents>(*of_gpu);
  }
  return std::make_unique<CpuOpContents>(dynamic_cast<CpuEmbeddingOp&>(op));
}

}  // namespace neuroshard::testing

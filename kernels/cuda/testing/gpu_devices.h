// The lookups of a Gpu as devices of tests/support/embedding_suite.h.
#pragma once

#include <cstdint>
#include <memory>

#include "common/base/bytes.h"
#include "kernels/cuda/gpu_embedding_op.h"

namespace neuroshard::testing {

// TestGpu: SequentialGpu or EmulatedGpu.
template <typename TestGpu>
class GpuDevices {
 public:
  static constexpr DataType kTypes[] = {DataType::kFp32, DataType::kFp16, DataType::kBf16};
  static constexpr std::int64_t kManyHits = 100'000;
  static const char* Unavailable() { return nullptr; }
  StatusOr<std::unique_ptr<EmbeddingOp>> Create(const EmbeddingOpSpec& spec) {
    return cuda::GpuEmbeddingOp::Create(gpu_, spec);
  }

 private:
  std::shared_ptr<TestGpu> gpu_ = std::make_shared<TestGpu>(256 * kMiB);
};

}  // namespace neuroshard::testing

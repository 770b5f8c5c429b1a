// Values and gradients of a network for one batch at a time, with weights as they are used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "server/pretrain/fit/fit_batch.h"
#include "server/pretrain/fit/network_graph.h"

namespace neuroshard {

// Keeps its memory from batch to batch. Not for several threads at once; each has its own.
class GraphPass {
 public:
  // `graph` must outlive it.
  explicit GraphPass(const NetworkGraph& graph);

  // The last step's values, a line for each row or sample, until the next call.
  std::span<const float> Forward(std::span<const float> weights, const FitBatch& batch);

  // After Forward with the same arguments: adds d loss / d weight to `gradient`, given
  // d loss / d output.
  void Backward(std::span<const float> weights, const FitBatch& batch,
                std::span<const float> output_gradient, std::span<float> gradient);

 private:
  struct Lines {
    std::vector<float> values;
    std::vector<float> gradients;
    bool has_gradient = false;  // of this batch; otherwise `gradients` holds what is to be written
  };

  std::int64_t Count(const GraphStep& step, const FitBatch& batch) const {
    return step.level == GraphLevel::kRow ? batch.num_rows : batch.num_samples;
  }
  const float* Values(int step, const FitBatch& batch) const;
  void ForwardLinear(const GraphStep& step, const FitBatch& batch, std::span<const float> weights,
                     float* out);
  void BackwardLinear(std::size_t at, const FitBatch& batch, std::span<const float> weights,
                      std::span<float> gradient);
  void BackwardSum(std::size_t at, const FitBatch& batch);
  void BackwardAdd(std::size_t at, const FitBatch& batch);

  const NetworkGraph& graph_;
  std::vector<Lines> lines_;  // of each step
};

}  // namespace neuroshard

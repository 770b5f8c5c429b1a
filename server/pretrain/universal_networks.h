// The networks of a universal model: how they are computed while they are trained, and the tensors
// that they become (server/models/network_tensors.h; server/cost/universal computes them again).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "server/models/safetensors.h"
#include "server/pretrain/fit/network_graph.h"
#include "server/pretrain/standardisation.h"

namespace neuroshard {

// universal_table_sum: phi = exp(MLP) of each shard, S their sum, and a head that is convex in S.
struct UniversalComputeShape {
  std::int64_t features = 0;
  std::vector<std::int64_t> table_hidden;
  std::int64_t representation = 0;
  std::int64_t head_width = 0;
  std::int64_t outputs = 1;
};
NetworkGraph UniversalComputeGraph(const UniversalComputeShape& shape);
std::vector<float> UniversalComputeStart(const NetworkGraph& graph, Random& random);

// universal_comm: of one rank, which is a sample of one row. Its sample columns are wait (in units)
// in the column of the collective, then 1 in the column of the collective, else 0.
struct UniversalCommShape {
  std::vector<std::int64_t> hidden;
};
NetworkGraph UniversalCommGraph(const UniversalCommShape& shape);
std::vector<float> UniversalCommStart(const NetworkGraph& graph, Random& random);

// One member's tensors into `file`, from weights as they are used: costs in ms instead of units of
// `unit_ms`, and weights 0 for columns that did not vary.
void AddComputeMember(const NetworkGraph& graph, std::span<const float> weights, int member,
                      double unit_ms, const Standardisation& standardisation, TensorFile& file);
// `measured`: which collectives the samples had; others get no wait and no floor.
void AddCommMember(const NetworkGraph& graph, std::span<const float> weights, int member,
                   double unit_ms, const Standardisation& standardisation,
                   const std::vector<bool>& measured, TensorFile& file);

// The weights of a member that the tensors of a model are, for training on from there; empty when
// they are those of another shape.
std::vector<float> ComputeMemberWeights(const NetworkGraph& graph, const TensorFile& file,
                                        int member, double unit_ms);
std::vector<float> CommMemberWeights(const NetworkGraph& graph, const TensorFile& file, int member,
                                     double unit_ms);

}  // namespace neuroshard

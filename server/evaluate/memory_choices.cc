#include "server/evaluate/memory_choices.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <utility>

#include "common/domain/memory_use.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/shard_price.h"

namespace neuroshard {
namespace {

// Caches with more than `load_factor` of the rows, up to the next step's, cost at least that share
// of the way from the price in device memory to that in host memory without a cache. The kernel
// enters a price as one bandwidth alone, so it is the same share for all shards (README).
struct CacheStep {
  double load_factor = 0;
  double share = 0;
};

std::vector<CacheStep> CacheStepsOf(const PlanRequest& request, const BoundCostModel& model) {
  // What is fetched ahead of time costs by its hits, not by a bandwidth.
  if (request.pipeline_type == PipelineType::kTrainPrefetchSparseDist) return {CacheStep{}};
  constexpr double kLeast = 1.0 / (1 << 14);
  constexpr double kNext = 1.5;
  const auto whole = [](const Table& table, const Residency& residency) {
    return FeaturesOf(table, LayoutIn(residency, ShardingType::kTableWise, 1), table.num_embeddings,
                      table.embedding_dim);
  };
  ShardPricer pricer(model);
  std::vector<ShardFeatures> shards;
  for (const Table& table : request.tables) {
    shards.push_back(whole(table, {}));
    shards.push_back(whole(table, {ComputeKernel::kFusedUvm, 0}));
  }
  std::span<const double> prices = pricer.Price(shards);
  std::size_t widest = 0;  // the table whose difference loses least to rounding
  const auto difference = [&](std::size_t t) { return prices[2 * t + 1] - prices[2 * t]; };
  for (std::size_t t = 1; t < request.tables.size(); ++t) {
    if (difference(t) > difference(widest)) widest = t;
  }
  if (difference(widest) <= 0) return {CacheStep{}};
  const double fused_ms = prices[2 * widest];
  const double uvm_ms = prices[2 * widest + 1];

  shards.clear();
  for (double of = kLeast; of < kNext; of *= kNext) {
    const Residency cached = {ComputeKernel::kFusedUvmCaching, std::min(of, 1.0)};
    shards.push_back(whole(request.tables[widest], cached));
  }
  prices = pricer.Price(shards);
  std::vector<CacheStep> steps;
  CacheStep before = {0, 1};  // next to no cache
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const CacheStep at = {shards[i].layout.cache_load_factor,
                          std::max(0.0, (prices[i] - fused_ms) / (uvm_ms - fused_ms))};
    steps.push_back({before.load_factor, std::min(before.share, at.share)});
    before = at;
  }
  return steps;
}

// In device memory, of the rows of a whole table: however it is cut, its shards take no less.
double RowBytesOn(const PlanRequest& request, const Table& table, const Residency& residency) {
  const MemoryUse use =
      ShardMemory(request, table, LayoutIn(residency, ShardingType::kTableWise, 1),
                  table.num_embeddings, table.embedding_dim);
  return static_cast<double>(use.weights_bytes + use.optimizer_bytes + use.cache_state_bytes);
}

TableChoices ChoicesOf(const PlanRequest& request, const CompiledRules& rules, int index,
                       const std::vector<CacheStep>& steps, ShardPricer& pricer) {
  const Table& table = request.tables[static_cast<std::size_t>(index)];
  TableFloors of = TableFloorsOf(request, rules, index, pricer, rules.has_off_device());
  TableChoices choices;
  std::set<ComputeKernel> kernels;
  for (const int position : *rules.of(index).residencies) {
    const Residency& residency = rules.residency(position);
    if (residency.off_device()) {
      kernels.insert(residency.kernel);
    } else {
      choices.on_device = std::move(of.floors);
      choices.device_bytes = RowBytesOn(request, table, residency);
    }
  }
  if (of.off_device.empty()) return choices;
  const auto least_at = [&](double share) {
    double least_ms = std::numeric_limits<double>::infinity();
    for (const KernelTotals& totals : of.off_device) {
      least_ms = std::min(least_ms, std::lerp(totals.fused_ms, totals.fused_uvm_ms, share));
    }
    return least_ms;
  };
  for (const ComputeKernel kernel : kernels) {
    if (kernel == ComputeKernel::kFusedUvm) {
      choices.off_device.push_back({least_at(1), RowBytesOn(request, table, {kernel, 0})});
    } else if (kernel == ComputeKernel::kFusedUvmCaching) {
      // Linear in the load factor, but for what three kinds of bytes are rounded by.
      constexpr double kRounded = 4;
      const double none = RowBytesOn(request, table, {kernel, 0});
      const double all = RowBytesOn(request, table, {kernel, 1});
      choices.off_device.reserve(steps.size() + kernels.size());
      for (const CacheStep& step : steps) {
        choices.off_device.push_back(
            {least_at(step.share), std::lerp(none, all, step.load_factor) - kRounded});
      }
    } else {
      choices.off_device.push_back({least_at(0), 0});  // other formulas: no cheaper than kFused
    }
  }
  return choices;
}

}  // namespace

std::vector<TableChoices> MemoryChoicesOf(const PlanRequest& request, const CompiledRules& rules,
                                          const BoundCostModel& model) {
  ShardPricer pricer(model);
  std::vector<CacheStep> steps;
  if (rules.has_off_device()) steps = CacheStepsOf(request, model);
  std::vector<TableChoices> tables;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    TableChoices choices = ChoicesOf(request, rules, static_cast<int>(t), steps, pricer);
    if (choices.on_device.empty() && choices.off_device.empty()) continue;
    tables.push_back(std::move(choices));
  }
  return tables;
}

double RowCapacityBytes(const PlanRequest& request) {
  double bytes = 0;
  for (const Device& device : request.topology.devices) {
    const std::int64_t reserve = ReserveBytes(request.memory, device.memory_bytes);
    bytes += static_cast<double>(std::max<std::int64_t>(0, device.memory_bytes - reserve));
  }
  // TorchRec divides ids by all blocks of rows, also by those without any, which have no ids.
  const auto ranks = static_cast<std::int64_t>(request.topology.num_ranks());
  for (const Table& table : request.tables) {
    if (table.num_embeddings < ranks * ranks) continue;
    const MemoryUse use = ShardMemory(request, table, table.num_embeddings, table.embedding_dim);
    bytes -= static_cast<double>(use.input_bytes + use.output_bytes);
  }
  return bytes;
}

}  // namespace neuroshard

#include "server/evaluate/memory_choices.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <span>
#include <utility>

#include "common/domain/memory_use.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/shard_price.h"

namespace neuroshard {
namespace {

// The kernel enters a price as one bandwidth alone, so shares are read off one table: one whose
// prices differ much, which loses least to rounding.
std::vector<CacheStep> CacheStepsOf(const Table& table, ShardPricer& pricer) {
  constexpr double kLeast = 1.0 / (1 << 14);  // of the rows, in the smallest cache but none
  constexpr double kNext = 1.02;              // times the one before
  std::vector<ShardFeatures> shards;
  const auto add = [&](const Residency& residency) {
    shards.push_back(FeaturesOf(table, LayoutIn(residency, ShardingType::kTableWise, 1),
                                table.num_embeddings, table.embedding_dim));
  };
  add({});
  add({ComputeKernel::kFusedUvm, 0});
  for (double of = kLeast; of < kNext; of *= kNext) {
    add({ComputeKernel::kFusedUvmCaching, std::min(of, 1.0)});
  }
  const std::span<const double> prices = pricer.Price(shards);
  const double fused_ms = prices[0];
  const double difference_ms = prices[1] - fused_ms;
  if (difference_ms <= 0) return {CacheStep{}};
  std::vector<CacheStep> steps;
  CacheStep before = {0, 1};  // next to no cache
  for (std::size_t i = 2; i < shards.size(); ++i) {
    const CacheStep at = {shards[i].layout.cache_load_factor,
                          std::max(0.0, (prices[i] - fused_ms) / difference_ms)};
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
                       ShardPricer& pricer) {
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
  // The first costs least with fused, the last with fused_uvm.
  const std::vector<KernelTotals> totals =
      LowestOf(std::move(of.off_device), &KernelTotals::fused_ms, &KernelTotals::fused_uvm_ms);
  if (totals.empty()) return choices;
  for (const ComputeKernel kernel : kernels) {
    if (kernel == ComputeKernel::kFusedUvm) {
      choices.off_device.push_back(
          {totals.back().fused_uvm_ms, RowBytesOn(request, table, {kernel, 0})});
    } else if (kernel == ComputeKernel::kFusedUvmCaching) {
      constexpr double kRounded = 4;  // bytes, by what three kinds of them are rounded
      choices.least_cache_bytes = RowBytesOn(request, table, {kernel, 0}) - kRounded;
      choices.most_cache_bytes = RowBytesOn(request, table, {kernel, 1}) - kRounded;
      choices.cached = totals;
    } else {  // other formulas: no cheaper than kFused
      choices.off_device.push_back({totals.front().fused_ms, 0});
    }
  }
  return choices;
}

}  // namespace

CacheCurve::CacheCurve(std::vector<CacheStep> steps) {
  std::sort(steps.begin(), steps.end(), [](const CacheStep& a, const CacheStep& b) {
    return std::pair(a.load_factor, a.share) < std::pair(b.load_factor, b.share);
  });
  for (const CacheStep& step : steps) {
    if (!hull_.empty() && step.share >= hull_.back().share) continue;
    // The last one is above the line from the one before it to this one.
    while (hull_.size() > 1) {
      const CacheStep& last = hull_.back();
      const CacheStep& before = hull_[hull_.size() - 2];
      if ((before.share - last.share) * (step.load_factor - last.load_factor) >
          (last.share - step.share) * (last.load_factor - before.load_factor)) {
        break;
      }
      hull_.pop_back();
    }
    hull_.push_back(step);
  }
}

const CacheStep& CacheCurve::Cheapest(double price) const {
  // Going on pays as long as the share falls by more than the price of what is held besides.
  const auto pays = [price](const CacheStep& step, const CacheStep& next) {
    return step.share - next.share > price * (next.load_factor - step.load_factor);
  };
  std::size_t low = 0;
  std::size_t high = hull_.size() - 1;
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (pays(hull_[middle], hull_[middle + 1])) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return hull_[low];
}

MemoryChoices MemoryChoicesOf(const PlanRequest& request, const CompiledRules& rules,
                              const BoundCostModel& model) {
  ShardPricer pricer(model);
  std::vector<TableChoices> tables;
  const Table* widest = nullptr;  // between its prices on the device and off it
  double most_ms = 0;
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    TableChoices of = ChoicesOf(request, rules, static_cast<int>(t), pricer);
    if (of.empty()) continue;
    for (const KernelTotals& totals : of.cached) {
      const double ms = totals.fused_uvm_ms - totals.fused_ms;
      if (ms <= most_ms) continue;
      widest = &request.tables[t];
      most_ms = ms;
    }
    tables.push_back(std::move(of));
  }
  // What is fetched ahead of time costs by its hits, not by a bandwidth: no less than kFused.
  const bool by_bandwidth = request.pipeline_type != PipelineType::kTrainPrefetchSparseDist;
  return {std::move(tables),
          CacheCurve(widest != nullptr && by_bandwidth ? CacheStepsOf(*widest, pricer)
                                                       : std::vector{CacheStep{}})};
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

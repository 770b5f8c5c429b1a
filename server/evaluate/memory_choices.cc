#include "server/evaluate/memory_choices.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "common/domain/memory_use.h"
#include "server/cost/shard_features.h"
#include "server/evaluate/price_plan.h"

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

// What shards can take on the largest device of the set.
std::int64_t LargestDeviceBytes(const PlanRequest& request, const RankSet& ranks) {
  std::int64_t bytes = 0;
  for (const int rank : ranks.ranks()) {
    const std::int64_t all = request.topology.devices[static_cast<std::size_t>(rank)].memory_bytes;
    bytes = std::max(bytes, all - ReserveBytes(request.memory, all));
  }
  return bytes;
}

// In device memory, of the rows of a whole table: however it is cut, its shards take no less.
double RowBytesOn(const PlanRequest& request, const Table& table, const Residency& residency) {
  const MemoryUse use =
      ShardMemory(request, table, LayoutIn(residency, ShardingType::kTableWise, 1),
                  table.num_embeddings, table.embedding_dim);
  return static_cast<double>(use.row_bytes() + use.caches[MemoryTier::kDevice]);
}

// The layouts of a table that are in one memory, beside those in others.
void AddTo(TableChoices& choices, const LayoutFloors& layouts) {
  const bool is_first = choices.empty();
  const double before_ms = is_first ? layouts.every_rank_ms : choices.every_rank_ms;
  choices.every_rank_ms = std::min(before_ms, layouts.every_rank_ms);
  choices.some_ranks_peak_ms = std::min(choices.some_ranks_peak_ms, layouts.some_ranks_peak_ms);
}

TableChoices ChoicesOf(const PlanRequest& request, const CompiledRules& rules, int index,
                       ShardPricer& pricer, std::int64_t device_bytes) {
  const Table& table = request.tables[static_cast<std::size_t>(index)];
  const TableFloors of =
      TableFloorsOf(request, rules, index, pricer, device_bytes, rules.has_off_device());
  TableChoices choices;
  choices.table = index;
  std::map<ComputeKernel, std::vector<Residency>> off_device;
  bool on_device = false;
  for (const int position : *rules.of(index).residencies) {
    const Residency& residency = rules.residency(position);
    if (residency.off_device()) {
      off_device[residency.kernel].push_back(residency);
    } else if (!of.on_device.floors.empty()) {
      on_device = true;
      AddTo(choices, of.on_device);
      choices.choices.push_back({of.on_device.floors, RowBytesOn(request, table, residency)});
    }
  }
  // The first costs least with fused, the last with fused_uvm.
  const std::vector<KernelTotals> totals =
      LowestOf(of.totals, &KernelTotals::fused_ms, &KernelTotals::fused_uvm_ms);
  if (totals.empty()) return choices;
  const double peak_ms = of.off_device.floors.front().peak_ms;
  const auto add = [&](double total_ms, double bytes) {
    const CostFloor floor = {std::max(peak_ms, total_ms / rules.num_ranks()), total_ms};
    AddTo(choices, of.off_device);
    choices.choices.push_back({{floor}, bytes});
  };
  constexpr double kRounded = 4;  // bytes, by what three kinds of them are rounded
  const bool prefetched = request.pipeline_type == PipelineType::kTrainPrefetchSparseDist;
  for (const auto& [kernel, residencies] : off_device) {
    const bool caches = kernel == ComputeKernel::kFusedUvmCaching;
    const bool has_one_bandwidth =
        caches ? residencies.size() == 1 && !prefetched : kernel != ComputeKernel::kOffload;
    const bool counts_bytes = caches || kernel == ComputeKernel::kFusedUvm || IsDynamic(kernel);
    const double bytes =
        counts_bytes ? std::max(0.0, RowBytesOn(request, table, residencies.front()) - kRounded)
                     : 0;
    if (has_one_bandwidth && !on_device) {
      // The only places there are, so that what their shards cost alone is worth knowing: of those
      // with several prices the lowest, which is that of most rows on the device.
      LayoutFloors floors = FloorsIn(residencies.back(), request, rules, index, pricer);
      AddTo(choices, floors);
      choices.choices.push_back({std::move(floors.floors), bytes});
    } else if (kernel == ComputeKernel::kFusedUvm) {
      add(totals.back().fused_uvm_ms, bytes);
    } else if (caches) {
      AddTo(choices, of.off_device);
      choices.least_cache_bytes = RowBytesOn(request, table, {kernel, 0}) - kRounded;
      choices.most_cache_bytes = RowBytesOn(request, table, {kernel, 1}) - kRounded;
      choices.cached_peak_ms = peak_ms;
      choices.cached = totals;
    } else {  // other formulas, or more than one price: no cheaper than kFused
      add(totals.front().fused_ms, 0);
    }
  }
  return choices;
}

constexpr double kMinMsPerByte = 1e-18;  // a petabyte for a microsecond
constexpr double kMaxMsPerByte = 1e6;
constexpr int kHalvings = 16;  // of the interval between prices: near the best all are as good

struct CachedChoice {
  double total_ms = 0;
  double device_bytes = 0;
};

// Behind a cache of the size that is cheapest at the price.
CachedChoice CheapestCache(const TableChoices& table, const CacheCurve& caches,
                           const KernelTotals& totals, double ms_per_byte) {
  const double bytes = table.most_cache_bytes - table.least_cache_bytes;
  const double ms = std::max(0.0, totals.fused_uvm_ms - totals.fused_ms);
  const CacheStep& step =
      caches.Cheapest(ms > 0 ? ms_per_byte * bytes / ms : std::numeric_limits<double>::max());
  return {totals.fused_ms + step.share * ms, table.least_cache_bytes + step.load_factor * bytes};
}

// All tables at their cheapest under a price.
struct Relaxed {
  double bound_ms = 0;
  double device_bytes = 0;
};

Relaxed RelaxedAt(const MemoryChoices& choices, double capacity_bytes, double ms_per_byte) {
  Relaxed all = {-ms_per_byte * capacity_bytes, 0};
  for (const TableChoices& table : choices.tables) {
    double least_ms = std::numeric_limits<double>::infinity();
    double bytes = 0;
    const auto look_at = [&](double total_ms, double device_bytes) {
      const double ms = total_ms + ms_per_byte * device_bytes;
      if (ms >= least_ms) return;
      least_ms = ms;
      bytes = device_bytes;
    };
    for (const MemoryChoice& choice : table.choices) {
      look_at(choice.least_total_ms(), choice.device_bytes);
    }
    for (const KernelTotals& totals : table.cached) {
      const CachedChoice choice = CheapestCache(table, choices.caches, totals, ms_per_byte);
      look_at(choice.total_ms, choice.device_bytes);
    }
    all.bound_ms += least_ms;
    all.device_bytes += bytes;
  }
  return all;
}

}  // namespace

CacheCurve::CacheCurve(std::vector<CacheStep> steps) {
  for (const CacheStep& step :
       LowestOf(std::move(steps), &CacheStep::load_factor, &CacheStep::share)) {
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
  return *std::partition_point(hull_.begin(), hull_.end() - 1, [price](const CacheStep& step) {
    const CacheStep& next = *(&step + 1);  // there is one: the last step is not asked
    return step.share - next.share > price * (next.load_factor - step.load_factor);
  });
}

MemoryChoices MemoryChoicesOf(const PlanRequest& request, const CompiledRules& rules,
                              const BoundCostModel& model) {
  ShardPricer pricer(model);
  std::vector<TableChoices> tables;
  const Table* widest = nullptr;  // between its prices on the device and off it
  double most_ms = 0;
  std::map<const RankSet*, std::int64_t> device_bytes;  // of the largest device of each set
  for (std::size_t t = 0; t < request.tables.size(); ++t) {
    const int table = static_cast<int>(t);
    const RankSet& ranks = *rules.of(table).ranks;
    const auto [largest, is_new] = device_bytes.emplace(&ranks, 0);
    if (is_new) largest->second = LargestDeviceBytes(request, ranks);
    TableChoices of = ChoicesOf(request, rules, table, pricer, largest->second);
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

double PriceOfMemory(const MemoryChoices& choices, double capacity_bytes) {
  const auto fits = [&](double price) {
    return RelaxedAt(choices, capacity_bytes, price).device_bytes <= capacity_bytes;
  };
  if (fits(0)) return 0;
  double low = 0;
  double high = kMinMsPerByte;
  while (!fits(high)) {
    low = high;
    high *= 16;
    if (high > kMaxMsPerByte) return 0;
  }
  // The bound is concave in the price, and rises as long as more is used than there is.
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = low + (high - low) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return RelaxedAt(choices, capacity_bytes, low).bound_ms >
                 RelaxedAt(choices, capacity_bytes, high).bound_ms
             ? low
             : high;
}

std::vector<CostFloor> FloorsAtPrice(const TableChoices& table, const CacheCurve& caches,
                                     double ms_per_byte, int num_ranks) {
  std::vector<CostFloor> floors;
  for (const MemoryChoice& choice : table.choices) {
    for (const CostFloor& floor : choice.floors) {
      floors.push_back({floor.peak_ms, floor.total_ms + ms_per_byte * choice.device_bytes});
    }
  }
  for (const KernelTotals& totals : table.cached) {
    // The largest cache has the smallest peak.
    const double least_ms = CheapestCache(table, caches, totals, 0).total_ms;
    const CachedChoice choice = CheapestCache(table, caches, totals, ms_per_byte);
    floors.push_back({std::max(table.cached_peak_ms, least_ms / num_ranks),
                      choice.total_ms + ms_per_byte * choice.device_bytes});
  }
  return LowestOf(std::move(floors), &CostFloor::peak_ms, &CostFloor::total_ms);
}

}  // namespace neuroshard

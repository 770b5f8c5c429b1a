#include "server/evaluate/cost_floor.h"

#include <cstddef>
#include <map>
#include <span>

#include "common/domain/memory_use.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

// Widths (and holders) are priced one by one while they are small; from there on each stands for
// all below it down to this share less.
constexpr std::int64_t kWidthsAlike = 64;
constexpr std::int64_t kHoldersAlike = 16;

// How the price of one shard bounds a set of layouts.
struct Probe {
  double peak_share = 1;        // some shard costs at least this x the price
  double shards = 1;            // all shards like it cost at least this x the price
  double ranks = 1;             // that share them
  bool continues = false;       // the shard and those of the probe before are of one set of layouts
  bool is_least = true;         // no other layout of the type costs less in all
  std::int64_t least_cols = 0;  // of the largest shard of each of the layouts, at least
};

// The widest piece of a table cut in columns is a multiple of kColumnAlignment, or what a cut
// leaves at the end of a table that is none: the smallest such width from `cols` on.
std::int64_t PieceWidth(std::int64_t cols, std::int64_t dim) {
  if (cols >= dim) return dim;
  const std::int64_t aligned = (cols + kColumnAlignment - 1) / kColumnAlignment * kColumnAlignment;
  const std::int64_t ragged = dim - (dim - cols) / kColumnAlignment * kColumnAlignment;
  return std::min({aligned, ragged, dim});
}

class ProbeList {
 public:
  ProbeList(const Table& table, const CompiledRules& rules, int index)
      : table_(table),
        rules_(rules.of(index)),
        row_cut_(rules.row_cut(index)),
        num_ranks_(rules.num_ranks()),
        uncut_(FeaturesOf(table, {}, table.num_embeddings, table.embedding_dim)) {
    const auto granules = static_cast<std::size_t>(table.embedding_dim / kColumnAlignment);
    shards_.reserve(granules + kHoldersAlike);
    probes_.reserve(shards_.capacity());
    AddColumnTypes();
    AddRowTypes();
  }

  // The shard of each probe.
  const std::vector<ShardFeatures>& shards() const { return shards_; }
  const std::vector<Probe>& probes() const { return probes_; }

 private:
  bool Has(ShardingType type) const { return rules_.types.contains(type); }

  void Add(const ShardLayout& layout, std::int64_t cols, const Probe& probe) {
    probes_.push_back(probe);
    if (probe.least_cols == 0) probes_.back().least_cols = cols;
    ShardFeatures& shard = shards_.emplace_back(uncut_);
    shard.layout = layout;
    shard.rows = (table_.num_embeddings + layout.row_shards - 1) / layout.row_shards;
    shard.cols = cols;
  }

  // All cuts into at most `max_blocks` blocks of columns, each of which is `shards_of_block` shards
  // on `ranks` ranks that share all.
  void AddWidths(const ShardLayout& layout, std::int64_t max_blocks, std::int64_t shards_of_block,
                 std::int64_t ranks) {
    const std::int64_t dim = table_.embedding_dim;
    if (max_blocks < 1 || ranks < 1) return;
    if (rules_.column_block > 0) {
      AddWidth(layout, rules_.column_block, rules_.column_block, shards_of_block, ranks);
      return;
    }
    // Widths that make more shards than ranks only add to both floors: the widest of them will do.
    const std::int64_t share = dim * shards_of_block / ranks / kColumnAlignment * kColumnAlignment;
    std::int64_t least = PieceWidth(
        std::max({kColumnAlignment, rules_.min_column_width, (dim + max_blocks - 1) / max_blocks}),
        dim);
    std::int64_t low = PieceWidth(std::max(share, least), dim);
    while (true) {
      std::int64_t high = low;
      while (high < dim && PieceWidth(high + 1, dim) - low <= low / kWidthsAlike) {
        high = PieceWidth(high + 1, dim);
      }
      AddWidth(layout, low, high, shards_of_block, ranks);
      probes_.back().least_cols = least;
      if (high == dim) return;
      probes_.back().is_least = false;  // wider columns cost less each
      least = low = PieceWidth(high + 1, dim);
    }
  }

  // Cuts whose widest block has `low` to `high` columns.
  void AddWidth(const ShardLayout& layout, std::int64_t low, std::int64_t high,
                std::int64_t shards_of_block, std::int64_t ranks) {
    const double width = static_cast<double>(high);
    Add(layout, high,
        {.peak_share = static_cast<double>(low) / width,
         .shards = static_cast<double>(shards_of_block * table_.embedding_dim) / width,
         .ranks = static_cast<double>(ranks),
         .least_cols = low});
  }

  void AddColumnTypes() {
    const std::int64_t max_shards = rules_.max_shards;
    const auto ranks = static_cast<std::int64_t>(rules_.ranks->ranks().size());
    const auto max_blocks = [&](std::int64_t of_ranks) {
      return rules_.distinct_ranks ? std::min(max_shards, of_ranks) : max_shards;
    };
    if (Has(ShardingType::kColumnWise)) {
      AddWidths({ShardingType::kColumnWise}, max_blocks(ranks), 1, ranks);
    } else if (Has(ShardingType::kTableColumnWise)) {
      const std::int64_t of_host = rules_.ranks->most_of_a_host();
      AddWidths({ShardingType::kTableColumnWise}, max_blocks(of_host), 1, of_host);
    }
    if (Has(ShardingType::kTableWise)) {
      AddWidth({}, table_.embedding_dim, table_.embedding_dim, 1, 1);
    }
    if (Has(ShardingType::kGridShard) && !rules_.ranks->whole_hosts().empty()) {
      const std::vector<int>& sizes = rules_.ranks->whole_host_sizes();
      AddWidths({ShardingType::kGridShard, ComputeKernel::kFused, sizes.back()},
                max_shards / sizes.front(), sizes.front(), ranks);
    }
  }

  void AddRowTypes() {
    const std::int64_t dim = table_.embedding_dim;
    const double all = num_ranks_;
    if (Has(ShardingType::kRowWise)) {
      const ShardLayout layout = LayoutIn({}, ShardingType::kRowWise, num_ranks_, row_cut_);
      if (layout.in_proportion) {
        AddBlocksInProportion(layout);
      } else {
        Add(layout, dim, {.peak_share = 1, .shards = all, .ranks = all});
      }
    }
    if (Has(ShardingType::kDataParallel)) {
      Add({ShardingType::kDataParallel, ComputeKernel::kDense, 1}, dim,
          {.peak_share = 1, .shards = all, .ranks = all});
    }
    if (Has(ShardingType::kTableRowWise)) {
      for (const int size : rules_.ranks->whole_host_sizes()) {
        const double holders = size;
        Add({ShardingType::kTableRowWise, ComputeKernel::kFused, size}, dim,
            {.peak_share = 1, .shards = holders, .ranks = holders});
      }
    }
    if (Has(ShardingType::kRowWiseSubset)) AddSubsets();
  }

  // Blocks cost what their rows do, so each size of them is priced.
  void AddBlocksInProportion(const ShardLayout& layout) {
    std::map<std::int64_t, int> blocks_of_size;
    for (const Block& block : RowWiseBlocks(table_.num_embeddings, num_ranks_, row_cut_)) {
      ++blocks_of_size[block.size];
    }
    bool continues = false;
    for (const auto& [rows, blocks] : blocks_of_size) {
      Add(layout, table_.embedding_dim,
          {.peak_share = 1,
           .shards = static_cast<double>(blocks),
           .ranks = static_cast<double>(num_ranks_),
           .continues = continues});
      shards_.back().rows = rows;
      continues = true;
    }
  }

  void AddSubsets() {
    const auto ranks = static_cast<std::int64_t>(rules_.ranks->ranks().size());
    const std::int64_t most = std::min<std::int64_t>(ranks, rules_.max_shards);
    for (std::int64_t low = 2, high = 0; low <= most; low = high + 1) {
      high = std::min(most, low + low / kHoldersAlike);
      Add({ShardingType::kRowWiseSubset, ComputeKernel::kFused, static_cast<int>(high)},
          table_.embedding_dim,
          {.peak_share = 1,
           .shards = static_cast<double>(low),
           .ranks = static_cast<double>(high)});
    }
  }

  const Table& table_;
  const TableRules& rules_;
  const RowCut& row_cut_;
  const int num_ranks_;
  const ShardFeatures uncut_;
  std::vector<ShardFeatures> shards_;
  std::vector<Probe> probes_;
};

// Floors of those probes of the list that `counts`; `prices` are those of its shards.
template <typename Counts>
LayoutFloors FloorsOf(const ProbeList& list, std::span<const double> prices, const Counts& counts) {
  LayoutFloors of;
  double every_rank_ms = std::numeric_limits<double>::infinity();
  std::vector<CostFloor> all;
  all.reserve(prices.size());
  for (std::size_t i = 0; i < prices.size(); ++i) {
    if (!counts(i)) continue;
    const Probe& probe = list.probes()[i];
    CostFloor floor = {probe.peak_share * prices[i], probe.shards * prices[i]};
    if (probe.continues) {  // what counts begins with the smallest blocks
      floor.peak_ms = std::max(floor.peak_ms, all.back().peak_ms);
      floor.total_ms += all.back().total_ms;
      all.pop_back();
    }
    floor.peak_ms = std::max(floor.peak_ms, floor.total_ms / probe.ranks);
    if (TakesEveryRank(list.shards()[i].layout.type)) {
      every_rank_ms = std::min(every_rank_ms, prices[i]);
    } else {
      of.some_ranks_peak_ms = std::min(of.some_ranks_peak_ms, floor.peak_ms);
    }
    all.push_back(floor);
  }
  if (every_rank_ms < std::numeric_limits<double>::infinity()) of.every_rank_ms = every_rank_ms;
  of.floors = LowestOf(std::move(all), &CostFloor::peak_ms, &CostFloor::total_ms);
  return of;
}

bool MayBeOffDevice(const ShardFeatures& shard) {
  return shard.layout.type != ShardingType::kDataParallel;
}

// `fused_ms` are the prices of the list's shards.
std::vector<KernelTotals> TotalsByKernel(const ProbeList& list, std::span<const double> fused_ms,
                                         ShardPricer& pricer) {
  std::vector<KernelTotals> totals;
  std::vector<ShardFeatures> uncached;
  std::vector<std::pair<std::size_t, double>> parts;  // of each: its place in totals, and shards
  for (std::size_t i = 0; i < list.shards().size(); ++i) {
    const Probe& probe = list.probes()[i];
    if (!probe.is_least || !MayBeOffDevice(list.shards()[i])) continue;
    if (!probe.continues) totals.emplace_back();
    totals.back().fused_ms += probe.shards * fused_ms[i];
    parts.emplace_back(totals.size() - 1, probe.shards);
    uncached.push_back(list.shards()[i]);
    uncached.back().layout.kernel = ComputeKernel::kFusedUvm;
  }
  const std::span<const double> prices = pricer.Price(uncached);  // ends fused_ms
  for (std::size_t i = 0; i < parts.size(); ++i) {
    totals[parts[i].first].fused_uvm_ms += parts[i].second * prices[i];
  }
  return totals;
}

}  // namespace

TableFloors TableFloorsOf(const PlanRequest& request, const CompiledRules& rules, int index,
                          ShardPricer& pricer, std::int64_t device_bytes, bool off_device) {
  const Table& table = request.tables[static_cast<std::size_t>(index)];
  const TableRules& of_table = rules.of(index);
  const ProbeList list(table, rules, index);
  const std::span<const double> prices = pricer.Price(list.shards());
  // By the rows alone: what else a shard takes of a device depends on the batch.
  const auto fits = [&](const ShardLayout& layout, std::int64_t rows, std::int64_t cols) {
    return ShardMemory(request, table, layout, rows, cols).row_bytes() <= device_bytes;
  };
  const bool fits_whole = fits({}, table.num_embeddings, table.embedding_dim);
  TableFloors floors;
  floors.on_device = FloorsOf(list, prices, [&](std::size_t i) {
    const ShardFeatures& shard = list.shards()[i];
    return of_table.device_types.contains(shard.layout.type) &&
           ((fits_whole && shard.layout.kernel == ComputeKernel::kFused) ||
            fits(shard.layout, shard.rows, list.probes()[i].least_cols));
  });
  if (!off_device) return floors;
  floors.off_device =
      FloorsOf(list, prices, [&](std::size_t i) { return MayBeOffDevice(list.shards()[i]); });
  floors.totals = TotalsByKernel(list, prices, pricer);
  return floors;
}

LayoutFloors FloorsIn(const Residency& residency, const PlanRequest& request,
                      const CompiledRules& rules, int index, ShardPricer& pricer) {
  const ProbeList list(request.tables[static_cast<std::size_t>(index)], rules, index);
  std::vector<ShardFeatures> shards = list.shards();
  for (ShardFeatures& shard : shards) {
    shard.layout.kernel = residency.kernel;
    shard.layout.cache_load_factor = residency.cache_load_factor;
  }
  return FloorsOf(list, pricer.Price(shards),
                  [&](std::size_t i) { return MayBeOffDevice(list.shards()[i]); });
}

}  // namespace neuroshard

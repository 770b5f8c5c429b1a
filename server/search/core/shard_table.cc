#include "server/search/core/shard_table.h"

#include <algorithm>
#include <functional>

#include "common/domain/memory_use.h"
#include "common/domain/shard_layout.h"
#include "server/cost/shard_features.h"

namespace neuroshard {
namespace {

// Sharding types with one shard a place.
constexpr std::size_t kRankTypes = 3;

}  // namespace

ShardTable::ShardTable(SearchContext& context)
    : ShardTable(context, std::vector<Residency>(1), RowCuts(context.request())) {}

ShardTable::ShardTable(SearchContext& context, const CompiledRules& rules)
    : ShardTable(context, rules.residencies(), rules.row_cuts()) {
  const std::vector<Table>& tables = context.request().tables;
  if (context.model().properties().additive_compute) return;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    Whole(static_cast<int>(t), tables[t].embedding_dim);
  }
  RepresentNew();
  std::vector<float> mean(width_);
  for (std::size_t i = 0; i < phi_.size(); ++i) mean[i % width_] += phi_[i];
  for (float& sum : mean) sum /= static_cast<float>(context.model().num_ranks());
  for (int kind = 0; kind < context.model().num_kinds(); ++kind) {
    mean_rank_ms_.push_back(CostsOf(mean, kind).front());
  }
  mean_rank_ = std::move(mean);
}

ShardTable::ShardTable(SearchContext& context, std::vector<Residency> residencies, RowCuts row_cuts)
    : context_(context),
      residencies_(std::move(residencies)),
      row_cuts_(std::move(row_cuts)),
      width_(static_cast<std::size_t>(context.model().representation_width())) {
  std::size_t end = 0;
  for (const Table& table : context.request().tables) {
    quick_begin_.push_back(end);
    end += kRankTypes * static_cast<std::size_t>(table.embedding_dim / kColumnAlignment + 1);
  }
  quick_numbers_.assign(end, -1);
  ranks_of_kind_.resize(static_cast<std::size_t>(context.model().num_kinds()));
  for (std::size_t r = 0; r < static_cast<std::size_t>(context.model().num_ranks()); ++r) {
    ++At(ranks_of_kind_, context.model().kind(r));
  }
}

UnitShards ShardTable::Shards(int table, ShardingType type, std::int64_t cols, int ranks,
                              int residency) {
  const std::int64_t rows = RowsOf(table);
  UnitShards shards;
  shards.count = ranks;
  if (!CutsRows(type)) {
    shards.full = shards.rest = shards.empty = Intern({table, type, 1, rows, cols}, residency);
    shards.full_end = shards.rest_end = ranks;
    return shards;
  }
  if (IsInProportion(type, row_cuts_.of(table))) {
    return ShardsInProportion(table, cols, ranks, residency);
  }
  const std::int64_t multiple = type == ShardingType::kRowWise ? row_cuts_.of(table).multiple : 0;
  if (type == ShardingType::kRowWiseSubset || multiple > 0) {
    const std::int64_t bucket = std::max<std::int64_t>(1, multiple);
    const std::int64_t small = rows / bucket / ranks * bucket;
    shards.full_end = static_cast<int>(rows / bucket % ranks);
    shards.rest_end = ranks;
    shards.rest = shards.empty = Intern({table, type, ranks, small, cols}, residency);
    shards.full = shards.full_end > 0
                      ? Intern({table, type, ranks, small + bucket, cols}, residency)
                      : shards.rest;
    return shards;
  }
  const std::int64_t block = (rows + ranks - 1) / ranks;
  const std::int64_t left = rows % block;
  shards.full_end = static_cast<int>(rows / block);
  shards.rest_end = shards.full_end + (left > 0 ? 1 : 0);
  shards.full = Intern({table, type, ranks, block, cols}, residency);
  shards.rest = left > 0 ? Intern({table, type, ranks, left, cols}, residency) : shards.full;
  shards.empty =
      shards.rest_end < ranks ? Intern({table, type, ranks, 0, cols}, residency) : shards.full;
  return shards;
}

UnitShards ShardTable::ShardsInProportion(int table, std::int64_t cols, int ranks, int residency) {
  std::unique_ptr<const RaggedRows>& rows = ragged_rows_[table];
  if (rows == nullptr) {
    auto found = std::make_unique<RaggedRows>();
    const std::vector<Block> blocks = RowWiseBlocks(RowsOf(table), ranks, row_cuts_.of(table));
    for (const Block& block : blocks) found->sizes.push_back(block.size);
    std::ranges::sort(found->sizes, std::greater<>());
    found->sizes.erase(std::unique(found->sizes.begin(), found->sizes.end()), found->sizes.end());
    for (const Block& block : blocks) {
      const auto at =
          std::lower_bound(found->sizes.begin(), found->sizes.end(), block.size, std::greater<>());
      found->size_of_place.push_back(static_cast<int>(at - found->sizes.begin()));
    }
    rows = std::move(found);
  }
  const Shape all = {table, ShardingType::kRowWise, ranks, RowsOf(table), cols};
  std::unique_ptr<const RaggedShards>& shards = ragged_shards_[{all, residency}];
  if (shards == nullptr) {
    auto found = std::make_unique<RaggedShards>();
    found->size_of_place = rows->size_of_place.data();
    for (const std::int64_t size : rows->sizes) {
      found->ids.push_back(Intern({table, all.type, ranks, size, cols}, residency));
    }
    shards = std::move(found);
  }
  return {.full = shards->ids.front(),
          .rest = shards->ids.front(),
          .empty = shards->ids.back(),
          .full_end = 0,
          .rest_end = 0,
          .count = ranks,
          .ragged = shards.get()};
}

UnitShards ShardTable::InResidency(const UnitShards& shards, int residency) {
  const auto shape_of = [&](int id) { return At(entries_, id).shape; };
  if (shards.ragged != nullptr) {
    const Shape& of = At(shapes_, shape_of(shards.full));
    return ShardsInProportion(of.table, of.cols, shards.count, residency);
  }
  UnitShards then = shards;
  then.full = InResidency(shape_of(shards.full), residency);
  then.rest =
      shards.rest == shards.full ? then.full : InResidency(shape_of(shards.rest), residency);
  then.empty =
      shards.empty == shards.rest ? then.rest : InResidency(shape_of(shards.empty), residency);
  return then;
}

int ShardTable::NumberOf(const Shape& shape) {
  int* number = QuickNumber(shape);
  if (number == nullptr) number = &numbers_.try_emplace(shape, -1).first->second;
  if (*number >= 0) return *number;
  *number = static_cast<int>(shapes_.size());
  shapes_.push_back(shape);
  ids_.resize(ids_.size() + residencies_.size(), -1);
  return *number;
}

int ShardTable::Add(int shape, int residency) {
  const Shape& of = At(shapes_, shape);
  const Table& table = At(context_.request().tables, of.table);
  const MemoryUse use =
      ShardMemory(context_.request(), table, LayoutOf(of, residency), of.rows, of.cols);
  entries_.push_back({shape, residency, use.by_tier()});
  return size() - 1;
}

int* ShardTable::QuickNumber(const Shape& shape) {
  if (SpreadOf(shape.type) != Spread::kRank || shape.cols % kColumnAlignment != 0) return nullptr;
  const std::size_t type = shape.type == ShardingType::kTableWise    ? 0
                           : shape.type == ShardingType::kColumnWise ? 1
                                                                     : 2;
  const std::size_t granules = static_cast<std::size_t>(shape.cols / kColumnAlignment);
  return &quick_numbers_[At(quick_begin_, shape.table) + kRankTypes * granules + type];
}

void ShardTable::RepresentNew() {
  const std::size_t known = loads_.size();
  std::vector<ShardFeatures> features;
  for (std::size_t i = known; i < entries_.size(); ++i) {
    const Shape& of = shape(entries_[i]);
    features.push_back(FeaturesOf(At(context_.request().tables, of.table),
                                  LayoutOf(of, entries_[i].residency), of.rows, of.cols));
  }
  phi_.resize(entries_.size() * width_);
  loads_.resize(entries_.size());
  context_.model().Represent(features, std::span(phi_).subspan(known * width_),
                             std::span(loads_).subspan(known));
}

void ShardTable::PredictNew() {
  const std::size_t known = shard_cost_ms_.size();
  if (known == entries_.size()) return;
  RepresentNew();
  const std::span<const float> phi = std::span(phi_).subspan(known * width_);
  const std::size_t num_kinds = ranks_of_kind_.size();
  if (num_kinds == 1) {
    const std::vector<float> costs_ms = CostsOf(phi, 0);
    shard_cost_ms_.insert(shard_cost_ms_.end(), costs_ms.begin(), costs_ms.end());
    return;
  }
  kind_cost_ms_.resize(entries_.size() * num_kinds);
  for (std::size_t k = 0; k < num_kinds; ++k) {
    const std::vector<float> costs_ms = CostsOf(phi, static_cast<int>(k));
    for (std::size_t i = 0; i < costs_ms.size(); ++i) {
      kind_cost_ms_[(known + i) * num_kinds + k] = costs_ms[i];
    }
  }
  const double ranks = static_cast<double>(context_.model().num_ranks());
  for (std::size_t i = known; i < entries_.size(); ++i) {
    // By what kinds differ from the first: exactly that where they do not.
    const float* const of_kind = &kind_cost_ms_[i * num_kinds];
    double more_ms = 0;
    for (std::size_t k = 1; k < num_kinds; ++k) {
      more_ms += (of_kind[k] - of_kind[0]) * ranks_of_kind_[k] / ranks;
    }
    shard_cost_ms_.push_back(static_cast<float>(of_kind[0] + more_ms));
  }
}

std::vector<float> ShardTable::CostsOf(std::span<const float> phi, int kind) {
  std::vector<float> sums(phi.begin(), phi.end());
  for (std::size_t i = 0; i < sums.size() && !mean_rank_.empty(); ++i) {
    sums[i] += mean_rank_[i % width_];
  }
  std::vector<ComputeCost> costs(phi.size() / width_);
  context_.model().ComputeCosts(sums, costs, std::vector<int>(costs.size(), kind));
  context_.statistics().compute_evaluations += std::ssize(costs);
  std::vector<float> costs_ms;
  const float mean_rank_ms = mean_rank_.empty() ? 0 : At(mean_rank_ms_, kind);
  for (const ComputeCost& cost : costs) {
    costs_ms.push_back(std::max(0.0F, cost.total_ms - mean_rank_ms));
  }
  return costs_ms;
}

}  // namespace neuroshard

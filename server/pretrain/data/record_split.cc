#include "server/pretrain/data/record_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "common/base/hash.h"
#include "common/base/positions.h"

namespace neuroshard {
namespace {

constexpr double kMaxUnseenSamples = 0.2;
// Fewer samples are cut at exactly a tenth and two tenths of them.
constexpr std::size_t kEnoughForThresholds = 300;

// FNV-1a with a final mix: the same everywhere, and good enough to pick tenths by.
std::uint64_t HashOf(std::uint64_t seed, const std::string& text) {
  std::uint64_t hash = Fnv1a(text, kFnvOffset ^ (seed * kGoldenGamma));
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdULL;
  hash ^= hash >> 33;
  return hash;
}

std::string StatisticsOf(const MeasuredShard& shard) {
  std::string text = fmt::format("{}/{}", shard.rows, shard.pooling_factor);
  for (const double share : shard.reuse_histogram) text += fmt::format("/{}", share);
  return text;
}

std::string TableOf(const ComputeRecord& record, const MeasuredShard& shard) {
  return record.imported || shard.table.empty() ? StatisticsOf(shard) : shard.table;
}

// Splits the records at these positions.
template <typename Record>
SampleSplit SplitByHash(std::span<const Record> records, const std::vector<std::int64_t>& which,
                        std::uint64_t seed) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> hashed;
  for (const std::int64_t at : which) hashed.push_back({HashOf(seed, ContentOf(records[at])), at});
  std::ranges::sort(hashed);
  SampleSplit split;
  const std::size_t tenth = std::max<std::size_t>(1, hashed.size() / 10);
  constexpr std::uint64_t kTenth = ~std::uint64_t{0} / 10;
  for (std::size_t i = 0; i < hashed.size(); ++i) {
    const bool few = hashed.size() < kEnoughForThresholds;
    const std::uint64_t part = few ? i / tenth : hashed[i].first / kTenth;
    (part == 0   ? split.test
     : part == 1 ? split.validation
                 : split.train)
        .push_back(hashed[i].second);
  }
  for (auto* part : {&split.train, &split.validation, &split.test}) {
    std::sort(part->begin(), part->end());
  }
  return split;
}

// The samples that have a table.
using SamplesOfTables = std::map<std::string, std::set<std::int64_t>>;

// Positions of all samples with a table that is held out.
std::set<std::int64_t> HoldOutTables(const SamplesOfTables& samples_of, std::size_t num_samples,
                                     double share, std::uint64_t seed, std::int64_t* held_out) {
  std::vector<std::pair<std::uint64_t, const std::string*>> order;
  for (const auto& [table, samples] : samples_of) order.push_back({HashOf(~seed, table), &table});
  std::ranges::sort(order, {}, &decltype(order)::value_type::first);
  const double wanted = share * static_cast<double>(order.size());
  const auto limit = static_cast<std::size_t>(kMaxUnseenSamples * static_cast<double>(num_samples));
  std::set<std::int64_t> unseen;
  for (const auto& [hash, table] : order) {
    if (static_cast<double>(*held_out) >= wanted) break;
    std::set<std::int64_t> with = unseen;
    with.insert(samples_of.at(*table).begin(), samples_of.at(*table).end());
    if (with.size() > limit) continue;
    unseen = std::move(with);
    ++*held_out;
  }
  return unseen;
}

}  // namespace

std::string ContentOf(const ComputeRecord& record) {
  const ComputeSample& sample = record.sample;
  std::string text =
      fmt::format("{}|{}|{}", sample.batch_size, ToText(sample.optimizer), sample.seed);
  for (const MeasuredShard& shard : sample.shards) {
    text += fmt::format("|{}|{}|{}|{}|{}", StatisticsOf(shard), shard.cols,
                        ToText(shard.weight_dtype), ToText(shard.pooling_mode), shard.weighted);
  }
  return text;
}

std::string ContentOf(const CommRecord& record) {
  const CommSample& sample = record.sample;
  std::string text = fmt::format("{}|{}|{}|{}", ToText(sample.collective), ToText(sample.direction),
                                 sample.batch_size, sample.element_bytes);
  for (const auto dim_sum : sample.dim_sums) text += fmt::format("|{}", dim_sum);
  for (const double offset : sample.start_offsets_ms) text += fmt::format("|{}", offset);
  if (sample.cadence != Cadence::kBarrier) text += fmt::format("|{}", ToText(sample.cadence));
  if (sample.casts()) text += fmt::format("|{}", ToText(sample.wire_dtype));
  if (const auto& input = sample.input_dist) {
    text += fmt::format("|{}|{}|{}|{}|{}|{}", fmt::join(input->whole_features, ","),
                        fmt::join(input->whole_ids, ","), input->cut_features, input->cut_ids,
                        input->weighted, input->seed);
  }
  return text;
}

ComputeSplit SplitCompute(std::span<const ComputeRecord> records, double table_share,
                          std::uint64_t seed) {
  SamplesOfTables samples_of;
  for (std::size_t i = 0; i < records.size(); ++i) {
    for (const MeasuredShard& shard : records[i].sample.shards) {
      samples_of[TableOf(records[i], shard)].insert(static_cast<std::int64_t>(i));
    }
  }
  ComputeSplit split;
  split.tables = static_cast<std::int64_t>(samples_of.size());
  const std::set<std::int64_t> unseen =
      HoldOutTables(samples_of, records.size(), table_share, seed, &split.held_out_tables);
  split.unseen_tables.assign(unseen.begin(), unseen.end());
  std::vector<std::int64_t> others = Positions<std::int64_t>(records.size());
  std::erase_if(others, [&](std::int64_t at) { return unseen.contains(at); });
  split.samples = SplitByHash(records, others, seed);
  return split;
}

SampleSplit SplitComm(std::span<const CommRecord> records, std::uint64_t seed) {
  return SplitByHash(records, Positions<std::int64_t>(records.size()), seed);
}

}  // namespace neuroshard

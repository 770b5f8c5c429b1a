#include "common/codec/table_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "common/codec/field_limits.h"
#include "common/codec/message_fields.h"

namespace neuroshard {

// But for the pooling mode, which the kind may say.
NS_FIELDS(Table, name, module, num_embeddings, embedding_dim, pooling_factor, pooling_factors,
          reuse_histogram, weight_dtype, weighted, features, output_dtype, num_poolings,
          feature_batch_sizes, batch_pooling_factors, hot_row_blocks, max_l1_cache_bytes,
          l2_cache_bytes, allocated_rows, extra_bytes_per_row, optimizer, stash_weights);
NS_SPARSE_FIELDS(Table, kind);

namespace {

constexpr double kMaxZipfExponent = 4;
constexpr int kMaxBatches = 256;  // each is priced once an answer
constexpr std::int64_t kMaxCacheBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMaxExtraBytes = 65536;  // of a row
// Between pooling_factor and the sum of pooling_factors, relative.
constexpr double kPoolingTolerance = 1e-6;
// Between pooling_factor and the mean of batch_pooling_factors, relative: samples of batches stray.
constexpr double kFarFromMean = 0.1;

// Tables that are not pooled say so by their kind.
PoolingMode DecodePoolingMode(const std::string& text, const FieldCheck& check) {
  if (text.empty()) return PoolingMode::kSum;
  const std::optional<PoolingMode> mode = FromText<PoolingMode>(text);
  if (mode && *mode != PoolingMode::kNone) return *mode;
  constexpr std::array<std::string_view, 2> kPooled = {"sum", "mean"};
  check.Fail("pooling_mode", NotOneOf(text, kPooled));
  return PoolingMode::kSum;
}

}  // namespace

ReuseHistogram TableDecoder::ZipfHistogram(std::int64_t rows, double pooling_factor,
                                           double exponent) {
  const double ids = static_cast<double>(global_batch_size_) * pooling_factor;
  const std::int64_t num_ids = std::max<std::int64_t>(1, std::llround(ids));
  const auto [entry, is_new] = zipf_histograms_.try_emplace({rows, num_ids, exponent});
  if (is_new) {
    entry->second =
        zipf_of_exponent_.try_emplace(exponent, exponent).first->second.Of(rows, num_ids);
  }
  return entry->second;
}

void TableDecoder::DecodePooling(const v1::Table& message, const FieldCheck& check, Table& table) {
  bool ok = CheckBags(message, check);
  const double batch = static_cast<double>(std::max<std::int64_t>(1, global_batch_size_));
  const bool has_bags = !table.num_poolings.empty() || !table.feature_batch_sizes.empty();
  // Ids and bags of a sample of the global batch; without own pooling factors all bags are alike.
  double sum = 0, bags = 0;
  const bool by_feature = message.pooling_factors_size() > 0;
  ok =
      check.EachInRange("pooling_factors", message.pooling_factors(), 0.0, kMaxPoolingFactor) && ok;
  ok = (!by_feature || check.HasAsMany("pooling_factors", message.pooling_factors_size(),
                                       "features", message.features_size())) &&
       ok;
  for (std::size_t i = 0; ok && i < static_cast<std::size_t>(message.features_size()); ++i) {
    double of_sample = table.num_poolings.empty() ? 1 : table.num_poolings[i];
    if (!table.feature_batch_sizes.empty()) {
      of_sample *= static_cast<double>(table.feature_batch_sizes[i]) / batch;
    }
    bags += of_sample;
    if (by_feature) sum += message.pooling_factors(static_cast<int>(i)) * of_sample;
  }
  const char* const over = has_bags ? " over a sample's bags" : "";
  if (!message.has_pooling_factor()) {
    if (!by_feature) without_pooling_factor_.push_back(decoded_);
    if (by_feature && ok && sum > kMaxPoolingFactor) {
      check.Fail("pooling_factors", "must sum to at most {}{}, got {}", kMaxPoolingFactor, over,
                 sum);
      return;
    }
    if (by_feature && ok) table.pooling_factor = sum;
  } else {
    if (!check.InRange("pooling_factor", table.pooling_factor, 0.0, kMaxPoolingFactor)) return;
    if (by_feature && ok &&
        std::abs(sum - table.pooling_factor) >
            kPoolingTolerance * std::max(sum, table.pooling_factor)) {
      check.Fail("pooling_factor", "must be the sum of pooling_factors{}, {}, got {}", over, sum,
                 table.pooling_factor);
    }
  }
  if (by_feature || !has_bags || !ok) return;
  if (bags == 0 && table.pooling_factor > 0) {
    check.Fail("num_poolings", "must not all be 0 where pooling_factor is not");
    return;
  }
  const double of_bag = bags == 0 ? 0 : table.pooling_factor / bags;
  if (of_bag > kMaxPoolingFactor) {
    check.Fail("pooling_factor",
               "gives {} ids a bag, given num_poolings and feature_batch_sizes; must be at most {}",
               of_bag, kMaxPoolingFactor);
    return;
  }
  table.pooling_factors.assign(static_cast<std::size_t>(message.features_size()), of_bag);
}

void TableDecoder::DecodeReuse(const v1::Table& message, const FieldCheck& check, Table& table) {
  const bool zipf_ok =
      !message.has_zipf_exponent() ||
      check.InRange("zipf_exponent", message.zipf_exponent(), 0.0, kMaxZipfExponent);
  if (message.reuse_histogram_size() > 0) {
    if (message.has_zipf_exponent()) {
      check.Fail("zipf_exponent", "must not be given together with reuse_histogram");
    }
    table.reuse_histogram =
        DecodeReuseHistogram(check, message.reuse_histogram(), table.pooling_factor);
    return;
  }
  if (table.pooling_factor == 0) return;
  if (!message.has_zipf_exponent()) {
    without_reuse_histogram_.push_back(decoded_);
    table.reuse_histogram = DefaultReuseHistogram();
    return;
  }
  const bool rows_ok = table.num_embeddings >= 1 && table.num_embeddings <= kMaxExtent;
  const bool pooling_ok = table.pooling_factor > 0 && table.pooling_factor <= kMaxPoolingFactor;
  if (rows_ok && pooling_ok && zipf_ok) {
    table.reuse_histogram =
        ZipfHistogram(table.num_embeddings, table.pooling_factor, message.zipf_exponent());
  }
}

bool TableDecoder::CheckBags(const v1::Table& message, const FieldCheck& check) {
  const int features = message.features_size();
  const auto one_a_feature = [&](const char* field, int size) {
    return size == 0 || check.HasAsMany(field, size, "features", features);
  };
  bool ok = one_a_feature("num_poolings", message.num_poolings_size());
  ok = one_a_feature("feature_batch_sizes", message.feature_batch_sizes_size()) && ok;
  ok = check.EachInRange("num_poolings", message.num_poolings(), 0.0, kMaxPoolingFactor) && ok;
  return check.EachInRange("feature_batch_sizes", message.feature_batch_sizes(), std::int64_t{1},
                           kMaxBatch) &&
         ok;
}

void TableDecoder::CheckBatches(const v1::Table& message, const FieldCheck& check) {
  const int count = message.batch_pooling_factors_size();
  if (count == 0) return;
  if (count > kMaxBatches) {
    check.Fail("batch_pooling_factors", "must have at most {} entries, got {}", kMaxBatches, count);
    return;
  }
  if (num_batches_ == 0) num_batches_ = count;
  if (count != num_batches_) {
    check.Fail("batch_pooling_factors",
               "must have as many entries as those of the tables before, {}, got {}", num_batches_,
               count);
  }
  check.EachInRange("batch_pooling_factors", message.batch_pooling_factors(), 0.0,
                    kMaxPoolingFactor);
}

void TableDecoder::CheckCaches(const Table& table, const FieldCheck& check) {
  if (table.max_l1_cache_bytes) {
    check.InRange("max_l1_cache_bytes", *table.max_l1_cache_bytes, 0, kMaxCacheBytes);
  }
  if (!check.InRange("l2_cache_bytes", table.l2_cache_bytes, 0, kMaxCacheBytes)) return;
  const double all = static_cast<double>(table.num_embeddings) *
                     static_cast<double>(table.embedding_dim) * ElementBytes(table.weight_dtype);
  if (all < 0 || static_cast<double>(table.l2_cache_bytes) <= all) return;
  check.Fail("l2_cache_bytes", "must be at most the {:.0f} bytes of the table, got {}", all,
             table.l2_cache_bytes);
}

Table TableDecoder::Decode(const v1::Table& message, const FieldCheck& check) {
  auto table = TakeFields<Table>(message, check);
  check.IsNonEmptyText("name", table.name, kMaxNameBytes);
  check.InRange("num_embeddings", table.num_embeddings, 1, kMaxExtent);
  check.InRange("embedding_dim", table.embedding_dim, 1, kMaxDim);
  DecodePooling(message, check, table);
  DecodeReuse(message, check, table);
  table.pooling_mode = DecodePoolingMode(message.pooling_mode(), check);
  if (table.kind == TableKind::kEmbedding && !message.pooling_mode().empty()) {
    check.Fail("pooling_mode", "must not be given for kind \"embedding\", which pools nothing");
  }
  if (table.kind == TableKind::kEmbedding && message.weighted()) {
    check.Fail("weighted", "must not be true for kind \"embedding\", which adds up nothing");
  }
  ListedOnce<std::string_view> features(check, "features");
  for (int i = 0; i < message.features_size(); ++i) {
    check.IsNonEmptyText(fmt::format("features[{}]", i), message.features(i), kMaxNameBytes);
    features.Note(message.features(i), i);
  }
  CheckBatches(message, check);
  CheckCaches(table, check);
  if (table.allocated_rows != 0) {
    check.InRange("allocated_rows", table.allocated_rows, table.num_embeddings, kMaxExtent);
  }
  check.InRange("extra_bytes_per_row", table.extra_bytes_per_row, 0, kMaxExtraBytes);
  check.IsText("module", table.module, kMaxNameBytes);
  ++decoded_;
  return table;
}

std::vector<std::string> TableDecoder::Warnings(const std::vector<Table>& tables) const {
  const TableNames names(tables);
  std::vector<std::string> warnings;
  const auto warn = [&](const std::vector<int>& of, std::string_view what) {
    if (of.empty()) return;
    constexpr std::size_t kNamed = 3;
    std::string list;
    for (std::size_t i = 0; i < of.size() && i < kNamed; ++i) {
      list += fmt::format("{}{}", i == 0 ? "" : ", ", Quoted(names.ReferenceTo(of[i])));
    }
    warnings.push_back(fmt::format("{} for {} table(s): {}{}", what, of.size(), list,
                                   of.size() > kNamed ? ", ..." : ""));
  };
  warn(without_pooling_factor_, "pooling_factor is missing and taken as 1");
  warn(without_reuse_histogram_,
       "reuse_histogram and zipf_exponent are missing and ids taken to repeat as in the public "
       "DLRM 2021 tables at 65,536 samples, which may move prices severalfold,");
  std::vector<int> other_batches;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const std::vector<double>& batches = tables[t].batch_pooling_factors;
    if (batches.empty()) continue;
    const double mean =
        std::accumulate(batches.begin(), batches.end(), 0.0) / static_cast<double>(batches.size());
    if (std::abs(mean - tables[t].pooling_factor) > kFarFromMean * tables[t].pooling_factor) {
      other_batches.push_back(static_cast<int>(t));
    }
  }
  warn(other_batches,
       "the mean of batch_pooling_factors is not pooling_factor, which plans are made for,");
  return warnings;
}

v1::Table EncodeTable(const Table& table) {
  auto message = MessageOf<v1::Table>(table);
  if (table.kind == TableKind::kEmbeddingBag) {
    message.set_pooling_mode(std::string(ToText(table.pooling_mode)));
  }
  return message;
}

}  // namespace neuroshard

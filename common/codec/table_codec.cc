#include "common/codec/table_codec.h"

#include <algorithm>
#include <cmath>

#include "common/codec/field_limits.h"

namespace neuroshard {
namespace {

constexpr double kMaxZipfExponent = 4;

}  // namespace

void TableDecoder::Assumption::Note(const std::string& name) {
  constexpr std::size_t kNamed = 3;
  if (count < kNamed) first_names += (count == 0 ? "" : ", ") + Quoted(name);
  if (count == kNamed) first_names += ", ...";
  ++count;
}

ReuseHistogram TableDecoder::ZipfHistogram(std::int64_t rows, double pooling_factor,
                                           double exponent) {
  const double ids = static_cast<double>(global_batch_size_) * pooling_factor;
  const std::int64_t num_ids = std::max<std::int64_t>(1, std::llround(ids));
  const auto [entry, is_new] = zipf_histograms_.try_emplace({rows, num_ids, exponent});
  if (is_new) entry->second = ZipfReuseHistogram(rows, num_ids, exponent);
  return entry->second;
}

Table TableDecoder::Decode(const v1::Table& message, const FieldCheck& check) {
  Table table;
  check.IsNonEmptyText("name", message.name(), kMaxNameBytes);
  table.name = message.name();
  const bool rows_ok = check.InRange("num_embeddings", message.num_embeddings(), 1, kMaxExtent);
  table.num_embeddings = message.num_embeddings();
  check.InRange("embedding_dim", message.embedding_dim(), 1, kMaxDim);
  table.embedding_dim = message.embedding_dim();
  bool pooling_ok = true;
  if (message.has_pooling_factor()) {
    pooling_ok = check.InRange("pooling_factor", message.pooling_factor(), 0.0, kMaxPoolingFactor);
    table.pooling_factor = message.pooling_factor();
  } else {
    pooling_factor_.Note(table.name);
  }
  const bool zipf_ok =
      !message.has_zipf_exponent() ||
      check.InRange("zipf_exponent", message.zipf_exponent(), 0.0, kMaxZipfExponent);
  if (message.reuse_histogram_size() > 0) {
    if (message.has_zipf_exponent()) {
      check.Fail("zipf_exponent", "must not be given together with reuse_histogram");
    }
    table.reuse_histogram =
        DecodeReuseHistogram(check, message.reuse_histogram(), table.pooling_factor);
  } else if (table.pooling_factor == 0) {
    table.reuse_histogram = {};
  } else if (!message.has_zipf_exponent()) {
    reuse_histogram_.Note(table.name);
    table.reuse_histogram = DefaultReuseHistogram();
  } else if (rows_ok && pooling_ok && zipf_ok) {
    table.reuse_histogram =
        ZipfHistogram(table.num_embeddings, table.pooling_factor, message.zipf_exponent());
  }
  table.weight_dtype = check.WordOrDefault("weight_dtype", message.weight_dtype(), DataType::kFp32);
  table.pooling_mode =
      check.WordOrDefault("pooling_mode", message.pooling_mode(), PoolingMode::kSum);
  table.weighted = message.weighted();
  for (int i = 0; i < message.features_size(); ++i) {
    check.IsNonEmptyText(fmt::format("features[{}]", i), message.features(i), kMaxNameBytes);
    table.features.push_back(message.features(i));
  }
  check.IsText("module", message.module(), kMaxNameBytes);
  table.module = message.module();
  return table;
}

std::vector<std::string> TableDecoder::Warnings() const {
  std::vector<std::string> warnings;
  if (pooling_factor_.count > 0) {
    warnings.push_back(fmt::format("pooling_factor is missing and taken as 1 for {} table(s): {}",
                                   pooling_factor_.count, pooling_factor_.first_names));
  }
  if (reuse_histogram_.count > 0) {
    warnings.push_back(
        fmt::format("reuse_histogram is missing and taken as the mean of the public DLRM 2021 "
                    "tables for {} table(s): {}",
                    reuse_histogram_.count, reuse_histogram_.first_names));
  }
  return warnings;
}

v1::Table EncodeTable(const Table& table) {
  v1::Table message;
  message.set_name(table.name);
  message.set_num_embeddings(table.num_embeddings);
  message.set_embedding_dim(table.embedding_dim);
  message.set_pooling_factor(table.pooling_factor);
  for (const double share : table.reuse_histogram) message.add_reuse_histogram(share);
  message.set_weight_dtype(std::string(ToText(table.weight_dtype)));
  message.set_pooling_mode(std::string(ToText(table.pooling_mode)));
  message.set_weighted(table.weighted);
  for (const std::string& feature : table.features) message.add_features(feature);
  message.set_module(table.module);
  return message;
}

}  // namespace neuroshard

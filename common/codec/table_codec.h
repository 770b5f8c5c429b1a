// Table <-> its message, and the histograms that stand in for a missing one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "common/base/violations.h"
#include "common/codec/field_check.h"
#include "common/domain/table.h"
#include "common/domain/table_names.h"
#include "neuroshard/v1/table.pb.h"

namespace neuroshard {

// reuse_histogram as fields of requests and samples have it: 17 entries in [0, 1] that sum to 1
// within 1e-3, or all zero where nothing is looked up. All zero, and a violation, when it is not.
// `Fractions` is a repeated double of a message.
template <typename Fractions>
ReuseHistogram DecodeReuseHistogram(const FieldCheck& check, const Fractions& fractions,
                                    double pooling_factor) {
  ReuseHistogram histogram{};
  if (fractions.size() != kReuseBins) {
    check.Fail("reuse_histogram", "must have {} entries, got {}", kReuseBins, fractions.size());
    return histogram;
  }
  double sum = 0;
  for (int bin = 0; bin < kReuseBins; ++bin) {
    const double share = fractions[bin];
    if (!check.InRange(fmt::format("reuse_histogram[{}]", bin), share, 0.0, 1.0)) return {};
    histogram[static_cast<std::size_t>(bin)] = share;
    sum += share;
  }
  if (sum < 1 - 1e-3 || sum > 1 + 1e-3) {
    if (sum == 0 && pooling_factor == 0) return histogram;
    check.Fail("reuse_histogram", "must sum to 1 (within 0.001), got {:.6g}", sum);
    return {};
  }
  return histogram;
}

// Decodes the tables of one request; remembers what it had to assume.
class TableDecoder {
 public:
  // The batch decides how many ids a Zipf exponent is about.
  explicit TableDecoder(std::int64_t global_batch_size) : global_batch_size_(global_batch_size) {}

  Table Decode(const v1::Table& message, const FieldCheck& check);

  // One warning a kind of assumption about `tables`, which are those it decoded, naming the number
  // of tables and the first few.
  std::vector<std::string> Warnings(const std::vector<Table>& tables) const;

  // Entries of batch_pooling_factors; 0: no table had any.
  int num_batches() const { return num_batches_; }

 private:
  // Whether they are valid.
  static bool CheckBags(const v1::Table& message, const FieldCheck& check);
  void CheckBatches(const v1::Table& message, const FieldCheck& check);
  static void CheckCaches(const Table& table, const FieldCheck& check);
  void DecodePooling(const v1::Table& message, const FieldCheck& check, Table& table);
  void DecodeReuse(const v1::Table& message, const FieldCheck& check, Table& table);

  ReuseHistogram ZipfHistogram(std::int64_t rows, double pooling_factor, double exponent);

  std::int64_t global_batch_size_;
  int decoded_ = 0;
  int num_batches_ = 0;
  // Indices of tables.
  std::vector<int> without_pooling_factor_;
  std::vector<int> without_reuse_histogram_;
  // Real models have few distinct tables.
  std::map<std::tuple<std::int64_t, std::int64_t, double>, ReuseHistogram> zipf_histograms_;
  std::map<double, ZipfHistograms> zipf_of_exponent_;
};

v1::Table EncodeTable(const Table& table);

// A violation for each of `tables`, messages with a module and a name at `path`, of which an
// earlier one has the full name.
template <typename Messages>
void CheckUniqueNames(const Messages& tables, std::string_view path, Violations& violations) {
  TableNames names;
  for (int i = 0; i < tables.size(); ++i) {
    names.Add(tables[i].module(), tables[i].name());
    if (tables[i].name().empty()) continue;
    const std::string full_name = FullName(tables[i].module(), tables[i].name());
    const int first = names.Find(full_name);
    if (first == i) continue;
    violations.Add(fmt::format("{}[{}].name", path, i),
                   "must be unique, got {}, which is also {}[{}].name", Quoted(full_name), path,
                   first);
  }
}

}  // namespace neuroshard

// Tables of a plan that another trainer's form has no words for.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/domain/table_names.h"
#include "common/domain/vocabulary.h"
#include "neuroshard/v1/plan.pb.h"
#include "neuroshard/v1/table.pb.h"

namespace neuroshard {

inline TableNames NamesOf(const v1::Plan& plan) {
  TableNames names;
  for (const v1::TablePlan& table : plan.tables()) names.Add(table.module(), table.name());
  return names;
}

// Why a form that knows device memory alone cannot have the table. Empty: its rows are there.
inline std::string WhyNotInDeviceMemory(const v1::TablePlan& table) {
  const auto kernel = FromText<ComputeKernel>(table.compute_kernel());
  if (!kernel || TierOf(*kernel) == MemoryTier::kDevice) return "";
  return fmt::format("is {}: its rows are {}", table.compute_kernel(),
                     IsInHostMemory(*kernel) ? "in host memory" : "on SSD");
}

// Collects them; not for concurrent use. `trainer` pools rows of fp32 in device memory and has no
// weights of ids.
class UnwritableTables {
 public:
  explicit UnwritableTables(std::string_view trainer,
                            const google::protobuf::RepeatedPtrField<v1::Table>& tables = {})
      : trainer_(trainer) {
    for (const v1::Table& table : tables) tables_[FullName(table.module(), table.name())] = &table;
  }

  // What the trainer cannot run of a table, whatever its place. Empty: nothing.
  std::string WhyRefused(const v1::TablePlan& entry) const {
    if (entry.kind() == ToText(TableKind::kEmbedding)) {
      return fmt::format("is unpooled, and {} gives one vector a sample", trainer_);
    }
    if (std::string reason = WhyNotInDeviceMemory(entry); !reason.empty()) return reason;
    const auto table = tables_.find(FullName(entry.module(), entry.name()));
    if (table == tables_.end()) return "";
    if (table->second->weighted())
      return fmt::format("has weighted ids, which {} does not", trainer_);
    const std::string& dtype = table->second->weight_dtype();
    if (dtype.empty() || dtype == ToText(DataType::kFp32)) return "";
    return fmt::format("has weights of {}, and those of {} are fp32", dtype, trainer_);
  }

  // `reason` continues "table NAME".
  void Add(std::string_view table, std::string_view reason) {
    if (++count_ > kNamed) return;
    list_ += fmt::format("{}table {} {}", count_ == 1 ? "" : "; ", table, reason);
  }

  // FAILED_PRECONDITION that names the first few and counts all; OK where there are none.
  Status ToStatus() const {
    if (count_ == 0) return absl::OkStatus();
    return FailedPrecondition("the plan cannot be written for {}: {}{}", trainer_, list_,
                              count_ > kNamed ? fmt::format("; and {} more", count_ - kNamed) : "");
  }

 private:
  static constexpr std::size_t kNamed = 3;

  const std::string trainer_;
  std::map<std::string, const v1::Table*> tables_;
  std::size_t count_ = 0;
  std::string list_;
};

}  // namespace neuroshard

// Tables of a plan that another trainer's form has no words for.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "common/base/status.h"
#include "common/domain/table_names.h"
#include "common/domain/vocabulary.h"
#include "neuroshard/v1/plan.pb.h"

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

// Collects them; not for concurrent use.
class UnwritableTables {
 public:
  explicit UnwritableTables(std::string_view trainer) : trainer_(trainer) {}

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
  std::size_t count_ = 0;
  std::string list_;
};

}  // namespace neuroshard

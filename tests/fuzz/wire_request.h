// What a planner does to a call's bytes, for the targets of its calls.
#pragma once

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <atomic>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/stop_signal.h"
#include "common/codec/message_text.h"
#include "common/codec/request_codec.h"
#include "common/codec/wire_check.h"
#include "neuroshard/v1/planner.pb.h"
#include "server/cost/analytic/analytic_cost_model.h"
#include "server/planner/planner.h"
#include "server/search/run_search.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {

// Small enough that a planner answers in milliseconds.
inline constexpr RequestLimits kSmallLimits = {.max_tables = 24,
                                               .max_devices = 64,
                                               .max_search_threads = 1,
                                               .max_constraint_entries = 200,
                                               .max_plan_shards = 200,
                                               .max_prediction_shards = 200};

// Stops at its n-th look, so that a search ends alike on every machine.
class StopAfterLooks final : public StopSignal {
 public:
  explicit StopAfterLooks(int looks) : looks_(looks) {}
  bool ShouldStop() const override { return looks_.fetch_sub(1) <= 0; }

 private:
  mutable std::atomic<int> looks_;
};

// The message, admitted as a planner admits it; nothing where it is refused.
template <typename Message>
std::optional<Message> Admitted(std::string_view bytes) {
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  const auto size = CheckOnTheWire(stream, *Message::descriptor(),
                                   {.counted_type = v1::Table::descriptor()->full_name(),
                                    .max_counted = 2 * kSmallLimits.max_tables,
                                    .counted_option = "twice limits.max_tables",
                                    .max_values = 20'000});
  Message message;
  const bool parsed = message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  if (!size.ok()) return std::nullopt;
  if (!parsed) return std::nullopt;
  Promise(size->bytes == static_cast<std::int64_t>(bytes.size()), "all bytes are counted");
  return message;
}

// Prices with published figures, which takes any request.
const Planner& SmallPlanner();

// The shipped requests, cut to `max_tables` tables, and one for each thing that a request may ask.
std::vector<v1::ShardPlanRequest> SmallRequests(int max_tables);

}  // namespace neuroshard::fuzz

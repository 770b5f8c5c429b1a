#include "client/cli/prediction_output.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "client/cli/cost_table.h"
#include "client/cli/plan_report_text.h"
#include "client/cli/text_table.h"
#include "common/codec/message_text.h"

namespace neuroshard {
namespace {

// "users", or "users, items and 3 more".
std::string NamesOf(const ComputeSample& set) {
  constexpr std::size_t kNamed = 2;
  std::string names;
  for (std::size_t i = 0; i < set.shards.size() && i < kNamed; ++i) {
    const std::string& name = set.shards[i].table;
    names += fmt::format("{}{}", i == 0 ? "" : ", ", name.empty() ? "(no name)" : name);
  }
  if (set.shards.size() > kNamed) names += fmt::format(" and {} more", set.shards.size() - kNamed);
  return names;
}

std::string PartText(bool known, double ms) { return known ? fmt::format("{:.3f}", ms) : "-"; }

}  // namespace

std::string PredictionsAsTable(const PredictionRequest& request,
                               const v1::PredictComputeResponse& response, const TextStyle& style) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  const bool intervals = response.interval_coverage() > 0;
  const bool wide = style.detail == Detail::kWide;
  std::vector<TextTable::Column> columns = {{"set"}, {"batch_size"}, {"optimizer", kLeft}};
  if (wide) columns.insert(columns.end(), {{"forward_ms"}, {"backward_ms"}});
  columns.push_back({"total_ms"});
  if (intervals) {
    columns.push_back({fmt::format("{:.0f}% within", 100 * response.interval_coverage())});
  }
  columns.push_back({"tables", kLeft});
  TextTable table(std::move(columns));
  for (std::size_t i = 0; i < request.sets.size(); ++i) {
    const ComputeSample& set = request.sets[i];
    const v1::ComputePrediction& prediction = response.predictions(static_cast<int>(i));
    std::vector<std::string> cells = {fmt::format("{}", i), fmt::format("{}", set.batch_size),
                                      std::string(ToText(set.optimizer))};
    if (wide) {
      cells.push_back(PartText(prediction.has_forward_ms(), prediction.forward_ms()));
      cells.push_back(PartText(prediction.has_backward_ms(), prediction.backward_ms()));
    }
    cells.push_back(fmt::format("{:.3f}", prediction.total_ms()));
    if (intervals) {
      cells.push_back(prediction.has_total_interval() ? IntervalText(prediction.total_interval())
                                                      : "-");
    }
    cells.push_back(NamesOf(set));
    table.AddRow(std::move(cells));
  }
  std::string text = Lines(BasisLine(response.price_basis(), response.measured_with()), style) +
                     table.ToString(style);
  text += fmt::format("model {} version {}\n", response.cost_model().name(),
                      response.cost_model().version());
  for (const std::string& warning : response.warnings()) {
    text += Lines("warning: " + warning + '\n', style);
  }
  return text;
}

std::string PredictionsAsJson(const PredictionRequest& request,
                              const v1::PredictComputeResponse& response) {
  auto document = nlohmann::ordered_json::parse(MessageToJson(response));
  auto predictions = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < request.sets.size(); ++i) {
    const ComputeSample& set = request.sets[i];
    auto tables = nlohmann::ordered_json::array();
    for (const MeasuredShard& shard : set.shards) tables.push_back(shard.table);
    nlohmann::ordered_json prediction = {{"tables", std::move(tables)},
                                         {"batch_size", set.batch_size},
                                         {"optimizer", ToText(set.optimizer)}};
    prediction.update(document["predictions"][i]);
    predictions.push_back(std::move(prediction));
  }
  document["predictions"] = std::move(predictions);
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace neuroshard

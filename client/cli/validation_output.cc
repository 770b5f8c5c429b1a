#include "client/cli/validation_output.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>

#include "client/cli/text_table.h"

namespace neuroshard {
namespace {

struct Comparison {
  std::optional<double> predicted_ms;
  std::optional<double> measured_ms;

  std::optional<double> relative_error() const {
    if (!predicted_ms || !measured_ms || *measured_ms == 0) return std::nullopt;
    return (*predicted_ms - *measured_ms) / *measured_ms;
  }
};

struct Stage {
  const char* name;
  Comparison comparison;
};

std::array<Stage, 4> Stages(const MeasuredRank& measured, const RankCost* predicted) {
  const auto of = [&](double RankCost::*cost) {
    return predicted ? std::optional<double>(predicted->*cost) : std::nullopt;
  };
  return {{{"compute", {of(&RankCost::compute_ms), measured.compute_ms()}},
           {"backward_comm", {of(&RankCost::backward_comm_ms), measured.backward_comm_ms}},
           {"forward_comm", {of(&RankCost::forward_comm_ms), measured.forward_comm_ms}},
           {"total",
            {predicted ? std::optional<double>(predicted->total_ms()) : std::nullopt,
             measured.total_ms()}}}};
}

const RankCost* RankOf(const std::optional<PlanCost>& predicted, std::size_t rank) {
  return predicted && rank < predicted->ranks.size() ? &predicted->ranks[rank] : nullptr;
}

Comparison Costs(const ValidationReport& report, const std::optional<PlanCost>& predicted) {
  return {predicted ? std::optional<double>(predicted->embedding_cost_ms) : std::nullopt,
          report.embedding_cost_ms()};
}

std::string Shown(const std::optional<double>& ms) { return ms ? fmt::format("{:.3f}", *ms) : "-"; }

std::string ShownError(const Comparison& comparison) {
  const auto error = comparison.relative_error();
  return error ? fmt::format("{:+.1f}%", *error * 100) : "-";
}

nlohmann::ordered_json OrNull(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

nlohmann::ordered_json AsJson(const Comparison& comparison) {
  return {{"predicted_ms", OrNull(comparison.predicted_ms)},
          {"measured_ms", OrNull(comparison.measured_ms)},
          {"relative_error", OrNull(comparison.relative_error())}};
}

}  // namespace

std::string ValidationAsTable(const ValidationReport& report,
                              const std::optional<PlanCost>& predicted) {
  TextTable table({{"rank"},
                   {"stage", TextTable::Align::kLeft},
                   {"predicted_ms"},
                   {"measured_ms"},
                   {"error"},
                   {"device", TextTable::Align::kLeft}});
  std::string problems;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& rank = report.ranks[r];
    for (const Stage& stage : Stages(rank, RankOf(predicted, r))) {
      table.AddRow({fmt::format("{}", r), stage.name, Shown(stage.comparison.predicted_ms),
                    Shown(stage.comparison.measured_ms), ShownError(stage.comparison),
                    fmt::format("{} device {}", rank.worker, rank.device)});
    }
    if (!rank.problem.empty()) problems += fmt::format("rank {}: {}\n", r, rank.problem);
  }
  const Comparison cost = Costs(report, predicted);
  std::string text = table.ToString();
  text += fmt::format("plan cost: predicted {} ms, measured {} ms, error {}\n",
                      Shown(cost.predicted_ms), Shown(cost.measured_ms), ShownError(cost));
  text += problems;
  for (const std::string& note : report.notes) text += "note: " + note + '\n';
  return text;
}

std::string ValidationAsJson(const ValidationReport& report,
                             const std::optional<PlanCost>& predicted) {
  auto ranks = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& rank = report.ranks[r];
    nlohmann::ordered_json stages;
    for (const Stage& stage : Stages(rank, RankOf(predicted, r)))
      stages[stage.name] = AsJson(stage.comparison);
    ranks.push_back({{"rank", r},
                     {"worker", rank.worker},
                     {"device", rank.device},
                     {"problem", rank.problem},
                     {"stages", stages},
                     {"measured_forward_compute_ms", OrNull(rank.forward_compute_ms)},
                     {"measured_backward_compute_ms", OrNull(rank.backward_compute_ms)},
                     {"measured_start_offset_ms", rank.start_offset_ms}});
  }
  const nlohmann::ordered_json json = {{"ranks", ranks},
                                       {"embedding_cost", AsJson(Costs(report, predicted))},
                                       {"notes", report.notes}};
  return json.dump(2) + '\n';
}

}  // namespace neuroshard

#include "client/cli/validation_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "client/cli/plan_report_text.h"
#include "client/cli/text_table.h"
#include "common/domain/backend_names.h"

namespace neuroshard {
namespace {

struct Comparison {
  std::optional<double> predicted_ms;
  std::optional<double> measured_ms;
  std::optional<CostInterval> interval;  // of the prediction, where the model says

  std::optional<bool> inside() const {
    if (!interval || !measured_ms) return std::nullopt;
    return *measured_ms >= interval->low_ms && *measured_ms <= interval->high_ms;
  }

  std::optional<double> relative_error() const {
    if (!predicted_ms || !measured_ms || *measured_ms == 0) return std::nullopt;
    return (*predicted_ms - *measured_ms) / *measured_ms;
  }
};

struct Stage {
  const char* name;
  Comparison comparison;
};

// The distribution of ids is among them where it was measured.
std::vector<Stage> Stages(const ValidationReport& report, std::size_t r,
                          const RankCost* predicted) {
  const MeasuredRank& measured = report.ranks[r];
  const auto compare = [&](double RankCost::*cost, std::optional<CostInterval> RankIntervals::*of,
                           std::optional<double> measured_ms) -> Comparison {
    if (predicted == nullptr) return {std::nullopt, measured_ms, std::nullopt};
    return {predicted->*cost, measured_ms, predicted->intervals.*of};
  };
  Comparison total{std::nullopt, report.total_ms(r), std::nullopt};
  if (predicted != nullptr) {
    total.predicted_ms = predicted->total_ms();
    total.interval = predicted->intervals.total;
  }
  std::vector<Stage> stages = {
      {"compute", compare(&RankCost::compute_ms, &RankIntervals::compute, measured.compute_ms())},
      {"backward_comm", compare(&RankCost::backward_comm_ms, &RankIntervals::backward_comm,
                                measured.backward_comm_ms)},
      {"forward_comm",
       compare(&RankCost::forward_comm_ms, &RankIntervals::forward_comm, measured.forward_comm_ms)},
      {"total", total}};
  if (report.input_dist == InputDistUse::kNotMeasured) return stages;
  Comparison input_dist{std::nullopt, measured.input_dist_ms, std::nullopt};
  if (predicted != nullptr) {
    input_dist.predicted_ms = predicted->input_dist_ms;
    input_dist.interval = predicted->intervals.input_dist;
  }
  stages.insert(stages.begin(), {"input_dist", input_dist});
  return stages;
}

const RankCost* RankOf(const std::optional<PlanCost>& predicted, std::size_t rank) {
  return predicted && rank < predicted->ranks.size() ? &predicted->ranks[rank] : nullptr;
}

Comparison Costs(const ValidationReport& report, const std::optional<PlanCost>& predicted) {
  if (!predicted) return {std::nullopt, report.embedding_cost_ms(), std::nullopt};
  return {predicted->embedding_cost_ms, report.embedding_cost_ms(), predicted->interval};
}

std::string Shown(const std::optional<double>& ms) { return ms ? fmt::format("{:.3f}", *ms) : "-"; }

std::string ShownError(const Comparison& comparison) {
  const auto error = comparison.relative_error();
  return error ? fmt::format("{:+.1f}%", *error * 100) : "-";
}

// "0.900..1.300", and "!" where what was measured is outside.
std::string ShownInterval(const Comparison& comparison) {
  if (!comparison.interval) return "-";
  return fmt::format("{:.3f}..{:.3f}{}", comparison.interval->low_ms, comparison.interval->high_ms,
                     comparison.inside().value_or(true) ? " " : "!");
}

// How many of the measured stages were where the model said; empty where it does not say.
std::string CoverageLine(const ValidationReport& report, const std::optional<PlanCost>& predicted) {
  int inside = 0;
  int known = 0;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    for (const Stage& stage : Stages(report, r, RankOf(predicted, r))) {
      const auto is_inside = stage.comparison.inside();
      known += is_inside ? 1 : 0;
      inside += is_inside.value_or(false) ? 1 : 0;
    }
  }
  if (known == 0) return "";
  return fmt::format("measured inside the model's {:.0f}% interval: {} of {}\n",
                     100 * predicted->interval_coverage, inside, known);
}

nlohmann::ordered_json OrNull(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::optional<double> MeasuredMs(const CommMeasurement& measurement) {
  if (measurement.outcome != Outcome::kOk) return std::nullopt;
  return measurement.series.median_ms;
}

// What a stage's sum is made of, the slowest rank of each; empty where all are all-to-alls.
std::string CollectiveLines(const ValidationReport& report) {
  std::string lines;
  bool others = false;
  for (const MeasuredCommSample& measured : report.comm) {
    others = others || measured.sample.collective != Collective::kAllToAll;
    std::optional<double> slowest_ms;
    for (const CommMeasurement& rank : measured.measurements) {
      if (const auto ms = MeasuredMs(rank)) slowest_ms = std::max(slowest_ms.value_or(0), *ms);
    }
    const std::string stage = measured.sample.input_dist
                                  ? measured.sample.sample_id + ':'
                                  : fmt::format("{}_comm: {}", ToText(measured.sample.direction),
                                                ToText(measured.sample.collective));
    lines += fmt::format("{} {} ms on its slowest rank\n", stage, Shown(slowest_ms));
  }
  return others ? lines : "";
}

nlohmann::ordered_json CollectivesAsJson(const ValidationReport& report) {
  auto collectives = nlohmann::ordered_json::array();
  for (const MeasuredCommSample& measured : report.comm) {
    auto measured_ms = nlohmann::ordered_json::array();
    for (const CommMeasurement& rank : measured.measurements) {
      measured_ms.push_back(OrNull(MeasuredMs(rank)));
    }
    nlohmann::ordered_json direction;  // null where there is none
    if (!measured.sample.input_dist) direction = ToText(measured.sample.direction);
    collectives.push_back({{"direction", std::move(direction)},
                           {"collective", CollectiveWord(measured.sample)},
                           {"measured_ms", std::move(measured_ms)}});
  }
  return collectives;
}

nlohmann::ordered_json AsJson(const Comparison& comparison) {
  nlohmann::ordered_json json = {{"predicted_ms", OrNull(comparison.predicted_ms)},
                                 {"measured_ms", OrNull(comparison.measured_ms)},
                                 {"relative_error", OrNull(comparison.relative_error())}};
  if (!comparison.interval) return json;
  json["interval"] = {{"low_ms", comparison.interval->low_ms},
                      {"high_ms", comparison.interval->high_ms}};
  if (const auto inside = comparison.inside()) json["inside"] = *inside;
  return json;
}

}  // namespace

std::string ValidationAsTable(const ValidationReport& report,
                              const std::optional<PlanCost>& predicted, const TextStyle& style) {
  const bool wide = style.detail == Detail::kWide;
  const bool intervals = predicted && predicted->interval_coverage > 0;
  std::vector<TextTable::Column> columns = {
      {"rank"}, {"stage", TextTable::Align::kLeft}, {"predicted_ms"}};
  if (intervals) columns.push_back({fmt::format("{:.0f}% ", 100 * predicted->interval_coverage)});
  columns.insert(columns.end(), {{"measured_ms"}, {"error"}});
  if (wide) columns.push_back({"device", TextTable::Align::kLeft});
  TextTable table(std::move(columns));
  std::string problems;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& rank = report.ranks[r];
    for (const Stage& stage : Stages(report, r, RankOf(predicted, r))) {
      std::vector<std::string> cells = {fmt::format("{}", r), stage.name,
                                        Shown(stage.comparison.predicted_ms)};
      if (intervals) cells.push_back(ShownInterval(stage.comparison));
      cells.insert(cells.end(),
                   {Shown(stage.comparison.measured_ms), ShownError(stage.comparison)});
      if (wide) cells.push_back(fmt::format("{} device {}", rank.worker, rank.device));
      table.AddRow(std::move(cells));
    }
    if (!rank.problem.empty()) problems += fmt::format("rank {}: {}\n", r, rank.problem);
  }
  const Comparison cost = Costs(report, predicted);
  std::string text =
      fmt::format("plan cost: predicted {} ms, measured {} ms, error {}\n",
                  Shown(cost.predicted_ms), Shown(cost.measured_ms), ShownError(cost));
  text += MeasuredWithLine(report.measured_with());
  text += CoverageLine(report, predicted);
  text += CollectiveLines(report);
  text += problems;
  for (const std::string& note : report.notes) text += "note: " + note + '\n';
  return table.ToString(style) + Lines(text, style);
}

std::optional<std::string> OtherBackendsNote(const MeasuredWith& measured,
                                             const MeasuredWith& predicted) {
  const auto differ = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  if (!differ(measured.backend, predicted.backend) &&
      !differ(measured.collective_backend, predicted.collective_backend)) {
    return std::nullopt;
  }
  return fmt::format("the prediction forecasts {}, measured were {}", MeasuredWithText(predicted),
                     MeasuredWithText(measured));
}

std::string ValidationAsJson(const ValidationReport& report,
                             const std::optional<PlanCost>& predicted) {
  auto ranks = nlohmann::ordered_json::array();
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& rank = report.ranks[r];
    nlohmann::ordered_json stages;
    for (const Stage& stage : Stages(report, r, RankOf(predicted, r)))
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
  const MeasuredWith with = report.measured_with();
  const nlohmann::ordered_json json = {{"ranks", ranks},
                                       {"collectives", CollectivesAsJson(report)},
                                       {"measured_with",
                                        {{"device", with.device},
                                         {"backend", with.backend},
                                         {"collective_backend", with.collective_backend}}},
                                       {"embedding_cost", AsJson(Costs(report, predicted))},
                                       {"notes", report.notes}};
  return json.dump(2) + '\n';
}

}  // namespace neuroshard

#include "client/cli/validation_output.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <vector>

#include "client/cli/plan_report.h"
#include "common/codec/plan_codec.h"
#include "common/domain/backend_names.h"

namespace neuroshard {
namespace {

v1::Comparison Compare(std::optional<double> predicted_ms, std::optional<double> measured_ms,
                       const std::optional<CostInterval>& interval) {
  v1::Comparison comparison;
  if (predicted_ms) comparison.set_predicted_ms(*predicted_ms);
  if (measured_ms) comparison.set_measured_ms(*measured_ms);
  if (predicted_ms && measured_ms && *measured_ms != 0) {
    comparison.set_relative_error((*predicted_ms - *measured_ms) / *measured_ms);
  }
  if (!interval) return comparison;
  comparison.mutable_interval()->set_low_ms(interval->low_ms);
  comparison.mutable_interval()->set_high_ms(interval->high_ms);
  if (measured_ms) {
    comparison.set_inside(*measured_ms >= interval->low_ms && *measured_ms <= interval->high_ms);
  }
  return comparison;
}

// The distribution of ids is among them where it was measured.
v1::ValidatedStages StagesOf(const ValidationReport& report, std::size_t r,
                             const RankCost* predicted) {
  const MeasuredRank& measured = report.ranks[r];
  v1::ValidatedStages stages;
  const auto set = [&](v1::Comparison* stage, const auto& cost, const auto& interval,
                       std::optional<double> measured_ms) {
    *stage = predicted == nullptr ? Compare(std::nullopt, measured_ms, std::nullopt)
                                  : Compare(std::invoke(cost, *predicted), measured_ms,
                                            std::invoke(interval, predicted->intervals));
  };
  if (report.input_dist != InputDistUse::kNotMeasured) {
    set(stages.mutable_input_dist(), &RankCost::input_dist_ms, &RankIntervals::input_dist,
        measured.input_dist_ms);
  }
  set(stages.mutable_compute(), &RankCost::compute_ms, &RankIntervals::compute,
      measured.compute_ms());
  set(stages.mutable_backward_comm(), &RankCost::backward_comm_ms, &RankIntervals::backward_comm,
      measured.backward_comm_ms);
  set(stages.mutable_forward_comm(), &RankCost::forward_comm_ms, &RankIntervals::forward_comm,
      measured.forward_comm_ms);
  set(stages.mutable_total(), &RankCost::total_ms, &RankIntervals::total, report.total_ms(r));
  return stages;
}

const RankCost* RankOf(const std::optional<PlanCost>& predicted, std::size_t rank) {
  return predicted && rank < predicted->ranks.size() ? &predicted->ranks[rank] : nullptr;
}

std::string ShownError(const v1::Comparison& of) {
  return of.has_relative_error() ? fmt::format("{:+.1f}%", of.relative_error() * 100) : "-";
}

std::string ShownPrediction(const v1::Comparison& of) {
  return of.has_predicted_ms() ? Cell(of.predicted_ms()) : "-";
}

std::string ShownMeasurement(const v1::Comparison& of) {
  return of.has_measured_ms() ? Cell(of.measured_ms()) : "-";
}

// A line of the table.
struct RankStage {
  const v1::ValidatedRank* rank;
  const char* name;
  v1::Comparison comparison;
};

std::vector<RankStage> RankStages(const v1::ValidationAnswer& answer) {
  std::vector<RankStage> all;
  for (const v1::ValidatedRank& rank : answer.ranks()) {
    const v1::ValidatedStages& stages = rank.stages();
    if (stages.has_input_dist()) all.push_back({&rank, "input_dist", stages.input_dist()});
    all.insert(all.end(), {{&rank, "compute", stages.compute()},
                           {&rank, "backward_comm", stages.backward_comm()},
                           {&rank, "forward_comm", stages.forward_comm()},
                           {&rank, "total", stages.total()}});
  }
  return all;
}

// How many of the measured stages were where the model said; empty where it does not say.
std::string CoverageLine(const std::vector<RankStage>& stages, double coverage) {
  const auto count = [&](const auto& is) { return std::ranges::count_if(stages, is); };
  const auto known = count([](const RankStage& of) { return of.comparison.has_inside(); });
  if (known == 0) return "";
  return fmt::format("measured inside the model's {:.0f}% interval: {} of {}\n", 100 * coverage,
                     count([](const RankStage& of) { return of.comparison.inside(); }), known);
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
    lines += fmt::format("{} {} ms on its slowest rank\n", stage, Cell(slowest_ms));
  }
  return others ? lines : "";
}

}  // namespace

v1::ValidationAnswer ValidationOf(const ValidationReport& report,
                                  const std::optional<PlanCost>& predicted) {
  v1::ValidationAnswer answer;
  for (std::size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& measured = report.ranks[r];
    v1::ValidatedRank& rank = *answer.add_ranks();
    rank.set_rank(static_cast<int>(r));
    rank.set_worker(measured.worker);
    rank.set_device(measured.device);
    rank.set_problem(measured.problem);
    *rank.mutable_stages() = StagesOf(report, r, RankOf(predicted, r));
    if (const auto ms = measured.forward_compute_ms) rank.set_measured_forward_compute_ms(*ms);
    if (const auto ms = measured.backward_compute_ms) rank.set_measured_backward_compute_ms(*ms);
    rank.set_measured_start_offset_ms(measured.start_offset_ms);
  }
  for (const MeasuredCommSample& measured : report.comm) {
    v1::ValidatedCollective& collective = *answer.add_collectives();
    if (!measured.sample.input_dist) {
      collective.set_direction(std::string(ToText(measured.sample.direction)));
    }
    collective.set_collective(std::string(CollectiveWord(measured.sample)));
    for (const CommMeasurement& rank : measured.measurements) {
      collective.add_measured_ms(MeasuredMs(rank).value_or(std::nan("")));
    }
  }
  *answer.mutable_measured_with() = EncodeMeasuredWith(report.measured_with());
  *answer.mutable_embedding_cost() =
      predicted
          ? Compare(predicted->embedding_cost_ms, report.embedding_cost_ms(), predicted->interval)
          : Compare(std::nullopt, report.embedding_cost_ms(), std::nullopt);
  answer.mutable_notes()->Assign(report.notes.begin(), report.notes.end());
  return answer;
}

std::string ValidationAsTable(const ValidationReport& report,
                              const std::optional<PlanCost>& predicted, const TextStyle& style) {
  const v1::ValidationAnswer answer = ValidationOf(report, predicted);
  const std::vector<RankStage> stages = RankStages(answer);
  const double coverage = predicted ? predicted->interval_coverage : 0;
  // "0.900..1.300", and "!" where what was measured is outside.
  const auto interval = [](const RankStage& stage) -> std::string {
    const v1::Comparison& of = stage.comparison;
    if (!of.has_interval()) return "-";
    return IntervalText(of.interval()) + (of.has_inside() && !of.inside() ? "!" : " ");
  };
  const auto shown = [](const auto& cell) {
    return [cell](const RankStage& stage) { return cell(stage.comparison); };
  };
  TableOf<RankStage> table;
  table.Right("rank", [](const RankStage& of) { return of.rank->rank(); })
      .Left("stage", &RankStage::name)
      .Right("predicted_ms", shown(ShownPrediction))
      .Right(fmt::format("{:.0f}% ", 100 * coverage), interval, coverage > 0)
      .Right("measured_ms", shown(ShownMeasurement))
      .Right("error", shown(ShownError))
      .Left(
          "device",
          [](const RankStage& of) {
            return fmt::format("{} device {}", of.rank->worker(), of.rank->device());
          },
          style.wide());
  const v1::Comparison& cost = answer.embedding_cost();
  std::string text = fmt::format("plan cost: predicted {} ms, measured {} ms, error {}\n",
                                 ShownPrediction(cost), ShownMeasurement(cost), ShownError(cost));
  text += MeasuredWithLine(report.measured_with());
  text += CoverageLine(stages, coverage);
  text += CollectiveLines(report);
  for (const v1::ValidatedRank& rank : answer.ranks()) {
    if (!rank.problem().empty()) text += fmt::format("rank {}: {}\n", rank.rank(), rank.problem());
  }
  for (const std::string& note : answer.notes()) text += "note: " + note + '\n';
  return table.ToString(stages, style) + Lines(text, style);
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

}  // namespace neuroshard

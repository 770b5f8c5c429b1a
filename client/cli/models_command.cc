#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/stub/planner_client.h"
#include "common/cli/option_values.h"

namespace neuroshard {
namespace {

struct ModelsOptions {
  PlannerOptions planner{.timeout_s = 30};
  std::string name;
  int version = 0;
  OutputOptions output;
  std::optional<double> share;
  bool force = false;
};

std::string RankCounts(const v1::CostModelSummary& model) {
  if (model.max_num_devices() > 1) return fmt::format("any to {}", model.max_num_devices());
  if (model.num_devices().empty()) return model.kind() == "analytic" ? "any" : "1";
  return fmt::format("{}", fmt::join(model.num_devices(), ","));
}

bool IsStaged(const v1::CostModelSummary& model) { return model.share() > 0 && model.share() < 1; }

std::string ModelsAsTable(const v1::ListCostModelsResponse& response, const TextStyle& style) {
  using Model = v1::CostModelSummary;
  const auto& models = response.models();
  TableOf<Model> table;
  table.Left("name", &Model::name)
      .Right("version", &Model::version)
      .Left("default", [](const Model& of) { return of.is_default() ? "yes" : ""; })
      // The share of the requests for its name that state no version, while there is a rollout of
      // any name.
      .Right(
          "share",
          [](const Model& of) {
            return of.share() > 0 ? fmt::format("{:g}%", 100 * of.share()) : "";
          },
          std::ranges::any_of(models, IsStaged))
      .Left("kind", &Model::kind)
      .Left("backend", &Model::backend, style.wide())
      .Left("ranks", RankCounts)
      .Left("device", &Model::device);
  std::string text = table.ToString(models, style);
  for (const Model& model : models) {
    if (model.poor_reasons().empty()) continue;
    text += Lines(fmt::format("poor: {}/{}: {}\n", model.name(), model.version(),
                              fmt::join(model.poor_reasons(), "; ")),
                  style);
  }
  for (const v1::RefusedCostModel& refused : response.refused()) {
    text += Lines(fmt::format("refused: {}: {}\n", refused.path(), refused.reason()), style);
  }
  return text;
}

std::string ModelAsTable(const v1::GetCostModelResponse& response, const TextStyle& style) {
  const v1::CostModelSummary& summary = response.summary();
  const v1::MeasuredRanges& ranges = response.measured_ranges();
  TextTable table{{{"field", TextTable::Align::kLeft}, {"value", TextTable::Align::kLeft}}};
  const auto always = [&](const std::string& name, const std::string& value) {
    table.rows.push_back({{name, value}});
  };
  // What the model does not state has no row.
  const auto add = [&](const std::string& name, const std::string& value) {
    if (!value.empty()) always(name, value);
  };
  const auto number = [](std::int64_t value) { return value > 0 ? Cell(value) : ""; };
  const auto range = [](std::int64_t low, std::int64_t high) {
    return high > 0 ? fmt::format("{} to {}", low, high) : "";
  };
  const auto words = [](const auto& list, const char* separator = " ") {
    return fmt::format("{}", fmt::join(list, separator));
  };
  always("name", summary.name());
  always("version", Cell(summary.version()));
  always("default", summary.is_default() ? "yes" : "no");
  if (IsStaged(summary)) {
    always("share", fmt::format("{:g}% of the requests for {} without a version",
                                100 * summary.share(), summary.name()));
  }
  always("kind", summary.kind());
  always("device", summary.device());
  always("backend", summary.backend());
  always("collective_backend", summary.collective_backend());
  add("collective_cadence", summary.collective_cadence());
  always("ranks", RankCounts(summary));
  always("sharding_types", words(response.sharding_types()));
  add("global_batch_size", number(response.global_batch_size()));
  add("weight_dtype", response.weight_dtype());
  add("optimizer", response.optimizer());
  add("measured_batch_sizes", range(ranges.min_batch_size(), ranges.max_batch_size()));
  add("measured_ranks", range(ranges.min_ranks(), ranges.max_ranks()));
  add("measured_hosts", range(1, ranges.max_hosts()));
  add("measured_weight_dtypes", words(ranges.weight_dtypes()));
  add("measured_optimizers", words(ranges.optimizers()));
  add("measured_pooling_modes", words(ranges.pooling_modes()));
  add("measured_compute_kernels", words(ranges.compute_kernels()));
  if (response.interval_coverage() > 0) {
    always("interval_coverage", fmt::format("{:.0f}%", 100 * response.interval_coverage()));
  }
  if (!response.comm_fabric().empty()) {
    always("communication", fmt::format("not measured (fabric {})", response.comm_fabric()));
  }
  add("unusable", response.unusable_reason());
  add("digest", summary.digest());
  add("poor", words(summary.poor_reasons(), "; "));
  for (const v1::ModelDrift& drift : response.drift()) {
    always("drift." + drift.stage(),
           fmt::format("measured {:.2f} times the prediction (median of {}, p10 {:.2f}, p90 "
                       "{:.2f}, {} to {})",
                       drift.median_ratio(), drift.samples(), drift.p10_ratio(), drift.p90_ratio(),
                       drift.since(), drift.until()));
  }
  always("features", words(response.features()));
  // A protobuf map has no order of its own.
  for (const auto& [name, value] :
       std::map<std::string, std::string>(response.details().begin(), response.details().end())) {
    always(name, value);
  }
  return table.ToString(style);
}

StatusOr<int> RunList(const ModelsOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto response, options.planner.Client(console.err).ListCostModels());
  return WriteAnswer(console, options.output, response, ModelsAsTable);
}

StatusOr<int> RunShow(const ModelsOptions& options, const Console& console) {
  v1::CostModelRef model = EncodeModelReference(*ParseModelReference(options.name));
  if (options.version != 0) model.set_version(options.version);
  NS_ASSIGN_OR_RETURN(const auto response, options.planner.Client(console.err).GetCostModel(model));
  return WriteAnswer(console, options.output, response, ModelAsTable);
}

StatusOr<int> RunServe(const ModelsOptions& options, const Console& console) {
  const v1::CostModelRef model = EncodeModelReference(*ParseModelReference(options.name));
  v1::ServeModelRequest request;
  request.set_name(model.name());
  request.set_version(model.version());
  if (options.share) request.set_share(*options.share);
  request.set_force(options.force);
  NS_ASSIGN_OR_RETURN(const auto response, options.planner.Client(console.err).ServeModel(request));
  for (const std::string& reason : response.overruled()) {
    console.err << fmt::format("warning: overruled: {}\n", reason);
  }
  return WriteAnswer(console, options.output, response, [&](const auto& answer, const TextStyle&) {
    return fmt::format("{}: {}\n", model.name(), answer.channel());
  });
}

// "NAME/VERSION"; empty: it is one.
std::string CheckVersionReference(const std::string& text) {
  if (std::string fault = CheckModelReference(text); !fault.empty()) return fault;
  return ParseModelReference(text)->version == 0 ? "must be NAME/VERSION" : "";
}

void AddCommonOptions(CLI::App& command, ModelsOptions& options) {
  AddPlannerOptions(command, options.planner);
  AddFormatOption(command, options.output);
  AddWideOption(command, options.output);
}

}  // namespace

void AddModelsCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<ModelsOptions>();
  CLI::App* models = app.add_subcommand("models", "Cost models that a planner has loaded");
  models->require_subcommand(1);
  CLI::App* list = models->add_subcommand("list", "All of them, and those that were refused");
  AddCommonOptions(*list, *options);
  WhenChosen(*list, options, RunList, console, exit_code);
  CLI::App* show = models->add_subcommand("show", "One of them, with its metrics and provenance");
  show->add_option("NAME[/VERSION]", options->name,
                   "The model; without a version the one that serves")
      ->required()
      ->check(CheckModelReference);
  // The version's old spelling.
  InRange(show->add_option("--version", options->version), 1, 1'000'000'000)->group("");
  AddCommonOptions(*show, *options);
  WhenChosen(*show, options, RunShow, console, exit_code);
  CLI::App* serve = models->add_subcommand(
      "serve", "Say which version serves requests that name none, on all planners of the root");
  serve->add_option("NAME/VERSION", options->name, "The version that is to serve")
      ->required()
      ->check(CheckVersionReference);
  InRange(serve->add_option("--share", options->share,
                            "Only for this share of the requests; the version that serves now "
                            "keeps the rest"),
          0.0, 1.0);
  serve->add_flag("--force", options->force, "In spite of reasons against the version");
  AddPlannerOptions(*serve, options->planner);
  AddFormatOption(*serve, options->output);
  WhenChosen(*serve, options, RunServe, console, exit_code);
}

}  // namespace neuroshard

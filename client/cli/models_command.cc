#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/format_option.h"
#include "client/cli/planner_options.h"
#include "client/cli/text_table.h"
#include "client/stub/model_reference.h"
#include "client/stub/planner_client.h"
#include "common/cli/option_values.h"
#include "common/codec/message_text.h"

namespace neuroshard {
namespace {

struct ModelsOptions {
  PlannerOptions planner{.timeout_s = 30};
  std::string name;
  int version = 0;
  std::string format;
  Detail detail = Detail::kShort;
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
  constexpr auto kLeft = TextTable::Align::kLeft;
  const bool wide = style.detail == Detail::kWide;
  std::vector<TextTable::Column> columns = {{"name", kLeft}, {"version"}, {"default", kLeft}};
  const bool staged = std::any_of(response.models().begin(), response.models().end(), IsStaged);
  if (staged) columns.push_back({"share"});
  columns.push_back({"kind", kLeft});
  if (wide) columns.push_back({"backend", kLeft});
  columns.insert(columns.end(), {{"ranks", kLeft}, {"device", kLeft}});
  TextTable table(std::move(columns));
  for (const v1::CostModelSummary& model : response.models()) {
    std::vector<std::string> cells = {model.name(), fmt::format("{}", model.version()),
                                      model.is_default() ? "yes" : ""};
    // Of the requests for its name that state no version, while there is a rollout of any name.
    if (staged) {
      cells.push_back(model.share() > 0 ? fmt::format("{:g}%", 100 * model.share()) : "");
    }
    cells.push_back(model.kind());
    if (wide) cells.push_back(model.backend());
    cells.insert(cells.end(), {RankCounts(model), model.device()});
    table.AddRow(std::move(cells));
  }
  std::string text = table.ToString(style);
  for (const v1::CostModelSummary& model : response.models()) {
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

// What a model of many conditions was measured at; what it does not state has no row.
void AddRanges(const v1::MeasuredRanges& ranges, TextTable& table) {
  const auto add_range = [&](const char* name, std::int64_t low, std::int64_t high) {
    if (high > 0) table.AddRow({name, fmt::format("{} to {}", low, high)});
  };
  add_range("measured_batch_sizes", ranges.min_batch_size(), ranges.max_batch_size());
  add_range("measured_ranks", ranges.min_ranks(), ranges.max_ranks());
  add_range("measured_hosts", 1, ranges.max_hosts());
  const auto add_words = [&](const char* name, const auto& words) {
    if (!words.empty()) table.AddRow({name, fmt::format("{}", fmt::join(words, " "))});
  };
  add_words("measured_weight_dtypes", ranges.weight_dtypes());
  add_words("measured_optimizers", ranges.optimizers());
  add_words("measured_pooling_modes", ranges.pooling_modes());
  add_words("measured_compute_kernels", ranges.compute_kernels());
}

std::string ModelAsTable(const v1::GetCostModelResponse& response, const TextStyle& style) {
  const v1::CostModelSummary& summary = response.summary();
  TextTable table({{"field", TextTable::Align::kLeft}, {"value", TextTable::Align::kLeft}});
  table.AddRow({"name", summary.name()});
  table.AddRow({"version", fmt::format("{}", summary.version())});
  table.AddRow({"default", summary.is_default() ? "yes" : "no"});
  if (IsStaged(summary)) {
    table.AddRow({"share", fmt::format("{:g}% of the requests for {} without a version",
                                       100 * summary.share(), summary.name())});
  }
  table.AddRow({"kind", summary.kind()});
  table.AddRow({"device", summary.device()});
  table.AddRow({"backend", summary.backend()});
  table.AddRow({"collective_backend", summary.collective_backend()});
  if (!summary.collective_cadence().empty()) {
    table.AddRow({"collective_cadence", summary.collective_cadence()});
  }
  table.AddRow({"ranks", RankCounts(summary)});
  table.AddRow({"sharding_types", fmt::format("{}", fmt::join(response.sharding_types(), " "))});
  if (response.global_batch_size() > 0)
    table.AddRow({"global_batch_size", fmt::format("{}", response.global_batch_size())});
  if (!response.weight_dtype().empty()) table.AddRow({"weight_dtype", response.weight_dtype()});
  if (!response.optimizer().empty()) table.AddRow({"optimizer", response.optimizer()});
  if (response.has_measured_ranges()) AddRanges(response.measured_ranges(), table);
  if (response.interval_coverage() > 0) {
    table.AddRow({"interval_coverage", fmt::format("{:.0f}%", 100 * response.interval_coverage())});
  }
  if (!response.comm_fabric().empty()) {
    table.AddRow(
        {"communication", fmt::format("not measured (fabric {})", response.comm_fabric())});
  }
  if (!response.unusable_reason().empty()) {
    table.AddRow({"unusable", response.unusable_reason()});
  }
  if (!summary.digest().empty()) table.AddRow({"digest", summary.digest()});
  if (!summary.poor_reasons().empty()) {
    table.AddRow({"poor", fmt::format("{}", fmt::join(summary.poor_reasons(), "; "))});
  }
  for (const v1::ModelDrift& drift : response.drift()) {
    table.AddRow({"drift." + drift.stage(),
                  fmt::format("measured {:.2f} times the prediction (median of {}, p10 {:.2f}, p90 "
                              "{:.2f}, {} to {})",
                              drift.median_ratio(), drift.samples(), drift.p10_ratio(),
                              drift.p90_ratio(), drift.since(), drift.until())});
  }
  table.AddRow({"features", fmt::format("{}", fmt::join(response.features(), " "))});
  // A protobuf map has no order of its own.
  for (const auto& [name, value] :
       std::map<std::string, std::string>(response.details().begin(), response.details().end())) {
    table.AddRow({name, value});
  }
  return table.ToString(style);
}

int RunList(const ModelsOptions& options, const Console& console) {
  const auto response =
      PlannerClient(options.planner.address, options.planner.policy(console.err)).ListCostModels();
  if (!response.ok()) return ReportFailure(console, response.status());
  return WriteResult(console, "",
                     options.format == "json"
                         ? MessageToJson(*response) + '\n'
                         : ModelsAsTable(*response, console.Style(options.detail)));
}

int RunShow(const ModelsOptions& options, const Console& console) {
  v1::CostModelRef model = EncodeModelReference(*ParseModelReference(options.name));
  if (options.version != 0) model.set_version(options.version);
  const auto response = PlannerClient(options.planner.address, options.planner.policy(console.err))
                            .GetCostModel(model);
  if (!response.ok()) return ReportFailure(console, response.status());
  return WriteResult(console, "",
                     options.format == "json"
                         ? MessageToJson(*response) + '\n'
                         : ModelAsTable(*response, console.Style(options.detail)));
}

int RunServe(const ModelsOptions& options, const Console& console) {
  const v1::CostModelRef model = EncodeModelReference(*ParseModelReference(options.name));
  v1::ServeModelRequest request;
  request.set_name(model.name());
  request.set_version(model.version());
  if (options.share) request.set_share(*options.share);
  request.set_force(options.force);
  const auto response = PlannerClient(options.planner.address, options.planner.policy(console.err))
                            .ServeModel(request);
  if (!response.ok()) return ReportFailure(console, response.status());
  for (const std::string& reason : response->overruled()) {
    console.err << fmt::format("warning: overruled: {}\n", reason);
  }
  return WriteResult(console, "",
                     options.format == "json"
                         ? MessageToJson(*response) + '\n'
                         : fmt::format("{}: {}\n", model.name(), response->channel()));
}

// "NAME/VERSION"; empty: it is one.
std::string CheckVersionReference(const std::string& text) {
  if (std::string fault = CheckModelReference(text); !fault.empty()) return fault;
  return ParseModelReference(text)->version == 0 ? "must be NAME/VERSION" : "";
}

void AddCommonOptions(CLI::App& command, ModelsOptions& options) {
  AddPlannerOptions(command, options.planner);
  AddFormatOption(command, options.format);
  AddWideOption(command, options.detail);
}

}  // namespace

void AddModelsCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<ModelsOptions>();
  CLI::App* models = app.add_subcommand("models", "Cost models that a planner has loaded");
  models->require_subcommand(1);
  CLI::App* list = models->add_subcommand("list", "All of them, and those that were refused");
  AddCommonOptions(*list, *options);
  list->callback([options, &console, exit_code] { *exit_code = RunList(*options, console); });
  CLI::App* show = models->add_subcommand("show", "One of them, with its metrics and provenance");
  show->add_option("NAME[/VERSION]", options->name,
                   "The model; without a version the one that serves")
      ->required()
      ->check(CheckModelReference);
  // The version's old spelling.
  InRange(show->add_option("--version", options->version), 1, 1'000'000'000)->group("");
  AddCommonOptions(*show, *options);
  show->callback([options, &console, exit_code] { *exit_code = RunShow(*options, console); });
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
  AddFormatOption(*serve, options->format);
  serve->callback([options, &console, exit_code] { *exit_code = RunServe(*options, console); });
}

}  // namespace neuroshard

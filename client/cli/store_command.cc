#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/cli/commands.h"
#include "client/cli/format_option.h"
#include "client/cli/store_records_csv.h"
#include "client/cli/text_table.h"
#include "client/sweep/progress_display.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/printable_text.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/cli/store_option.h"
#include "common/domain/rank_networks.h"
#include "common/store/profile_store.h"
#include "common/store/store_maintenance.h"

namespace neuroshard {
namespace {

using Json = nlohmann::ordered_json;

struct StoreOptions {
  std::string store;
  std::string other;  // the store or file that is written
  std::string kind = "compute";
  double older_than_days = 0;
  std::string environment;
  bool apply = false;
  bool yes = false;
  std::string format;
};

std::string DayOf(std::int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm day{};
  gmtime_r(&seconds, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

std::string_view KindOf(const SweepStatistics& sweep) {
  return sweep.kind == SweepKind::kCompute ? "compute" : "comm";
}

// Of an environment's collectives, where it has any; records of before there were others do not say.
std::string CadenceWord(const EnvironmentUse& use) {
  if (use.comm_records == 0) return "";
  const auto& properties = use.environment.properties;
  const auto found = properties.find(std::string(kCadenceProperty));
  return found == properties.end() ? std::string(ToText(Cadence::kBarrier)) : found->second;
}

std::string ContentAsText(const std::string& store, const StoreContent& content,
                          const TextStyle& style) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  TextTable sweeps({{"sweep"},
                    {"kind", kLeft},
                    {"samples"},
                    {"ok"},
                    {"out of memory"},
                    {"pending"},
                    {"name", kLeft}});
  std::int64_t measured = 0;
  for (const SweepStatistics& sweep : content.sweeps) {
    measured += sweep.ok + sweep.out_of_memory;
    sweeps.AddRow({std::to_string(sweep.sweep_id), std::string(KindOf(sweep)),
                   std::to_string(sweep.samples), std::to_string(sweep.ok),
                   std::to_string(sweep.out_of_memory), std::to_string(sweep.pending()),
                   sweep.name + (sweep.imported ? " (imported)" : "")});
  }
  std::vector<TextTable::Column> columns = {{"compute"},        {"ranks"},          {"from", kLeft},
                                            {"until", kLeft},   {"backend", kLeft}, {"host", kLeft},
                                            {"version", kLeft}, {"device", kLeft}};
  // Only where a record says so: others have nothing in them.
  const auto shows = [&](const auto& says) {
    return std::any_of(content.environments.begin(), content.environments.end(), says);
  };
  const bool networks =
      shows([](const EnvironmentUse& use) { return NetworkOf(use.environment).stated(); });
  const bool cadences = shows(
      [](const EnvironmentUse& use) { return CadenceWord(use) == ToText(Cadence::kBackToBack); });
  if (networks) columns.push_back({"network", kLeft});
  if (cadences) columns.push_back({"cadence", kLeft});
  TextTable environments(std::move(columns));
  for (const EnvironmentUse& use : content.environments) {
    std::vector<std::string> row = {std::to_string(use.compute_records),
                                    std::to_string(use.comm_records),
                                    DayOf(use.first_unix_ms),
                                    DayOf(use.last_unix_ms),
                                    use.environment.backend,
                                    use.environment.hostname,
                                    use.environment.worker_version,
                                    use.environment.device};
    if (networks) row.push_back(NetworkOf(use.environment).ToText());
    if (cadences) row.push_back(CadenceWord(use));
    environments.AddRow(std::move(row));
  }
  std::string text = fmt::format("{}: {} sweeps, {} measured samples, {} environments, {}\n", store,
                                 content.sweeps.size(), measured, content.environments.size(),
                                 FormatBytes(content.bytes));
  if (!content.sweeps.empty()) text += '\n' + sweeps.ToString(style);
  if (!content.environments.empty()) text += '\n' + environments.ToString(style);
  if (!ProfileStore::IsRemote(store)) {
    text +=
        "\ncp copies the file without its log, where the latest records are;\n"
        "`neuroshard store backup` makes a whole copy, also during a sweep\n";
  }
  return text;
}

std::string ContentAsJson(const std::string& store, const StoreContent& content) {
  Json sweeps = Json::array();
  for (const SweepStatistics& sweep : content.sweeps) {
    sweeps.push_back({{"sweep_id", sweep.sweep_id},
                      {"kind", KindOf(sweep)},
                      {"name", sweep.name},
                      {"config_hash", sweep.config_hash},
                      {"imported", sweep.imported},
                      {"samples", sweep.samples},
                      {"ok", sweep.ok},
                      {"out_of_memory", sweep.out_of_memory},
                      {"pending", sweep.pending()}});
  }
  Json environments = Json::array();
  for (const EnvironmentUse& use : content.environments) {
    environments.push_back({{"worker_version", use.environment.worker_version},
                            {"git_commit", use.environment.git_commit},
                            {"hostname", use.environment.hostname},
                            {"device", use.environment.device},
                            {"backend", use.environment.backend},
                            {"properties", use.environment.properties},
                            {"compute_records", use.compute_records},
                            {"comm_records", use.comm_records},
                            {"first_unix_ms", use.first_unix_ms},
                            {"last_unix_ms", use.last_unix_ms}});
  }
  const Json json = {{"store", store},
                     {"schema_version", ProfileStore::kSchemaVersion},
                     {"bytes", content.bytes},
                     {"sweeps", sweeps},
                     {"environments", environments}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n';
}

int RunInfo(const StoreOptions& options, const Console& console) {
  const auto store = ProfileStore::Open(options.store, StoreMode::kReadOnly);
  if (!store.ok()) return ReportFailure(console, store.status());
  const auto content = DescribeStore(**store);
  if (!content.ok()) return ReportFailure(console, content.status());
  return WriteResult(console, "",
                     options.format == "json"
                         ? ContentAsJson(options.store, *content)
                         : ContentAsText(options.store, *content, console.Style(Detail::kShort)));
}

// Shows the records of `store` as they go by.
template <typename Work>
auto WithProgress(const ProfileStore& store, const char* label, const Console& console, Work work)
    -> decltype(work(std::function<void()>())) {
  NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> sweeps, store.Statistics());
  std::int64_t total = 0;
  for (const SweepStatistics& sweep : sweeps) total += sweep.ok + sweep.out_of_memory;
  const SteadyClock clock;
  ProgressDisplay display(console.err, clock,
                          console.err_is_terminal ? DisplayMode::kTerminal : DisplayMode::kLog);
  display.Begin(label, total, 0);
  auto result = work([&display] {
    display.Add(false);
    display.Tick();
  });
  display.End();
  return result;
}

int RunCopy(const StoreOptions& options, const Console& console) {
  const auto from = ProfileStore::Open(options.store, StoreMode::kReadOnly);
  if (!from.ok()) return ReportFailure(console, from.status());
  const auto to = ProfileStore::Open(options.other, StoreMode::kReadWrite);
  if (!to.ok()) return ReportFailure(console, to.status());
  const auto report = WithProgress(
      **from, "copy", console,
      [&](const std::function<void()>& on_record) { return CopyStore(**from, **to, on_record); });
  if (!report.ok()) {
    ReportFailure(console, report.status());
    console.err << "what was copied is in " << options.other
                << "; run the same command again to copy the rest\n";
    return kExitFailure;
  }
  const Json json = {{"sweeps", report->sweeps},
                     {"copied", report->copied},
                     {"already_there", report->already_there}};
  return WriteResult(console, "",
                     options.format == "json"
                         ? json.dump(2) + '\n'
                         : fmt::format("{} sweeps, {} records copied, {} already there\n",
                                       report->sweeps, report->copied, report->already_there));
}

int RunBackup(const StoreOptions& options, const Console& console) {
  const auto from = ProfileStore::Open(options.store, StoreMode::kReadOnly);
  if (!from.ok()) return ReportFailure(console, from.status());
  Status made;
  if (ProfileStore::IsRemote(options.store)) {
    made = WithProgress(**from, "backup", console, [&](const std::function<void()>& on_record) {
      return BackUpStore(**from, options.other, on_record);
    });
  } else {
    made = BackUpStore(**from, options.other, [] {});  // the database copies its pages at once
  }
  if (!made.ok()) return ReportFailure(console, made);
  console.err << "written to " << options.other << '\n';
  return kExitSuccess;
}

int RunVerify(const StoreOptions& options, const Console& console) {
  const auto store = ProfileStore::Open(options.store, StoreMode::kReadOnly);
  if (!store.ok()) return ReportFailure(console, store.status());
  const auto faults = FindStoreFaults(**store);
  if (!faults.ok()) return ReportFailure(console, faults.status());
  if (options.format == "json") {
    const Json json = {{"whole", faults->empty()}, {"faults", *faults}};
    WriteResult(console, "", json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n');
  } else {
    std::string text;
    for (const std::string& fault : *faults) text += fault + '\n';
    WriteResult(console, "", faults->empty() ? options.store + " is whole\n" : text);
  }
  return faults->empty() ? kExitSuccess : kExitFailure;
}

int RunPrune(const StoreOptions& options, const Console& console) {
  PruneRule rule{std::nullopt, options.environment};
  if (options.older_than_days > 0) {
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    rule.before_unix_ms =
        now.count() - static_cast<std::int64_t>(options.older_than_days * 86'400'000.0);
  }
  const auto store = ProfileStore::Open(
      options.store, options.apply ? StoreMode::kReadWrite : StoreMode::kReadOnly);
  if (!store.ok()) return ReportFailure(console, store.status());
  const bool asks = options.apply && !options.yes && console.err_is_terminal;
  const bool removes = options.apply && !asks;
  const auto report = PruneStore(**store, rule, !removes);
  if (!report.ok()) return ReportFailure(console, report.status());
  const std::string found = fmt::format("{} records from {}, with them {} sweeps", report->records,
                                        options.store, report->sweeps);
  if (asks) {
    return ReportFailure(console, FailedPrecondition("would remove {}; --yes does it", found));
  }
  const Json json = {{"store", options.store},
                     {"applied", removes},
                     {"records", report->records},
                     {"sweeps", report->sweeps}};
  return WriteResult(console, "",
                     options.format == "json" ? json.dump(2) + '\n'
                     : removes                ? fmt::format("removed {}\n", found)
                               : fmt::format("would remove {}; --apply does it\n", found));
}

int RunExport(const StoreOptions& options, const Console& console) {
  const auto store = ProfileStore::Open(options.store, StoreMode::kReadOnly);
  if (!store.ok()) return ReportFailure(console, store.status());
  if (options.kind == "compute") {
    const auto records = (*store)->ReadComputeRecords();
    if (!records.ok()) return ReportFailure(console, records.status());
    return WriteResult(console, options.other, RecordsAsCsv(*records));
  }
  const auto records = (*store)->ReadCommRecords();
  if (!records.ok()) return ReportFailure(console, records.status());
  return WriteResult(console, options.other, RecordsAsCsv(*records));
}

// What is wrong with export's --format; empty: nothing. Whoever asks for Parquet learns who
// writes it.
std::string ExportFormatFault(const std::string& format) {
  if (format == "csv") return "";
  if (format != "parquet") return Quoted(format) + " is not csv";
  return "parquet is written by a command of the Python package (pip install "
         "'neuroshard[parquet]'): neuroshard-parquet --store S --out FILE";
}

using Run = int (*)(const StoreOptions&, const Console&);

// A command on --store; `options` for what it has beyond.
CLI::App* AddPart(CLI::App& app, const std::shared_ptr<StoreOptions>& options, const char* name,
                  const char* description, Run run, const Console& console, int* exit_code) {
  CLI::App* command = app.add_subcommand(name, description);
  AddStoreOption(*command, options->store, "Profile store");
  command->callback([options, run, &console, exit_code] { *exit_code = run(*options, console); });
  return command;
}

}  // namespace

void AddStoreCommand(CLI::App& app, const Console& console, int* exit_code) {
  CLI::App* store =
      app.add_subcommand("store", "Profile stores: contents, copies, backups, faults");
  store->require_subcommand(1);
  const auto options = std::make_shared<StoreOptions>();
  const auto add = [&](const char* name, const char* description, Run run) {
    return AddPart(*store, options, name, description, run, console, exit_code);
  };
  AddFormatOption(*add("info", "Sweeps, hosts, devices and dates that a store contains", RunInfo),
                  options->format);

  CLI::App* copy = add("copy",
                       "Copy all records into another store, of either kind; into one that has "
                       "some: merge. The same command again goes on where it was",
                       RunCopy);
  copy->add_option("TO", options->other, "Profile store; made when missing")->required();
  AddFormatOption(*copy, options->format);

  CLI::App* backup =
      add("backup", "Write a whole copy into a new file, also of a store in use", RunBackup);
  backup->add_option("FILE", options->other, "SQLite file; must not exist yet")->required();

  AddFormatOption(
      *add("verify", "Read everything and name what is damaged (exit code 1)", RunVerify),
      options->format);

  CLI::App* prune = add("prune",
                        "Remove old records; those of a sweep that keeps some are measured again "
                        "when it is run again",
                        RunPrune);
  CLI::Option_group* what = prune->add_option_group("what");
  InRange(what->add_option("--older-than-days", options->older_than_days, "Measured longer ago"),
          1e-3, 1e5);
  what->add_option("--environment", options->environment,
                   "Measured where this is a word of host, device, backend, version or a property, "
                   "or a property's KEY=VALUE");
  what->require_option(1, 2);
  prune->add_flag("--apply", options->apply, "Remove them; without it they are counted");
  prune->add_flag("--yes", options->yes, "With --apply, where standard error is a terminal: do it")
      ->needs("--apply");
  AddFormatOption(*prune, options->format);

  CLI::App* csv =
      add("export", "Usable records as CSV, one line a sample (comm: a rank)", RunExport);
  csv->add_option("--kind", options->kind, "Records of which sweeps")
      ->check(OneOf({"compute", "comm"}))
      ->capture_default_str();
  csv->add_option("--out", options->other, "File; default: standard output");
  csv->add_option("--format", options->format, "csv; of parquet it says who writes it")
      ->check(CLI::Validator(ExportFormatFault, "", "format"))
      ->default_str("csv");
}

}  // namespace neuroshard

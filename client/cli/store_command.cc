#include <fmt/chrono.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/cli/store_records_csv.h"
#include "common/base/bytes.h"
#include "common/base/clock.h"
#include "common/base/printable_text.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/cli/progress_display.h"
#include "common/codec/message_fields.h"
#include "common/domain/measurement.h"
#include "common/domain/rank_networks.h"
#include "common/store/profile_store.h"
#include "common/store/store_maintenance.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

NS_FIELDS(SweepStatistics, sweep_id, name, config_hash, imported, samples, ok, out_of_memory);
NS_FIELDS(EnvironmentUse, compute_records, comm_records, first_unix_ms, last_unix_ms);
NS_FIELDS(CopyReport, sweeps, copied, already_there);
NS_FIELDS(PruneReport, records, sweeps);

namespace {

struct StoreOptions {
  std::string store;
  std::string other;  // the store or file that is written
  std::string kind = "compute";
  double older_than_days = 0;
  std::string environment;
  bool apply = false;
  bool yes = false;
  OutputOptions output;
};

std::string DayOf(std::int64_t unix_ms) {
  return fmt::format("{:%F}", fmt::gmtime(unix_ms / 1000));
}

// The cadence of an environment's collectives, where it has any. Records that were made while there
// was only one do not say it.
std::string CadenceWord(const EnvironmentUse& use) {
  if (use.comm_records == 0) return "";
  const auto& properties = use.environment.properties;
  const auto found = properties.find(std::string(kCadenceProperty));
  return found == properties.end() ? std::string(ToText(Cadence::kBarrier)) : found->second;
}

// Environments with a column for each property that some record states; others have nothing in
// them.
std::string EnvironmentsAsTable(const std::vector<EnvironmentUse>& environments,
                                const TextStyle& style) {
  using Use = EnvironmentUse;
  const auto shows = [&](const auto& says) { return std::ranges::any_of(environments, says); };
  return TableOf<Use>()
      .Right("compute", &Use::compute_records)
      .Right("ranks", &Use::comm_records)
      .Left("from", [](const Use& use) { return DayOf(use.first_unix_ms); })
      .Left("until", [](const Use& use) { return DayOf(use.last_unix_ms); })
      .Left("backend", [](const Use& use) { return use.environment.backend; })
      .Left("host", [](const Use& use) { return use.environment.hostname; })
      .Left("version", [](const Use& use) { return use.environment.worker_version; })
      .Left("device", [](const Use& use) { return use.environment.device; })
      .Left(
          "network", [](const Use& use) { return NetworkOf(use.environment).ToText(); },
          shows([](const Use& use) { return NetworkOf(use.environment).stated(); }))
      .Left("cadence", CadenceWord,
            shows([](const Use& use) { return CadenceWord(use) == ToText(Cadence::kBackToBack); }))
      .ToString(environments, style);
}

v1::StoreAnswer AnswerOf(const std::string& store, const StoreContent& content) {
  v1::StoreAnswer answer;
  answer.set_store(store);
  answer.set_schema_version(ProfileStore::kSchemaVersion);
  answer.set_bytes(content.bytes);
  for (const SweepStatistics& of : content.sweeps) {
    v1::StoreSweep& sweep = *answer.add_sweeps();
    PutFields(of, sweep);
    sweep.set_kind(std::string(ToText(of.kind)));
    sweep.set_pending(of.pending());
  }
  for (const EnvironmentUse& use : content.environments) {
    v1::StoreEnvironment& environment = *answer.add_environments();
    PutFields(use.environment, environment);
    PutFields(use, environment);
  }
  return answer;
}

std::string ContentAsText(const v1::StoreAnswer& answer, const StoreContent& content,
                          const TextStyle& style) {
  using Sweep = v1::StoreSweep;
  std::int64_t measured = 0;
  for (const Sweep& sweep : answer.sweeps()) measured += sweep.ok() + sweep.out_of_memory();
  std::string text = fmt::format("{}: {} sweeps, {} measured samples, {} environments, {}\n",
                                 answer.store(), answer.sweeps_size(), measured,
                                 answer.environments_size(), FormatBytes(answer.bytes()));
  if (!answer.sweeps().empty()) {
    text += '\n' + TableOf<Sweep>()
                       .Right("sweep", &Sweep::sweep_id)
                       .Left("kind", &Sweep::kind)
                       .Right("samples", &Sweep::samples)
                       .Right("ok", &Sweep::ok)
                       .Right("out of memory", &Sweep::out_of_memory)
                       .Right("pending", &Sweep::pending)
                       .Left("name",
                             [](const Sweep& of) {
                               return of.name() + (of.imported() ? " (imported)" : "");
                             })
                       .ToString(answer.sweeps(), style);
  }
  if (!content.environments.empty()) {
    text += '\n' + EnvironmentsAsTable(content.environments, style);
  }
  if (!ProfileStore::IsRemote(answer.store())) {
    text +=
        "\ncp copies the file without its log, where the latest records are;\n"
        "`neuroshard store backup` makes a whole copy, also during a sweep\n";
  }
  return text;
}

StatusOr<int> RunInfo(const StoreOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(options.store, StoreMode::kReadOnly));
  NS_ASSIGN_OR_RETURN(const StoreContent content, DescribeStore(*store));
  return WriteAnswer(console, options.output, AnswerOf(options.store, content),
                     [&](const v1::StoreAnswer& answer, const TextStyle& style) {
                       return ContentAsText(answer, content, style);
                     });
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

StatusOr<int> RunCopy(const StoreOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto from, ProfileStore::Open(options.store, StoreMode::kReadOnly));
  NS_ASSIGN_OR_RETURN(const auto to, ProfileStore::Open(options.other, StoreMode::kReadWrite));
  const auto report = WithProgress(
      *from, "copy", console,
      [&](const std::function<void()>& on_record) { return CopyStore(*from, *to, on_record); });
  if (!report.ok()) {
    ReportFailure(console, report.status());
    console.err << "what was copied is in " << options.other
                << "; run the same command again to copy the rest\n";
    return kExitFailure;
  }
  v1::StoreCopyAnswer answer;
  PutFields(*report, answer);
  return WriteAnswer(console, options.output, answer, [](const auto& of, const TextStyle&) {
    return fmt::format("{} sweeps, {} records copied, {} already there\n", of.sweeps(), of.copied(),
                       of.already_there());
  });
}

StatusOr<int> RunBackup(const StoreOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto from, ProfileStore::Open(options.store, StoreMode::kReadOnly));
  const auto back_up = [&](const std::function<void()>& on_record) {
    return BackUpStore(*from, options.other, on_record);
  };
  // A file's database copies its pages at once.
  NS_RETURN_IF_ERROR(ProfileStore::IsRemote(options.store)
                         ? WithProgress(*from, "backup", console, back_up)
                         : back_up([] {}));
  console.err << "written to " << options.other << '\n';
  return kExitSuccess;
}

StatusOr<int> RunVerify(const StoreOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(options.store, StoreMode::kReadOnly));
  NS_ASSIGN_OR_RETURN(const auto faults, FindStoreFaults(*store));
  v1::StoreVerifyAnswer answer;
  answer.set_whole(faults.empty());
  answer.mutable_faults()->Assign(faults.begin(), faults.end());
  WriteAnswer(console, options.output, answer, [&](const auto& of, const TextStyle&) {
    return of.whole() ? options.store + " is whole\n"
                      : fmt::format("{}\n", fmt::join(of.faults(), "\n"));
  });
  return faults.empty() ? kExitSuccess : kExitFailure;
}

StatusOr<int> RunPrune(const StoreOptions& options, const Console& console) {
  PruneRule rule{std::nullopt, options.environment};
  if (options.older_than_days > 0) {
    rule.before_unix_ms =
        UnixMillisecondsNow() - static_cast<std::int64_t>(options.older_than_days * 86'400'000.0);
  }
  NS_ASSIGN_OR_RETURN(const auto store,
                      ProfileStore::Open(options.store, options.apply ? StoreMode::kReadWrite
                                                                      : StoreMode::kReadOnly));
  const bool asks = options.apply && !options.yes && console.err_is_terminal;
  const bool removes = options.apply && !asks;
  NS_ASSIGN_OR_RETURN(const PruneReport report, PruneStore(*store, rule, !removes));
  const std::string found = fmt::format("{} records from {}, with them {} sweeps", report.records,
                                        options.store, report.sweeps);
  if (asks) return FailedPrecondition("would remove {}; --yes does it", found);
  v1::StorePruneAnswer answer;
  answer.set_store(options.store);
  answer.set_applied(removes);
  PutFields(report, answer);
  return WriteAnswer(console, options.output, answer, [&](const auto&, const TextStyle&) {
    return removes ? fmt::format("removed {}\n", found)
                   : fmt::format("would remove {}; --apply does it\n", found);
  });
}

StatusOr<int> RunExport(const StoreOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto store, ProfileStore::Open(options.store, StoreMode::kReadOnly));
  if (options.kind == "compute") {
    NS_ASSIGN_OR_RETURN(const auto records, store->ReadRecords<ComputeRecord>());
    return WriteResult(console, options.other, RecordsAsCsv(records));
  }
  NS_ASSIGN_OR_RETURN(const auto records, store->ReadRecords<CommRecord>());
  return WriteResult(console, options.other, RecordsAsCsv(records));
}

// What is wrong with export's --format; empty: nothing. Whoever asks for Parquet learns who
// writes it.
std::string ExportFormatFault(const std::string& format) {
  if (format == "csv") return "";
  if (format != "parquet") return Quoted(format) + " is not csv";
  return "parquet is written by a command of the Python package (pip install "
         "'neuroshard[parquet]'): neuroshard-parquet --store S --out FILE";
}

}  // namespace

void AddStoreCommand(CLI::App& app, const Console& console, int* exit_code) {
  CLI::App* store =
      app.add_subcommand("store", "Profile stores: contents, copies, backups, faults");
  store->require_subcommand(1);
  const auto options = std::make_shared<StoreOptions>();
  // A command on --store; `options` for what it has beyond.
  const auto add = [&](const char* name, const char* description,
                       StatusOr<int> (*run)(const StoreOptions&, const Console&)) {
    CLI::App* command = store->add_subcommand(name, description);
    AddStoreOption(*command, options->store, "Profile store");
    WhenChosen(*command, options, run, console, exit_code);
    return command;
  };
  AddFormatOption(*add("info", "Sweeps, hosts, devices and dates that a store contains", RunInfo),
                  options->output);

  CLI::App* copy = add("copy",
                       "Copy all records into another store, of either kind; into one that has "
                       "some: merge. The same command again goes on where it was",
                       RunCopy);
  copy->add_option("TO", options->other, "Profile store; made when missing")->required();
  AddFormatOption(*copy, options->output);

  CLI::App* backup =
      add("backup", "Write a whole copy into a new file, also of a store in use", RunBackup);
  backup->add_option("FILE", options->other, "SQLite file; must not exist yet")->required();

  AddFormatOption(
      *add("verify", "Read everything and name what is damaged (exit code 1)", RunVerify),
      options->output);

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
  AddFormatOption(*prune, options->output);

  CLI::App* csv =
      add("export", "Usable records as CSV, one line a sample (comm: a rank)", RunExport);
  csv->add_option("--kind", options->kind, "Records of which sweeps")
      ->check(OneWordOf<SweepKind>())
      ->capture_default_str();
  csv->add_option("--out", options->other, "File; default: standard output");
  csv->add_option("--format", options->output.format, "csv; of parquet it says who writes it")
      ->check(CLI::Validator(ExportFormatFault, "", "format"))
      ->default_str("csv");
}

}  // namespace neuroshard

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/stub/planner_client.h"
#include "client/sweep/active_sampling.h"
#include "client/sweep/sampling.h"
#include "client/sweep/sweep_config.h"
#include "client/sweep/sweep_run.h"
#include "common/base/in_file.h"
#include "common/base/stop_signal.h"
#include "common/base/violations.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/codec/message_fields.h"
#include "common/codec/table_files.h"
#include "common/codec/text_file.h"
#include "common/rpc/process_signals.h"
#include "common/store/profile_store.h"
#include "common/store/sql_database.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {

NS_FIELDS(GivenUpSample, sample_id, reason);
NS_FIELDS(LostWorker, worker, device, reason);
NS_FIELDS(SweepReport, recorded, out_of_memory, given_up, lost);

namespace {

// The samples and the configuration of sweeps of a kind.
template <SweepKind kKind>
struct TypesOf {
  using Sample = ComputeSample;
  using Config = ComputeSweepConfig;
};
template <>
struct TypesOf<SweepKind::kComm> {
  using Sample = CommSample;
  using Config = CommSweepConfig;
};

struct SweepOptions {
  std::string config_file;
  FleetOptions fleet;  // but for its times and files
  std::string store_file;
  int reconnect_s = 60;
  int sample_timeout_s = 300;
  std::string planner;
  TlsFiles tls = {};
  std::string model;
  OutputOptions output;

  PlannerClient Planner() const { return PlannerClient(planner, {.tls = tls.Read()}); }
};

// What a configuration asks for. Made before the store is opened, so that a faulty configuration
// leaves no store behind.
template <typename Sample>
struct SweepPlan {
  SweepInfo info;
  MeasurementSettings settings;
  std::vector<Sample> samples;
  // How many of `samples` an active sweep chooses and measures; they are candidates there.
  int num_chosen = 0;
  int repeats = 1;
  std::string values = {};  // of the configuration, defaults included
};

// A sweep that is in the store.
struct StoredSweep {
  std::int64_t sweep_id = 0;
  std::int64_t num_samples = 0;
};

StatusOr<SweepPlan<ComputeSample>> PlanOf(const ComputeSweepConfig& config, SweepInfo info,
                                          const std::filesystem::path& config_file) {
  const std::string csv_path = (config_file.parent_path() / config.tables).string();
  const auto csv = ReadTextFile(csv_path);
  if (!csv.ok()) {
    Violations violations;
    violations.Add("tables", Message(csv.status()));
    return InFile(config_file.string(), violations.ToStatus());
  }
  const auto tables = ParseTableCsv(*csv);
  if (!tables.ok()) return InFile(csv_path, tables.status());
  const bool active = config.active_candidates > 0;
  auto samples = active ? MakeCandidates(config, *tables) : MakeComputeSamples(config, *tables);
  if (!samples.ok()) return Annotate(samples.status(), config_file.string());
  info.config_hash = SweepHash(config, *csv);
  return SweepPlan<ComputeSample>{std::move(info), config.settings, *std::move(samples),
                                  active ? config.num_samples : 0, config.repeats};
}

StatusOr<SweepPlan<CommSample>> PlanOf(const CommSweepConfig& config, SweepInfo info,
                                       const std::filesystem::path&) {
  info.config_hash = SweepHash(config, "");
  return SweepPlan<CommSample>{std::move(info), config.settings, MakeCommSamples(config)};
}

template <SweepKind kKind>
StatusOr<SweepPlan<typename TypesOf<kKind>::Sample>> PlanSweep(const SweepOptions& options) {
  const std::filesystem::path path(options.config_file);
  NS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.config_file));
  NS_ASSIGN_OR_RETURN(const SweepConfig config, ParseSweepConfig(text, options.config_file));
  const auto* of_kind = std::get_if<typename TypesOf<kKind>::Config>(&config);
  if (of_kind == nullptr) {
    return InvalidArgument(
        "{}: the file describes the other kind of sweep; `neuroshard sweep {}` runs it",
        options.config_file, kKind == SweepKind::kCompute ? "comm" : "compute");
  }
  auto plan = PlanOf(*of_kind, SweepInfo{path.stem().string(), "", text}, path);
  if (plan.ok()) plan->values = CanonicalText(config);
  return plan;
}

// Checks what an active sweep asks for, before the store is made.
Status CheckActiveOptions(const SweepOptions& options, int num_chosen) {
  if (num_chosen == 0) {
    if (options.planner.empty() && options.model.empty()) return absl::OkStatus();
    return InvalidArgument("{}: --planner and --model are for sweeps with an `active` section",
                           options.config_file);
  }
  if (options.model.empty()) {
    return InvalidArgument("{}: active: --model is required: what it is least sure of is measured",
                           options.config_file);
  }
  return absl::OkStatus();
}

struct ChosenSweep {
  CostModelRef model;
  SweepStatistics statistics;
};

// Sweeps of this configuration that a version of this model chose.
StatusOr<std::vector<ChosenSweep>> SweepsInStore(const SweepInfo& info, const std::string& name,
                                                 const ProfileStore& store) {
  NS_ASSIGN_OR_RETURN(const std::vector<SweepStatistics> all, store.Statistics());
  const std::string prefix = info.config_hash + ":";
  std::vector<ChosenSweep> chosen;
  for (const SweepStatistics& sweep : all) {
    if (sweep.kind != SweepKind::kCompute || !sweep.config_hash.starts_with(prefix)) continue;
    const auto model = ParseModelReference(sweep.config_hash.substr(prefix.size()));
    if (model.ok() && model->name == name) chosen.push_back({*model, sweep});
  }
  return chosen;
}

StatusOr<CostModelRef> Resolve(const SweepOptions& options, const CostModelRef& model,
                               const std::vector<ChosenSweep>& before) {
  if (!options.planner.empty()) {
    return ResolveChoosingModel(options.Planner(), model);
  }
  std::string known;
  for (const ChosenSweep& sweep : before) {
    known += fmt::format("{}{}", known.empty() ? "; without one, it has sweeps chosen by " : ", ",
                         ModelReferenceText(sweep.model));
  }
  return InvalidArgument(
      "--planner is required: the store has no sweep of this configuration chosen by {}{}",
      ModelReferenceText(model), known);
}

Status CheckNoneIsUnfinished(const std::vector<ChosenSweep>& before, const CostModelRef& now) {
  for (const ChosenSweep& sweep : before) {
    if (sweep.statistics.pending() == 0) continue;
    return FailedPrecondition(
        "sweep {} of this configuration was chosen by {} and lacks {} of {} samples, and the "
        "planner now has {}: name a version, --model {} to go on with that sweep or --model {} to "
        "choose anew",
        sweep.statistics.sweep_id, ModelReferenceText(sweep.model), sweep.statistics.pending(),
        sweep.statistics.samples, ModelReferenceText(now), ModelReferenceText(sweep.model),
        ModelReferenceText(now));
  }
  return absl::OkStatus();
}

// A sweep of samples that a cost model is least sure of. The model with its version is part of the
// sweep's identity. A sweep that is in the store already keeps the samples chosen then, whatever
// the planner would choose now; else the planner's model chooses. FAILED_PRECONDITION when the
// model's newest version is another than the one of an unfinished sweep of this configuration: the
// caller has to name the version to go on with. `log` is told when the planner is asked, which
// takes a while.
StatusOr<StoredSweep> BeginActive(const SweepOptions& options, const SweepPlan<ComputeSample>& plan,
                                  ProfileStore& store, const StopSignal& stop, std::ostream& log) {
  const CostModelRef asked = *ParseModelReference(options.model);
  NS_ASSIGN_OR_RETURN(const auto before, SweepsInStore(plan.info, asked.name, store));
  const auto chosen_by = [&](const CostModelRef& model) {
    return std::ranges::find_if(before,
                                [&](const ChosenSweep& sweep) { return sweep.model == model; });
  };
  auto found = chosen_by(asked);
  CostModelRef model = asked;
  if (found == before.end()) {
    NS_ASSIGN_OR_RETURN(model, Resolve(options, asked, before));
    found = chosen_by(model);
  }
  if (found != before.end()) {
    return StoredSweep{found->statistics.sweep_id, found->statistics.samples};
  }
  if (asked.version == 0) NS_RETURN_IF_ERROR(CheckNoneIsUnfinished(before, model));

  log << fmt::format("asking {} which {} of {} samples it is least sure of\n",
                     ModelReferenceText(model), plan.num_chosen, plan.samples.size());
  NS_ASSIGN_OR_RETURN(std::vector<ComputeSample> samples,
                      ChooseLeastSure(options.Planner(), model, plan.samples,
                                      static_cast<std::size_t>(plan.num_chosen), stop));
  samples = InPasses(std::move(samples), plan.repeats);
  SweepInfo info = plan.info;
  info.config_hash += ':' + ModelReferenceText(model);
  info.config_text += fmt::format("# chosen by {}\n", ModelReferenceText(model));
  NS_ASSIGN_OR_RETURN(const std::int64_t sweep_id, store.BeginSweep(info, samples));
  return StoredSweep{sweep_id, static_cast<std::int64_t>(samples.size())};
}

// `pending` samples had no record before the run, and `missing` have none after it.
v1::SweepAnswer AnswerOf(SweepKind kind, const StoredSweep& sweep, const SweepReport& report,
                         std::int64_t pending, std::int64_t missing) {
  v1::SweepAnswer answer;
  PutFields(report, answer);
  answer.set_kind(std::string(ToText(kind)));
  answer.set_sweep_id(sweep.sweep_id);
  answer.set_samples(sweep.num_samples);
  answer.set_done_before(sweep.num_samples - pending);
  // Another run of the same sweep measured them into the store meanwhile.
  answer.set_recorded_by_others(std::max<std::int64_t>(0, pending - report.recorded - missing));
  answer.set_missing(missing);
  answer.set_complete(missing == 0);
  if (!report.status.ok()) answer.set_error(Message(report.status));
  return answer;
}

std::string SweepAsText(const v1::SweepAnswer& answer, const TextStyle&) {
  std::string text = fmt::format(
      "{} sweep {}: {} samples, {} measured now ({} out of memory), {} before, {} missing\n",
      answer.kind(), answer.sweep_id(), answer.samples(), answer.recorded(), answer.out_of_memory(),
      answer.done_before(), answer.missing());
  if (answer.recorded_by_others() > 0) {
    text += fmt::format("measured by others into this store meanwhile: {}\n",
                        answer.recorded_by_others());
  }
  for (const v1::SweepLost& lost : answer.lost()) {
    text += fmt::format("away at the end: {}{}: {}\n", lost.worker(),
                        lost.has_device() ? fmt::format(" device {}", lost.device()) : "",
                        lost.reason());
  }
  return text;
}

template <SweepKind kKind>
StatusOr<int> RunSweepCommand(const SweepOptions& options, const Console& console) {
  using Sample = typename TypesOf<kKind>::Sample;
  CheckDistinctWorkers(options.fleet.workers);
  CatchProcessSignals();
  ManualStop stop;
  const SignalThread signals({[&stop] { stop.Stop(); }, nullptr});
  NS_ASSIGN_OR_RETURN(const SweepPlan<Sample> plan, PlanSweep<kKind>(options));
  console.err << "measures " << plan.values << '\n';
  NS_RETURN_IF_ERROR(CheckActiveOptions(options, plan.num_chosen));
  NS_ASSIGN_OR_RETURN(const auto store,
                      ProfileStore::Open(options.store_file, StoreMode::kReadWrite));
  StoredSweep sweep{0, static_cast<std::int64_t>(plan.samples.size())};
  if (plan.num_chosen == 0) {
    NS_ASSIGN_OR_RETURN(sweep.sweep_id, store->BeginSweep(plan.info, plan.samples));
  } else if constexpr (kKind == SweepKind::kCompute) {
    const auto active = BeginActive(options, plan, *store, stop, console.err);
    if (absl::IsCancelled(active.status())) {
      ReportFailure(console, active.status());
      return kExitInterrupted;
    }
    NS_RETURN_IF_ERROR(active.status());
    sweep = *active;
  }
  NS_ASSIGN_OR_RETURN(std::vector<Sample> pending, store->PendingSamples<Sample>(sweep.sweep_id));
  const auto num_pending = static_cast<std::int64_t>(pending.size());

  FleetOptions fleet = options.fleet;
  fleet.tls = options.tls.Read();
  fleet.reconnect_window = std::chrono::seconds(options.reconnect_s);
  fleet.sample_deadline = std::chrono::seconds(options.sample_timeout_s);
  const SteadyClock clock;
  ProgressDisplay display(console.err, clock,
                          console.err_is_terminal ? DisplayMode::kTerminal : DisplayMode::kLog);
  store->database().OnOutage([&](const Status& why) {
    display.Note(fmt::format(
        "the store cannot be reached, tried again for {} s; meanwhile nothing is recorded: {}",
        kReconnectTime.count() / 1000, Message(why)));
  });
  display.Begin(std::string(ToText(kKind)), sweep.num_samples, sweep.num_samples - num_pending);
  const SweepReport report = RunSweep(
      {*store, sweep.sweep_id, plan.settings, fleet, clock, stop, display}, std::move(pending));
  display.End();

  // Asked again: another client may have measured a part.
  const auto left = store->PendingSamples<Sample>(sweep.sweep_id);
  if (left.ok()) {
    const auto missing = static_cast<std::int64_t>(left->size());
    const int written = WriteAnswer(
        console, options.output, AnswerOf(kKind, sweep, report, num_pending, missing), SweepAsText);
    if (report.status.ok() && missing == 0) return written;
  }
  if (!report.status.ok() || !left.ok()) {
    ReportFailure(console, report.status.ok() ? left.status() : report.status);
  }
  console.err << "everything measured is in " << options.store_file
              << "; run the same command again to measure the rest\n";
  return report.status.code() == absl::StatusCode::kCancelled ? kExitInterrupted : kExitFailure;
}

template <SweepKind kKind>
void AddKind(CLI::App& sweep, const char* description, const Console& console, int* exit_code) {
  const auto options = std::make_shared<SweepOptions>();
  CLI::App* command = sweep.add_subcommand(std::string(ToText(kKind)), description);
  command
      ->add_option("CONFIG", options->config_file, "Sweep configuration in YAML (configs/sweeps)")
      ->required();
  AddWorkersOption(*command, options->fleet.workers);
  AddTlsOptions(*command, options->tls);
  AddStoreOption(*command, options->store_file,
                 "Profile store; made when missing. The same command again resumes");
  InRange(
      command->add_option("--reconnect-s", options->reconnect_s,
                          "Try so many seconds to reach a worker (again) before doing without it"),
      0, 86'400)
      ->capture_default_str();
  InRange(command->add_option("--reconnect", options->reconnect_s), 0, 86'400)
      ->group("");  // its old name
  if (kKind == SweepKind::kCompute) {
    InRange(command->add_option("--devices-per-worker", options->fleet.devices_per_worker,
                                "Measure on so many devices of each worker at a time, 0 for all; "
                                "CPU devices that share cores disturb each other"),
            0, 1024)
        ->capture_default_str();
    command
        ->add_option("--planner", options->planner,
                     "Planner that is asked what to measure, when CONFIG has an `active` section")
        ->type_name("HOST:PORT")
        ->check(CheckReplicaAddress);
    AddModelOption(*command, options->model,
                   "Its cost model, with intervals: what this model is least sure of is measured");
  }
  InRange(command->add_option("--sample-timeout-s", options->sample_timeout_s,
                              "A worker that takes longer for a sample is treated as broken"),
          1, 86'400)
      ->capture_default_str();
  AddFormatOption(*command, options->output);
  WhenChosen(*command, options, RunSweepCommand<kKind>, console, exit_code);
}

}  // namespace

void AddSweepCommand(CLI::App& app, const Console& console, int* exit_code) {
  CLI::App* sweep =
      app.add_subcommand("sweep", "Measure many samples on workers, for pre-training");
  sweep->require_subcommand(1);
  sweep->footer(
      "SIGINT and SIGTERM stop a sweep with exit code 130; nothing measured is lost, the same "
      "command resumes.");
  AddKind<SweepKind::kCompute>(*sweep, "Embedding forward and backward of random table sets",
                               console, exit_code);
  AddKind<SweepKind::kComm>(*sweep, "Collectives between devices of all workers", console,
                            exit_code);
}

}  // namespace neuroshard

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"
#include "client/stub/channel.h"
#include "client/stub/worker_client.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/text_lines.h"
#include "common/base/violations.h"
#include "common/cli/exit_code.h"
#include "common/observe/listen_address.h"
#include "common/rpc/tls_files.h"
#include "common/store/profile_store.h"
#include "neuroshard/v1/answers.pb.h"

namespace neuroshard {
namespace {

// Whether servers, stores and ports are as a person would want them, and what to do where they are
// not. Each check asks or opens one thing and changes nothing.

struct DoctorOptions {
  PlannerOptions planner{.timeout_s = 5};
  std::vector<std::string> workers;
  std::vector<std::string> stores;
  OutputOptions output;
};

// Clocks further apart make the times of measurements of several hosts hard to compare.
constexpr std::int64_t kClockToleranceMs = 2'000;

// Words of DoctorCheck.status, from good to bad.
constexpr std::array kHealth = {"ok", "note", "fail"};
enum Health { kOk, kNote, kFailure };

// What is found out about one thing goes into the answer, the worst first.
class Findings {
 public:
  Findings(std::string check, std::string subject, v1::DoctorAnswer& answer)
      : check_(std::move(check)), subject_(std::move(subject)), answer_(answer) {}
  ~Findings() {
    for (const Health health : {kFailure, kNote, kOk}) {
      for (const auto& [of, what, remedy] : found_) {
        if (of != health) continue;
        v1::DoctorCheck& check = *answer_.add_checks();
        check.set_check(check_);
        check.set_subject(subject_);
        check.set_status(kHealth[health]);
        check.set_message(what);
        check.set_remedy(remedy);
        if (of == kFailure) answer_.set_healthy(false);
      }
    }
  }

  void Add(Health health, std::string what, std::string remedy = "") {
    found_.push_back({health, std::move(what), std::move(remedy)});
  }

 private:
  std::string check_;
  std::string subject_;
  v1::DoctorAnswer& answer_;
  std::vector<std::tuple<Health, std::string, std::string>> found_;
};

void CheckVersion(const std::string& version, const std::string& commit, Findings& findings) {
  if (version.empty()) {
    findings.Add(kNote, "does not say its version: it is older than this program",
                 "update it, or use the `neuroshard` that came with it");
  } else if (version != BuildVersion()) {
    findings.Add(
        kFailure,
        fmt::format("is of version {} ({}), this program of {}", version, commit, BuildText()),
        "use programs of one version");
  } else if (commit != BuildGitCommit()) {
    findings.Add(kNote,
                 fmt::format("was built from {}, this program from {}", commit, BuildGitCommit()));
  }
}

// `asked_ms` and `answered_ms` are this host's clock before and after the call.
void CheckClock(std::int64_t now_ms, std::int64_t asked_ms, std::int64_t answered_ms,
                Findings& findings) {
  if (now_ms == 0) return;
  const std::int64_t ahead_ms = now_ms > answered_ms ? now_ms - answered_ms
                                : now_ms < asked_ms  ? now_ms - asked_ms
                                                     : 0;
  if (std::abs(ahead_ms) <= kClockToleranceMs) return;
  findings.Add(kFailure,
               fmt::format("its clock is {:.1f} s {} this host's",
                           static_cast<double>(std::abs(ahead_ms)) / 1000,
                           ahead_ms > 0 ? "ahead of" : "behind"),
               "synchronise the clocks (NTP): measurements and models carry their times");
}

// A certificate that a week is left of is told before it has ended.
void CheckEnd(std::int64_t ends_unix_s, Findings& findings) {
  constexpr std::int64_t kWeekS = 7 * 86'400;
  if (ends_unix_s - UnixMillisecondsNow() / 1000 > kWeekS) return;
  findings.Add(kNote, "its certificate ends at " + DateOf(ends_unix_s), "renew it");
}

// That of a server which answered, of each in a list.
void CheckCertificates(const std::string& addresses, const CallPolicy& policy, Findings& findings) {
  if (!policy.tls.has_value()) return;
  for (const std::string_view one : SplitText(addresses, ',')) {
    const ShownCertificate shown = CertificateOf(std::string(one), *policy.tls);
    if (shown.ends_unix_s != 0) CheckEnd(shown.ends_unix_s, findings);
  }
}

// What mends a failed call to a server that `start` starts.
std::string Remedy(const Status& status, const std::string& reason, const std::string& start) {
  const auto has = [&](std::string_view part) { return reason.find(part) != std::string::npos; };
  if (has("--tls-ca")) {
    return "name who vouches for it with --tls-ca FILE.pem or NEUROSHARD_TLS_CA, and your own "
           "certificate with --tls-cert and --tls-key";
  }
  if (has("certificate of")) return "renew it, or name its authority with --tls-ca";
  if (absl::IsPermissionDenied(status)) return "ask for the role (tls.roles of its configuration)";
  if (absl::IsDeadlineExceeded(status)) return "it is there and does not answer: see its log";
  return absl::IsUnavailable(status) ? start : "";
}

// Whether a call that changes nothing is refused for want of a role.
void CheckRole(const Status& called, const std::string& what, Findings& findings) {
  if (!absl::IsPermissionDenied(called)) return;
  findings.Add(kNote, "this caller may look, but not " + what,
               "ask for the role (tls.roles of its configuration)");
}

// Reachable, of this program's version, its clock, cost models refused and missing.
void CheckPlanner(const std::string& address, const CallPolicy& policy, v1::DoctorAnswer& answer) {
  Findings findings("planner", address, answer);
  const std::int64_t asked_ms = UnixMillisecondsNow();
  const auto models = PlannerClient(address, policy).ListCostModels();
  const std::int64_t answered_ms = UnixMillisecondsNow();
  if (!models.ok()) {
    const std::string reason = MessageWithoutServer(models.status());
    findings.Add(
        kFailure, reason,
        Remedy(models.status(), reason,
               "start one (neuroshard-planner --models ROOT), or name its address with --planner"));
    return;
  }
  CheckVersion(models->server_version(), models->server_git_commit(), findings);
  CheckClock(models->now_unix_ms(), asked_ms, answered_ms, findings);
  CheckCertificates(address, policy, findings);
  if (policy.tls) {
    CheckRole(PlannerClient(address, policy).PredictCompute({}).status(), "ask for plans",
              findings);
  }
  std::set<std::string> measured;
  std::string standing_in;
  for (const v1::CostModelSummary& model : models->models()) {
    if (model.kind() != "analytic") measured.insert(model.name());
    if (model.is_default()) standing_in = fmt::format("{}/{}", model.name(), model.version());
  }
  for (const v1::RefusedCostModel& refused : models->refused()) {
    findings.Add(kFailure,
                 fmt::format("refuses the model {}: {}", refused.path(), refused.reason()),
                 "mend or remove that directory");
  }
  if (measured.empty()) {
    findings.Add(kNote, "has no measured cost model: every plan is priced by formulas",
                 "measure and train one (README.md, Operating it), or start it with --models");
  } else if (standing_in.empty()) {
    findings.Add(kNote,
                 fmt::format("has no default among {}: requests have to name a cost model",
                             fmt::join(measured, ", ")),
                 "set models.default in its configuration");
  }
  findings.Add(kOk, fmt::format("answers; {} cost models{}", models->models_size(),
                                standing_in.empty() ? "" : ", default " + standing_in));
}

// One worker: reachable, of this program's version, its clock, devices and what holds them. Kernels
// and collectives of its devices go to `kernels` and `collectives`.
void CheckWorker(const std::string& address, const CallPolicy& policy,
                 std::set<std::string>& kernels, std::set<std::string>& collectives,
                 v1::DoctorAnswer& answer) {
  Findings findings("worker", address, answer);
  const std::int64_t asked_ms = UnixMillisecondsNow();
  const auto worker = WorkerClient(address, policy).GetWorkerInfo();
  const std::int64_t answered_ms = UnixMillisecondsNow();
  if (!worker.ok()) {
    const std::string reason = MessageWithoutServer(worker.status());
    findings.Add(
        kFailure, reason,
        Remedy(worker.status(), reason, "start one there (neuroshard-worker --listen HOST:PORT)"));
    return;
  }
  CheckVersion(worker->version(), worker->git_commit(), findings);
  CheckClock(worker->now_unix_ms(), asked_ms, answered_ms, findings);
  CheckCertificates(address, policy, findings);
  if (policy.tls) {
    CheckRole(WorkerClient(address, policy).CloseCommGroup({"doctor", "", {}}), "measure",
              findings);
  }
  for (const v1::WorkerDevice& device : worker->devices()) {
    kernels.insert(device.backend());
    collectives.insert(device.collective_backend());
    if (device.running_job().empty()) continue;
    findings.Add(kNote, fmt::format("device {} is held: {}", device.index(), device.running_job()),
                 "a sweep waits for it; wait, or stop what holds it");
  }
  if (worker->devices().empty()) {
    findings.Add(kFailure, "has no devices", "see its log");
  } else {
    findings.Add(kOk, fmt::format("answers; {} devices ({}, {})", worker->devices_size(),
                                  worker->devices(0).name(), worker->devices(0).backend()));
  }
}

// Each of them, and all together: kernels and collectives that a sweep could not use together.
void CheckWorkers(const std::vector<std::string>& addresses, const CallPolicy& policy,
                  v1::DoctorAnswer& answer) {
  std::set<std::string> kernels;
  std::set<std::string> collectives;
  for (const std::string& address : addresses) {
    CheckWorker(address, policy, kernels, collectives, answer);
  }
  for (const auto& [what, names] : {std::pair{"kernels", kernels}, {"collectives", collectives}}) {
    if (names.size() < 2) continue;
    Findings("worker", fmt::format("{}", fmt::join(addresses, ",")), answer)
        .Add(kFailure, fmt::format("they differ in their {}: {}", what, fmt::join(names, ", ")),
             "measure with workers of one kind at a time");
  }
}

// When they end: a note within a week. Nothing without TLS.
void CheckTls(const TlsFiles& files, v1::DoctorAnswer& answer) {
  if (files.ca.empty()) return;
  Findings findings("tls", files.certificate, answer);
  const auto end = files.EndUnixS();
  if (!end.ok()) {
    findings.Add(kFailure, Message(end.status()));
    return;
  }
  CheckEnd(*end, findings);
  findings.Add(kOk, "can be used until " + DateOf(*end));
}

// Exists, is a profile store of a version that this program knows, is whole, and has all samples of
// its sweeps.
void CheckStore(const std::string& path, v1::DoctorAnswer& answer) {
  Findings findings("store", path, answer);
  const auto store = ProfileStore::Open(path, StoreMode::kReadOnly);
  if (!store.ok()) {
    findings.Add(kFailure, Message(store.status()),
                 absl::IsNotFound(store.status())
                     ? "a sweep makes it (neuroshard sweep ... --store FILE.db)"
                     : "name a store that a sweep of this program wrote");
    return;
  }
  if (const Status whole = (*store)->CheckIntegrity(); !whole.ok()) {
    findings.Add(kFailure, Message(whole), "measure again into a new store");
    return;
  }
  const auto sweeps = (*store)->Statistics();
  if (!sweeps.ok()) {
    findings.Add(kFailure, Message(sweeps.status()));
    return;
  }
  std::int64_t measured = 0;
  for (const SweepStatistics& sweep : *sweeps) {
    measured += sweep.ok + sweep.out_of_memory;
    if (sweep.pending() == 0) continue;
    findings.Add(kNote,
                 fmt::format("the sweep \"{}\" lacks {} of {} samples", sweep.name, sweep.pending(),
                             sweep.samples),
                 "its command again resumes it");
  }
  if (measured == 0) {
    findings.Add(kNote, "has no measurements yet", "neuroshard sweep measures");
  }
  findings.Add(kOk,
               fmt::format("is whole; {} sweeps, {} measured samples", sweeps->size(), measured));
}

// Whether the servers' default ports are free on this host. A taken one is a note.
void CheckPorts(v1::DoctorAnswer& answer) {
  constexpr const char* kListen = "one more on this host needs --listen with a port of its own";
  constexpr const char* kMetrics = "";  // a server takes another port by itself
  const struct {
    const char* address;
    const char* use;
    const char* remedy;
  } kDefaults[] = {{"127.0.0.1:50051", "a planner", kListen},
                   {"127.0.0.1:9464", "metrics of a planner", kMetrics},
                   {"127.0.0.1:50061", "a worker", kListen},
                   {"127.0.0.1:9465", "metrics of a worker", kMetrics}};
  for (const auto& [address, use, remedy] : kDefaults) {
    Violations taken;
    AddFaultIfTaken("", address, taken);
    Findings findings("port", address, answer);
    if (taken.empty()) {
      findings.Add(kOk, fmt::format("free for {}", use));
    } else {
      findings.Add(kNote, fmt::format("taken by {}, or by another program", use), remedy);
    }
  }
}

std::string AsTable(const v1::DoctorAnswer& answer, const TextStyle& style) {
  using Check = v1::DoctorCheck;
  const auto failed = [](const Check& of) { return of.status() == kHealth[kFailure]; };
  return TableOf<Check>()
      .Left("", [&](const Check& of) { return failed(of) ? "FAIL" : of.status(); })
      .Left("check", &Check::check)
      .Left("of", &Check::subject)
      .Left("found",
            [](const Check& of) {
              return of.message() + (of.remedy().empty() ? "" : " -> " + of.remedy());
            })
      .Marked([&](const Check& of) {
        return failed(of) ? TextTable::Mark::kRed : TextTable::Mark::kNone;
      })
      .ToString(answer.checks(), style);
}

StatusOr<int> RunDoctor(const DoctorOptions& options, const Console& console) {
  CallPolicy policy = options.planner.policy(console.err);
  policy.max_attempts = 1;  // a server that is hard to reach is what a person wants to hear of
  v1::DoctorAnswer answer;
  answer.set_healthy(true);
  CheckPlanner(options.planner.address, policy, answer);
  CheckWorkers(options.workers, policy, answer);
  CheckTls(options.planner.tls, answer);
  for (const std::string& store : options.stores) CheckStore(store, answer);
  CheckPorts(answer);
  const int written = WriteAnswer(console, options.output, answer, AsTable);
  return answer.healthy() ? written : kExitFailure;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Check planner, workers, stores and ports, and say what to do; exit 1 on a failure");
  AddPlannerOptions(*command, options->planner);
  AddWorkersOption(*command, options->workers)->required(false);
  command->add_option("--store", options->stores, "Profile stores, comma-separated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("FILE.db,...")
      ->envname("NEUROSHARD_STORE");
  AddFormatOption(*command, options->output);
  AddWideOption(*command, options->output);
  WhenChosen(*command, options, RunDoctor, console, exit_code);
}

}  // namespace neuroshard

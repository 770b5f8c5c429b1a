#include "client/cli/health_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "client/stub/channel.h"
#include "client/stub/planner_client.h"
#include "client/stub/worker_client.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/base/violations.h"
#include "common/observe/listen_address.h"
#include "common/rpc/tls_files.h"
#include "common/store/profile_store.h"

namespace neuroshard {
namespace {

// Clocks further apart make the times of measurements of several hosts hard to compare.
constexpr std::int64_t kClockToleranceMs = 2'000;

// Findings about one thing.
class Findings {
 public:
  Findings(std::string check, std::string subject)
      : check_(std::move(check)), subject_(std::move(subject)) {}

  void Add(Health health, std::string what, std::string remedy = "") {
    findings_.push_back({check_, subject_, health, std::move(what), std::move(remedy)});
  }

  std::vector<Finding> Sorted() && {
    std::stable_sort(findings_.begin(), findings_.end(),
                     [](const Finding& a, const Finding& b) { return a.health > b.health; });
    return std::move(findings_);
  }

 private:
  std::string check_;
  std::string subject_;
  std::vector<Finding> findings_;
};

void CheckVersion(const std::string& version, const std::string& commit, Findings& findings) {
  if (version.empty()) {
    findings.Add(Health::kNote, "does not say its version: it is older than this program",
                 "update it, or use the `neuroshard` that came with it");
  } else if (version != BuildVersion()) {
    findings.Add(
        Health::kFailure,
        fmt::format("is of version {} ({}), this program of {}", version, commit, BuildText()),
        "use programs of one version");
  } else if (commit != BuildGitCommit()) {
    findings.Add(Health::kNote,
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
  findings.Add(Health::kFailure,
               fmt::format("its clock is {:.1f} s {} this host's",
                           static_cast<double>(std::abs(ahead_ms)) / 1000,
                           ahead_ms > 0 ? "ahead of" : "behind"),
               "synchronise the clocks (NTP): measurements and models carry their times");
}

// A certificate that a week is left of is told before it has ended.
void CheckEnd(std::int64_t ends_unix_s, Findings& findings) {
  constexpr std::int64_t kWeekS = 7 * 86'400;
  if (ends_unix_s - UnixMillisecondsNow() / 1000 > kWeekS) return;
  findings.Add(Health::kNote, "its certificate ends at " + DateOf(ends_unix_s), "renew it");
}

// That of a server which answered, of each in a list.
void CheckCertificates(const std::string& addresses, const CallPolicy& policy, Findings& findings) {
  if (!policy.tls.has_value()) return;
  std::stringstream list(addresses);
  for (std::string one; std::getline(list, one, ',');) {
    const ShownCertificate shown = CertificateOf(one, *policy.tls);
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
  findings.Add(Health::kNote, "this caller may look, but not " + what,
               "ask for the role (tls.roles of its configuration)");
}

std::string Reason(const Status& status, const std::string& role, const std::string& address) {
  const std::string prefix = fmt::format("{} at {}: ", role, address);
  std::string reason = Message(status);
  if (reason.starts_with(prefix)) reason.erase(0, prefix.size());
  return reason;
}

}  // namespace

std::vector<Finding> CheckPlanner(const std::string& address, const CallPolicy& policy) {
  Findings findings("planner", address);
  const std::int64_t asked_ms = UnixMillisecondsNow();
  const auto models = PlannerClient(address, policy).ListCostModels();
  const std::int64_t answered_ms = UnixMillisecondsNow();
  if (!models.ok()) {
    const std::string reason = Reason(models.status(), "planner", address);
    findings.Add(
        Health::kFailure, reason,
        Remedy(models.status(), reason,
               "start one (neuroshard-planner --models ROOT), or name its address with --planner"));
    return std::move(findings).Sorted();
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
    findings.Add(Health::kFailure,
                 fmt::format("refuses the model {}: {}", refused.path(), refused.reason()),
                 "mend or remove that directory");
  }
  if (measured.empty()) {
    findings.Add(Health::kNote, "has no measured cost model: every plan is priced by formulas",
                 "measure and train one (README.md, Operating it), or start it with --models");
  } else if (standing_in.empty()) {
    findings.Add(Health::kNote,
                 fmt::format("has no default among {}: requests have to name a cost model",
                             fmt::join(measured, ", ")),
                 "set models.default in its configuration");
  }
  findings.Add(Health::kOk, fmt::format("answers; {} cost models{}", models->models_size(),
                                        standing_in.empty() ? "" : ", default " + standing_in));
  return std::move(findings).Sorted();
}

std::vector<Finding> CheckWorkers(const std::vector<std::string>& addresses,
                                  const CallPolicy& policy) {
  std::vector<Finding> all;
  std::set<std::string> kernels;
  std::set<std::string> collectives;
  for (const std::string& address : addresses) {
    Findings findings("worker", address);
    const std::int64_t asked_ms = UnixMillisecondsNow();
    const auto worker = WorkerClient(address, policy).GetWorkerInfo();
    const std::int64_t answered_ms = UnixMillisecondsNow();
    if (!worker.ok()) {
      const std::string reason = Reason(worker.status(), "worker", address);
      findings.Add(Health::kFailure, reason,
                   Remedy(worker.status(), reason,
                          "start one there (neuroshard-worker --listen HOST:PORT)"));
    } else {
      CheckVersion(worker->version, worker->git_commit, findings);
      CheckClock(worker->now_unix_ms, asked_ms, answered_ms, findings);
      CheckCertificates(address, policy, findings);
      if (policy.tls) {
        CheckRole(WorkerClient(address, policy).CloseCommGroup({"doctor", "", {}}), "measure",
                  findings);
      }
      for (const WorkerDeviceDescription& device : worker->devices) {
        kernels.insert(device.backend);
        collectives.insert(device.collective_backend);
        if (device.running_job.empty()) continue;
        findings.Add(Health::kNote,
                     fmt::format("device {} is held: {}", device.index, device.running_job),
                     "a sweep waits for it; wait, or stop what holds it");
      }
      if (worker->devices.empty()) {
        findings.Add(Health::kFailure, "has no devices", "see its log");
      } else {
        findings.Add(Health::kOk,
                     fmt::format("answers; {} devices ({}, {})", worker->devices.size(),
                                 worker->devices.front().name, worker->devices.front().backend));
      }
    }
    std::vector<Finding> sorted = std::move(findings).Sorted();
    all.insert(all.end(), sorted.begin(), sorted.end());
  }
  for (const auto& [what, names] : {std::pair{"kernels", kernels}, {"collectives", collectives}}) {
    if (names.size() < 2) continue;
    all.push_back({"worker", fmt::format("{}", fmt::join(addresses, ",")), Health::kFailure,
                   fmt::format("they differ in their {}: {}", what, fmt::join(names, ", ")),
                   "measure with workers of one kind at a time"});
  }
  return all;
}

std::vector<Finding> CheckTls(const TlsFiles& files) {
  if (files.ca.empty()) return {};
  Findings findings("tls", files.certificate);
  const auto end = files.EndUnixS();
  if (!end.ok()) {
    findings.Add(Health::kFailure, Message(end.status()));
    return std::move(findings).Sorted();
  }
  CheckEnd(*end, findings);
  findings.Add(Health::kOk, "can be used until " + DateOf(*end));
  return std::move(findings).Sorted();
}

std::vector<Finding> CheckStore(const std::string& path) {
  Findings findings("store", path);
  const auto store = ProfileStore::Open(path, StoreMode::kReadOnly);
  if (!store.ok()) {
    findings.Add(Health::kFailure, Message(store.status()),
                 absl::IsNotFound(store.status())
                     ? "a sweep makes it (neuroshard sweep ... --store FILE.db)"
                     : "name a store that a sweep of this program wrote");
    return std::move(findings).Sorted();
  }
  if (const Status whole = (*store)->CheckIntegrity(); !whole.ok()) {
    findings.Add(Health::kFailure, Message(whole), "measure again into a new store");
    return std::move(findings).Sorted();
  }
  const auto sweeps = (*store)->Statistics();
  if (!sweeps.ok()) {
    findings.Add(Health::kFailure, Message(sweeps.status()));
    return std::move(findings).Sorted();
  }
  std::int64_t measured = 0;
  for (const SweepStatistics& sweep : *sweeps) {
    measured += sweep.ok + sweep.out_of_memory;
    if (sweep.pending() == 0) continue;
    findings.Add(Health::kNote,
                 fmt::format("the sweep \"{}\" lacks {} of {} samples", sweep.name, sweep.pending(),
                             sweep.samples),
                 "its command again resumes it");
  }
  if (measured == 0) {
    findings.Add(Health::kNote, "has no measurements yet", "neuroshard sweep measures");
  }
  findings.Add(Health::kOk,
               fmt::format("is whole; {} sweeps, {} measured samples", sweeps->size(), measured));
  return std::move(findings).Sorted();
}

std::vector<Finding> CheckPorts() {
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
  std::vector<Finding> all;
  for (const auto& [address, use, remedy] : kDefaults) {
    Violations taken;
    AddFaultIfTaken("", address, taken);
    if (taken.empty()) {
      all.push_back({"port", address, Health::kOk, fmt::format("free for {}", use), ""});
    } else {
      all.push_back({"port", address, Health::kNote,
                     fmt::format("taken by {}, or by another program", use), remedy});
    }
  }
  return all;
}

}  // namespace neuroshard

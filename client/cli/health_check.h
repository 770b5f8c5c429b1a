// What `neuroshard doctor` finds out: whether servers, stores and ports are as a person would want
// them, and what to do where they are not.
#pragma once

#include <string>
#include <vector>

#include "client/cli/tls_options.h"
#include "client/stub/call_policy.h"

namespace neuroshard {

// kNote: nothing is wrong, but somebody may want to know.
enum class Health { kOk, kNote, kFailure };

struct Finding {
  std::string check;    // "planner", "worker", "tls", "store", "port"
  std::string subject;  // its address or path
  Health health = Health::kOk;
  std::string what;
  std::string remedy;  // empty: nothing is to be done
};

// Each asks or opens one thing, changes nothing and returns at least one finding, the worst first.

// Reachable, of this program's version, its clock, cost models refused and missing.
std::vector<Finding> CheckPlanner(const std::string& address, const CallPolicy& policy);

// Each worker: reachable, of this program's version, its clock, devices and what holds them. All of
// them together: kernels and collectives that a sweep could not use together.
std::vector<Finding> CheckWorkers(const std::vector<std::string>& addresses,
                                  const CallPolicy& policy);

// Exists, is a profile store of a version that this program knows, is whole, and has all samples of
// its sweeps.
std::vector<Finding> CheckStore(const std::string& path);

// When they end: a note within a week. Nothing without TLS.
std::vector<Finding> CheckTls(const TlsFiles& files);

// Whether the servers' default ports are free on this host. A taken one is a note.
std::vector<Finding> CheckPorts();

}  // namespace neuroshard

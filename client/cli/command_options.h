// Options that several commands have: of the answer's form, and of the servers that they call.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/cli/console.h"
#include "client/stub/planner_client.h"
#include "common/base/status.h"
#include "neuroshard/v1/planner.pb.h"

namespace neuroshard {

// What an option is stored in must outlive the parse.

// When the command is chosen, *exit_code becomes what `run` gives; a failure is reported, and is
// kExitFailure.
template <typename Options>
void WhenChosen(CLI::App& command, const std::shared_ptr<Options>& options,
                StatusOr<int> (*run)(const Options&, const Console&), const Console& console,
                int* exit_code) {
  command.callback([options, run, &console, exit_code] {
    const StatusOr<int> code = run(*options, console);
    *exit_code = code.ok() ? *code : ReportFailure(console, code.status());
  });
}

// --format: "table" unless the command line says "json".
void AddFormatOption(CLI::App& command, OutputOptions& output,
                     const std::string& description = "Form of the answer");

// --wide.
void AddWideOption(CLI::App& command, OutputOptions& output);

// The files of a client's side of TLS, in PEM. All empty: the connection is plaintext.
struct TlsFiles {
  std::string ca;           // whose servers are trusted
  std::string certificate;  // the caller's
  std::string key;
  std::string server_name;  // not a file: what servers' certificates name, if not their address

  // Their contents; nothing where none is stated. A usage error (throws CLI::ValidationError) where
  // the servers would refuse them without a word.
  std::optional<ClientTls> Read() const;
  // The time until which the files can be used, or why they cannot.
  StatusOr<std::int64_t> EndUnixS() const;
};

// Adds the options of TLS, where the command does not have them already: one set is for every
// server that it calls. A file that cannot be used (expired, another certificate's key), or one or
// two of three, is a usage error.
void AddTlsOptions(CLI::App& command, TlsFiles& files);

inline constexpr char kDefaultPlanner[] = "127.0.0.1:50051";

// Address of a planner and the limits of a call to it.
struct PlannerOptions {
  std::string address = kDefaultPlanner;
  int timeout_s = 600;  // a search may take long; commands that only look something up set less
  TlsFiles tls = {};

  // Long waits, as for a quota, are told on `log`, which must outlive the policy.
  CallPolicy policy(std::ostream& log) const;
  PlannerClient Client(std::ostream& log) const { return PlannerClient(address, policy(log)); }
};

// The fault of a NAME[/VERSION]; empty: none. For CLI::Option::check.
std::string CheckModelReference(const std::string& text);

// --model NAME[/VERSION]; a usage error when it is not that. `model` is empty when it is not given.
CLI::Option* AddModelOption(CLI::App& command, std::string& model, const std::string& description);

// Puts --model, unless it is empty, in place of the request's model; the version that serves
// where it names none. Models of devices stay.
void OverrideModel(const std::string& model, v1::ShardPlanRequest& request);

// Asks for the very models that priced an answer: that of the whole, and those of devices.
void AskForModelsOf(const v1::CostModelRef& model, const v1::PriceBasis& basis,
                    v1::ShardPlanRequest& request);

// --planner, --timeout-s and those of AddTlsOptions.
void AddPlannerOptions(CLI::App& command, PlannerOptions& options);

// Empty when `text` is HOST:PORT with a port in [1, 65535] ("[::1]:50051" for IPv6); otherwise what
// is wrong. For CLI::Option::check.
std::string CheckAddress(const std::string& text);

// Why `text` is no address of replicas, HOST:PORT,HOST:PORT,...; empty where it is one.
std::string CheckReplicaAddress(const std::string& text);

// What a server says of a failed call, without the name and address that CallStatus begins with.
std::string MessageWithoutServer(const Status& status);

// --workers: a list of HOST:PORT, required.
CLI::Option* AddWorkersOption(CLI::App& command, std::vector<std::string>& workers);

// A usage error (throws CLI::ValidationError) when an address is listed twice: its devices would be
// used as if there were twice as many.
void CheckDistinctWorkers(const std::vector<std::string>& workers);

}  // namespace neuroshard

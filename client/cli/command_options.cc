#include "client/cli/command_options.h"

#include <algorithm>
#include <chrono>
#include <ostream>
#include <set>
#include <string_view>

#include "common/base/number_text.h"
#include "common/base/text_lines.h"
#include "common/cli/option_values.h"
#include "common/codec/text_file.h"
#include "common/rpc/tls_files.h"

namespace neuroshard {
namespace {

std::string Contents(const std::string& path) { return ReadTextFile(path).value_or(""); }

// The fault of a file; empty: none.
std::string CheckPem(const std::string& path) {
  const auto text = ReadTextFile(path);
  if (!text.ok()) return Message(text.status());
  return text->find("-----BEGIN ") == std::string::npos ? path + " is not in PEM" : "";
}

}  // namespace

void AddFormatOption(CLI::App& command, OutputOptions& output, const std::string& description) {
  command.add_option("--format", output.format, description)
      ->check(OneOf({"table", "json"}))
      ->capture_default_str();
}

void AddWideOption(CLI::App& command, OutputOptions& output) {
  command.add_flag_callback(
      "--wide", [&output] { output.detail = Detail::kWide; },
      "All columns of the table, and lines as long as they get");
}

std::optional<ClientTls> TlsFiles::Read() const {
  if (ca.empty()) return std::nullopt;
  if (const Status usable = ReadTlsMaterial({certificate, key, ca}, TlsSide::kClient).status();
      !usable.ok()) {
    throw CLI::ValidationError(Message(usable));
  }
  return ClientTls{Contents(ca), Contents(certificate), Contents(key), server_name};
}

StatusOr<std::int64_t> TlsFiles::EndUnixS() const {
  NS_ASSIGN_OR_RETURN(const TlsMaterial material,
                      ReadTlsMaterial({certificate, key, ca}, TlsSide::kClient));
  return std::min(material.certificate_ends_unix_s, material.client_ca_ends_unix_s);
}

void AddTlsOptions(CLI::App& command, TlsFiles& files) {
  if (command.get_option_no_throw("--tls-ca") != nullptr) return;
  const auto add = [&command](const char* name, std::string& path, const char* what,
                              const char* variable) {
    return command.add_option(name, path, what)
        ->type_name("FILE.pem")
        ->check(CheckPem)
        ->envname(variable);
  };
  CLI::Option* const ca = add("--tls-ca", files.ca, "TLS: certificate of who the servers' are from",
                              "NEUROSHARD_TLS_CA");
  CLI::Option* const certificate =
      add("--tls-cert", files.certificate, "TLS: certificate to show to servers",
          "NEUROSHARD_TLS_CERT");
  CLI::Option* const key =
      add("--tls-key", files.key, "TLS: key of that certificate", "NEUROSHARD_TLS_KEY");
  ca->needs(certificate)->needs(key);
  certificate->needs(ca)->needs(key);
  key->needs(ca)->needs(certificate);
  command
      .add_option("--tls-server-name", files.server_name,
                  "TLS: what servers' certificates name; default: the address that is called")
      ->type_name("NAME")
      ->envname("NEUROSHARD_TLS_SERVER_NAME")
      ->needs(ca);
}

std::string CheckAddress(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  const std::string fault = fmt::format("must be HOST:PORT, got \"{}\"", text);
  if (colon == std::string::npos || colon == 0) return fault;
  if (text.find_first_of(" \t\r\n") != std::string::npos) return fault;
  const bool bracketed = text.front() == '[' && text[colon - 1] == ']';
  if (!bracketed && text.find(':') != colon) return fault;
  const int port = NumberOf<int>(std::string_view(text).substr(colon + 1)).value_or(0);
  return port < 1 || port > 65'535 ? fault : "";
}

std::string CheckReplicaAddress(const std::string& text) {
  if (text.starts_with("unix:/")) return "";
  for (const std::string_view address : SplitText(text, ',')) {
    if (std::string fault = CheckAddress(std::string(address)); !fault.empty()) return fault;
  }
  return "";
}

std::string MessageWithoutServer(const Status& status) {
  std::string message = Message(status);
  const bool has_address = message.starts_with("planner at ") || message.starts_with("worker at ");
  const std::size_t end = message.find(": ");
  return has_address && end != std::string::npos ? message.substr(end + 2) : message;
}

CallPolicy PlannerOptions::policy(std::ostream& log) const {
  CallPolicy policy;
  policy.tls = tls.Read();
  policy.deadline = std::chrono::seconds(timeout_s);
  policy.on_wait = [&log](const Status& why, std::chrono::milliseconds wait) {
    log << fmt::format("{}; trying again in {:.0f} s\n", Message(why),
                       static_cast<double>(wait.count()) / 1000)
        << std::flush;
  };
  return policy;
}

void OverrideModel(const std::string& model, v1::ShardPlanRequest& request) {
  if (model.empty()) return;
  *request.mutable_cost_model() = EncodeModelReference(*ParseModelReference(model));
}

void AskForModelsOf(const v1::CostModelRef& model, const v1::PriceBasis& basis,
                    v1::ShardPlanRequest& request) {
  *request.mutable_cost_model() = model;
  request.clear_device_cost_models();
  for (const v1::DevicePriceBasis& of : basis.devices()) {
    if (of.device().empty()) continue;  // have that of the whole
    v1::DeviceCostModel& entry = *request.add_device_cost_models();
    entry.set_device(of.device());
    entry.mutable_cost_model()->set_name(of.model());
    entry.mutable_cost_model()->set_version(of.version());
  }
}

std::string CheckModelReference(const std::string& text) {
  const auto parsed = ParseModelReference(text);
  return parsed.ok() ? std::string() : Message(parsed.status());
}

CLI::Option* AddModelOption(CLI::App& command, std::string& model, const std::string& description) {
  return command.add_option("--model", model, description)
      ->type_name("NAME[/VERSION]")
      ->check(CheckModelReference);
}

void AddPlannerOptions(CLI::App& command, PlannerOptions& options) {
  command
      .add_option("--planner", options.address,
                  "Planner to ask: HOST:PORT, or replicas: HOST:PORT,HOST:PORT,... or a name of "
                  "several addresses, or unix:/PATH")
      ->type_name("HOST:PORT")
      ->check(CheckReplicaAddress)
      ->capture_default_str()
      ->envname("NEUROSHARD_PLANNER");
  InRange(command.add_option("--timeout-s", options.timeout_s,
                             "Give up on an answer after so many seconds"),
          1, 86'400)
      ->capture_default_str();
  AddTlsOptions(command, options.tls);
}

CLI::Option* AddWorkersOption(CLI::App& command, std::vector<std::string>& workers) {
  return command.add_option("--workers", workers, "Workers to measure on, comma-separated")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("HOST:PORT,...")
      ->transform([](std::string text) { return CLI::detail::trim(text); })
      ->check(CheckAddress)
      ->envname("NEUROSHARD_WORKERS");
}

void CheckDistinctWorkers(const std::vector<std::string>& workers) {
  std::set<std::string> seen;
  for (const std::string& address : workers) {
    if (!seen.insert(address).second)
      throw CLI::ValidationError("--workers", address + " is listed more than once");
  }
}

}  // namespace neuroshard

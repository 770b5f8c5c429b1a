#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/request_template.h"
#include "common/base/in_file.h"
#include "common/cli/option_values.h"
#include "common/codec/text_file.h"
#include "common/devices/device_table.h"

namespace neuroshard {
namespace {

struct InitOptions {
  std::string tables_file;
  RequestTemplate request;
  std::string out_file;
};

int RunInit(const InitOptions& options, const Console& console) {
  // What somebody has edited is not written over.
  if (!options.out_file.empty() && options.out_file != "-" &&
      std::filesystem::exists(options.out_file)) {
    return ReportFailure(console, FailedPrecondition("{} exists already", options.out_file));
  }
  RequestTemplate request = options.request;
  if (!options.tables_file.empty()) {
    const auto text = ReadTextFile(options.tables_file);
    if (!text.ok()) return ReportFailure(console, text.status());
    auto tables = TablesAsYaml(*text, options.request.embedding_dim);
    if (!tables.ok()) {
      return ReportFailure(console, InFile(options.tables_file, tables.status()));
    }
    request.tables = *std::move(tables);
  }
  return WriteResult(console, options.out_file, RequestAsYaml(request));
}

}  // namespace

void AddInitCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App* command =
      app.add_subcommand("init", "Write a request with comments, to be filled in and planned");
  command
      ->add_option("--tables", options->tables_file,
                   "Tables to put in: a CSV of neuroshard-dataset-statistics, or a list in YAML or "
                   "JSON with a table's fields or TorchRec's (EmbeddingBagConfig); -: stdin")
      ->type_name("FILE");
  InRange(command->add_option("--embedding-dim", options->request.embedding_dim,
                              "Columns of tables whose file does not say"),
          std::int64_t{1}, std::int64_t{65'536})
      ->capture_default_str();
  InRange(command->add_option("--hosts", options->request.num_hosts, "Hosts"), 1, 16'384)
      ->capture_default_str();
  InRange(command->add_option("--devices", options->request.devices_per_host, "Devices of a host"),
          1, 16'384)
      ->capture_default_str();
  command
      ->add_option("--device", options->request.device,
                   "What the devices are, as `neuroshard devices` lists them: brings memory, "
                   "bandwidths and links")
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return FindDevice(name) == nullptr ? DescribeUnknownDevice(name) : "";
      });
  InRange(command->add_option("--memory-bytes", options->request.memory_bytes,
                              "Memory of a device; default: the named device's, else 80GiB"),
          std::int64_t{1}, std::int64_t{1} << 50);
  command->add_option("--out", options->out_file, "Write to this new file instead of stdout");
  command->callback([options, &console, exit_code] { *exit_code = RunInit(*options, console); });
}

}  // namespace neuroshard

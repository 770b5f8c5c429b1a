#include "worker/options/worker_options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/cli/command_line_parse.h"
#include "common/cli/exit_code.h"
#include "common/cli/option_values.h"
#include "common/observe/listen_address.h"
#include "common/text/config_reader.h"

namespace neuroshard {
namespace {

constexpr int kMaxCpuDevices = 1024;

void ReadCpuOptions(ConfigReader reader, CpuDevicesOptions* options) {
  reader.Read("devices", &options->count, {1, kMaxCpuDevices});
  reader.Read("memory_per_device_bytes", &options->memory_bytes, {0, std::int64_t{1} << 50});
  reader.Read("pin_threads", &options->pin_threads);
  reader.Read("first_core", &options->first_core, {0, 1 << 20});
}

void ReadNetworks(ConfigReader& collective, std::vector<IpNetwork>* networks) {
  std::vector<std::string> texts;
  collective.Read("networks", &texts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto network = IpNetwork::Parse(texts[i]);
    if (network.ok()) {
      networks->push_back(*network);
    } else {
      collective.AddViolation(fmt::format("networks[{}]", i), Message(network.status()));
    }
  }
}

// What could be read is in `options` even where there are faults.
Status ReadFile(const std::string& path, WorkerOptions& options) {
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(path));
  reader.ReadWord("backend", &options.backend);
  ReadRpcServerOptions(reader, &options.rpc);
  ReadListenAddress(reader, "metrics_listen", EmptyAddress::kMeansNone, &options.metrics_listen);
  options.metrics_stated = reader.Has("metrics_listen");
  ReadLogOptions(reader, &options.log);
  ReadCpuOptions(reader.Section("cpu"), &options.cpu);
  ConfigReader collective = reader.Section("collective");
  collective.Read("host", &options.collective.host);
  collective.Read("interface", &options.collective.interface);
  ReadNetworks(collective, &options.collective.networks);
  ConfigReader compute = reader.Section("compute");
  compute.Read("stream_idle_timeout_ms", &options.stream_idle_timeout_ms, {100, 3'600'000});
  return reader.Finish();
}

}  // namespace

StatusOr<WorkerOptions> ReadWorkerOptions(const std::string& path) {
  WorkerOptions options;
  NS_RETURN_IF_ERROR(ReadFile(path, options));
  return options;
}

Violations FaultsOfStart(const WorkerOptions& options) {
  Violations faults;
  AddFaultsOfStart(options.rpc, faults);
  if (options.metrics_stated) {
    AddFaultIfTaken("metrics_listen", options.metrics_listen, faults);
  }
  const CollectiveOptions& collective = options.collective;
  const auto local = FindLocalAddress(collective.host, collective.interface);
  if (!local.ok()) {
    faults.Add(collective.interface.empty() ? "collective.host" : "collective.interface",
               Message(local.status()));
  }
  return faults;
}

void LogOptionsInForce(const WorkerOptions& options, const Logger& logger) {
  WithOptions(options.rpc, logger)
      .Info("options", {{"metrics_listen", options.metrics_listen},
                        {"log_level", options.log.level},
                        {"log_format", ToText(options.log.format)},
                        {"backend", ToText(options.backend)},
                        {"cpu.devices", options.cpu.count},
                        {"cpu.memory_per_device_bytes", options.cpu.memory_bytes},
                        {"cpu.pin_threads", options.cpu.pin_threads},
                        {"cpu.first_core", options.cpu.first_core},
                        {"collective.host", options.collective.host},
                        {"collective.interface", options.collective.interface},
                        {"collective.networks", ToText(options.collective.networks)},
                        {"compute.stream_idle_timeout_ms", options.stream_idle_timeout_ms}});
}

WorkerCommand ParseWorkerCommandLine(
    int argc, const char* const* argv,
    const std::function<Status(const WorkerOptions&)>& try_devices) {
  CLI::App app("Measures embedding operators and collectives on this host's devices.",
               "neuroshard-worker");
  app.footer(kExitCodesText);
  ServerCommandLine line;
  std::optional<std::string> backend, collective_host;
  std::optional<int> cpu_devices;
  AddServerOptions(app, line);
  app.add_option("--backend", backend, "auto (default) is cuda where it can be used, else cpu")
      ->check(OneWordOf<WorkerBackend>());
  InRange(app.add_option("--cpu-devices", cpu_devices,
                         "Devices of the cpu backend, one core each; implies --backend cpu"),
          1, kMaxCpuDevices);
  app.add_option("--collective-host", collective_host,
                 "Address that the ranks of comm groups listen on and that other hosts can reach")
      ->type_name("HOST");
  if (const auto ended = ParseCommandLine(app, argc, argv, std::cout, std::cerr)) {
    return {.exit_code = *ended, .options = {}};
  }

  WorkerCommand command;
  WorkerOptions& options = command.options;
  const Status read = line.config.empty() ? absl::OkStatus() : ReadFile(line.config, options);
  if (backend.has_value()) options.backend = *FromText<WorkerBackend>(*backend);
  if (!line.listen.empty()) options.rpc.listen = line.listen;
  if (line.insecure) options.rpc.insecure = true;
  if (line.metrics) {
    options.metrics_listen = *line.metrics;
    options.metrics_stated = true;
  }
  options.config = ConfigAtStart(line);
  if (!line.log_level.empty()) options.log.level = line.log_level;
  if (!line.log_format.empty()) options.log.format = *FromText<LogFormat>(line.log_format);
  if (cpu_devices.has_value()) {
    options.cpu.count = *cpu_devices;
    if (!backend.has_value()) options.backend = WorkerBackend::kCpu;
  }
  if (collective_host.has_value()) options.collective.host = *collective_host;
  command.exit_code = CheckServerStart(app.get_name(), line, read, [&] {
    Violations faults = FaultsOfStart(options);
    const Status tried = read.ok() ? try_devices(options) : absl::OkStatus();
    if (!tried.ok()) faults.Add(std::string(ToText(options.backend)), Message(tried));
    return faults;
  });
  return command;
}

}  // namespace neuroshard

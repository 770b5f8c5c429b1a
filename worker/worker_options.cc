#include "worker/worker_options.h"

#include <CLI/CLI.hpp>
#include <iostream>

#include "common/base/build_info.h"
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

}  // namespace

StatusOr<WorkerOptions> ReadWorkerOptions(const std::string& path) {
  WorkerOptions options;
  NS_ASSIGN_OR_RETURN(ConfigReader reader, ConfigReader::FromFile(path));
  reader.ReadWord("backend", &options.backend);
  ReadRpcServerOptions(reader, &options.rpc);
  reader.Read("metrics_listen", &options.metrics_listen);
  ReadLogOptions(reader, &options.log);
  ReadCpuOptions(reader.Section("cpu"), &options.cpu);
  ConfigReader collective = reader.Section("collective");
  collective.Read("host", &options.collective.host);
  collective.Read("interface", &options.collective.interface);
  ReadNetworks(collective, &options.collective.networks);
  ConfigReader compute = reader.Section("compute");
  compute.Read("stream_idle_timeout_ms", &options.stream_idle_timeout_ms, {100, 3'600'000});
  NS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

std::string Describe(const WorkerOptions& options) {
  return fmt::format(
      "backend={} listen={} max_in_flight={} max_message_bytes={} "
      "accept_compressed={} max_streams_per_connection={} max_spare_threads={} "
      "max_connection_idle_ms={} max_connection_age_ms={} drain_notice_ms={} "
      "drain_grace_ms={} metrics_listen={} log_level={} cpu.devices={} "
      "cpu.memory_per_device_bytes={} "
      "cpu.pin_threads={} cpu.first_core={} collective.host={} collective.interface={} "
      "collective.networks=[{}] "
      "compute.stream_idle_timeout_ms={}",
      ToText(options.backend), options.rpc.listen, options.rpc.max_in_flight,
      options.rpc.max_message_bytes, options.rpc.accept_compressed,
      options.rpc.max_streams_per_connection, options.rpc.max_spare_threads,
      options.rpc.max_connection_idle_ms, options.rpc.max_connection_age_ms,
      options.rpc.drain_notice_ms, options.rpc.drain_grace_ms, options.metrics_listen,
      options.log.level, options.cpu.count, options.cpu.memory_bytes, options.cpu.pin_threads,
      options.cpu.first_core, options.collective.host, options.collective.interface,
      ToText(options.collective.networks), options.stream_idle_timeout_ms);
}

WorkerCommand ParseWorkerCommandLine(int argc, const char* const* argv) {
  CLI::App app("Measures embedding operators and collectives on this host's devices.",
               "neuroshard-worker");
  std::optional<std::string> config, backend, listen, metrics, collective_host;
  std::optional<int> cpu_devices;
  app.add_option("--config", config, "YAML file (configs/worker.yaml lists every option)");
  app.add_option("--backend", backend, "cpu, cuda, or auto (default): cuda where it can be used")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}));
  app.add_option("--listen", listen, "HOST:PORT of the RPC server; port 0: choose and print");
  app.add_option("--metrics", metrics, "HOST:PORT of http /metrics; port 0: choose");
  app.add_option("--cpu-devices", cpu_devices,
                 "devices of the cpu backend, one core each; implies --backend cpu")
      ->check(CLI::Range(1, kMaxCpuDevices));
  app.add_option("--collective-host", collective_host,
                 "address that the ranks of comm groups listen on and that other hosts can reach");
  app.set_version_flag("--version", BuildText());
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11's own codes are above 100.
    return {.exit_code = app.exit(error) == 0 ? 0 : 2, .options = {}};
  }

  WorkerCommand command;
  if (config.has_value()) {
    StatusOr<WorkerOptions> read = ReadWorkerOptions(*config);
    if (!read.ok()) {
      std::cerr << "neuroshard-worker: " << Message(read.status()) << "\n";
      return {.exit_code = 1, .options = {}};
    }
    command.options = *std::move(read);
  }
  WorkerOptions& options = command.options;
  if (backend.has_value()) options.backend = *FromText<WorkerBackend>(*backend);
  if (listen.has_value()) options.rpc.listen = *listen;
  if (metrics.has_value()) options.metrics_listen = *metrics;
  if (cpu_devices.has_value()) {
    options.cpu.count = *cpu_devices;
    if (!backend.has_value()) options.backend = WorkerBackend::kCpu;
  }
  if (collective_host.has_value()) options.collective.host = *collective_host;
  return command;
}

}  // namespace neuroshard

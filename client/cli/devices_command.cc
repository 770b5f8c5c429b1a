#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "client/cli/command_options.h"
#include "client/cli/commands.h"

namespace neuroshard {
namespace {

struct DevicesOptions {
  PlannerOptions planner{.timeout_s = 30};
  OutputOptions output;
};

std::string DevicesAsTable(const v1::ListDevicesResponse& response, const TextStyle&) {
  using Device = v1::PublishedDevice;
  // "-" where nothing is published.
  const auto gigabytes = [](auto bytes) {
    return [bytes](const Device& device) {
      const double value = static_cast<double>((device.*bytes)());
      return value > 0 ? fmt::format("{:.0f}", value / 1e9) : "-";
    };
  };
  return TableOf<Device>()
             .Left("device", &Device::name)
             .Right("GB", gigabytes(&Device::memory_bytes))
             .Right("GB/s", gigabytes(&Device::memory_bytes_per_s))
             .Right("on a host", gigabytes(&Device::intra_host_bytes_per_s))
             .Right("between", gigabytes(&Device::inter_host_bytes_per_s))
             .Left("fabric",
                   [](const Device& of) { return of.fabric().empty() ? "-" : of.fabric(); })
             .ToString(response.devices()) +
         "published figures, none measured: memory, its bandwidth, and what a collective gets\n"
         "out of a device's links, on a host and between hosts (a rank's: one card a device),\n"
         "per direction; 1 GB is 10^9 bytes. In a request:\n"
         "topology: {hosts: [{device: NAME, count: 2, num_devices: 8}]}\n";
}

StatusOr<int> RunDevices(const DevicesOptions& options, const Console& console) {
  NS_ASSIGN_OR_RETURN(const auto response, options.planner.Client(console.err).ListDevices());
  return WriteAnswer(console, options.output, response, DevicesAsTable);
}

}  // namespace

void AddDevicesCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<DevicesOptions>();
  CLI::App* command = app.add_subcommand(
      "devices", "Devices that requests may name, with the figures that stand for them");
  AddPlannerOptions(*command, options->planner);
  AddFormatOption(*command, options->output, "table or json (ListDevicesResponse, with sources)");
  WhenChosen(*command, options, RunDevices, console, exit_code);
}

}  // namespace neuroshard

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "client/cli/commands.h"
#include "client/cli/format_option.h"
#include "client/cli/planner_options.h"
#include "client/cli/text_table.h"
#include "client/stub/planner_client.h"
#include "common/codec/message_text.h"

namespace neuroshard {
namespace {

struct DevicesOptions {
  PlannerOptions planner{.timeout_s = 30};
  std::string format;
};

// "-" where nothing is published.
std::string GigabytesText(double bytes) {
  return bytes > 0 ? fmt::format("{:.0f}", bytes / 1e9) : "-";
}

std::string DevicesAsTable(const v1::ListDevicesResponse& response) {
  constexpr auto kLeft = TextTable::Align::kLeft;
  TextTable table(
      {{"device", kLeft}, {"GB"}, {"GB/s"}, {"on a host"}, {"between"}, {"fabric", kLeft}});
  for (const v1::PublishedDevice& device : response.devices()) {
    table.AddRow({device.name(), GigabytesText(static_cast<double>(device.memory_bytes())),
                  GigabytesText(device.memory_bytes_per_s()),
                  GigabytesText(device.intra_host_bytes_per_s()),
                  GigabytesText(device.inter_host_bytes_per_s()),
                  device.fabric().empty() ? "-" : device.fabric()});
  }
  return table.ToString() +
         "published figures, none measured: memory, its bandwidth, and what a collective gets\n"
         "out of a device's links, on a host and between hosts (a rank's: one card a device),\n"
         "per direction; 1 GB is 10^9 bytes. In a request:\n"
         "topology: {hosts: [{device: NAME, count: 2, num_devices: 8}]}\n";
}

int RunDevices(const DevicesOptions& options, const Console& console) {
  const auto response =
      PlannerClient(options.planner.address, options.planner.policy(console.err)).ListDevices();
  if (!response.ok()) return ReportFailure(console, response.status());
  return WriteResult(
      console, "",
      options.format == "json" ? MessageToJson(*response) + '\n' : DevicesAsTable(*response));
}

}  // namespace

void AddDevicesCommand(CLI::App& app, const Console& console, int* exit_code) {
  const auto options = std::make_shared<DevicesOptions>();
  CLI::App* command = app.add_subcommand(
      "devices", "Devices that requests may name, with the figures that stand for them");
  AddPlannerOptions(*command, options->planner);
  AddFormatOption(*command, options->format, "table or json (ListDevicesResponse, with sources)");
  command->callback([options, &console, exit_code] { *exit_code = RunDevices(*options, console); });
}

}  // namespace neuroshard

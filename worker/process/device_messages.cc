#include "worker/process/device_messages.h"

#include <string>

#include "common/rpc/status_mapping.h"
#include "worker/device/ability_words.h"

namespace neuroshard {

internal::OpenDevice EncodeOpenDevice(const WorkerOptions& options, int index) {
  internal::OpenDevice message;
  message.set_index(index);
  message.set_backend(std::string(ToText(options.backend)));
  message.set_cpu_devices(options.cpu.count);
  message.set_cpu_memory_per_device_bytes(options.cpu.memory_bytes);
  message.set_cpu_pin_threads(options.cpu.pin_threads);
  message.set_cpu_first_core(options.cpu.first_core);
  message.set_collective_host(options.collective.host);
  message.set_collective_interface(options.collective.interface);
  for (const IpNetwork& network : options.collective.networks) {
    message.add_collective_networks(network.ToText());
  }
  return message;
}

StatusOr<WorkerOptions> DecodeOpenDevice(const internal::OpenDevice& message) {
  WorkerOptions options;
  const auto backend = FromText<WorkerBackend>(message.backend());
  if (!backend.has_value()) return InvalidArgument("backend: \"{}\"", message.backend());
  options.backend = *backend;
  options.cpu.count = message.cpu_devices();
  options.cpu.memory_bytes = message.cpu_memory_per_device_bytes();
  options.cpu.pin_threads = message.cpu_pin_threads();
  options.cpu.first_core = message.cpu_first_core();
  options.collective.host = message.collective_host();
  options.collective.interface = message.collective_interface();
  for (const std::string& text : message.collective_networks()) {
    NS_ASSIGN_OR_RETURN(const IpNetwork network, IpNetwork::Parse(text));
    options.collective.networks.push_back(network);
  }
  return options;
}

internal::DeviceDescription EncodeProperties(const DeviceProperties& properties) {
  internal::DeviceDescription message;
  message.set_name(properties.name);
  message.set_backend(properties.backend);
  message.set_collective_backend(properties.collective_backend);
  message.set_memory_bytes(properties.memory_bytes);
  message.mutable_details()->insert(properties.details.begin(), properties.details.end());
  EncodeAbilities(properties.embedding, &message);
  return message;
}

DeviceProperties DecodeProperties(const internal::DeviceDescription& message) {
  return {.name = message.name(),
          .backend = message.backend(),
          .collective_backend = message.collective_backend(),
          .memory_bytes = message.memory_bytes(),
          .details = {message.details().begin(), message.details().end()},
          .embedding = DecodeAbilities(message)};
}

google::rpc::Status EncodeStatus(const Status& status) {
  const grpc::Status mapped = ToGrpc(status);
  google::rpc::Status message;
  if (!mapped.error_details().empty()) message.ParseFromString(mapped.error_details());
  message.set_code(static_cast<int>(mapped.error_code()));
  message.set_message(mapped.error_message());
  return message;
}

Status DecodeStatus(const google::rpc::Status& message) {
  return FromGrpc(grpc::Status(static_cast<grpc::StatusCode>(message.code()), message.message(),
                               message.SerializeAsString()));
}

}  // namespace neuroshard

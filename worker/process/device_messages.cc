#include "worker/process/device_messages.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/codec/message_fields.h"
#include "common/rpc/status_mapping.h"

namespace neuroshard {
namespace {

constexpr std::size_t kLengthBytes = 4;
// A message is read as it comes, so that a wrong length costs no memory.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

Status MessageSocket::Send(const std::string& message) {
  if (message.size() > kMaxBytes) {
    return Internal("a message has {} bytes, at most {} are sent", message.size(), kMaxBytes);
  }
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(message.size() >> 8 * i & 0xff));
  }
  bytes += message;
  const MutexLock lock(send_mutex_);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Unavailable("the other end is gone: {}", std::strerror(errno));
    sent += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

StatusOr<std::string> MessageSocket::Receive() {
  unsigned char length[kLengthBytes];
  NS_RETURN_IF_ERROR(ReceiveBytes(reinterpret_cast<char*>(length), sizeof length));
  std::size_t missing = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) missing |= std::size_t{length[i]} << 8 * i;
  if (missing > kMaxBytes) {
    return Internal("a message of {} bytes was announced, at most {} are taken", missing,
                    kMaxBytes);
  }
  std::string message;
  while (missing > 0) {
    const std::size_t piece = std::min(missing, kPieceBytes);
    message.resize(message.size() + piece);
    NS_RETURN_IF_ERROR(ReceiveBytes(message.data() + message.size() - piece, piece));
    missing -= piece;
  }
  return message;
}

Status MessageSocket::ReceiveBytes(char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t received = recv(fd_.get(), bytes, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return Unavailable("the other end is gone");
    bytes += received;
    count -= static_cast<std::size_t>(received);
  }
  return absl::OkStatus();
}

bool MessageSocket::WaitForMessage(std::chrono::milliseconds wait) const {
  pollfd readable{fd_.get(), POLLIN, 0};
  return poll(&readable, 1, static_cast<int>(wait.count())) > 0;
}

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
  PutFields(properties, message);
  PutFields(properties.embedding, message);
  message.mutable_details()->insert(properties.details.begin(), properties.details.end());
  return message;
}

DeviceProperties DecodeProperties(const internal::DeviceDescription& message) {
  Violations none;
  const FieldCheck check("", none);
  auto properties = TakeFields<DeviceProperties>(message, check);
  properties.details = {message.details().begin(), message.details().end()};
  properties.embedding = TakeFields<EmbeddingAbilities>(message, check);
  return properties;
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

#include "common/observe/metrics_exporter.h"

#include <poll.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

#include "common/observe/listen_address.h"

namespace neuroshard {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// A scraper on the same network needs milliseconds.
constexpr std::chrono::seconds kTimePerClient{3};
constexpr std::size_t kMaxRequestBytes = 16 * 1024;

// Whether `fd` became ready for `events` in time.
bool WaitFor(int fd, short events, SteadyTime deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  if (left.count() <= 0) return false;
  pollfd polled{fd, events, 0};
  return poll(&polled, 1, static_cast<int>(left.count())) == 1;
}

// Up to the empty line that ends the head; empty when none comes in time.
std::string ReadHead(int fd, SteadyTime deadline) {
  std::string head;
  char buffer[4096];
  while (head.size() < kMaxRequestBytes && WaitFor(fd, POLLIN, deadline)) {
    const ssize_t count = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (count <= 0) break;
    head.append(buffer, static_cast<std::size_t>(count));
    if (head.find("\r\n\r\n") != std::string::npos) return head;
  }
  return "";
}

void WriteAll(int fd, std::string_view bytes, SteadyTime deadline) {
  while (!bytes.empty() && WaitFor(fd, POLLOUT, deadline)) {
    const ssize_t count = send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::string Response(std::string_view status, std::string_view content_type,
                     std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, content_type, body.size(), body);
}

// "GET /metrics?x HTTP/1.1": the path without its query; empty for any other method.
std::string_view PathOfGet(std::string_view head) {
  constexpr std::string_view kGet = "GET ";
  if (!head.starts_with(kGet)) return "";
  head.remove_prefix(kGet.size());
  return head.substr(0, head.find_first_of(" ?\r\n"));
}

}  // namespace

StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(
    const std::string& address, std::shared_ptr<prometheus::Registry> registry) {
  NS_ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
  const auto socket = ListenOn(parsed);
  if (!socket.ok()) {
    return Unavailable("cannot serve metrics on {}: {}", address, Message(socket.status()));
  }
  const int wake_fd = eventfd(0, EFD_CLOEXEC);
  if (wake_fd < 0) {
    close(socket->fd);
    return Internal("eventfd: {}", std::strerror(errno));
  }
  return std::unique_ptr<MetricsExporter>(
      new MetricsExporter(socket->fd, wake_fd, ToText(socket->address), std::move(registry)));
}

StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::StartForServer(
    const std::string& address, bool stated, std::shared_ptr<prometheus::Registry> registry,
    const Logger& logger) {
  if (address.empty()) return std::unique_ptr<MetricsExporter>();
  auto exporter = Start(address, registry);
  if (!stated && absl::IsUnavailable(exporter.status())) {
    logger.Warn("metrics_port_taken", {{"address", address},
                                       {"reason", Message(exporter.status())},
                                       {"instead", "another port"}});
    NS_ASSIGN_OR_RETURN(ListenAddress other, ParseListenAddress(address));
    other.port = 0;
    exporter = Start(ToText(other), registry);
  }
  NS_RETURN_IF_ERROR(exporter.status());
  logger.Info("metrics_listening", {{"address", (*exporter)->address()}});
  return exporter;
}

MetricsExporter::MetricsExporter(int listening_fd, int wake_fd, std::string address,
                                 std::shared_ptr<prometheus::Registry> registry)
    : listening_fd_(listening_fd),
      wake_fd_(wake_fd),
      address_(std::move(address)),
      registry_(std::move(registry)),
      thread_([this] { Run(); }) {}

MetricsExporter::~MetricsExporter() {
  eventfd_write(wake_fd_, 1);
  thread_.join();
  close(wake_fd_);
  close(listening_fd_);
}

void MetricsExporter::Run() {
  while (true) {
    pollfd polled[] = {{listening_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
    if (poll(polled, std::size(polled), -1) < 0 && errno != EINTR) return;
    if (polled[1].revents != 0) return;
    if (polled[0].revents == 0) continue;
    const int fd = accept4(listening_fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) {
      // Out of descriptors, most likely: the connection stays in the queue, so wait before trying
      // again.
      poll(&polled[1], 1, 100);
      continue;
    }
    Answer(fd);
    close(fd);
  }
}

void MetricsExporter::Answer(int fd) const {
  const SteadyTime deadline = std::chrono::steady_clock::now() + kTimePerClient;
  const std::string head = ReadHead(fd, deadline);
  if (head.empty()) return;
  if (PathOfGet(head) != "/metrics") {
    WriteAll(fd, Response("404 Not Found", "text/plain", "GET /metrics\n"), deadline);
    return;
  }
  const std::string body = prometheus::TextSerializer().Serialize(registry_->Collect());
  WriteAll(fd, Response("200 OK", "text/plain; version=0.0.4; charset=utf-8", body), deadline);
}

}  // namespace neuroshard

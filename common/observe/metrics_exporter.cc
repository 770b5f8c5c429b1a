#include "common/observe/metrics_exporter.h"

#include <poll.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "common/observe/server_metrics.h"
#include "common/observe/status_page.h"

namespace neuroshard {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

// A client's time from connecting to the last byte of the answer; a scraper on the same network
// needs milliseconds.
constexpr std::chrono::seconds kTimePerClient{3};
constexpr std::size_t kMaxRequestBytes = 16 * 1024;
// Clients at a time; one more takes the place of the oldest, which a scraper never is for long.
constexpr std::size_t kMaxClients = 64;

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
  auto socket = ListenOn(parsed);
  if (!socket.ok()) {
    return Unavailable("cannot serve metrics on {}: {}", address, Message(socket.status()));
  }
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC));
  if (!wake.open()) return Internal("eventfd: {}", std::strerror(errno));
  return std::unique_ptr<MetricsExporter>(
      new MetricsExporter(*std::move(socket), std::move(wake), std::move(registry)));
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

MetricsExporter::MetricsExporter(ListeningSocket socket, FileDescriptor wake,
                                 std::shared_ptr<prometheus::Registry> registry)
    : address_(ToText(socket.address)),
      listening_(std::move(socket.fd)),
      wake_(std::move(wake)),
      registry_(std::move(registry)),
      thread_([this] { Run(); }) {}

MetricsExporter::~MetricsExporter() {
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

// One connection: reads the head of a request, then writes the answer.
class MetricsExporter::Client {
 public:
  Client(FileDescriptor fd, SteadyTime deadline) : fd_(std::move(fd)), deadline_(deadline) {}

  int fd() const { return fd_.get(); }
  SteadyTime deadline() const { return deadline_; }
  short waits_for() const { return answer_.empty() ? POLLIN : POLLOUT; }

  // Called when fd is ready. False: the connection is over.
  bool Continue(const MetricsExporter& exporter) {
    if (answer_.empty()) {
      char buffer[4096];
      const ssize_t count = recv(fd(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count <= 0) return count < 0 && errno == EAGAIN;
      head_.append(buffer, static_cast<std::size_t>(count));
      if (head_.find("\r\n\r\n") == std::string::npos) return head_.size() < kMaxRequestBytes;
      answer_ = exporter.AnswerTo(head_);
    }
    const ssize_t count =
        send(fd(), answer_.data() + sent_, answer_.size() - sent_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0) return errno == EAGAIN;
    sent_ += static_cast<std::size_t>(count);
    return sent_ < answer_.size();
  }

 private:
  const FileDescriptor fd_;
  const SteadyTime deadline_;
  std::string head_;
  std::string answer_;  // empty until the head is complete
  std::size_t sent_ = 0;
};

void MetricsExporter::Run() {
  std::list<Client> clients;  // oldest first, so deadlines ascend
  while (true) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
    for (const Client& client : clients) polled.push_back({client.fd(), client.waits_for(), 0});
    if (poll(polled.data(), polled.size(), TimeToWaitMs(clients)) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;

    const SteadyTime now = std::chrono::steady_clock::now();
    std::size_t i = 2;
    for (auto client = clients.begin(); client != clients.end(); ++i) {
      const bool goes_on =
          client->deadline() > now && (polled[i].revents == 0 || client->Continue(*this));
      client = goes_on ? std::next(client) : clients.erase(client);
    }
    if (polled[1].revents == 0) continue;
    FileDescriptor fd(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.open()) {
      // Out of descriptors, most likely: the connection stays in the queue, so wait before trying
      // again.
      pollfd wake{wake_.get(), POLLIN, 0};
      poll(&wake, 1, 100);
      continue;
    }
    if (clients.size() == kMaxClients) clients.pop_front();
    clients.emplace_back(std::move(fd), now + kTimePerClient);
  }
}

int MetricsExporter::TimeToWaitMs(const std::list<Client>& clients) {
  if (clients.empty()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(clients.front().deadline() -
                                                                 std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void MetricsExporter::SetStatus(const std::string& title, std::function<std::string()> json) {
  const MutexLock lock(status_mutex_);
  title_ = title;
  status_ = std::move(json);
}

std::string MetricsExporter::StatusAnswer(bool as_page) const {
  const MutexLock lock(status_mutex_);
  if (status_ == nullptr) return Response("503 Service Unavailable", "text/plain", "not started\n");
  return as_page ? Response("200 OK", "text/html; charset=utf-8", StatusPage(title_, status_()))
                 : Response("200 OK", "application/json", status_() + '\n');
}

std::string MetricsExporter::AnswerTo(std::string_view head) const {
  const std::string_view path = PathOfGet(head);
  if (path == "/healthz") return Response("200 OK", "text/plain", "ok\n");
  if (path == "/readyz") {
    return ready_.load() ? Response("200 OK", "text/plain", "ready\n")
                         : Response("503 Service Unavailable", "text/plain", "not ready\n");
  }
  if (path == "/" || path == "/status.json") return StatusAnswer(path == "/");
  if (path != "/metrics") {
    return Response("404 Not Found", "text/plain",
                    "GET /, /status.json, /metrics, /healthz or /readyz\n");
  }
  std::vector<prometheus::MetricFamily> families = registry_->Collect();
  for (auto& family : CollectProcessMetrics()) families.push_back(std::move(family));
  return Response("200 OK", "text/plain; version=0.0.4; charset=utf-8",
                  prometheus::TextSerializer().Serialize(families));
}

}  // namespace neuroshard

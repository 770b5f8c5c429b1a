#include "common/rpc/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace neuroshard {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{100};
// For the metrics.
constexpr std::chrono::milliseconds kBetweenReports{1000};
// After accept failed, which it does for want of descriptors or memory.
constexpr int kWaitAfterFailureMs = 100;

std::optional<ino_t> SocketInode(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

// The client sees a reset instead of a connection that just ends.
void Reset(int fd) {
  const linger now{.l_onoff = 1, .l_linger = 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  close(fd);
}

}  // namespace

int RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int>::max()));
}

StatusOr<std::unique_ptr<ConnectionAcceptor>> ConnectionAcceptor::Start(
    std::vector<int> listening, int max_connections, std::function<void(int)> take,
    RpcMetrics* metrics) {
  const int wake_fd = eventfd(0, EFD_CLOEXEC);
  if (wake_fd < 0) {
    const std::string reason = std::strerror(errno);
    for (const int fd : listening) close(fd);
    return Unavailable("cannot accept connections: eventfd: {}", reason);
  }
  return std::unique_ptr<ConnectionAcceptor>(new ConnectionAcceptor(
      std::move(listening), max_connections, std::move(take), metrics, wake_fd));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<int> listening, int max_connections,
                                       std::function<void(int)> take, RpcMetrics* metrics,
                                       int wake_fd)
    : listening_(std::move(listening)),
      max_connections_(max_connections),
      take_(std::move(take)),
      metrics_(metrics),
      wake_fd_(wake_fd),
      thread_([this] { Run(); }) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  eventfd_write(wake_fd_, 1);
  thread_.join();
  close(wake_fd_);
  for (const int fd : listening_) close(fd);
}

void ConnectionAcceptor::Run() {
  std::vector<pollfd> polled = {{wake_fd_, POLLIN, 0}};
  for (const int fd : listening_) polled.push_back({fd, POLLIN, 0});
  Report();
  while (true) {
    // While there are connections it wakes up to see whether they still are.
    const int wait_ms = metrics_ == nullptr || handed_over_.empty()
                            ? -1
                            : static_cast<int>(kBetweenReports.count());
    const int ready = poll(polled.data(), polled.size(), wait_ms);
    const int error = errno;
    if (std::chrono::steady_clock::now() - last_look_ >= kBetweenReports) FindClosed();
    if (ready < 0) {
      // A signal, or no memory at the moment.
      if (error != EINTR) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kWaitAfterFailureMs));
      }
      continue;
    }
    if (polled[0].revents != 0) return;
    for (std::size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Accept(polled[i].fd);
    }
  }
}

void ConnectionAcceptor::Accept(int listening_fd) {
  const int fd = accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    const bool client_left = errno == ECONNABORTED || errno == EINTR || errno == EAGAIN;
    pollfd wake{wake_fd_, POLLIN, 0};
    if (!client_left) poll(&wake, 1, kWaitAfterFailureMs);
    return;
  }
  const std::optional<ino_t> inode = SocketInode(fd);
  const bool room = inode.has_value() && HasRoom();
  if (metrics_ != nullptr) metrics_->Connection(room);
  if (!room) {
    Reset(fd);
    return;
  }
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  handed_over_[fd] = *inode;
  Report();
  take_(fd);
}

bool ConnectionAcceptor::HasRoom() {
  const auto full = [this] {
    return handed_over_.size() >= static_cast<std::size_t>(max_connections_);
  };
  if (full() && std::chrono::steady_clock::now() - last_look_ >= kBetweenLooks) FindClosed();
  return !full();
}

void ConnectionAcceptor::FindClosed() {
  last_look_ = std::chrono::steady_clock::now();
  std::erase_if(handed_over_, [](const auto& entry) {
    return SocketInode(entry.first) != std::optional(entry.second);
  });
  Report();
}

void ConnectionAcceptor::Report() const {
  if (metrics_ != nullptr) metrics_->SetConnections(handed_over_.size(), max_connections_);
}

}  // namespace neuroshard

#include "common/rpc/connection_acceptor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>

namespace neuroshard {
namespace {

constexpr std::chrono::milliseconds kScanInterval{100};
// Connections are counted for the metrics as often as this.
constexpr std::chrono::milliseconds kReportInterval{1000};
// Calls are counted, to notice floods, as often as this: 2 cores begin some 5,000 meanwhile.
constexpr int kCountIntervalMs = 50;
// The wait after accept failed, which it does for want of descriptors or memory.
constexpr int kWaitAfterFailureMs = 100;

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
    std::vector<ListeningSocket> listening, const ConnectionLimits& limits,
    std::function<void(int)> take, RpcGate& gate, CallCounters counters) {
  FileDescriptor wake(eventfd(0, EFD_CLOEXEC));
  if (!wake.open()) {
    return Unavailable("cannot accept connections: eventfd: {}", std::strerror(errno));
  }
  return std::unique_ptr<ConnectionAcceptor>(new ConnectionAcceptor(
      std::move(listening), limits, std::move(take), gate, std::move(counters), std::move(wake)));
}

ConnectionAcceptor::~ConnectionAcceptor() {
  eventfd_write(wake_.get(), 1);
  accepting_.join();  // first: a flood that keeps it is ended by the other one
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watching_.join();
}

void ConnectionAcceptor::AcceptAll() {
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
  for (const ListeningSocket& socket : listening_) polled.push_back({socket.fd.get(), POLLIN, 0});
  while (true) {
    const bool accepts = accepts_;
    const int ready =
        poll(polled.data(), accepts ? polled.size() : 1, accepts ? -1 : kCountIntervalMs);
    if (ready < 0) {
      // A signal, or no memory at the moment.
      if (errno != EINTR) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kWaitAfterFailureMs));
      }
      continue;
    }
    if (polled[0].revents != 0) return;
    for (std::size_t i = 1; accepts && accepts_ && i < polled.size(); ++i) {
      if (polled[i].revents != 0) Accept(polled[i].fd);
    }
  }
}

void ConnectionAcceptor::Accept(int listening_fd) {
  const int fd = accept4(listening_fd, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) {
    const bool client_left = errno == ECONNABORTED || errno == EINTR || errno == EAGAIN;
    pollfd wake{wake_.get(), POLLIN, 0};
    if (!client_left) poll(&wake, 1, kWaitAfterFailureMs);
    return;
  }
  const std::optional<ino_t> inode = SocketInode(fd);
  bool room = inode.has_value();
  if (room) {
    const MutexLock lock(mutex_);
    room = HasRoom();
    if (room) handed_over_[fd] = *inode;
    Report();
  }
  gate_.metrics().Connection(room);
  if (!room) {
    Reset(fd);
    return;
  }
  changed_.notify_all();
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  take_(fd);
}

bool ConnectionAcceptor::HasRoom() {
  const auto full = [this]() NS_REQUIRES(mutex_) {
    return handed_over_.size() >= static_cast<std::size_t>(max_connections_);
  };
  if (full() && std::chrono::steady_clock::now() - last_scan_ >= kScanInterval) FindClosed();
  return !full();
}

void ConnectionAcceptor::FindClosed() {
  last_scan_ = std::chrono::steady_clock::now();
  std::erase_if(handed_over_, [](const auto& entry) {
    return SocketInode(entry.first) != std::optional(entry.second);
  });
  Report();
}

void ConnectionAcceptor::Watch() {
  auto last_count = std::chrono::steady_clock::now();
  MutexLock lock(mutex_);
  Report();
  while (!stopping_) {
    const auto next_count = last_count + std::chrono::milliseconds(kCountIntervalMs);
    if (handed_over_.empty() && accepts_ && !flood_.owes_memory()) {
      lock.Wait(changed_);
    } else if (!lock.WaitUntil(changed_, next_count)) {
      last_count = std::chrono::steady_clock::now();
      // In a flood only those that are still there may have calls.
      if (!accepts_ || last_count - last_scan_ >= kReportInterval) FindClosed();
      lock.Unlock();
      CountCalls();
      lock.Lock();
    }
  }
}

void ConnectionAcceptor::CountCalls() {
  std::size_t num_connections = 0;
  {
    const MutexLock lock(mutex_);
    num_connections = handed_over_.size();
  }
  const std::set<std::string> clients = flood_.ClientsToReset(num_connections);
  accepts_ = !flood_.is_flooded();
  if (!clients.empty()) ResetConnectionsOf(clients);
  flood_.ReturnMemory();
}

void ConnectionAcceptor::ResetConnectionsOf(const std::set<std::string>& clients) {
  const MutexLock lock(mutex_);
  for (const auto& [fd, inode] : handed_over_) {
    const std::string peer = PeerOf(fd);
    if (clients.contains(peer) && Disconnect(fd, inode)) {
      gate_.ConnectionReset(peer, flood_.open_calls());
    }
  }
}

void ConnectionAcceptor::Report() const {
  gate_.metrics().SetConnections(handed_over_.size(), max_connections_);
}

}  // namespace neuroshard

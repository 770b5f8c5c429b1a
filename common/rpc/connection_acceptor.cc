#include "common/rpc/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
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

constexpr std::chrono::milliseconds kScanInterval{100};
// Connections are counted for the metrics as often as this.
constexpr std::chrono::milliseconds kReportInterval{1000};
// Calls are counted, to notice floods, as often as this: 2 cores begin some 5,000 meanwhile.
constexpr int kCountIntervalMs = 50;
// glibc keeps what calls had in its arenas, eight for each core: 600 MiB after 30,000 calls that
// were reset, nothing of it in use. After so many at a time it goes back, once there were fewer for
// so many counts; and again after twice as many, and so on, since on a busy host calls are forgotten
// long after they have ended.
constexpr std::int64_t kManyCalls = 1000;
constexpr int kCountsBeforeReturn = 20;
constexpr int kLastReturn = 64 * kCountsBeforeReturn;  // a minute
// The wait after accept failed, which it does for want of descriptors or memory.
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

// Resets the connection and drops what has come on it, but leaves the descriptor to gRPC, which then
// finds an error there. False where gRPC has closed it meanwhile, or descriptors have run out.
bool Disconnect(int fd, ino_t inode) {
  const int same = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (same < 0) return false;
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  const bool done = SocketInode(same) == inode && connect(same, &nobody, sizeof nobody) == 0;
  close(same);
  return done;
}

// Who is at the other end, as gRPC writes it: "ipv4:10.0.0.1:4711", "ipv6:%5B::1%5D:4711". Empty
// where nobody is.
std::string PeerOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  if (address.ss_family == AF_UNIX) return "unix:";
  char host[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
    return fmt::format("ipv4:{}:{}", host, ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], host, sizeof host);
    return fmt::format("ipv4:{}:{}", host, ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
  const std::string scope = v6.sin6_scope_id == 0 ? "" : fmt::format("%25{}", v6.sin6_scope_id);
  return fmt::format("ipv6:%5B{}{}%5D:{}", host, scope, ntohs(v6.sin6_port));
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
    std::vector<int> listening, const ConnectionLimits& limits, std::function<void(int)> take,
    RpcGate& gate, CallCounters counters) {
  const int wake_fd = eventfd(0, EFD_CLOEXEC);
  if (wake_fd < 0) {
    const std::string reason = std::strerror(errno);
    for (const int fd : listening) close(fd);
    return Unavailable("cannot accept connections: eventfd: {}", reason);
  }
  return std::unique_ptr<ConnectionAcceptor>(new ConnectionAcceptor(
      std::move(listening), limits, std::move(take), gate, std::move(counters), wake_fd));
}

ConnectionAcceptor::ConnectionAcceptor(std::vector<int> listening, const ConnectionLimits& limits,
                                       std::function<void(int)> take, RpcGate& gate,
                                       CallCounters counters, int wake_fd)
    : listening_(std::move(listening)),
      max_connections_(limits.max_connections),
      take_(std::move(take)),
      gate_(gate),
      wake_fd_(wake_fd),
      flood_(limits.max_streams_per_connection, std::move(counters)),
      watching_([this] { Watch(); }),
      accepting_([this] { AcceptAll(); }) {}

ConnectionAcceptor::~ConnectionAcceptor() {
  eventfd_write(wake_fd_, 1);
  accepting_.join();  // first: a flood that keeps it is ended by the other one
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  watching_.join();
  close(wake_fd_);
  for (const int fd : listening_) close(fd);
}

void ConnectionAcceptor::AcceptAll() {
  std::vector<pollfd> polled = {{wake_fd_, POLLIN, 0}};
  for (const int fd : listening_) polled.push_back({fd, POLLIN, 0});
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
    pollfd wake{wake_fd_, POLLIN, 0};
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
  if (gate_.metrics() != nullptr) gate_.metrics()->Connection(room);
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
    if (handed_over_.empty() && accepts_ && next_return_ == 0) {
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
  if (flood_.open_calls() > kManyCalls) {
    counts_of_few_ = 0;
    next_return_ = kCountsBeforeReturn;
  } else if (next_return_ > 0 && ++counts_of_few_ == next_return_) {
    malloc_trim(0);
    next_return_ = next_return_ < kLastReturn ? 2 * next_return_ : 0;
  }
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
  if (gate_.metrics() == nullptr) return;
  gate_.metrics()->SetConnections(handed_over_.size(), max_connections_);
}

}  // namespace neuroshard

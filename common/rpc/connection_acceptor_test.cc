#include "common/rpc/connection_acceptor.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/observe/listen_address.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::HasSubstr;

// The descriptors that an acceptor handed over.
class Taken {
 public:
  ~Taken() {
    for (const int fd : fds_) close(fd);
  }
  void Add(int fd) {
    const std::lock_guard lock(mutex_);
    fds_.push_back(fd);
    changed_.notify_all();
  }
  void WaitFor(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return fds_.size() >= count; });
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return fds_.size();
  }
  void CloseFirst() {
    const std::lock_guard lock(mutex_);
    close(fds_.front());
    fds_.erase(fds_.begin());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int> fds_;
};

class ConnectionAcceptorTest : public ::testing::Test {
 protected:
  void Start(int max_connections) {
    NS_ASSERT_OK_AND_ASSIGN(auto sockets, ListenOnEach({"127.0.0.1", 0}));
    port_ = sockets[0].address.port;
    NS_ASSERT_OK_AND_ASSIGN(acceptor_, ConnectionAcceptor::Start(
                                           std::move(sockets), {.max_connections = max_connections},
                                           [this](int fd) { taken_.Add(fd); }, gate_,
                                           {.begun = [this] { return begun_.load(); },
                                            .begun_by = [this] { return BegunByAll(); },
                                            .forgotten = [] { return 0; }}));
  }

  static int Socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }
  // Whether there was a connection, for however short a time.
  bool TryToConnect(int fd) const {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port_));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  void Connect(int fd) const { ASSERT_TRUE(TryToConnect(fd)); }
  // The other side reset it.
  static bool IsReset(int fd) {
    pollfd polled{fd, POLLIN, 0};
    poll(&polled, 1, -1);
    char byte = 0;
    return recv(fd, &byte, 1, 0) < 0 && errno == ECONNRESET;
  }
  std::map<std::string, std::int64_t> BegunByAll() const {
    return {{busy_client_, begun_}, {"ipv4:127.0.0.2:1", 1}};
  }
  // A client as gRPC writes it.
  static std::string NameOf(int fd) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
    return "ipv4:127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  std::string Metrics() { return prometheus::TextSerializer().Serialize(registry_.Collect()); }

  prometheus::Registry registry_;
  RpcMetrics metrics_{registry_};
  SteadyClock clock_;
  std::unique_ptr<Logger> logger_ = *Logger::Create({.level = "off"});
  RpcGate gate_{1, clock_, metrics_, *logger_};
  std::string busy_client_;              // stated before there are calls
  std::atomic<std::int64_t> begun_ = 0;  // calls, all of that client
  Taken taken_;
  int port_ = 0;
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

TEST_F(ConnectionAcceptorTest, ConnectionsBeyondTheLimitAreResetUntilOneIsClosed) {
  Start(2);
  const int clients[] = {Socket(), Socket(), Socket()};
  Connect(clients[0]);
  Connect(clients[1]);
  taken_.WaitFor(2);
  EXPECT_TRUE(!TryToConnect(clients[2]) || IsReset(clients[2]));
  EXPECT_THAT(Metrics(), HasSubstr("neuroshard_rpc_connections_total{outcome=\"accepted\"} 2"));
  EXPECT_THAT(Metrics(), HasSubstr("neuroshard_rpc_connections_total{outcome=\"refused\"} 1"));

  // Its number goes to a file, which is no connection.
  taken_.CloseFirst();
  const int file = open("/dev/null", O_RDONLY | O_CLOEXEC);
  // Closed connections are looked for at most every tenth of a second; until then more are reset.
  std::vector<int> more;
  while (taken_.size() < 2) {
    more.push_back(Socket());
    std::ignore = TryToConnect(more.back());
    pollfd polled{more.back(), POLLIN, 0};
    poll(&polled, 1, 20);
  }
  for (const int fd : more) close(fd);
  for (const int fd : clients) close(fd);
  close(file);
}

TEST_F(ConnectionAcceptorTest, WhoFloodsItWithCallsIsResetAndOthersWait) {
  Start(100);
  const int flooding = Socket();
  const int other = Socket();
  const int late = Socket();
  Connect(flooding);
  Connect(other);
  taken_.WaitFor(2);
  busy_client_ = NameOf(flooding);
  begun_ = 1'000'000;
  pollfd polled{flooding, POLLIN, 0};
  while (poll(&polled, 1, 1) == 0) begun_ += 1000;
  EXPECT_TRUE(IsReset(flooding));
  Connect(late);      // waits in the queue
  taken_.WaitFor(3);  // until it is quiet
  EXPECT_THAT(Metrics(), HasSubstr("neuroshard_rpc_connections_total{outcome=\"reset\"} 1"));
  polled = {other, POLLIN, 0};
  EXPECT_EQ(poll(&polled, 1, 0), 0);
  for (const int fd : {flooding, other, late}) close(fd);
}

TEST_F(ConnectionAcceptorTest, TakesConnectionsAgainAfterDescriptorsRanOut) {
  Start(100);
  const int client = Socket();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> files;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) files.push_back(fd);
  ASSERT_EQ(errno, EMFILE);
  Connect(client);  // waits in the queue
  EXPECT_EQ(taken_.size(), 0u);
  for (const int fd : files) close(fd);
  setrlimit(RLIMIT_NOFILE, &before);
  taken_.WaitFor(1);
  close(client);
}

TEST_F(ConnectionAcceptorTest, RaisesTheLimitOnDescriptorsToTheHardOne) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  limit.rlim_cur = 256;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(static_cast<rlim_t>(RaiseDescriptorLimit()), limit.rlim_max);
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, limit.rlim_max);
}

}  // namespace
}  // namespace neuroshard

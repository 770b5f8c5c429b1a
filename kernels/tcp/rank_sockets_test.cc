#include "kernels/tcp/rank_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <future>
#include <thread>

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<IpNetwork> Networks(std::initializer_list<const char*> texts) {
  std::vector<IpNetwork> networks;
  for (const char* text : texts) networks.push_back(IpNetwork::Parse(text).value());
  return networks;
}

std::vector<std::unique_ptr<RankSockets>> OpenSockets(
    int size, const std::vector<IpNetwork>& networks = Networks({"127.0.0.0/8"})) {
  std::vector<std::unique_ptr<RankSockets>> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(
        RankSockets::Open(rank, size, *FindLocalAddress("127.0.0.1", ""), networks).value());
  }
  return ranks;
}

std::vector<std::string> AddressesOf(const std::vector<std::unique_ptr<RankSockets>>& ranks) {
  std::vector<std::string> addresses;
  for (const auto& rank : ranks) addresses.push_back(rank->address());
  return addresses;
}

using Connected = StatusOr<std::vector<FileDescriptor>>;

std::future<Connected> ConnectLater(RankSockets& rank, const std::vector<std::string>& addresses,
                                    milliseconds timeout = milliseconds(20'000)) {
  return std::async(std::launch::async, [&rank, addresses, timeout] {
    return rank.Connect(addresses, steady_clock::now() + timeout, NeverStop());
  });
}

SocketAddress PortOf(const RankSockets& rank) {
  const std::string& address = rank.address();
  const std::size_t begin = address.find(' ') + 1;
  return ParseSocketAddress(address.substr(begin, address.rfind(' ') - begin)).value();
}

// A connection to the rank's port, or the error.
StatusOr<FileDescriptor> Visit(const RankSockets& rank) {
  const SocketAddress port = PortOf(rank);
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), &port.get(), port.length) != 0) return Unavailable("{}", errno);
  return fd;
}

FileDescriptor VisitWhenItListens(const RankSockets& rank) {
  while (true) {
    if (auto fd = Visit(rank); fd.ok()) return *std::move(fd);
    std::this_thread::yield();
  }
}

// Whether the other side closes without sending anything.
bool IsTurnedAway(const FileDescriptor& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, 0) <= 0;
}

TEST(RankSocketsTest, EveryRankIsConnectedToEveryOther) {
  for (const int size : {2, 3, 9}) {
    auto ranks = OpenSockets(size);
    std::vector<std::future<Connected>> connecting;
    for (auto& rank : ranks) connecting.push_back(ConnectLater(*rank, AddressesOf(ranks)));
    std::vector<std::vector<FileDescriptor>> sockets;
    for (auto& one : connecting) sockets.push_back(one.get().value());
    for (int a = 0; a < size; ++a) {
      EXPECT_FALSE(sockets[a][a].open());
      for (int b = 0; b < a; ++b) {
        ASSERT_TRUE(sockets[a][b].open() && sockets[b][a].open());
        SocketAddress mine, theirs;
        mine.length = theirs.length = sizeof mine.storage;
        ASSERT_EQ(getsockname(sockets[a][b].get(), &mine.get(), &mine.length), 0);
        ASSERT_EQ(getpeername(sockets[b][a].get(), &theirs.get(), &theirs.length), 0);
        EXPECT_EQ(ToText(mine), ToText(theirs)) << a << " and " << b;
      }
    }
  }
}

TEST(RankSocketsTest, APortIsOpenOnlyWhileTheGroupConnects) {
  auto ranks = OpenSockets(2);
  EXPECT_FALSE(Visit(*ranks[0]).ok()) << "before";
  auto first = ConnectLater(*ranks[0], AddressesOf(ranks));
  const FileDescriptor early = VisitWhenItListens(*ranks[0]);
  auto second = ConnectLater(*ranks[1], AddressesOf(ranks));
  ASSERT_TRUE(first.get().ok());
  ASSERT_TRUE(second.get().ok());
  EXPECT_FALSE(Visit(*ranks[0]).ok()) << "after";
  EXPECT_TRUE(IsTurnedAway(early));
}

TEST(RankSocketsTest, StrangersAreTurnedAwayAndTheGroupConnectsAllTheSame) {
  auto ranks = OpenSockets(3);
  auto first = ConnectLater(*ranks[0], AddressesOf(ranks));
  // Bytes that are no greeting, a wrong proof, an early end, silence.
  for (const std::string& message :
       {std::string(148, '\1'), "NSRANK00000001" + std::string(64, '0'), std::string("NSRANK")}) {
    const FileDescriptor stranger = VisitWhenItListens(*ranks[0]);
    ASSERT_EQ(send(stranger.get(), message.data(), message.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(message.size()));
    shutdown(stranger.get(), SHUT_WR);
    EXPECT_TRUE(IsTurnedAway(stranger));
  }
  std::vector<FileDescriptor> silent;
  for (int i = 0; i < 200; ++i) silent.push_back(VisitWhenItListens(*ranks[0]));
  auto second = ConnectLater(*ranks[1], AddressesOf(ranks));
  auto third = ConnectLater(*ranks[2], AddressesOf(ranks));
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(third.get().ok());
}

TEST(RankSocketsTest, WhoKnowsThePortsButNotTheKeysIsNoPeer) {
  auto ranks = OpenSockets(2), impostors = OpenSockets(2);
  std::vector<std::string> forged = AddressesOf(ranks);
  forged[1] = impostors[1]->address();
  forged[0].replace(forged[0].size() - 32, 32, std::string(32, '0'));
  auto first = ConnectLater(*ranks[0], AddressesOf(ranks), milliseconds(3000));
  auto impostor = ConnectLater(*impostors[1], forged, milliseconds(2000));
  EXPECT_EQ(impostor.get().status().code(), absl::StatusCode::kAborted);
  const Status status = first.get().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 1: did not come"), HasSubstr("refused")));
}

TEST(RankSocketsTest, AddressesOutsideOfTheNetworksAreRefusedAndNotDialled) {
  auto ranks = OpenSockets(2);
  std::vector<std::string> addresses = AddressesOf(ranks);
  EXPECT_TRUE(ranks[0]->CheckAddress(addresses[1]).ok());
  const std::string key(32, 'a');
  for (const std::string& foreign :
       {"neuroshard-tcp/3 10.0.0.1:80 " + key, "neuroshard-tcp/3 [::1]:80 " + key}) {
    const Status status = ranks[0]->CheckAddress(foreign);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("outside"), HasSubstr("127.0.0.0/8")));
    addresses[1] = foreign;
    EXPECT_EQ(ranks[0]->Connect(addresses, steady_clock::now(), NeverStop()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  for (const std::string& text :
       {std::string(), std::string("x"), "neuroshard-tcp/3 localhost:80 " + key,
        std::string("neuroshard-tcp/3 127.0.0.1:80 short"),
        "neuroshard-tcp/2 127.0.0.1:80 " + key}) {
    EXPECT_EQ(ranks[0]->CheckAddress(text).code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(RankSocketsTest, ConnectionsFromOutsideOfTheNetworksAreClosedUnread) {
  auto ranks = OpenSockets(2, Networks({"127.0.0.1"}));
  auto first = ConnectLater(*ranks[0], AddressesOf(ranks));
  const SocketAddress port = PortOf(*ranks[0]), elsewhere = *ParseSocketAddress("127.0.0.2:0");
  FileDescriptor fd;
  do {
    fd = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(fd.get(), &elsewhere.get(), elsewhere.length), 0);
  } while (connect(fd.get(), &port.get(), port.length) != 0);
  EXPECT_TRUE(IsTurnedAway(fd));
  auto second = ConnectLater(*ranks[1], AddressesOf(ranks));
  EXPECT_TRUE(first.get().ok());
  EXPECT_TRUE(second.get().ok());
}

}  // namespace
}  // namespace neuroshard

#include "kernels/tcp/tcp_mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <cstring>
#include <future>
#include <string>
#include <thread>

#include "common/base/random.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Direction = Transfer::Direction;

TcpMesh::TimePoint Later() { return steady_clock::now() + seconds(20); }  // of nothing but hangs

// Connected sockets: ranks[a][b] is a's to b.
std::vector<std::vector<FileDescriptor>> SocketsOf(std::size_t size) {
  std::vector<std::vector<FileDescriptor>> ranks;
  for (std::size_t rank = 0; rank < size; ++rank) ranks.emplace_back(size);
  for (std::size_t a = 0; a < size; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      int ends[2];
      EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
      ranks[a][b] = FileDescriptor(ends[0]);
      ranks[b][a] = FileDescriptor(ends[1]);
    }
  }
  return ranks;
}

Transfer Send(int peer, Bytes& bytes) { return {Direction::kSend, peer, {std::span(bytes)}}; }
Transfer Receive(int peer, Bytes& bytes) { return {Direction::kReceive, peer, {std::span(bytes)}}; }

// Cut at random, some parts empty.
std::vector<std::span<std::byte>> Cut(Bytes& bytes, Random& random) {
  std::vector<std::span<std::byte>> parts;
  for (std::span<std::byte> rest(bytes); !rest.empty() || parts.size() < 20;) {
    const std::size_t most = random.Below(2) == 0 ? 100 : 1 << 20;
    const std::size_t size = random.Below(std::min(rest.size(), most) + 1);
    parts.push_back(rest.first(size));
    rest = rest.subspan(size);
  }
  return parts;
}

TEST(TcpMeshTest, BytesGoBothWaysAtOnceWhateverTheSocketsHold) {
  auto sockets = SocketsOf(2);
  Random random(3);
  std::array<Bytes, 2> sent, received;
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    sent[rank].resize(8'000'001);
    for (std::byte& byte : sent[rank]) byte = static_cast<std::byte>(random.Below(256));
    received[rank].resize(8'000'001);
    ranks.emplace_back([&, rank, cuts = Random(rank)]() mutable {
      TcpMesh mesh(std::move(sockets[rank]));
      for (int exchange = 0; exchange < 3; ++exchange) {
        Transfer transfers[] = {{Direction::kSend, 1 - rank, Cut(sent[rank], cuts)},
                                {Direction::kReceive, 1 - rank, Cut(received[rank], cuts)}};
        const Status status = mesh.Run(transfers, Later());
        ASSERT_TRUE(status.ok()) << status;
      }
    });
  }
  ranks.clear();
  EXPECT_EQ(received[0], sent[1]);
  EXPECT_EQ(received[1], sent[0]);
}

TEST(TcpMeshTest, APeerInAnotherExchangeOrWithOtherSizesIsNamed) {
  for (const bool other_size : {false, true}) {
    auto sockets = SocketsOf(2);
    TcpMesh mesh(std::move(sockets[0])), peer(std::move(sockets[1]));
    Bytes sent(other_size ? 6 : 5), received(5);
    if (!other_size) {
      ASSERT_TRUE(peer.Run({}, Later()).ok());
    }
    Transfer sends[] = {Send(0, sent)}, receives[] = {Receive(1, received)};
    ASSERT_TRUE(peer.Run(sends, Later()).ok());
    const Status status = mesh.Run(receives, Later());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 1:"),
                                       HasSubstr(other_size ? "sends 6 bytes in exchange 1"
                                                            : "sends 5 bytes in exchange 2"),
                                       HasSubstr("instead of 5 in 1")));
  }
}

TEST(TcpMeshTest, BytesThatAreNoHeaderEndTheGroupAndNothingElse) {
  auto sockets = SocketsOf(2);
  const FileDescriptor peer = std::move(sockets[1][0]);
  TcpMesh mesh(std::move(sockets[0]));
  const std::string garbage(100'000, '\xff');
  ASSERT_GT(send(peer.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT), 1000);
  Bytes received(10);
  Transfer transfers[] = {Receive(1, received)};
  EXPECT_THAT(Message(mesh.Run(transfers, Later())),
              HasSubstr("rank 1: received 10 of 10 bytes: it sends"));
  Transfer sends[] = {Send(1, received)};  // which raises no SIGPIPE
  EXPECT_EQ(mesh.Run(sends, Later()).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(send(peer.get(), "x", 1, MSG_NOSIGNAL), -1) << "the connection is still open";
}

TEST(TcpMeshTest, AtTheDeadlineWhatIsMissingIsNamed) {
  auto sockets = SocketsOf(3);
  TcpMesh mesh(std::move(sockets[0]));
  Bytes sent(10'000'000), received(8);
  Transfer transfers[] = {Receive(1, received), Send(2, sent)};
  const Status status = mesh.Run(transfers, steady_clock::now() + milliseconds(50));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(Message(status),
              AllOf(HasSubstr("timed out"), HasSubstr("rank 1: received 0 of 8 bytes"),
                    HasSubstr("rank 2: sent "), HasSubstr("of 10000000 bytes")));
}

TEST(TcpMeshTest, WhoSendsToAPeerThatGaveUpLearnsOfIt) {
  for (const bool while_nothing_is_there_to_send : {false, true}) {
    auto sockets = SocketsOf(2);
    const FileDescriptor peer = std::move(sockets[1][0]);
    TcpMesh mesh(std::move(sockets[0]));
    Bytes sent(10'000'000);
    Transfer transfers[] = {Send(1, sent)};
    if (while_nothing_is_there_to_send) transfers[0].SendFirst(8);
    std::jthread gives_up([&] {
      char byte;  // once the exchange has begun
      ASSERT_EQ(recv(peer.get(), &byte, 1, MSG_PEEK), 1);
      shutdown(peer.get(), SHUT_WR);
    });
    const Status status = mesh.Run(transfers, Later());
    EXPECT_THAT(Message(status), AllOf(HasSubstr("rank 1: sent"), HasSubstr("closed")));
  }
}

TEST(TcpMeshTest, APeerThatEndsAfterItsLastExchangeHasSentEverything) {
  auto sockets = SocketsOf(3);
  auto mesh = std::make_unique<TcpMesh>(std::move(sockets[0]));
  auto early = std::make_unique<TcpMesh>(std::move(sockets[1]));
  TcpMesh late(std::move(sockets[2]));
  Bytes four(4), from_early(4), from_late(4);
  Transfer sends[] = {Send(0, four)};
  ASSERT_TRUE(early->Run(sends, Later()).ok());
  early.reset();
  auto running = std::async(std::launch::async, [&] {
    Transfer receives[] = {Receive(1, from_early), Receive(2, from_late)};
    return mesh->Run(receives, Later());
  });
  EXPECT_EQ(running.wait_for(milliseconds(50)), std::future_status::timeout);
  Transfer more[] = {Send(0, four)};
  ASSERT_TRUE(late.Run(more, Later()).ok());
  EXPECT_TRUE(running.get().ok());
}

TEST(TcpMeshTest, WorkMeanwhileIsDoneOnceAndBesideTheExchange) {
  auto sockets = SocketsOf(2);
  TcpMesh mesh(std::move(sockets[0])), peer(std::move(sockets[1]));
  Bytes sent(4), received(4);
  Transfer receives[] = {Receive(1, received)}, sends[] = {Send(0, sent)};
  int calls = 0;
  const auto meanwhile = [&] {
    ++calls;
    const Status status = peer.Run(sends, Later());  // for which the exchange waits
    EXPECT_TRUE(status.ok()) << status;
  };
  const Status status = mesh.Run(receives, Later(), {.meanwhile = meanwhile});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(mesh.Run({}, Later(), {.meanwhile = [&] { ++calls; }}).ok());
  EXPECT_EQ(calls, 2);
}

TEST(TcpMeshTest, AbortEndsAWaitAndIsSeenByThePeers) {
  auto sockets = SocketsOf(2);
  TcpMesh mesh(std::move(sockets[0])), peer(std::move(sockets[1]));
  Bytes received(4);
  Transfer receives[] = {Receive(1, received)};
  std::jthread aborts([&] { mesh.Abort(); });
  EXPECT_THAT(Message(mesh.Run(receives, Later())), HasSubstr("aborted"));
  Transfer from_mesh[] = {Receive(0, received)};
  EXPECT_THAT(Message(peer.Run(from_mesh, Later())),
              HasSubstr("rank 0: received 0 of 4 bytes: it closed"));
}

}  // namespace
}  // namespace neuroshard

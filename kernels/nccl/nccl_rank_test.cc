#include "kernels/nccl/nccl_rank.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using testing::StatusIs;

// What the library of the test answers: NCCL's functions have no place for an object.
struct FakeNccl {
  ncclResult_t init = ncclInProgress;
  bool gives_handle = true;
  int polls_until_ready = 3;  // of CommGetAsyncError, from each call on
  ncclResult_t ready = ncclSuccess;
  std::atomic<int> polls = 0;
  int aborts = 0;
  int blocking = -1;
  ncclComm_t* place = nullptr;  // of the handle; NCCL's thread that connects reads it
};
FakeNccl* fake = nullptr;

ncclComm_t Handle() { return reinterpret_cast<ncclComm_t>(fake); }

class NcclRankTest : public ::testing::Test {
 protected:
  NcclRankTest() {
    fake = &fake_;
    library_->CommInitRankConfig = [](ncclComm_t* handle, int, ncclUniqueId, int,
                                      ncclConfig_t* config) {
      fake->blocking = config->blocking;
      fake->place = handle;
      if (fake->gives_handle) *handle = Handle();
      return fake->init;
    };
    library_->CommGetAsyncError = [](ncclComm_t handle, ncclResult_t* state) {
      EXPECT_EQ(handle, Handle());
      *state = ++fake->polls < fake->polls_until_ready ? ncclInProgress : fake->ready;
      return ncclSuccess;
    };
    library_->CommAbort = [](ncclComm_t handle) {
      EXPECT_EQ(handle, Handle());
      EXPECT_EQ(*fake->place, Handle()) << "until NCCL has ended";
      ++fake->aborts;
      return ncclSuccess;
    };
    library_->GetErrorString = [](ncclResult_t) { return "in words"; };
    library_->GetLastError = [](ncclComm_t) { return "Duplicate GPU detected"; };
  }

  NcclRank Rank(milliseconds timeout) { return {library_, {1, 2, timeout}}; }

  FakeNccl fake_;
  std::shared_ptr<NcclLibrary> library_ = std::make_shared<NcclLibrary>();
};

TEST_F(NcclRankTest, WaitsUntilNcclHasItUnderWayAndThenUntilItIsDone) {
  {
    NcclRank rank = Rank(milliseconds(20000));
    ASSERT_TRUE(rank.Connect({}).ok());
    EXPECT_EQ(fake_.polls, 3);
    EXPECT_EQ(fake_.blocking, 0);
    EXPECT_EQ(rank.handle(), Handle());

    fake_.polls = 0;
    int asked = 0;
    const Status finished = rank.Finish(
        "summing", [] { return ncclInProgress; },
        [&]() -> StatusOr<bool> {
          EXPECT_GE(fake_.polls, 3) << "asked before NCCL had it under way";
          return ++asked == 2;
        });
    EXPECT_TRUE(finished.ok()) << finished;
    EXPECT_EQ(asked, 2);
  }
  EXPECT_EQ(fake_.aborts, 1) << "the end of a rank frees what NCCL has";
}

TEST_F(NcclRankTest, ErrorsQuoteNcclAndEndTheRank) {
  struct Failure {
    ncclResult_t init, ready;
    bool gives_handle;
  };
  for (const Failure& failure : {Failure{ncclInvalidUsage, ncclSuccess, false},       // at once
                                 Failure{ncclInProgress, ncclInvalidUsage, true}}) {  // later
    fake_.init = failure.init;
    fake_.ready = failure.ready;
    fake_.gives_handle = failure.gives_handle;
    fake_.polls = fake_.aborts = 0;
    NcclRank rank = Rank(milliseconds(20000));
    const Status connected = rank.Connect({});
    EXPECT_THAT(connected, StatusIs(absl::StatusCode::kAborted, HasSubstr("Duplicate GPU")));
    EXPECT_THAT(Message(connected), HasSubstr("rank 1 in a group of 2"));
    EXPECT_EQ(fake_.aborts, failure.gives_handle ? 1 : 0);
    EXPECT_EQ(rank.Finish(
                  "summing", [] { return ncclSuccess; }, [] { return true; }),
              connected);
  }
}

TEST_F(NcclRankTest, AnErrorWhileTheDeviceWorksEndsTheRank) {
  NcclRank rank = Rank(milliseconds(20000));
  ASSERT_TRUE(rank.Connect({}).ok());
  int gave_up = 0;
  const Status finished = rank.Finish(
      "summing", [] { return ncclSuccess; },
      []() -> StatusOr<bool> {
        fake->ready = ncclRemoteError;  // the peer died
        return false;
      },
      [&] {
        EXPECT_EQ(fake_.aborts, gave_up++) << "aborting waits for what its kernel waits for";
      });
  EXPECT_THAT(finished, StatusIs(absl::StatusCode::kAborted, HasSubstr("in words")));
  EXPECT_EQ(gave_up, 1);
  EXPECT_EQ(fake_.aborts, 1);
  EXPECT_EQ(rank.handle(), nullptr);
}

TEST_F(NcclRankTest, ASilentPeerEndsTheRankAfterTheTimeout) {
  fake_.polls_until_ready = 1 << 30;
  NcclRank rank = Rank(milliseconds(20));
  EXPECT_THAT(rank.Connect({}), StatusIs(absl::StatusCode::kAborted, HasSubstr("within 20 ms")));
  EXPECT_EQ(fake_.aborts, 1);
}

TEST_F(NcclRankTest, AbortEndsAWaitFromAnotherThreadAndWhatFollows) {
  fake_.polls_until_ready = 1 << 30;
  NcclRank rank = Rank(milliseconds(600000));
  std::jthread aborting([&] {
    while (fake_.polls < 10) std::this_thread::yield();
    rank.Abort();
  });
  EXPECT_THAT(rank.Connect({}), StatusIs(absl::StatusCode::kAborted, HasSubstr("aborted")));
  EXPECT_EQ(fake_.aborts, 1);

  NcclRank before = Rank(milliseconds(600000));
  before.Abort();
  EXPECT_THAT(before.Connect({}), StatusIs(absl::StatusCode::kAborted));
  EXPECT_EQ(before.handle(), nullptr) << "not even begun";
}

// A machine with NCCL and without a GPU will do.
TEST(NcclLibraryTest, HasAllThatIsUsedOrSaysWhatIsMissing) {
  const auto library = NcclLibrary::Load();
  if (!library.ok()) {
    EXPECT_THAT(library, StatusIs(absl::StatusCode::kUnavailable, HasSubstr("NCCL")));
    GTEST_SKIP() << "SKIPPED, NOT TESTED: " << library.status();
  }
  EXPECT_THAT((*library)->Version(), ::testing::StartsWith("2."));
}

std::vector<char> UniqueIdOf(const char* socket, std::size_t offset) {
  std::vector<char> bytes(128);
  const SocketAddress address = ParseSocketAddress(socket).value();
  std::memcpy(bytes.data() + offset, &address.storage, address.length);
  return bytes;
}

TEST(CheckUniqueIdTest, TheSocketMustBeInTheNetworks) {
  const std::vector<IpNetwork> networks = {*IpNetwork::Parse("10.0.0.0/8"),
                                           *IpNetwork::Parse("fd00::/8")};
  for (const std::size_t offset : {0, 8}) {
    EXPECT_TRUE(CheckUniqueId(UniqueIdOf("10.1.2.3:80", offset), networks).ok());
    EXPECT_TRUE(CheckUniqueId(UniqueIdOf("[fd00::1]:80", offset), networks).ok());
    for (const char* address : {"10.1.2.3:80", "[fd00::1]:80"}) {
      EXPECT_EQ(ToText(AddressesInUniqueId(UniqueIdOf(address, offset)).front()), address);
    }
    EXPECT_THAT(
        Message(CheckUniqueId(UniqueIdOf("192.0.2.1:80", offset), networks)),
        ::testing::AllOf(::testing::HasSubstr("192.0.2.1:80"), ::testing::HasSubstr("10.0.0.0/8")));
    EXPECT_FALSE(CheckUniqueId(UniqueIdOf("[fe80::1]:80", offset), networks).ok());
  }
  // Whichever of the two places NCCL reads.
  std::vector<char> both = UniqueIdOf("10.1.2.3:80", 8);
  const std::vector<char> forged = UniqueIdOf("192.0.2.1:80", 0);
  std::copy_n(forged.begin(), 8, both.begin());
  EXPECT_FALSE(CheckUniqueId(both, networks).ok());
  EXPECT_FALSE(CheckUniqueId(std::vector<char>(128), networks).ok());
  EXPECT_TRUE(AddressesInUniqueId(std::vector<char>(128)).empty());
}

}  // namespace
}  // namespace neuroshard

#include "client/validate/validation.h"

#include <gmock/gmock.h>

#include <sstream>

#include "tests/support/fake_worker.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using testing::FakeWorker;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

class ValidationTest : public ::testing::Test {
 protected:
  ValidationTest() {
    request_.topology.devices.assign(2, Device{0, 1'000'000});
    request_.global_batch_size = 64;
    MeasuredShard shard;
    shard.rows = 100;
    shard.cols = 8;
    ranks_ = {{{shard}, 8}, {{shard}, 8}};
  }

  StatusOr<ValidationReport> Run(const std::vector<std::string>& workers,
                                 const StopSignal& stop = NeverStop()) {
    ValidationOptions options;
    options.workers = workers;
    ProgressDisplay display(notes_, clock_, DisplayMode::kLog);
    return Validate(request_, ranks_, options, stop, display);
  }

  PlanRequest request_;
  std::vector<RankShards> ranks_;
  SteadyClock clock_;
  std::ostringstream notes_;
};

// Stops once a worker has a group, that is, in the middle of the collectives.
class StopWithGroup final : public StopSignal {
 public:
  explicit StopWithGroup(const FakeWorker& worker) : worker_(worker) {}
  bool ShouldStop() const override { return worker_.groups_opened() > 0; }

 private:
  const FakeWorker& worker_;
};

TEST_F(ValidationTest, MeasuresEveryStageOfEveryRank) {
  FakeWorker a;
  FakeWorker b;
  const auto report = Run({a.address(), b.address()});
  ASSERT_THAT(report, IsOk());
  // The fake answers 1 + 2 ms compute and 1 ms for each collective.
  EXPECT_EQ(report->embedding_cost_ms(), 5.0);
  EXPECT_EQ(report->ranks[1].worker, b.address());
  EXPECT_THAT(notes_.str(), HasSubstr("compute of rank 1"));
}

TEST_F(ValidationTest, AStopEndsACollectiveAndClosesTheGroup) {
  FakeWorker a({.hangs = {"backward"}});
  FakeWorker b({.hangs = {"backward"}});
  EXPECT_THAT(Run({a.address(), b.address()}, StopWithGroup(a)),
              StatusIs(absl::StatusCode::kCancelled));
  EXPECT_EQ(a.open_groups(), 0);
  EXPECT_EQ(b.open_groups(), 0);
}

TEST_F(ValidationTest, AFailureOnOneDeviceEndsTheOthers) {
  FakeWorker broken({.breaks_always = {"rank-0"}});
  FakeWorker hanging({.hangs = {"rank-1"}});
  EXPECT_THAT(Run({broken.address(), hanging.address()}),
              StatusIs(absl::StatusCode::kInternal, HasSubstr(broken.address())));
}

}  // namespace
}  // namespace neuroshard

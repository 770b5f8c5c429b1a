#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/cli/testing/command_line_fixture.h"
#include "common/base/build_info.h"
#include "common/base/clock.h"
#include "common/store/profile_store.h"
#include "tests/support/fake_worker.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using testing::CommandLineTest;
using testing::FakeWorker;
using ::testing::HasSubstr;
using ::testing::Not;

class DoctorTest : public CommandLineTest {
 protected:
  DoctorTest() {
    planner_.models.set_server_version(BuildVersion());
    planner_.models.set_server_git_commit(BuildGitCommit());
    v1::CostModelSummary* model = planner_.models.add_models();
    model->set_name("cpu");
    model->set_version(4);
    model->set_kind("universal");
    model->set_is_default(true);
  }

  nlohmann::json Doctor(std::vector<std::string> more, int exit_code) {
    std::vector<std::string> arguments = {
        "doctor", "--planner", planner_.address(), "--format", "json", "--timeout-s", "20"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(Run(arguments), exit_code) << out_ << err_;
    const auto json = nlohmann::json::parse(out_);
    EXPECT_EQ(json["healthy"], exit_code == 0);
    return json["checks"];
  }
};

std::string MessagesOf(const nlohmann::json& checks, const std::string& check,
                       const std::string& status) {
  std::string all;
  for (const auto& entry : checks) {
    if (entry["check"] == check && entry["status"] == status) {
      all +=
          entry["message"].get<std::string>() + " -> " + entry["remedy"].get<std::string>() + '\n';
    }
  }
  return all;
}

TEST_F(DoctorTest, ASoundInstallationExitsWithZero) {
  FakeWorker worker;
  const std::string store = (folder_ / "store.db").string();
  ASSERT_TRUE(ProfileStore::Open(store, StoreMode::kReadWrite).ok());
  const auto checks = Doctor({"--workers", " " + worker.address() + " ", "--store", store}, 0);
  EXPECT_THAT(MessagesOf(checks, "planner", "ok"),
              HasSubstr("answers; 1 cost models, default cpu/4"));
  EXPECT_THAT(MessagesOf(checks, "worker", "ok"), HasSubstr("answers; 1 devices"));
  EXPECT_THAT(MessagesOf(checks, "store", "ok"), HasSubstr("is whole; 0 sweeps"));
  EXPECT_THAT(MessagesOf(checks, "store", "note"), HasSubstr("no measurements yet"));
  EXPECT_EQ(Run({"doctor", "--planner", planner_.address()}), 0);
  EXPECT_THAT(out_, AllOf(HasSubstr("ok"), HasSubstr("planner"), Not(HasSubstr("worker  127"))));
}

TEST_F(DoctorTest, FailuresSayWhatToDo) {
  EXPECT_EQ(Run({"doctor", "--planner", "127.0.0.1:1", "--workers", planner_.address(), "--store",
                 request_ + ",/nowhere/x.db", "--wide"}),
            1);
  EXPECT_THAT(out_, AllOf(HasSubstr("nothing listens there (Connection refused) -> start one"),
                          HasSubstr("no worker, or an older one"),
                          HasSubstr("request.yaml is not a profile store"),
                          HasSubstr("/nowhere/x.db"), HasSubstr("a sweep makes it")));
}

TEST_F(DoctorTest, APlannerWithTlsThatIsCalledWithoutIsNotToBeStarted) {
  planner_.failures = {grpc::Status(grpc::StatusCode::UNAVAILABLE, "Socket closed")};
  EXPECT_THAT(
      MessagesOf(Doctor({}, 1), "planner", "fail"),
      AllOf(HasSubstr("one of the two has TLS and the other has not"),
            HasSubstr("-> name who vouches for it with --tls-ca"), Not(HasSubstr("start one"))));
}

TEST_F(DoctorTest, AServerThatAnswersIsNotToBeStarted) {
  planner_.failures = {grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "needs the role read")};
  EXPECT_THAT(MessagesOf(Doctor({}, 1), "planner", "fail"),
              AllOf(HasSubstr("-> ask for the role"), Not(HasSubstr("start one"))));
  planner_.failures = {grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded")};
  EXPECT_THAT(MessagesOf(Doctor({}, 1), "planner", "fail"),
              AllOf(HasSubstr("does not answer: see its log"), Not(HasSubstr("start one"))));
}

TEST_F(DoctorTest, AServerThatEndedIsSaidPlainly) {
  planner_.failures = {grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                    "connections to all backends failing; last error: UNKNOWN: "
                                    "Failed to connect to remote host: Connection reset by peer")};
  EXPECT_THAT(MessagesOf(Doctor({}, 1), "planner", "fail"),
              AllOf(HasSubstr("the connection was closed: the server ended"),
                    Not(HasSubstr("all backends"))));
}

TEST_F(DoctorTest, OldVersionsWrongClocksAndRefusedModelsAreNamed) {
  planner_.models.set_server_version("0.0.1");
  planner_.models.set_now_unix_ms(UnixMillisecondsNow() - 60'000);
  v1::RefusedCostModel* refused = planner_.models.add_refused();
  refused->set_path("gpu/2");
  refused->set_reason("torn");
  EXPECT_THAT(MessagesOf(Doctor({}, 1), "planner", "fail"),
              AllOf(HasSubstr("is of version 0.0.1"), HasSubstr("s behind this host's"),
                    HasSubstr("refuses the model gpu/2: torn -> mend or remove")));
  planner_.models.Clear();
  EXPECT_THAT(MessagesOf(Doctor({}, 0), "planner", "note"),
              AllOf(HasSubstr("does not say its version"), HasSubstr("no measured cost model")));
}

}  // namespace
}  // namespace neuroshard

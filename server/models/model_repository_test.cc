#include "server/models/model_repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "server/networks/model_directory.h"
#include "server/networks/model_drift.h"
#include "server/networks/testing/model_fixture.h"
#include "tests/support/fake_cost_model.h"
#include "tests/support/random_plan_request.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::StatusIs;

CostModelInfo FakeInfo(const ModelManifest& manifest) {
  CostModelInfo info;
  info.name = manifest.name;
  info.version = manifest.version;
  info.details = manifest.provenance;
  info.drift = manifest.drift;
  info.digest = manifest.digest;
  return info;
}

class ModelRepositoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) /
            fmt::format("repository_{}",
                        ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::remove_all(root_);
    fs::create_directories(root_);
  }

  void AddModel(const std::string& name, int version) const {
    const auto directory =
        WriteModelFixture(root_, {.name = name, .version = version, .device_counts = {2}});
    ASSERT_TRUE(directory.ok()) << directory.status();
  }

  std::unique_ptr<ModelRepository> Open(const std::string& default_model = "") {
    auto repository = ModelRepository::Create(
        {root_, default_model, built_in_, accept_unusable_},
        [this](const ModelManifest& manifest,
               const fs::path& /*directory*/) -> StatusOr<std::shared_ptr<const CostModel>> {
          ++loads_;
          if (!loader_status_.ok()) return loader_status_;
          return std::make_shared<const ::neuroshard::testing::FakeCostModel>(FakeInfo(manifest));
        });
    EXPECT_TRUE(repository.ok()) << repository.status();
    return *std::move(repository);
  }

  // Appends a line to a model's manifest, as whoever knows of the list does.
  void Append(const std::string& key, const std::string& line) const {
    std::ofstream(root_ / key / "model.yaml", std::ios::app) << line << "\n";
    ASSERT_TRUE(WriteFileList(root_ / key).ok());
  }

  static std::string BytesOf(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void Write(const fs::path& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  static std::vector<std::string> Served(const ModelRepository& repository) {
    std::vector<std::string> served;
    for (const auto& model : repository.Current()->models()) {
      served.push_back(fmt::format("{}/{}", model->info().name, model->info().version));
    }
    return served;
  }

  fs::path root_;
  std::vector<std::shared_ptr<const CostModel>> built_in_;
  bool accept_unusable_ = false;
  std::atomic<int> loads_ = 0;
  Status loader_status_;
};

TEST_F(ModelRepositoryTest, ServesWhatIsThereByNameAndNumber) {
  AddModel("b", 10);
  AddModel("b", 9);
  AddModel("a", 1);
  const auto repository = Open();
  EXPECT_THAT(Served(*repository), ElementsAre("a/1", "b/9", "b/10"));
  EXPECT_THAT(repository->Current()->refused(), IsEmpty());
}

TEST_F(ModelRepositoryTest, FindsByNameVersionAndDefault) {
  AddModel("a", 1);
  AddModel("b", 9);
  AddModel("b", 10);
  const auto snapshot = Open("b")->Current();
  EXPECT_EQ((*snapshot->Find({}))->info().version, 10);
  EXPECT_EQ((*snapshot->Find({"", 9}))->info().version, 9);
  EXPECT_EQ((*snapshot->Find({"a", 0}))->info().name, "a");
  EXPECT_EQ((*snapshot->Find({"b", 9}))->info().version, 9);
}

TEST_F(ModelRepositoryTest, SaysWhatThereIsWhenNothingMatches) {
  const auto refusal = [](const ModelSnapshot& snapshot, const CostModelRef& ref) {
    const Status status = snapshot.Find(ref).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    return Message(status);
  };
  const auto repository = Open();
  EXPECT_THAT(refusal(*repository->Current(), {}), HasSubstr("no cost model is loaded"));
  EXPECT_THAT(refusal(*repository->Current(), {"a", 0}), HasSubstr("no cost model is loaded"));

  AddModel("a", 1);
  repository->Reload();
  EXPECT_EQ((*repository->Current()->Find({}))->info().name, "a");  // the only name

  AddModel("b", 2);
  repository->Reload();
  EXPECT_EQ((*repository->Current()->Find({}))->info().name, "a");  // still
  EXPECT_THAT(refusal(*Open()->Current(), {}), HasSubstr("name one of a, b"));
  EXPECT_THAT(refusal(*repository->Current(), {"c", 0}),
              HasSubstr("no cost model c; there is a version 1, b version 2"));
  AddModel("long-name", 1);
  repository->Reload();
  EXPECT_THAT(refusal(*repository->Current(), {"logn-name", 0}),
              HasSubstr("; did you mean long-name?"));
  EXPECT_THAT(refusal(*repository->Current(), {"b", 1}), HasSubstr("no cost model b version 1;"));
}

TEST_F(ModelRepositoryTest, ABuiltInModelIsAlwaysThereAndStandsInForNoneAtAll) {
  ModelManifest manifest;
  manifest.name = "formulas";
  manifest.version = 1;
  built_in_ = {std::make_shared<const ::neuroshard::testing::FakeCostModel>(FakeInfo(manifest))};
  const auto repository = Open();
  EXPECT_THAT(Served(*repository), ElementsAre("formulas/1"));
  EXPECT_EQ((*repository->Current()->Find({}))->info().name, "formulas");
  EXPECT_FALSE(repository->Current()->Find({"a", 0}).ok());

  AddModel("a", 1);
  AddModel("formulas", 2);
  repository->Reload();
  EXPECT_THAT(Served(*repository), ElementsAre("a/1", "formulas/1"));
  EXPECT_EQ((*repository->Current()->Find({}))->info().name, "a");
  EXPECT_EQ((*repository->Current()->Find({"formulas", 0}))->info().version, 1);
  EXPECT_EQ(repository->Current()->loaded().size(), 1U);
  ASSERT_EQ(repository->Current()->refused().size(), 1U);
  EXPECT_THAT(repository->Current()->refused()[0].reason,
              HasSubstr("the name formulas belongs to a model that is built in"));

  // Nor does it stand in for a default that is gone.
  fs::remove_all(root_ / "a");
  repository->Reload();
  EXPECT_FALSE(repository->Current()->Find({}).ok());
}

TEST_F(ModelRepositoryTest, ADefaultThatVanishesGivesItsPlaceToNoOtherName) {
  AddModel("cpu", 1);
  const auto repository = Open();
  AddModel("h100", 1);
  repository->Reload();
  EXPECT_EQ((*repository->Current()->Find({}))->info().name, "cpu");
  // Away for one reading, as when it is replaced by two renames.
  fs::rename(root_ / "cpu", root_ / "cpu~");
  repository->Reload();
  EXPECT_THAT(
      repository->Current()->Find({}),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr(
                   "no cost model cpu; there is h100 version 1; requests that name none get cpu")));
  fs::rename(root_ / "cpu~", root_ / "cpu");
  repository->Reload();
  EXPECT_EQ((*repository->Current()->Find({}))->info().name, "cpu");
}

TEST_F(ModelRepositoryTest, ReloadsOnlyWhatChanged) {
  AddModel("a", 1);
  AddModel("a", 2);
  const auto repository = Open();
  EXPECT_EQ(loads_, 2);
  EXPECT_FALSE(repository->Reload().changed());
  EXPECT_EQ(loads_, 2);

  Append("a/2", "");
  const ReloadReport report = repository->Reload();
  EXPECT_THAT(report.loaded, ElementsAre("a/2"));
  EXPECT_EQ(loads_, 3);

  AddModel("a", 3);
  EXPECT_THAT(repository->Reload().loaded, ElementsAre("a/3"));
  EXPECT_THAT(Served(*repository), ElementsAre("a/1", "a/2", "a/3"));
}

TEST_F(ModelRepositoryTest, ASnapshotOutlivesWhatHappensToTheDisk) {
  AddModel("a", 1);
  const auto repository = Open();
  const auto before = repository->Current();
  fs::remove_all(root_ / "a");

  const ReloadReport report = repository->Reload();

  EXPECT_THAT(report.removed, ElementsAre("a/1"));
  EXPECT_THAT(Served(*repository), IsEmpty());
  EXPECT_EQ((*before->Find({"a", 1}))->info().name, "a");
}

TEST_F(ModelRepositoryTest, AStatedDefaultThatIsNotThereIsAnErrorThatSaysWhatThereIs) {
  AddModel("a", 1);
  AddModel("a", 3);
  const auto refusal = [this](const std::string& default_model) {
    return Message(
        ModelRepository::Create({root_, default_model, {}}, [](const ModelManifest& manifest,
                                                               const fs::path&) {
          return std::make_shared<const ::neuroshard::testing::FakeCostModel>(FakeInfo(manifest));
        }).status());
  };
  EXPECT_THAT(refusal("b"), HasSubstr("models.default: no cost model b; there is a version 1"));
  EXPECT_THAT(refusal("a/2"), HasSubstr("models.default: no cost model a version 2"));
  EXPECT_THAT(refusal("a/x"), HasSubstr("must be NAME or NAME/VERSION"));
  EXPECT_EQ(refusal("a/1"), "");
}

TEST_F(ModelRepositoryTest, APinnedDefaultStaysWhateverLands) {
  AddModel("a", 1);
  const auto repository = Open("a/1");
  AddModel("a", 2);
  ASSERT_TRUE(WriteModelChannel(root_ / "a", {2}).ok());
  repository->Reload();
  EXPECT_EQ((*repository->Current()->Find({}))->info().version, 1);
  EXPECT_EQ((*repository->Current()->Find({"a", 0}))->info().version, 1);
  EXPECT_EQ((*repository->Current()->Find({"a", 2}))->info().version, 2);
}

TEST_F(ModelRepositoryTest, AChannelSaysWhichVersionServesAndComesIntoForceWhenItIsThere) {
  AddModel("a", 1);
  ASSERT_TRUE(WriteModelChannel(root_ / "a", {1}).ok());
  const auto repository = Open();
  const auto serving = [&] { return (*repository->Current()->Find({}))->info().version; };
  AddModel("a", 2);
  EXPECT_THAT(repository->Reload().channels, IsEmpty());
  EXPECT_EQ(serving(), 1);

  // Its versions may come later: until then it is refused, with the reason.
  ASSERT_TRUE(WriteModelChannel(root_ / "a", {2, StagedVersion{3, 0.5}}).ok());
  ReloadReport report = repository->Reload();
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_EQ(report.refused[0].directory, "a/channel.yaml");
  EXPECT_THAT(report.refused[0].reason, HasSubstr("there is no version 3 here"));
  EXPECT_TRUE(report.refused[0].previous_content_serving);
  EXPECT_EQ(repository->Current()->refused(), report.refused);
  EXPECT_EQ(serving(), 1);
  EXPECT_FALSE(repository->Reload().changed());

  // A version that this replica cannot load is not there either.
  AddModel("a", 3);
  Append("a/3", "colour: red");
  report = repository->Reload();
  ASSERT_EQ(report.refused.size(), 2U);
  EXPECT_THAT(report.refused[1].reason, HasSubstr("version 3 is not served: "));
  EXPECT_THAT(report.refused[1].reason, HasSubstr("colour: unknown key"));
  EXPECT_EQ(serving(), 1);

  fs::remove_all(root_ / "a" / "3");
  AddModel("a", 3);
  report = repository->Reload();
  EXPECT_EQ(report.channels.at("a"), "version 2, version 3 for 50% of the requests");
  EXPECT_EQ(serving(), 2);
  EXPECT_THAT(repository->Current()->refused(), IsEmpty());
  const auto info = [](int version) {
    CostModelInfo of;
    of.name = "a";
    of.version = version;
    return of;
  };
  EXPECT_EQ(repository->Current()->ShareOf(info(1)), 0);
  EXPECT_EQ(repository->Current()->ShareOf(info(2)), 0.5);
  EXPECT_EQ(repository->Current()->ShareOf(info(3)), 0.5);

  // A faulty file leaves things as they are; no file is the newest version.
  std::ofstream(root_ / "a/channel.yaml") << "version: 1";
  report = repository->Reload();
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_THAT(report.refused[0].reason, HasSubstr("format"));
  EXPECT_EQ(serving(), 2);
  fs::remove(root_ / "a/channel.yaml");
  EXPECT_EQ(repository->Reload().channels.at("a"), "newest version");
  EXPECT_EQ(serving(), 3);
  EXPECT_THAT(repository->Current()->refused(), IsEmpty());
}

TEST_F(ModelRepositoryTest, AtTheStartAChannelThatCannotBeObeyedServesNobody) {
  AddModel("a", 1);
  ASSERT_TRUE(WriteModelChannel(root_ / "a", {2}).ok());
  const auto repository = Open();
  Status refusal = repository->Current()->Find({}).status();
  EXPECT_THAT(Message(refusal),
              HasSubstr("no cost model a version 2, which requests without a version get"));
  EXPECT_TRUE(repository->Current()->Find({"a", 1}).ok());
  AddModel("a", 2);
  repository->Reload();
  EXPECT_EQ((*repository->Current()->Find({}))->info().version, 2);
  std::ofstream(root_ / "a/channel.yaml") << "version: 1";
  EXPECT_THAT(Message(Open()->Current()->Find({}).status()),
              HasSubstr("(channel.yaml is refused)"));
}

TEST_F(ModelRepositoryTest, AFirstChannelThatCannotBeObeyedTakesNothingAway) {
  AddModel("a", 1);
  const auto repository = Open();
  ASSERT_TRUE(WriteModelChannel(root_ / "a", {2}).ok());
  ReloadReport report = repository->Reload();
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_TRUE(report.refused[0].previous_content_serving);
  EXPECT_THAT(report.channels, IsEmpty());
  EXPECT_EQ((*repository->Current()->Find({}))->info().version, 1);

  std::ofstream(root_ / "a/channel.yaml") << "version: 1";
  report = repository->Reload();
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_TRUE(report.refused[0].previous_content_serving);
  EXPECT_EQ((*repository->Current()->Find({}))->info().version, 1);

  AddModel("a", 2);
  ASSERT_TRUE(WriteModelChannel(root_ / "a", {2}).ok());
  report = repository->Reload();
  EXPECT_EQ(report.channels.at("a"), "version 2");
  EXPECT_EQ((*repository->Current()->Find({}))->info().version, 2);
}

TEST_F(ModelRepositoryTest, ARolloutTakesItsShareOfRequestsAndGrowingItMovesNoneBack) {
  AddModel("a", 1);
  AddModel("a", 2);
  constexpr int kRequests = 2000;
  std::vector<PlanRequest> requests;
  ::neuroshard::Random random(20);
  for (int i = 0; i < kRequests; ++i) {
    requests.push_back(::neuroshard::testing::RandomPlanRequest(random));
    requests.back().search.seed = i;
  }
  const auto repository = Open();
  std::vector<bool> before(requests.size(), false);
  for (const double share : {0.0, 0.01, 0.1, 0.5, 0.9, 1.0}) {
    ASSERT_TRUE(WriteModelChannel(root_ / "a", {1, StagedVersion{2, share}}).ok());
    repository->Reload();
    const auto replica = Open("a");
    int taken = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto found = repository->Current()->FindFor(requests[i]);
      ASSERT_TRUE(found.ok()) << found.status();
      const bool staged = found->front()->info().version == 2;
      EXPECT_TRUE(staged || !before[i]);
      before[i] = staged;
      taken += staged ? 1 : 0;
      // Another replica, and the same request under another name of its own.
      requests[i].request_id += "again";
      EXPECT_EQ((*replica->Current()->FindFor(requests[i])).front()->info().version,
                staged ? 2 : 1);
    }
    // Five standard deviations of a binomial.
    EXPECT_NEAR(taken, share * kRequests, 5 * std::sqrt(kRequests * share * (1 - share)));
  }
  // Whoever names a version gets it, and questions without tables are not staged.
  requests[0].cost_model = {"a", 1};
  EXPECT_EQ((*repository->Current()->FindFor(requests[0])).front()->info().version, 1);
  EXPECT_EQ((*repository->Current()->FindFor({})).front()->info().version, 1);
}

// A version beside the root, whose files are copied into it one by one, each in parts, in every
// order.
TEST_F(ModelRepositoryTest, WhatIsBeingCopiedIsNeverServedWhateverComesLast) {
  const fs::path source = root_.string() + ".source";
  fs::remove_all(source);
  ASSERT_TRUE(WriteModelFixture(source, {.name = "a", .version = 2, .device_counts = {2}}).ok());
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(source / "a/2")) {
    names.push_back(file.path().filename());
  }
  AddModel("a", 1);
  const auto repository = Open();
  const fs::path target = root_ / "a/2";
  for (const std::string& last : names) {
    for (const std::string& last_but_one : names) {
      if (last == last_but_one) continue;
      std::vector<std::string> order = names;
      std::stable_partition(order.begin(), order.end(), [&](const std::string& name) {
        return name != last && name != last_but_one;
      });
      if (order.back() != last) std::swap(order.back(), order[order.size() - 2]);
      fs::create_directories(target);
      for (const std::string& name : order) {
        const std::string bytes = BytesOf(source / "a/2" / name);
        for (const std::size_t part : {0, 1, 2, 3, 4, 5}) {  // of six
          Write(target / name, bytes.substr(0, bytes.size() * part / 6));
          repository->Reload();
          repository->Reload();  // nor does it wait for long enough
          EXPECT_THAT(Served(*repository), ElementsAre("a/1")) << name << " at " << part;
        }
        Write(target / name, bytes);
      }
      EXPECT_THAT(repository->Reload().loaded, ElementsAre("a/2")) << last;
      fs::remove_all(target);
      repository->Reload();
    }
  }
  // A planner that starts in between does not take it either.
  fs::copy(source / "a/2", target);
  const std::string bytes = BytesOf(target / "model.yaml");
  for (const std::size_t part : {1, 2, 3}) {
    Write(target / "model.yaml", bytes.substr(0, bytes.size() * part / 3));
    EXPECT_EQ(Served(*Open()).size(), part == 3 ? 2U : 1U);
  }
  fs::remove_all(source);
}

TEST_F(ModelRepositoryTest, AVersionOfBeforeThereWereListsIsServedOnceItStays) {
  AddModel("a", 1);
  const auto repository = Open();
  AddModel("a", 2);
  fs::remove(root_ / "a/2/files.sha256");
  EXPECT_TRUE(repository->Reload().loaded.empty()) << "its format needs the list";
  EXPECT_THAT(repository->Current()->refused()[0].reason, HasSubstr("files.sha256: there is none"));
  std::string text = BytesOf(root_ / "a/2/model.yaml");
  text.replace(text.find("cost-model/2"), 12, "cost-model/1");
  Write(root_ / "a/2/model.yaml", text.substr(0, text.size() - 2));
  repository->Reload();
  EXPECT_THAT(repository->Current()->refused()[0].reason, HasSubstr("it is cut"));
  Write(root_ / "a/2/model.yaml", text);
  EXPECT_TRUE(repository->Reload().loaded.empty());
  EXPECT_THAT(repository->Reload().loaded, ElementsAre("a/2"));
  EXPECT_FALSE(repository->Reload().changed());
  EXPECT_THAT(Served(*Open()), ElementsAre("a/1", "a/2")) << "also at the start";
  EXPECT_EQ((*repository->Current()->Find({"a", 2}))->info().digest.size(), 64U);
}

TEST_F(ModelRepositoryTest, OtherContentUnderTheSameVersionIsSaidAndHasAnotherDigest) {
  AddModel("a", 1);
  const auto repository = Open();
  const std::string before = (*repository->Current()->Find({"a", 1}))->info().digest;
  EXPECT_EQ((*Open()->Current()->Find({"a", 1}))->info().digest, before) << "on another replica";
  fs::last_write_time(root_ / "a/1/model.yaml", fs::file_time_type::clock::now());
  ReloadReport report = repository->Reload();
  EXPECT_THAT(report.loaded, ElementsAre("a/1"));
  EXPECT_THAT(report.changed_content, IsEmpty()) << "the same content, touched";
  ASSERT_TRUE(WriteModelDrift(root_ / "a/1", {{"compute", 4, 1, 1, 1, "x", "y"}}).ok());
  EXPECT_THAT(repository->Reload().changed_content, IsEmpty()) << "drift.yaml comes later";

  Append("a/1", "quality: {usable: true}");
  report = repository->Reload();
  ASSERT_EQ(report.changed_content.size(), 1U);
  EXPECT_EQ(report.changed_content[0].model, "a/1");
  EXPECT_EQ(report.changed_content[0].before, before);
  EXPECT_EQ((*repository->Current()->Find({"a", 1}))->info().digest, report.changed_content[0].now);

  // Also where it was away for a reading.
  fs::rename(root_ / "a/1", root_ / "a/1.tmp");
  EXPECT_THAT(repository->Reload().removed, ElementsAre("a/1"));
  AddModel("a", 1);
  EXPECT_EQ(repository->Reload().changed_content.size(), 1U);
}

TEST_F(ModelRepositoryTest, ServingAVersionWritesTheChannelThatTheNextReloadObeys) {
  AddModel("a", 1);
  AddModel("a", 2);
  const auto repository = Open();
  EXPECT_THAT(repository->Serve("a", 2, 0.5), StatusIs(absl::StatusCode::kFailedPrecondition,
                                                       HasSubstr("say first which one keeps")));
  ASSERT_TRUE(repository->Serve("a", 1, std::nullopt).ok());
  EXPECT_EQ(repository->Serve("a", 2, 0.25)->ToText(),
            "version 1, version 2 for 25% of the requests");
  EXPECT_EQ(repository->Reload().channels.at("a"), "version 1, version 2 for 25% of the requests");
  EXPECT_THAT(repository->Serve("a", 1, 0.5), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(repository->Serve("a", 3, 0.5),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("there is a version 1")));
  EXPECT_THAT(repository->Serve("../a", 1, 0.5), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(Open("a/1")->Serve("a", 2, std::nullopt),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("models.default")));
}

TEST_F(ModelRepositoryTest, BadContentIsRefusedAndTheGoodOneKeepsServing) {
  AddModel("a", 1);
  const auto repository = Open();
  const auto good = *repository->Current()->Find({"a", 1});

  Append("a/1", "colour: red");
  const ReloadReport report = repository->Reload();
  ASSERT_EQ(report.refused.size(), 1U);
  EXPECT_EQ(report.refused[0].directory, "a/1");
  EXPECT_THAT(report.refused[0].reason, HasSubstr("colour: unknown key"));
  EXPECT_TRUE(report.refused[0].previous_content_serving);
  EXPECT_EQ(*repository->Current()->Find({"a", 1}), good);
  EXPECT_EQ(repository->Current()->refused(), report.refused);
  EXPECT_FALSE(repository->Reload().changed());  // said once
  EXPECT_EQ(repository->Current()->refused(), report.refused);

  fs::remove_all(root_ / "a" / "1");
  AddModel("a", 1);
  EXPECT_THAT(repository->Reload().loaded, ElementsAre("a/1"));
  EXPECT_THAT(repository->Current()->refused(), IsEmpty());
  EXPECT_NE(*repository->Current()->Find({"a", 1}), good);
}

TEST_F(ModelRepositoryTest, WhatIsMarkedUnusableIsRefusedUnlessToldOtherwise) {
  AddModel("m", 1);
  Append("m/1", "quality: {usable: false, reason: held-out tau 0.31}");
  const auto refusing = Open()->Current();
  EXPECT_THAT(refusing->models(), IsEmpty());
  ASSERT_EQ(refusing->refused().size(), 1u);
  EXPECT_THAT(refusing->refused()[0].reason, HasSubstr("held-out tau 0.31"));
  EXPECT_THAT(refusing->refused()[0].reason, HasSubstr("accept_unusable"));
  accept_unusable_ = true;
  EXPECT_EQ(Open()->Current()->models().size(), 1u);
}

TEST_F(ModelRepositoryTest, ANewDriftFileIsReadAtTheNextReload) {
  AddModel("m", 1);
  const auto repository = Open();
  ASSERT_TRUE(
      WriteModelDrift(root_ / "m/1", {{"compute", 4, 1.5, 1, 2, "yesterday", "today"}}).ok());
  EXPECT_THAT(repository->Reload().loaded, ElementsAre("m/1"));
  const auto drift = repository->Current()->models()[0]->info().drift;
  ASSERT_EQ(drift.size(), 1u);
  EXPECT_EQ(drift[0].median_ratio, 1.5);
}

TEST_F(ModelRepositoryTest, ANewBadModelDisturbsNobody) {
  AddModel("a", 1);
  fs::create_directories(root_ / "a" / "2");
  fs::create_directories(root_ / "a" / "v3");
  fs::create_directories(root_ / "a" / "04");
  const auto repository = Open();
  EXPECT_THAT(Served(*repository), ElementsAre("a/1"));
  const auto refused = repository->Current()->refused();
  ASSERT_EQ(refused.size(), 3U);
  EXPECT_THAT(refused[0].reason, HasSubstr("04: a version's directory must be a positive integer"));
  EXPECT_THAT(refused[1].reason, HasSubstr("2/model.yaml: open: No such file"));
  EXPECT_THAT(refused[2].reason, HasSubstr("v3: a version's directory must be"));
  EXPECT_FALSE(refused[1].previous_content_serving);
  EXPECT_EQ((*repository->Current()->Find({"a", 0}))->info().version, 1);
}

TEST_F(ModelRepositoryTest, WhatIsSaidIsUtf8WhateverTheNames) {
  fs::create_directories(root_ / "a\xFF\nb" / "x\x80");
  AddModel("a", 1);
  Append("a/1", "colour: \xFE");
  const auto refused = Open()->Current()->refused();
  ASSERT_EQ(refused.size(), 2U);
  EXPECT_THAT(refused[0].reason, HasSubstr("not UTF-8"));
  EXPECT_EQ(refused[1].directory, "a??b/x?");
  EXPECT_THAT(refused[1].reason, HasSubstr("a??b/x?: a version's directory must be"));
}

TEST_F(ModelRepositoryTest, PassesOverWhatIsNoModel) {
  AddModel("a", 1);
  fs::create_directories(root_ / ".git" / "1");
  fs::create_directories(root_ / "a" / ".2.123.tmp");
  fs::create_directories(root_ / "a" / "3.tmp");
  fs::create_directories(root_ / "old~" / "1");
  std::ofstream(root_ / "README.md") << "about the models";
  std::ofstream(root_ / "a" / "notes") << "about a";
  const auto repository = Open();
  EXPECT_THAT(Served(*repository), ElementsAre("a/1"));
  EXPECT_THAT(repository->Current()->refused(), IsEmpty());
}

TEST_F(ModelRepositoryTest, FaultsOfFilesWaitForAChangeOthersAreTriedAgain) {
  AddModel("a", 1);
  loader_status_ = InvalidArgument("bad tensor");
  const auto repository = Open();
  EXPECT_EQ(loads_, 1);
  repository->Reload();
  EXPECT_EQ(loads_, 1);

  loader_status_ = Unavailable("disk busy");
  Append("a/1", "");
  EXPECT_THAT(repository->Reload().refused, ::testing::SizeIs(1));
  EXPECT_EQ(loads_, 2);
  loader_status_ = absl::OkStatus();
  EXPECT_THAT(repository->Reload().loaded, ElementsAre("a/1"));
  EXPECT_EQ(loads_, 3);
}

TEST_F(ModelRepositoryTest, AMissingRootIsAnErrorAtFirstAndLaterChangesNothing) {
  EXPECT_TRUE(
      absl::IsNotFound(ModelRepository::Create({root_ / "absent", "", {}}, nullptr).status()));
  AddModel("a", 1);
  const auto repository = Open();
  fs::rename(root_, root_.string() + ".away");
  const ReloadReport report = repository->Reload();
  EXPECT_THAT(Message(report.root_status), HasSubstr(root_.string()));
  EXPECT_THAT(Served(*repository), ElementsAre("a/1"));
  fs::remove_all(root_.string() + ".away");
}

TEST_F(ModelRepositoryTest, ReadersAndReloadsRunTogether) {
  AddModel("a", 1);
  AddModel("b", 1);
  const auto repository = Open();
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      while (!done) {
        const auto snapshot = repository->Current();
        EXPECT_TRUE(snapshot->Find({"a", 1}).ok());
        for (const auto& model : snapshot->models()) EXPECT_EQ(model->info().version, 1);
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    Append("a/1", "");
    repository->Reload();
    if (i == 10) fs::remove_all(root_ / "b");
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_THAT(Served(*repository), ElementsAre("a/1"));
}

// Which models may price a request that names none, by the devices that it names.
class ModelsForDevicesTest : public ModelRepositoryTest {
 protected:
  // How a model prices communication: as measured, as measured and as steps of a trainer have it, by
  // published figures, or not at all.
  enum class Comm { kMeasured, kSteps, kFabric, kNone };

  void AddModelOf(const std::string& name, int version, const std::string& device,
                  Comm comm = Comm::kMeasured) {
    devices_[name] = {device, comm};
    AddModel(name, version);
  }

  std::unique_ptr<ModelRepository> OpenWithFormulas(const std::string& default_model = "") {
    CostModelInfo formulas;
    formulas.name = "analytic";
    formulas.version = 1;
    formulas.kind = kAnalyticKind;
    auto repository = ModelRepository::Create(
        {root_,
         default_model,
         {std::make_shared<const ::neuroshard::testing::FakeCostModel>(formulas)}},
        [this](const ModelManifest& manifest,
               const fs::path&) -> StatusOr<std::shared_ptr<const CostModel>> {
          CostModelInfo info = FakeInfo(manifest);
          info.measured_with.device = devices_[manifest.name].first;
          info.coverage.num_devices.clear();
          const Comm comm = devices_[manifest.name].second;
          if (comm != Comm::kNone) info.coverage.max_ranks = 64;
          if (comm == Comm::kFabric) info.coverage.comm_fabric = "links";
          if (comm == Comm::kSteps) info.properties.measured_steps = MeasuredSteps{{StepRates{2}}};
          return std::make_shared<const ::neuroshard::testing::FakeCostModel>(info);
        });
    EXPECT_TRUE(repository.ok()) << repository.status();
    return *std::move(repository);
  }

  static std::vector<std::string> Candidates(const ModelRepository& repository,
                                             const std::string& device,
                                             const CostModelRef& ref = {},
                                             std::optional<ComputeDevice> kind = std::nullopt) {
    PlanRequest request;
    request.cost_model = ref;
    request.topology.devices = {{0, 1, device}};
    request.topology.compute_device = kind;
    request.tables.resize(1);
    const auto found = repository.Current()->FindFor(request);
    if (!found.ok()) return {Message(found.status())};
    std::vector<std::string> names;
    for (const auto& model : *found) {
      names.push_back(fmt::format("{}/{}", model->info().name, model->info().version));
    }
    return names;
  }

  static std::string Default(const ModelRepository& repository) {
    const auto found = repository.Current()->Find({});
    return found.ok() ? (*found)->info().name : Message(found.status());
  }

  std::map<std::string, std::pair<std::string, Comm>> devices_;
};

TEST_F(ModelsForDevicesTest, TheOnlyNameWhoseCommunicationWasMeasuredIsTheDefault) {
  AddModelOf("a-card", 1, "NVIDIA H100 80GB HBM3", Comm::kFabric);
  EXPECT_EQ(Default(*OpenWithFormulas()), "a-card");  // the only one at all
  AddModelOf("b-card", 1, "NVIDIA A100-SXM4-80GB", Comm::kNone);
  EXPECT_THAT(Default(*OpenWithFormulas()), HasSubstr("name one of a-card, b-card"));
  AddModelOf("cpu", 3, "AMD EPYC");
  const auto repository = OpenWithFormulas();
  EXPECT_EQ(Default(*repository), "cpu");
  EXPECT_THAT(Candidates(*repository, "h100-sxm"), ElementsAre("a-card/1", "analytic/1"));
  EXPECT_THAT(Candidates(*repository, "", {}, ComputeDevice::kCpu),
              ElementsAre("cpu/3", "analytic/1"));
  for (const auto kind : {std::optional<ComputeDevice>(), std::optional(ComputeDevice::kCuda)}) {
    EXPECT_THAT(Candidates(*repository, "", {}, kind), ElementsAre("analytic/1"));
  }
  AddModelOf("more", 1, "NVIDIA A100-SXM4-80GB");
  EXPECT_THAT(Default(*OpenWithFormulas()), HasSubstr("name one of a-card, b-card, cpu, more"));
  EXPECT_EQ(Default(*OpenWithFormulas("a-card")), "a-card");
}

// What prices the steps of one trainer is for those who ask for it.
TEST_F(ModelsForDevicesTest, RatesOfStepsCountWhereNothingElseWasMeasured) {
  AddModelOf("a-job", 1, "AMD EPYC", Comm::kSteps);
  EXPECT_EQ(Default(*OpenWithFormulas()), "a-job");
  AddModelOf("cpu", 3, "AMD EPYC");
  AddModelOf("z-job", 1, "AMD EPYC", Comm::kSteps);
  const auto repository = OpenWithFormulas();
  EXPECT_EQ(Default(*repository), "cpu");
  EXPECT_THAT(Candidates(*repository, "", {}, ComputeDevice::kCpu),
              ElementsAre("cpu/3", "analytic/1"));
  EXPECT_THAT(Candidates(*repository, "", {"a-job", 0}, ComputeDevice::kCpu),
              ElementsAre("a-job/1"));
}

// What cannot be read may be the default that others rely on.
TEST_F(ModelsForDevicesTest, ARefusedNameCountsWhereNoneIsKnownToHaveMeasuredCommunication) {
  fs::create_directories(root_ / "cpu/1");
  std::ofstream(root_ / "cpu/1/model.yaml") << "cut";
  AddModelOf("card", 1, "NVIDIA H100 80GB HBM3", Comm::kFabric);
  const auto repository = OpenWithFormulas();
  EXPECT_THAT(repository->Current()->refused(), SizeIs(1));
  EXPECT_THAT(Default(*repository), HasSubstr("name one of card"));
  EXPECT_THAT(Candidates(*repository, "", {}, ComputeDevice::kCuda), ElementsAre("analytic/1"));
  fs::remove_all(root_ / "cpu");
  AddModelOf("cpu", 1, "AMD EPYC");
  repository->Reload();
  EXPECT_EQ(Default(*repository), "cpu");
  fs::create_directories(root_ / "other/1");
  std::ofstream(root_ / "other/1/model.yaml") << "cut";
  EXPECT_EQ(Default(*OpenWithFormulas()), "cpu");
}

TEST_F(ModelsForDevicesTest, ARunningPlannersDefaultStaysWhateverComes) {
  AddModelOf("cpu", 1, "AMD EPYC");
  AddModelOf("card", 1, "NVIDIA H100 80GB HBM3", Comm::kFabric);
  const auto repository = OpenWithFormulas();
  AddModelOf("other", 1, "NVIDIA A100-SXM4-80GB");
  repository->Reload();
  EXPECT_EQ(Default(*repository), "cpu");
  fs::remove_all(root_ / "cpu");
  repository->Reload();
  EXPECT_THAT(Default(*repository), HasSubstr("requests that name none get cpu"));
  // Nor does one whose communication was measured take the place of an only one.
  fs::remove_all(root_ / "other");
  const auto of_card = OpenWithFormulas();
  AddModelOf("other", 1, "NVIDIA A100-SXM4-80GB");
  of_card->Reload();
  EXPECT_EQ(Default(*of_card), "card");
}

TEST_F(ModelsForDevicesTest, MeasuredOnesComeBeforeTheFormulas) {
  AddModelOf("cpu", 1, "AMD EPYC");
  AddModelOf("a-compute", 1, "NVIDIA H100 80GB HBM3", Comm::kNone);
  AddModelOf("b", 1, "NVIDIA H100 80GB HBM3");
  AddModelOf("b", 2, "NVIDIA H100 80GB HBM3");
  AddModelOf("c", 1, "NVIDIA H100 80GB HBM3");
  EXPECT_THAT(Candidates(*OpenWithFormulas(), "h100-sxm"),
              ElementsAre("b/2", "c/1", "a-compute/1", "analytic/1"));
  EXPECT_THAT(Candidates(*OpenWithFormulas("c"), "h100-sxm"),
              ElementsAre("c/1", "b/2", "a-compute/1", "analytic/1"));
}

TEST_F(ModelsForDevicesTest, AChannelChoosesAmongTheVersionsOfItsName) {
  AddModelOf("b", 1, "NVIDIA H100 80GB HBM3");
  AddModelOf("b", 2, "NVIDIA H100 80GB HBM3");
  ASSERT_TRUE(WriteModelChannel(root_ / "b", {1}).ok());
  EXPECT_THAT(Candidates(*OpenWithFormulas(), "h100-sxm"), ElementsAre("b/1", "analytic/1"));
  ASSERT_TRUE(WriteModelChannel(root_ / "b", {1, StagedVersion{2, 1}}).ok());
  EXPECT_THAT(Candidates(*OpenWithFormulas(), "h100-sxm"), ElementsAre("b/2", "analytic/1"));
}

TEST_F(ModelsForDevicesTest, OneMeasuredOnSomethingElseIsTakenByNameAlone) {
  AddModelOf("cpu", 1, "AMD EPYC");
  const auto repository = OpenWithFormulas("cpu");
  EXPECT_THAT(Candidates(*repository, "h100-sxm"), ElementsAre("analytic/1"));
  EXPECT_THAT(Candidates(*repository, "h100-sxm", {"cpu", 0}), ElementsAre("cpu/1"));
  // Its operator says what requests are that say nothing.
  EXPECT_THAT(Candidates(*repository, ""), ElementsAre("cpu/1"));
  EXPECT_THAT(Candidates(*Open("cpu"), "h100-sxm"),
              ElementsAre(HasSubstr("no cost model was measured on h100-sxm; there is cpu")));
}

TEST_F(ModelsForDevicesTest, AStatedDefaultThatIsGoneIsMissed) {
  AddModelOf("cpu", 1, "AMD EPYC");
  AddModelOf("other", 1, "AMD EPYC");
  const auto unstated = OpenWithFormulas();
  const auto repository = OpenWithFormulas("cpu");
  EXPECT_EQ(repository->Current()->MissingDefault(), "");
  fs::remove_all(root_ / "cpu");
  repository->Reload();
  unstated->Reload();
  // Its requests get another one.
  EXPECT_THAT(Candidates(*repository, "", {}, ComputeDevice::kCpu),
              ElementsAre("other/1", "analytic/1"));
  EXPECT_THAT(repository->Current()->MissingDefault(), HasSubstr("no cost model cpu"));
  EXPECT_EQ(unstated->Current()->MissingDefault(), "");
}

TEST_F(ModelsForDevicesTest, ACpusModelAnswersCpusAlone) {
  AddModelOf("cpu", 1, "AMD EPYC");
  AddModelOf("cpu", 4, "AMD EPYC");
  for (const std::string stated : {"", "cpu", "cpu/4"}) {
    const auto repository = OpenWithFormulas(stated);
    const auto answer = [&](const std::string& device, std::optional<ComputeDevice> kind) {
      return Candidates(*repository, device, {}, kind).front();
    };
    EXPECT_EQ(answer("", ComputeDevice::kCpu), "cpu/4");
    EXPECT_EQ(answer("", ComputeDevice::kCuda), "analytic/1");
    EXPECT_EQ(answer("h100-sxm", std::nullopt), "analytic/1");
    EXPECT_EQ(answer("h100-sxm", ComputeDevice::kCuda), "analytic/1");
    EXPECT_EQ(answer("", std::nullopt), stated.empty() ? "analytic/1" : "cpu/4");
    // By name, and by a version, which is the default's.
    EXPECT_THAT(Candidates(*repository, "", {"cpu", 1}, ComputeDevice::kCuda),
                ElementsAre("cpu/1"));
    EXPECT_THAT(Candidates(*repository, "", {"", 1}), ElementsAre("cpu/1"));
  }
  // A question without a topology asks the model itself.
  EXPECT_EQ((*OpenWithFormulas()->Current()->FindFor({})).front()->info().name, "cpu");
}

TEST_F(ModelsForDevicesTest, AModelOfGpusAnswersThoseThatHaveNoName) {
  AddModelOf("b", 1, "NVIDIA H100 80GB HBM3");
  const auto kind = [this](const ModelRepository& repository, ComputeDevice of) {
    return Candidates(repository, "", {}, of);
  };
  const auto alone = OpenWithFormulas();
  EXPECT_THAT(kind(*alone, ComputeDevice::kCuda), ElementsAre("b/1", "analytic/1"));
  EXPECT_THAT(kind(*alone, ComputeDevice::kCpu), ElementsAre("analytic/1"));
  EXPECT_THAT(Candidates(*alone, ""), ElementsAre("b/1"));
  EXPECT_THAT(Candidates(*alone, "a100-sxm-80gb", {}, ComputeDevice::kCuda),
              ElementsAre("analytic/1"));

  // Beside others it may be of another card than the request's, unless its operator says so.
  AddModelOf("cpu", 1, "AMD EPYC");
  for (const std::string stated : {"", "cpu", "b"}) {
    const auto repository = OpenWithFormulas(stated);
    EXPECT_EQ(kind(*repository, ComputeDevice::kCuda).front(),
              stated == "b" ? "b/1" : "analytic/1");
    EXPECT_THAT(kind(*repository, ComputeDevice::kCpu), ElementsAre("cpu/1", "analytic/1"));
  }
}

// What a model does not state contradicts nobody who states nothing either.
TEST_F(ModelsForDevicesTest, AModelThatDoesNotSayWhatItWasMeasuredOnAnswersWhoSaysNothing) {
  AddModelOf("m", 1, "");
  for (const std::string stated : {"", "m"}) {
    const auto repository = OpenWithFormulas(stated);
    EXPECT_THAT(Candidates(*repository, ""), ElementsAre("m/1"));
    EXPECT_THAT(Candidates(*repository, "", {}, ComputeDevice::kCuda), ElementsAre("analytic/1"));
    EXPECT_THAT(Candidates(*repository, "", {}, ComputeDevice::kCpu), ElementsAre("analytic/1"));
  }
}

}  // namespace
}  // namespace neuroshard

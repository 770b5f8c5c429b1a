#include "common/rpc/server_security.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "neuroshard/v1/planner.grpc.pb.h"
#include "neuroshard/v1/worker.grpc.pb.h"
#include "tests/support/faulty_fields.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using ::testing::UnorderedElementsAre;

// By recursion, in exponential time.
bool MatchesSlowly(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern[0] == '*') {
    return MatchesSlowly(pattern.substr(1), text) ||
           (!text.empty() && MatchesSlowly(pattern, text.substr(1)));
  }
  return !text.empty() && text[0] == pattern[0] && MatchesSlowly(pattern.substr(1), text.substr(1));
}

TEST(MatchesPatternTest, AsByItsDefinition) {
  EXPECT_TRUE(MatchesPattern("spiffe://a/*", "spiffe://a/trainer/1"));
  EXPECT_FALSE(MatchesPattern("spiffe://a/*", "spiffe://b/trainer"));
  EXPECT_FALSE(MatchesPattern("", "a"));
  Random random(1);
  const auto word = [&random](std::string_view letters, int most) {
    std::string text;
    for (auto left = random.Between(0, most); left > 0; --left) {
      text += letters[static_cast<std::size_t>(
          random.Between(0, static_cast<std::int64_t>(letters.size()) - 1))];
    }
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::string pattern = word("ab*", 7);
    const std::string text = word("ab", 8);
    EXPECT_EQ(MatchesPattern(pattern, text), MatchesSlowly(pattern, text))
        << pattern << ' ' << text;
  }
}

ServerTls SomeRoles() {
  ServerTls tls;
  tls.roles = {{CallerRole::kRead, {"dashboard-*"}},
               {CallerRole::kPlan, {"spiffe://x/train/*"}},
               {CallerRole::kProfile, {"operator"}},
               {CallerRole::kAdmin, {"root"}}};
  return tls;
}

// Every method of both services against every role.
TEST(CheckRoleTest, DeniesWhatIsNotAllowed) {
  const ServerTls tls = SomeRoles();
  const auto roles_of = [&](const std::string& path) {
    std::string allowed;
    for (const std::string name : {"dashboard-1", "spiffe://x/train/7", "operator", "root", "x"}) {
      allowed += CheckRole(tls, path, {"other", name}).ok() ? '1' : '0';
    }
    return allowed;
  };
  for (const auto* service :
       {v1::PlannerService::service_full_name(), v1::WorkerService::service_full_name()}) {
    const auto* const descriptor =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service);
    const bool planner = std::string(service) == v1::PlannerService::service_full_name();
    for (int i = 0; i < descriptor->method_count(); ++i) {
      const std::string& method = descriptor->method(i)->name();
      const bool read = method == "ListCostModels" || method == "GetCostModel" ||
                        method == "ListDevices" || method == "GetWorkerInfo";
      const std::string rest = method == "ServeModel" ? "00" : planner ? "10" : "01";
      const std::string expected = std::string(read ? "1" : "0") + rest + "10";
      EXPECT_EQ(roles_of(fmt::format("/{}/{}", service, method)), expected) << method;
    }
  }
  EXPECT_EQ(roles_of("/grpc.health.v1.Health/Check"), "11111");
  EXPECT_EQ(roles_of("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"), "00010");
  EXPECT_EQ(roles_of("/neuroshard.v2.PlannerService/ShardPlan"), "00010");
  EXPECT_EQ(roles_of("/neuroshard.v1.PlannerService/ListCostModelsX"), "01010");
  EXPECT_EQ(roles_of(""), "00010");
  EXPECT_THAT(CheckRole(tls, "/neuroshard.v1.PlannerService/ShardPlan", {"operator"}),
              StatusIs(absl::StatusCode::kPermissionDenied,
                       AllOf(HasSubstr("needs the role plan or admin"), HasSubstr("operator"))));
  EXPECT_THAT(
      CheckRole({}, "/neuroshard.v1.PlannerService/ShardPlan", {}),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("without alternative names")));
}

TEST(ServerTlsTest, IsReadWithAllItsFaults) {
  NS_ASSERT_OK_AND_ASSIGN(
      ConfigReader good,
      ConfigReader::FromText(
          "{certificate: a, key: b, client_ca: c, reload_s: 5, roles: {plan: ['x*', y]}}", "f"));
  const ServerTls tls = ReadServerTls(good);
  EXPECT_THAT(good.Finish(), IsOk());
  EXPECT_EQ(tls.files.certificate + tls.files.key + tls.files.client_ca, "abc");
  EXPECT_EQ(tls.roles.at(CallerRole::kPlan), (std::vector<std::string>{"x*", "y"}));

  NS_ASSERT_OK_AND_ASSIGN(
      ConfigReader bad,
      ConfigReader::FromText("{certificate: a, reload_s: 0, roles: {planner: [x], read: y}}", ""));
  ReadServerTls(bad);
  EXPECT_THAT(FaultyFields(bad.Finish()),
              UnorderedElementsAre("key", "client_ca", "reload_s", "roles.planner", "roles.read"));
}

TEST(ReadTlsMaterialTest, NamesEveryFileThatCannotBeUsed) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/not.pem") << "nothing\n";
  ServerTls tls = SomeRoles();
  tls.files.certificate = folder + "/none.pem";
  tls.files.key = folder + "/not.pem";
  tls.files.client_ca = folder + "/not.pem";
  const Status files = ReadTlsMaterial(tls.files).status();
  EXPECT_THAT(FaultyFields(files),
              UnorderedElementsAre("tls.certificate", "tls.key", "tls.client_ca"));
  EXPECT_THAT(Message(files), AllOf(HasSubstr("cannot read"), HasSubstr("no private key")));
  tls.files.client_ca = folder;  // opens, and cannot be read
  EXPECT_THAT(Message(ReadTlsMaterial(tls.files).status()),
              HasSubstr("tls.client_ca: cannot read " + folder));
}

// At every 29th byte, and at all where a certificate ends and another one begins: only the end of
// one, with or without its line's, ends a file.
TEST(ReadTlsMaterialTest, AChainIsWholeOrSaidToBeCut) {
  const std::string folder = ::testing::TempDir() + "tls";
  ASSERT_EQ(std::system((NEUROSHARD_SOURCE_DIR "/deploy/make_dev_certs.sh " + folder +
                         " a=DNS:a >/dev/null 2>&1")
                            .c_str()),
            0);
  const auto read = [&](const std::string& name) {
    std::ifstream file(folder + "/" + name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string first = read("a.pem");
  const std::string chain = first + read("ca.pem");
  ServerTls tls = SomeRoles();
  tls.files.certificate = folder + "/chain.pem";
  tls.files.key = folder + "/a.key";
  tls.files.client_ca = folder + "/ca.pem";
  for (std::size_t bytes = 0; bytes <= chain.size(); ++bytes) {
    const bool at_end =
        (bytes + 2 > first.size() && bytes < first.size() + 30) || bytes + 2 > chain.size();
    if (!at_end && bytes % 29 != 0) continue;
    std::ofstream(tls.files.certificate) << chain.substr(0, bytes);
    const bool whole =
        bytes + 1 == first.size() || bytes == first.size() || bytes + 1 >= chain.size();
    EXPECT_EQ(ReadTlsMaterial(tls.files).status().ok(), whole) << bytes << " of " << chain.size();
  }
}

}  // namespace
}  // namespace neuroshard

#include "common/rpc/call_identity.h"

#include <gmock/gmock.h>
#include <grpcpp/security/auth_context.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace neuroshard {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

constexpr char kTrace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// A certificate with these names.
class Certificate final : public grpc::AuthContext {
 public:
  using Names = std::map<std::string, std::vector<std::string>>;
  explicit Certificate(Names names) : names_(std::move(names)) {}
  bool IsPeerAuthenticated() const override { return !names_.empty(); }
  std::vector<grpc::string_ref> GetPeerIdentity() const override { return {}; }
  std::string GetPeerIdentityPropertyName() const override { return ""; }
  std::vector<grpc::string_ref> FindPropertyValues(const std::string& name) const override {
    const auto found = names_.find(name);
    if (found == names_.end()) return {};
    return {found->second.begin(), found->second.end()};
  }
  grpc::AuthPropertyIterator begin() const override { return NoProperty(); }
  grpc::AuthPropertyIterator end() const override { return NoProperty(); }
  void AddProperty(const std::string&, const grpc::string_ref&) override {}
  bool SetPeerIdentityPropertyName(const std::string&) override { return false; }

 private:
  struct NoProperty final : grpc::AuthPropertyIterator {};
  const Names names_;
};

TEST(CallIdentityTest, TakesTheIdsOfTheCaller) {
  const CallIdentity call =
      IdentifyCall({{kRequestIdKey, "r-1"}, {kTraceparentKey, kTrace}}, nullptr, "");
  EXPECT_EQ(call.request_id, "r-1");
  EXPECT_EQ(call.trace.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_NE(call.trace.parent_id, "b7ad6b7169203331");
  EXPECT_EQ(call.trace.flags, "01");
}

TEST(CallIdentityTest, MakesThemWhereTheyAreMissingWrongOrTwice) {
  for (const Metadata& metadata :
       {Metadata{}, Metadata{{kRequestIdKey, "a b"}, {kTraceparentKey, "00-x"}},
        Metadata{{kRequestIdKey, "a"},
                 {kRequestIdKey, "b"},
                 {kTraceparentKey, kTrace},
                 {kTraceparentKey, kTrace}}}) {
    const CallIdentity call = IdentifyCall(metadata, nullptr, "");
    EXPECT_THAT(call.request_id, MatchesRegex("[0-9a-f]+"));
    EXPECT_NE(call.trace.trace_id, "0af7651916cd43dd8448eb211c80319c");
    EXPECT_TRUE(ParseTraceparent(ToText(call.trace)).has_value());
  }
}

TEST(CallIdentityTest, ACallerIsItsCertificateElseItsAddress) {
  const auto caller = [](const grpc::AuthContext* auth, const std::string& peer) {
    return IdentifyCall({}, auth, peer).caller;
  };
  EXPECT_EQ(caller(nullptr, "ipv4:10.1.2.3:55"), "10.1.2.3");
  EXPECT_EQ(caller(nullptr, "ipv6:%5B::1%5D:55"), "::1");
  EXPECT_EQ(caller(nullptr, "ipv6:[fd00::2]:55"), "fd00::2");
  EXPECT_EQ(caller(nullptr, "unix:/tmp/socket"), "unix:/tmp/socket");
  EXPECT_EQ(caller(nullptr, ""), "");
  const Certificate none{Certificate::Names()};
  EXPECT_EQ(caller(&none, "ipv4:10.1.2.3:55"), "10.1.2.3");
  const Certificate both(Certificate::Names{
      {"x509_subject_alternative_name", {"spiffe://a/b", "c"}}, {"x509_common_name", {"d"}}});
  EXPECT_EQ(caller(&both, "ipv4:10.1.2.3:55"), "spiffe://a/b");
  const Certificate common(Certificate::Names{{"x509_common_name", {"d\n"}}});
  EXPECT_EQ(caller(&common, "ipv4:10.1.2.3:55"), "d?");
}

TEST(CallIdentityTest, IsInEveryLine) {
  std::ostringstream out;
  const CallIdentity call = IdentifyCall({{kRequestIdKey, "r-1"}}, nullptr, "ipv4:10.1.2.3:55");
  call.Log(*Logger::ToStream(&out)).Info("event", {{"a", 1}});
  EXPECT_THAT(out.str(), HasSubstr("event request_id=r-1 trace_id=" + call.trace.trace_id +
                                   " caller=10.1.2.3 peer=ipv4:10.1.2.3:55 a=1"));
}

}  // namespace
}  // namespace neuroshard

#include "common/rpc/callers.h"

#include <gmock/gmock.h>
#include <grpcpp/security/auth_context.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/failure_reason.h"
#include "common/rpc/status_mapping.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeClock;
using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::MatchesRegex;
using testing::StatusIs;

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

TEST(CallerQuotasTest, WithoutLimitsNothingIsRefusedOrRemembered) {
  const FakeClock clock;
  CallerQuotas quotas({}, clock);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_THAT(quotas.Admit(std::to_string(i)), IsOk());
    quotas.ChargeSearch("a", 1e6);
  }
  EXPECT_EQ(quotas.callers(), 0u);
}

TEST(CallerQuotasTest, ARefusalSaysWhichLimitAndWhenThereIsMore) {
  FakeClock clock;
  CallerQuotas quotas({.requests = 3, .window_s = 30}, clock);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(quotas.Admit("a"), IsOk());
  const Status refused = quotas.Admit("a");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("a has used its quota of 3 requests in 30 s")));
  EXPECT_EQ(ReasonOf(refused), FailureReason::kOverQuota);
  EXPECT_THAT(quotas.Admit("b"), IsOk());  // whose quota is its own
  ASSERT_EQ(RetryAfterOf(refused), milliseconds(10'000));
  clock.Advance(milliseconds(9'999));
  EXPECT_FALSE(quotas.Admit("a").ok());
  clock.Advance(milliseconds(1));
  EXPECT_THAT(quotas.Admit("a"), IsOk());
  EXPECT_FALSE(quotas.Admit("a").ok());
  clock.Advance(seconds(3000));  // no more than a whole bucket
  for (int i = 0; i < 3; ++i) EXPECT_THAT(quotas.Admit("a"), IsOk());
  EXPECT_FALSE(quotas.Admit("a").ok());
}

TEST(CallerQuotasTest, ASearchOnCreditHasToComeBack) {
  FakeClock clock;
  CallerQuotas quotas({.search_seconds = 10, .window_s = 60}, clock);
  EXPECT_THAT(quotas.Admit("a"), IsOk());
  quotas.ChargeSearch("a", 9.5);
  EXPECT_THAT(quotas.Admit("a"), IsOk());
  quotas.ChargeSearch("a", 10.5);  // 20 s used: 10 of them have to come back, 6 s each
  const Status refused = quotas.Admit("a");
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("quota of 10 seconds of search in 60 s")));
  EXPECT_EQ(RetryAfterOf(refused), milliseconds(60'000));
  clock.Advance(milliseconds(60'001));
  EXPECT_THAT(quotas.Admit("a"), IsOk());
}

// In any stretch of time a caller is admitted at most burst + rate * t, and whoever waits as told
// is admitted.
TEST(CallerQuotasTest, NeverMoreThanBurstAndRate) {
  std::mt19937 random(3);
  for (int round = 0; round < 40; ++round) {
    FakeClock clock;
    const std::int64_t burst = 1 + random() % 20;
    const std::int64_t window_s = 1 + random() % 100;
    CallerQuotas quotas({.requests = burst, .window_s = window_s, .max_callers = 4}, clock);
    std::map<std::string, std::vector<double>> admitted;  // when, in seconds
    double now = 0;
    for (int i = 0; i < 600; ++i) {
      const auto step = std::chrono::microseconds(random() % (2'000'000 * window_s / burst));
      if (random() % 3 != 0) {
        clock.Advance(step);
        now += std::chrono::duration<double>(step).count();
      }
      const std::string caller = std::to_string(random() % 3);
      const Status status = quotas.Admit(caller);
      if (status.ok()) {
        admitted[caller].push_back(now);
      } else if (random() % 4 == 0) {
        clock.Advance(*RetryAfterOf(status));
        now += std::chrono::duration<double>(*RetryAfterOf(status)).count();
        ASSERT_THAT(quotas.Admit(caller), IsOk());
        admitted[caller].push_back(now);
      }
    }
    const double rate = static_cast<double>(burst) / static_cast<double>(window_s);
    for (const auto& [caller, when] : admitted) {
      for (std::size_t from = 0; from < when.size(); ++from) {
        for (std::size_t to = from; to < when.size(); ++to) {
          ASSERT_LE(static_cast<double>(to - from + 1),
                    static_cast<double>(burst) + rate * (when[to] - when[from]) + 1e-6)
              << caller << " from " << when[from] << " to " << when[to];
        }
      }
    }
  }
}

TEST(CallerQuotasTest, ManyNamesTakeNoMoreMemoryAndGainNothing) {
  FakeClock clock;
  CallerQuotas quotas({.requests = 2, .window_s = 60, .max_callers = 100}, clock);
  int admitted = 0;
  for (int i = 0; i < 100'000; ++i)
    admitted += quotas.Admit("caller" + std::to_string(i)).ok() ? 1 : 0;
  EXPECT_EQ(quotas.callers(), 100u);
  EXPECT_EQ(admitted, 100 + 2);  // the others together have one quota
  EXPECT_THAT(quotas.Admit("caller0"), IsOk());
  EXPECT_FALSE(quotas.Admit("caller0").ok());
  clock.Advance(seconds(61));  // nobody is owed anything
  EXPECT_THAT(quotas.Admit("new"), IsOk());
  EXPECT_EQ(quotas.callers(), 1u);
}

TEST(CallerQuotasTest, ANetworkOfIpv6IsOneCaller) {
  FakeClock clock;
  CallerQuotas quotas({.requests = 1, .window_s = 60}, clock);
  EXPECT_THAT(quotas.Admit("2001:db8::1"), IsOk());
  EXPECT_FALSE(quotas.Admit("2001:db8::2").ok());
  EXPECT_THAT(quotas.Admit("2001:db8:0:1::2"), IsOk());
  EXPECT_THAT(quotas.Admit("10.0.0.1"), IsOk());
  EXPECT_THAT(quotas.Admit("10.0.0.2"), IsOk());
}

}  // namespace
}  // namespace neuroshard

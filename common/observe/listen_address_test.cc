#include "common/observe/listen_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace neuroshard {
namespace {

using ::neuroshard::testing::StatusIs;
using ::testing::HasSubstr;

TEST(ListenAddressTest, ReadsWhatItWrites) {
  for (const char* text : {"127.0.0.1:50051", "localhost:0", "[::1]:65535", "0.0.0.0:1",
                           "unix:/run/a.sock", "unix:/run/a:1"}) {
    NS_ASSERT_OK_AND_ASSIGN(const ListenAddress address, ParseListenAddress(text));
    EXPECT_EQ(ToText(address), text);
  }
}

TEST(ListenAddressTest, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"localhost", "no port"},
      {":50051", "no host"},
      {"a:65536", "[0, 65535]"},
      {"a:-1", "[0, 65535]"},
      {"::1:50051", "needs brackets"},
      {"a:80x", "[0, 65535]"},
      {"a:", "[0, 65535]"},
      {"", "no port"},
      {"unix:run/a.sock", "must be absolute"},
      {"unix:", "must be absolute"},
  };
  for (const auto& [text, why] : cases) {
    EXPECT_THAT(ParseListenAddress(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
        << text;
  }
}

TEST(ListenAddressTest, SaysHowLongThePathOfASocketMayBe) {
  EXPECT_TRUE(ParseListenAddress("unix:/" + std::string(106, 'a')).ok());
  EXPECT_THAT(
      ParseListenAddress("unix:/" + std::string(107, 'a')),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("107 bytes, and this has 108")));
}

TEST(ListenAddressTest, KnowsWhatOtherHostsReach) {
  EXPECT_EQ(*IsLoopback({"unix:/run/a.sock"}), true);
  for (const char* host : {"127.0.0.1", "127.1.2.3", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(*IsLoopback({host, 1}), true) << host;
  }
  for (const char* host : {"0.0.0.0", "::", "192.0.2.1", "128.0.0.1"}) {
    EXPECT_EQ(*IsLoopback({host, 1}), false) << host;
  }
  EXPECT_THAT(IsLoopback({"no.such.host.invalid", 1}), StatusIs(absl::StatusCode::kUnavailable));
}

TEST(ListenAddressTest, KnowsWhyNobodyCanListenThere) {
  // 192.0.2.0/24 is reserved for documentation: no machine has it.
  EXPECT_THAT(ListenOn({"192.0.2.1", 0}),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("Cannot assign requested")));
}

}  // namespace
}  // namespace neuroshard

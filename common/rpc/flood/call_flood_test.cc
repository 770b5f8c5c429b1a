#include "common/rpc/flood/call_flood.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace neuroshard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kMaxStreams = 100;

// Clients that begin calls, and a server that forgets some.
class CallFloodTest : public ::testing::Test {
 protected:
  void Begin(const std::string& client, int calls) {
    begun_by_[client] += calls;
    begun_ += calls;
  }
  void Forget(int calls) { forgotten_ += calls; }
  std::set<std::string> ClientsToReset() { return flood_.ClientsToReset(begun_by_.size()); }

  std::int64_t begun_ = 0;
  std::int64_t forgotten_ = 0;
  std::map<std::string, std::int64_t> begun_by_;
  CallFlood flood_{kMaxStreams,
                   {.begun = [this] { return begun_; },
                    .begun_by = [this] { return begun_by_; },
                    .forgotten = [this] { return forgotten_; }}};
};

TEST_F(CallFloodTest, ClientsWithinTheirStreamsAreNoFlood) {
  // More than kSpareCalls, from 200 clients that wait for their answers.
  for (int client = 0; client < 200; ++client) Begin(std::to_string(client), kMaxStreams);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(ClientsToReset(), IsEmpty());
  EXPECT_FALSE(flood_.is_flooded());
}

TEST_F(CallFloodTest, ConnectionsThatDoNothingAllowNoMoreThanTheMostCalls) {
  for (int client = 0; client < 4'000; ++client) begun_by_[std::to_string(client)] = 0;
  Begin("attacker", CallFlood::kMaxCalls);
  EXPECT_THAT(ClientsToReset(), IsEmpty());
  EXPECT_FALSE(flood_.is_flooded());
  Begin("attacker", 1'000);
  EXPECT_THAT(ClientsToReset(), IsEmpty());
  Begin("attacker", 1'000);
  EXPECT_THAT(ClientsToReset(), ElementsAre("attacker"));
}

TEST_F(CallFloodTest, ManyCallsThatAreForgottenAreNoFlood) {
  for (int i = 0; i < 100; ++i) {
    Begin("busy", 5'000);
    Forget(5'000);
    EXPECT_THAT(ClientsToReset(), IsEmpty());
  }
  EXPECT_FALSE(flood_.is_flooded());
}

TEST_F(CallFloodTest, WhoBeginsMostIsResetAndOthersAreNot) {
  Begin("trainer", 1'000'000);  // for weeks
  Forget(1'000'000);
  ClientsToReset();
  Begin("trainer", 50);
  Begin("attacker", 12'000);
  EXPECT_THAT(ClientsToReset(), IsEmpty());  // nothing to compare with yet
  EXPECT_TRUE(flood_.is_flooded());
  Begin("trainer", 50);
  Begin("attacker", 4'000);
  Begin("another", 2'500);
  Begin("slow one", 1'999);
  EXPECT_THAT(ClientsToReset(), ElementsAre("another", "attacker"));
}

TEST_F(CallFloodTest, EndsWhenItsCallsAreForgotten) {
  Begin("attacker", 20'000);
  ClientsToReset();
  ASSERT_TRUE(flood_.is_flooded());
  Forget(15'000);
  EXPECT_THAT(ClientsToReset(), IsEmpty());
  EXPECT_FALSE(flood_.is_flooded());
}

TEST_F(CallFloodTest, OnceTheAttackerIsGoneNobodyElseIsReset) {
  Begin("attacker", 30'000);
  ClientsToReset();
  Begin("attacker", 4'000);
  ASSERT_THAT(ClientsToReset(), ElementsAre("attacker"));
  begun_by_.erase("attacker");
  while (flood_.is_flooded()) {
    Begin("honest", 75);  // one after the other, 1,500 a second
    Forget(75);
    EXPECT_THAT(ClientsToReset(), IsEmpty());
  }
}

TEST_F(CallFloodTest, CallsWhoseEndNobodySeesDoNotAddUp) {
  // Malformed ones, 1,800 a second for a minute.
  for (int i = 0; i < 1'200; ++i) {
    Begin("malformed", 90);
    EXPECT_THAT(ClientsToReset(), IsEmpty());
  }
  EXPECT_EQ(flood_.open_calls(), 0);
}

TEST_F(CallFloodTest, AFloodOfCallsWhoseEndNobodySeesIsOverSoonAfterIt) {
  Begin("attacker", 100'000);
  ClientsToReset();
  int looks = 0;
  for (; flood_.is_flooded(); ++looks) {
    Begin("honest", 3);
    Forget(3);
    ClientsToReset();
  }
  EXPECT_LT(looks, 30);  // of 50 ms
}

TEST_F(CallFloodTest, WhatWasBeforeItDoesNotCount) {
  Begin("for weeks", 1'000'000);
  CallFlood late(kMaxStreams, {.begun = [this] { return begun_; },
                               .begun_by = [this] { return begun_by_; },
                               .forgotten = [] { return 0; }});
  EXPECT_THAT(late.ClientsToReset(1), IsEmpty());
  EXPECT_FALSE(late.is_flooded());
}

}  // namespace
}  // namespace neuroshard

#include "worker/process/device_messages.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <future>

namespace neuroshard {
namespace {

class MessageSocketTest : public ::testing::Test {
 protected:
  MessageSocketTest() {
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends_), 0);
    a_ = std::make_unique<MessageSocket>(FileDescriptor(ends_[0]));
    b_ = std::make_unique<MessageSocket>(FileDescriptor(ends_[1]));
  }
  int ends_[2];
  std::unique_ptr<MessageSocket> a_, b_;
};

TEST_F(MessageSocketTest, MessagesComeWholeAndInOrder) {
  const std::vector<std::string> messages = {"", "x", std::string(5'000'001, 'y'), "z"};
  auto sending = std::async(std::launch::async, [&] {
    for (const std::string& message : messages) EXPECT_TRUE(a_->Send(message).ok());
  });
  for (const std::string& message : messages) EXPECT_EQ(b_->Receive().value(), message);
}

TEST_F(MessageSocketTest, AnEndThatIsGoneIsUnavailable) {
  EXPECT_FALSE(b_->WaitForMessage(std::chrono::milliseconds(0)));
  a_.reset();
  EXPECT_TRUE(b_->WaitForMessage(std::chrono::milliseconds(0)));
  EXPECT_EQ(b_->Receive().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(b_->Send("x").code(), absl::StatusCode::kUnavailable);
}

TEST_F(MessageSocketTest, HalfAMessageAndHugeLengthsAreErrors) {
  ASSERT_EQ(write(ends_[0], "\xff\xff\xff\xff", 4), 4);
  EXPECT_EQ(b_->Receive().status().code(), absl::StatusCode::kInternal);
  ASSERT_EQ(write(ends_[0], "\x05\0\0\0abc", 7), 7);
  a_.reset();
  EXPECT_EQ(b_->Receive().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace neuroshard

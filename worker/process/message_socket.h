// Messages over a socket pair: the length in four bytes, the lowest first, then the bytes.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "common/base/mutex.h"
#include "common/base/status.h"

namespace neuroshard {

// One end. Sending and receiving may go on at the same time, and several may send.
class MessageSocket {
 public:
  // The longest message; the records of the longest series take a hundredth of it.
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

  // Owns the descriptor.
  explicit MessageSocket(int fd) : fd_(fd) {}
  ~MessageSocket();
  MessageSocket(const MessageSocket&) = delete;
  MessageSocket& operator=(const MessageSocket&) = delete;

  // Blocks until the other end's buffer has it. UNAVAILABLE when the other end is gone.
  Status Send(const std::string& message);
  // UNAVAILABLE when the other end is gone, INTERNAL when what comes is no message.
  StatusOr<std::string> Receive();
  // Whether Receive has something to say; false after `wait`.
  bool WaitForMessage(std::chrono::milliseconds wait) const;

 private:
  Status ReceiveBytes(char* bytes, std::size_t count);

  const int fd_;
  Mutex send_mutex_;
};

}  // namespace neuroshard

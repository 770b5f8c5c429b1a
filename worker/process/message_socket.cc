#include "worker/process/message_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace neuroshard {
namespace {

constexpr std::size_t kLengthBytes = 4;
// A message is read as it comes, so that a wrong length costs no memory.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

}  // namespace

MessageSocket::~MessageSocket() { close(fd_); }

Status MessageSocket::Send(const std::string& message) {
  if (message.size() > kMaxBytes) {
    return Internal("a message has {} bytes, at most {} are sent", message.size(), kMaxBytes);
  }
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes.push_back(static_cast<char>(message.size() >> 8 * i & 0xff));
  }
  bytes += message;
  const MutexLock lock(send_mutex_);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t count = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Unavailable("the other end is gone: {}", std::strerror(errno));
    sent += static_cast<std::size_t>(count);
  }
  return absl::OkStatus();
}

StatusOr<std::string> MessageSocket::Receive() {
  unsigned char length[kLengthBytes];
  NS_RETURN_IF_ERROR(ReceiveBytes(reinterpret_cast<char*>(length), sizeof length));
  std::size_t missing = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) missing |= std::size_t{length[i]} << 8 * i;
  if (missing > kMaxBytes) {
    return Internal("a message of {} bytes was announced, at most {} are taken", missing,
                    kMaxBytes);
  }
  std::string message;
  while (missing > 0) {
    const std::size_t piece = std::min(missing, kPieceBytes);
    message.resize(message.size() + piece);
    NS_RETURN_IF_ERROR(ReceiveBytes(message.data() + message.size() - piece, piece));
    missing -= piece;
  }
  return message;
}

Status MessageSocket::ReceiveBytes(char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t received = recv(fd_, bytes, count, 0);
    if (received < 0 && errno == EINTR) continue;
    if (received <= 0) return Unavailable("the other end is gone");
    bytes += received;
    count -= static_cast<std::size_t>(received);
  }
  return absl::OkStatus();
}

bool MessageSocket::WaitForMessage(std::chrono::milliseconds wait) const {
  pollfd readable{fd_, POLLIN, 0};
  return poll(&readable, 1, static_cast<int>(wait.count())) > 0;
}

}  // namespace neuroshard

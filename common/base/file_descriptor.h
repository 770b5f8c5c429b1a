// Descriptors of open files and sockets.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

namespace neuroshard {

// A descriptor that closes itself; below 0: none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~FileDescriptor() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  // As close(2), which tells whether a file system took everything; 0 where there is none.
  int Close() { return open() ? ::close(Release()) : 0; }

 private:
  int fd_;
};

// Writes all bytes, however many calls that takes; false, with the reason in errno.
inline bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace neuroshard

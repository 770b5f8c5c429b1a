// SocketFd: a descriptor that is closed with its owner.
#pragma once

#include <unistd.h>

#include <utility>

namespace neuroshard {

class SocketFd {
 public:
  explicit SocketFd(int fd = -1) : fd_(fd) {}
  SocketFd(SocketFd&& other) noexcept : fd_(other.Release()) {}
  SocketFd& operator=(SocketFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = other.Release();
    }
    return *this;
  }
  ~SocketFd() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close() {
    if (open()) close(Release());
  }

 private:
  int fd_;
};

}  // namespace neuroshard

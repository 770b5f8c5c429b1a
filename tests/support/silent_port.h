// A port that takes connections and never says a word, as a stopped or overloaded server does.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "common/observe/listen_address.h"

namespace neuroshard::testing {

class SilentPort {
 public:
  SilentPort() {
    const auto socket = ListenOn({"127.0.0.1", 0});
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (socket.ok()) socket_ = *socket;
  }
  ~SilentPort() { close(socket_.fd); }
  SilentPort(const SilentPort&) = delete;
  SilentPort& operator=(const SilentPort&) = delete;

  std::string address() const { return ToText(socket_.address); }

 private:
  ListeningSocket socket_;
};

}  // namespace neuroshard::testing

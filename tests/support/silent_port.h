// A port that takes connections and never says a word, as a stopped or overloaded server does.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "common/observe/listen_address.h"

namespace neuroshard::testing {

class SilentPort {
 public:
  SilentPort() {
    auto socket = ListenOn({"127.0.0.1", 0});
    EXPECT_TRUE(socket.ok()) << socket.status();
    if (socket.ok()) socket_ = *std::move(socket);
  }

  std::string address() const { return ToText(socket_.address); }

 private:
  ListeningSocket socket_;
};

}  // namespace neuroshard::testing

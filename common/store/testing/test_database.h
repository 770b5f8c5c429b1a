// A database of its own for a test, in the PostgreSQL that tests/support/postgres_server.py starts.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "common/store/postgres_database.h"

namespace neuroshard {

// Lives as long as the server; tests of one run must have distinct names.
class TestDatabase {
 public:
  static bool Available() { return std::getenv("NEUROSHARD_TEST_POSTGRES") != nullptr; }

  explicit TestDatabase(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const std::string server = std::getenv("NEUROSHARD_TEST_POSTGRES");
    name.resize(std::min<std::size_t>(name.size(), 63));  // longer names are cut anyway
    const auto database = OpenPostgresDatabase(server, false, 10'000);
    const Status made =
        database.ok() ? (*database)->Execute("CREATE DATABASE " + name) : database.status();
    if (!made.ok()) throw std::runtime_error(made.ToString());
    address_ = server.substr(0, server.rfind('/') + 1) + name;
  }

  const std::string& address() const { return address_; }

 private:
  std::string address_;
};

}  // namespace neuroshard

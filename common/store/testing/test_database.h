// A database of its own for a test, in the PostgreSQL that tests/support/postgres_server.py starts.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <pqxx/pqxx>
#include <string>

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
    pqxx::connection connection(server);
    pqxx::nontransaction(connection).exec("CREATE DATABASE " + name);
    address_ = server.substr(0, server.rfind('/') + 1) + name;
  }

  const std::string& address() const { return address_; }

  // One value, as text; empty when there is none.
  std::string Query(const std::string& sql) const {
    pqxx::connection connection(address_);
    const pqxx::result rows = pqxx::nontransaction(connection).exec(sql);
    return rows.empty() || rows[0][0].is_null() ? std::string() : rows[0][0].c_str();
  }

 private:
  std::string address_;
};

}  // namespace neuroshard

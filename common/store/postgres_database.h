// PostgreSQL under a profile store. postgres_database.cc alone knows libpqxx; no_postgres_database.cc
// stands for it in builds that leave libpqxx out.
#pragma once

#include <memory>
#include <string>

#include "common/store/sql_database.h"

namespace neuroshard {

// Whether a store is named by an address (postgresql://...) rather than by a path.
inline bool IsPostgresAddress(const std::string& store) {
  return store.starts_with("postgresql://") || store.starts_with("postgres://");
}

// One connection. What is lost with it is found again: Recover connects anew. `address` is libpq's:
// postgresql://user@host:port/database?parameters. What it leaves out, libpq takes from its
// environment. One with a password is INVALID_ARGUMENT and is not repeated in the message: passwords
// belong in PGPASSFILE or PGPASSWORD. UNAVAILABLE: the server cannot be reached. UNIMPLEMENTED: this
// build has no PostgreSQL. A connection gives up on a silent network after about 30 s, and waits
// `lock_timeout_ms` for other transactions.
StatusOr<std::unique_ptr<SqlDatabase>> OpenPostgresDatabase(const std::string& address,
                                                            bool read_only, int lock_timeout_ms);

}  // namespace neuroshard

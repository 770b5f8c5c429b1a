#include "common/store/postgres_database.h"

namespace neuroshard {

// The address may hold a password, so it is not repeated.
StatusOr<std::unique_ptr<SqlDatabase>> OpenPostgresDatabase(const std::string& /*address*/,
                                                            bool /*read_only*/,
                                                            int /*lock_timeout_ms*/) {
  return absl::UnimplementedError(
      "this program was built without PostgreSQL (NEUROSHARD_CLIENT_ONLY); a store is a file here");
}

}  // namespace neuroshard

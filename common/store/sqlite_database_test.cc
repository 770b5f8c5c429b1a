#include "common/store/sqlite_database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>

namespace neuroshard {
namespace {

using Access = SqliteDatabase::Access;

class SqliteDatabaseTest : public testing::Test {
 protected:
  void SetUp() override { Remove(); }
  void TearDown() override { Remove(); }
  void Remove() const {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"})
      std::remove((path_ + suffix).c_str());
  }
  std::unique_ptr<SqliteDatabase> MustOpen(Access access = Access::kReadWrite) const {
    return *SqliteDatabase::Open(path_, access, /*busy_timeout_ms=*/20);
  }

  // Characters that a URI would take for something else.
  std::string path_ = testing::TempDir() + "sqlite 100%25?#" + std::to_string(getpid()) + ".db";
};

TEST_F(SqliteDatabaseTest, ValuesComeBack) {
  auto database = MustOpen();
  ASSERT_TRUE(database->Execute("CREATE TABLE t (i, r, s, n)").ok());
  const std::string text("a\0b", 3);
  ASSERT_TRUE(database
                  ->QueryOne("INSERT INTO t VALUES (?, ?, ?, ?)",
                             {std::int64_t{-1}, 0.1, text, std::nan("")})
                  .ok());

  int rows = 0;
  const auto read = [&](const SqlColumns& row) {
    ++rows;
    EXPECT_EQ(row.Integer(0), -1);
    EXPECT_EQ(row.Real(1), 0.1);
    EXPECT_EQ(row.Text(2), text);
    EXPECT_TRUE(row.IsNull(3) && std::isnan(row.Real(3)));
    return absl::OkStatus();
  };
  ASSERT_TRUE(database->Query("SELECT i, r, s, n FROM t", {}, read).ok());
  EXPECT_EQ(rows, 1);
}

TEST_F(SqliteDatabaseTest, AQueryEndsWithTheFirstRowThatItsVisitorFailsAt) {
  auto database = MustOpen();
  ASSERT_TRUE(database->Execute("CREATE TABLE t (i); INSERT INTO t VALUES (1), (2), (3)").ok());
  std::vector<std::int64_t> seen;
  const Status failed =
      database->Query("SELECT i FROM t ORDER BY i", {}, [&](const SqlColumns& row) {
        seen.push_back(row.Integer(0));
        return seen.size() < 2 ? absl::OkStatus() : absl::CancelledError("enough");
      });
  EXPECT_EQ(failed.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(seen, testing::ElementsAre(1, 2));
}

TEST_F(SqliteDatabaseTest, ATransactionThatIsNotCommittedNeverWas) {
  auto database = MustOpen();
  ASSERT_TRUE(database->Execute("CREATE TABLE t (i)").ok());
  {
    auto transaction = SqlTransaction::Begin(*database, TransactionKind::kWrite);
    ASSERT_TRUE(database->Execute("INSERT INTO t VALUES (1)").ok());
  }
  EXPECT_EQ(*database->QueryInteger("SELECT count(*) FROM t"), 0);
  auto transaction = SqlTransaction::Begin(*database, TransactionKind::kWrite);
  ASSERT_TRUE(database->Execute("INSERT INTO t VALUES (1)").ok());
  ASSERT_TRUE(transaction->Commit().ok());
  EXPECT_EQ(*database->QueryInteger("SELECT count(*) FROM t"), 1);
}

TEST_F(SqliteDatabaseTest, ASecondWriterIsToldWhoIsInTheWay) {
  auto first = MustOpen();
  auto second = MustOpen();
  const auto held = SqlTransaction::Begin(*first, TransactionKind::kWrite);
  ASSERT_TRUE(held.ok());
  const Status refused = SqlTransaction::Begin(*second, TransactionKind::kWrite).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(refused), testing::HasSubstr("another process is writing"));
}

TEST_F(SqliteDatabaseTest, ImmutableOpensTheSameFile) {
  ASSERT_TRUE(MustOpen()->Execute("CREATE TABLE t (i); INSERT INTO t VALUES (7)").ok());
  auto database = MustOpen(Access::kImmutable);
  EXPECT_EQ(*database->QueryInteger("SELECT i FROM t"), 7);
  EXPECT_FALSE(database->CanWrite());
  EXPECT_FALSE(database->Execute("INSERT INTO t VALUES (8)").ok());
}

TEST_F(SqliteDatabaseTest, BadSqlIsAStatus) {
  auto database = MustOpen();
  EXPECT_THAT(Message(database->QueryOne("SELECT x FROM nowhere").status()),
              testing::HasSubstr("nowhere"));
  EXPECT_FALSE(database->QueryInteger("SELECT 1 FROM nowhere").ok());
}

}  // namespace
}  // namespace neuroshard

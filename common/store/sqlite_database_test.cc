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
  const auto insert = *database->Prepare("INSERT INTO t VALUES (?, ?, ?, ?)");
  ASSERT_TRUE(insert->Bind(std::int64_t{-1}).Bind(0.1).Bind(text).Bind(std::nan("")).Run().ok());

  const auto row = *database->Prepare("SELECT i, r, s, n FROM t");
  ASSERT_TRUE(*row->Step());
  EXPECT_EQ(row->Integer(0), -1);
  EXPECT_EQ(row->Real(1), 0.1);
  EXPECT_EQ(row->Text(2), text);
  EXPECT_TRUE(row->IsNull(3) && std::isnan(row->Real(3)));
  EXPECT_FALSE(*row->Step());
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
  EXPECT_THAT(Message(database->Prepare("SELECT x FROM nowhere").status()),
              testing::HasSubstr("nowhere"));
  EXPECT_FALSE(database->QueryInteger("SELECT 1 FROM nowhere").ok());
}

}  // namespace
}  // namespace neuroshard

// What only a store in PostgreSQL has: an address, rights, and connections that break.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <optional>
#include <pqxx/pqxx>
#include <set>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "common/store/postgres_database.h"
#include "common/store/profile_store.h"
#include "common/store/testing/test_database.h"
#include "common/store/testing/test_samples.h"

namespace neuroshard {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(PostgresAddressTest, APasswordIsRefusedAndNeverRepeated) {
  for (const char* address :
       {"postgresql://me:swordfish@localhost:5432/db", "postgres://me:swordfish@localhost/db",
        "postgresql://localhost/db?password=swordfish", "postgresql://me:swordfish@[::1/db",
        "postgresql://me:swordfish@h:port:2/db?x=1", "postgresql://h/db?sslpassword=swordfish"}) {
    const Status status = ProfileStore::Open(address, StoreMode::kReadWrite).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << address;
    EXPECT_THAT(Message(status), Not(HasSubstr("swordfish")));
  }
}

TEST(PostgresAddressTest, AServerThatIsNotThereIsNamed) {
  const std::string address = "postgresql://me@%2Fnowhere/db";
  const Status status = ProfileStore::Open(address, StoreMode::kReadOnly).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Message(status), HasSubstr(address + ": "));
  EXPECT_THAT(Message(status), Not(HasSubstr("\n")));
}

class PostgresStoreTest : public testing::TestWithParam<std::string> {
 protected:
  static std::string Name() {
    return std::string("pg_") + testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::string WithoutSlash(std::string name) {
    name.resize(name.find('/'));
    return name;
  }
  StatusOr<std::unique_ptr<ProfileStore>> Open(StoreMode mode = StoreMode::kReadWrite) const {
    return ProfileStore::Open(database_.address(), mode);
  }

  // One value, as text; empty when there is none.
  std::string Query(const std::string& sql) const {
    pqxx::connection connection(database_.address());
    const pqxx::result rows = pqxx::nontransaction(connection).exec(sql);
    return rows.empty() || rows[0][0].is_null() ? std::string() : rows[0][0].c_str();
  }

  TestDatabase database_{WithoutSlash(Name())};
};

INSTANTIATE_TEST_SUITE_P(Kinds, PostgresStoreTest,
                         testing::ValuesIn(TestDatabase::Available()
                                               ? std::vector<std::string>{"postgresql"}
                                               : std::vector<std::string>{}),
                         [](const auto& kind) { return kind.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PostgresStoreTest);

TEST_P(PostgresStoreTest, ReadingMakesNoStore) {
  EXPECT_EQ(Open(StoreMode::kReadOnly).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Open().ok());
  EXPECT_TRUE(Open(StoreMode::kReadOnly).ok());
}

TEST_P(PostgresStoreTest, LeavesForeignAndNewerSchemasAlone) {
  Query("CREATE SCHEMA neuroshard; CREATE TABLE neuroshard.theirs (x int)");
  EXPECT_THAT(Message(Open().status()), HasSubstr("another program's"));
  EXPECT_EQ(Query("SELECT count(*) FROM pg_tables WHERE schemaname = 'neuroshard'"), "1");

  Query("DROP TABLE neuroshard.theirs");
  ASSERT_TRUE(Open().ok());
  const std::string newer = std::to_string(ProfileStore::kSchemaVersion + 1);
  Query("UPDATE neuroshard.store_version SET version = " + newer);
  EXPECT_THAT(Message(Open().status()),
              HasSubstr("version " + newer + ", written by a newer program"));
  EXPECT_THAT(Message(Open(StoreMode::kReadOnly).status()), HasSubstr("version " + newer));
}

TEST_P(PostgresStoreTest, RefusesADatabaseThatCannotKeepAllText) {
  Query("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0");
  const std::string address = database_.address();
  const Status status =
      ProfileStore::Open(address.substr(0, address.rfind('/')) + "/latin", StoreMode::kReadWrite)
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr("encoding UTF8"));
}

// README.md says which rights a sweep needs.
TEST_P(PostgresStoreTest, ASweepNeedsToReadAndInsertOnly) {
  ASSERT_TRUE(Open().ok());
  Query(
      "CREATE ROLE sweeper LOGIN; GRANT USAGE ON SCHEMA neuroshard TO sweeper;"
      "GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA neuroshard TO sweeper; CREATE ROLE nobody "
      "LOGIN");
  std::string address = database_.address();
  const auto as = [&](const std::string& role) {
    return std::string(address).replace(address.find("neuroshard@"), 10, role);
  };
  const auto store = ProfileStore::Open(as("sweeper"), StoreMode::kReadWrite);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto sweep = (*store)->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(3));
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  EXPECT_TRUE((*store)->AddComputeMeasurement(*sweep, ComputeResult("c1")).ok());
  EXPECT_EQ((*store)->PendingSamples<ComputeSample>(*sweep)->size(), 2u);

  const Status refused = ProfileStore::Open(as("nobody"), StoreMode::kReadOnly).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
}

TEST_P(PostgresStoreTest, MessagesOfAnyEncodingAreStoredAndNamesAreRefused) {
  const auto store = *Open();
  ComputeMeasurement failed = ComputeResult("c0", Outcome::kOutOfMemory);
  failed.detail = std::string("needs \0 \xff GiB", 14);
  const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(1));
  EXPECT_TRUE(store->AddComputeMeasurement(sweep, failed).ok());

  auto samples = ComputeSamples(1);
  samples[0].shards[0].table = "\xff";
  EXPECT_EQ(store->BeginSweep<ComputeSample>(Info("other"), samples).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Two sweeps over the same shards, in opposite orders: each waits for rows of the other, unless
// they are made one after the other.
TEST_P(PostgresStoreTest, SweepsBegunTogetherDoNotBlockEachOther) {
  auto forward = ComputeSamples(300);
  for (std::size_t i = 0; i < forward.size(); ++i) {
    forward[i].shards[0].rows = static_cast<std::int64_t>(i);
  }
  const std::vector<ComputeSample> backward(forward.rbegin(), forward.rend());
  ASSERT_TRUE(Open().ok());
  std::vector<std::thread> threads;
  for (const auto& [hash, samples] : {std::pair{"a", forward}, {"b", backward}, {"a", forward}}) {
    threads.emplace_back([this, hash = hash, samples = samples] {
      const auto begun = (*Open())->BeginSweep<ComputeSample>(Info(hash), samples);
      EXPECT_TRUE(begun.ok()) << begun.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((*Open())->Statistics()->size(), 2u);
  EXPECT_EQ(Query("SELECT count(*) = count(DISTINCT (table_name, num_rows)) FROM "
                  "neuroshard.shards"),
            "t");
}

TEST_P(PostgresStoreTest, ConnectionsCutAtAnyMomentLoseNothing) {
  constexpr int kSamples = 3000, kCuts = 20;
  const auto store = *Open();
  const std::int64_t sweep = *store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(kSamples));
  std::atomic<int> stored = 0, cuts = 0;
  std::atomic<bool> done = false;
  // At some moment of every third record.
  std::thread cutter([&] {
    Random random(7);
    pqxx::connection connection(database_.address());
    pqxx::nontransaction session(connection);
    for (int next = 0; !done; std::this_thread::yield()) {
      if (stored < next) continue;
      next = stored + 3;
      const auto moment = std::chrono::microseconds(random.Below(3000));
      const auto until = std::chrono::steady_clock::now() + moment;
      while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
      cuts += static_cast<int>(
          session
              .exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
                    "current_database() AND pid <> pg_backend_pid()")
              .size());
    }
  });
  while (cuts < kCuts && stored < kSamples) {
    const Status added =
        store->AddComputeMeasurement(sweep, ComputeResult("c" + std::to_string(stored)));
    EXPECT_TRUE(added.ok()) << added;
    ++stored;
  }
  done = true;
  cutter.join();
  EXPECT_GE(cuts, kCuts);
  EXPECT_EQ(store->ReadRecords<ComputeRecord>()->size(), static_cast<std::size_t>(stored));
  EXPECT_EQ(store->PendingSamples<ComputeSample>(sweep)->size(),
            static_cast<std::size_t>(kSamples - stored));
}

TEST_P(PostgresStoreTest, ATransactionThatWaitedInVainLeavesItsConnectionUsable) {
  const auto first = *OpenPostgresDatabase(database_.address(), false, 20);
  const auto second = *OpenPostgresDatabase(database_.address(), false, 20);
  {
    const auto holding = SqlTransaction::Begin(*first, TransactionKind::kExclusive);
    ASSERT_TRUE(holding.ok());
    EXPECT_TRUE(
        absl::IsUnavailable(SqlTransaction::Begin(*second, TransactionKind::kExclusive).status()));
  }
  EXPECT_TRUE(SqlTransaction::Begin(*second, TransactionKind::kExclusive).ok());
}

// A database whose losses are counted.
class WatchedDatabase final : public SqlDatabase {
 public:
  explicit WatchedDatabase(const std::string& address)
      : SqlDatabase(address), database_(*OpenPostgresDatabase(address, false, 1000)) {}

  Status Query(std::string_view sql, const SqlParameters& parameters, const Visit& visit) override {
    return database_->Query(sql, parameters, visit);
  }
  Status Execute(const std::string& sql) override { return database_->Execute(sql); }
  Status Begin(TransactionKind kind) override { return database_->Begin(kind); }
  Status Recover(const Status& failure, std::chrono::steady_clock::time_point deadline) override {
    deadlines.push_back(deadline);
    return database_->Recover(failure, deadline);
  }
  StatusOr<std::vector<std::string>> FindDamage() override { return database_->FindDamage(); }
  StatusOr<std::int64_t> Bytes() override { return database_->Bytes(); }

  std::vector<std::chrono::steady_clock::time_point> deadlines;

 private:
  std::unique_ptr<SqlDatabase> database_;
};

TEST_P(PostgresStoreTest, EachLossInALongTransactionIsWaitedForAnew) {
  WatchedDatabase database(database_.address());
  int attempts = 0;
  const auto lost_until = [&](int losses) {
    return InTransaction(database, TransactionKind::kWrite, [&, losses](bool) {
      return database.Execute(attempts++ < losses ? "SELECT pg_terminate_backend(pg_backend_pid())"
                                                  : "SELECT 1");
    });
  };
  EXPECT_TRUE(lost_until(3).ok());
  ASSERT_EQ(database.deadlines.size(), 3u);
  EXPECT_LT(database.deadlines[0], database.deadlines[1]);
  EXPECT_LT(database.deadlines[1], database.deadlines[2]);

  // What is lost by every attempt comes to an end.
  database.deadlines.clear();
  attempts = 0;
  EXPECT_TRUE(lost_until(kMaxConnectionLosses + 1).ok());
  ASSERT_EQ(database.deadlines.size(), kMaxConnectionLosses + 1u);
  EXPECT_EQ(database.deadlines[kMaxConnectionLosses - 1], database.deadlines[kMaxConnectionLosses]);
}

// Between a store and its server: passes everything on until a COMMIT, whose answer it swallows
// together with the connection.
class CommitSwallower {
 public:
  // `server` is the folder of the server's socket.
  explicit CommitSwallower(const std::string& server) : server_(server + kSocketName) {
    folder_ = testing::TempDir() + "cut" + std::to_string(getpid());
    std::filesystem::create_directories(folder_);
    listener_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = AddressOf(folder_ + kSocketName);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    thread_ = std::thread([this] {
      for (int client = 0; (client = ::accept(listener_, nullptr, nullptr)) >= 0;) {
        Serve(client);
        ::close(client);
      }
    });
  }
  ~CommitSwallower() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    std::filesystem::remove_all(folder_);
  }

  const std::string& folder() const { return folder_; }
  std::atomic<int> to_swallow = 0;

 private:
  static constexpr const char* kSocketName = "/.s.PGSQL.5432";

  static sockaddr_un AddressOf(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof(address.sun_path) - 1);
    return address;
  }

  void Serve(int client) {
    const int server = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const sockaddr_un address = AddressOf(server_);
    EXPECT_EQ(::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    bool swallow = false;
    while (true) {
      std::array<pollfd, 2> ends = {pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
      if (::poll(ends.data(), 2, -1) < 0) break;
      const bool from_client = (ends[0].revents & (POLLIN | POLLHUP)) != 0;
      std::array<char, 65536> bytes;
      const ssize_t size = ::read(from_client ? client : server, bytes.data(), bytes.size());
      if (size <= 0) break;
      const std::string_view text(bytes.data(), static_cast<std::size_t>(size));
      if (from_client && text.find("COMMIT") != std::string_view::npos && to_swallow > 0) {
        --to_swallow;
        swallow = true;
      }
      if (!from_client && swallow) break;
      EXPECT_EQ(::write(from_client ? server : client, bytes.data(), text.size()), size);
    }
    ::close(server);
  }

  std::string server_;
  std::string folder_;
  int listener_ = -1;
  std::thread thread_;
};

std::string UnescapedHost(const std::string& address) {
  const std::size_t begin = address.find('@') + 1;
  std::string host = address.substr(begin, address.rfind('/') - begin);
  for (std::size_t at; (at = host.find("%2F")) != std::string::npos;) host.replace(at, 3, "/");
  return host;
}

TEST_P(PostgresStoreTest, ACommitWhoseAnswerIsLostIsFoundOut) {
  CommitSwallower between(UnescapedHost(database_.address()));
  const std::string name = database_.address().substr(database_.address().rfind('/'));
  between.to_swallow = 1;
  const auto opened = ProfileStore::Open(
      "postgresql://neuroshard@" + name + "?host=" + between.folder(), StoreMode::kReadWrite);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const auto& store = *opened;
  EXPECT_EQ(between.to_swallow, 0);
  between.to_swallow = 1;
  const auto sweep = store->BeginSweep<ComputeSample>(Info("h"), ComputeSamples(2));
  ASSERT_TRUE(sweep.ok()) << sweep.status();
  between.to_swallow = 1;
  const Status added = store->AddComputeMeasurement(*sweep, ComputeResult("c0"));
  EXPECT_TRUE(added.ok()) << added;
  const std::int64_t comm_sweep = *store->BeginSweep<CommSample>(Info("h"), CommSamples(1));
  between.to_swallow = 1;
  EXPECT_TRUE(store->AddCommMeasurements(comm_sweep, "m0", CommResults("m0")).ok());
  EXPECT_EQ(between.to_swallow, 0);

  EXPECT_EQ(store->Statistics()->size(), 2u);
  EXPECT_EQ(store->ReadRecords<ComputeRecord>()->size(), 1u);
  EXPECT_EQ(store->AddComputeMeasurement(*sweep, ComputeResult("c0")).code(),
            absl::StatusCode::kAlreadyExists);
}

}  // namespace
}  // namespace neuroshard

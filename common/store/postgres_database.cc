#include "common/store/postgres_database.h"

#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <libpq-fe.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <pqxx/pqxx>
#include <thread>
#include <utility>

#include "common/base/number_text.h"
#include "common/base/printable_text.h"

namespace neuroshard {
namespace {

// The advisory lock of all stores in one database server, for the transactions that make or remove
// sweeps.
constexpr std::int64_t kExclusiveLock = 0x4E537066;

// Messages of libpq and the server may have several lines, the last of which show the statement.
std::string OneLine(std::string_view text) {
  return absl::StrJoin(absl::StrSplit(std::string(text.substr(0, text.find("\nLINE "))),
                                      absl::ByAnyChar("\n\t "), absl::SkipEmpty()),
                       " ");
}

bool HasClass(std::string_view sqlstate, std::initializer_list<std::string_view> prefixes) {
  return std::ranges::any_of(prefixes,
                             [&](std::string_view prefix) { return sqlstate.starts_with(prefix); });
}

// What the beginnings of codes are (https://www.postgresql.org/docs/15/errcodes-appendix.html).
constexpr std::pair<std::string_view, absl::StatusCode> kCodes[] = {
    {"23505", absl::StatusCode::kAborted},  // somebody else has just stored the same
    {"23", absl::StatusCode::kInternal},        {"53", absl::StatusCode::kResourceExhausted},
    {"22", absl::StatusCode::kInvalidArgument}, {"54", absl::StatusCode::kInvalidArgument},
    {"08", absl::StatusCode::kUnavailable},     {"57P", absl::StatusCode::kUnavailable},
    {"XX001", absl::StatusCode::kDataLoss},     {"XX002", absl::StatusCode::kDataLoss}};

Status SqlError(const std::string& name, const pqxx::sql_error& error) {
  const std::string text = OneLine(error.what());
  if (HasClass(error.sqlstate(), {"55P03", "57014"})) {
    return Unavailable("{}: another process is writing to it and did not finish in time ({})", name,
                       text);
  }
  absl::StatusCode code = absl::StatusCode::kFailedPrecondition;
  for (const auto& [prefix, kind] : kCodes) {
    if (!HasClass(error.sqlstate(), {prefix})) continue;
    code = kind;
    break;
  }
  // libpqxx does not keep the code of insufficient_privilege.
  if (dynamic_cast<const pqxx::insufficient_privilege*>(&error) != nullptr) {
    code = absl::StatusCode::kPermissionDenied;
  }
  return {code, fmt::format("{}: {}", name, text)};
}

// `?` as $1, $2...; statements have no other question marks.
std::string WithNumbers(std::string_view sql) {
  std::string numbered;
  int parameter = 0;
  for (const char c : sql) {
    if (c == '?') {
      numbered += fmt::format("${}", ++parameter);
    } else {
      numbered += c;
    }
  }
  return numbered;
}

// libpq's settings for `address` as one string, with limits on how long a silent network is waited
// for where the address says nothing.
StatusOr<std::string> SettingsFor(const std::string& address) {
  const std::unique_ptr<PQconninfoOption, void (*)(PQconninfoOption*)> options(
      PQconninfoParse(address.c_str(), nullptr), PQconninfoFree);
  // libpq's own message repeats the address, and what is wrong with it may be the password's place.
  if (options == nullptr) {
    return InvalidArgument(
        "not an address of a PostgreSQL database: expected "
        "postgresql://USER@HOST:PORT/DATABASE, with anything unusual percent-encoded");
  }
  std::map<std::string, std::string> settings = {
      {"connect_timeout", "10"},  {"tcp_user_timeout", "30000"},
      {"keepalives_idle", "10"},  {"keepalives_interval", "5"},
      {"keepalives_count", "4"},  {"application_name", "neuroshard"},
      {"client_encoding", "UTF8"}};
  for (const PQconninfoOption* option = options.get(); option->keyword != nullptr; ++option) {
    if (option->val == nullptr) continue;
    const std::string_view keyword = option->keyword;
    if (keyword == "password" || keyword == "sslpassword") {
      return InvalidArgument(
          "an address of a PostgreSQL database must not contain a password, which others could "
          "read in the list of processes: put it into the file that PGPASSFILE names (~/.pgpass), "
          "or into PGPASSWORD");
    }
    settings[option->keyword] = option->val;
  }
  std::string text;
  for (const auto& [keyword, value] : settings) {
    const std::string quoted = absl::StrReplaceAll(value, {{"'", "\\'"}, {"\\", "\\\\"}});
    text += fmt::format("{}='{}' ", keyword, quoted);
  }
  return text;
}

// One connection, as OpenPostgresDatabase says.
class PostgresDatabase final : public SqlDatabase {
 public:
  PostgresDatabase(std::string address, std::string settings, bool read_only, int lock_timeout_ms)
      : SqlDatabase(std::move(address)),
        settings_(std::move(settings)),
        read_only_(read_only),
        lock_timeout_ms_(lock_timeout_ms) {}
  ~PostgresDatabase() override;

  // The first connection.
  Status Open();

  Status Query(std::string_view sql, const SqlParameters& parameters, const Visit& visit) override;
  Status Execute(const std::string& sql) override;
  Status Begin(TransactionKind kind) override;
  Status Recover(const Status& failure, std::chrono::steady_clock::time_point deadline) override;
  StatusOr<std::vector<std::string>> FindDamage() override;
  StatusOr<std::int64_t> Bytes() override;

 private:
  struct Connection;

  Status Connect();
  // The name of the prepared statement.
  StatusOr<std::string> Prepare(std::string_view sql);
  // The status of the exception being handled.
  Status Failure();

  std::string settings_;  // for libpq
  bool read_only_;
  int lock_timeout_ms_;
  bool lost_ = false;
  // Since when no connection was made; none: there is one.
  std::optional<std::chrono::steady_clock::time_point> lost_since_;
  std::unique_ptr<Connection> connection_;
};

// Every statement is sent on its own; transactions are begun and ended by statements too.
struct PostgresDatabase::Connection {
  explicit Connection(const std::string& settings) : server(settings), quiet(server) {
    // A connection that is made again behind our back would have lost its transaction.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // later versions never do so
    server.inhibit_reactivation(true);
#pragma GCC diagnostic pop
    session.emplace(server);
  }

  pqxx::connection server;
  pqxx::quiet_errorhandler quiet;
  std::optional<pqxx::nontransaction> session;
  std::map<std::string, std::string, std::less<>> prepared;  // names, by their text
};

class PostgresColumns final : public SqlColumns {
 public:
  explicit PostgresColumns(const pqxx::row& row) : row_(row) {}

  std::int64_t Integer(int column) const override { return Number<std::int64_t>(column, 0); }
  double Real(int column) const override {
    return Number<double>(column, std::numeric_limits<double>::quiet_NaN());
  }
  std::string Text(int column) const override { return std::string(View(column)); }
  bool IsNull(int column) const override { return row_[column].is_null(); }

 private:
  // Empty of NULL.
  std::string_view View(int column) const {
    const pqxx::field field = row_[column];
    return {field.c_str(), field.size()};
  }
  template <typename T>
  T Number(int column, T otherwise) const {
    return NumberOf<T>(View(column)).value_or(otherwise);
  }

  const pqxx::row& row_;
};

// A parameter as text; none: NULL.
struct ToParameter {
  using Text = std::optional<std::string>;
  Text operator()(std::monostate) const { return std::nullopt; }
  Text operator()(std::int64_t value) const { return fmt::format("{}", value); }
  Text operator()(double value) const {
    if (std::isnan(value)) return std::nullopt;
    return fmt::format("{}", value);  // the shortest text that is this number again
  }
  Text operator()(const std::string& text) const { return text; }
};

PostgresDatabase::~PostgresDatabase() = default;

Status PostgresDatabase::Open() {
  Status connected = Connect();
  // A server that is not there is an error at once, one that went away is waited for.
  if (!connected.ok() && connection_ != nullptr) {
    connected = Recover(connected, std::chrono::steady_clock::now() + kReconnectTime);
  }
  return connected;
}

Status PostgresDatabase::Connect() {
  connection_.reset();
  try {
    connection_ = std::make_unique<Connection>(settings_);
  } catch (...) {
    return Failure();
  }
  lost_ = false;
  // An acknowledged record survives a power cut of the server, whatever its default is.
  NS_RETURN_IF_ERROR(Execute(fmt::format(
      "SET search_path = neuroshard; SET client_min_messages = warning; SET lock_timeout = {}; "
      "SET default_transaction_read_only = {}; SELECT set_config('synchronous_commit', 'on', "
      "false) WHERE current_setting('synchronous_commit') = 'off'",
      lock_timeout_ms_, read_only_ ? "on" : "off")));
  NS_ASSIGN_OR_RETURN(const std::int64_t utf8,
                      QueryInteger("SELECT (current_setting('server_encoding') = 'UTF8')::int"));
  lost_since_.reset();
  if (utf8 == 1) return absl::OkStatus();
  return FailedPrecondition("{}: the database must have the encoding UTF8", name());
}

Status PostgresDatabase::Failure() {
  try {
    throw;
  } catch (const pqxx::broken_connection& error) {
    lost_ = true;
    const std::string text = OneLine(error.what());
    // libpq has no code for these.
    if (text.find("authentication failed") != std::string::npos ||
        text.find("no password supplied") != std::string::npos ||
        text.find("permission denied for database") != std::string::npos ||
        text.find("no pg_hba.conf entry") != std::string::npos) {
      return PermissionDenied("{}: {}", name(), text);
    }
    if (text.find("does not exist") != std::string::npos) {
      return FailedPrecondition("{}: {}", name(), text);
    }
    return Unavailable("{}: {}", name(), text);
  } catch (const pqxx::transaction_rollback& error) {
    // A deadlock, or a snapshot that another transaction has overtaken.
    return Aborted("{}: {}", name(), OneLine(error.what()));
  } catch (const pqxx::sql_error& error) {
    lost_ = HasClass(error.sqlstate(), {"08", "57P"}) || !connection_->server.is_open();
    return SqlError(name(), error);
  } catch (const std::exception& error) {
    lost_ = !connection_ || !connection_->server.is_open();
    const std::string text = fmt::format("{}: {}", name(), OneLine(error.what()));
    return lost_ ? absl::UnavailableError(text) : absl::InternalError(text);
  }
}

Status PostgresDatabase::Recover(const Status& failure,
                                 std::chrono::steady_clock::time_point deadline) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::milliseconds kFirstPause{50};
  if (!lost_) {
    const bool again = absl::IsAborted(failure) && Clock::now() < deadline;
    return again ? absl::OkStatus() : failure;
  }
  const bool new_loss = !lost_since_.has_value();
  if (new_loss) lost_since_ = Clock::now();
  deadline = std::min(deadline, *lost_since_ + kReconnectTime);
  Status connected = failure;
  for (auto pause = kFirstPause; Clock::now() < deadline;
       pause = std::min(pause * 2, std::chrono::milliseconds(1000))) {
    connected = Connect();
    if (!absl::IsUnavailable(connected)) return connected;
    if (new_loss && pause == kFirstPause) tell_of_outage_(connected);
    std::this_thread::sleep_for(pause);
  }
  return connected;
}

StatusOr<std::string> PostgresDatabase::Prepare(std::string_view sql) {
  if (connection_ == nullptr) return Unavailable("{}: the connection is lost", name());
  auto& prepared = connection_->prepared;
  auto found = prepared.find(sql);
  if (found == prepared.end()) {
    const std::string statement = fmt::format("s{}", prepared.size());
    try {
      connection_->server.prepare(statement, WithNumbers(sql));
    } catch (...) {
      return Failure();
    }
    found = prepared.emplace(std::string(sql), statement).first;
  }
  return found->second;
}

Status PostgresDatabase::Query(std::string_view sql, const SqlParameters& parameters,
                               const Visit& visit) {
  NS_ASSIGN_OR_RETURN(const std::string prepared, Prepare(sql));
  std::vector<ToParameter::Text> texts;
  std::vector<const char*> values;
  texts.reserve(parameters.size());
  for (const SqlValue& parameter : parameters) {
    const auto& text = texts.emplace_back(std::visit(ToParameter(), parameter));
    if (text && !(IsUtf8(*text) && text->find('\0') == std::string::npos)) {
      return InvalidArgument(
          "{}: PostgreSQL keeps text in UTF-8 without zero bytes; a name is not such a text",
          name());
    }
    values.push_back(text ? text->c_str() : nullptr);
  }
  pqxx::result result;
  try {
    result =
        connection_->session->exec_prepared(prepared, pqxx::prepare::make_dynamic_params(values));
  } catch (...) {
    return Failure();
  }
  for (const pqxx::row& row : result) NS_RETURN_IF_ERROR(visit(PostgresColumns(row)));
  return absl::OkStatus();
}

Status PostgresDatabase::Execute(const std::string& sql) {
  if (connection_ == nullptr) return Unavailable("{}: the connection is lost", name());
  try {
    connection_->session->exec(sql);
    return absl::OkStatus();
  } catch (...) {
    return Failure();
  }
}

Status PostgresDatabase::Begin(TransactionKind kind) {
  if (kind == TransactionKind::kSnapshot) {
    return Execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
  }
  if (kind == TransactionKind::kWrite) return Execute("BEGIN");
  return Execute(fmt::format("BEGIN; SELECT pg_advisory_xact_lock({})", kExclusiveLock));
}

StatusOr<std::vector<std::string>> PostgresDatabase::FindDamage() {
  return std::vector<std::string>();  // the server checks its pages whenever they are read
}

StatusOr<std::int64_t> PostgresDatabase::Bytes() {
  return QueryInteger(
      "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class WHERE "
      "relnamespace = to_regnamespace('neuroshard') AND relkind = 'r'");
}

}  // namespace

StatusOr<std::unique_ptr<SqlDatabase>> OpenPostgresDatabase(const std::string& address,
                                                            bool read_only, int lock_timeout_ms) {
  NS_ASSIGN_OR_RETURN(std::string settings, SettingsFor(address));
  auto database =
      std::make_unique<PostgresDatabase>(address, std::move(settings), read_only, lock_timeout_ms);
  NS_RETURN_IF_ERROR(database->Open());
  return database;
}

}  // namespace neuroshard

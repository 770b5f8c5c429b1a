// The profile store: sweeps, their planned samples, and one measurement record per sample, in one
// SQLite file or one PostgreSQL database (README.md here).
#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/domain/measurement.h"
#include "common/domain/vocabulary.h"

namespace neuroshard {

class SqlDatabase;

// Mode of opening; only kReadWrite makes, upgrades and writes the file.
enum class StoreMode { kReadWrite, kReadOnly };

// What makes a sweep the same sweep again is config_hash: it must cover everything its samples were
// made from (config and seed).
struct SweepInfo {
  std::string name;
  std::string config_hash;
  std::string config_text;
};

// A usable compute measurement: its outcome is ok.
struct ComputeRecord {
  ComputeSample sample;
  double forward_ms = 0;   // NaN when only the total is known
  double backward_ms = 0;  // NaN when only the total is known
  double total_ms = 0;
  bool imported = false;
  MeasurementEnvironment environment;  // empty when imported

  // Whether forward and backward are told apart.
  bool is_split() const { return std::isfinite(forward_ms) && std::isfinite(backward_ms); }
};

// A usable measurement of one collective: the outcome of every rank is ok.
struct CommRecord {
  CommSample sample;
  std::vector<double> cost_ms;  // by rank
  bool imported = false;
  std::vector<MeasurementEnvironment> environments = {};  // by rank; empty when imported
};

// A sample with its record, whatever the outcome.
struct MeasuredComputeSample {
  ComputeSample sample;
  ComputeMeasurement measurement;
};
// A collective with the record of each rank.
struct MeasuredCommSample {
  CommSample sample;
  std::vector<CommMeasurement> measurements;  // one a rank
};

// Kind of a sweep's samples.
enum class SweepKind { kCompute, kComm };

NS_WORDS(SweepKind, {kCompute, "compute"}, {kComm, "comm"});

// A sweep in the listing, with how far it is. samples = ok + out_of_memory + pending.
struct SweepStatistics {
  std::int64_t sweep_id = 0;
  SweepKind kind = SweepKind::kCompute;
  std::string name;
  std::string config_hash;
  bool imported = false;
  std::int64_t samples = 0;
  std::int64_t ok = 0;
  std::int64_t out_of_memory = 0;  // for comm: of at least one rank

  std::int64_t pending() const { return samples - ok - out_of_memory; }
};

// Every call that changes something is one transaction: when it returns OK the change survives
// SIGKILL and power loss, otherwise nothing of it is there. Any thread may call any method; several
// processes may have the same store open, writers wait for each other up to kBusyTimeoutMs and are
// then UNAVAILABLE. A connection that is lost during a call is made again, for up to 30 s,
// and the call finds out whether it was carried out; then it is UNAVAILABLE too. Writing to a store
// opened kReadOnly is FAILED_PRECONDITION. DATA_LOSS: the file is damaged. Methods of both kinds of
// sweeps are for ComputeSample and ComputeRecord, and for CommSample and CommRecord.
class ProfileStore {
 public:
  static constexpr int kSchemaVersion = 5;
  static constexpr int kBusyTimeoutMs = 10'000;

  // `name` is a file, or postgresql://user@host:port/database (no password: PGPASSFILE,
  // PGPASSWORD). kReadWrite creates a missing file, not a missing directory, and brings a store of
  // an older version up to date, which programs of before then refuse. NOT_FOUND,
  // PERMISSION_DENIED, FAILED_PRECONDITION (not a profile store, or one of a newer version) and
  // DATA_LOSS name the file and the reason.
  static StatusOr<std::unique_ptr<ProfileStore>> Open(const std::string& name, StoreMode mode);
  // Whether `name` is an address rather than a file.
  static bool IsRemote(const std::string& name);
  ~ProfileStore();
  ProfileStore(ProfileStore&&) = delete;

  // Creates the sweep and its samples, or finds the sweep of the same kind and config_hash again;
  // returns its id. Sample ids must be unique within a sweep. FAILED_PRECONDITION when the sweep
  // found has other samples.
  template <typename Sample>
  StatusOr<std::int64_t> BeginSweep(const SweepInfo& info, const std::vector<Sample>& samples);

  // Samples without a record, in the order in which the sweep lists them. NOT_FOUND: no such sweep.
  template <typename Sample>
  StatusOr<std::vector<Sample>> PendingSamples(std::int64_t sweep_id) const;

  // The record of a sample, whatever its outcome. ALREADY_EXISTS when the sample has one; NOT_FOUND
  // when the sweep has no such sample.
  Status AddComputeMeasurement(std::int64_t sweep_id, const ComputeMeasurement& measurement);
  // `measurements` has one entry for every rank of the sample, in any order, or the call is
  // INVALID_ARGUMENT: a collective is measured on all ranks or not at all.
  Status AddCommMeasurements(std::int64_t sweep_id, const std::string& sample_id,
                             const std::vector<CommMeasurement>& measurements);

  // What was measured without being planned first: a compute sweep and a comm sweep (of an empty
  // list none) with all their records, in one transaction. The same again (config_hash) changes
  // nothing.
  Status RecordMeasured(const SweepInfo& info, const std::vector<MeasuredComputeSample>& compute,
                        const std::vector<MeasuredCommSample>& comm);

  // Foreign data, costs without a raw series, in one go: `sample` and `total_ms`, or `cost_ms`, of
  // each record. The same import again (config_hash) changes nothing. Returns the sweep's id.
  template <typename Record>
  StatusOr<std::int64_t> ImportCosts(const SweepInfo& info, const std::vector<Record>& costs);

  // Every record with outcome ok of every sweep, in the order of sweeps and samples; Statistics()
  // tells how many are left out. Costs are `cost` of a record's series; imported ones, which have
  // none, are as they are.
  template <typename Record>
  StatusOr<std::vector<Record>> ReadRecords(SeriesCost cost = SeriesCost::kMedian) const;

  // DATA_LOSS with the first faults when the file is damaged: SQLite's integrity_check, and foreign
  // keys. Reads the whole file.
  Status CheckIntegrity() const;

  // All sweeps, oldest first.
  StatusOr<std::vector<SweepStatistics>> Statistics() const;

  // For store_maintenance.h.
  SqlDatabase& database() const { return *database_; }

 private:
  ProfileStore(std::unique_ptr<SqlDatabase> database, StoreMode mode);

  Status CheckWritable() const;

  std::unique_ptr<SqlDatabase> database_;
  StoreMode mode_;
};

}  // namespace neuroshard

#include "server/pretrain/fit/fit_checkpoint.h"

#include <cstring>
#include <system_error>
#include <type_traits>

#include "server/models/regular_file.h"
#include "server/pretrain/content_hash.h"

namespace neuroshard {
namespace {

constexpr std::string_view kMagic = "neuroshard-training-checkpoint/1\n";
constexpr std::size_t kHashDigits = 64;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
// Losing as much of a training is no harm, and writing as seldom costs nothing.
constexpr double kIntervalMs = 5000;

template <typename T>
void Put(T value, std::string& bytes) {
  static_assert(std::is_arithmetic_v<T>);
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void PutList(const std::vector<float>& values, std::string& bytes) {
  Put(static_cast<std::uint64_t>(values.size()), bytes);
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

// Reads what Put wrote; after the first value that is not there, everything is zero and `ok` false.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  void Take(T* value) {
    if (bytes_.size() < sizeof(T)) {
      ok_ = false;
      bytes_ = {};
      return;
    }
    std::memcpy(value, bytes_.data(), sizeof(T));
    bytes_.remove_prefix(sizeof(T));
  }

  void TakeList(std::vector<float>* values) {
    std::uint64_t size = 0;
    Take(&size);
    if (size > bytes_.size() / sizeof(float)) {
      ok_ = false;
      bytes_ = {};
      return;
    }
    values->resize(size);
    if (size > 0) std::memcpy(values->data(), bytes_.data(), size * sizeof(float));
    bytes_.remove_prefix(size * sizeof(float));
  }

  bool ok() const { return ok_; }
  bool done() const { return ok_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

void PutMember(const MemberState& member, std::string& bytes) {
  PutList(member.parameters, bytes);
  PutList(member.best_parameters, bytes);
  PutList(member.adam.first_moment, bytes);
  PutList(member.adam.second_moment, bytes);
  Put(member.adam.steps, bytes);
  Put(member.learning_rate, bytes);
  Put(member.epoch, bytes);
  Put(member.best_epoch, bytes);
  Put(member.decayed_epoch, bytes);
  Put(member.train_loss, bytes);
  Put(member.validation_loss, bytes);
  Put(member.best_validation_loss, bytes);
}

MemberState TakeMember(Cursor& cursor) {
  MemberState member;
  cursor.TakeList(&member.parameters);
  cursor.TakeList(&member.best_parameters);
  cursor.TakeList(&member.adam.first_moment);
  cursor.TakeList(&member.adam.second_moment);
  cursor.Take(&member.adam.steps);
  cursor.Take(&member.learning_rate);
  cursor.Take(&member.epoch);
  cursor.Take(&member.best_epoch);
  cursor.Take(&member.decayed_epoch);
  cursor.Take(&member.train_loss);
  cursor.Take(&member.validation_loss);
  cursor.Take(&member.best_validation_loss);
  return member;
}

std::filesystem::path FileOf(const std::filesystem::path& directory, const std::string& network) {
  return directory / (ContentHash(network).substr(0, 16) + ".checkpoint");
}

}  // namespace

std::string EncodeCheckpoint(const std::string& fingerprint,
                             const std::vector<MemberState>& members) {
  std::string body = ContentHash(fingerprint);
  Put(static_cast<std::uint64_t>(members.size()), body);
  for (const MemberState& member : members) PutMember(member, body);
  return std::string(kMagic) + ContentHash(body) + body;
}

std::optional<std::vector<MemberState>> DecodeCheckpoint(std::string_view bytes,
                                                         const std::string& fingerprint) {
  if (!bytes.starts_with(kMagic)) return std::nullopt;
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() < 2 * kHashDigits) return std::nullopt;
  const std::string_view hash = bytes.substr(0, kHashDigits);
  bytes.remove_prefix(kHashDigits);
  if (ContentHash(bytes) != hash || !bytes.starts_with(ContentHash(fingerprint))) {
    return std::nullopt;
  }
  Cursor cursor(bytes.substr(kHashDigits));
  std::uint64_t count = 0;
  cursor.Take(&count);
  std::vector<MemberState> members;
  for (std::uint64_t i = 0; i < count && cursor.ok(); ++i) members.push_back(TakeMember(cursor));
  if (!cursor.done()) return std::nullopt;
  return members;
}

std::optional<std::vector<MemberState>> CheckpointFolder::Load(
    const std::string& network, const std::string& fingerprint) const {
  const auto bytes = ReadRegularFile(FileOf(directory_, network), kMaxBytes);
  if (!bytes.ok()) return std::nullopt;
  return DecodeCheckpoint(*bytes, fingerprint);
}

Status CheckpointFolder::Save(const std::string& network, const std::string& fingerprint,
                              const std::vector<MemberState>& members) {
  saved_ = clock_->Now();
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    return Unavailable("{}: cannot be made for checkpoints: {}", directory_.string(),
                       error.message());
  }
  return Annotate(
      WriteFileAtomically(FileOf(directory_, network), EncodeCheckpoint(fingerprint, members)),
      "the checkpoint of the training could not be written; once there is room, the same command "
      "goes on from the last one");
}

bool CheckpointFolder::IsDue() const {
  return MillisecondsBetween(saved_, clock_->Now()) >= kIntervalMs;
}

void CheckpointFolder::Remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace neuroshard

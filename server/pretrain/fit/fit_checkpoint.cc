#include "server/pretrain/fit/fit_checkpoint.h"

#include <system_error>
#include <type_traits>

#include "common/base/number_text.h"
#include "common/base/sha256.h"
#include "server/networks/regular_file.h"
#include "server/networks/safetensors.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
constexpr std::size_t kFileNameDigits = 16;
// Losing as much of a training is no harm, and writing as seldom costs nothing.
constexpr double kIntervalMs = 5000;

// Calls visit(name, value) for every part of a state.
template <typename State, typename Visit>
void VisitLists(State& state, Visit visit) {
  visit("parameters", state.parameters);
  visit("best_parameters", state.best_parameters);
  visit("first_moment", state.first_moment);
  visit("second_moment", state.second_moment);
}
template <typename State, typename Visit>
void VisitNumbers(State& state, Visit visit) {
  visit("steps", state.steps);
  visit("epoch", state.epoch);
  visit("best_epoch", state.best_epoch);
  visit("decayed_epoch", state.decayed_epoch);
  visit("learning_rate", state.learning_rate);
  visit("train_loss", state.train_loss);
  visit("validation_loss", state.validation_loss);
  visit("best_validation_loss", state.best_validation_loss);
}

// Members until there is none of the next number; nothing where one is not complete.
std::optional<std::vector<MemberState>> MembersOf(const TensorFile& file) {
  std::vector<MemberState> members;
  while (file.metadata.contains(fmt::format("{}.epoch", members.size()))) {
    MemberState state;
    bool complete = true;
    VisitLists(state, [&](const char* name, std::vector<float>& values) {
      const auto found = file.tensors.find(fmt::format("{}.{}", members.size(), name));
      complete = complete && found != file.tensors.end();
      if (complete) values = found->second.values;
    });
    VisitNumbers(state, [&](const char* name, auto& value) {
      const auto found = file.metadata.find(fmt::format("{}.{}", members.size(), name));
      complete = complete && found != file.metadata.end();
      if (!complete) return;
      const auto number = NumberOf<std::decay_t<decltype(value)>>(found->second);
      complete = number.has_value();
      if (complete) value = *number;
    });
    if (!complete) return std::nullopt;
    members.push_back(std::move(state));
  }
  return members;
}

std::filesystem::path FileOf(const std::filesystem::path& directory, const std::string& network) {
  return directory / (Sha256Hex(network).substr(0, kFileNameDigits) + ".checkpoint");
}

}  // namespace

StatusOr<std::string> EncodeCheckpoint(const std::string& fingerprint,
                                       const std::vector<MemberState>& members) {
  TensorFile file;
  file.metadata["fingerprint"] = fingerprint;
  for (std::size_t m = 0; m < members.size(); ++m) {
    VisitLists(members[m], [&](const char* name, const std::vector<float>& values) {
      file.tensors[fmt::format("{}.{}", m, name)] = {{std::ssize(values)}, values};
    });
    VisitNumbers(members[m], [&](const char* name, auto value) {
      file.metadata[fmt::format("{}.{}", m, name)] = fmt::format("{}", value);
    });
  }
  return FormatTensorFile(file);
}

std::optional<std::vector<MemberState>> DecodeCheckpoint(std::string_view bytes,
                                                         const std::string& fingerprint) {
  TensorReadOptions options;
  options.non_finite = NonFinite::kKeep;
  options.max_file_bytes = kMaxBytes;
  const auto file = ParseTensorFile(bytes, "checkpoint", options);
  if (!file.ok()) return std::nullopt;
  const auto found = file->metadata.find("fingerprint");
  if (found == file->metadata.end() || found->second != fingerprint) return std::nullopt;
  return MembersOf(*file);
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
  NS_ASSIGN_OR_RETURN(const std::string bytes, EncodeCheckpoint(fingerprint, members));
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) {
    return Unavailable("{}: cannot be made for checkpoints: {}", directory_.string(),
                       error.message());
  }
  return Annotate(WriteFileAtomically(FileOf(directory_, network), bytes),
                  "the checkpoint of the training could not be written; once there is room, the "
                  "same command goes on from the last one");
}

bool CheckpointFolder::IsDue() const {
  return MillisecondsBetween(saved_, clock_->Now()) >= kIntervalMs;
}

void CheckpointFolder::Remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

}  // namespace neuroshard

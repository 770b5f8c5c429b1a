#include "server/pretrain/fit/fit_checkpoint.h"

#include <system_error>
#include <type_traits>

#include "common/base/number_text.h"
#include "common/base/sha256.h"
#include "common/domain/fields.h"
#include "server/networks/regular_file.h"
#include "server/networks/safetensors.h"

namespace neuroshard {

NS_FIELDS(MemberState, parameters, best_parameters, first_moment, second_moment, steps, epoch,
          best_epoch, decayed_epoch, learning_rate, train_loss, validation_loss,
          best_validation_loss);

namespace {

constexpr std::int64_t kMaxBytes = std::int64_t{1} << 32;
constexpr std::size_t kFileNameDigits = 16;
// Losing as much of a training is no harm, and writing as seldom costs nothing.
constexpr double kIntervalMs = 5000;

// Members until there is none of the next number; nothing where one is not complete.
std::optional<std::vector<MemberState>> MembersOf(const TensorFile& file) {
  std::vector<MemberState> members;
  for (int m = 0; file.metadata.contains(fmt::format("{}.epoch", m)); ++m) {
    bool complete = true;
    ForEachField(members.emplace_back(), [&]<typename V>(const char* name, V& value) {
      const std::string key = fmt::format("{}.{}", m, name);
      if constexpr (std::is_same_v<V, std::vector<float>>) {
        const auto found = file.tensors.find(key);
        complete = complete && found != file.tensors.end();
        if (complete) value = found->second.values;
      } else {
        const auto found = file.metadata.find(key);
        const auto number =
            found == file.metadata.end() ? std::nullopt : NumberOf<V>(found->second);
        complete = complete && number.has_value();
        if (complete) value = *number;
      }
    });
    if (!complete) return std::nullopt;
  }
  return members;
}

std::filesystem::path FileOf(const std::filesystem::path& directory, const std::string& network) {
  return directory / (Sha256Hex(network).substr(0, kFileNameDigits) + ".checkpoint");
}

}  // namespace

MemberState InitialState(std::vector<float> parameters, double learning_rate) {
  MemberState state;
  state.first_moment.resize(parameters.size());
  state.second_moment.resize(parameters.size());
  state.best_parameters = parameters;
  state.parameters = std::move(parameters);
  state.learning_rate = learning_rate;
  return state;
}

StatusOr<std::string> EncodeCheckpoint(const std::string& fingerprint,
                                       const std::vector<MemberState>& members) {
  TensorFile file;
  file.metadata["fingerprint"] = fingerprint;
  for (std::size_t m = 0; m < members.size(); ++m) {
    ForEachField(members[m], [&]<typename V>(const char* name, const V& value) {
      const std::string key = fmt::format("{}.{}", m, name);
      if constexpr (std::is_same_v<V, std::vector<float>>) {
        file.tensors[key] = {{std::ssize(value)}, value};
      } else {
        file.metadata[key] = fmt::format("{}", value);
      }
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

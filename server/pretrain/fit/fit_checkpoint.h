// Checkpoints: unfinished and finished fits on disk, so that a killed training goes on.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"
#include "server/pretrain/fit/member_fit.h"

namespace neuroshard {

// A checkpoint is a safetensors file: "<member>.parameters", "<member>.best_parameters",
// "<member>.first_moment" and "<member>.second_moment"; the rest of the states, and the fingerprint
// (any text) of what they belong to, in its metadata. INTERNAL when a state is no such file's.
StatusOr<std::string> EncodeCheckpoint(const std::string& fingerprint,
                                       const std::vector<MemberState>& members);

// Nothing when the bytes are no checkpoint, or of another fingerprint.
std::optional<std::vector<MemberState>> DecodeCheckpoint(std::string_view bytes,
                                                         const std::string& fingerprint);

// One folder of checkpoints, a file for each network. Files are replaced whole: whatever happens,
// the old one or the new one is there. For one thread at a time.
class CheckpointFolder {
 public:
  // `directory` is made when there is something to save. `clock` must outlive it.
  CheckpointFolder(std::filesystem::path directory, const Clock* clock)
      : directory_(std::move(directory)), clock_(clock), saved_(clock->Now()) {}

  // Nothing when there is none that fits.
  std::optional<std::vector<MemberState>> Load(const std::string& network,
                                               const std::string& fingerprint) const;

  // UNAVAILABLE when the disk refuses; the previous checkpoint is then as it was.
  Status Save(const std::string& network, const std::string& fingerprint,
              const std::vector<MemberState>& members);

  // True when the last Save was long enough ago for another.
  bool IsDue() const;

  // Removes the folder, once the model it was for is published.
  void Remove() const;

 private:
  std::filesystem::path directory_;
  const Clock* clock_;
  TimePoint saved_;
};

}  // namespace neuroshard

// The state of a fit, and checkpoints of unfinished and finished fits on disk, from which a killed
// training goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace neuroshard {

// State on which the next epoch depends, besides problem, split, network and configuration.
struct MemberState {
  std::vector<float> parameters;
  std::vector<float> best_parameters;  // of the best validation epoch
  std::vector<float> first_moment;     // Adam's
  std::vector<float> second_moment;
  std::int64_t steps = 0;
  std::int64_t epoch = 0;  // epochs done
  std::int64_t best_epoch = 0;
  std::int64_t decayed_epoch = 0;
  double learning_rate = 0;
  double train_loss = 0;
  double validation_loss = 0;
  double best_validation_loss = std::numeric_limits<double>::infinity();

  bool operator==(const MemberState&) const = default;
};

MemberState InitialState(std::vector<float> parameters, double learning_rate);

// Encodes a checkpoint, a safetensors file with "<member>.parameters", "<member>.best_parameters",
// "<member>.first_moment" and "<member>.second_moment"; its metadata has the rest of the states and
// the fingerprint, any text, of what they belong to. INTERNAL when a state cannot be written.
StatusOr<std::string> EncodeCheckpoint(const std::string& fingerprint,
                                       const std::vector<MemberState>& members);

// Decodes a checkpoint; nothing when the bytes are none, or of another fingerprint.
std::optional<std::vector<MemberState>> DecodeCheckpoint(std::string_view bytes,
                                                         const std::string& fingerprint);

// A folder with a checkpoint file per network. Files are replaced atomically. For one thread at a
// time.
class CheckpointFolder {
 public:
  // `directory` is created by the first Save. `clock` must outlive the object.
  CheckpointFolder(std::filesystem::path directory, const Clock* clock)
      : directory_(std::move(directory)), clock_(clock), saved_(clock->Now()) {}

  // Returns the checkpoint of a network; nothing when there is none that fits.
  std::optional<std::vector<MemberState>> Load(const std::string& network,
                                               const std::string& fingerprint) const;

  // Saves a checkpoint. UNAVAILABLE when the disk refuses; the previous checkpoint is then
  // unchanged.
  Status Save(const std::string& network, const std::string& fingerprint,
              const std::vector<MemberState>& members);

  // Returns whether the last Save was long enough ago for another.
  bool IsDue() const;

  // Removes the folder, once its model is published.
  void Remove() const;

 private:
  std::filesystem::path directory_;
  const Clock* clock_;
  TimePoint saved_;
};

}  // namespace neuroshard

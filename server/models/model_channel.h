// channel.yaml: the version of a model that serves requests which name no version.
//
//   format: neuroshard-channel/2
//   version: 3
//   rollout: {version: 4, share: 0.1}    # optional
//   ...
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/status.h"

namespace neuroshard {

inline constexpr char kChannelFormat[] = "neuroshard-channel";  // /1 or /2
inline constexpr char kChannelFileName[] = "channel.yaml";

// A version that takes a share of the requests.
struct StagedVersion {
  int version = 0;
  double share = 0;  // of the requests, [0, 1]

  bool operator==(const StagedVersion&) const = default;
};

// Versions that serve a model's name.
struct ModelChannel {
  int version = 0;  // at least 1; serves the requests that no rollout takes
  std::optional<StagedVersion> rollout = std::nullopt;

  bool operator==(const ModelChannel&) const = default;

  // Returns "version 3, version 4 for 10% of the requests".
  std::string ToText() const;
};

// Returns INVALID_ARGUMENT with every fault: unknown keys, versions below 1, a rollout of the
// version that serves anyway, a share outside [0, 1].
StatusOr<ModelChannel> ParseModelChannel(std::string_view yaml);

// Reads the channel of the folder ROOT/NAME. NOT_FOUND where it has none; errors name the path.
StatusOr<ModelChannel> ReadModelChannel(const std::filesystem::path& folder);

// Returns the channel in which `version` takes `share` of the requests from the version that serves
// now, or all of them. FAILED_PRECONDITION where it takes a share and no channel says which version
// serves.
StatusOr<ModelChannel> ChannelFor(const std::filesystem::path& folder, int version,
                                  std::optional<double> share);

// Writes the channel atomically: readers see the old file or the new one, also after a crash. It
// does not check that the versions exist.
Status WriteModelChannel(const std::filesystem::path& folder, const ModelChannel& channel);

}  // namespace neuroshard

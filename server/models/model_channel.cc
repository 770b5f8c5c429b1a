#include "server/models/model_channel.h"

#include <limits>

#include "common/text/config_reader.h"
#include "server/networks/manifest_fields.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxChannelBytes = 1 << 16;
constexpr IntegerRange kVersion{1, std::numeric_limits<int>::max()};

}  // namespace

std::string ModelChannel::ToText() const {
  std::string text = fmt::format("version {}", version);
  if (rollout) {
    text += fmt::format(", version {} for {:g}% of the requests", rollout->version,
                        100 * rollout->share);
  }
  return text;
}

StatusOr<ModelChannel> ParseModelChannel(std::string_view yaml) {
  NS_ASSIGN_OR_RETURN(ConfigReader root, ConfigReader::FromText(std::string(yaml), ""));
  ModelChannel channel;
  RequireEnd(root, ReadFormat(root, kChannelFormat), yaml);
  root.Require({"version"});
  root.Read("version", &channel.version, kVersion);
  if (auto rollout = root.SectionIfGiven("rollout")) {
    rollout->Require({"version", "share"});
    StagedVersion staged;
    rollout->Read("version", &staged.version, kVersion);
    rollout->Read("share", &staged.share, {0, 1});
    if (staged.version == channel.version) {
      rollout->AddViolation("version", "serves all requests already");
    }
    channel.rollout = staged;
  }
  NS_RETURN_IF_ERROR(root.Finish());
  return channel;
}

StatusOr<ModelChannel> ReadModelChannel(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kChannelFileName;
  NS_ASSIGN_OR_RETURN(const std::string text, ReadRegularFile(path, kMaxChannelBytes));
  StatusOr<ModelChannel> channel = ParseModelChannel(text);
  if (!channel.ok()) return Annotate(channel.status(), path.string());
  return channel;
}

StatusOr<ModelChannel> ChannelFor(const std::filesystem::path& folder, int version,
                                  std::optional<double> share) {
  if (!share) return ModelChannel{version};
  const auto serving = ReadModelChannel(folder);
  if (absl::IsNotFound(serving.status())) {
    return FailedPrecondition(
        "{}: there is no {}, so the newest version serves all requests; say first which one keeps "
        "the rest: have that one serve, without a share",
        folder.string(), kChannelFileName);
  }
  if (!serving.ok()) return serving.status();
  return ModelChannel{serving->version, StagedVersion{version, *share}};
}

Status WriteModelChannel(const std::filesystem::path& folder, const ModelChannel& channel) {
  std::string text = fmt::format("format: {}/2\nversion: {}\n", kChannelFormat, channel.version);
  if (channel.rollout) {
    text += fmt::format("rollout: {{version: {}, share: {}}}\n", channel.rollout->version,
                        channel.rollout->share);
  }
  text += kEndOfText;
  NS_RETURN_IF_ERROR(ParseModelChannel(text).status());
  return WriteFileAtomically(folder / kChannelFileName, text);
}

}  // namespace neuroshard

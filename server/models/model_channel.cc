#include "server/models/model_channel.h"

#include <limits>

#include "server/networks/manifest_fields.h"

namespace neuroshard {
namespace {

constexpr std::int64_t kMaxChannelBytes = 1 << 16;
constexpr IntegerRange kVersion{1, std::numeric_limits<int>::max()};

void Describe(ManifestFields& fields, StagedVersion& staged) {
  fields.Number("version", &staged.version, kVersion);
  fields.Number("share", &staged.share, {0, 1});
}

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
  return ParseFields<ModelChannel>(yaml, [&](ManifestFields& fields, ModelChannel& channel) {
    int format = 0;
    fields.Format(kChannelFormat, &format);
    RequireEnd(fields.reader(), format, yaml);
    fields.Number("version", &channel.version, kVersion);
    fields.Section("rollout", &channel.rollout, Describe);
    if (channel.rollout && channel.rollout->version == channel.version) {
      fields.reader().AddViolation("rollout.version", "serves all requests already");
    }
  });
}

StatusOr<ModelChannel> ReadModelChannel(const std::filesystem::path& folder) {
  return ParseFile(folder / kChannelFileName, kMaxChannelBytes, ParseModelChannel);
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

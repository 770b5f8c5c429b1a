#include "server/networks/model_files.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <system_error>

#include "common/base/number_text.h"
#include "common/base/printable_text.h"
#include "common/base/sha256.h"
#include "server/networks/model_drift.h"
#include "server/networks/model_manifest.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMaxListBytes = 1 << 20;
// Most bytes of one file, as of its tensors.
constexpr std::int64_t kMaxFileBytes = std::int64_t{1} << 30;
constexpr std::size_t kDigits = 64;

// Whether the name of a file in a list is relative and stays inside, as in model.yaml.
bool IsInside(const std::string& name) {
  const fs::path path(name);
  return !name.empty() && !path.is_absolute() && std::ranges::find(path, "..") == path.end();
}

std::string LineOf(const std::string& name, const std::string& bytes) {
  return fmt::format("{} {} {}\n", Sha256Hex(bytes), bytes.size(), name);
}

// "SHA256 BYTES NAME" for each file, by name.
StatusOr<std::string> DescribeFiles(const fs::path& directory) {
  std::map<std::string, std::string> lines;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error);
  for (; !error && it != fs::recursive_directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code vanished;
    if (IsPassedOver(name)) {
      it.disable_recursion_pending();
      continue;
    }
    const std::string relative = it->path().lexically_relative(directory).generic_string();
    if (it->is_directory(vanished) || relative == kFileListName || relative == kDriftFileName) {
      continue;
    }
    if (relative.find('\n') != std::string::npos) {
      return InvalidArgument("{}: its name has a line's end", Quoted(it->path().string()));
    }
    NS_ASSIGN_OR_RETURN(const std::string bytes, ReadRegularFile(it->path(), kMaxFileBytes));
    lines[relative] = LineOf(relative, bytes);
  }
  if (error) return Unavailable("{}: {}", directory.string(), error.message());
  std::string text;
  for (const auto& [name, line] : lines) text += line;
  return text;
}

// Checks one line of a list.
Status CheckLine(const fs::path& directory, std::string_view line, std::string* name) {
  const auto fault = [&](const std::string& text) {
    return InvalidArgument("{}: {}", (directory / kFileListName).string(), text);
  };
  std::int64_t size = -1;
  const std::size_t space = line.find(' ', kDigits + 1);
  if (line.size() > kDigits && line[kDigits] == ' ' && space != std::string_view::npos) {
    size = NumberOf<std::int64_t>(line.substr(0, space).substr(kDigits + 1)).value_or(-1);
    *name = std::string(line.substr(space + 1));
  }
  if (size < 0 || !IsInside(*name)) {
    return fault(fmt::format("{} is not \"SHA256 BYTES NAME\"", Quoted(line)));
  }
  const fs::path path = directory / *name;
  std::error_code absent;
  const bool as_large = fs::file_size(path, absent) == static_cast<std::uintmax_t>(size);
  if (as_large && !absent) {
    NS_ASSIGN_OR_RETURN(const std::string bytes, ReadRegularFile(path, kMaxFileBytes));
    if (LineOf(*name, bytes) == fmt::format("{}\n", line)) return absl::OkStatus();
  }
  return fault(fmt::format(
      "{} is not the file of {} bytes that is listed: it is being copied, or was changed",
      Printable(*name, 256), size));
}

}  // namespace

bool IsPassedOver(const std::string& name) {
  return name.starts_with('.') || name.ends_with(".tmp") || name.ends_with('~');
}

Status WriteFileList(const fs::path& directory) {
  NS_ASSIGN_OR_RETURN(std::string text, DescribeFiles(directory));
  text += Sha256Hex(text) + "\n";
  return WriteFileAtomically(directory / kFileListName, text);
}

StatusOr<std::string> CheckModelFiles(const fs::path& directory, bool required) {
  const fs::path path = directory / kFileListName;
  const StatusOr<std::string> read = ReadRegularFile(path, kMaxListBytes);
  if (absl::IsNotFound(read.status()) && !required) {
    NS_ASSIGN_OR_RETURN(const std::string text, DescribeFiles(directory));
    return Sha256Hex(text);
  }
  if (absl::IsNotFound(read.status())) {
    return InvalidArgument(
        "{}: there is none, and model.yaml is of the format that needs it: the version is being "
        "copied, or the list was lost",
        path.string());
  }
  if (!read.ok()) return read.status();
  const std::string_view text = *read;
  const std::size_t lines_bytes = text.size() - std::min(text.size(), kDigits + 1);
  const std::string_view lines = text.substr(0, lines_bytes);
  const std::string digest = Sha256Hex(lines);
  if (text.substr(lines_bytes) != digest + "\n") {
    return InvalidArgument("{}: its last line is not the SHA-256 of those before: it is cut",
                           path.string());
  }
  bool has_manifest = false;
  for (std::size_t begin = 0; begin < lines.size();) {
    const std::size_t end = lines.find('\n', begin);
    std::string name;
    NS_RETURN_IF_ERROR(CheckLine(directory, lines.substr(begin, end - begin), &name));
    has_manifest = has_manifest || name == kManifestFileName;
    begin = end == std::string_view::npos ? lines.size() : end + 1;
  }
  if (!has_manifest) {
    return InvalidArgument("{}: does not name {}", path.string(), kManifestFileName);
  }
  return digest;
}

}  // namespace neuroshard

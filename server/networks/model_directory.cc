#include "server/networks/model_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "common/base/number_text.h"
#include "common/base/printable_text.h"
#include "common/base/sha256.h"
#include "server/networks/model_drift.h"
#include "server/networks/network_tensors.h"
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

Status CheckFiles(const ModelManifest& manifest, const std::map<std::string, TensorFile>& files) {
  std::set<std::string> used;
  for (const NetworkManifest* network : manifest.networks()) {
    const std::string& name = network->file;
    if (!used.insert(name).second) return InvalidArgument("file {} is used twice", name);
    const auto found = files.find(name);
    if (found == files.end()) return InvalidArgument("file {} is in the manifest only", name);
    NS_RETURN_IF_ERROR(CheckNetworkTensors(NetworkTensors(*network), found->second, name));
  }
  for (const auto& [name, file] : files) {
    if (!used.contains(name)) return InvalidArgument("file {} is not in the manifest", name);
  }
  return absl::OkStatus();
}

// Removes the folder it is given, whatever happens.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(fs::path path) : path_(std::move(path)) { Remove(); }
  ~TemporaryFolder() { Remove(); }
  TemporaryFolder(TemporaryFolder&&) = delete;

  const fs::path& path() const { return path_; }

 private:
  void Remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

  fs::path path_;
};

// `staged` in the place of `target`, which is there.
Status Exchange(const fs::path& staged, const fs::path& target, const fs::path& away) {
  if (::renameat2(AT_FDCWD, staged.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return Unavailable("{}: cannot be replaced: {}", target.string(), std::strerror(errno));
  }
  const TemporaryFolder replaced(away);
  std::error_code error;
  fs::rename(target, replaced.path(), error);
  if (!error) fs::rename(staged, target, error);
  if (!error) return absl::OkStatus();
  std::error_code ignored;
  fs::rename(replaced.path(), target, ignored);
  return Unavailable("{}: cannot be written: {}", target.string(), error.message());
}

Status MakeDirectories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return Unavailable("{}: cannot create: {}", directory.string(), error.message());
  return absl::OkStatus();
}

Status WriteContents(const fs::path& directory, const std::string& manifest_text,
                     const std::map<std::string, TensorFile>& files,
                     const std::map<std::string, std::string>& texts) {
  NS_RETURN_IF_ERROR(MakeDirectories(directory));
  for (const auto& [name, file] : files) {
    NS_RETURN_IF_ERROR(MakeDirectories((directory / name).parent_path()));
    NS_RETURN_IF_ERROR(WriteTensorFile(directory / name, file));
  }
  for (const auto& [name, text] : texts) {
    NS_RETURN_IF_ERROR(WriteFileAtomically(directory / name, text));
  }
  NS_RETURN_IF_ERROR(WriteFileAtomically(directory / kManifestFileName, manifest_text));
  return WriteFileList(directory);
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

std::optional<int> VersionFromName(const std::string& name) {
  const std::optional<int> version = NumberOf<int>(name);
  if (!version || *version < 1 || std::to_string(*version) != name) return std::nullopt;
  return version;
}

Status WriteModelDirectory(const fs::path& directory, const ModelManifest& written,
                           const std::map<std::string, TensorFile>& files,
                           const std::map<std::string, std::string>& texts,
                           ExistingVersion existing) {
  ModelManifest manifest = written;
  manifest.files_listed = true;
  NS_ASSIGN_OR_RETURN(const std::string manifest_text, FormatModelManifest(manifest));
  NS_RETURN_IF_ERROR(CheckModelDirectory(directory, manifest));
  NS_RETURN_IF_ERROR(CheckFiles(manifest, files));

  const fs::path target = (fs::absolute(directory) / "").lexically_normal().parent_path();
  const fs::path parent = target.parent_path();
  NS_RETURN_IF_ERROR(MakeDirectories(parent));
  // Names that start with a dot are no versions to a planner that watches the repository.
  const std::string suffix = fmt::format("{}.{}", manifest.version, ::getpid());
  const TemporaryFolder staged(parent / fmt::format(".{}.tmp", suffix));
  NS_RETURN_IF_ERROR(WriteContents(staged.path(), manifest_text, files, texts));
  // rename() replaces an empty directory and refuses any other, at once and whoever else is
  // writing.
  if (::rename(staged.path().c_str(), target.c_str()) != 0) {
    const int error = errno;
    const bool is_there = error == ENOTEMPTY || error == EEXIST || error == ENOTDIR;
    if (!is_there || existing == ExistingVersion::kRefuse) {
      const std::string text =
          fmt::format("{}: cannot be made: {}", target.string(), std::strerror(error));
      return is_there ? absl::AlreadyExistsError(text) : absl::UnavailableError(text);
    }
    NS_RETURN_IF_ERROR(Exchange(staged.path(), target, parent / (".replaced-" + suffix)));
  }
  return SyncDirectory(parent);
}

}  // namespace neuroshard

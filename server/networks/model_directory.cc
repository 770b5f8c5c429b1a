#include "server/networks/model_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>
#include <utility>

#include "common/base/number_text.h"
#include "server/networks/model_files.h"
#include "server/networks/network_tensors.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

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

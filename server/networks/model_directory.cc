#include "server/networks/model_directory.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

#include "server/networks/model_files.h"
#include "server/networks/network_tensors.h"
#include "server/networks/regular_file.h"

namespace neuroshard {
namespace {

namespace fs = std::filesystem;

Status CheckFiles(const ModelManifest& manifest, const std::map<std::string, TensorFile>& files) {
  std::set<std::string> used;
  const auto check = [&](const std::string& name, const std::vector<TensorSpec>& specs) -> Status {
    if (!used.insert(name).second) return InvalidArgument("file {} is used twice", name);
    const auto found = files.find(name);
    if (found == files.end()) return InvalidArgument("file {} is in the manifest only", name);
    return CheckNetworkTensors(specs, found->second, name);
  };
  if (manifest.universal) {
    NS_RETURN_IF_ERROR(
        check(manifest.universal->file, UniversalComputeTensors(*manifest.universal)));
  } else {
    NS_RETURN_IF_ERROR(check(manifest.compute.file, ComputeNetworkTensors(manifest.compute)));
  }
  if (manifest.comm) {
    NS_RETURN_IF_ERROR(check(manifest.comm->file, UniversalCommTensors(*manifest.comm)));
  }
  for (const auto* networks : {&manifest.forward_comm, &manifest.backward_comm}) {
    for (const CommNetworkManifest& network : *networks) {
      NS_RETURN_IF_ERROR(check(network.file, CommNetworkTensors(network)));
    }
  }
  for (const auto& [name, file] : files) {
    if (!used.contains(name)) return InvalidArgument("file {} is not in the manifest", name);
  }
  return absl::OkStatus();
}

Status MakeDirectories(const fs::path& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return Unavailable("{}: cannot create: {}", directory.string(), error.message());
  return absl::OkStatus();
}

Status WriteContents(const fs::path& directory, const std::string& manifest_text,
                     const std::map<std::string, TensorFile>& files) {
  NS_RETURN_IF_ERROR(MakeDirectories(directory));
  for (const auto& [name, file] : files) {
    NS_RETURN_IF_ERROR(MakeDirectories((directory / name).parent_path()));
    NS_RETURN_IF_ERROR(WriteTensorFile(directory / name, file));
  }
  NS_RETURN_IF_ERROR(WriteFileAtomically(directory / kManifestFileName, manifest_text));
  return WriteFileList(directory);
}

}  // namespace

Status WriteModelDirectory(const fs::path& directory, const ModelManifest& written,
                           const std::map<std::string, TensorFile>& files) {
  ModelManifest manifest = written;
  manifest.files_listed = true;
  NS_ASSIGN_OR_RETURN(const std::string manifest_text, FormatModelManifest(manifest));
  NS_RETURN_IF_ERROR(CheckModelDirectory(directory, manifest));
  NS_RETURN_IF_ERROR(CheckFiles(manifest, files));

  const fs::path target = (fs::absolute(directory) / "").lexically_normal().parent_path();
  const fs::path parent = target.parent_path();
  NS_RETURN_IF_ERROR(MakeDirectories(parent));
  const fs::path temporary = parent / fmt::format(".{}.{}.tmp", manifest.version, ::getpid());
  std::error_code ignored;
  fs::remove_all(temporary, ignored);  // of a crashed process that had our id

  Status status = WriteContents(temporary, manifest_text, files);
  // rename() replaces an empty directory and refuses any other, at once and whoever else is
  // writing.
  if (status.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error = errno;
    const std::string text =
        fmt::format("{}: cannot be made: {}", target.string(), std::strerror(error));
    status = error == ENOTEMPTY || error == EEXIST || error == ENOTDIR
                 ? absl::AlreadyExistsError(text)
                 : absl::UnavailableError(text);
  }
  if (!status.ok()) {
    fs::remove_all(temporary, ignored);
    return status;
  }
  return SyncDirectory(parent);
}

}  // namespace neuroshard

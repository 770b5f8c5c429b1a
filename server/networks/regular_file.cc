#include "server/networks/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common/base/file_descriptor.h"

namespace neuroshard {
namespace {

Status SystemError(const std::filesystem::path& path, std::string_view action) {
  const int error = errno;
  const std::string text = fmt::format("{}: {}: {}", path.string(), action, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  return absl::UnavailableError(text);
}

Status WriteAndSync(const std::filesystem::path& path, std::string_view bytes) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.open()) return SystemError(path, "create");
  if (!WriteAll(file.get(), bytes)) return SystemError(path, "write");
  if (::fsync(file.get()) != 0) return SystemError(path, "fsync");
  if (file.Close() != 0) return SystemError(path, "close");
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::string> ReadRegularFile(const std::filesystem::path& path, std::int64_t max_bytes) {
  // O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.open()) return SystemError(path, "open");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return SystemError(path, "stat");
  if (!S_ISREG(status.st_mode)) return InvalidArgument("{}: not a regular file", path.string());
  if (status.st_size > max_bytes) {
    return InvalidArgument("{}: {} bytes, more than the limit of {}", path.string(), status.st_size,
                           max_bytes);
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = ::read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path, "read");
    if (count == 0) break;  // the file shrank meanwhile
    filled += static_cast<std::size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

Status WriteFileAtomically(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::path temporary = path;
  temporary.replace_filename(fmt::format(".{}.{}.tmp", path.filename().string(), ::getpid()));
  ::unlink(temporary.c_str());  // of a crashed process that had our id
  Status status = WriteAndSync(temporary, bytes);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "rename");
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return SyncDirectory(path.has_parent_path() ? path.parent_path() : ".");
}

Status SyncDirectory(const std::filesystem::path& directory) {
  FileDescriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.open()) return SystemError(directory, "open");
  if (::fsync(folder.get()) != 0) return SystemError(directory, "fsync");
  return absl::OkStatus();
}

}  // namespace neuroshard

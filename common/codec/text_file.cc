#include "common/codec/text_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common/base/file_descriptor.h"

namespace neuroshard {
namespace {

Status FileError(int error, std::string_view doing, const std::string& path) {
  const std::string message = fmt::format("cannot {} {}: {}", doing, path, std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

// Devices and pipes are written to, not replaced; a directory is refused by open.
Status WriteInPlace(const std::string& path, std::string_view content) {
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.open()) return FileError(errno, "open", path);
  if (!WriteAll(file.get(), content)) return FileError(errno, "write", path);
  return absl::OkStatus();
}

// What a symbolic link stands for, so that the link stays.
std::string LinkTarget(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : path;
}

// A new file in the directory of `target`, its name in `beside`; -1 and errno when there can be
// none.
int CreateBeside(const std::string& target, std::string& beside) {
  constexpr int kAttempts = 100;
  int descriptor = -1;
  for (int attempt = 0; attempt < kAttempts && descriptor < 0; ++attempt) {
    beside = fmt::format("{}.{}-{}.tmp", target, getpid(), attempt);
    descriptor = open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) break;
  }
  return descriptor;
}

}  // namespace

StatusOr<std::string> ReadTextFile(const std::string& path, std::size_t max_bytes) {
  const FileDescriptor file(path == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                        : open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.open()) return FileError(errno, "open", path);
  std::string content;
  std::string chunk(std::size_t{1} << 16, '\0');
  while (true) {
    const ssize_t got = read(file.get(), chunk.data(), chunk.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, "read", path);
    if (got == 0) return content;
    if (content.size() + static_cast<std::size_t>(got) > max_bytes) {
      return ResourceExhausted("{} is larger than {} bytes, the most that is read", path,
                               max_bytes);
    }
    content.append(chunk, 0, static_cast<std::size_t>(got));
  }
}

Status WriteTextFile(const std::string& path, std::string_view content) {
  struct stat existing;
  if (stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    return WriteInPlace(path, content);
  }
  const std::string target = LinkTarget(path);
  std::string beside;
  const FileDescriptor file(CreateBeside(target, beside));
  if (!file.open()) return FileError(errno, "create", path);
  const bool written = WriteAll(file.get(), content) && fsync(file.get()) == 0 &&
                       std::rename(beside.c_str(), target.c_str()) == 0;
  if (written) return absl::OkStatus();
  const int error = errno;
  unlink(beside.c_str());
  return FileError(error, "write", path);
}

Status CheckTextFileWritable(const std::string& path) {
  struct stat existing;
  if (stat(path.c_str(), &existing) == 0 && !S_ISREG(existing.st_mode)) {
    if (S_ISDIR(existing.st_mode)) return FileError(EISDIR, "write", path);
    return access(path.c_str(), W_OK) == 0 ? absl::OkStatus() : FileError(errno, "write", path);
  }
  std::string beside;
  const FileDescriptor file(CreateBeside(LinkTarget(path), beside));
  if (!file.open()) return FileError(errno, "create", path);
  unlink(beside.c_str());
  return absl::OkStatus();
}

}  // namespace neuroshard

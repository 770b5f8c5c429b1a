/* Preloaded into a program (LD_PRELOAD): one of its changes to files below a folder fails, as on a disk that is full, read-only or
 * broken, or ends the process as kill -9 does.
 *
 *   FAULTS_BELOW=DIR     only files below are looked at; an absolute path without links
 *   FAULTS_AT=N          the N-th change; 0: none, they are only counted
 *   FAULTS_ERROR=ENOSPC  what fails from the N-th on: EROFS (opening, renaming, making), ENOSPC (also writing, growing), EIO (also
 *                        fsync); KILL: the process is killed before the N-th
 *   FAULTS_LOG=FILE      one line a change, "N operation path", and "failed" behind those that did
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* What a disk that is out of order refuses. */
enum Kind { MAKES = 1, GROWS = 2, SYNCS = 4 };

static atomic_long changes;

static void Note(long number, const char* operation, const char* path, int failed) {
  const char* log = getenv("FAULTS_LOG");
  if (log == NULL) return;
  char line[PATH_MAX + 64];
  const int length = snprintf(line, sizeof line, "%ld %s %s%s\n", number, operation, path, failed ? " failed" : "");
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return;
  (void)!syscall(SYS_write, fd, line, (size_t)length);
  syscall(SYS_close, fd);
}

/* Whether the change is to fail; errno is then set. */
static int Fails(enum Kind kind, const char* operation, const char* path) {
  const char* below = getenv("FAULTS_BELOW");
  if (below == NULL || strncmp(path, below, strlen(below)) != 0) return 0;
  const char* error = getenv("FAULTS_ERROR");
  const char* at = getenv("FAULTS_AT");
  const long first = at == NULL ? 0 : atol(at);
  const long number = atomic_fetch_add(&changes, 1) + 1;
  int fails = first > 0 && number >= first;
  int code = EIO;
  if (fails && strcmp(error, "KILL") == 0) {
    Note(number, operation, path, 1);
    syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  } else if (fails && strcmp(error, "EROFS") == 0) {
    code = EROFS;
    fails = kind == MAKES;
  } else if (fails && strcmp(error, "ENOSPC") == 0) {
    code = ENOSPC;
    fails = kind != SYNCS;
  }
  Note(number, operation, path, fails);
  if (fails) errno = code;
  return fails;
}

static int FailsAt(enum Kind kind, const char* operation, int directory, const char* path) {
  char absolute[2 * PATH_MAX];
  if (path[0] == '/') return Fails(kind, operation, path);
  char link[64];
  char folder[PATH_MAX];
  snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
  const ssize_t length = readlink(link, folder, sizeof folder - 1);
  if (length < 0) return 0;
  folder[length] = '\0';
  snprintf(absolute, sizeof absolute, "%s/%s", folder, path);
  return Fails(kind, operation, absolute);
}

static int FailsOn(enum Kind kind, const char* operation, int fd) {
  char link[64];
  char path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return Fails(kind, operation, path);
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OPEN(name)                                                                              \
  int name(const char* path, int flags, ...) {                                                  \
    va_list rest;                                                                               \
    va_start(rest, flags);                                                                      \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;        \
    va_end(rest);                                                                               \
    if ((flags & O_ACCMODE) != O_RDONLY && FailsAt(MAKES, "open", AT_FDCWD, path)) return -1;   \
    return NEXT(name)(path, flags, mode);                                                       \
  }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                                                            \
  int name(int directory, const char* path, int flags, ...) {                                   \
    va_list rest;                                                                               \
    va_start(rest, flags);                                                                      \
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;        \
    va_end(rest);                                                                               \
    if ((flags & O_ACCMODE) != O_RDONLY && FailsAt(MAKES, "open", directory, path)) return -1;  \
    return NEXT(name)(directory, path, flags, mode);                                            \
  }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                                                             \
  FILE* name(const char* path, const char* mode) {                                              \
    if (strpbrk(mode, "wa+") != NULL && FailsAt(MAKES, "open", AT_FDCWD, path)) return NULL;     \
    return NEXT(name)(path, mode);                                                              \
  }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int fd, const void* bytes, size_t count) {
  return FailsOn(GROWS, "write", fd) ? -1 : NEXT(write)(fd, bytes, count);
}
ssize_t writev(int fd, const struct iovec* parts, int count) {
  return FailsOn(GROWS, "write", fd) ? -1 : NEXT(writev)(fd, parts, count);
}
ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  return FailsOn(GROWS, "write", fd) ? -1 : NEXT(pwrite)(fd, bytes, count, offset);
}
ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t offset) {
  return FailsOn(GROWS, "write", fd) ? -1 : NEXT(pwrite64)(fd, bytes, count, offset);
}
int ftruncate(int fd, off_t length) { return FailsOn(GROWS, "ftruncate", fd) ? -1 : NEXT(ftruncate)(fd, length); }
int ftruncate64(int fd, off64_t length) { return FailsOn(GROWS, "ftruncate", fd) ? -1 : NEXT(ftruncate64)(fd, length); }
int fallocate(int fd, int mode, off_t offset, off_t length) {
  return FailsOn(GROWS, "fallocate", fd) ? -1 : NEXT(fallocate)(fd, mode, offset, length);
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  return FailsOn(GROWS, "fallocate", fd) ? -1 : NEXT(fallocate64)(fd, mode, offset, length);
}
int posix_fallocate(int fd, off_t offset, off_t length) {
  return FailsOn(GROWS, "fallocate", fd) ? errno : NEXT(posix_fallocate)(fd, offset, length);
}
int fsync(int fd) { return FailsOn(SYNCS, "fsync", fd) ? -1 : NEXT(fsync)(fd); }
int fdatasync(int fd) { return FailsOn(SYNCS, "fsync", fd) ? -1 : NEXT(fdatasync)(fd); }
int rename(const char* from, const char* to) {
  return FailsAt(MAKES, "rename", AT_FDCWD, to) ? -1 : NEXT(rename)(from, to);
}
int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned int flags) {
  return FailsAt(MAKES, "rename", to_directory, to) ? -1 : NEXT(renameat2)(from_directory, from, to_directory, to, flags);
}
int mkdir(const char* path, mode_t mode) { return FailsAt(MAKES, "mkdir", AT_FDCWD, path) ? -1 : NEXT(mkdir)(path, mode); }
int link(const char* from, const char* to) { return FailsAt(MAKES, "link", AT_FDCWD, to) ? -1 : NEXT(link)(from, to); }

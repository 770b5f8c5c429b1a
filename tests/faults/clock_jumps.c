/* Preloaded into a program (LD_PRELOAD): its wall clock is off by what the file CLOCK_JUMPS_FILE says, an int64 of nanoseconds, from the
 * moment at which somebody writes it there. The monotonic clock stays as it is. As in the kernel, a wait until a wall-clock time (absl's
 * and so gRPC's waits with a timeout) ends when that clock gets there, jumps included.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL
/* How late a wait sees a jump. */
#define SLICE (20 * 1000000LL)

static const volatile int64_t* offset;
static int (*true_clock_gettime)(clockid_t, struct timespec*);
static long (*true_syscall)(long, ...);

__attribute__((constructor)) static void Start(void) {
  *(void**)&true_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
  *(void**)&true_syscall = dlsym(RTLD_NEXT, "syscall");
  const char* path = getenv("CLOCK_JUMPS_FILE");
  const int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  void* const page = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  if (page != MAP_FAILED) offset = page;
  close(fd);
}

static int64_t Offset(void) { return offset == NULL ? 0 : *offset; }
static int64_t Nanoseconds(const struct timespec* time) { return time->tv_sec * SECOND + time->tv_nsec; }
static struct timespec Time(int64_t nanoseconds) {
  const struct timespec time = {nanoseconds / SECOND, nanoseconds % SECOND};
  return time;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
  if (true_clock_gettime == NULL) Start(); /* another library's constructor came first */
  const int result = true_clock_gettime(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) *time = Time(Nanoseconds(time) + Offset());
  return result;
}

static int64_t Now(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(&now);
}

int gettimeofday(struct timeval* restrict time, void* restrict zone) {
  (void)zone;
  const int64_t now = Now();
  time->tv_sec = now / SECOND;
  time->tv_usec = now % SECOND / 1000;
  return 0;
}

time_t time(time_t* result) {
  const time_t now = Now() / SECOND;
  if (result != NULL) *result = now;
  return now;
}

int timespec_get(struct timespec* time, int base) {
  *time = Time(Now());
  return base;
}

long syscall(long number, ...) {
  if (true_syscall == NULL) Start();
  va_list list;
  va_start(list, number);
  long a[6];
  for (int i = 0; i < 6; ++i) a[i] = va_arg(list, long);
  va_end(list);
  const struct timespec* const until = (const struct timespec*)a[3];
  const int waits_for_wall_clock = number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && until != NULL;
  if (!waits_for_wall_clock) return true_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  const int64_t end = Nanoseconds(until);
  while (1) {
    const int64_t now = Now();
    const int64_t left = end - now;
    const int64_t slice_end = now - Offset() + (left < SLICE ? left : SLICE);
    const struct timespec slice = Time(slice_end < 0 ? 0 : slice_end); /* a time long past is 0 */
    const long result = true_syscall(number, a[0], a[1], a[2], &slice, a[4], a[5]);
    if (result == 0 || errno != ETIMEDOUT || Now() >= end) return result;
  }
}

#include "common/observe/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/build_info.h"

namespace neuroshard {
namespace {

prometheus::MetricFamily Family(std::string name, std::string help, prometheus::MetricType type,
                                double value) {
  prometheus::MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  prometheus::ClientMetric& metric = family.metric.emplace_back();
  (type == prometheus::MetricType::Counter ? metric.counter.value : metric.gauge.value) = value;
  return family;
}

// proc(5), /proc/pid/stat; fields are counted from 1 there.
struct ProcessStat {
  double cpu_ticks = 0;       // 14 and 15
  double threads = 0;         // 20
  double start_ticks = 0;     // 22, since the machine started
  double virtual_bytes = 0;   // 23
  double resident_pages = 0;  // 24
};

bool ReadProcessStat(ProcessStat& stat) {
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The second field is the program's name in parentheses, with anything in it.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream fields(text.substr(name_end + 1));
  std::vector<std::string> words((std::istream_iterator<std::string>(fields)),
                                 std::istream_iterator<std::string>());
  constexpr int kFirst = 3;
  if (words.size() + kFirst <= 24) return false;
  const auto field = [&](int number) { return std::stod(words[number - kFirst]); };
  stat = {field(14) + field(15), field(20), field(22), field(23), field(24)};
  return true;
}

// Unix time; 0: not known.
double MachineStartSeconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  }
  return 0;
}

}  // namespace

std::vector<prometheus::MetricFamily> CollectProcessMetrics() {
  using prometheus::MetricType;
  std::vector<prometheus::MetricFamily> families;
  ProcessStat stat;
  if (ReadProcessStat(stat)) {
    const auto ticks_a_second = static_cast<double>(sysconf(_SC_CLK_TCK));
    families.push_back(Family("process_cpu_seconds_total", "User and system CPU time spent",
                              MetricType::Counter, stat.cpu_ticks / ticks_a_second));
    families.push_back(Family("process_start_time_seconds", "When the process started, Unix time",
                              MetricType::Gauge,
                              MachineStartSeconds() + stat.start_ticks / ticks_a_second));
    families.push_back(Family("process_resident_memory_bytes", "Resident memory", MetricType::Gauge,
                              stat.resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE))));
    families.push_back(Family("process_virtual_memory_bytes", "Virtual memory", MetricType::Gauge,
                              stat.virtual_bytes));
    families.push_back(Family("process_threads", "Threads", MetricType::Gauge, stat.threads));
  }
  std::error_code error;
  int count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end;
       it.increment(error)) {
    ++count;
  }
  if (!error) {
    families.push_back(Family("process_open_fds", "Open descriptors", MetricType::Gauge,
                              static_cast<double>(count)));
  }
  if (rlimit limit{}; getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    families.push_back(Family("process_max_fds", "Descriptors that may be open", MetricType::Gauge,
                              static_cast<double>(limit.rlim_cur)));
  }
  families.push_back(
      Family("neuroshard_build_info", "Version and commit of the program", MetricType::Gauge, 1));
  families.back().metric.front().label = {{"version", BuildVersion()},
                                          {"commit", BuildGitCommit()}};
  return families;
}

}  // namespace neuroshard

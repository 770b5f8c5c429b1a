// HOST:PORT, or unix:/PATH, that a server listens on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/base/file_descriptor.h"
#include "common/base/status.h"
#include "common/base/violations.h"
#include "common/text/config_reader.h"

namespace neuroshard {

// What stands before the path of a Unix socket.
inline constexpr std::string_view kUnixPrefix = "unix:";

// A parsed HOST:PORT, or a Unix socket.
struct ListenAddress {
  std::string host;  // without brackets; of a Unix socket "unix:/PATH"
  int port = 0;      // 0: let the system choose

  bool operator==(const ListenAddress&) const = default;
};

// "127.0.0.1:50051", "localhost:0", "[::1]:50051", "unix:/run/planner". INVALID_ARGUMENT says what
// is wrong.
StatusOr<ListenAddress> ParseListenAddress(const std::string& text);

// The inverse; IPv6 hosts get their brackets back.
std::string ToText(const ListenAddress& address);

// Whether only this host reaches every address that the host stands for. UNAVAILABLE with the
// resolver's reason.
StatusOr<bool> IsLoopback(const ListenAddress& address);

// A socket that listens.
struct ListeningSocket {
  FileDescriptor fd;      // does not block
  ListenAddress address;  // with the port that was bound
};

// A listening TCP socket. UNAVAILABLE with the system's reason ("Address already in use") when
// there can be none.
StatusOr<ListeningSocket> ListenOn(const ListenAddress& address);

// One on every address that the host stands for ("localhost": 127.0.0.1 and ::1), all on one port.
// Addresses of a family that the machine does not have are left out; a stated port that is taken on
// one of them is UNAVAILABLE. A Unix socket is a new file, which only this user may connect to.
StatusOr<std::vector<ListeningSocket>> ListenOnEach(const ListenAddress& address);

// Whether a server may do without the address.
enum class EmptyAddress { kIsAFault, kMeansNone };

// Key `key` of a server's options, HOST:PORT. Anything else is a fault.
void ReadListenAddress(ConfigReader& reader, std::string_view key, EmptyAddress empty,
                       std::string* address);

// The fault of a server's address that cannot be listened on now, as a violation of `key`. Nothing
// for malformed ones and for port 0.
void AddFaultIfTaken(std::string_view key, const std::string& address, Violations& faults);

// Whether that is a port that a process has now: no fault of a configuration.
bool IsInUse(const Violation& fault);

}  // namespace neuroshard

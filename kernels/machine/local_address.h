// An address of this host that others can reach.
#pragma once

#include <map>
#include <string>

#include "common/base/ip_network.h"
#include "common/base/status.h"

namespace neuroshard {

// An address of this host, without a port, and the network that it is in: that of its interface;
// all of 127.0.0.0/8 for an IPv4 loopback address; the address alone where the system names none.
struct LocalAddress {
  SocketAddress address;
  IpNetwork network;
  std::string interface;  // its name; empty where the system names none
};

// An address that this host is known to have, with its interface and network.
LocalAddress PlaceOf(const SocketAddress& address);

// Its interface, address and network as properties of records (common/domain/measurement.h).
std::map<std::string, std::string> NetworkProperties(const LocalAddress& local);

// That of the interface if its name is not empty, else the first of the host name's (or address's)
// that can be bound. UNAVAILABLE with the reason when there is none.
StatusOr<LocalAddress> FindLocalAddress(const std::string& host, const std::string& interface);

}  // namespace neuroshard

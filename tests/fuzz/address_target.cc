// Names and addresses: networks, sockets, listening addresses, identities of certificates.
#include "common/base/ip_network.h"
#include "common/base/printable_text.h"
#include "common/observe/listen_address.h"
#include "common/rpc/server_security.h"
#include "tests/fuzz/fuzz_target.h"

namespace neuroshard::fuzz {
namespace {

void ReadAddress(std::string_view input) {
  const std::string text(input);
  if (const auto network = IpNetwork::Parse(text); network.ok()) {
    const auto again = IpNetwork::Parse(network->ToText());
    Promise(again.ok() && *again == *network, "IpNetwork::ToText is the inverse");
  }
  if (const auto address = ParseSocketAddress(text); address.ok()) {
    const auto again = ParseSocketAddress(ToText(*address));
    Promise(again.ok() && ToText(*again) == ToText(*address), "ToText is the inverse");
  }
  if (const auto address = ParseListenAddress(text); address.ok()) {
    const auto again = ParseListenAddress(ToText(*address));
    Promise(again.ok() && *again == *address, "ToText is the inverse");
  }
  (void)Quoted(text);
  // A pattern, a name and a method, one a line.
  const std::size_t first = input.find('\n');
  if (first == std::string_view::npos || input.size() > 2000) return;
  const std::size_t second = input.find('\n', first + 1);
  const std::string pattern = text.substr(0, first);
  const std::string name = text.substr(first + 1, second - first - 1);
  Promise(MatchesPattern("*", name), "* matches everything");
  if (pattern.find('*') == std::string::npos) {
    Promise(MatchesPattern(pattern, name) == (pattern == name), "without * a pattern is a name");
  }
  ServerTls tls;
  tls.roles[CallerRole::kPlan] = {pattern};
  const std::string method = second == std::string_view::npos ? "" : text.substr(second + 1);
  if (CheckRole(tls, method, {name}).ok() && !method.starts_with("/grpc.health.v1.Health/")) {
    Promise(MatchesPattern(pattern, name), "nobody has a role without a pattern");
    Promise(method.starts_with("/neuroshard.v1.PlannerService/"), "plan is all of a planner");
  }
}

std::vector<std::string> AddressSeeds() {
  return {"10.0.0.0/8",
          "fd00::/8",
          "::ffff:10.0.0.0/104",
          "10.0.0.1:4242",
          "[fd00::1]:4242",
          "[::1%lo]:1",
          "localhost:0",
          "[::1]:50051",
          "unix:/run/planner.sock",
          "spiffe://a/*\nspiffe://a/trainer/1\n/neuroshard.v1.PlannerService/ShardPlan",
          "*a*b*\naab\n/neuroshard.v1.WorkerService/GetWorkerInfo"};
}

}  // namespace

FuzzTarget AddressTarget() { return {"address", ReadAddress, AddressSeeds}; }

}  // namespace neuroshard::fuzz

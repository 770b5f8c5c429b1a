#include "kernels/gloo/gloo_mesh.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "gloo/transport/context.h"
#include "gloo/transport/pair.h"
#include "gloo/transport/tcp/address.h"
#include "gloo/transport/tcp/device.h"
#include "gloo/transport/tcp/loop.h"
#include "gloo/transport/unbound_buffer.h"

namespace neuroshard {
namespace {

namespace tcp = ::gloo::transport::tcp;

SocketAddress AddressOf(int fd, int (*get)(int, sockaddr*, socklen_t*)) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (get(fd, &address.get(), &address.length) != 0) return {};
  return address;
}

// The descriptor of this process at the other end of a TCP connection that `mine` begins.
int OtherEndOf(int mine) {
  const std::string from = ToText(AddressOf(mine, &getsockname));
  const std::string to = ToText(AddressOf(mine, &getpeername));
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    const SocketAddress peer = AddressOf(fd, &getpeername);
    if (peer.storage.ss_family == AF_INET && ToText(peer) == from &&
        ToText(AddressOf(fd, &getsockname)) == to) {
      return fd;
    }
  }
  throw std::runtime_error("somebody else connected to a port of this process");
}

// Puts a connected socket into a new pair. Gloo offers no way to do that, only to connect by itself
// to whoever comes first. So the pair, which listens on a loopback address (MakeDevice), is
// connected to this function, and its descriptor then replaced. Gloo does not notice: its state is
// that of a connected pair which has neither sent nor received anything.
void Adopt(tcp::Device& device, ::gloo::transport::Pair& pair, const SocketFd& connection) {
  const auto& listens = dynamic_cast<const tcp::Address&>(pair.address()).getSockaddr();
  const SocketFd own(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(own.get(), reinterpret_cast<const sockaddr*>(&listens), sizeof(sockaddr_in)) != 0) {
    throw std::runtime_error(std::strerror(errno));
  }
  // The smaller of two addresses is the side that waits.
  sockaddr_in largest{
      .sin_family = AF_INET, .sin_port = 0xffff, .sin_addr = {0xffffffff}, .sin_zero = {}};
  pair.connect(tcp::Address(reinterpret_cast<const sockaddr*>(&largest), sizeof largest).bytes());

  const int fd = OtherEndOf(own.get());
  const int on = 1;
  if (setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
      dup3(connection.get(), fd, O_CLOEXEC) != fd) {
    throw std::runtime_error(std::strerror(errno));
  }
  // The I/O thread's epoll forgot the descriptor with the connection that it had.
  device.registerDescriptor(fd, EPOLLIN, &dynamic_cast<tcp::Handler&>(pair));
}

// An I/O thread. One a communicator: several ranks of one process must not share it while they are
// measured.
std::shared_ptr<tcp::Device> MakeDevice() {
  return std::make_shared<tcp::Device>(tcp::CreateDeviceAttr(tcp::attr("127.0.0.1")));
}

}  // namespace

GlooMesh::GlooMesh(int mesh_rank, int mesh_size, std::unique_ptr<RankSockets> sockets,
                   std::chrono::milliseconds timeout, std::map<std::string, std::string> network)
    : ::gloo::Context(mesh_rank, mesh_size),
      sockets_(std::move(sockets)),
      address_(sockets_ == nullptr ? "" : sockets_->address()),
      network_(std::move(network)) {
  setTimeout(timeout);
}

Status GlooMesh::CheckAddress(const std::string& address) const {
  if (size == 1) return absl::OkStatus();
  if (sockets_ == nullptr) return FailedPrecondition("connected already");
  return sockets_->CheckAddress(address);
}

Status GlooMesh::Connect(const std::vector<std::string>& addresses) {
  std::vector<SocketFd> connections(1);
  if (sockets_ != nullptr) {
    const auto deadline = std::chrono::steady_clock::now() + getTimeout();
    NS_ASSIGN_OR_RETURN(connections, sockets_->Connect(addresses, deadline, aborted_));
  } else if (addresses.size() != 1) {
    return InvalidArgument("{} addresses for a group of one rank", addresses.size());
  }
  sockets_.reset();
  const auto device = MakeDevice();
  const auto context = device->createContext(rank, size);
  context->setTimeout(getTimeout());
  for (int peer = 0; peer < size; ++peer) {
    if (peer != rank) Adopt(*device, *context->createPair(peer), connections[peer]);
  }
  device_ = device;
  transportContext_ = context;
  connected_ = true;
  // Abort stops first and then looks whether there is anything to close.
  if (aborted_.ShouldStop()) return absl::AbortedError("stopped");
  return absl::OkStatus();
}

void GlooMesh::Abort() noexcept {
  aborted_.Stop();
  if (!connected_) return;
  // The one public way to close all pairs and to tell those who wait for them: a wait that times
  // out.
  try {
    std::byte unused{};
    createUnboundBuffer(&unused, sizeof(unused))->waitRecv(nullptr, std::chrono::milliseconds(1));
  } catch (const std::exception&) {
    // The timeout.
  }
}

}  // namespace neuroshard

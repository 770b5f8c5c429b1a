#include "kernels/tcp/rank_sockets.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/base/random_token.h"
#include "common/base/sha256.h"
#include "common/base/violations.h"

namespace neuroshard {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::string_view kScheme = "neuroshard-tcp/3 ";
constexpr std::size_t kKeyBytes = 32;
constexpr std::size_t kProofBytes = 64;
// A hello: the greeting, the dialler's number in hexadecimal digits, its proof.
constexpr std::string_view kGreeting = "NSRANK";
constexpr std::size_t kRankDigits = 8;
constexpr std::size_t kHelloBytes = kGreeting.size() + kRankDigits + kProofBytes;
constexpr milliseconds kLongestRetry{50};
// How late a stop is noticed.
constexpr milliseconds kLongestWait{20};
// The time from accept to a whole proof; a peer on a loaded machine needs some of it.
constexpr milliseconds kProofTimeout{5000};

std::string SystemError() { return std::strerror(errno); }

// What has arrived of `bytes` bytes, never more. False: the other side is gone.
bool Receive(int fd, std::size_t bytes, std::string& received) {
  while (received.size() < bytes) {
    char buffer[kHelloBytes];
    const std::size_t missing = std::min(bytes - received.size(), sizeof buffer);
    const ssize_t count = recv(fd, buffer, missing, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return true;
    if (count <= 0) return false;
    received.append(buffer, static_cast<std::size_t>(count));
  }
  return true;
}

// -1: none is there.
int DiallerIn(const std::string& hello) {
  int rank = -1;
  const char* const digits = hello.data() + kGreeting.size();
  std::from_chars(digits, digits + kRankDigits, rank, 16);
  return rank;
}

// So few bytes fit a new connection's buffer, or the connection is gone.
bool Send(int fd, const std::string& bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

StatusOr<std::unique_ptr<RankSockets>> RankSockets::Open(int rank, int size,
                                                         const LocalAddress& local,
                                                         std::vector<IpNetwork> networks) {
  std::unique_ptr<RankSockets> sockets(new RankSockets(rank, size, local, std::move(networks)));
  SocketAddress bound = local.address;
  sockets->listener_ = FileDescriptor(
      socket(bound.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int fd = sockets->listener_.get();
  if (fd < 0 || bind(fd, &bound.get(), bound.length) != 0 ||
      getsockname(fd, &bound.get(), &bound.length) != 0) {
    return Unavailable("{}", SystemError());
  }
  NS_ASSIGN_OR_RETURN(sockets->key_, RandomToken());
  sockets->address_ = fmt::format("{}{} {}", kScheme, ToText(bound), sockets->key_);
  return sockets;
}

StatusOr<RankSockets::Address> RankSockets::ParseAddress(const std::string& text) const {
  const std::size_t space = text.rfind(' ');
  if (!text.starts_with(kScheme) || space < kScheme.size() ||
      text.size() - space - 1 != kKeyBytes) {
    return InvalidArgument("is not an address of neuroshard-tcp collectives of this version");
  }
  Address address{.socket = {}, .key = text.substr(space + 1)};
  const std::string socket = text.substr(kScheme.size(), space - kScheme.size());
  const auto parsed = ParseSocketAddress(socket);
  if (!parsed.ok()) return InvalidArgument("is {}", Message(parsed.status()));
  address.socket = *parsed;
  if (!AnyContains(networks_, address.socket.get())) {
    return InvalidArgument("{} is outside of the networks that this worker connects to: {}", socket,
                           ::neuroshard::ToText(networks_));
  }
  return address;
}

Status RankSockets::CheckAddress(const std::string& address) const {
  return ParseAddress(address).status();
}

std::string RankSockets::Proof(const char* of, int dialler, int listener) const {
  return Sha256Hex(fmt::format("{} {} {} {} {}", of, dialler, listener, peers_[dialler].key,
                               peers_[listener].key));
}

std::string RankSockets::Hello(int dialler, int listener) const {
  return fmt::format("{}{:0{}x}{}", kGreeting, dialler, kRankDigits,
                     Proof("dialler", dialler, listener));
}

StatusOr<std::vector<FileDescriptor>> RankSockets::Connect(
    const std::vector<std::string>& addresses, TimePoint deadline, const StopSignal& stop) {
  std::vector<Address> peers;
  for (const std::string& address : addresses) {
    NS_ASSIGN_OR_RETURN(Address peer, ParseAddress(address));
    peers.push_back(std::move(peer));
  }
  if (static_cast<int>(peers.size()) != size_ || peers[rank_].key != key_) {
    return InvalidArgument("need one of each of {} ranks, this rank's own included", size_);
  }
  peers_ = std::move(peers);
  sockets_.resize(size_);
  for (int peer = 0; peer < rank_; ++peer) {
    dials_.emplace_back();
    dials_.back().rank = peer;
  }
  if (listen(listener_.get(), SOMAXCONN) != 0) return absl::AbortedError(SystemError());
  while (!Complete()) {
    const TimePoint now = steady_clock::now();
    if (stop.ShouldStop()) return absl::AbortedError("stopped");
    if (now >= deadline) return absl::AbortedError(Missing());
    for (Dial& dial : dials_) {
      if (dial.state == Dial::State::kWaits && now >= dial.retry_at) StartDial(dial);
    }
    WaitForEvents(std::min(deadline, now + kLongestWait));
    for (Dial& dial : dials_) ContinueDial(dial);
    AcceptConnections();
    std::erase_if(accepted_, [this](Accepted& accepted) { return !ContinueAccept(accepted); });
  }
  const int on = 1;  // what is sent goes at once
  for (const FileDescriptor& socket : sockets_) {
    if (socket.open()) setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  listener_.Close();
  accepted_.clear();
  return std::move(sockets_);
}

bool RankSockets::Complete() const {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer != rank_ && !sockets_[peer].open()) return false;
  }
  return true;
}

std::string RankSockets::Missing() const {
  Violations missing;
  for (const Dial& dial : dials_) {
    if (dial.state == Dial::State::kDone) continue;
    missing.Add(
        fmt::format("rank {} at {}", dial.rank, ::neuroshard::ToText(peers_[dial.rank].socket)),
        dial.last_error);
  }
  for (int peer = rank_ + 1; peer < size_; ++peer) {
    if (!sockets_[peer].open()) missing.Add(fmt::format("rank {}", peer), "did not come");
  }
  if (refused_ > 0) missing.Add(fmt::format("{} connections of others", refused_), "refused");
  return Message(missing.ToStatus());
}

void RankSockets::WaitForEvents(TimePoint until) {
  std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
  for (const Dial& dial : dials_) {
    if (dial.state == Dial::State::kConnects) waits.push_back({dial.fd.get(), POLLOUT, 0});
    if (dial.state == Dial::State::kAwaitsProof) waits.push_back({dial.fd.get(), POLLIN, 0});
    if (dial.state == Dial::State::kWaits) until = std::min(until, dial.retry_at);
  }
  for (const Accepted& accepted : accepted_) waits.push_back({accepted.fd.get(), POLLIN, 0});
  const auto wait = std::chrono::ceil<milliseconds>(until - steady_clock::now());
  poll(waits.data(), waits.size(), static_cast<int>(std::max<std::int64_t>(wait.count(), 0)));
}

void RankSockets::StartDial(Dial& dial) {
  const SocketAddress& peer = peers_[dial.rank].socket;
  dial.fd =
      FileDescriptor(socket(peer.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  dial.received.clear();
  // From the address that the peer's operator expects, on hosts with several networks.
  if (!dial.fd.open() ||
      (local_.address.storage.ss_family == peer.storage.ss_family &&
       bind(dial.fd.get(), &local_.address.get(), local_.address.length) != 0) ||
      (connect(dial.fd.get(), &peer.get(), peer.length) != 0 && errno != EINPROGRESS)) {
    return FailDial(dial, SystemError());
  }
  dial.state = Dial::State::kConnects;
}

void RankSockets::ContinueDial(Dial& dial) {
  if (dial.state == Dial::State::kConnects) {
    pollfd writable{dial.fd.get(), POLLOUT, 0};
    if (poll(&writable, 1, 0) <= 0) return;
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(dial.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0) return FailDial(dial, std::strerror(error));
    if (!Send(dial.fd.get(), Hello(rank_, dial.rank))) return FailDial(dial, SystemError());
    dial.state = Dial::State::kAwaitsProof;
  }
  if (dial.state != Dial::State::kAwaitsProof) return;
  if (!Receive(dial.fd.get(), kProofBytes, dial.received)) {
    return FailDial(dial, "it refused this rank's proof");
  }
  if (dial.received.size() < kProofBytes) return;
  if (!SameSecret(dial.received, Proof("listener", rank_, dial.rank))) {
    return FailDial(dial, "somebody else answered");
  }
  sockets_[dial.rank] = std::move(dial.fd);
  dial.state = Dial::State::kDone;
}

void RankSockets::FailDial(Dial& dial, std::string why) {
  dial.fd.Close();
  dial.last_error = std::move(why);
  dial.state = Dial::State::kWaits;
  dial.retry_at = steady_clock::now() + dial.retry_after;
  dial.retry_after = std::min(2 * dial.retry_after, kLongestRetry);
}

void RankSockets::AcceptConnections() {
  while (true) {
    SocketAddress from;
    from.length = sizeof from.storage;
    FileDescriptor fd(
        accept4(listener_.get(), &from.get(), &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.open()) return;
    if (!AnyContains(networks_, from.get())) {
      ++refused_;
      continue;
    }
    // More than all peers at once: who has been silent for longest is none.
    if (accepted_.size() >= 2 * static_cast<std::size_t>(size_) + 64) {
      accepted_.erase(accepted_.begin());
      ++refused_;
    }
    accepted_.push_back({std::move(fd), "", steady_clock::now() + kProofTimeout});
  }
}

bool RankSockets::ContinueAccept(Accepted& accepted) {
  const bool there = Receive(accepted.fd.get(), kHelloBytes, accepted.received);
  if (there && accepted.received.size() < kHelloBytes)
    return steady_clock::now() < accepted.deadline;
  const int peer = there ? DiallerIn(accepted.received) : -1;
  const bool proven = peer > rank_ && peer < size_ && !sockets_[peer].open() &&
                      SameSecret(accepted.received, Hello(peer, rank_));
  if (!proven) {
    ++refused_;
  } else if (Send(accepted.fd.get(), Proof("listener", peer, rank_))) {
    sockets_[peer] = std::move(accepted.fd);
  }
  return false;
}

}  // namespace neuroshard

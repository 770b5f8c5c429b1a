// The PEM files of TLS: checked before they are used, and of a server the last good ones kept while
// others are written.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "common/base/file_descriptor.h"
#include "common/base/periodic_thread.h"
#include "common/base/status.h"
#include "common/rpc/rpc_gate.h"

namespace neuroshard {

// Paths of the files of a server's side of TLS.
struct ServerTlsFiles {
  std::string certificate;  // the server's, with its chain
  std::string key;
  std::string client_ca;
};

// What they hold, checked: every certificate can be read, the key is that of the first, which the
// side may use, and neither the chain nor all authorities are past their end or before their
// beginning.
struct TlsMaterial {
  std::string identity;   // certificate, chain and key in PEM
  std::string client_ca;  // in PEM
  std::int64_t certificate_ends_unix_s = 0;
  std::int64_t client_ca_ends_unix_s = 0;  // of the authority that ends last

  bool operator==(const TlsMaterial&) const = default;
};

// Whose files they are: the server's of a configuration, or a client's of the command line, where
// `client_ca` is whose servers are trusted.
enum class TlsSide { kServer, kClient };

// INVALID_ARGUMENT names every file that cannot be used, under "tls" or by its option, and why: what
// the other side of a connection would refuse without a word is refused here.
StatusOr<TlsMaterial> ReadTlsMaterial(const ServerTlsFiles& files, TlsSide side = TlsSide::kServer);

// A time in UTC, as messages have it.
std::string DateOf(std::int64_t unix_s);

// What the server at HOST:PORT shows to a caller.
struct ShownCertificate {
  std::int64_t ends_unix_s = 0;  // 0: it showed none
  std::string fault;             // why it is not accepted, as "expired at ..."; empty: it is
};

// Makes the handshake of TLS and no call: gRPC says neither what it did not accept nor why.
// `caller` has the caller's own identity, and as client_ca the authorities that it trusts.
ShownCertificate LookAtCertificate(const std::string& address, const TlsMaterial& caller);

// Two files whose content is always a whole TlsMaterial: gRPC's FileWatcherCertificateProvider reads
// them, since it takes what it finds, also a certificate without its key, and then refuses every
// connection. They are in memory, under /proc/self/fd, and are exchanged at once. A thread reads
// `files` every `reload_s`; what it cannot use it logs (tls_reload_failed), counts, and leaves.
class CheckedTlsFiles {
 public:
  // `gate` must outlive this. INTERNAL where the system gives no memory file.
  static StatusOr<std::unique_ptr<CheckedTlsFiles>> Start(ServerTlsFiles files,
                                                          TlsMaterial material, int reload_s,
                                                          RpcGate& gate);

  std::string identity_path() const { return PathOf(identity_fd_); }
  std::string client_ca_path() const { return PathOf(client_ca_fd_); }

 private:
  CheckedTlsFiles(ServerTlsFiles files, TlsMaterial material, RpcGate& gate)
      : files_(std::move(files)), gate_(gate), material_(std::move(material)) {}
  static std::string PathOf(const FileDescriptor& fd);
  Status Write();
  void Report() const;
  // Takes what the files hold now, if it can be used.
  void Reload();

  const ServerTlsFiles files_;
  RpcGate& gate_;
  TlsMaterial material_;
  std::string failure_;  // of the last reading; empty: there was none
  FileDescriptor identity_fd_;
  FileDescriptor client_ca_fd_;
  std::optional<PeriodicThread> reloading_;  // last: started when everything else is there
};

}  // namespace neuroshard

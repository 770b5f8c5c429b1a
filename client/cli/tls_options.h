// --tls-ca, --tls-cert and --tls-key of the commands that call a server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "client/stub/call_policy.h"
#include "common/base/status.h"

namespace CLI {
class App;
}

namespace neuroshard {

// Files in PEM; all empty: plaintext.
struct TlsFiles {
  std::string ca;           // whose servers are trusted
  std::string certificate;  // the caller's
  std::string key;
  std::string server_name;  // not a file: what servers' certificates name, if not their address

  // Their contents; nothing where none is stated. A usage error (throws CLI::ValidationError) where
  // the servers would refuse them without a word.
  std::optional<ClientTls> Read() const;
  // Until when they can be used, or why not.
  StatusOr<std::int64_t> EndUnixS() const;
};

// Nothing where the command has them already: one set is for every server that it calls. A file
// that cannot be used (expired, another certificate's key), or one or two of three, is a usage
// error. `files` must outlive the parse.
void AddTlsOptions(CLI::App& command, TlsFiles& files);

}  // namespace neuroshard

#include "client/cli/tls_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "common/codec/text_file.h"
#include "common/rpc/tls_files.h"

namespace neuroshard {
namespace {

std::string Contents(const std::string& path) { return ReadTextFile(path).value_or(""); }

// The fault of a file; empty: none.
std::string CheckPem(const std::string& path) {
  const auto text = ReadTextFile(path);
  if (!text.ok()) return Message(text.status());
  return text->find("-----BEGIN ") == std::string::npos ? path + " is not in PEM" : "";
}

}  // namespace

std::optional<ClientTls> TlsFiles::Read() const {
  if (ca.empty()) return std::nullopt;
  if (const Status usable = ReadTlsMaterial({certificate, key, ca}, TlsSide::kClient).status();
      !usable.ok()) {
    throw CLI::ValidationError(Message(usable));
  }
  return ClientTls{Contents(ca), Contents(certificate), Contents(key), server_name};
}

StatusOr<std::int64_t> TlsFiles::EndUnixS() const {
  NS_ASSIGN_OR_RETURN(const TlsMaterial material,
                      ReadTlsMaterial({certificate, key, ca}, TlsSide::kClient));
  return std::min(material.certificate_ends_unix_s, material.client_ca_ends_unix_s);
}

void AddTlsOptions(CLI::App& command, TlsFiles& files) {
  if (command.get_option_no_throw("--tls-ca") != nullptr) return;
  const auto add = [&command](const char* name, std::string& path, const char* what,
                              const char* variable) {
    return command.add_option(name, path, what)
        ->type_name("FILE.pem")
        ->check(CheckPem)
        ->envname(variable);
  };
  CLI::Option* const ca = add("--tls-ca", files.ca, "TLS: certificate of who the servers' are from",
                              "NEUROSHARD_TLS_CA");
  CLI::Option* const certificate =
      add("--tls-cert", files.certificate, "TLS: certificate to show to servers",
          "NEUROSHARD_TLS_CERT");
  CLI::Option* const key =
      add("--tls-key", files.key, "TLS: key of that certificate", "NEUROSHARD_TLS_KEY");
  ca->needs(certificate)->needs(key);
  certificate->needs(ca)->needs(key);
  key->needs(ca)->needs(certificate);
  command
      .add_option("--tls-server-name", files.server_name,
                  "TLS: what servers' certificates name; default: the address that is called")
      ->type_name("NAME")
      ->envname("NEUROSHARD_TLS_SERVER_NAME")
      ->needs(ca);
}

}  // namespace neuroshard

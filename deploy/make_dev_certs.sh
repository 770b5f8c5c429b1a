#!/usr/bin/env bash
# make_dev_certs.sh FOLDER [NAME=SAN,SAN...]...: a certificate authority and certificates of it, to try TLS with. Not for production: keys are not
# protected, nothing can be revoked.
#
#   deploy/make_dev_certs.sh certs server=DNS:localhost,IP:127.0.0.1 trainer=URI:spiffe://example.org/trainer/1
#
# writes FOLDER/ca.pem, and NAME.pem and NAME.key for each NAME (default: those of the example). An authority that is there is used again.
# NEUROSHARD_CERT_DAYS: for how long, default 30.
set -euo pipefail

[ $# -ge 1 ] && [ "${1#-}" = "$1" ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1
shift
[ $# -gt 0 ] || set -- server=DNS:localhost,IP:127.0.0.1 trainer=URI:spiffe://example.org/trainer/1
days=${NEUROSHARD_CERT_DAYS:-30}
umask 077
mkdir -p "$folder"
cd "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# What openssl says is of interest where it fails.
quietly() { "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; return 1; }; }
new_key() { quietly openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"; }

if [ -f ca.pem ] && [ ! -f ca.key ]; then
  echo "make_dev_certs.sh: $folder/ca.pem is an authority whose key is not there: take another folder" >&2
  exit 1
fi
if [ ! -f ca.pem ]; then
  new_key ca.key
  quietly openssl req -x509 -new -key ca.key -out ca.pem -days "$days" -subj "/CN=neuroshard development authority" \
    -addext basicConstraints=critical,CA:true -addext keyUsage=critical,keyCertSign,cRLSign
fi
for entry in "$@"; do
  name=${entry%%=*}
  [ "$name" != "$entry" ] && [ -n "$name" ] && [ "$name" != ca ] || { echo "make_dev_certs.sh: $entry is not NAME=SAN,..." >&2; exit 2; }
  new_key "$work/key"
  quietly openssl req -new -key "$work/key" -out "$work/request" -subj "/CN=$name"
  printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\nkeyUsage=digitalSignature\n' "${entry#*=}" >"$work/extensions"
  quietly openssl x509 -req -in "$work/request" -CA ca.pem -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" -days "$days" \
    -extfile "$work/extensions" -out "$work/certificate"
  mv "$work/key" "$name.key"
  mv "$work/certificate" "$name.pem"
done

#!/usr/bin/env bash
# install_test.sh BUILD: what BUILD installs. Below a prefix: programs that find their models wherever that is, manual pages, completions.
# As Debian packages: contents, dependencies, and what systemd thinks of the units.
# install_test.sh BUILD --debian CACHE: the same packages in a fresh Debian 12, made once with Debian's mmdebstrap and kept in CACHE: apt installs
# them, systemd (in systemd-nspawn) runs both servers, which plan, measure, reload, are restarted by the watchdog, take keys that root alone can read
# and stop; a purge leaves nothing but an operator's models. Needs root, Debian's mirrors and a niceness of 9 at most (searches run 10 steps below).
set -euo pipefail

build=$(realpath "$1")
cache=
if [ "${2:-}" = --debian ]; then mkdir -p "$3"; cache=$(realpath "$3"); fi
work=$(mktemp -d)
planner=
container=
finish() {
  [ -z "$planner" ] || kill -9 "$planner" 2>/dev/null || true
  [ -z "$container" ] || { kill -9 "$container" 2>/dev/null; wait "$container" 2>/dev/null; } || true
  rm -rf "$work"
}
trap finish EXIT
fail() { echo "$*" >&2; exit 1; }
programs=(neuroshard neuroshard-planner neuroshard-worker neuroshard-pretrain)

# start COMMAND...: starts a planner and sets `planner` and `address`.
start() {
  : >"$work/out"
  "$@" >"$work/out" 2>"$work/err" &
  planner=$!
  address=
  for _ in $(seq 600); do
    address=$(sed -n 's/^listening on //p' "$work/out")
    [ -z "$address" ] || return 0
    kill -0 "$planner" 2>/dev/null || { cat "$work/err"; fail "the planner ended"; }
    sleep 0.1
  done
  cat "$work/err"
  fail "the planner does not listen"
}
stop() {
  kill -TERM "$planner"
  wait "$planner" || fail "the planner ended with $?"
  planner=
}

prefix() {
  local prefix=$work/prefix file program
  cmake --install "$build" --prefix "$prefix" >/dev/null
  for file in share/neuroshard/configs/{planner,worker,pretrain}.yaml share/neuroshard/configs/{sweeps,workloads,fabrics} share/neuroshard/models/{cpu-amd-epyc,h100-sxm} \
    share/neuroshard/grafana/planner.json share/neuroshard/prometheus/alerts.yml share/bash-completion/completions/neuroshard \
    share/zsh/vendor-completions/_neuroshard share/fish/vendor_completions.d/neuroshard.fish share/doc/neuroshard-client/{README.md,copyright}; do
    [ -s "$prefix/$file" ] || fail "$file was not installed"
  done
  [ "$(ls "$prefix")" = $'bin\nshare' ] || fail "more than bin and share was installed: $(ls "$prefix")"
  [ "$(ls "$prefix/bin" | wc -l)" = ${#programs[@]} ] || fail "other programs than ours: $(ls "$prefix/bin")"
  bash -n "$prefix/share/bash-completion/completions/neuroshard"
  for program in "${programs[@]}"; do
    [[ $("$prefix/bin/$program" --version) =~ ^[0-9.]+\ \([0-9a-z-]+,\ [A-Za-z]+\)$ ]] || fail "$program has no version: $("$prefix/bin/$program" --version)"
    [[ $(zcat "$prefix/share/man/man1/$program.1.gz") == ".TH "* ]] || fail "$program has no manual page"
  done
  # A page for every command, also below commands; each names its options.
  for page in neuroshard-plan neuroshard-models-serve neuroshard-sweep-comm neuroshard-pretrain-train; do
    zcat "$prefix/share/man/man1/$page.1.gz" | grep -q '^\\fB\\-h\\fR, \\fB\\-\\-help\\fR' || fail "no page $page that has --help"
  done
  if command -v groff >/dev/null; then
    for page in "$prefix"/share/man/man1/*.1.gz; do
      [ -z "$(zcat "$page" | groff -man -Tutf8 -ww -z 2>&1)" ] || fail "troff has complaints about $page"
    done
  fi
  # Another folder than it was installed into, from another working directory.
  mv "$prefix" "$work/elsewhere"
  start env -C / "$work/elsewhere/bin/neuroshard-planner" --listen 127.0.0.1:0 --metrics ""
  grep -q "models.root=$work/elsewhere/share/neuroshard/models" "$work/err" || { cat "$work/err"; fail "other models than those beside it"; }
  "$work/elsewhere/bin/neuroshard" plan "$work/elsewhere/share/neuroshard/configs/workloads/quickstart_2x2gib.yaml" --planner "$address" --steps 1 >"$work/plan"
  grep -q "model cpu-amd-epyc" "$work/plan" || { cat "$work/plan"; fail "no plan by the model that was installed"; }
  stop
}

# field FILE FIELD: of a package.
field() { dpkg-deb --field "$1" "$2"; }

packages() {
  (cd "$build" && cpack -B "$work/packages" >"$work/cpack" 2>&1) || { cat "$work/cpack"; fail "cpack failed"; }
  local name deb root=$work/unpacked
  for name in planner worker client pretrain models; do
    deb=$(ls "$work/packages/neuroshard-${name}_"*.deb)
    dpkg-deb --extract "$deb" "$root"
    if [ "$name" = models ]; then
      [ -z "$(field "$deb" Depends)" ] || fail "models depend on $(field "$deb" Depends)"
    else
      [[ $(field "$deb" Depends) == *libgrpc++1*libstdc++6* || $name = pretrain ]] || fail "$deb depends on $(field "$deb" Depends)"
    fi
    [ -z "$(dpkg-deb --contents "$deb" | awk '$2 != "root/root"')" ] || fail "$deb has files that are not root's"
    case "$name" in
      planner | worker)
        [ "$(dpkg-deb --info "$deb" conffiles)" = "/etc/neuroshard/$name.yaml" ] || fail "$deb: conffiles"
        for script in postinst prerm postrm; do dpkg-deb --info "$deb" $script | sh -n; done ;;
    esac
  done
  for model in cpu-amd-epyc h100-sxm; do
    [ "$(readlink "$root/var/lib/neuroshard/models/$model")" = "/usr/share/neuroshard/models/$model" ] || fail "$model is not linked to"
  done
  grep -q '^  root: /var/lib/neuroshard/models$' "$root/etc/neuroshard/planner.yaml" || fail "planner.yaml has another models.root"
  if command -v systemd-analyze >/dev/null; then
    # Verified where the programs are; systemd 252 has --root for neither.
    for name in planner worker; do
      sed "s|/usr/bin/neuroshard|$root/usr/bin/neuroshard|; /^Documentation=/d" "$root/usr/lib/systemd/system/neuroshard-$name.service" >"$work/neuroshard-$name.service"
      systemd-analyze verify "$work/neuroshard-$name.service" 2>"$work/verify" || { cat "$work/verify"; fail "neuroshard-$name.service"; }
      ! grep -q "neuroshard-$name" "$work/verify" || { cat "$work/verify"; fail "neuroshard-$name.service"; }
      systemd-analyze security --offline=true --threshold=30 "$work/neuroshard-$name.service" >"$work/security" || { cat "$work/security"; fail "more exposed than 3.0"; }
      tail -n 1 "$work/security"
    done
  fi
}

# fresh_debian ROOT: with our packages in ROOT/packages; sets `inside`, which runs a command there. mmdebstrap and systemd-nspawn are taken from
# their packages, not installed.
fresh_debian() {
  [ "$(id -u)" = 0 ] || fail "a root of Debian needs root"
  if [ ! -e "$cache/root.tar" ]; then
    (cd "$work" && apt-get download -qq mmdebstrap systemd-container 2>/dev/null)
    for package in "$work"/{mmdebstrap,systemd-container}_*.deb; do dpkg --extract "$package" "$cache/tools"; done
    perl "$cache/tools/usr/bin/mmdebstrap" --quiet --variant=minbase --include=systemd-sysv bookworm "$work/root.tar"
    mv "$work/root.tar" "$cache/root.tar"
  fi
  mkdir -p "$1/packages" "$cache/archives"
  tar -C "$1" -xf "$cache/root.tar"
  cp "$work"/packages/neuroshard-{planner,worker,client,models}_*.deb "$1/packages/"
  cp /etc/resolv.conf "$1/etc/resolv.conf"
  cp "$cache"/archives/*.deb "$1/var/cache/apt/archives/" 2>/dev/null || true
  echo 'Binary::apt::APT::Keep-Downloaded-Packages "true";' >"$1/etc/apt/apt.conf.d/keep"
  inside=(chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive)
  "${inside[@]}" apt-get update -qq
}

# installed ROOT WHAT...: into the Debian in ROOT.
installed() {
  local root=$1
  shift
  "${inside[@]}" sh -c 'apt-get install -qq --no-install-recommends "$@"' sh "$@" >"$work/apt" 2>&1 || { cat "$work/apt"; fail "apt refuses: $*"; }
  cp -n "$root"/var/cache/apt/archives/*.deb "$cache/archives/"
}

# becomes WANT COMMAND...: waits until COMMAND prints WANT.
becomes() {
  local want=$1 got
  shift
  for _ in $(seq 600); do
    got=$("$@" 2>/dev/null) || true
    [ "$got" != "$want" ] || return 0
    sleep 0.1
  done
  "${booted[@]}" journalctl --unit 'neuroshard-*' --no-pager | tail -n 40
  fail "$*: $got instead of $want"
}

# How many steps of nice(1) the planner's searches are below its first thread: the unit's filter of system calls has to allow that.
niceness_of_searches() {
  "${booted[@]}" sh -c 'cd /proc/$(systemctl show --property MainPID --value neuroshard-planner)
    echo $(($(cut -d" " -f19 -s task/*/stat | sort -n | tail -n 1) - $(cut -d" " -f19 stat)))'
}

# credentials ROLE SERVER: keys that root alone can read, for a server whose user is made when it starts.
credentials() {
  local root=$work/root unit=neuroshard-$2.service file
  mkdir -p "$root/etc/systemd/system/$unit.d"
  { echo '[Service]'; for file in server.pem server.key ca.pem; do echo "LoadCredential=$file:/etc/neuroshard/tls/$file"; done; } \
    >"$root/etc/systemd/system/$unit.d/tls.conf"
  printf 'tls: {certificate: %s/server.pem, key: %s/server.key, client_ca: %s/ca.pem, roles: {%s: ["spiffe://example.org/operator"]}}\n' \
    /run/credentials/$unit /run/credentials/$unit /run/credentials/$unit "$1" >>"$root/etc/neuroshard/$2.yaml"
}

# Both servers as services of a systemd that runs as the first process of a container of its own.
services() {
  local root=$work/root overrides=$work/root/etc/systemd/system leader=
  local plan=(neuroshard plan /usr/share/neuroshard/configs/workloads/quickstart_2x2gib.yaml --planner 127.0.0.1:50051 --steps 1)
  local tls=(--tls-ca /etc/neuroshard/tls/ca.pem --tls-cert /etc/neuroshard/tls/operator.pem --tls-key /etc/neuroshard/tls/operator.key)
  mkdir -p "$overrides/neuroshard-planner.service.d"
  printf '[Service]\nWatchdogSec=2\n' >"$overrides/neuroshard-planner.service.d/watchdog.conf"
  "$cache/tools/usr/bin/systemd-nspawn" --quiet --directory="$root" --register=no --keep-unit --private-network --console=read-only --boot \
    </dev/null >"$work/boot" 2>&1 &
  container=$!
  for _ in $(seq 600); do
    leader=$(awk '{print $1}' "/proc/$container/task/$container/children" 2>/dev/null) && [ -n "$leader" ] && break
    kill -0 "$container" 2>/dev/null || { cat "$work/boot"; fail "systemd-nspawn ended"; }
    sleep 0.1
  done
  booted=(nsenter --target "$leader" --mount --uts --ipc --pid --net env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin)
  becomes $'active\nactive' "${booted[@]}" systemctl is-active neuroshard-planner neuroshard-worker
  "${booted[@]}" "${plan[@]}" >/dev/null
  [ "$(niceness_of_searches)" = 10 ] || fail "searches are $(niceness_of_searches) steps of nice below the planner's first thread, not 10"
  printf '%s\n' 'kind: compute' 'num_samples: 2' 'tables: /usr/share/neuroshard/configs/workloads/dlrm_2021_tables856.csv' 'max_tables: 2' \
    'max_weights_bytes: 16777216' 'batch_size: 64' 'settings: {warmup_iterations: 1, min_iterations: 1, max_iterations: 1}' >"$root/sweep.yaml"
  "${booted[@]}" neuroshard sweep compute /sweep.yaml --workers 127.0.0.1:50061 --store /store.db >/dev/null 2>&1 || fail "no sweep on the worker's service"
  "${booted[@]}" systemctl reload neuroshard-planner
  # Stopped, it neither answers nor says that it is alive: systemd starts another.
  "${booted[@]}" sh -c 'kill -STOP $(systemctl show --property MainPID --value neuroshard-planner)'
  becomes 1 "${booted[@]}" systemctl show --property NRestarts --value neuroshard-planner
  becomes active "${booted[@]}" systemctl is-active neuroshard-planner
  "$(dirname "${BASH_SOURCE[0]}")/../../deploy/make_dev_certs.sh" "$root/etc/neuroshard/tls" server=IP:127.0.0.1 operator=URI:spiffe://example.org/operator
  credentials plan planner
  credentials profile worker
  "${booted[@]}" systemctl daemon-reload
  "${booted[@]}" systemctl restart neuroshard-planner neuroshard-worker
  "${booted[@]}" "${plan[@]}" "${tls[@]}" >/dev/null || fail "no plan from a planner whose key is a credential of systemd"
  ! "${booted[@]}" "${plan[@]}" >/dev/null 2>&1 || fail "a planner with tls answers in the clear"
  "${booted[@]}" neuroshard sweep compute /sweep.yaml --workers 127.0.0.1:50061 --store /tls.db "${tls[@]}" >/dev/null 2>&1 \
    || fail "no sweep on a worker whose key is a credential of systemd"
  "${booted[@]}" systemctl stop neuroshard-planner neuroshard-worker
  becomes $'Result=success\n\nResult=success' "${booted[@]}" systemctl show --property Result neuroshard-planner neuroshard-worker
  "${booted[@]}" systemctl poweroff 2>/dev/null
  wait "$container" || true
  container=
  rm -r "$overrides"/neuroshard-{planner,worker}.service.d "$root/etc/neuroshard/tls"
}

debian() {
  local root=$work/root left
  fresh_debian "$root"
  installed "$root" $(cd "$root" && ls -d packages/*.deb | sed 's|^|/|')
  for server in planner worker; do
    [ -L "$root/etc/systemd/system/multi-user.target.wants/neuroshard-$server.service" ] || fail "neuroshard-$server.service is not enabled"
  done
  start "${inside[@]}" setpriv --reuid 65534 --regid 65534 --clear-groups neuroshard-planner --config /etc/neuroshard/planner.yaml --listen 127.0.0.1:0 --metrics ""
  "${inside[@]}" neuroshard plan /usr/share/neuroshard/configs/workloads/quickstart_2x2gib.yaml --planner "$address" --steps 1 >"$work/plan"
  grep -q "model cpu-amd-epyc" "$work/plan" || { cat "$work/plan"; fail "no plan by the model that was installed"; }
  stop
  "${inside[@]}" neuroshard-worker --config /etc/neuroshard/worker.yaml --check-config --listen 127.0.0.1:0 --metrics 127.0.0.1:0
  services

  mkdir -p "$root/var/lib/neuroshard/models/mine/1"
  "${inside[@]}" apt-get purge -qq 'neuroshard-*' >"$work/apt" 2>&1 || { cat "$work/apt"; fail "apt cannot purge the packages"; }
  grep -q "while removing neuroshard-planner, directory '/var/lib/neuroshard/models' not empty" "$work/apt" || { cat "$work/apt"; fail "the purge does not say what stays"; }
  left=$(find "$root" -xdev -path "$root/proc" -prune -o -path "$root/packages" -prune -o -iname '*neuroshard*' -print)
  [ "$left" = "$root/var/lib/neuroshard" ] || fail "left after the purge: $left"
  [ "$(find "$left" -type d -o -print)" = "" ] || fail "left after the purge: $(find "$left")"
  "${inside[@]}" dpkg --audit
  [ -z "$("${inside[@]}" dpkg-query --show 'neuroshard-*' 2>/dev/null)" ] || fail "dpkg still knows them"
}

# The image of deploy/oci, built in a Debian that has its tools. buildah runs it as a container engine would, but for limits: as its user, with its command
# and nothing to write to; its health check is what says that the planner answers.
image() {
  local root=$work/builder oci
  oci=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../deploy/oci")
  fresh_debian "$root"
  installed "$root" mmdebstrap buildah
  cp -r "$oci" "$root/oci"
  cat >"$root/run_image.sh" <<'SCRIPT'
set -eu
export STORAGE_DRIVER=vfs
/oci/build.sh /packages /image.tar neuroshard:test
echo '{"default": [{"type": "insecureAcceptAnything"}]}' >/policy.json
container=$(buildah from --quiet --signature-policy /policy.json docker-archive:/image.tar)
buildah inspect --format '{{.Docker.Config.User}} {{.Docker.Config.Cmd}} {{.Docker.Config.Healthcheck.Test}} {{.Docker.Config.StopSignal}}' "$container"
inside() { buildah run --isolation chroot "$container" -- "$@"; }
# Nothing is its own; what everybody may write to is /tmp and the like.
[ -z "$(inside sh -c 'find / -xdev \( -path /proc -o -path /sys -o -path /dev \) -prune -o -type d -writable -not -perm -1000 -print 2>/dev/null || true')" ]
inside neuroshard-planner --config /etc/neuroshard/planner.yaml >/planner.log 2>&1 &
for _ in $(seq 600); do ! inside neuroshard models list --planner 127.0.0.1:50051 2>/dev/null || break; sleep 0.1; done
inside neuroshard plan /usr/share/neuroshard/configs/workloads/quickstart_2x2gib.yaml --steps 1
inside bash -c "$(sed -n 's/^HEALTHCHECK .* CMD //p' /oci/Dockerfile | sed 's/\\\\/\\/g; s/\\"/"/g; s/^.*"-c", "//; s/"]$//')"
inside sh -c 'grep Uid: /proc/[0-9]*/status' | grep -c 65532
SCRIPT
  # buildah wants a root that is a mount.
  unshare --mount --pid --fork --kill-child sh -c '
    mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" && mount --rbind /dev "$1/dev"
    shift && exec "$@"' sh "$root" "${inside[@]}" sh /run_image.sh >"$work/image" 2>&1 || { cat "$work/image"; fail "the image"; }
  grep -qE '^65532:65532 .neuroshard-planner --config /etc/neuroshard/planner.yaml. .CMD bash -c .*/readyz.* SIGTERM' "$work/image" \
    || { cat "$work/image"; fail "the image has another configuration"; }
  grep -q "model cpu-amd-epyc" "$work/image" || { cat "$work/image"; fail "no plan by the model in the image"; }
}

prefix
packages
if [ -n "$cache" ]; then
  debian
  image
fi
echo "installed programs work"

# shellcheck shell=bash disable=SC2034
# Settings and helpers that up.sh, down.sh and image.sh share.

set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# Kept between runs and worth carrying between machines: binaries, base image.
cache=${CLUSTER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/kube-cluster}
# 0 starts the control plane alone, on loopback, with no containers at all.
nodes=${CLUSTER_NODES:-2}
# The first three bytes of the /24 that joins this host and the nodes.
net=${CLUSTER_NET:-10.77.0}

etc=/etc/kube-cluster
bin=$etc/bin
state=/var/lib/kube-cluster
run=/run/kube-cluster
cgroup=/kube-cluster
docker_socket=$state/docker.sock

node_net=${CLUSTER_KIND_NET:-10.78.0}
pod_net=10.244
service_net=10.96.0
dns_ip=$service_net.10

nofile=$(ulimit -Hn)
[ "$nofile" != unlimited ] || nofile=1000000

say() { printf '%s %s\n' "$(date +%T)" "$*" >&2; }
die() { say "error: $*"; exit 1; }

# start_time PID prints when the process started, which tells it from a later
# process with the same number; nothing if there is no such process.
start_time() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  # shellcheck disable=SC2086
  set -- ${stat##*) }
  [ "$1" = Z ] || echo "${20}"
}

# running NAME says whether the process that `start NAME` started still runs.
running() {
  local pid born
  read -r pid born 2>/dev/null <"$run/$1.pid" && [ "$(start_time "$pid")" = "$born" ]
}

# gone NAME says whether nothing of that process is left. A killed one counts
# as ended before its last threads are, and those still hold its listeners.
gone() {
  local pid born
  read -r pid born 2>/dev/null <"$run/$1.pid" || return 0
  ! running "$1" && { [ -n "$(start_time "$pid")" ] || [ "$(ls "/proc/$pid/task" 2>/dev/null | wc -l)" -le 1 ]; }
}

# start NAME COMMAND... runs the command in the background, unless it runs.
start() {
  local name=$1
  shift
  if running "$name"; then return; fi
  wait_for 30 "the end of the last $name" gone "$name"
  setsid "$@" </dev/null >>"$state/log/$name.log" 2>&1 &
  echo "$! $(start_time $!)" >"$run/$name.pid"
}

# stop NAME... kills what `start NAME` started, and waits until it is gone.
stop() {
  local name pid born
  for name; do
    if running "$name"; then
      read -r pid born <"$run/$name.pid"
      kill -9 "$pid" 2>/dev/null || true
      while running "$name"; do sleep 0.05; done
    fi
    rm -f "$run/$name.pid"
  done
}

# last_words NAME shows the end of that program's log, if it has one.
last_words() { [ ! -s "$state/log/$1.log" ] || tail -n 15 "$state/log/$1.log" | cut -c1-300 >&2; }

# wait_for SECONDS WHAT COMMAND... polls the command until it succeeds.
wait_for() {
  local end=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { last_words "$what"; die "$what: not there in time; see $state/log"; }
    sleep 0.2
  done
}

# node_names prints the names of the nodes that have state on this machine.
node_names() {
  local dir
  for dir in "$state"/node-*; do
    [ ! -d "$dir" ] || basename "$dir"
  done
}

# only_one KIND ends this script if there is a cluster of another kind.
only_one() {
  [ "$(id -u)" = 0 ] || die "needs root"
  if [ -e "$etc/nodes" ] && [ "$(cat "$etc/nodes")" != "$1" ]; then
    die "there is a cluster of another kind: end it with down.sh first"
  fi
}

# tune raises a limit of the kernel's, and notes for down.sh what it and those
# that a kubelet changes were before.
tune() {
  if [ -e "$state/sysctl" ]; then return; fi
  sysctl vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops \
    fs.inotify.max_user_instances >"$state/sysctl"
  sysctl -q -w fs.inotify.max_user_instances=1024
}

# import_image FILE gives an image to every node.
import_image() {
  local node
  for node in $(node_names); do
    ctr --address "$state/$node/containerd.sock" --namespace k8s.io images import "$1"
  done
  if [ -S "$docker_socket" ]; then
    for node in $(docker ps --format '{{.Names}}'); do
      docker exec -i "$node" ctr --namespace k8s.io images import - <"$1"
    done
  fi
}

docker() { "$cache/docker/usr/bin/docker" --host "unix://$docker_socket" "$@"; }

#!/bin/bash
# Brings up a Kubernetes cluster on this machine and prints the path of its
# kubeconfig. Safe to run again: what runs already is left alone.
. "$(dirname "$0")/lib.sh"
. "$here/programs.sh"

host=127.0.0.1
[ "$nodes" = 0 ] || host=$net.1

# certificate NAME SUBJECT [ALTERNATIVE NAMES] makes NAME.crt and NAME.key.
certificate() {
  local extra=()
  [ -z "${3-}" ] || extra=(-addext "subjectAltName=$3")
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 \
    -CA "$etc/ca.crt" -CAkey "$etc/ca.key" -subj "$2" "${extra[@]}" \
    -addext basicConstraints=critical,CA:FALSE \
    -addext keyUsage=critical,digitalSignature \
    -addext extendedKeyUsage=serverAuth,clientAuth \
    -keyout "$etc/$1.key" -out "$etc/$1.crt" 2>/dev/null
}

# kubeconfig NAME SUBJECT makes NAME.kubeconfig for a client with that name.
kubeconfig() {
  certificate "$1" "$2"
  cat >"$etc/$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
current-context: cluster
clusters:
- name: cluster
  cluster:
    server: https://$host:6443
    certificate-authority-data: $(base64 -w0 "$etc/ca.crt")
users:
- name: $1
  user:
    client-certificate-data: $(base64 -w0 "$etc/$1.crt")
    client-key-data: $(base64 -w0 "$etc/$1.key")
contexts:
- name: cluster
  context: {cluster: cluster, user: $1}
EOF
}

# render FILE [NODE [PODS]] prints a file of config/ with its places filled in.
render() {
  sed -e "s|@ETC@|$etc|g" -e "s|@STATE@|$state|g" -e "s|@CGROUP@|$cgroup|g" \
    -e "s|@HOST@|$host|g" -e "s|@DNS@|$dns_ip|g" -e "s|@NOFILE@|$nofile|g" \
    -e "s|@NODE@|${2-}|g" -e "s|@PODS@|${3-}|g" "$here/config/$1"
}

configure() {
  if [ -e "$etc/admin.kubeconfig" ]; then return; fi
  link_programs
  echo "$nodes" >"$etc/nodes"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj /CN=cluster-ca \
    -addext keyUsage=critical,digitalSignature,keyCertSign -keyout "$etc/ca.key" -out "$etc/ca.crt" 2>/dev/null
  certificate apiserver /CN=kube-apiserver \
    "IP:127.0.0.1,IP:$host,IP:$service_net.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  openssl ecparam -genkey -name prime256v1 -noout -out "$etc/service-accounts.key"
  kubeconfig kube-controller-manager /CN=system:kube-controller-manager
  kubeconfig kube-scheduler /CN=system:kube-scheduler
  kubeconfig kube-proxy /CN=system:kube-proxy
  kubeconfig coredns /CN=coredns
  render Corefile >"$etc/Corefile"
  kubeconfig admin /O=system:masters/CN=admin
}

kubectl() { "$bin/kubectl" --kubeconfig "$etc/admin.kubeconfig" "$@"; }

# api_server_ready asks the API server, and starts it again where it ended: one
# that was being killed when it was looked for counted as running.
api_server_ready() {
  start kube-apiserver "${api_server[@]}"
  kubectl get --raw /readyz
}

start_control_plane() {
  local advertise=(--advertise-address "$host") controllers="*"
  if [ "$nodes" = 0 ]; then
    # A loopback address may not be published as the endpoint of a service.
    advertise=(--endpoint-reconciler-type none)
    # Nodes and pods are a test's own: nothing may judge them dead.
    controllers="*,-node-lifecycle-controller,-taint-eviction-controller,-pod-garbage-collector-controller"
  fi
  # Sockets, as etcd asks no client who it is. It wants to publish an address
  # all the same, which nothing uses.
  start etcd "$bin/etcd" --name main --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "unix://$run/etcd.sock" --advertise-client-urls http://127.0.0.1:2379 \
    --listen-peer-urls "unix://$run/etcd-peer.sock" --initial-advertise-peer-urls http://127.0.0.1:2380 \
    --initial-cluster main=http://127.0.0.1:2380
  wait_for 30 etcd test -S "$run/etcd.sock"
  api_server=("$bin/kube-apiserver" \
    --etcd-servers "unix://$run/etcd.sock" \
    --bind-address "$host" --secure-port 6443 "${advertise[@]}" \
    --service-cluster-ip-range "$service_net.0/24" \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --allow-privileged \
    --client-ca-file "$etc/ca.crt" \
    --tls-cert-file "$etc/apiserver.crt" --tls-private-key-file "$etc/apiserver.key" \
    --kubelet-certificate-authority "$etc/ca.crt" \
    --kubelet-client-certificate "$etc/kubelet-client.crt" --kubelet-client-key "$etc/kubelet-client.key" \
    --kubelet-preferred-address-types InternalIP \
    --service-account-issuer https://kubernetes.default.svc.cluster.local \
    --service-account-key-file "$etc/service-accounts.key" \
    --service-account-signing-key-file "$etc/service-accounts.key")
  start kube-apiserver "${api_server[@]}"
  start kube-controller-manager "$bin/kube-controller-manager" \
    --kubeconfig "$etc/kube-controller-manager.kubeconfig" --leader-elect=false \
    --use-service-account-credentials \
    --service-account-private-key-file "$etc/service-accounts.key" --root-ca-file "$etc/ca.crt" \
    --cluster-signing-cert-file "$etc/ca.crt" --cluster-signing-key-file "$etc/ca.key" \
    --controllers "$controllers" --bind-address 127.0.0.1
  [ "$nodes" = 0 ] || start kube-scheduler "$bin/kube-scheduler" \
    --kubeconfig "$etc/kube-scheduler.kubeconfig" --leader-elect=false --bind-address 127.0.0.1
  wait_for 120 kube-apiserver api_server_ready
}

# start_network makes a switch that joins this host and the nodes. It is in a
# namespace of its own, so no firewall rule of this host applies to it.
start_network() {
  if ip -n kc-switch link show switch >/dev/null 2>&1; then return; fi
  ip netns delete kc-switch 2>/dev/null || true
  ip link delete kc-host 2>/dev/null || true
  ip netns add kc-switch
  ip -n kc-switch link add switch type bridge
  ip -n kc-switch link set switch up
  ip link add kc-host type veth peer name host netns kc-switch
  ip -n kc-switch link set host master switch up
  ip address add "$net.1/24" dev kc-host
  ip link set kc-host up
}

# start_node N starts node-N at address .1N with the pods of 10.244.N.0/24.
start_node() {
  local n=$1 name=node-$1 address=$net.$((10 + $1)) pods=$pod_net.$1.0/24 other path
  if running "$name"; then return; fi
  ip netns delete "kc-$name" 2>/dev/null || true
  ip netns add "kc-$name"
  ip -n kc-switch link add "$name" type veth peer name eth0 netns "kc-$name"
  ip -n kc-switch link set "$name" master switch up
  ip -n "kc-$name" link set lo up
  ip -n "kc-$name" address add "$address/24" dev eth0
  ip -n "kc-$name" link set eth0 up
  for other in $(seq "$nodes"); do
    [ "$other" = "$n" ] || ip -n "kc-$name" route add "$pod_net.$other.0/24" via "$net.$((10 + other))"
  done
  ip route replace "$pods" via "$address"
  for path in /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers; do
    mkdir -p "$path" "$state/$name$path"
  done
  for path in /sys/fs/cgroup/*/; do
    [ ! -e "$path/cgroup.procs" ] || mkdir -p "$path$cgroup/$name"
  done
  mkdir -p "$etc/$name/cni"
  render containerd.toml "$name" >"$etc/$name/containerd.toml"
  render kubelet.yaml "$name" >"$etc/$name/kubelet.yaml"
  render pods.conflist "$name" "$pods" >"$etc/$name/cni/pods.conflist"
  if [ ! -e "$etc/$name.kubeconfig" ]; then
    kubeconfig "$name" "/O=system:nodes/CN=system:node:$name"
    certificate "$name" "/O=system:nodes/CN=system:node:$name" "IP:$address,DNS:$name"
  fi
  start "$name" nsenter --net="/run/netns/kc-$name" \
    unshare --mount --uts --ipc --pid --fork --kill-child --propagation private \
    "$here/node.sh" "$name" "$address"
}

[ "$nodes" = 0 ] || [ -d /sys/fs/cgroup/memory ] || die "nodes need version 1 of control groups"
only_one "$nodes"
programs
configure
if [ "$nodes" != 0 ]; then
  tune
  start_network
fi
say "starting the control plane"
start_control_plane
if [ "$nodes" != 0 ]; then
  start coredns "$bin/coredns" -conf "$etc/Corefile"
  for n in $(seq "$nodes"); do start_node "$n"; done
  # Services are reached from this host through the first node.
  ip route replace "$service_net.0/24" via "$net.11"
  render system.yaml | kubectl apply -f - >&2
  for n in $(seq "$nodes"); do wait_for 120 "node-$n" kubectl get node "node-$n"; done
  kubectl wait --for condition=Ready node --all --timeout 120s >&2
  wait_for 30 CoreDNS curl -fs "http://$host:8181/ready"
fi
wait_for 30 "the default service account" kubectl get serviceaccount default
say "ready; programs are in $bin"
echo "$etc/admin.kubeconfig"

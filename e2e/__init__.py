"""Pharos on a real Kubernetes, with real engines in Pods: any cluster that KUBECONFIG names, else hack/cluster's."""

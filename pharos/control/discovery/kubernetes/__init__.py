"""Backends from annotations on Pods and Services: own list and watch, nothing written but Events on refusals."""

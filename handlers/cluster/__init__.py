"""What several hosts need: disks of their own, an object store, replicas, evaluations elsewhere.

A ring around the core: nothing in `engine/`, the usual handlers or `checkpoint/` imports it.
"""

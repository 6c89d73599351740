"""Bridges to other libraries: each room knows one of them.

A ring around the core: nothing in `engine/`, the usual handlers or `checkpoint/` imports it.
"""

"""Bridges to other training libraries: each room knows one of them, and nothing else imports it."""

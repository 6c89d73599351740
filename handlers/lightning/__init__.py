"""Lightning's callbacks on an engine made by `from_lightning`."""

from .from_lightning import FromLightning

__all__ = ["FromLightning"]

"""`camshaft run`: a run from one YAML file."""

from .run_config import ConfigError, run_config, yaml_settings

__all__ = ["ConfigError", "run_config", "yaml_settings"]

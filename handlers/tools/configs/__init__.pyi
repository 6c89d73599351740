from .run_config import ConfigError as ConfigError
from .run_config import run_config as run_config
from .run_config import yaml_settings as yaml_settings

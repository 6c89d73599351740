"""From a YAML file to its run: what it says, its parts, each made once, and the call of `run`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from ...engine import Engine, Events, Stage, State, advice, ranks
from ..files import make_directory, replacing
from ..journal import Journal

NEEDED = ("directory", "engine", "run")
KEYS = (*NEEDED, "seed", "handlers")
OF_RUNS = {name: f"run.{name}" for name in inspect.signature(Engine.run).parameters}
OF_HYDRA = ("_target_", "_args_", "_partial_", "_recursive_", "_convert_")
UNDER_WAY = object()
LACKING = 'needs Hydra: pip install "camshaft[config]"'


class ConfigError(ValueError):
    """A config from which no run can be made: names the key, and says what is possible."""


def run_config(
    path: str | os.PathLike[str],
    overrides: Sequence[str] = (),
    *,
    max_batches: int | None = None,
) -> tuple[Engine[Any, Any], State[Any, Any]]:
    """Make an engine and its handlers from a YAML file, and run it: `camshaft run` in Python.

    Each part with a `_target_` is made once, and `${key}` elsewhere is what was made. The file is
    code: it calls what it names. Needs `pip install "camshaft[config]"`.

    Args:
        path: The config. Its keys are `directory`, `engine` and `run`, perhaps `seed` and
            `handlers`, and others to which these refer.
        overrides: Changes in Hydra's grammar, such as `["lr=0.01", "~handlers.stop"]`.
        max_batches: For trials: replaces `run.max_batches`.

    Returns:
        The engine, whose `objects` hold the model, and the state at the end of the run.

    Raises:
        ConfigError: The config is wrong: a ValueError that names the key. Exceptions of what the
            config calls come through, with the key in a note.
    """
    given = [*overrides] + [f"++run.max_batches={max_batches}"] * (max_batches is not None)
    try:
        parts = Parts(read_config(Path(path), given))
        with ranks.process_group():
            engine = parts.engine()
            return engine, engine.run(**parts.make("run"))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error.__cause__


def read_config(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The values of a config, in which references to what is made stay, such as `${model}`."""
    try:
        from hydra import compose, initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError
    except ModuleNotFoundError as error:
        raise ConfigError(LACKING) from error
    if path.suffix != ".yaml" or not path.is_file():
        raise ConfigError("there is no file of this name that ends in .yaml")
    try:
        with initialize_config_dir(str(path.parent.resolve()), version_base="1.3"):
            config = compose(path.stem, [*overrides], return_hydra_config=True)
        settings = {str(key): _resolved(config, key) for key in config if key != "hydra"}
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(str(error)) from error
    if lacking := [key for key in NEEDED if settings.get(key) is None]:
        raise ConfigError(f"lacks {', '.join(lacking)}; a run needs {', '.join(NEEDED)}")
    for key in sorted(settings.keys() - used_in(OmegaConf.to_yaml(config))):
        raise ConfigError(
            f"{key}: nothing uses it{advice(key, KEYS, OF_RUNS)}; besides {', '.join(KEYS)}, "
            "a key is for what others refer to, by ${" + key + "}"
        )
    return settings


def yaml_settings(path: Path) -> Any:
    """The values of any YAML file; of a config, as a run would use them.

    Raises:
        ConfigError: It cannot be read.
    """
    with suppress(ConfigError):
        return read_config(path, ())
    try:
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}: {LACKING}") from error
    try:
        return OmegaConf.to_container(OmegaConf.load(path))
    except (OmegaConfBaseException, YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from error


def used_in(text: str) -> set[str]:
    """The keys that mean something, and those to which others refer."""
    return {*KEYS, *re.findall(r"(?:\$\{|oc\.[a-z.]+:)\.*(\w+)", text)}


def _resolved(parent: Any, name: Any) -> Any:
    from omegaconf import OmegaConf

    value = parent[name]
    if not OmegaConf.is_config(value):
        return value.replace("${", r"\${") if isinstance(value, str) else value
    key = value._get_parent()._get_full_key(value._key())
    if key != parent._get_full_key(name) and "_target_:" in OmegaConf.to_yaml(value):
        return "${" + key + "}"
    if OmegaConf.is_dict(value):
        return {each: _resolved(value, each) for each in value}
    return [_resolved(value, each) for each in range(len(value))]


class Parts:
    """The parts of a config by their keys, each made once, in order or when another needs it."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self._made: dict[str, Any] = {}
        self._nodes: dict[str, Any] = {}
        self._calls: dict[str, Callable[..., Any]] = {}
        for key, node in settings.items():
            self._find_calls(key, node)
        for key, kinds in {"run": dict, "handlers": dict | list}.items():
            if not isinstance(settings.get(key, {}), kinds):
                raise ConfigError(f"{key}: needs names and values, and not {settings[key]!r}")
        _check_arguments("run: engine.run", Engine.run, {"_args_": [None], **settings["run"]})

    def engine(self) -> Engine[Any, Any]:
        """The engine with its handlers, a `Journal`, and a function that saves the config."""
        if (seed := self.settings.get("seed")) is not None:
            from ...engine import seed_everything  # which imports torch

            with _noting("seed"):
                seed_everything(seed)
        for key in self.settings:
            self.make(key)
        engine, directory = self.make("engine"), Path(self.make("directory"))
        if not isinstance(engine, Engine):
            raise ConfigError(f"engine: gives a {type(engine).__name__}, and not an Engine")
        for key, handler in _children("handlers", self._made.get("handlers")):
            if isinstance(handler, Journal):
                raise ConfigError(f"{key}: leave it out, since `directory` gets a Journal anyway")
            with _noting(key):
                engine.add(handler)
        engine.add(Journal(directory, config=self.settings))

        @engine.on(Events.STARTED, stage=Stage.REPORT)  # a run that resumes accepts it before
        @ranks.rank_zero_only
        def save_config(state: State[Any, Any]) -> None:
            from omegaconf import OmegaConf

            used = used_in(OmegaConf.to_yaml(self.settings))
            saved = {key: each for key, each in self.settings.items() if key in used}
            make_directory(directory)
            with replacing(directory / "resolved.yaml") as file:
                file.write(OmegaConf.to_yaml(saved).encode())

        return engine

    def make(self, key: str) -> Any:
        """What a key stands for, such as `model` or `data.train`."""
        if key not in self._made:
            self._made[key] = UNDER_WAY
            made = self._make(key, self._nodes[key])
            if key == "optimizer" and isinstance(made, partial) and "model" in self._nodes:
                with _noting(key):
                    made = made(self.make("model").parameters())
            self._made[key] = made
        if self._made[key] is UNDER_WAY:
            raise ConfigError(f"{key}: it refers to itself, perhaps by way of others")
        return self._made[key]

    def _make(self, key: str, node: Any) -> Any:
        if isinstance(node, str):
            return self.make(node[2:-1]) if node[:2] == "${" else node.replace(r"\${", "${")
        if isinstance(node, list):
            return [self.make(inner) for inner, _ in _children(key, node)]
        if not isinstance(node, dict):
            return node
        recursive = node.get("_recursive_", True)
        values = {
            name: self.make(f"{key}.{name}") if recursive else each for name, each in node.items()
        }
        if key not in self._calls:
            return values
        given = {name: each for name, each in values.items() if name not in OF_HYDRA}
        call = partial(self._calls[key], *values.get("_args_", ()), **given)
        with _noting(key):
            return call if values.get("_partial_") else call()

    def _find_calls(self, key: str, node: Any) -> None:
        """Import what is called, and compare the names of its arguments."""
        from hydra.errors import InstantiationException
        from hydra.utils import instantiate

        self._nodes[key] = node
        for inner, each in _children(key, node):
            self._find_calls(inner, each)
        if isinstance(node, dict) and "_target_" in node:
            target = str(node["_target_"])
            try:
                call = instantiate({"_target_": target, "_partial_": True}).func
            except InstantiationException as error:
                cause = error.__cause__ and error.__cause__.__cause__
                if cause and not isinstance(cause, ModuleNotFoundError | AttributeError):
                    raise cause from None  # of the user's module
                module, _, last = target.rpartition(".")
                meant = advice(last, dir(sys.modules.get(module)), {})
                raise ConfigError(f"{key}._target_: {error.__cause__ or error}{meant}") from error
            _check_arguments(f"{key}: {target}", call, node)
            self._calls[key] = call


def _children(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a dict or list, by their full keys."""
    if isinstance(node, dict):
        yield from ((f"{key}.{name}", each) for name, each in node.items())
    elif isinstance(node, list):
        yield from ((f"{key}[{place}]", each) for place, each in enumerate(node))


def _check_arguments(call: str, function: Any, node: dict[str, Any]) -> None:
    given = {name: None for name in node if name not in OF_HYDRA}
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions of C
        return
    bind = signature.bind_partial if node.get("_partial_") else signature.bind
    try:
        bind(*([] if isinstance(args := node.get("_args_", []), str) else args), **given)
    except TypeError as error:
        known = [*signature.parameters]
        if odd := [name for name in given if name not in known]:
            meant = advice(odd[0], known, {}) or f"; it has {', '.join(known)}"
            raise ConfigError(f"{call} has no argument {odd[0]!r}{meant}") from None
        raise ConfigError(f"{call}: {error}") from None


@contextmanager
def _noting(key: str) -> Generator[None]:
    """Say in an exception which key of the config it comes from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"by {key} of the config")
        raise

"""From a YAML file to its run: what it says, its parts, each made once, and the call of `run`."""

from __future__ import annotations

import inspect
import logging
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any

from ....engine import Engine, EventEnum, Events, Stage, State, advice, ranks
from ...files import make_directory, replacing
from ...journal import Journal

logger: logging.Logger = logging.getLogger("camshaft")

NEEDED = ("directory", "engine", "run")
KEYS = (*NEEDED, "seed", "handlers")
LIMITS = ("max_epochs", "max_iterations", "max_steps")
"""The arguments of `run` that may be others at the next start: how far this one goes."""
OF_RUNS = {name: f"run.{name}" for name in inspect.signature(Engine.run).parameters}
OF_HYDRA = ("_target_", "_args_", "_partial_", "_recursive_", "_convert_")
UNDER_WAY = object()
LACKING = 'needs Hydra: pip install "camshaft[config]"'


class ConfigError(ValueError):
    """A config from which no run can be made: names the key, and says what is possible."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys
        """What it is about; of the first that the file holds, the line is named."""


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
    try:
        settings = read_config(Path(path), overrides)
        if max_batches is not None and isinstance(settings["run"], dict):
            settings["run"]["max_batches"] = max_batches
        parts = Parts(settings)
        with ranks.process_group():
            engine = parts.engine()
            if all((run := parts.make("run")).get(each) is None for each in LIMITS):
                raise ConfigError(f"run: needs one of {', '.join(LIMITS)}", "run")
            return engine, engine.run(**run)
    except ConfigError as error:
        number = next(filter(None, (line_of(Path(path), key) for key in error.keys)), 0)
        place = f"{path}, line {number}" if number else f"{path}"
        raise ConfigError(f"{place}: {error}", *error.keys) from error.__cause__


def read_config(path: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """The values of a config, in which references to what is made stay, such as `${model}`."""
    try:
        import hydra  # noqa: F401  # pyright: ignore
        from omegaconf import OmegaConf
    except ModuleNotFoundError as error:
        raise ConfigError(LACKING) from error
    if not path.is_file():
        raise ConfigError("there is no such file")
    if path.suffix != ".yaml":
        raise ConfigError("its name has to end in .yaml, for Hydra")
    try:
        config = _composed(path, overrides)
        settings = {str(key): _resolved(config, key) for key in config if key != "hydra"}
    except Exception as error:  # of any class: nothing but the config was read
        text, keys = _reason(error), [getattr(e, "full_key", "") for e in (error, error.__cause__)]
        if not isinstance(error, RecursionError):
            text = _wrong_override(path, overrides, str(error)) or text
        raise ConfigError(text, *(str(key) for key in keys if key)) from error
    if lacking := [key for key in NEEDED if settings.get(key) is None]:
        raise ConfigError(f"lacks {', '.join(lacking)}; a run needs {', '.join(NEEDED)}")
    if not is_made(settings["engine"]):
        raise ConfigError("engine: needs a _target_, such as camshaft.supervised", "engine")
    for key in sorted(settings.keys() - used_in(OmegaConf.to_yaml(config))):
        raise ConfigError(
            f"{key}: nothing uses it{advice(key, KEYS, OF_RUNS)}; besides {', '.join(KEYS)}, "
            "a key is for what others refer to, by ${" + key + "}",
            key,
        )
    written: Any = OmegaConf.to_container(OmegaConf.load(path))
    _refuse_left_behind(str(written.get("directory")), settings)
    return settings


def _refuse_left_behind(before: str, settings: dict[str, Any]) -> None:
    """Refuse an override of `directory` that leaves values in the directory of the file."""
    if settings["directory"] == before or not isinstance(settings["directory"], str):
        return
    for key, each in _leaves("", settings):
        if f"{each}/".startswith(f"{before}/"):
            raise ConfigError(
                f"{key}: {each} is in {before}, and not in directory={settings['directory']}. "
                f"Override {key}, too; or run the config in which it refers to ${{directory}}",
                key,
            )


def is_made(node: Any) -> bool:
    """True for a call, and for a reference to something."""
    return "_target_" in node if isinstance(node, dict) else str(node)[:2] == "${"


def _reason(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply, or includes itself"
    return "it is no text in UTF-8: " * isinstance(error, UnicodeDecodeError) + (
        str(error) or str(error.__cause__)
    )


def line_of(path: Path, key: str) -> int:
    """The line of a key in a YAML file, from 1; 0 if an override or another file has the key."""
    import yaml

    number, rest = 0, key
    try:
        node = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except (OSError, RecursionError, ValueError, yaml.YAMLError):
        return 0
    while rest:
        pairs: list[tuple[str, Any, Any]]
        pairs = [(str(n), each, each) for n, each in enumerate(getattr(node, "value", ""))]
        if isinstance(node, yaml.MappingNode):
            pairs = [(name.value, name, each) for name, each in node.value]
        for name, above, each in pairs:
            if match := re.match(rf"\[?{re.escape(name)}\]?(?:\.|(?=\[)|$)", rest):
                number, rest, node = above.start_mark.line + 1, rest[match.end() :], each
                break
        else:
            return 0
    return number


def _composed(path: Path, overrides: Sequence[str]) -> Any:
    from hydra import compose, initialize_config_dir

    with initialize_config_dir(str(path.parent.resolve()), version_base="1.3"):
        return compose(path.stem, [*overrides], return_hydra_config=True)


def _wrong_override(path: Path, overrides: Sequence[str], said: str) -> str:
    """What to write in the place of an override; empty if the mistake is another one."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    for each in overrides:
        key, is_value, value = each.partition("=")
        try:
            OverridesParser.create().parse_override(each)
        except HydraException as error:
            if not is_value and re.fullmatch(r"[\w.]+", key):
                return f"{key}: needs a value, as in {key}=1; ~{key} leaves it out"
            quotes = f". If it is a text, put the value into quotes: \"{key}='{value}'\""
            return f"{each}: {error}{quotes * bool(is_value)}"
    if match := re.match(r"Could not (?:override|delete from config\.) '([^']+)'", said):
        node, place = _composed(path, ()), ""
        for part in match[1].split("."):
            if not hasattr(node, "keys") or part not in node:
                known = map(str, node.keys()) if hasattr(node, "keys") else ()
                meant = advice(part, known, {}).replace("mean '", f"mean '{place}")
                return f"there is no '{place}{part}'{meant}" if meant else ""
            node, place = node[part], f"{place}{part}."
    return ""


def yaml_settings(path: Path) -> Any:
    """The values of any YAML file; of a config, as a run would use them."""
    with suppress(ConfigError):
        return read_config(path, ())
    try:
        from omegaconf import OmegaConf
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path}: {LACKING}") from error
    try:
        return OmegaConf.to_container(OmegaConf.load(path))
    except OSError:
        raise
    except Exception as error:
        raise ConfigError(f"{path}: {_reason(error)}") from error


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
                raise ConfigError(f"{key}: needs names and values, and not {settings[key]!r}", key)
        if not isinstance(place := settings["directory"], str) and not is_made(place):
            raise ConfigError(f"directory: needs a path, and not {place!r}", "directory")
        for key, each in _children("handlers", settings.get("handlers")):
            if not is_made(each):
                raise ConfigError(
                    f"{key}: is no handler; one has a _target_, such as "
                    f"camshaft.handlers.Checkpoint. To leave it out, write ~{key}",
                    key,
                )
        _check_arguments("run: engine.run", Engine.run, {"_args_": [None], **settings["run"]})
        for key in (*LIMITS, "max_batches", "epoch_length"):
            each = settings["run"].get(key)
            if not (each is None or is_made(each) or (type(each) is int and each >= 0)):
                raise ConfigError(
                    f"run.{key}: needs a whole number, and not {each!r}", f"run.{key}"
                )

    def engine(self) -> Engine[Any, Any]:
        """The engine with its handlers, a `Journal`, and a function that saves the config."""
        if (seed := self.settings.get("seed")) is not None:
            from ....engine import seed_everything  # which imports torch

            try:
                seed_everything(seed)
            except (TypeError, ValueError) as error:
                raise ConfigError(f"seed: {error}", "seed") from error
        for key in self.settings:
            self.make(key)
        engine, directory = self.make("engine"), Path(self.make("directory"))
        if not isinstance(engine, Engine):
            raise ConfigError(f"engine: gives a {type(engine).__name__}, and not an Engine")
        for key, handler in _children("handlers", self._made.get("handlers")):
            if not hasattr(handler, "attach"):
                raise ConfigError(f"{key}: gives a {type(handler).__name__}, and no handler", key)
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
            if state.iteration:
                _warn_of_changes(directory, saved)
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
        for name in node if isinstance(node, dict) else ():
            if name not in OF_HYDRA and (meant := get_close_matches(str(name), OF_HYDRA, 1, 0.7)):
                raise ConfigError(
                    f"{key}.{name}: did you mean {meant[0]!r}? Keys of this form are Hydra's: "
                    f"{', '.join(OF_HYDRA)}",
                    f"{key}.{name}",
                )
        if isinstance(node, dict) and "_target_" in node:
            target = str(node["_target_"])
            try:
                call = instantiate({"_target_": target, "_partial_": True}).func
            except InstantiationException as error:
                cause = error.__cause__ and error.__cause__.__cause__
                if cause and not isinstance(cause, ModuleNotFoundError | AttributeError):
                    raise cause from None  # of the user's module
                raise ConfigError(
                    f"{key}._target_: {_no_target(target) or error}", f"{key}._target_"
                ) from error
            _check_arguments(f"{key}: {target}", call, node)
            self._calls[key] = call


def _warn_of_changes(directory: Path, settings: dict[str, Any]) -> None:
    """Say which settings, but for the limits of the run, are not those of the start before."""
    from omegaconf import OmegaConf

    try:
        before: Any = OmegaConf.to_container(OmegaConf.load(directory / "resolved.yaml"))
        one, two = (dict(_leaves("", each)) for each in (before, settings))
    except Exception as error:  # whatever a damaged file raises: it is written anew
        logger.debug("no earlier config in %s: %s", directory, error)
        return
    changed = [
        f"{name}: {one.get(name, 'nothing')} -> {two.get(name, 'nothing')}"
        + " (its random numbers go on from the checkpoint)" * (name == "seed")
        for name in sorted({**one, **two})
        if one.get(name) != two.get(name)
        and name not in ("directory", *(f"run.{limit}" for limit in LIMITS))
    ]
    if changed:
        logger.warning(
            "the run in %s goes on with other settings than before: %s. For a new run, choose "
            "another directory",
            directory,
            ", ".join(changed),
        )


def _leaves(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    inner = [*_children(key, node)]
    for name, each in inner:
        yield from _leaves(name, each)
    if not inner:
        yield key.removeprefix("."), node


def _children(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a dict or list, by their full keys."""
    if isinstance(node, dict):
        yield from ((f"{key}.{name}", each) for name, each in node.items())
    elif isinstance(node, list):
        yield from ((f"{key}[{place}]", each) for place, each in enumerate(node))


def _no_target(target: str) -> str:
    """Why there is nothing of this name; empty if it is unknown."""
    if target in sys.modules:
        return f"{target} is a module; name what to call in it"
    known, _, name = target.rpartition(".")
    while known and known not in sys.modules:
        known, _, name = known.rpartition(".")
    if not known:
        return f"there is no module {name!r}, here or installed"
    if hasattr(sys.modules[known], name):
        return f"{target} cannot be called"
    return f"{known} has no {name!r}{advice(name, dir(sys.modules[known]), {})}"


def _check_arguments(call: str, function: Any, node: dict[str, Any]) -> None:
    given = {str(name): None for name in node if name not in OF_HYDRA}
    key = call.partition(":")[0]
    if isinstance(function, EventEnum):  # whose signature is that of its class on Python 3.12
        function = function.__call__
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
            raise ConfigError(
                f"{call} has no argument {odd[0]!r}{meant}", f"{key}.{odd[0]}", key
            ) from None
        raise ConfigError(f"{call}: {error}", key) from None
    for name, value in node.items():
        if name in signature.parameters and not is_made(value):
            _check_kind(f"{key}.{name}", value, signature.parameters[name].annotation)


def _check_kind(key: str, value: Any, annotation: Any) -> None:
    """Refuse a truth value for a number, and a text for a truth value.

    YAML reads `yes` and `on` as true, for which Python computes with 1. A text such as 'false'
    counts as true.
    """
    kinds = {*re.findall(r"\w+", inspect.formatannotation(annotation))}
    if isinstance(value, bool) and kinds & {"float", "int"} and not kinds & {"bool", "Any"}:
        raise ConfigError(
            f"{key}: needs a number, and not {value} (YAML reads yes, no, on and off so)", key
        )
    if isinstance(value, str) and "bool" in kinds and kinds <= {"bool", "None", "Optional"}:
        raise ConfigError(f"{key}: needs true or false, and not the text {value!r}", key)


@contextmanager
def _noting(key: str) -> Generator[None]:
    """Say in an exception which key of the config it comes from."""
    try:
        yield
    except Exception as error:
        error.add_note(f"by {key} of the config")
        raise

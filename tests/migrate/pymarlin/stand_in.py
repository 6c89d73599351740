"""What lets PyMarlin 0.3.6 be imported without azureml, on Python 3.11 or newer.

Three of its dataclasses are default values in a fourth one, which newer Pythons accept if they have
a hash: they are imported and given one before the package itself is imported.
"""

import sys
from importlib.util import find_spec
from types import ModuleType

for name in ("azureml", "azureml.core", "azureml.core.run"):
    sys.modules[name] = ModuleType(name)
sys.modules["azureml.core.run"].Run = None

path = find_spec("pymarlin").submodule_search_locations
package = sys.modules["pymarlin"] = ModuleType("pymarlin")
package.__path__ = path
from pymarlin.utils.checkpointer.checkpoint_utils import DefaultCheckpointerArguments  # noqa: E402
from pymarlin.utils.stats.basic_stats import StatInitArguments  # noqa: E402
from pymarlin.utils.writer.base import WriterInitArguments  # noqa: E402

for each in (DefaultCheckpointerArguments, StatInitArguments, WriterInitArguments):
    each.__hash__ = object.__hash__
del sys.modules["pymarlin"]

from .describe_model import describe_model as describe_model
from .garbage_collection import GarbageCollection as GarbageCollection
from .rank_logs import RankLogs as RankLogs
from .system_use import SystemUse as SystemUse
from .throughput import Throughput as Throughput
from .weight_norms import WeightNorms as WeightNorms

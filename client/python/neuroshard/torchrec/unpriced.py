"""Options of sharders and constraints that decide what training costs and that no request can say: whoever sets one is told so, with the tables' names."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional

from torchrec.distributed.embedding import get_ec_index_dedup
from torchrec.distributed.fused_params import (
    FUSED_PARAM_BOUNDS_CHECK_MODE,
    FUSED_PARAM_LENGTHS_TO_OFFSETS_LOOKUP,
    FUSED_PARAM_QUANT_STATE_DICT_SPLIT_SCALE_BIAS,
    FUSED_PARAM_REGISTER_TBE_BOOL,
)
from torchrec.distributed.planner.types import ParameterConstraints
from torchrec.distributed.types import CacheParams, ModuleSharder

# Of fused_params, what a request has (the first line) and what costs nothing worth a word: rates, clips and checks, and those of torchrec.inference's
# sharders. Any other one is told.
_KNOWN = frozenset(
    "optimizer cache_load_factor prefetch_pipeline output_dtype"
    " learning_rate lr eps momentum beta1 beta2 betas eta weight_decay weight_decay_mode global_weight_decay ar_alpha ema_beta min_shrinkage"
    " gradient_clipping max_gradient max_norm stochastic_rounding bounds_check_mode counter_based_regularization cowclip_regularization"
    " cache_algorithm record_cache_metrics gather_uvm_cache_stats stats_reporter_config table_names".split()
) | {FUSED_PARAM_BOUNDS_CHECK_MODE, FUSED_PARAM_LENGTHS_TO_OFFSETS_LOOKUP, FUSED_PARAM_QUANT_STATE_DICT_SPLIT_SCALE_BIAS, FUSED_PARAM_REGISTER_TBE_BOOL}
# Of CacheParams and KeyValueParams.
_CACHE_OPTIONS = ("reserved_memory", "precision", "multipass_prefetch_config")  # stats are read (miss_ratio_curve)
_KEY_VALUE_OPTIONS = ("enable_async_update", "enable_raw_embedding_streaming", "kvzch_tbe_config", "ps_hosts")


def trains(sharder: ModuleSharder[Any]) -> ModuleSharder[Any]:
    """The sharder whose options a module is trained with: sharders of feature processors, managed collisions and the like have one within."""
    for name in ("_ebc_sharder", "_e_sharder", "_ec_sharder", "_embedding_collection_sharder"):
        within = getattr(sharder, name, None)
        if within is not None:
            return trains(within)
    return sharder


def of_sharder(sharder: ModuleSharder[Any], is_pooled: bool) -> List[str]:
    """`sharder`: one that trains."""
    found = []
    if not is_pooled and (get_ec_index_dedup() or getattr(sharder, "_use_index_dedup", False)):
        found.append("use_index_dedup: double ids leave a rank once; they are priced as if each were sent, looked up and returned")
    fused_params: Dict[str, Any] = getattr(sharder, "fused_params", None) or {}
    found += [f"fused_params {name!r}: what it costs or saves is not priced" for name in sorted(set(fused_params) - _KNOWN)]
    return found


def of_constraint(constraint: Optional[ParameterConstraints], is_pooled: bool) -> List[str]:
    named = (("cache_params", _CACHE_OPTIONS), ("key_value_params", _KEY_VALUE_OPTIONS))
    given = [(field, name) for field, names in named for name in names if getattr(getattr(constraint, field, None), name, None) not in (None, False)]
    weights = ["is_weighted: the weights of ids of an unpooled table are not priced"] if constraint and constraint.is_weighted and not is_pooled else []
    return [f"{field}.{name}: what it costs or saves is not priced" for field, name in given] + weights


def of_prefetching(cache: CacheParams, fused_params: Dict[str, Any]) -> List[str]:
    """Of a table whose rows are fetched ahead of time where it is cached."""
    algorithm = cache.algorithm or fused_params.get("cache_algorithm")
    is_lfu = getattr(algorithm, "name", "") == "LFU"
    return ["prefetch_pipeline with a cache that evicts by LFU: FBGEMM prefetches into LRU caches alone, and will not train it cached"] if is_lfu else []


def of_host_memory(constraint: Optional[ParameterConstraints]) -> List[str]:
    """Of a table whose rows may be in host memory."""
    if not getattr(constraint, "enforce_hbm", None):
        return []
    return ["enforce_hbm: FBGEMM keeps rows that are planned in host memory on the device, beside their cache; they are counted in host memory"]


def of_config(config: Any) -> List[str]:
    """`config`: an EmbeddingConfig, EmbeddingBagConfig or None."""
    written = getattr(config, "enable_embedding_update", False)
    return ["enable_embedding_update: rows that are written between steps are not priced"] if written else []


def by_text(found: Iterable[Any]) -> List[str]:
    """One line for each text of (table's label, text), with the tables."""
    tables: Dict[str, List[str]] = {}
    for label, text in found:
        tables.setdefault(text, []).append(label)
    return [f"{text}: {', '.join(labels[:16])}{f' and {len(labels) - 16} more' if len(labels) > 16 else ''}" for text, labels in tables.items()]

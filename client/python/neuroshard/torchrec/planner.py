"""NeuroShardPlanner: the service in the place of torchrec's EmbeddingShardingPlanner."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import grpc
import torch
import torch.distributed as dist
from torch import nn
from torchrec.distributed.embedding_types import EmbeddingComputeKernel
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.perf_models import NoopPerfModel
from torchrec.distributed.planner.planners import EmbeddingPlannerBase, to_sharding_plan
from torchrec.distributed.planner.types import (
    ParameterConstraints,
    Perf,
    PlanDebugStats,
    PlannerError,
    PlannerErrorType,
    ShardingOption,
    Stats,
    Storage,
    StorageReservation,
    Topology,
)
from torchrec.distributed.sharding_plan import get_default_sharders
from torchrec.distributed.types import ModuleSharder, ShardingPlan, ShardingPlanner

import neuroshard
from neuroshard import dynamic_tables, v1
from neuroshard.mapping import as_message
from neuroshard.torchrec.arguments import check_held_rows, check_kernels, check_plan, check_planner_arguments
from neuroshard.torchrec.feature_statistics import FeatureStatistics
from neuroshard.torchrec.layout import Layout, check_layout, chosen_options, from_message, from_sharding_plan, tell_dynamicemb, to_message, with_modules
from neuroshard.torchrec.module_tables import FUSED_UVM_CACHING, HOST_KERNELS, ModuleTable, TableEnumerator, label
from neuroshard.torchrec.other_planner import check_other_planner, told_pooling_factors, with_pooling_factors
from neuroshard.torchrec.plan_cache import PlanCache
from neuroshard.torchrec.plan_comparison import PlanComparison, costs_of
from neuroshard.torchrec.plan_file import PathLike, read_layout
from neuroshard.torchrec.plan_request import DraftRequest, check_base, figures_left_at_defaults
from neuroshard.torchrec.table_groups import TableGroup, cache_faults, table_groups

logger: logging.Logger = logging.getLogger(__name__)

DEFAULT_TIMEOUT_S = 120.0
MOST_NAMES = 5  # of tables in host memory, in a line
ESTIMATES_DIFFER = 1e-3  # relative; where the formulas are the same, what they give is to 7 digits
CPU_WORKER_BACKEND = "neuroshard-cpu"  # of neuroshard-worker (WorkerDevice.backend)
OTHER_KERNELS = (
    "prices rest on neuroshard-worker's kernels and collectives on CPUs; FBGEMM and Gloo, which TorchRec runs there, take several times as long, and another plan"
    " may be the fastest with them: costs compare plans and forecast no steps. python -m neuroshard.worker measures what TorchRec runs"
)
SHARE_OF_GROUP_TIMEOUT = 0.5  # of a process group's timeout that rank 0 may wait for the service while the others wait for it

_ERROR_TYPES = {  # by reason (proto/README.md); others are OTHER
    "OUT_OF_MEMORY": PlannerErrorType.INSUFFICIENT_STORAGE,
    "CONSTRAINTS_CONFLICT": PlannerErrorType.STRICT_CONSTRAINTS,
    "BAD_INPUT": PlannerErrorType.INPUT_VALIDATION,
    "NO_PLAN_FOUND": PlannerErrorType.PARTITION,
}


class NeuroShardPlanner(EmbeddingPlannerBase):
    """Plans with a NeuroShard service, wherever torchrec's EmbeddingShardingPlanner plans. Not thread-safe.

    address       "HOST:PORT" of the service. None: as in neuroshard.PlannerClient, the planner of this package if NEUROSHARD_PLANNER says nothing.
    topology, batch_size, constraints, storage_reservation, stats, debug, callbacks
                  as in EmbeddingShardingPlanner, with its defaults and units (bandwidths in bytes per MILLISECOND; batch_size of one rank). Constraints of
                  tables that the module does not have are a warning. Feature by feature, ParameterConstraints.pooling_factors say more than `statistics`.
    device        what the topology's devices are, a name that `neuroshard devices` lists: "h100-sxm". It decides which cost model answers, one measured on such
                  devices, if the service has one; memory and bandwidths stay the topology's. None: the topology's compute_device decides alone.
    optimizer     "sgd", "lars_sgd", "adagrad", "rowwise_adagrad", "adam", "partial_rowwise_adam" or "lamb". None: what apply_optimizer_in_backward or the sharders' fused_params say.
    statistics    of `neuroshard.torchrec.statistics(batches)`.
    hot_row_blocks
                  price row blocks with the ids of the block that has the hottest rows, as `statistics` lets expect of hashed ids, instead of even
                  shares (Table.hot_row_blocks).
    row_proportion
                  "memory": where a table is row_wise, each rank has rows in proportion to its device's memory (TableRule.row_proportion); its sharder
                  has to be a RowPositions, and it is not table_row_wise or grid_shard. `request.constraints` can say so of some tables alone.
    request       a neuroshard.v1.ShardPlanRequest, or a dict of the same shape, with what TorchRec has no word for: cost_model, search, constraints (ranks,
                  co-location, widths), memory, migration. Tables, topology and batch size must not be in it. Without memory.rule memory is counted as
                  TorchRec's storage estimator does ("torchrec").
    cache_dir     a directory of plans by the request's fingerprint; a plan that is there is used without a call, also one of an older version of
                  the cost model, or of other files under its version: name a version, or its digest, in request.cost_model to be asked again. Each
                  file says which it was. Written by rank 0 alone.
    on_change     "plan": a request without a cached plan is planned. "fail": only if the directory has no plan at all; otherwise it is an error that
                  says what differs. For a directory with the plans of one job.
    fallback      another planner, which plans if the service cannot be reached, is overloaded or does not answer in time, with a warning. It is not
                  asked for requests that the service refuses. Its plans are not cached.
    guard         another planner, TorchRec's EmbeddingShardingPlanner say, which plans too, each time that the service does; the plan is its own where
                  TorchRec's estimators call that the cheaper one, with a warning. It takes the time that it takes. None: the service's plan counts,
                  which TorchRec's estimators called the dearer one in none of 210 made-up models, where formulas answered.
    previous      the plan of a checkpoint or a running job: a ShardingPlan, or the path of a file of `save_plan`. `request.migration` has the budget of
                  bytes that may move and their price.
    keep_optimizer_state
                  whether tables of `previous` stay data_parallel, or not data_parallel; TorchRec loses the optimizer state of those that change.
    timeout_s     seconds for the calls of one plan, retries included; within collective_plan at most half of the process group's timeout.
    credentials, tls_server_name, retries
                  as in neuroshard.PlannerClient.
    enumerator    an EmbeddingEnumerator, as EmbeddingShardingPlanner takes: its estimators make the plan's estimates, and its EmbeddingStorageEstimator's
                  pipeline_type is the request's. None: TorchRec's own, which count for no pipeline.

    kernels       of compute kernels that the service does not know, which of its kernels prices and counts them: {"customized_kernel": "fused_uvm_caching"}
                  for one whose rows are in host memory behind a cache. "fused" where it is not said: rows in device memory. "dynamic": DynamicEmb's, in
                  either of its modes, which tables have without a word whose constraints say use_dynamicemb.
    held_rows     of virtual tables by name, how many rows all ranks together hold at most, where no eviction policy says so: {"users": 200_000_000}.
                  None: as many as there may be ids.

    Tables whose constraints name no sharding types get those that both their sharder and the cost model know.
    """

    def __init__(
        self,
        address: Optional[str] = None,
        topology: Optional[Topology] = None,
        batch_size: Optional[int] = None,
        constraints: Optional[Dict[str, ParameterConstraints]] = None,
        optimizer: Optional[str] = None,
        storage_reservation: Optional[StorageReservation] = None,
        statistics: Optional[FeatureStatistics] = None,
        request: Union[v1.ShardPlanRequest, Mapping[str, Any], None] = None,
        cache_dir: Optional[PathLike] = None,
        on_change: str = "plan",
        fallback: Optional[ShardingPlanner] = None,
        previous: Union[ShardingPlan, PathLike, None] = None,
        keep_optimizer_state: bool = True,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        retries: int = neuroshard.call.DEFAULT_RETRIES,
        credentials: Optional[grpc.ChannelCredentials] = None,
        stats: Union[Stats, List[Stats], None] = None,
        debug: bool = True,
        callbacks: Optional[List[Callable[[List[ShardingOption]], List[ShardingOption]]]] = None,
        enumerator: Optional[EmbeddingEnumerator] = None,
        hot_row_blocks: bool = False,
        row_proportion: str = "",
        device: Optional[str] = None,
        guard: Optional[ShardingPlanner] = None,
        tls_server_name: Optional[str] = None,
        kernels: Optional[Mapping[str, str]] = None,
        held_rows: Optional[Mapping[str, int]] = None,
    ) -> None:
        self._client_arguments: Dict[str, Any] = {"address": address, "credentials": credentials, "tls_server_name": tls_server_name, "retries": retries}
        with neuroshard.PlannerClient(timeout_s=timeout_s, **self._client_arguments):
            pass  # arguments that are none are told here, not in the first plan
        check_kernels(kernels)
        check_held_rows(held_rows)
        check_planner_arguments(topology, batch_size, constraints, statistics, previous, cache_dir, device, optimizer)
        super().__init__(
            topology=topology,
            batch_size=batch_size,
            storage_reservation=storage_reservation,
            stats=stats,
            constraints=constraints,
            debug=debug,
            callbacks=callbacks,
        )
        estimators = None if enumerator is None else enumerator._estimators
        self._enumerator: TableEnumerator = TableEnumerator(self._topology, self._batch_size, constraints, estimators)
        self._enumerator.statistics = statistics
        self._enumerator.stand_ins = {**TableEnumerator.stand_ins, **(kernels or {})}
        self._enumerator.held_rows = held_rows or {}
        for argument, planner in (("fallback", fallback), ("guard", guard)):
            if planner is not None:
                check_other_planner(argument, planner, self._topology, self._batch_size)
        if on_change not in ("plan", "fail"):
            raise ValueError(f"on_change: must be 'plan' or 'fail', got {on_change!r}")
        if on_change == "fail" and cache_dir is None:
            raise ValueError("on_change: 'fail' needs a cache_dir")
        self._timeout_s = timeout_s
        self._optimizer = optimizer
        self._statistics = statistics
        self._hot_row_blocks = hot_row_blocks
        self._row_proportion = row_proportion
        self._device = device or ""
        self._base = v1.ShardPlanRequest() if request is None else as_message(v1.ShardPlanRequest, request)
        check_base(self._base)
        self._cache = None if cache_dir is None else PlanCache(os.fspath(cache_dir))
        self._on_change = on_change
        self._fallback = fallback
        self._guard = guard
        self._previous = previous
        self._keep_optimizer_state = keep_optimizer_state
        self._options: List[ShardingOption] = []
        self._groups: List[TableGroup] = []
        self._stashed: Optional[List[str]] = None
        self._request: Optional[v1.ShardPlanRequest] = None
        self._response: Optional[v1.ShardPlanResponse] = None
        self._summary = ""
        self._planned: Optional[Tuple[nn.Module, Sequence[ModuleSharder[nn.Module]], ShardingPlan]] = None

    @property
    def request(self) -> Optional[v1.ShardPlanRequest]:
        """What the last `plan` asks the service for; where the plan came from elsewhere, with all types that the tables may have by their sharders. As JSON (MessageToJson of google.protobuf.json_format) it is a file
        for the command line: `neuroshard validate`, `evaluate`, `plan`. None before a plan, and on other ranks than 0."""
        return self._request

    @property
    def response(self) -> Optional[v1.ShardPlanResponse]:
        """The service's answer to the last `plan`: cost, bound, warnings. None if the plan is the cache's, the guard's or the fallback's, or on other ranks than 0."""
        return self._response

    @property
    def summary(self) -> str:
        """The last plan in a line, as the log has it: tables, ranks, device, batch of a rank and in all, cost, cost model, what its prices rest on, whether
        the plan is from the cache, and the tables in host memory. Empty on other ranks than 0, and after a failure."""
        return self._summary

    def get_selected_options(self) -> List[ShardingOption]:
        """The last plan's options, with TorchRec's own estimates; empty on other ranks than 0, and after a failure."""
        return self._options

    @property
    def groups(self) -> List[TableGroup]:
        """The last plan's groups by rank: a lookup kernel each, with its load factor and bytes of cache. Empty where get_selected_options is."""
        return self._groups

    @property
    def stashed_tables(self) -> Optional[Set[str]]:
        """Of the last plan, for MemoryStashingManager.set_stashed_tables before DistributedModelParallel: tables whose weights leave the device while dense
        layers run, those of the request's memory.dense_bytes as well. After `collective_plan` on every rank. None: nothing asks for it, or who made the
        plan does not know of it (guard, fallback), and what the tables' configs say counts."""
        return None if self._stashed is None else set(self._stashed)

    def plan(self, module: nn.Module, sharders: List[ModuleSharder[nn.Module]]) -> ShardingPlan:
        """A plan of all tables of `module` that `sharders` shard. PlannerError where there is none: its error_type and message say why."""
        return self._plan(module, sharders, self._timeout_s)

    def evaluate(
        self,
        plan: Union[ShardingPlan, PathLike],
        module: Optional[nn.Module] = None,
        sharders: Optional[Sequence[ModuleSharder[nn.Module]]] = None,
    ) -> PlanComparison:
        """What a plan of whatever planner costs, by the service and by TorchRec's estimators; `print` it.

        plan              a ShardingPlan, or the path of a file of `save_plan` or `neuroshard plan --format torchrec`
        module, sharders  what it is for. None: those of the last `plan`.
        """
        check_plan("plan", plan)
        module, sharders = self._subject(module, sharders)
        return self._priced([("the plan", self._layout_of(plan))], module, sharders)

    def compare(
        self,
        other: Union[ShardingPlanner, ShardingPlan, PathLike],
        module: Optional[nn.Module] = None,
        sharders: Optional[Sequence[ModuleSharder[nn.Module]]] = None,
    ) -> PlanComparison:
        """This planner's plan beside another planner's, or another plan: both costs by the service and by TorchRec's estimators, and what would move.

        module, sharders  None: those of the last `plan`, whose plan is then this planner's; else it plans.
        """
        check_plan("other", other, (ShardingPlanner,), "a planner, ")
        asked = module is not None
        module, sharders = self._subject(module, sharders)
        own = self.plan(module, list(sharders)) if asked or self._planned is None else self._planned[2]
        if isinstance(other, ShardingPlanner):
            check_other_planner("other", other, self._topology, self._batch_size)
            with told_pooling_factors(other, self._enumerator.tables(module, sharders, self._topology)):
                name, theirs = type(other).__name__, from_sharding_plan(other.plan(module, list(sharders)))
        else:
            name, theirs = "other plan" if isinstance(other, ShardingPlan) else os.path.basename(other), self._layout_of(other)
        return self._priced([(type(self).__name__, from_sharding_plan(own)), (name, theirs)], module, sharders)

    def _subject(
        self, module: Optional[nn.Module], sharders: Optional[Sequence[ModuleSharder[nn.Module]]]
    ) -> Tuple[nn.Module, Sequence[ModuleSharder[nn.Module]]]:
        if module is not None:
            return module, get_default_sharders() if sharders is None else sharders
        if self._planned is None:
            raise PlannerError("nothing was planned yet: say which module and sharders the plan is for", PlannerErrorType.INPUT_VALIDATION)
        return self._planned[:2]

    @staticmethod
    def _layout_of(plan: Union[ShardingPlan, PathLike]) -> Layout:
        return from_sharding_plan(plan) if isinstance(plan, ShardingPlan) else read_layout(plan)

    def _priced(self, plans: Sequence[Tuple[str, Layout]], module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]) -> PlanComparison:
        tables = self._enumerator.tables(module, sharders, self._topology)
        if not tables:
            raise PlannerError("; ".join(self._enumerator.warnings), PlannerErrorType.INPUT_VALIDATION)
        shapes = {table.key: (table.rows, table.cols) for table in tables}
        plans = [(name, with_modules(layout, tables)) for name, layout in plans]
        request = self._draft(module, sharders, tables).complete(())
        messages = [to_message(layout, shapes) for _, layout in plans]
        sizes = {host.num_devices for host in request.topology.hosts}
        for message in messages:
            message.world_size = self._topology.world_size
            message.local_world_size = min(sizes) if len(sizes) == 1 else 0
        costs, moved = [], None
        with neuroshard.PlannerClient(timeout_s=self._timeout_s, **self._client_arguments) as client:
            for (name, layout), message in zip(plans, messages):
                response = client.evaluate(request, message)
                costs.append(costs_of(name, response, self._estimate_or_none(layout, tables)))
            if len(messages) == 2:
                moving = v1.ShardPlanRequest()
                moving.CopyFrom(request)
                moving.migration.Clear()
                moving.migration.previous.CopyFrom(messages[1])
                moved = client.evaluate(moving, messages[0]).migration.moved_bytes
        return PlanComparison(costs, f"{response.cost_model.name}/{response.cost_model.version}", response.price_basis.text, moved)

    def _estimate_or_none(self, layout: Layout, tables: Sequence[ModuleTable]) -> Optional[float]:
        try:
            return self._estimate_ms(layout, tables)
        except (PlannerError, KeyError, ValueError, AssertionError):  # no plan of these tables; the service's rules say why
            return None

    def collective_plan(
        self,
        module: nn.Module,
        sharders: Optional[List[ModuleSharder[nn.Module]]] = None,
        pg: Optional[dist.ProcessGroup] = None,
    ) -> ShardingPlan:
        """The plan of rank 0, on every rank of `pg` (None: the default group). An error on rank 0 is a PlannerError on all."""
        if pg is None:
            if not dist.is_initialized():
                raise RuntimeError("there is no process group: call torch.distributed.init_process_group() first, or plan() instead of collective_plan()")
            pg = dist.GroupMember.WORLD
        assert pg is not None
        outcome: List[Any] = [None]
        error: Optional[Exception] = None
        if pg.rank() == 0:
            try:
                self._check_group(pg)
                timeout_s = min(self._timeout_s, SHARE_OF_GROUP_TIMEOUT * _group_timeout_s(pg))
                outcome = [("plan", self._plan(module, get_default_sharders() if sharders is None else sharders, timeout_s), self._stashed)]
            except Exception as fault:  # the other ranks wait for whatever it is
                error = fault
                kind = fault.error_type if isinstance(fault, PlannerError) else PlannerErrorType.OTHER
                outcome = [("error", str(fault) or type(fault).__name__, kind.value)]
        if pg.size() > 1:
            dist.broadcast_object_list(outcome, group_src=0, group=pg)
        if error is not None:
            raise error
        if outcome[0][0] == "error":
            raise PlannerError(f"rank 0: {outcome[0][1]}", PlannerErrorType(outcome[0][2]))
        plan: ShardingPlan = outcome[0][1]
        self._stashed = outcome[0][2]
        return plan

    def _check_group(self, pg: dist.ProcessGroup) -> None:
        faults = []
        if pg.size() != self._topology.world_size:
            faults.append(f"the topology has {self._topology.world_size} ranks and the process group {pg.size()}")
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        if local.isdigit() and int(local) != self._topology.local_world_size:
            faults.append(f"the topology has {self._topology.local_world_size} ranks a host and the environment's LOCAL_WORLD_SIZE is {local}")
        if faults:
            raise PlannerError("; ".join(faults), PlannerErrorType.INPUT_VALIDATION)
        if self._topology.compute_device == "cuda" and dist.get_backend(pg) == "gloo" and not torch.cuda.is_available():
            logger.warning(
                "the topology is of cuda devices, and this process has none and a process group of Gloo: DistributedModelParallel cannot run the plan here;"
                " TopologyFactory with KernelConfig(compute_device='cpu') makes one of CPUs"
            )

    def _plan(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]], timeout_s: float) -> ShardingPlan:
        started = time.perf_counter()
        self._options, self._groups, self._request, self._response, self._summary, self._stashed = [], [], None, None, "", None
        tables = self._enumerator.tables(module, sharders, self._topology)
        for warning in self._enumerator.warnings:
            logger.warning("%s", warning)
        if not tables:
            return ShardingPlan({})
        draft = self._draft(module, sharders, tables)
        self._request = draft.complete(())
        for warning in draft.unpriced:
            logger.warning("%s", warning)
        layout, source = self._layout(draft, tables, module, sharders, timeout_s)
        if layout is None:
            plan = self._fall_back(module, sharders, tables, source)
            self._summarise(len(tables), draft.device, f"cost not known to the service, by {type(self._fallback).__name__}, the fallback")
            return plan
        options = chosen_options(layout, tables, self._topology, self._batch_size)
        for callback in self._callbacks:
            options = callback(options)
        try:
            self._estimate(options, tables)
            self._warn_of_other_estimates(options)
        except (AssertionError, ValueError) as fault:  # of options that TorchRec's own planner fails at
            logger.warning("the plan has no estimates, since TorchRec's estimators fail: %s", fault)
            for shard in (shard for option in options for shard in option.shards):
                shard.perf, shard.storage = Perf(0, 0, 0, 0), shard.storage or Storage(0, 0)
        plan = tell_dynamicemb(to_sharding_plan(options, self._topology), layout, tables)
        if self._stashed is not None:
            for table in tables:
                table.stashed = table.name in self._stashed
        self._options = options
        try:
            self._groups = table_groups(plan, tables)
        except ValueError as fault:
            logger.warning("the plan has no groups of tables, since TorchRec cannot make them: %s", fault)
        for fault in cache_faults(self._groups):
            logger.warning("%s", fault)
        self._planned = (module, sharders, plan)
        self._summarise(len(tables), draft.device, source)
        self._log_stats(plan, sharders, time.perf_counter() - started)
        return plan

    def _summarise(self, tables: int, device: str, source: str) -> None:
        ranks, batch = self._topology.world_size, self._batch_size
        text = f"plan of {tables} table{'s' * (tables > 1)} on {ranks} rank{'s' * (ranks > 1)} ({device}), batch {batch} a rank and {batch * ranks} in all: {source}"
        in_host_memory = [label((option.module[0], option.name)) for option in self._options if option.compute_kernel in HOST_KERNELS]
        if in_host_memory:
            names = ", ".join(in_host_memory[:MOST_NAMES]) + (", ..." if len(in_host_memory) > MOST_NAMES else "")
            text += f"; {len(in_host_memory)} table{'s' * (len(in_host_memory) > 1)} in host memory: {names}"
        cached = sum(option.compute_kernel == FUSED_UVM_CACHING for option in self._options)
        if cached and self._groups:
            lookups = max(Counter(group.rank for group in self._groups).values())
            text += f"; {cached} of them cached, each with a cache of its own: up to {lookups} lookups a rank"
        if self._stashed:
            text += f"; {len(self._stashed)} stashed while dense layers run: {', '.join(self._stashed[:MOST_NAMES])}{', ...' * (len(self._stashed) > MOST_NAMES)}"
        self._summary = text
        logger.info("%s", text)

    def _draft(self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]], tables: Sequence[ModuleTable]) -> DraftRequest:
        reserved = self._storage_reservation.reserve(
            topology=self._topology,
            batch_size=self._batch_size,
            module=module,
            sharders=list(sharders),
            constraints=with_pooling_factors(self._constraints, tables),
        )
        previous = None if self._previous is None else with_modules(self._layout_of(self._previous), tables)
        return DraftRequest(
            self._base,
            tables,
            self._topology,
            reserved,
            self._enumerator,
            self._batch_size,
            self._constraints,
            self._optimizer,
            self._statistics,
            self._hot_row_blocks,
            self._row_proportion,
            previous,
            self._keep_optimizer_state,
            self._device,
        )

    def _layout(
        self, draft: DraftRequest, tables: Sequence[ModuleTable], module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]], timeout_s: float
    ) -> Tuple[Optional[Layout], str]:
        """(a checked layout, who made it); (None, why) where the service cannot be reached and there is a fallback."""
        fingerprint = draft.fingerprint()
        if self._cache is not None:
            cached = self._cache.find(fingerprint, lambda layout, path: check_layout(layout, tables, self._topology, f"{path}: the plan"))
            if cached is not None:
                self._stashed = cached.stashed
                cost = "cost not stored" if cached.cost_ms is None else f"{cached.cost_ms:.3f} ms"
                return cached.layout, f"{cost} by {_model_text(cached.model)}, from the cache"
            if self._on_change == "fail":
                self._cache.fail_if_other_plans(draft.summary())
        try:
            response = self._ask(draft, timeout_s)
        except neuroshard.PlannerError as fault:
            no_answer = isinstance(fault, (neuroshard.Unavailable, neuroshard.DeadlineExceeded)) or fault.reason == "OVERLOADED"
            if self._fallback is not None and no_answer:
                return None, str(fault)
            hint = self._hint() if no_answer else ""
            raise PlannerError(f"{fault}{hint}", _ERROR_TYPES.get(fault.reason or "", PlannerErrorType.OTHER)) from fault
        for warning in response.warnings:
            logger.warning("%s", warning)
        layout = from_message(response.plan)
        check_layout(layout, tables, self._topology, "the service's plan")
        model = f"{response.cost_model.name}/{response.cost_model.version}"
        source = f"{response.cost.embedding_cost_ms:.3f} ms by {_model_text(model)}"
        if response.HasField("analytic_cost_ms"):
            source += f", {response.analytic_cost_ms:.4g} ms by TorchRec's formulas"
        limit = response.lower_bound.limit
        if limit.rules:
            rules = " and ".join(rule.path for rule in limit.rules[:MOST_NAMES])
            source += f" (lower bound {response.lower_bound.cost_ms:.4g} ms, {limit.bound_without_ms:.4g} without {rules})"
        # What the prices rest on, without what the warnings say besides.
        source += f"; {response.price_basis.text.partition(';')[0]}, from the service"
        if response.cost_model.digest:
            model += f"@{response.cost_model.digest}"
        response.warnings.extend([*self._enumerator.warnings, *draft.unpriced])
        self._response = response
        if response.HasField("stash"):
            self._stashed = self._names_of_stash(response, tables)
        if self._guard is not None:
            cheaper = self._cheaper_plan(self._guard, layout, tables, module, sharders)
            if cheaper is not None:
                layout, model, self._response, self._stashed = cheaper, type(self._guard).__name__, None, None
                source = f"by {model}, the guard"
        if self._cache is not None:
            plan = to_sharding_plan(chosen_options(layout, tables, self._topology, self._batch_size), self._topology)
            tell_dynamicemb(plan, layout, tables)
            cost_ms = None if self._response is None else response.cost.embedding_cost_ms
            self._cache.add(fingerprint, draft.summary(), plan, model, cost_ms, self._stashed)
        return layout, source

    @staticmethod
    def _names_of_stash(response: v1.ShardPlanResponse, tables: Sequence[ModuleTable]) -> List[str]:
        """As TorchRec has them, without the modules. It stashes all tables of a name."""
        chosen = set(response.stash.tables)
        names = list(dict.fromkeys(table.name for table in tables if table.name in chosen or table.label in chosen))
        also = [table.label for table in tables if table.name in names and table.name not in chosen and table.label not in chosen]
        if also:
            logger.warning("set_stashed_tables goes by names alone, so that it stashes as well: %s", ", ".join(also))
        return names

    def _hint(self) -> str:
        """What keeps a job going without the service."""
        cache = "cache_dir= keeps plans for later starts" if self._cache is None else "cache_dir has no plan for this request yet"
        return f". {cache}; fallback= is a planner to ask where the service does not answer"

    def _cheaper_plan(
        self, guard: ShardingPlanner, layout: Layout, tables: Sequence[ModuleTable], module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]]
    ) -> Optional[Layout]:
        """The guard's, where TorchRec's estimators call it cheaper than `layout`."""
        name = type(guard).__name__
        try:
            with told_pooling_factors(guard, tables):
                other = from_sharding_plan(guard.plan(module, list(sharders)))
            check_layout(other, tables, self._topology, f"{name}'s plan")
        except PlannerError as fault:
            logger.warning("%s has no plan to compare with the service's: %s", name, fault)
            return None
        own_ms, other_ms = self._estimate_ms(layout, tables), self._estimate_ms(other, tables)
        if other_ms >= own_ms:
            return None
        logger.warning("THE PLAN IS %s'S, NOT THE SERVICE'S: by TorchRec's estimators it costs %.4g ms and the service's %.4g ms", name, other_ms, own_ms)
        return other

    def _warn_of_other_estimates(self, options: List[ShardingOption]) -> None:
        """Where the service searched by formulas that are not quite TorchRec's: what is least by them need not be by TorchRec's."""
        if self._guard is not None or self._response is None or self._response.price_basis.kind != "published":
            return
        own_ms, estimate_ms = self._response.cost.embedding_cost_ms, float(NoopPerfModel(self._topology).rate(options))
        if abs(own_ms - estimate_ms) > ESTIMATES_DIFFER * estimate_ms:
            logger.warning(
                "by the service's formulas the plan costs %.4g ms, by TorchRec's estimators %.4g ms, which count something here in another way:"
                " TorchRec's planner may have a plan that they call cheaper; guard=EmbeddingShardingPlanner(...) takes it if so",
                own_ms,
                estimate_ms,
            )

    def _estimate(self, options: Sequence[ShardingOption], tables: Sequence[ModuleTable]) -> None:
        """By TorchRec's estimators, which know no customized_kernel: a table that has one as what stands for it."""
        words = {table.key: {own: word for word, own in table.own_kernels.items()} for table in tables}
        own = [(option, option.compute_kernel) for option in options if option.compute_kernel == EmbeddingComputeKernel.CUSTOMIZED_KERNEL.value]
        for option, kernel in own:
            word = words[option.module[0], option.name][kernel]
            option.compute_kernel = FUSED_UVM_CACHING if word in dynamic_tables.KERNELS else word
        self._enumerator.populate_estimates(options)  # type: ignore[arg-type]
        for option, kernel in own:
            option.compute_kernel = kernel

    def _estimate_ms(self, layout: Layout, tables: Sequence[ModuleTable]) -> float:
        """What TorchRec's planner compares: the costliest rank of a plan."""
        options = chosen_options(layout, tables, self._topology, self._batch_size)
        self._estimate(options, tables)
        return float(NoopPerfModel(self._topology).rate(options))

    def _ask(self, draft: DraftRequest, timeout_s: float) -> v1.ShardPlanResponse:
        deadline = time.monotonic() + timeout_s
        with neuroshard.PlannerClient(timeout_s=timeout_s, **self._client_arguments) as client:
            # Which model answers depends on the request's devices: the one that prices a plan which places nothing.
            try:
                answers = client.evaluate(self._request, v1.Plan()).cost_model
            except neuroshard.InvalidRequest:
                answers = self._base.cost_model  # the plan's own error names its fields
            model = client.model(answers.name, answers.version)
            devices = [each for each in client.devices().devices if each.name == self._device] if self._device else []
            self._request = draft.complete(model.sharding_types)
            response = client.plan(self._request, timeout_s=max(0.001, deadline - time.monotonic()))
            if model.summary.backend == CPU_WORKER_BACKEND and self._topology.compute_device == "cpu":
                response.warnings.append(OTHER_KERNELS)
            response.warnings.extend(filter(None, (figures_left_at_defaults(self._topology, device) for device in devices)))
            return response

    def _fall_back(
        self, module: nn.Module, sharders: Sequence[ModuleSharder[nn.Module]], tables: Sequence[ModuleTable], reason: str
    ) -> ShardingPlan:
        assert self._fallback is not None
        name = type(self._fallback).__name__
        logger.warning("THE PLAN IS %s'S, NOT THE SERVICE'S, which did not answer: %s", name, reason)
        with told_pooling_factors(self._fallback, tables):
            plan = self._fallback.plan(module, list(sharders))
        if isinstance(self._fallback, EmbeddingPlannerBase):
            self._options = self._fallback.get_selected_options()
        return plan

    def _log_stats(self, plan: ShardingPlan, sharders: Sequence[ModuleSharder[nn.Module]], seconds: float) -> None:
        for stats in self._stats:
            stats.log(
                sharding_plan=plan,
                topology=self._topology,
                batch_size=self._batch_size,
                storage_reservation=self._storage_reservation,
                num_proposals=self._response.search.plans_evaluated if self._response is not None else 0,
                num_plans=1,
                run_time=seconds,
                best_plan=self._options,
                constraints=self._constraints,
                enumerator=self._enumerator,
                sharders=list(sharders),
                debug=self._debug,
                debug_stats=PlanDebugStats(planner_type=type(self).__name__, timeout_seconds=None),
            )


def _model_text(model: str) -> str:
    """Of "name/version", with "@" and a digest or without."""
    name, _, version = model.partition("@")[0].rpartition("/")
    return f"cost model {name} version {version}"


def _group_timeout_s(pg: dist.ProcessGroup) -> float:
    """How long a rank of `pg` waits for the others; infinite where the backend does not say."""
    from torch.distributed.distributed_c10d import _get_object_coll_device

    try:
        timeout = pg._get_backend(torch.device(_get_object_coll_device(pg))).options._timeout
    except (AttributeError, RuntimeError):
        return float("inf")
    return float(timeout.total_seconds())

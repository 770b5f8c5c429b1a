"""StepRecorder: how long the embedding part of a trainer's own steps takes, without a profiling run."""

from __future__ import annotations

import statistics
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist
from fbgemm_gpu.split_table_batched_embeddings_ops_training import DenseTableBatchedEmbeddingBagsCodegen, SplitTableBatchedEmbeddingBagsCodegen
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torchrec import KeyedTensor

from neuroshard import v1
from neuroshard.torchrec.step_record import STAGES, StepRecord

_LOOKUPS = (SplitTableBatchedEmbeddingBagsCodegen, DenseTableBatchedEmbeddingBagsCodegen)


class _CpuClock:
    """Times of this thread's calls."""

    def mark(self) -> float:
        return 1e3 * time.perf_counter()

    def ms_since(self, base: float, mark: float) -> Optional[float]:
        return mark - base


class _CudaClock:
    """Times of the current stream, which waits for collectives where the trainer does; nothing is synchronised."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms_since(self, base: torch.cuda.Event, mark: torch.cuda.Event) -> Optional[float]:
        """None as long as the device has not come there."""
        return base.elapsed_time(mark) if mark.query() else None


class StepRecorder:
    """Times the embedding part of each step of a sharded model. One thread, the trainer's.

        recorder = StepRecorder(model)      # DistributedModelParallel, before the pipeline is made
        for batch in batches:
            ...                             # forward, backward
            recorder.step()                 # at the end of each step
        recorder.median_ms()                # {"forward": 3.1, ...} of this rank
        record = recorder.record(planner.request, planner.response.plan)       # of all ranks: a line of what step_records learns from

    Of a step, on this rank, in ms:

    forward           in the lookups, the exchange of their vectors and waiting for it
    lookup_forward    of that, in FBGEMM's lookups
    backward          from the gradient of the first embedding to the last update (with data_parallel tables: to the end of the backward pass)
    lookup_backward   of that, in FBGEMM's backward with the fused update
    input_dist        in the distribution of ids and waiting for it; next to nothing where a pipeline has done it beside the step before

    Waiting for a slower rank is part of an exchange, so the ranks' totals differ less than their work does.

    Behind `warmup_steps` every `every`-th step is recorded; short runs need `every=1`. A recorded step takes up to 4 % longer, and so does the one before it.
    """

    def __init__(self, model: nn.Module, warmup_steps: int = 3, every: int = 20) -> None:
        """ValueError where the model has no sharded embeddings, or `every` is less than 1."""
        if every < 1:
            raise ValueError(f"every: must be at least 1, got {every}")
        modules = [module for module in model.modules() if hasattr(module, "compute_and_output_dist") and hasattr(module, "_lookups")]
        if not modules:
            raise ValueError("model: has no sharded embedding modules; give the model that DistributedModelParallel made")
        lookups = [each for module in modules for lookup in module._lookups for each in lookup.modules() if isinstance(each, _LOOKUPS)]
        on_cuda = any(parameter.is_cuda for module in modules for parameter in module.parameters())
        self._clock = _CudaClock() if on_cuda else _CpuClock()
        self._every = every
        self._until_recorded = max(0, warmup_steps)
        self._base = self._clock.mark()
        self._spans: List[Tuple[str, Any, Any]] = []
        self._unread: List[Tuple[Any, List[Tuple[str, Any, Any]]]] = []
        self._times: List[Dict[str, float]] = []
        self._backward_begin: Optional[Any] = None
        self.num_lookups = len(lookups)
        """Lookup kernels of this rank: groups of tables, as TorchRec makes them."""
        for module in modules:
            self._watch(module)
        for lookup in lookups:
            self._watch_lookup(lookup)

    def _timed(self, stage: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._watching:
                return call(*args, **kwargs)
            begin = self._clock.mark()
            result = call(*args, **kwargs)
            self._spans.append((stage, begin, self._clock.mark()))
            return result

        return timed

    def _time_wait(self, stage: str, awaitable: Any, then: Callable[[Any], None] = lambda _: None) -> None:
        if not self._watching:
            return
        # A strong reference would be a cycle, in which the tensors of each step lay until the garbage collector came.
        wait, of = self._timed(stage, type(awaitable)._wait_impl), weakref.ref(awaitable)

        def timed_wait() -> Any:
            result = wait(of())
            then(result)
            return result

        awaitable._wait_impl = timed_wait

    def _watch(self, module: nn.Module) -> None:
        replicas = any(isinstance(each, DistributedDataParallel) for each in module._lookups)
        input_dist, compute = self._timed("input_dist", module.input_dist), self._timed("forward", module.compute_and_output_dist)

        def watched_input_dist(*args: Any, **kwargs: Any) -> Any:
            sizes = input_dist(*args, **kwargs)
            self._time_wait("input_dist", sizes, lambda ids: self._time_wait("input_dist", ids))
            return sizes

        def begin_with(result: Any) -> None:
            for tensor in _tensors(result):
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: self._begin_backward(replicas))

        def watched_compute(*args: Any, **kwargs: Any) -> Any:
            vectors = compute(*args, **kwargs)
            self._time_wait("forward", vectors, begin_with)
            return vectors

        module.input_dist, module.compute_and_output_dist = watched_input_dist, watched_compute

    def _begin_backward(self, replicas: bool) -> None:
        if self._backward_begin is None:
            self._backward_begin = self._clock.mark()
        if replicas:
            # Behind the callback in which DistributedDataParallel waits for its all-reduces, which it queues later than this.
            queue_callback = torch.autograd.Variable._execution_engine.queue_callback
            queue_callback(lambda: queue_callback(self._end_backward))

    def _end_backward(self) -> None:
        if self._backward_begin is not None:
            self._spans.append(("backward", self._backward_begin, self._clock.mark()))

    def _watch_lookup(self, lookup: nn.Module) -> None:
        began: List[Any] = []

        def forward_ends(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            if not self._watching:
                return
            self._spans.append(("lookup_forward", began.pop(), self._clock.mark()))
            if output.grad_fn is None:
                return
            output.grad_fn.register_prehook(lambda _: began.append(self._clock.mark()))
            output.grad_fn.register_hook(lambda *_: backward_ends())

        def backward_ends() -> None:
            self._spans.append(("lookup_backward", began.pop(), self._clock.mark()))
            self._end_backward()

        lookup.register_forward_pre_hook(lambda *_: began.append(self._clock.mark()) if self._watching else None)
        lookup.register_forward_hook(forward_ends)

    @property
    def _watching(self) -> bool:
        """In the step before a recorded one too: pipelines start there what the recorded one ends."""
        return self._until_recorded <= 1

    def step(self) -> None:
        """The end of a step."""
        if self._until_recorded == 0:
            self._unread.append((self._base, self._spans))
            self._until_recorded = self._every
        self._until_recorded -= 1
        self._base, self._spans, self._backward_begin = self._clock.mark(), [], None
        self._read()

    def _read(self) -> None:
        while self._unread:
            base, spans = self._unread[0]
            known = [(stage, self._clock.ms_since(base, begin), self._clock.ms_since(base, end)) for stage, begin, end in spans]
            if any(end is None for _, _, end in known):
                return
            times = {stage: sum(end - begin for each, begin, end in known if each == stage) for stage in STAGES if stage != "backward"}
            # Each lookup's end is an end so far; the last counts.
            times["backward"] = max((end - begin for stage, begin, end in known if stage == "backward"), default=0.0)
            self._times.append(times)
            del self._unread[0]

    @property
    def steps(self) -> List[Dict[str, float]]:
        """Stage -> ms of each recorded step of this rank."""
        if self._unread and isinstance(self._clock, _CudaClock):
            torch.cuda.current_stream().synchronize()
            self._read()
        return self._times

    def median_ms(self) -> Dict[str, float]:
        """Stage -> median over the recorded steps, and "total": of the sum of forward and backward. ValueError where none was recorded."""
        steps = self.steps
        if not steps:
            raise ValueError("no step was recorded; call step() at the end of each")
        medians = {stage: statistics.median(step[stage] for step in steps) for stage in STAGES}
        return {**medians, "total": statistics.median(step["forward"] + step["backward"] for step in steps)}

    def record(self, request: Optional[v1.ShardPlanRequest], plan: Optional[v1.Plan], pg: Optional[dist.ProcessGroup] = None) -> StepRecord:
        """The medians of all ranks of the group, on each of them. Every rank calls it; the first one's request, plan and clock count: NeuroShardPlanner has
        both there. ValueError, on all ranks, where they are missing, where the plan is for another number of ranks, or where a rank recorded no step."""
        fault, ms = None, None
        try:
            ms = self.median_ms()
        except ValueError as error:
            fault = str(error)
        messages = (request.SerializeToString(), plan.SerializeToString(), int(1e3 * time.time())) if request is not None and plan is not None else None
        gathered: List[Any] = [None] * dist.get_world_size(pg)
        dist.all_gather_object(gathered, (fault, ms, messages), group=pg)
        faults = [f"rank {rank}: {fault}" for rank, (fault, _, _) in enumerate(gathered) if fault]
        if gathered[0][2] is None:
            faults.append("rank 0: there is no request or no plan; NeuroShardPlanner has both where the service made the plan")
        if faults:
            raise ValueError("; ".join(faults))
        request_bytes, plan_bytes, now_ms = gathered[0][2]
        record = StepRecord(v1.ShardPlanRequest.FromString(request_bytes), v1.Plan.FromString(plan_bytes), [ms for _, ms, _ in gathered], now_ms)
        record.check()
        return record


def _tensors(result: Any) -> Sequence[torch.Tensor]:
    """Of a KeyedTensor, or of the JaggedTensors of a dict."""
    return [result.values()] if isinstance(result, KeyedTensor) else [each.values() for each in result.values()]

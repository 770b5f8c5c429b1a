"""StepRecorder: how long the embedding part of a trainer's own steps takes, without a profiling run."""

from __future__ import annotations

import collections
import statistics
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.distributed as dist
from fbgemm_gpu.split_table_batched_embeddings_ops_training import DenseTableBatchedEmbeddingBagsCodegen, SplitTableBatchedEmbeddingBagsCodegen
from torch import nn
from torch.autograd.graph import get_gradient_edge
from torch.nn.parallel import DistributedDataParallel
from torchrec import KeyedTensor
from torchrec.distributed.types import Awaitable

from neuroshard import v1
from neuroshard.torchrec.step_record import EXCHANGE_STAGES, LOOKUP_STAGES, STAGES, Group, StepRecord

_LOOKUPS = (SplitTableBatchedEmbeddingBagsCodegen, DenseTableBatchedEmbeddingBagsCodegen)
_Of = Tuple[int, ...]  # whose a span is: (), the rank's; (group,), its exchange's; (group, lookup)


def _queue_callback(callback: Callable[[], None]) -> None:
    """For the end of this backward pass, behind those that were queued before."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


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

    `groups` splits that up: of each pair of module and sharding type its own input_dist, exchange_forward and exchange_backward (of vectors, and of their
    gradients or those of data_parallel tables, with waiting for them), and lookup_forward and lookup_backward of each of its lookups.

    Waiting for a slower rank is part of an exchange, so the ranks' totals differ less than their work does.

    Behind `warmup_steps` every `every`-th step is recorded; short runs need `every=1`. A recorded step takes up to 5 % longer, and so does the one before it.
    """

    def __init__(self, model: nn.Module, warmup_steps: int = 3, every: int = 20) -> None:
        """ValueError where the model has no sharded embeddings, or `every` is less than 1."""
        if every < 1:
            raise ValueError(f"every: must be at least 1, got {every}")
        # Those around one, such as feature processors, have its lookups too, and no exchanges.
        modules = [(path, module) for path, module in model.named_modules() if hasattr(module, "_lookups") and hasattr(module, "_output_dists")]
        if not modules:
            raise ValueError("model: has no sharded embedding modules; give the model that DistributedModelParallel made")
        on_cuda = any(parameter.is_cuda for _, module in modules for parameter in module.parameters())
        self._clock = _CudaClock() if on_cuda else _CpuClock()
        self._every = every
        self._until_recorded = max(0, warmup_steps)
        self._base = self._clock.mark()
        self._spans: List[Tuple[str, _Of, Any, Any]] = []
        self._unread: List[Tuple[Any, List[Tuple[str, _Of, Any, Any]]]] = []
        self._times: List[Dict[str, float]] = []
        self._times_of: List[Dict[Tuple[str, _Of], float]] = []
        self._groups: List[Group] = []
        self._backward_begin: Optional[Any] = None
        self._nodes: Set[Any] = set()
        self._handles: List[Any] = []
        for path, module in modules:
            self._watch(module)
            self._watch_groups(module, getattr(module, "_module_fqn", None) or path)
        self.num_lookups = sum(len(group["lookups"]) for group in self._groups)
        """Lookup kernels of this rank: groups of tables, as TorchRec makes them."""

    def _timed(self, stage: str, of: _Of, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._watching:
                return call(*args, **kwargs)
            begin = self._clock.mark()
            result = call(*args, **kwargs)
            self._spans.append((stage, of, begin, self._clock.mark()))
            return result

        return timed

    def _time_wait(self, stage: str, of: _Of, awaitable: Any, then: Callable[[Any], None] = lambda _: None) -> None:
        if not self._watching or not isinstance(awaitable, Awaitable):  # a pipeline that fuses exchanges of ids waits for all at once
            return
        # A strong reference would be a cycle, in which the tensors of each step lay until the garbage collector came.
        wait, waited = self._timed(stage, of, type(awaitable)._wait_impl), weakref.ref(awaitable)

        def timed_wait() -> Any:
            result = wait(waited())
            then(result)
            return result

        awaitable._wait_impl = timed_wait

    def _watched(self, stage: str, of: _Of, call: Callable[..., Any], then: Callable[[Any], None]) -> Callable[..., Any]:
        timed = self._timed(stage, of, call)

        def watched(*args: Any, **kwargs: Any) -> Any:
            awaitable = timed(*args, **kwargs)
            self._time_wait(stage, of, awaitable, then)
            return awaitable

        return watched

    def _watched_input_dist(self, of: _Of, call: Callable[..., Any]) -> Callable[..., Any]:
        return self._watched("input_dist", of, call, lambda ids: self._time_wait("input_dist", of, ids))

    def _watch(self, module: nn.Module) -> None:
        replicas = any(isinstance(each, DistributedDataParallel) for each in module._lookups)

        def begin_with(result: Any) -> None:
            for tensor in _tensors(result):
                if tensor.requires_grad:
                    tensor.register_hook(lambda _: self._begin_backward(replicas))

        module.input_dist = self._watched_input_dist((), module.input_dist)
        module.compute_and_output_dist = self._watched("forward", (), module.compute_and_output_dist, begin_with)

    def _watch_groups(self, module: nn.Module, path: str) -> None:
        first = len(self._groups)
        for number, (sharding_type, lookup, exchange) in enumerate(zip(module._sharding_types, module._lookups, module._output_dists), first):
            kernels = [each for each in lookup.modules() if isinstance(getattr(each, "emb_module", None), _LOOKUPS)]
            tables = [list(dict.fromkeys(table.name for table in kernel.config.embedding_tables)) for kernel in kernels]
            self._groups.append({"module": path, "sharding_type": sharding_type, "lookups": [{"tables": names} for names in tables]})
            for each, kernel in enumerate(kernels):
                self._watch_lookup((number, each), kernel.emb_module)
            if isinstance(lookup, DistributedDataParallel):
                self._watch_replicas((number,), lookup)
            exchange.forward = self._watched("exchange_forward", (number,), exchange.forward, lambda vectors, of=(number,): self._time_gradients(of, vectors))
        create = module._create_input_dist

        def watch_input_dists() -> None:
            for number, exchange in enumerate(module._input_dists, first):
                exchange.forward = self._watched_input_dist((number,), exchange.forward)

        def create_watched(*args: Any, **kwargs: Any) -> None:  # with the first batch
            create(*args, **kwargs)
            watch_input_dists()

        module._create_input_dist = create_watched
        watch_input_dists()

    def _watch_replicas(self, of: _Of, lookup: nn.Module) -> None:
        began: List[Any] = []

        def begins() -> None:
            began.append(self._clock.mark())

        def ends() -> None:
            self._spans.append(("exchange_backward", of, began.pop(), self._clock.mark()))

        def before(_: Any) -> None:
            if self._watching:
                _queue_callback(begins)
                begins()

        def after(*_: Any) -> None:
            if self._watching:
                ends()
                _queue_callback(ends)

        # DistributedDataParallel's own hook is between these two: it starts all-reduces, and with the last gradient queues the callback that waits for them.
        for parameter in lookup.parameters():
            if parameter.requires_grad:
                node = get_gradient_edge(parameter).node
                self._handles += [node.register_prehook(before), node.register_hook(after)]

    def _time_gradients(self, of: _Of, vectors: torch.Tensor) -> None:
        """In everything between these vectors and the lookups that they are of."""
        nodes = [vectors.grad_fn]
        while nodes:
            node = nodes.pop()
            if node is None or node in self._nodes or not node.next_functions:  # leaves keep their hooks for ever
                continue
            self._time_node("exchange_backward", of, node)
            nodes += [each for each, _ in node.next_functions]

    def _time_node(self, stage: str, of: _Of, node: Any) -> None:
        began: List[Any] = []

        def ends(*_: Any) -> None:
            self._spans.append((stage, of, began.pop(), self._clock.mark()))
            self._end_backward()

        self._nodes.add(node)
        node.register_prehook(lambda _: began.append(self._clock.mark()))
        node.register_hook(ends)

    def _begin_backward(self, replicas: bool) -> None:
        if self._backward_begin is None:
            self._backward_begin = self._clock.mark()
        if replicas:
            # Behind the callback in which DistributedDataParallel waits for its all-reduces, which it queues later than this.
            _queue_callback(lambda: _queue_callback(self._end_backward))

    def _end_backward(self) -> None:
        if self._backward_begin is not None:
            self._spans.append(("backward", (), self._backward_begin, self._clock.mark()))

    def _watch_lookup(self, of: _Of, lookup: nn.Module) -> None:
        began: List[Any] = []

        def forward_ends(_module: nn.Module, _inputs: Any, output: torch.Tensor) -> None:
            if not self._watching:
                return
            self._spans.append(("lookup_forward", of, began.pop(), self._clock.mark()))
            if output.grad_fn is not None:
                self._time_node("lookup_backward", of, output.grad_fn)

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
        self._nodes.clear()
        self._read()

    def _read(self) -> None:
        while self._unread:
            base, spans = self._unread[0]
            known = [(stage, of, self._clock.ms_since(base, begin), self._clock.ms_since(base, end)) for stage, of, begin, end in spans]
            if any(end is None for *_, end in known):
                return
            times, times_of = dict.fromkeys(STAGES, 0.0), collections.defaultdict(float)
            for stage, of, begin, end in known:
                # Each lookup's end is an end of the backward pass so far; the last counts.
                times_of[stage, of] = max(times_of[stage, of], end - begin) if stage == "backward" else times_of[stage, of] + end - begin
            for (stage, of), ms in times_of.items():
                if len(of) != 1:  # what exchanges take is part of their modules' spans
                    times[stage] += ms
            self._times.append(times)
            self._times_of.append(times_of)
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

    def groups(self) -> List[Group]:
        """Medians of this rank over the recorded steps, as StepRecord has them; without figures where none was recorded."""
        def medians(stages: Sequence[str], of: _Of) -> Dict[str, float]:
            return {stage: statistics.median(times.get((stage, of), 0.0) for times in self._times_of) for stage in stages} if self.steps else {}

        return [{**group, **medians(EXCHANGE_STAGES, (number,)),
                 "lookups": [{**lookup, **medians(LOOKUP_STAGES, (number, each))} for each, lookup in enumerate(group["lookups"])]}
                for number, group in enumerate(self._groups)]

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
        dist.all_gather_object(gathered, (fault, ms, messages, self.groups()), group=pg)
        faults = [f"rank {rank}: {fault}" for rank, (fault, *_) in enumerate(gathered) if fault]
        if gathered[0][2] is None:
            faults.append("rank 0: there is no request or no plan; NeuroShardPlanner has both where the service made the plan")
        if faults:
            raise ValueError("; ".join(faults))
        request_bytes, plan_bytes, now_ms = gathered[0][2]
        record = StepRecord(v1.ShardPlanRequest.FromString(request_bytes), v1.Plan.FromString(plan_bytes), [ms for _, ms, *_ in gathered], now_ms,
                            [groups for *_, groups in gathered])
        record.check()
        return record


def _tensors(result: Any) -> Sequence[torch.Tensor]:
    """Of a KeyedTensor, or of the JaggedTensors of a dict."""
    return [result.values()] if isinstance(result, KeyedTensor) else [each.values() for each in result.values()]

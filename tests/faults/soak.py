"""Mixed calls of a planner and a worker for a long time: memory, descriptors and threads have to stay what they are after a while.

Needs the package neuroshard (a build has it in client/python/package).
"""

from __future__ import annotations

import pathlib
import random
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from typing import Callable, Dict, List

from setting import REPOSITORY, Programs, Server, planner, require, worker

CALLERS = 3
DEVICES = 8
EVERY_S = 2.0
# Of what is left after the first third, which fills caches and pools.
MOST_MIB_PER_HOUR = 48.0
MOST_MORE = 3  # descriptors or threads


def of_process(pid: int) -> Dict[str, float]:
    status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "memory_mib": int(status["VmRSS"].split()[0]) / 1024,
        "descriptors": len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir())),
        "threads": int(status["Threads"]),
    }


def slope(times: List[float], values: List[float]) -> float:
    """Of the least squares line, an hour."""
    return statistics.linear_regression(times, values).slope * 3600 if len(times) > 2 else 0.0


class Calls:
    """Everything that callers do, well and badly."""

    def __init__(self, planning: Server, measuring: Server, seed: int):
        import grpc
        from neuroshard import v1
        from neuroshard.v1.planner_pb2_grpc import PlannerServiceStub
        from neuroshard.v1.worker_pb2_grpc import WorkerServiceStub

        self.grpc, self.v1, self.planner_stub, self.worker_stub = grpc, v1, PlannerServiceStub, WorkerServiceStub
        self.planning, self.measuring = planning, measuring
        self.draw = random.Random(seed)
        self.name = f"soak-{seed}"
        self.made: Counter = Counter()
        self.measured = 0
        self.refused: Counter = Counter()

    def request(self, tables: int):
        v1, draw = self.v1, self.draw
        request = v1.ShardPlanRequest(global_batch_size=1024)
        for i in range(tables):
            request.tables.add(name=f"t{i}", num_embeddings=draw.randint(10, 10**6), embedding_dim=draw.choice((4, 16, 64)), pooling_factor=draw.uniform(1, 20))
        request.topology.hosts.add(num_devices=draw.choice((1, 2, 8)), memory_bytes=1 << 34)
        request.search.refine_steps = draw.randint(1, 200)
        request.search.strategy = draw.choice(("refine", "size_greedy", "neuroshard", "random", "no_such"))
        return request

    def plan(self, stub) -> None:
        stub.ShardPlan(self.request(self.draw.choice((1, 5, 60))), timeout=self.draw.choice((0.001, 30, 30)))

    def stream(self, stub) -> None:
        updates = stub.ShardPlanStream(self.request(20), timeout=30)
        for number, _ in enumerate(updates):
            if number >= self.draw.randint(0, 5):
                updates.cancel()
                return

    def look(self, stub) -> None:
        stub.ListCostModels(self.v1.ListCostModelsRequest(), timeout=30)
        stub.GetCostModel(self.v1.GetCostModelRequest(cost_model=self.v1.CostModelRef(name=self.draw.choice(("analytic", "none")))), timeout=30)

    def nonsense(self, channel) -> None:
        call = channel.unary_unary(f"/neuroshard.v1.PlannerService/{self.draw.choice(('ShardPlan', 'EvaluatePlan', 'NoSuch'))}")
        call(self.draw.randbytes(self.draw.choice((1, 100, 100_000))), timeout=30)

    def measure(self, stub) -> None:
        v1 = self.v1
        settings = v1.MeasurementSettings(warmup_iterations=1, min_iterations=2, max_iterations=3, max_time_ms=500)
        requests = [v1.ProfileComputeRequest(header=v1.ProfileComputeHeader(device=self.draw.choice((*range(DEVICES), 99)), settings=settings))]
        for i in range(4):
            sample = v1.ComputeSample(sample_id=f"s{i}", batch_size=64, optimizer="sgd", seed=i)
            cols = 0 if self.draw.random() < 0.05 else self.draw.choice((4, 16))
            sample.shards.add(rows=1000, cols=cols, pooling_factor=3, reuse_histogram=[1, *[0] * 16], weight_dtype="fp32", pooling_mode="sum")
            requests.append(v1.ProfileComputeRequest(sample=sample))
        answers = stub.ProfileCompute(iter(requests), timeout=30)
        for number, _ in enumerate(answers):
            self.measured += 1
            if number >= self.draw.randint(0, 8):
                answers.cancel()  # abandoned in the middle
                return

    def group(self, stub) -> None:
        v1 = self.v1
        name = f"{self.name}-{self.made.total()}"
        devices = self.draw.sample(range(DEVICES), 2)
        opened = stub.OpenCommGroup(v1.OpenCommGroupRequest(
            group_id=name, world_size=2, timeout_ms=5000, idle_timeout_ms=500,
            local_ranks=[v1.LocalRank(rank=rank, device=device) for rank, device in enumerate(devices)]), timeout=30)
        if self.draw.random() < 0.05:
            return  # never closed: the worker does
        stub.ConnectCommGroup(v1.ConnectCommGroupRequest(group_id=name, addresses=opened.addresses, token=opened.token), timeout=30)
        stub.CloseCommGroup(v1.CloseCommGroupRequest(group_id=name, token=opened.token), timeout=30)

    def run(self, until: Callable[[], bool]) -> None:
        while not until():
            channels = [self.grpc.insecure_channel(server.address) for server in (self.planning, self.measuring)]
            planner_stub, worker_stub = self.planner_stub(channels[0]), self.worker_stub(channels[1])
            for _ in range(self.draw.randint(1, 30)):
                if until():
                    break
                action, target = self.draw.choice((
                    (self.plan, planner_stub), (self.plan, planner_stub), (self.stream, planner_stub), (self.look, planner_stub),
                    (self.nonsense, channels[0]), (self.measure, worker_stub), (self.group, worker_stub)))
                self.made[action.__name__] += 1
                try:
                    action(target)
                except self.grpc.RpcError as error:
                    self.refused[f"{action.__name__} {error.code().name}"] += 1
                    require(error.code() != self.grpc.StatusCode.INTERNAL, f"no call finds a bug: {error.details()}")
            for channel in channels:
                channel.close()


def run(programs: Programs, folder: pathlib.Path, minutes: float) -> List[str]:
    sys.path.insert(0, str(programs.binaries.parent / "client/python/package"))
    broken: List[str] = []
    end = time.monotonic() + 60 * minutes
    with planner(programs, folder, REPOSITORY / "configs/models") as planning, worker(programs, folder, "--cpu-devices", str(DEVICES)) as measuring:
        callers = [Calls(planning, measuring, seed) for seed in range(CALLERS)]

        def call(caller: Calls) -> None:
            try:
                caller.run(lambda: time.monotonic() > end or bool(broken))
            except Exception as error:  # pylint: disable=broad-except
                broken.append(f"{type(error).__name__}: {error}")

        threads = [threading.Thread(target=call, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        seen: Dict[str, Dict[str, List[float]]] = {"planner": {}, "worker": {}}
        times: List[float] = []
        while time.monotonic() < end and not broken:
            time.sleep(EVERY_S)
            planning.process.send_signal(signal.SIGHUP)
            times.append(time.monotonic())
            for name, server in (("planner", planning), ("worker", measuring)):
                for what, value in of_process(server.process.pid).items():
                    seen[name].setdefault(what, []).append(value)
        for thread in threads:
            thread.join()
        made, refused = sum((caller.made for caller in callers), Counter()), sum((caller.refused for caller in callers), Counter())
        print(f"soak: {made.total()} calls in {minutes:g} min: {dict(made)}; refused: {dict(refused)}", flush=True)
        measured = sum(caller.measured for caller in callers)
        print(f"soak: {measured} samples measured", flush=True)
        require(measured > 0 or broken, "lookups are among them")
        require(planning.process.poll() is None and measuring.process.poll() is None, "both servers live")
        after = len(times) // 3
        for name, values in seen.items():
            for what, series in values.items():
                rest = series[after:]
                an_hour = slope(times[after:], rest)
                half = len(rest) // 2
                more = statistics.median(rest[half:]) - statistics.median(rest[:half])
                print(f"soak, {name}, {what}: {rest[0]:.0f} after a third, {rest[-1]:.0f} at the end, most {max(series):.0f}, {an_hour:+.1f} an hour", flush=True)
                grows = an_hour > MOST_MIB_PER_HOUR and more > 2 if what == "memory_mib" else more > MOST_MORE
                if grows:
                    broken.append(f"{name}: {what} grows by {an_hour:.1f} an hour")
    return broken

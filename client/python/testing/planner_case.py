"""What the tests of NeuroShardPlanner share: models, a relay before a real planner, and the program that runs them."""

import concurrent.futures
import contextlib
import logging
import socket
import sys
import unittest
import warnings

import grpc
import torch
from planner_process import PlannerProcess
from torch import nn
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import PlannerError, Topology
from torchrec.distributed.sharding_plan import get_default_sharders

import neuroshard
from neuroshard.torchrec import NeuroShardPlanner
from neuroshard.v1 import planner_pb2_grpc

GIB = 1 << 30
FREE = FixedPercentageStorageReservation(0.0)


class Programs:
    address = ""  # of the planner that runs
    planner = ""  # path of neuroshard-planner
    client = ""  # path of neuroshard


def bag(name, rows=1000, cols=64, **more):
    return EmbeddingBagConfig(**{"name": name, "num_embeddings": rows, "embedding_dim": cols, "feature_names": [f"f_{name}"], **more})


def bags(*tables, weighted=False):
    return EmbeddingBagCollection(tables=list(tables), is_weighted=weighted, device=torch.device("meta"))


class Model(nn.Module):
    def __init__(self, **parts):
        super().__init__()
        for name, part in parts.items():
            setattr(self, name, part)


def small_model():
    return Model(ebc=bags(bag("a"), bag("b", 2000), bag("c", 3000, 32)))


def gpus(ranks=4, local=2, **more):
    return Topology(world_size=ranks, local_world_size=local, compute_device="cuda", **more)


def make(address=None, topology=None, batch_size=128, **more):
    more.setdefault("storage_reservation", FREE)
    return NeuroShardPlanner(address or Programs.address, topology or gpus(), batch_size, debug=False, stats=[], **more)


class Relay(planner_pb2_grpc.PlannerServiceServicer):
    """A planner's answers, changed by `tamper` on their way. `calls`: names of the RPCs; `requests`: those of ShardPlan."""

    def __init__(self, tamper, model_types):
        self.calls, self.requests, self._tamper, self._model_types = [], [], tamper, model_types
        self._client = neuroshard.PlannerClient(Programs.address)

    def GetCostModel(self, request, context):
        self.calls.append("GetCostModel")
        model = self._client.model(request.cost_model.name, request.cost_model.version)
        if self._model_types:
            model.sharding_types[:] = self._model_types
        return model

    def EvaluatePlan(self, request, context):
        self.calls.append("EvaluatePlan")
        return self._client.evaluate(request.request, request.plan)

    def ShardPlan(self, request, context):
        self.calls.append("ShardPlan")
        self.requests.append(request)
        response = self._client.plan(request)
        self._tamper(response)
        return response


@contextlib.contextmanager
def relay(tamper=lambda response: None, model_types=()):
    """(address, Relay) in front of the real planner, whose cost model is made for `model_types` if they are given."""
    service = Relay(tamper, model_types)
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
    planner_pb2_grpc.add_PlannerServiceServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}", service
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def nobody():
    """An address where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextlib.contextmanager
def silence():
    """An address where connections are taken and nothing is answered."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


class Case(unittest.TestCase):
    def refused(self, kind, *parts):
        """A context in which a PlannerError of `kind` is raised whose text has all of `parts`."""

        @contextlib.contextmanager
        def context():
            with self.assertRaises(PlannerError) as caught:
                yield
            for part in parts:
                self.assertIn(part, str(caught.exception))
            self.assertEqual(caught.exception.error_type, kind)

        return context()

    def request(self, model, sharders=None, model_types=(), **more):
        """The request that the planner gets."""
        with relay(model_types=model_types) as (address, service):
            make(address, **more).plan(model, get_default_sharders() if sharders is None else sharders)
            return service.requests[-1]

    def tables(self, request):
        return {(table.module, table.name): table for table in request.tables}

    def types(self, request):
        """By table, which have names of their own here."""
        return {name.rpartition(".")[2]: set(rule.sharding_types) for rule in request.constraints.tables for name in rule.tables}


def main():
    """Runs the tests of the program that was started with the paths of neuroshard-planner and neuroshard, before a planner of their own."""
    warnings.filterwarnings("ignore")
    logging.getLogger("torchrec").setLevel(logging.ERROR)
    Programs.planner, Programs.client = sys.argv[1:3]
    with PlannerProcess(Programs.planner) as process:
        Programs.address = process.address
        unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)

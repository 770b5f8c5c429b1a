"""Plans of the service train under DistributedModelParallel as the unsharded model does.

  training_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import datetime
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings

import torch
import torch.distributed as dist
from torchrec.distributed.embedding import EmbeddingCollectionSharder
from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import CustomTopologyData, ParameterConstraints, PlannerError, Topology

import training
from planner_process import PlannerProcess
from ranks import run_on_ranks
from training import Model, ShardedTraining, WholeTraining, bags, copies, sequences, train_both

from neuroshard.torchrec import NeuroShardPlanner, RowPositions, load_plan, reshard_delta, save_plan
from neuroshard.torchrec.module_tables import ROW_TYPES

TOLERANCE = 1e-4
MIB = 1 << 20
ADDRESS = None  # of the planner that the ranks ask


def topology(**arguments):
    return Topology(world_size=dist.get_world_size(), local_world_size=int(os.environ["LOCAL_WORLD_SIZE"]), compute_device="cpu", **arguments)


def types(**by_table):
    return {name: ParameterConstraints(sharding_types=[kind]) for name, kind in by_table.items()}


def planned(model, constraints, sharders=None, address=None, **arguments):
    arguments.setdefault("topology", topology())
    planner = NeuroShardPlanner(address or ADDRESS, batch_size=training.LOCAL_BATCH, constraints=constraints, debug=False, stats=[], **arguments)
    return planner.collective_plan(model, training.SHARDERS if sharders is None else sharders)


def check_placed(sharded):
    """The weights lie where the plan says: TorchRec took all of it."""
    placed = sharded.placed()
    for path, tables in sharded.plan.plan.items():
        for name, parameter in tables.items():
            part = "embeddings" if f"{path}.embeddings.{name}.weight" in placed else "embedding_bags"
            found = placed[f"{path}.{part}.{name}.weight"]
            if parameter.sharding_type == "data_parallel":
                assert found == "whole", (name, found)
                continue
            expected = sorted((list(s.shard_offsets), list(s.shard_sizes), s.placement.rank()) for s in parameter.sharding_spec.shards)
            assert found == expected, (name, found, expected)


def train(make, plan_of, expect, optimizer="sgd", tolerance=TOLERANCE, sharders=None):
    """Plans, checks what the plan is, trains three steps of both models. `expect(tables)`: ParameterSharding by name, or by (module, name)."""
    whole, model = copies(make)
    plan = plan_of(model)
    expect({name: parameter for tables in plan.plan.values() for name, parameter in tables.items()}, plan)
    weights = {key: value.clone() for key, value in whole.state_dict().items()}
    sharded = ShardedTraining(model, plan, optimizer, weights, sharders)
    check_placed(sharded)
    train_both(WholeTraining(whole, optimizer), sharded, range(3), tolerance)


def shards(parameter):
    return [(*s.shard_offsets, *s.shard_sizes, s.placement.rank()) for s in parameter.sharding_spec.shards]


def one_type(kind, optimizer="sgd"):
    def case():
        def expect(tables, _):
            assert {table.sharding_type for table in tables.values()} == {kind}, tables

        def make():
            return Model(ebc=bags(("a", 50, 16), ("b", 101, 32), ("c", 33, 8)))

        train(make, lambda model: planned(model, types(a=kind, b=kind, c=kind)), expect, optimizer)

    return case


ALL_TYPES = ("data_parallel", "table_wise", "column_wise", "row_wise", "table_row_wise", "table_column_wise", "grid_shard")


def mixed(optimizer):
    # The mean over a row is one over the columns of a shard, in TorchRec: where columns are cut, row-wise Adagrad trains otherwise than whole.
    cut = ("column_wise", "table_column_wise", "grid_shard") if optimizer == "rowwise_adagrad" else ()

    def case():
        kinds = {f"t{index}": kind for index, kind in enumerate(ALL_TYPES) if kind not in cut}

        def expect(tables, _):
            assert {name: table.sharding_type for name, table in tables.items()} == kinds

        def make():
            return Model(ebc=bags(*((name, 40 + 13 * index, 8 + 8 * (index % 3)) for index, name in enumerate(kinds))))

        train(make, lambda model: planned(model, types(**kinds)), expect, optimizer)

    return case


def from_file(make, tables, expect=lambda tables, plan: None, kernels=None, sharders=None):
    """`tables`: {module: {name: (type, [(row, col, rows, cols, rank)])}}, which stands in a file as the command line would print it; `kernels`: by
    name, what the file says of a table's kernel where it is not fused."""

    def plan_of(model):
        content = {"plan": {}}
        for path, by_name in tables.items():
            content["plan"][path] = {
                name: {
                    "sharding_type": kind,
                    "compute_kernel": "fused",
                    **(kernels or {}).get(name, {}),
                    "ranks": [shard[4] for shard in found],
                    "shards": [{"shard_offsets": [r, c], "shard_sizes": [rows, cols], "placement": f"rank:{rank}/cpu"} for r, c, rows, cols, rank in found],
                }
                for name, (kind, found) in by_name.items()
            }
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "plan.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(content, file)
            return load_plan(path, model, topology(), sharders or training.SHARDERS)

    def check(found, plan):
        for path, by_name in tables.items():
            for name, (_, expected) in by_name.items():
                assert shards(plan.plan[path][name]) == expected, (name, shards(plan.plan[path][name]))
        expect(found, plan)

    train(make, plan_of, check, sharders=sharders)


def blocks_on_one_rank():
    from_file(
        lambda: Model(ebc=bags(("a", 30, 20), ("b", 20, 8))),
        {"sparse.ebc": {"a": ("column_wise", [(0, 0, 30, 4, 1), (0, 4, 30, 12, 0), (0, 16, 30, 4, 1)]), "b": ("table_wise", [(0, 0, 20, 8, 0)])}},
    )


def rows_in_host_memory():
    """A plan for CUDA devices; on CPUs TorchRec keeps all rows in the host's memory, and takes kernels and cache as they are."""

    def expect(tables, _):
        assert [tables[name].compute_kernel for name in "abcd"] == ["fused_uvm_caching", "fused_uvm", "fused", "fused_uvm_caching"]
        assert tables["a"].cache_params.load_factor == 0.25 and tables["b"].cache_params is None
        assert (tables["a"].cache_params.reserved_memory, tables["d"].cache_params.reserved_memory) == (None, 1.0)  # a cache of its own

    last = dist.get_world_size() - 1
    from_file(
        lambda: Model(ebc=bags(("a", 30, 8), ("b", 20, 8), ("c", 40, 16), ("d", 50, 16))),
        {
            "sparse.ebc": {
                name: ("table_wise", [(0, 0, rows, cols, rank)])
                for name, rows, cols, rank in (("a", 30, 8, 0), ("b", 20, 8, last), ("c", 40, 16, 0), ("d", 50, 16, 0))
            }
        },
        expect,
        {
            "a": {"compute_kernel": "fused_uvm_caching", "cache_load_factor": 0.25},
            "b": {"compute_kernel": "fused_uvm"},
            "d": {"compute_kernel": "fused_uvm_caching", "cache_load_factor": 0.5},
        },
    )


def exchanged_in_half_precision():
    registry = get_qcomm_codecs_registry(QCommsConfig(forward_precision=CommType.FP16, backward_precision=CommType.FP16), device=torch.device("cpu"))
    sharders = [training.AnyTypeSharder(qcomm_codecs_registry=registry)]
    kinds = dict(a="table_wise", b="row_wise", c="column_wise")

    def expect(tables, _):
        assert {name: table.sharding_type for name, table in tables.items()} == kinds
        assert tables["a"].output_dtype == training.DataType.FP32

    def make():
        return Model(ebc=bags(("a", 50, 8), ("b", 60, 16), ("c", 70, 16)))

    constraints = types(**kinds)
    constraints["a"].output_dtype = training.DataType.FP32
    train(make, lambda model: planned(model, constraints, sharders), expect, tolerance=2e-3, sharders=sharders)


def uneven_columns():
    def expect(tables, _):
        widths = [shard[3] for shard in shards(tables["a"])]
        assert tables["a"].sharding_type == "column_wise" and len(set(widths)) > 1 and sum(widths) == 20, shards(tables["a"])

    # A block of 12 columns fits a device, and the table does not.
    cap = topology(ddr_cap=int(20000 * 13.5 * 4))
    train(lambda: Model(ebc=bags(("a", 20000, 20))), lambda model: planned(model, types(a="column_wise"), topology=cap), expect)


def empty_row_shards():
    rows = dist.get_world_size() - 1

    def expect(tables, _):
        assert tables["a"].sharding_type == "row_wise" and [shard[2] for shard in shards(tables["a"])] == [1] * rows + [0]

    train(lambda: Model(ebc=bags(("a", rows, 8), ("b", 64, 8))), lambda model: planned(model, types(a="row_wise", b="row_wise")), expect)


class AnyBlocks(RowPositions, training.AnyTypeSharder):
    """Trains row_wise tables in any blocks of rows."""


class AnyBlocksOfSequences(RowPositions, EmbeddingCollectionSharder):
    """The same, unpooled."""


ANY_BLOCKS = [AnyBlocks(), AnyBlocksOfSequences()]


def rows_by_memory(make, optimizer="sgd", **kinds):
    """Rank 0 has three times the memory of the others, and three times the rows of row_wise tables; `kinds`: sharding types by table."""

    def case():
        ranks = dist.get_world_size()
        share = 30 * MIB
        caps = CustomTopologyData(data={"ddr_cap": [3 * share] + [share] * (ranks - 1)}, world_size=ranks)
        fleet = topology(custom_topology_data=caps)

        def expect(tables, _):
            for name, kind in kinds.items():
                assert tables[name].sharding_type == kind, tables[name]
                if kind == "row_wise":
                    rows = [shard[2] for shard in shards(tables[name])]
                    assert abs(rows[0] - 3 * rows[-1]) <= 4 and max(rows[1:]) - min(rows[1:]) <= 1, rows

        def plan_of(model):
            nothing = FixedPercentageStorageReservation(0.0)
            return planned(model, types(**kinds), ANY_BLOCKS, topology=fleet, storage_reservation=nothing, row_proportion="memory")

        train(make, plan_of, expect, optimizer, sharders=ANY_BLOCKS)

    return case


def pooled_by_memory():
    return Model(
        ebc=bags(("a", 50, 16), ("b", 101, 32, {"feature_names": ["u", "v"]}), ("c", 33, 8)),
        weighted=bags(("d", 71, 16), weighted=True),
        means=bags(("e", 45, 8, {"pooling": training.PoolingType.MEAN})),
    )


def unpooled_by_memory():
    return Model(ec=sequences(("s", 90, 16), ("t", 40, 16)))


def blocks_that_no_sharder_knows():
    """Blocks that a rank is not told are refused: TorchRec would look ids up in other rows without a word."""
    rows, ranks = 40, dist.get_world_size()
    found = [(0, 0, rows - 2 * (ranks - 1), 8, 0)] + [(rows - 2 * (ranks - rank), 0, 2, 8, rank) for rank in range(1, ranks)]
    tables = {"sparse.ebc": {"a": ("row_wise", found)}}
    try:
        from_file(lambda: Model(ebc=bags(("a", rows, 8))), tables)
    except PlannerError as error:
        assert "neuroshard.torchrec.RowPositions" in str(error), error
    else:
        raise AssertionError("a plan that TorchRec trains wrongly is taken")
    from_file(lambda: Model(ebc=bags(("a", rows, 8))), tables, sharders=ANY_BLOCKS)


def weighted_features():
    kinds = dict(a="table_wise", b="row_wise", c="column_wise", d="data_parallel")

    def expect(tables, _):
        assert {name: table.sharding_type for name, table in tables.items()} == kinds

    train(
        lambda: Model(ebc=bags(("a", 50, 8), ("b", 60, 16), ("c", 70, 16), ("d", 9, 8), weighted=True)), lambda model: planned(model, types(**kinds)), expect
    )


def two_features_on_a_table():
    def expect(tables, _):
        assert tables["a"].sharding_type == "table_wise" and tables["b"].sharding_type == "row_wise"

    def make():
        return Model(ebc=bags(("a", 50, 8, {"feature_names": ["x", "y"]}), ("b", 60, 16, {"feature_names": ["u", "v", "w"]})))

    train(make, lambda model: planned(model, types(a="table_wise", b="row_wise")), expect)


def pooled_by_mean():
    mean = {"pooling": training.PoolingType.MEAN}

    def expect(tables, _):
        # TorchRec computes wrong values where rows of a mean-pooled table are cut beside a table of another type.
        assert tables["a"].sharding_type == tables["b"].sharding_type == "row_wise"
        assert tables["c"].sharding_type not in ROW_TYPES, tables["c"]

    def make():
        return Model(rows=bags(("a", 50, 8, mean), ("b", 60, 16)), others=bags(("c", 70, 16, mean), ("d", 80, 8)))

    train(make, lambda model: planned(model, types(a="row_wise", b="row_wise", d="row_wise")), expect)


def unpooled(kind):
    def case():
        def expect(tables, _):
            assert {table.sharding_type for table in tables.values()} == {kind}, tables
            if kind == "column_wise":
                assert len(shards(tables["s"])) > 1, shards(tables["s"])

        cap = topology(ddr_cap=int(6000 * 16 * 4 * 0.8) + 40000) if kind == "column_wise" else topology()

        def make():
            return Model(ec=sequences(("s", 6000, 16), ("t", 40, 16)))

        # As in TorchRec, unpooled tables are cut in blocks of one width, of 128 columns and more unless a least width is given.
        constraints = {name: ParameterConstraints(sharding_types=[kind], min_partition=8) for name in "st"}
        train(make, lambda model: planned(model, constraints, topology=cap), expect)

    return case


def same_name_in_two_modules():
    def expect(_, plan):
        assert set(plan.plan) == {"sparse.left", "sparse.right"}
        assert shards(plan.plan["sparse.left"]["a"])[0][2] == 50 and shards(plan.plan["sparse.right"]["a"])[0][2] == 70

    train(lambda: Model(left=bags(("a", 50, 8)), right=bags(("a", 70, 16))), lambda model: planned(model, types(a="table_wise")), expect)


def dlrm():
    kinds = dict(zip(("t0", "t1", "t2", "t3"), ("data_parallel", "row_wise", "column_wise", "table_wise")))

    def expect(tables, plan):
        assert set(plan.plan) == {"model.sparse_arch.embedding_bag_collection"} and len(tables) == 6
        assert {name: tables[name].sharding_type for name in kinds} == kinds

    train(training.Dlrm, lambda model: planned(model, types(**kinds)), expect, "adagrad")


def half_precision():
    def expect(tables, _):
        assert tables["a"].stochastic_rounding is False

    def make():
        return Model(ebc=bags(("a", 50, 8, {"data_type": training.DataType.FP16}), ("b", 60, 16)))

    constraints = {"a": ParameterConstraints(sharding_types=["row_wise"], stochastic_rounding=False)}
    train(make, lambda model: planned(model, constraints), expect, tolerance=2e-3)


def plan_changed_in_mid_training():
    kinds = ["table_wise", "row_wise", "column_wise", "data_parallel"]
    names = dict(zip("abcd", kinds))

    def make():
        return Model(ebc=bags(("a", 50, 8), ("b", 60, 16), ("c", 70, 16), ("d", 9, 8)))

    whole, model = copies(make)
    before = planned(model, types(**names))
    reference = WholeTraining(whole, "sgd")
    first = ShardedTraining(model, before, "sgd", {key: value.clone() for key, value in whole.state_dict().items()})
    train_both(reference, first, range(3), TOLERANCE)
    weights = first.whole_weights()

    with tempfile.TemporaryDirectory() as folder:
        saved = os.path.join(folder, "before.json")
        save_plan(before, saved)
        second = make()
        after = planned(second, types(a="row_wise", b="table_wise", c="table_wise"), previous=saved)
    found = {name: parameter.sharding_type for name, parameter in after.plan["sparse.ebc"].items()}
    # Nothing was said of d, and it stays what it is.
    assert found == {"a": "row_wise", "b": "table_wise", "c": "table_wise", "d": "data_parallel"}, found
    continued = ShardedTraining(second, after, "sgd", weights)
    check_placed(continued)
    train_both(reference, continued, range(3, 6), TOLERANCE)


def moves_to(folder, model, before, after):
    """The plan in which tables are so ({name: (type, ranks)}), from the one in which they were, by `neuroshard plan --emit-moves`; and the moves' file."""
    def request(tables):
        rules = [{"tables": [name], "sharding_types": [kind], "ranks": ranks, **more} for name, (kind, ranks, more) in tables.items()]
        return {
            "global_batch_size": 64, "optimizer": "adagrad", "cost_model": {"name": "analytic"},
            "topology": {"hosts": [{"num_devices": dist.get_world_size(), "memory_bytes": 1 << 30}], "compute_device": "cpu"},
            "tables": [
                {"name": name, "module": "sparse.ebc", "num_embeddings": rows, "embedding_dim": cols, "pooling_factor": 2}
                for name, rows, cols in LIVE_TABLES
            ],
            "constraints": {"min_column_width": 8, "tables": rules},
        }

    def plan(name, tables, *more):
        paths = [os.path.join(folder, f"{name}.{kind}") for kind in ("request.json", "json", "plan")]
        with open(paths[0], "w", encoding="utf-8") as file:
            json.dump(request(tables), file)
        for form, path in zip(("json", "torchrec"), paths[1:]):
            subprocess.run([CLIENT, "plan", paths[0], "--planner", ADDRESS, "--format", form, "--out", path, *more], check=True, capture_output=True)
        return paths[1], load_plan(paths[2], model, topology(), training.SHARDERS)

    old, old_plan = plan("old", before)
    moves = os.path.join(folder, "moves.json")
    return old_plan, plan("new", after, "--previous", old, "--emit-moves", moves)[1], moves


LIVE_TABLES = (("a", 50, 16), ("b", 60, 16), ("c", 70, 16))


def moved_alive():
    """TorchRec's reshard takes what `reshard_delta` makes of the moves, and training goes on as if nothing had happened."""
    def make():
        return Model(ebc=bags(*LIVE_TABLES))

    last = dist.get_world_size() - 1
    before = {"a": ("table_wise", [0], {}), "b": ("table_wise", [last], {}), "c": ("table_wise", [0], {})}
    after = {"a": ("table_wise", [last], {}), "b": ("table_wise", [0], {}), "c": ("table_wise", [0], {})}
    whole, model = copies(make)
    reference = WholeTraining(whole, "adagrad")
    with tempfile.TemporaryDirectory() as folder:
        plan, new_plan, moves = moves_to(folder, model, before, after)
        first = ShardedTraining(model, plan, "adagrad", {key: value.clone() for key, value in whole.state_dict().items()})
        train_both(reference, first, range(3), TOLERANCE)
        delta = reshard_delta(moves, new_plan)
        with open(moves, encoding="utf-8") as file:
            text = file.read().replace('"reason": ""', '"reason": "is nailed down"')
        with open(moves, "w", encoding="utf-8") as file:
            file.write(text)
        try:
            reshard_delta(moves, new_plan)
        except PlannerError as error:
            assert "moves.json: " in str(error) and "a: is nailed down" in str(error) and "b: is nailed down" in str(error), error
        else:
            raise AssertionError("a table that cannot be moved is moved")
    assert {name: set(tables) for name, (_, tables) in delta.items()} == {"sparse.ebc": {"a", "b"}}, delta
    assert abs(delta["sparse.ebc"][0] - 110 * 16 * 4 / (1 << 20)) < 1e-9, delta
    first.reshard(delta, new_plan, "adagrad")
    check_placed(first)
    train_both(reference, first, range(3, 6), TOLERANCE)


def refused(part, address=None, pg=None, local_world_size=None, world_size=None, **arguments):
    """Every rank gets the PlannerError that rank 0 has, with `part` in its text; none waits for another."""
    model = Model(ebc=bags(("a", 50, 8)))
    shape = Topology(world_size or dist.get_world_size(), "cpu", local_world_size=local_world_size or int(os.environ["LOCAL_WORLD_SIZE"]))
    planner = NeuroShardPlanner(address or ADDRESS, shape, training.LOCAL_BATCH, retries=0, debug=False, stats=[], **arguments)
    try:
        planner.collective_plan(model, training.SHARDERS, pg)
    except PlannerError as error:
        assert part in str(error) and str(error).startswith("rank 0: ") == (dist.get_rank() != 0), error
    else:
        raise AssertionError(f"there is a plan, and no error with {part!r}")


def errors_reach_all_ranks():
    refused("beam_width", request={"search": {"beam_width": 1000}})
    refused("constraints for a", constraints={"a": ParameterConstraints(sharding_types=["tabel_wise"])})
    refused("ranks and the process group", world_size=2 * dist.get_world_size())
    refused("LOCAL_WORLD_SIZE is 2", local_world_size=1)
    with socket.socket() as listener:  # takes connections and answers nothing; in every process another one
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        silent = f"127.0.0.1:{listener.getsockname()[1]}"
        refused("planner at", silent, timeout_s=1)
        # Half of what the group waits, though the planner's own deadline is two minutes: the others do not give up first.
        refused("planner at", silent, pg=dist.new_group(timeout=datetime.timedelta(seconds=8)))
        fallback = EmbeddingShardingPlanner(topology=topology(), batch_size=training.LOCAL_BATCH, debug=False, stats=[])
        plan = planned(Model(ebc=bags(("a", 50, 8))), None, address=silent, fallback=fallback, timeout_s=1)
    plans = [None] * dist.get_world_size()
    dist.all_gather_object(plans, plan)
    assert all(each == plan for each in plans) and set(plan.plan["sparse.ebc"]) == {"a"}


CASES = {
    **{f"all_{kind}": one_type(kind) for kind in ALL_TYPES},
    **{f"mixed_with_{optimizer}": mixed(optimizer) for optimizer in training.OPTIMIZERS},
    "uneven_columns": uneven_columns,
    "blocks_on_one_rank": blocks_on_one_rank,
    "empty_row_shards": empty_row_shards,
    "pooled_by_memory": rows_by_memory(pooled_by_memory, a="row_wise", b="row_wise", c="table_wise", d="row_wise", e="row_wise"),
    "pooled_by_memory_with_adagrad": rows_by_memory(
        pooled_by_memory, "rowwise_adagrad", a="row_wise", b="row_wise", c="table_wise", d="row_wise", e="row_wise"
    ),
    "unpooled_by_memory": rows_by_memory(unpooled_by_memory, s="row_wise", t="row_wise"),
    "blocks_that_no_sharder_knows": blocks_that_no_sharder_knows,
    "weighted_features": weighted_features,
    "two_features_on_a_table": two_features_on_a_table,
    "pooled_by_mean": pooled_by_mean,
    "dlrm": dlrm,
    "half_precision": half_precision,
    "exchanged_in_half_precision": exchanged_in_half_precision,
    "rows_in_host_memory": rows_in_host_memory,
    "same_name_in_two_modules": same_name_in_two_modules,
    **{f"unpooled_{kind}": unpooled(kind) for kind in ("table_wise", "row_wise", "column_wise")},
    "errors_reach_all_ranks": errors_reach_all_ranks,
    "plan_changed_in_mid_training": plan_changed_in_mid_training,
    "moved_alive": moved_alive,
}


class Trained(unittest.TestCase):
    """A test for each case, all of which ran in one job."""

    world_size = local_world_size = 0

    @classmethod
    def setUpClass(cls):
        if not cls.world_size:
            raise unittest.SkipTest("base class")
        global ADDRESS
        with PlannerProcess(PLANNER) as planner:
            ADDRESS = planner.address
            cls.faults = run_on_ranks(CASES, cls.world_size, cls.local_world_size)


def add_cases(kind):
    for name in CASES:
        def test(self, name=name):
            if self.faults[name]:
                self.fail("\n".join(self.faults[name]))

        setattr(kind, f"test_{name}", test)
    return kind


@add_cases
class TwoRanksOnOneHost(Trained):
    world_size, local_world_size = 2, 2


@add_cases
class TwoHostsOfTwoRanks(Trained):
    world_size, local_world_size = 4, 2


del Trained  # has no tests of its own

if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    PLANNER, CLIENT = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1], verbosity=2)

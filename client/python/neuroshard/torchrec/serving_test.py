"""Quantised models: torchrec.inference's shard_quant_model takes the plans for CPUs and serves what the whole model gives, in the bytes that TorchRec counts.

  serving_test.py PLANNER CLIENT     paths of neuroshard-planner and neuroshard
"""

import copy
import logging
import tempfile
import unittest

import torch
from planner_case import FREE, Case, Model, Programs, main
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, EmbeddingCollection, EmbeddingConfig, KeyedJaggedTensor, PoolingType
from torchrec.distributed.global_settings import set_propogate_device
from torchrec.distributed.planner import EmbeddingShardingPlanner
from torchrec.distributed.planner.enumerators import EmbeddingEnumerator
from torchrec.distributed.planner.shard_estimators import EmbeddingPerfEstimator, EmbeddingStorageEstimator
from torchrec.distributed.planner.storage_reservations import InferenceStorageReservation
from torchrec.distributed.planner.types import ParameterConstraints, PlannerError, PlannerErrorType, Topology
from torchrec.distributed.quant_embedding import QuantEmbeddingCollectionSharder
from torchrec.distributed.quant_embeddingbag import QuantEmbeddingBagCollectionSharder
from torchrec.inference.modules import DEFAULT_SHARDERS, assign_weights_to_tbe, get_table_to_weights_from_tbe, quantize_inference_model, shard_quant_model
from torchrec.quant.embedding_modules import quant_prep_enable_quant_state_dict_split_scale_bias_for_types

from neuroshard.torchrec import NeuroShardPlanner, load_plan, save_plan
from neuroshard.torchrec.module_kinds import SERVABLE

RANKS = 2
MIB = 1 << 20
BITS = {torch.qint8: 8, torch.quint4x2: 4, torch.quint2x4: 2}
TYPES = SERVABLE["torchrec.quant.embedding_modules.EmbeddingBagCollection"]["cpu"]
OF_SEQUENCES = SERVABLE["torchrec.quant.embedding_modules.EmbeddingCollection"]["cpu"]
TABLES = {"a": (1000, 64), "b": (2001, 32), "c": (301, 64)}


def whole_model(pooling=PoolingType.SUM):
    """On the CPU, with weights, which are quantised below."""
    torch.manual_seed(5)
    pooled = [
        EmbeddingBagConfig(name=name, num_embeddings=rows, embedding_dim=cols, feature_names=[f"f_{name}"], pooling=pooling)
        for name, (rows, cols) in TABLES.items()
    ]
    unpooled = [EmbeddingConfig(name=name, num_embeddings=rows, embedding_dim=64, feature_names=[f"f_{name}"]) for name, rows in (("s", 700), ("t", 901))]
    return Model(ebc=EmbeddingBagCollection(tables=pooled), ec=EmbeddingCollection(tables=unpooled))


def quantised(dtype=torch.qint8, apart=True, **more):
    """As torchrec.inference quantises; `apart`: scale and bias beside the rows, which cuts need."""
    model = whole_model(**more)
    if apart:
        quant_prep_enable_quant_state_dict_split_scale_bias_for_types(model, [EmbeddingBagCollection, EmbeddingCollection])
    return quantize_inference_model(model, quantization_dtype=dtype)


def kinds(names, *types):
    return {name: ParameterConstraints(sharding_types=list(types)) for name in names}


def all_of(kind):
    """Every table of this type; unpooled ones, where TorchRec does not serve it, of any other."""
    return {**kinds("abc", kind), **kinds("st", *([kind] if kind in OF_SEQUENCES else OF_SEQUENCES))}


def cases():
    """(type of the rows, sharding type)."""
    return [(dtype, kind) for dtype in BITS for kind in TYPES if (dtype, kind) != (torch.quint2x4, "column_wise")]


def planner_of(kind, constraints=None, batch_size=64, ddr_cap=64 * MIB, **more):
    topology = Topology(world_size=RANKS, local_world_size=RANKS, compute_device="cpu", ddr_cap=ddr_cap)
    estimators = [EmbeddingPerfEstimator(topology, constraints, is_inference=True), EmbeddingStorageEstimator(topology, constraints, is_inference=True)]
    more = {"storage_reservation": FREE, "stats": [], "debug": False, **more}
    return kind(
        topology=topology, batch_size=batch_size, constraints=constraints, enumerator=EmbeddingEnumerator(topology, batch_size, constraints, estimators), **more
    )


def ours(constraints=None, **more):
    return planner_of(lambda **arguments: NeuroShardPlanner(Programs.address, **arguments), constraints, **more)


def served(model, plan):
    """The model on all ranks of the plan, which one process has, as shard_quant_model makes it."""
    sharded, _ = shard_quant_model(copy.deepcopy(model), world_size=RANKS, compute_device="cpu", sharding_device="cpu", sharding_plan=plan)
    return sharded


def load_weights(sharded, model):
    """Of what is quantised with scale and bias apart; buffers of FBGEMM's lookups ("tbes") are theirs."""
    sharded.load_state_dict({key: value for key, value in model.state_dict().items() if ".tbes." not in key}, strict=False)


def request_of(samples):
    """Features of both modules of a request: 0 to 6 ids a sample."""
    generator = torch.Generator().manual_seed(samples)

    def jagged(rows):
        lengths = torch.randint(0, 7, (len(rows) * samples,), generator=generator)
        counts = lengths.view(len(rows), samples).sum(1).tolist()
        values = torch.cat([torch.randint(0, each, (count,), generator=generator) for each, count in zip(rows.values(), counts)])
        return KeyedJaggedTensor(keys=[f"f_{name}" for name in rows], values=values, lengths=lengths)

    return jagged({name: rows for name, (rows, _) in TABLES.items()}), jagged({"s": 700, "t": 901})


def answers(model, samples):
    """Vectors by feature."""
    pooled, unpooled = request_of(samples)
    with torch.inference_mode():
        of_bags = model.ebc(pooled)
        found = {key: of_bags[key] for key in of_bags.keys()}
        found.update({key: each.values() for key, each in model.ec(unpooled).items()})
    return found


def shards(plan):
    return {
        (path, name): [(*each.shard_offsets, *each.shard_sizes, each.placement.rank()) for each in parameter.sharding_spec.shards]
        for path, tables in plan.plan.items()
        for name, parameter in tables.items()
    }


class ServingTest(Case):
    def setUp(self):
        set_propogate_device(True)  # else TorchRec looks up on CUDA devices, whatever the plan has

    def check_served(self, model, sharded, by_rows):
        """Requests of one sample to 4,096. Sums of row blocks are added up in another order."""
        for samples in (1, 17, 4096):
            expected, found = answers(model, samples), answers(sharded, samples)
            self.assertEqual(expected.keys(), found.keys())
            for key in expected:
                tolerance = {"rtol": 1e-5, "atol": 1e-6} if key in by_rows else {"rtol": 0, "atol": 0}
                torch.testing.assert_close(found[key], expected[key], **tolerance, msg=lambda text: f"{key}, {samples} samples: {text}")

    def test_every_type_serves_what_the_whole_model_gives(self):
        for dtype, kind in cases():
            with self.subTest(dtype=dtype, kind=kind):
                model = quantised(dtype)
                plan = ours(all_of(kind)).plan(model, DEFAULT_SHARDERS)
                self.assertEqual({each.sharding_type for each in plan.plan["ebc"].values()}, {kind})
                self.assertEqual({each.compute_kernel for tables in plan.plan.values() for each in tables.values()}, {"quant"})
                sharded = served(model, plan)
                load_weights(sharded, model)
                self.check_served(model, sharded, {f"f_{name}" for name in TABLES} if kind == "row_wise" else ())

    def test_types_that_the_planner_chooses_and_a_plan_from_a_file(self):
        model = quantised(torch.quint4x2)
        plan = ours(kinds("abc", "table_wise", "row_wise")).plan(model, DEFAULT_SHARDERS)
        with tempfile.TemporaryDirectory() as folder:
            save_plan(plan, f"{folder}/plan.json")
            loaded = load_plan(f"{folder}/plan.json", model, Topology(world_size=RANKS, local_world_size=RANKS, compute_device="cpu"), DEFAULT_SHARDERS)
        self.assertEqual(shards(loaded), shards(plan))
        sharded = served(model, loaded)
        load_weights(sharded, model)
        self.check_served(model, sharded, {f"f_{name}" for name in TABLES})

    def test_what_is_quantised_without_more_is_served_table_wise(self):
        model = quantised(apart=False)
        sharders = [QuantEmbeddingBagCollectionSharder(), QuantEmbeddingCollectionSharder()]
        plan = ours().plan(model, sharders)
        self.assertEqual({each.sharding_type for tables in plan.plan.values() for each in tables.values()}, {"table_wise"})
        sharded = served(model, plan)
        assign_weights_to_tbe(sharded, get_table_to_weights_from_tbe(model))
        self.check_served(model, sharded, ())
        for kind in ("row_wise", "column_wise"):
            with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, f"{kind} with quant on cpu", f"it is {kind} where its sharder's fused_params"):
                ours(kinds("abcst", kind)).plan(model, sharders)
            with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "quant_prep_enable_quant_state_dict_split_scale_bias_for_types"):
                ours(kinds("abcst", kind)).plan(model, DEFAULT_SHARDERS)

    def test_types_that_torchrec_does_not_serve_on_cpus_are_refused(self):
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "ec.s, ec.t", "TorchRec runs table_wise, row_wise of EmbeddingCollection"):
            ours(kinds("st", "column_wise")).plan(quantised(), DEFAULT_SHARDERS)
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "FBGEMM takes INT2 in multiples of 8 columns"):
            ours(kinds("a", "column_wise")).plan(quantised(torch.quint2x4), DEFAULT_SHARDERS)

    def test_means_are_not_cut_in_rows(self):
        model = quantised(pooling=PoolingType.MEAN)
        with self.refused(PlannerErrorType.STRICT_CONSTRAINTS, "TorchRec adds up the means of row blocks"):
            ours(kinds("abc", "row_wise")).plan(model, DEFAULT_SHARDERS)
        sharded = served(model, ours(kinds("abc", *TYPES)).plan(model, DEFAULT_SHARDERS))
        load_weights(sharded, model)
        self.check_served(model, sharded, ())

    def test_bytes_are_those_of_torchrecs_inference_estimator(self):
        def sizes(options):
            return {(each.path, each.name, *shard.size): shard.storage.ddr for each in options for shard in each.shards}

        for dtype, kind in cases():
            bits = BITS[dtype]
            with self.subTest(dtype=dtype, kind=kind):
                model, constraints = quantised(dtype), all_of(kind)
                planner = ours(constraints, storage_reservation=InferenceStorageReservation(percentage=0.0))
                theirs = planner_of(EmbeddingShardingPlanner, constraints, storage_reservation=InferenceStorageReservation(percentage=0.0))
                with self.assertLogs("neuroshard.torchrec.planner", "WARNING") as logs:
                    planner.plan(model, DEFAULT_SHARDERS)
                theirs.plan(model, DEFAULT_SHARDERS)
                options = planner.get_selected_options()
                estimated, expected = sizes(options), sizes(theirs.get_selected_options())
                alike = set(estimated) & set(expected)
                self.assertEqual({key: estimated[key] for key in alike}, {key: expected[key] for key in alike})
                self.assertTrue(kind == "column_wise" or alike == set(estimated))

                counted, weights, rows_held = [0] * RANKS, 0, 0
                for option in options:
                    rows, cols = option.tensor.shape
                    for shard in option.shards:
                        cells = shard.size[0] * shard.size[1]
                        self.assertEqual(shard.storage.ddr, -(-rows * (cols * bits // 8 + 4) * cells // (rows * cols)))
                        counted[shard.rank] += shard.storage.ddr
                        weights, rows_held = weights + cells, rows_held + shard.size[0]
                ranks = {each.rank: each.memory.total_bytes - each.memory.reserve_bytes for each in planner.response.cost.ranks}
                # The service has scale and bias in each shard, as FBGEMM does; TorchRec divides those of the row by the columns.
                self.assertEqual(sum(ranks.values()), weights * bits // 8 + 4 * rows_held)
                for rank in range(RANKS):
                    (self.assertGreater if kind == "column_wise" else self.assertEqual)(ranks[rank], counted[rank])
                told = "\n".join(logs.output)
                self.assertNotIn("counted as int8", told)
                self.assertNotIn("fused_params", told)
                self.assertNotIn("were not tried", told)

    def test_a_model_that_just_fits_is_planned(self):
        for dtype, bits in BITS.items():
            with self.subTest(dtype=dtype):
                model = quantised(dtype)
                planner = ours(all_of("table_wise"))
                planner.plan(model, DEFAULT_SHARDERS)
                ranks = [each.memory.total_bytes for each in planner.response.cost.ranks]
                self.assertEqual(sum(ranks), sum(rows * (cols * bits // 8 + 4) for rows, cols in (*TABLES.values(), (700, 64), (901, 64))))
                ours(all_of("table_wise"), ddr_cap=max(ranks)).plan(model, DEFAULT_SHARDERS)
                with self.assertRaises(PlannerError):
                    ours(all_of("table_wise"), ddr_cap=(sum(ranks) - 1) // RANKS).plan(model, DEFAULT_SHARDERS)

    def test_times_are_those_of_the_forward_pass(self):
        planner = ours(kinds("abc", *TYPES), request={"cost_model": {"name": "analytic"}})
        planner.plan(quantised(torch.quint4x2), DEFAULT_SHARDERS)
        self.assertEqual(planner.request.optimizer, "none")
        for rank in planner.response.cost.ranks:
            self.assertEqual((rank.backward_compute_ms, rank.backward_comm_ms), (0, 0))
            self.assertGreater(rank.forward_compute_ms, 0)


if __name__ == "__main__":
    logging.getLogger("neuroshard.torchrec").setLevel(logging.ERROR)
    main()

"""What bad samples, settings and groups get."""

import ipaddress
import unittest
from typing import Any, List

from neuroshard import v1
from neuroshard.errors import from_status
from neuroshard.worker.faults import Fault, Violations
from neuroshard.worker.rank_address import RankAddress, decode_first
from neuroshard.worker.samples import (
    Abilities,
    by_rank,
    check_casts,
    check_comm_sample_of_group,
    decode_comm_sample,
    decode_compute_sample,
    decode_group_spec,
    decode_settings,
)

CPU = Abilities(("fp32", "fp16"), ("sgd", "rowwise_adagrad"))
LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]


def compute_sample(**changes: Any) -> v1.ComputeSample:
    shard = v1.MeasuredShard(table="t", rows=100, cols=8, pooling_factor=2, reuse_histogram=[1.0] + [0.0] * 16)
    return v1.ComputeSample(**{"sample_id": "s", "shards": [shard], "batch_size": 64, "optimizer": "sgd", **changes})


def comm_sample(**changes: Any) -> v1.CommSample:
    return v1.CommSample(**{"sample_id": "s", "direction": "forward", "dim_sums": [8, 16], "batch_size": 64, **changes})


class Case(unittest.TestCase):
    def faults_of(self, call: Any, *arguments: Any) -> List[str]:
        with self.assertRaises(Fault) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.code, "INVALID_ARGUMENT")
        return [": ".join(violation) for violation in caught.exception.violations]


class ComputeSampleTest(Case):
    def test_defaults_are_filled_in(self) -> None:
        sample = compute_sample(optimizer="")
        sample.shards[0].cols = 12
        sample = decode_compute_sample(sample, CPU)
        self.assertEqual((sample.optimizer, sample.shards[0].weight_dtype, sample.shards[0].pooling_mode), ("sgd", "fp32", "sum"))

    def test_all_faults_are_named_at_once(self) -> None:
        sample = compute_sample(batch_size=0, optimizer="lion", sample_id="a\nb")
        sample.shards.add(rows=0, cols=10, pooling_factor=float("nan"), reuse_histogram=[0.5] * 17, weight_dtype="int4", pooling_mode="max", table="x" * 513)
        self.assertEqual(self.faults_of(decode_compute_sample, sample, CPU), [
            'sample_id: must not contain control characters, got "a?b"',
            "batch_size: must be at least 1, got 0",
            'optimizer: must be one of sgd, adagrad, rowwise_adagrad, adam, partial_rowwise_adam, lamb, lars_sgd, got "lion"',
            "shards[1].table: must be at most 512 bytes, got 513",
            "shards[1].rows: must be at least 1, got 0",
            "shards[1].cols: must be a multiple of 4 for FBGEMM, got 10",
            "shards[1].pooling_factor: must be a number from 0 to 1000000, got nan",
            "shards[1].reuse_histogram: must sum to 1 (within 0.001), got 8.5",
            'shards[1].weight_dtype: must be one of fp32, fp16, bf16, got "int4"',
            'shards[1].pooling_mode: must be one of sum, mean, none, got "max"',
        ])

    def test_what_fbgemm_lacks_on_the_device_is_refused(self) -> None:
        sample = compute_sample(optimizer="adam")
        sample.shards[0].weight_dtype = "bf16"
        sample.shards[0].compute_kernel, sample.shards[0].cache_load_factor = "fused_uvm_caching", 0.5
        self.assertEqual(self.faults_of(decode_compute_sample, sample, CPU), [
            "optimizer: must be one of sgd, rowwise_adagrad, which FBGEMM has on this device, got adam",
            "shards[0].weight_dtype: bf16 cannot be measured on this device",
            "shards[0].compute_kernel: this device measures fused, got fused_uvm_caching",
        ])

    def test_limits(self) -> None:
        self.assertEqual(self.faults_of(decode_compute_sample, compute_sample(shards=[]), CPU), ["shards: must have 1 to 4096 entries, got 0"])
        sample = compute_sample(batch_size=1 << 24)
        sample.shards[0].pooling_factor = 1e6
        sample.shards[0].rows, sample.shards[0].cols = 1 << 49, 65540
        self.assertEqual(self.faults_of(decode_compute_sample, sample, CPU), [
            "shards[0].rows: must be at most 281474976710656, got 562949953421312",
            "shards[0].cols: must be at most 65536, got 65540",
            "shards[0].pooling_factor: 1000000 ids for each of 16777216 samples are more than 2^40",
        ])

    def test_nothing_looked_up_needs_no_histogram(self) -> None:
        sample = compute_sample()
        sample.shards[0].pooling_factor = 0
        sample.shards[0].reuse_histogram[:] = [0.0] * 17
        decode_compute_sample(sample, CPU)
        sample.shards[0].reuse_histogram.append(0)
        self.assertEqual(self.faults_of(decode_compute_sample, sample, CPU), ["shards[0].reuse_histogram: must have 17 entries, got 18"])


class SettingsTest(Case):
    def test_defaults_and_a_maximum_alone(self) -> None:
        self.assertEqual(str(decode_settings(v1.MeasurementSettings())),
                         "warmup_iterations=3 min_iterations=5 max_iterations=50 target_relative_error=0.02 max_time_ms=2000 flush_cache=true")
        settings = decode_settings(v1.MeasurementSettings(max_iterations=2, warmup_iterations=0, flush_cache=False))
        self.assertEqual((settings.min_iterations, settings.max_iterations, settings.warmup_iterations, settings.flush_cache), (2, 2, 0, False))

    def test_faults(self) -> None:
        settings = v1.MeasurementSettings(warmup_iterations=1001, min_iterations=7, max_iterations=3, target_relative_error=1, max_time_ms=-1)
        self.assertEqual(self.faults_of(decode_settings, settings), [
            "warmup_iterations: must be at most 1000, got 1001",
            "min_iterations: must be at most max_iterations = 3, got 7",
            "target_relative_error: must be greater than 0 and less than 1, got 1",
            "max_time_ms: must be at least 1, got -1",
        ])


class CommSampleTest(Case):
    def test_defaults_are_filled_in(self) -> None:
        sample = decode_comm_sample(comm_sample(collective="all_gather", direction="", dim_sums=[8, 8]))
        self.assertEqual((sample.element_bytes, sample.direction, decode_comm_sample(comm_sample()).collective), (4, "forward", "all_to_all"))

    def test_faults(self) -> None:
        sample = comm_sample(collective="all_reduce", direction="up", start_offsets_ms=[0, 60001], batch_size=63, element_bytes=2, dim_sums=[8, -1])
        self.assertEqual(self.faults_of(decode_comm_sample, sample), [
            'direction: must be one of forward, backward, got "up"',
            "dim_sums[1]: must be at least 0, got -1",
            "dim_sums: must be the same on every rank for all_reduce, got 8, -1",
            "start_offsets_ms[1]: must be at most 60000, got 60001",
            "batch_size: must be a multiple of the 2 ranks, got 63",
            "element_bytes: must be 4 for all_reduce, which adds fp32 numbers, got 2",
        ])
        self.assertEqual(self.faults_of(decode_comm_sample, comm_sample(start_offsets_ms=[1.0])),
                         ["start_offsets_ms: must have none or as many entries as dim_sums, 2, got 1"])

    def test_a_cadence_without_barriers_has_no_start_offsets(self) -> None:
        self.assertEqual(decode_comm_sample(comm_sample(cadence="back_to_back")).cadence, "back_to_back")
        self.assertEqual(decode_comm_sample(comm_sample(cadence="barrier")), decode_comm_sample(comm_sample()))
        self.assertEqual(self.faults_of(decode_comm_sample, comm_sample(cadence="back_to_back", start_offsets_ms=[0, 1])),
                         ["start_offsets_ms: must be empty for cadence back_to_back, which has no barrier to count from"])
        self.assertEqual(self.faults_of(decode_comm_sample, comm_sample(cadence="stream")), ['cadence: must be one of barrier, back_to_back, got "stream"'])

    def test_casts_are_of_an_all_to_all_in_two_bytes(self) -> None:
        self.assertEqual(decode_comm_sample(comm_sample(wire_dtype="bf16")).element_bytes, 2)
        self.assertEqual(self.faults_of(decode_comm_sample, comm_sample(wire_dtype="fp16", element_bytes=4, collective="all_gather", dim_sums=[8, 8])), [
            "wire_dtype: goes with collective all_to_all alone, got all_gather",
            "element_bytes: must be absent or 2 for wire_dtype fp16, got 4",
        ])
        self.assertEqual(self.faults_of(decode_comm_sample, comm_sample(wire_dtype="int8")), ['wire_dtype: must be one of fp32, fp16, bf16, got "int8"'])
        self.assertEqual(self.faults_of(check_casts, comm_sample(wire_dtype="fp16"), ["torch-nccl"]),
                         ["wire_dtype: fp16 is measured by torch-gloo alone here, and a rank has torch-nccl"])

    def test_what_only_the_group_can_tell(self) -> None:
        self.assertEqual(self.faults_of(check_comm_sample_of_group, comm_sample(start_offsets_ms=[5, 1005]), 4, 1000), [
            "dim_sums: must have one entry for each of the group's 4 ranks, got 2",
            "start_offsets_ms[1]: must be less than the group's timeout of 1000 ms after the first, got 1000 ms",
        ])


class GroupTest(Case):
    def test_faults_of_a_spec(self) -> None:
        request = v1.OpenCommGroupRequest(group_id="", world_size=2, timeout_ms=99, idle_timeout_ms=600_001)
        for rank, device in ((0, 0), (0, 0), (2, 3)):
            request.local_ranks.add(rank=rank, device=device)
        self.assertEqual(self.faults_of(decode_group_spec, request, 2), [
            "group_id: must have 1 to 128 bytes, got 0",
            "local_ranks[1].rank: rank 0 appears twice",
            "local_ranks[1].device: device 0 appears twice; each rank needs its own",
            "local_ranks[2].rank: must be in [0, 2), got 2",
            "local_ranks[2].device: must be in [0, 2), got 3",
            "timeout_ms: must be in [100, 600000], got 99",
            "idle_timeout_ms: must be in [100, 600000], got 600001",
        ])

    def test_what_is_far_too_much_is_not_looked_at(self) -> None:
        request = v1.OpenCommGroupRequest(group_id="g", world_size=1, local_ranks=[v1.LocalRank()] * 200_000)
        faults = self.faults_of(decode_group_spec, request, 1)
        self.assertEqual((faults[0], len(faults)), ("local_ranks: must have 1 to 1024 entries, got 200000", 100))
        self.assertEqual(self.faults_of(decode_compute_sample, compute_sample(optimizer="x" * 1_000_000), CPU),
                         [f'optimizer: must be one of sgd, adagrad, rowwise_adagrad, adam, partial_rowwise_adam, lamb, lars_sgd, got "{"x" * 60}..."'])

    def test_every_rank_has_one_address(self) -> None:
        addresses = [v1.RankAddress(rank=rank) for rank in (1, 1, 5, 0)]
        self.assertEqual(self.faults_of(by_rank, addresses, 3), [
            "addresses: must have one entry for each of 3 ranks, got 4",
            "addresses[1].rank: rank 1 has an address already",
            "addresses[2].rank: must be in [0, 3), got 5",
            "addresses: none of rank 0",
            "addresses: none of rank 2",
        ])

    def test_addresses_are_not_trusted(self) -> None:
        def first(host: str, port: int = 4000) -> List[bytes]:
            return [RankAddress("torch-gloo", host, port, "t").encode(), RankAddress("torch-gloo", "127.0.0.1", 0, "").encode()]

        self.assertEqual(decode_first(first("127.0.0.1"), "torch-gloo", LOOPBACK).port, 4000)
        outside = "addresses[0].address: {} is outside of the networks that this worker may dial: 127.0.0.0/8"
        for host in ("10.0.0.1", "localhost", "169.254.169.254", "::1", "127.0.0.1.example.org"):
            self.assertEqual(self.faults_of(decode_first, first(host), "torch-gloo", LOOPBACK), [outside.format(host)])
        self.assertEqual(self.faults_of(decode_first, first("127.0.0.1", 70000), "torch-gloo", LOOPBACK), ["addresses[0].address: port 70000"])
        for foreign in (b"\x00\xff" * 40, b"", b"x" * 100_000, "torch-gloo 127.0.0.1 ² t".encode()):
            self.assertIn("addresses[1].address: is no address of a rank with torch-gloo",
                          self.faults_of(decode_first, [first("127.0.0.1")[0], foreign], "torch-gloo", LOOPBACK)[0])
        self.assertEqual(self.faults_of(decode_first, first("127.0.0.1"), "torch-nccl", LOOPBACK),
                         ["addresses[0].address: is a rank with torch-gloo, this one has torch-nccl"])


class FaultTest(unittest.TestCase):
    def test_violations_reach_the_client(self) -> None:
        fault = Fault.invalid("rows", "must be at least 1").below("sample.shards[3].")
        error = from_status(fault.status_code, str(fault), fault.trailers(), "w")
        self.assertEqual([str(violation) for violation in error.violations], ["sample.shards[3].rows: must be at least 1"])

    def test_many_violations_fit_into_trailers(self) -> None:
        violations = Violations()
        for i in range(5000):
            violations.add(f"shards[{i}].table", "ü" * 700)
        fault = violations.fault()
        self.assertIn("and 4900 more", fault.message)
        encoded = sum(3 * len(str(fault).encode()) + 4 * len(value) / 3 for _, value in fault.trailers())
        self.assertLess(encoded, 8192)
        self.assertEqual(from_status(fault.status_code, str(fault), fault.trailers(), "w").violations[-1].field, "...")


if __name__ == "__main__":
    unittest.main()

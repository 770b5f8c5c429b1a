"""What a cost model learns from records of a trainer's steps: rates of steps (`steps` of model.yaml, server/networks/README.md).

    python -m neuroshard.torchrec.step_records RECORDS.jsonl --planner HOST:PORT --model configs/models/NAME/VERSION --out ROOT/NAME/VERSION

writes a new version of a model with the rates that its own forecasts of the records lack; the planner serves the old one. Rates that the model has already are
replaced: a planner of this package's own then forecasts without them. Of a model with rates, without --out, records that are newer than the rates are compared
with the planner's forecasts, and drift.yaml beside model.yaml says how far the model has drifted.

    python -m neuroshard.torchrec.step_records RECORDS.jsonl --groups [--planner HOST:PORT [--model ROOT/NAME/VERSION]]

shows which group of the last record takes which part of a step, beside forecasts by the model that the record's request names, or that one.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import functools
import pathlib
import re
import statistics
import sys
import tempfile
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, TypeVar

from torchrec.distributed.planner.constants import CROSS_NODE_BANDWIDTH, HBM_MEM_BW, INTRA_NODE_BANDWIDTH

from neuroshard import PlannerClient, PlannerError, v1
from neuroshard.checkpoints import model_directory
from neuroshard.torchrec.non_negative_fit import fit_non_negative
from neuroshard.torchrec.plan_request import MILLISECONDS
from neuroshard.torchrec.step_drift import LEARNED_AT, RATES, StepDrift, reason_against, utc_text, write_drift
from neuroshard.torchrec.step_groups import Price, group_table, lines_by_type, ratios_of_groups
from neuroshard.torchrec.step_record import KINDS, StepRecord, read_records
from neuroshard_programs import NotStarted
from neuroshard_programs.embedded import EmbeddedPlanner

_Found = TypeVar("_Found")
LEAST_RECORDS = 5  # of a number of ranks
_LEAST_SCALE = 1e-3  # 0 would make what has no price free
_FITS = 4
_MOST_SHARE = 100.0
# The formula of ids is scaled as it is without a request's own figures (BoundCostModel in server/cost/cost_model.cc).
_BANDWIDTHS = v1.Bandwidths(
    device_memory_bytes_per_s=HBM_MEM_BW * MILLISECONDS,
    intra_host_bytes_per_s=INTRA_NODE_BANDWIDTH * MILLISECONDS,
    inter_host_bytes_per_s=CROSS_NODE_BANDWIDTH * MILLISECONDS,
)


@dataclasses.dataclass
class StepRates:
    """Rates at one number of ranks, as server/cost/measured_rates.h has them."""

    num_ranks: int
    compute_scale: float
    comm_scale: float
    exchange_ms: List[float]  # by KINDS
    forward_share: float
    input_dist_scale: float
    input_dist_ms: List[float]
    pipelined_share: float = 0.0

    def rank_ms(self, forecast: StepForecast, rank: int) -> float:
        return self.compute_scale * forecast.compute_ms[rank] + self.comm_scale * forecast.comm_ms[rank] + _dot(self.exchange_ms, forecast.exchanges)

    def slowest_rank(self, forecast: StepForecast) -> int:
        return max(range(self.num_ranks), key=lambda rank: self.rank_ms(forecast, rank))

    def step_ms(self, forecast: StepForecast) -> float:
        """Without the distribution of ids, but for what a pipeline does not hide of it."""
        hidden = self.pipelined_share * _dot(self.input_dist_ms, forecast.exchanges) if forecast.pipelined else 0.0
        return self.rank_ms(forecast, self.slowest_rank(forecast)) + hidden


@dataclasses.dataclass
class StepForecast:
    """By a model without rates of steps."""

    compute_ms: List[float]  # by rank
    comm_ms: List[float]
    input_dist_ms: float  # of the slowest rank
    exchanges: List[int]  # StepRecord.exchanges
    pipelined: bool = False


def _dot(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(value * weight for value, weight in zip(values, weights))


def forecast_of(record: StepRecord, cost: v1.PlanCost) -> StepForecast:
    return StepForecast([rank.compute_ms for rank in cost.ranks], [rank.forward_comm_ms + rank.backward_comm_ms for rank in cost.ranks],
                        max(rank.input_dist_ms for rank in cost.ranks), record.exchanges(), record.pipelined)


def fit_rates(records: Sequence[StepRecord], forecasts: Sequence[StepForecast]) -> StepRates:
    """Of records at one number of ranks: from those without a pipeline, or from all where there are few of them; then what a pipeline does not hide."""
    pairs = list(zip(records, forecasts))
    plain = [pair for pair in pairs if not pair[1].pipelined]
    rates = _fit_steps(plain if len(plain) >= LEAST_RECORDS else pairs)
    beside = [(record.step_ms - rates.step_ms(each), _dot(rates.input_dist_ms, each.exchanges), record.step_ms) for record, each in pairs if each.pipelined]
    weight = sum((ids / step) ** 2 for _, ids, step in beside)
    share = sum(left * ids / step**2 for left, ids, step in beside) / weight if weight > 0 else 0.0
    return dataclasses.replace(rates, pipelined_share=min(max(0.0, share), _MOST_SHARE))


def _fit_steps(pairs: Sequence[Tuple[StepRecord, StepForecast]]) -> StepRates:
    ranks = [rank for record, _ in pairs for rank in record.ranks]
    forward, backward = (sum(rank[stage] - rank[f"lookup_{stage}"] for rank in ranks) for stage in ("forward", "backward"))
    ids = [(record.input_dist_ms, each) for record, each in pairs if record.input_dist_ms > 0]
    rows = [[each.input_dist_ms, *each.exchanges[:2]] for _, each in ids]
    scale, *input_dist = fit_non_negative(rows, [ms for ms, _ in ids]) if ids else [1.0, 0.0, 0.0]
    rates = StepRates(len(pairs[0][0].ranks), 1.0, 1.0, [0.0, 0.0, 0.0], forward / max(1e-9, forward + backward), max(scale, _LEAST_SCALE), [*input_dist, 0.0])
    # Which rank of a plan is the slowest depends on the rates.
    for _ in range(_FITS):
        slowest = [rates.slowest_rank(each) for _, each in pairs]
        rows = [[each.compute_ms[rank], each.comm_ms[rank], *each.exchanges] for (_, each), rank in zip(pairs, slowest)]
        compute, comm, *exchange = fit_non_negative(rows, [record.step_ms for record, _ in pairs])
        rates = dataclasses.replace(rates, compute_scale=max(compute, _LEAST_SCALE), comm_scale=max(comm, _LEAST_SCALE), exchange_ms=exchange)
    return rates


def errors_left_out(records: Sequence[StepRecord], forecasts: Sequence[StepForecast]) -> List[float]:
    """Relative errors of step_ms of each record, by rates that were fitted to the others."""
    errors = []
    for i, record in enumerate(records):
        others = [j for j in range(len(records)) if j != i]
        rates = fit_rates([records[j] for j in others], [forecasts[j] for j in others])
        errors.append(rates.step_ms(forecasts[i]) / record.step_ms - 1)
    return errors


def section_of(rates: Sequence[StepRates]) -> str:
    """The section `steps` of model.yaml."""
    def times(values: Sequence[float]) -> str:
        return "{" + ", ".join(f"{kind}: {ms:.6g}" for kind, ms in zip(KINDS, values)) + "}"

    lines = ["steps:", "  rates:"]
    for of in sorted(rates, key=lambda each: each.num_ranks):
        lines += [
            f"    - num_ranks: {of.num_ranks}",
            f"      compute_scale: {of.compute_scale:.6g}",
            f"      comm_scale: {of.comm_scale:.6g}",
            f"      exchange_ms: {times(of.exchange_ms)}",
            f"      forward_share: {of.forward_share:.6g}",
            f"      input_dist_scale: {of.input_dist_scale:.6g}",
            f"      input_dist_ms: {times(of.input_dist_ms)}",
            f"      pipelined_share: {of.pipelined_share:.6g}",
        ]
    return "\n".join(lines) + "\n"


def write_model(old: pathlib.Path, new: str, section: str, errors: Sequence[str]) -> None:
    """A copy of the version `old` with the section in place of its own rates of steps, as the directory `new` (ROOT/NAME/VERSION), which appears complete
    or not at all. Its report also has the lines `errors`.

    ModelDirectoryError where `new` is there or no such place.
    """
    _, name, version = model_directory.parse_place(new)
    manifest = re.sub(rf"^  {LEARNED_AT}: .*\n", "", RATES.sub("", (old / "model.yaml").read_text(encoding="utf-8")), flags=re.MULTILINE)
    lines = [f"version: {version}" if line.startswith("version: ") else f"name: {name}" if line.startswith("name: ") else line for line in manifest.split("\n")]
    files = {file.name: file.read_bytes() for file in old.iterdir() if file.is_file() and file.name not in ("files.sha256", "drift.yaml", "model.yaml")}
    at = next((i for i, line in enumerate(lines) if line in ("provenance:", "metrics:")), len(lines) - 1)  # where the planner's own writer has it
    learned = ["provenance:", f"  {LEARNED_AT}: {utc_text(1e3 * time.time())}"]
    files["model.yaml"] = "\n".join([*lines[:at], section.rstrip("\n"), *learned, *lines[at + (lines[at] == "provenance:"):]]).encode()
    _, _, measured = files.get("REPORT.md", b"").partition(b"\n")  # after the title
    measured = re.sub(rb"\A\n## Steps of a trainer\n(- .*\n)*", b"", measured)
    files["REPORT.md"] = f"# {name} version {version}\n\n## Steps of a trainer\n".encode() + "".join(f"- {line}\n" for line in errors).encode() + measured
    files["files.sha256"] = model_directory.file_list(files)
    model_directory.publish(new, files)


def evaluate(record: StepRecord, client: PlannerClient, cost_model: Mapping[str, Any]) -> StepForecast:
    """By a model without rates of steps. ValueError as of `_price`."""
    request = v1.ShardPlanRequest()
    request.CopyFrom(record.request)
    request.pipeline_type = "none"  # so that the distribution of ids has a price
    for field in ("nic_bytes_per_s", "ranks_per_nic"):
        request.topology.bandwidths.ClearField(field)
    request.topology.bandwidths.MergeFrom(_BANDWIDTHS)
    return forecast_of(record, _price(request, record.plan, client, cost_model))


def measured_by_forecast(record: StepRecord, client: PlannerClient, cost_model: Mapping[str, Any]) -> float:
    """The embedding part of a step as it was recorded / as the model forecasts it for the record's own request. ValueError as of `_price`."""
    return record.embedding_ms / _price(record.request, record.plan, client, cost_model).embedding_cost_ms


def _price(request: v1.ShardPlanRequest, plan: v1.Plan, client: PlannerClient, cost_model: Optional[Mapping[str, Any]]) -> v1.PlanCost:
    """By the request's own model where there is no other. ValueError where the plan has no price, such as one of other tables than the request's."""
    of_model = v1.ShardPlanRequest()
    of_model.CopyFrom(request)
    if cost_model is not None:
        of_model.cost_model.CopyFrom(v1.CostModelRef(**cost_model))
    answer = client.evaluate(of_model, plan)
    if not answer.HasField("cost"):
        raise ValueError("; ".join(f"{violation.field}: {violation.description}" for violation in answer.violations))
    return answer.cost


def evaluate_all(path: pathlib.Path, records: Mapping[int, StepRecord], of: Callable[[StepRecord], _Found]) -> List[_Found]:
    """`of` each record, by lines of `path`. ValueError names every line whose plan has no price."""
    found, faults = [], []
    for number, record in records.items():
        try:
            found.append(of(record))
        except ValueError as fault:
            faults.append(f"{path}, line {number}: {fault}")
    if faults:
        raise ValueError("\n".join(faults))
    return found


def learn_rates(records: Sequence[StepRecord], forecasts: Sequence[StepForecast]) -> Tuple[List[StepRates], List[str]]:
    """Rates at each number of ranks that has records, and in words how far forecasts are off. ValueError names every number of ranks with too few records."""
    by_ranks: Dict[int, List[Tuple[StepRecord, StepForecast]]] = {}
    for record, forecast in zip(records, forecasts):
        by_ranks.setdefault(len(record.ranks), []).append((record, forecast))
    few = [f"{len(pairs)} records at {ranks} ranks" for ranks, pairs in sorted(by_ranks.items()) if len(pairs) < LEAST_RECORDS]
    if few:
        raise ValueError(f"{', '.join(few)} are too few to learn from, at least {LEAST_RECORDS} are needed")
    rates, errors = [], []
    for ranks, pairs in sorted(by_ranks.items()):
        of_ranks, forecasts_of_ranks = [list(part) for part in zip(*pairs)]
        before = [abs(max(map(sum, zip(each.compute_ms, each.comm_ms))) / record.step_ms - 1) for record, each in pairs]
        after = [abs(error) for error in errors_left_out(of_ranks, forecasts_of_ranks)]
        errors.append(f"{ranks} ranks, {len(pairs)} records: forecasts of steps are off by {statistics.mean(before):.1%} without rates of steps, "
                      f"by {statistics.mean(after):.1%} with those of the other records")
        rates.append(fit_rates(of_ranks, forecasts_of_ranks))
    return rates, errors


@contextlib.contextmanager
def planner_without_rates(model: pathlib.Path, name: str, version: int) -> Iterator[PlannerClient]:
    """Of a planner of this package's own, which serves a copy of the model without its rates of steps: they cannot be divided out of forecasts, since how
    long collectives wait follows from scaled compute. NotStarted where there is no such planner."""
    with tempfile.TemporaryDirectory() as root:
        write_model(model, f"{root}/models/{name}/{version}", "", [])
        planner = EmbeddedPlanner(f"{root}/models", root)
        planner.ensure()
        with PlannerClient(planner.address) as client:
            yield client


def lines_of_groups(path: pathlib.Path, records: Mapping[int, StepRecord], price: Price) -> List[str]:
    """How far forecasts of the records' groups are off, by sharding type; none where no record has groups."""
    return lines_by_type([group for found in evaluate_all(path, records, lambda record: ratios_of_groups(record, price)) for group in found])


def measure_drift(path: pathlib.Path, records: Mapping[int, StepRecord], model: pathlib.Path, of: Callable[[StepRecord], float], price: Price) -> str:
    """Writes the stage of steps into drift.yaml of the model, and says what it is, and which groups have drifted. `of`: measured / predicted of a record."""
    manifest = (model / "model.yaml").read_text(encoding="utf-8")
    reasons = {number: reason_against(record, manifest) for number, record in records.items()}
    left_out = collections.Counter(reason for reason in reasons.values() if reason)
    told = f"left out: {', '.join(f'{count} {reason}' for reason, count in sorted(left_out.items()))}" if left_out else ""
    newer = {number: record for number, record in records.items() if not reasons[number]}
    if not newer:
        raise ValueError(f"{path}: no record tells whether {model} has drifted; {told or 'there is none'}")
    drift = StepDrift.of(evaluate_all(path, newer, of), [record.recorded_at_unix_ms for record in newer.values()])
    write_drift(model, drift)
    return "\n".join(filter(None, [str(drift), *lines_of_groups(path, newer, price), told, f"written: {model / 'drift.yaml'}, by which planners judge"]))


def main(arguments: Optional[List[str]] = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m neuroshard.torchrec.step_records", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", type=pathlib.Path, help="a file of records, one a line (StepRecorder.record)")
    parser.add_argument("--planner", metavar="HOST:PORT", help="serves the model; not asked where rates of steps are replaced")
    parser.add_argument("--model", type=pathlib.Path, metavar="ROOT/NAME/VERSION")
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--out", metavar="ROOT/NAME/VERSION", help="the version to write; none: only how far the model's forecasts are off, or have drifted")
    one.add_argument("--groups", action="store_true", help="which group of the last record takes which part of a step; --planner: beside its forecasts")
    options = parser.parse_args(arguments)
    try:
        records = dict(enumerate(read_records(options.records), 1))
        if options.model is None and not options.groups:
            raise ValueError("--model is missing: the version to learn from or to compare with")
        _, name, version = model_directory.parse_place(str(options.model)) if options.model else (None, None, None)
        cost_model = {"name": name, "version": version} if options.model else None
        if options.groups:
            if not records:
                raise ValueError(f"{options.records}: has no record")
            with PlannerClient(options.planner) if options.planner else contextlib.nullcontext() as client:
                print(group_table(records[len(records)], functools.partial(_price, client=client, cost_model=cost_model) if client else None))
            return 0
        has_rates = RATES.search((options.model / "model.yaml").read_text(encoding="utf-8")) is not None
        if not options.planner and not (has_rates and options.out):
            raise ValueError("--planner is missing: the planner that serves the model")
        if has_rates and not options.out:
            with PlannerClient(options.planner) as client:
                price = functools.partial(_price, client=client, cost_model=cost_model)
                print(measure_drift(options.records, records, options.model, lambda record: measured_by_forecast(record, client, cost_model), price))
            return 0
        with planner_without_rates(options.model, name, version) if has_rates else PlannerClient(options.planner) as client:
            forecasts = evaluate_all(options.records, records, lambda record: evaluate(record, client, cost_model))
            of_groups = lines_of_groups(options.records, records, functools.partial(_price, client=client, cost_model=cost_model))
        rates, errors = learn_rates(list(records.values()), forecasts)
        print("\n".join([*errors, *of_groups]))
        if options.out:
            write_model(options.model, options.out, section_of(rates), errors)
            print(f"written: {options.out}")
    except (OSError, ValueError, model_directory.ModelDirectoryError, PlannerError, NotStarted) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

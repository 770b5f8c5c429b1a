"""What the planner wants to know of features, from a sample of batches."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Sequence

import torch
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from neuroshard.dataset.table_statistics import MAX_DISTINCT, CountOverflow, DistinctCounts


class FeatureStatistics:
    """Pooling factors and reuse of ids by feature, as `statistics` found them. Holds every distinct id of every feature: 16 bytes each."""

    def __init__(self) -> None:
        self._ids: Dict[str, int] = {}
        self._samples: Dict[str, int] = {}
        self._counts: Dict[str, DistinctCounts] = {}
        self.has_weights = False  # whether the ids of any batch carry weights, which are then exchanged with all of them

    @property
    def features(self) -> List[str]:
        return list(self._counts)

    @property
    def samples(self) -> int:
        """Most samples that a feature has; they differ where features have batch sizes of their own."""
        return max(self._samples.values(), default=0)

    def add(self, *parts: KeyedJaggedTensor) -> None:
        """One batch; several parts, with features of their own, where modules have their own tensors."""
        features = [feature for part in parts for feature in part.keys()]
        if self._counts and features != self.features:
            raise ValueError(
                f"statistics: a batch has the features {features}, those before had {self.features}; where modules have KeyedJaggedTensors of their own,"
                " a batch is a tuple of all of them"
            )
        for part in parts:
            ids = part.values().detach().cpu().to(torch.int64).numpy()
            self.has_weights = self.has_weights or part.weights_or_none() is not None
            at = 0
            for feature, length, samples in zip(part.keys(), part.length_per_key(), part.stride_per_key()):
                try:
                    self._counts.setdefault(feature, DistinctCounts(MAX_DISTINCT)).add(ids[at : at + length])
                except CountOverflow:
                    raise ValueError(f"statistics: feature {feature!r} has more than {MAX_DISTINCT} distinct ids; give fewer batches") from None
                self._ids[feature] = self._ids.get(feature, 0) + length
                self._samples[feature] = self._samples.get(feature, 0) + samples
                at += length

    def _known(self, feature: str) -> str:
        if not self._samples.get(feature):
            raise ValueError(f"statistics: no sample has the feature {feature!r}; there are {', '.join(self.features)}")
        return feature

    def pooling_factor(self, feature: str) -> float:
        """Mean ids a sample. ValueError for a feature that no batch had."""
        return self._ids[self._known(feature)] / self._samples[feature]

    def largest_id(self, feature: str) -> int:
        """-1: it has no ids. ValueError for a feature that no batch had."""
        return int(self._counts[self._known(feature)].ids.max(initial=-1))

    def reuse_histogram(self, features: Sequence[str]) -> List[float]:
        """The 17 bins (Table.reuse_histogram) of a table that `features` share: shares of its distinct ids by how often they occur in the sample.

        ValueError for a feature that no batch had.
        """
        together = DistinctCounts(MAX_DISTINCT * len(features))
        for feature in features:
            found = self._counts[self._known(feature)]
            together.add_counts(found.ids, found.counts)
        bins = together.bins()
        total = int(bins.sum())
        return [int(each) / total if total else 0.0 for each in bins]

    def __repr__(self) -> str:
        rows = [f"{feature}: {self.pooling_factor(feature):.2f} ids a sample" for feature in self.features]
        return f"FeatureStatistics({self.samples} samples; {'; '.join(rows)})"


def statistics(batches: Iterable[Any]) -> FeatureStatistics:
    """Statistics of a sample: the KeyedJaggedTensors of one global batch (all ranks' batches of a step, or as many batches of one rank).

    batches: KeyedJaggedTensors with the same keys, objects that have one as `sparse_features`, such as torchrec.datasets.utils.Batch, or tuples of several of
    these, where modules have their own.

    How often an id occurs depends on how many samples there are: a sample of another size than the global batch gives other bins, though the same
    pooling factors. ValueError where there is no sample, batches differ in their features, or a feature has more than 8 million distinct ids.
    """
    if isinstance(batches, KeyedJaggedTensor) or not isinstance(batches, Iterable):
        raise TypeError(f"batches: must be a list of KeyedJaggedTensors, got one {type(batches).__name__}")
    found = FeatureStatistics()
    for index, batch in enumerate(batches):
        several = isinstance(batch, (tuple, list)) and not hasattr(batch, "sparse_features")
        parts = [getattr(each, "sparse_features", each) for each in (batch if several else [batch])]
        for part in parts:
            if not isinstance(part, KeyedJaggedTensor):
                raise TypeError(f"batches[{index}]: must be a KeyedJaggedTensor, have one as sparse_features, or be a tuple of these, got {type(part).__name__}")
        if len(parts) > 1 and len({key for part in parts for key in part.keys()}) < sum(len(part.keys()) for part in parts):
            raise ValueError(f"batches[{index}]: its KeyedJaggedTensors have a feature in common: {[part.keys() for part in parts]}")
        found.add(*parts)
    if found.samples == 0:
        raise ValueError("statistics: there are no samples")
    return found

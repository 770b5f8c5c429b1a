"""Plans for trainers other than TorchRec: what `neuroshard plan --format hugectr` and `--format distributed_embeddings` wrote, as those projects take it."""

from neuroshard.formats.distributed_embeddings import DistributedEmbeddingsPlan, load_distributed_embeddings
from neuroshard.formats.hugectr import HugeCtrPlan, load_hugectr
from neuroshard.formats.plan_file import PlanFileError

__all__ = ["DistributedEmbeddingsPlan", "HugeCtrPlan", "PlanFileError", "load_distributed_embeddings", "load_hugectr"]

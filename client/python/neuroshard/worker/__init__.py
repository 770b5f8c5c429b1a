"""A worker in the trainer's own environment: the RPCs of neuroshard-worker, answered with FBGEMM and torch.distributed.

    python -m neuroshard.worker --listen 127.0.0.1:0

README.md in this folder says what is measured and how.
"""

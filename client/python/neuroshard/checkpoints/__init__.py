"""Checkpoints of the original NeuroShard as cost models of the planner (neuroshard-convert-checkpoints)."""

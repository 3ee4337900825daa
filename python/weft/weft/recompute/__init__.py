"""What a training step computes again rather than keeps: chosen by the library's planner, done by torch's checkpoint."""

from weft.recompute.auto import CheckpointReport, auto_checkpoint

__all__ = ["CheckpointReport", "auto_checkpoint"]

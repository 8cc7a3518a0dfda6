"""Options of ``%%gpu_train``."""

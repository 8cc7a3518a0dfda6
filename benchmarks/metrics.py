"""The metrics that a benchmark's document has on every machine: programs read them."""

from __future__ import annotations

from .report import Report

METRICS = {
    "start": (
        "first_statement",
        "kept_first_statement",
        "gang4_first_statement",
        "trivial_cell",
        "actor_first_statement",
        "actor_without_torch_first_statement",
        "standing_actor_first_statement",
        "ray_train_first_statement",
        "first_cell_of_a_kernel",
        "first_cell_ever",
        "load_ext",
    ),
    "release": ("lease_gone", "lease_gone_1gib"),
    "stream": ("lines", "displays"),
    "transfer": (
        "in_first_1gib",
        "in_again_1gib",
        "out_first_use_1gib",
        "torch_load_mmap",
        "names_10000_dump",
        "objects_1e6_dump",
        "gpu_to_gpu_kernel_growth",
        "lease_gone_throttled_1gib",
        "list_10000_runs",
    ),
    "gang": ("all_ranks_first_statement", "last_statement_to_lease_gone", "launch_busy", "actor_busy"),
    "simulate": (
        "philly_400_vs_fifo",
        "philly_400_longest_vs_fifo",
        "philly_400_gangs_vs_fifo",
        "philly_400_p99_vs_fifo",
        "philly_400_replay",
        "philly_400_estimate_off_by",
        "philly_400_restartable_vs_fifo",
        "philly_400_restartable_work_lost",
        "philly_400_restartable_stepped_aside",
        "msitp04_600_vs_fifo",
        "msitp04_600_longest_vs_fifo",
        "msitp04_600_gangs_vs_fifo",
        "msitp04_600_p99_vs_fifo",
        "msitp04_600_replay",
        "msitp04_600_estimate_off_by",
        "jobs_100k_replay",
        "notebook_held_over_used",
        "notebook_added_wait",
        "notebook_reserved_over_used",
        "notebook_reserved_added_wait",
        "halves_wait",
        "whole_gpus_wait",
    ),
    "sweep": (
        "trial_overhead",
        "ray_tune_overhead",
        "sweep_busy",
        "sweep_memory",
        "deadline_beside_sweep",
        "half_first_statement",
    ),
    "clusters": (
        "pool_node_hours",
        "pool_added_wait",
        "interactive_node_hours",
        "interactive_added_wait",
        "idle_return_chosen",
        "slurm_first_cell",
        "slurm_next_cell",
        "srun",
        "cold_worker",
        "idle_return_end",
    ),
    "preemption": (
        "notice_to_next",
        "notice_to_next_100mib",
        "rounds_repeated",
        "rounds_repeated_100mib",
        "training_stepped_aside",
        "training_differs",
        "saving_overhead",
        "saver_cpu",
        "saving_overhead_10s",
        "saver_cpu_10s",
        "killed_rounds_repeated",
        "killed_work_lost",
        "killed_until_back",
    ),
    "broker": (
        "kueue_wall_s",
        "kueue_admission_small_s",
        "kueue_admission_medium_s",
        "kueue_admission_large_s",
        "kueue_use",
        "gateway_cpu_ms",
        "pass_10k",
        "bytes_per_queued_run",
        "submit_to_decision",
        "handoff",
        "ray_handoff",
    ),
    "team": (
        "start_0ms",
        "start_1ms",
        "start_20ms",
        "round_trips",
        "cells_per_s",
        "start_at_60_percent",
        "lost_cells",
        "idle_kernels_cpu",
        "idle_kernel_memory",
        "status_10k",
        "gateway_memory_10k",
    ),
    "server": ("cpu", "loop_blocked", "status", "policy_pass", "acted_after_limit"),
    "sidebar": (
        "bundle_gzipped",
        "crowd_main_thread",
        "crowd_scripts",
        "lab_start",
        "held_visible",
        "free_visible",
        "tab_list",
        "tab_answer",
        "crowd_held_visible",
        "crowd_free_visible",
        "crowd_update_scripts",
    ),
}


#: not measured with ``--quick``: they need clusters, pages or competitors of their own
_NOT_QUICK = {"ray_train_first_statement", "first_cell_ever", "lab_start", "lease_gone_throttled_1gib"} | {
    metric for metric in METRICS["sidebar"] if metric.startswith(("crowd_held_", "crowd_free_", "crowd_update_"))
}


def check(report: Report, *, quick: bool = False) -> None:
    """Raise for a document that lacks one."""
    wanted = [metric for metric in METRICS[report.name] if not (quick and metric in _NOT_QUICK)]
    missing = [metric for metric in wanted if metric not in report.results]
    if missing:
        raise RuntimeError(f"benchmark {report.name} has no {', '.join(missing)}")

# Loads the magics of jupyter_gpu_release into Jupyter kernels of this environment, and leaves no name behind.
# Switched off by c.GpuRelease.automatic = False or JUPYTER_GPU_AUTOMATIC=0.
try:
    __import__("jupyter_gpu_release.kernel.startup", fromlist=["load"]).load(get_ipython())
except Exception:
    pass  # the package went, this file stayed: a kernel must start all the same, and say nothing

/* A stand-in for libnvidia-ml.so.1: reads the file named by FAKE_NVML on each call.
   Lines: "error N" (every call answers N) | "gpu NAME UUID TOTAL USED UTIL" | "process GPU PID BYTES". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef struct { char name[64], uuid[64]; unsigned long long total, used; unsigned int util; } gpu_t;

static gpu_t gpus[16];
static process_t processes[64];
static int owner[64], gpu_count, process_count, error_code;

static int load(void) {
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[256];
    gpu_count = process_count = error_code = 0;
    if (!file) return 9; /* DRIVER_NOT_LOADED */
    while (fgets(line, sizeof line, file)) {
        gpu_t g; process_t p; int who;
        memset(&g, 0, sizeof g); memset(&p, 0, sizeof p);
        if (sscanf(line, "error %d", &error_code) == 1) continue;
        if (sscanf(line, "gpu %63s %63s %llu %llu %u", g.name, g.uuid, &g.total, &g.used, &g.util) == 5) gpus[gpu_count++] = g;
        if (sscanf(line, "process %d %u %llu", &who, &p.pid, &p.used) == 3) { owner[process_count] = who; processes[process_count++] = p; }
    }
    fclose(file);
    return error_code;
}

#define LOAD() do { int e = load(); if (e) return e; } while (0)
int nvmlInitWithFlags(unsigned int flags) { (void)flags; LOAD(); return 0; }
int nvmlInit_v2(void) { LOAD(); return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : "error"; }
int nvmlDeviceGetCount_v2(unsigned int *n) { LOAD(); *n = (unsigned)gpu_count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **h) { LOAD(); if ((int)i >= gpu_count) return 2; *h = &gpus[i]; return 0; }
int nvmlDeviceGetName(void *h, char *s, unsigned int n) { LOAD(); snprintf(s, n, "%s", ((gpu_t *)h)->name); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned int n) { LOAD(); snprintf(s, n, "%s", ((gpu_t *)h)->uuid); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) { LOAD(); gpu_t *g = h; m->total = g->total; m->used = g->used; m->free = g->total - g->used; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, utilization_t *u) { LOAD(); u->gpu = ((gpu_t *)h)->util; u->memory = 0; return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned int n) { LOAD(); snprintf(s, n, "999.1"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { LOAD(); *v = 13000; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned int *n, process_t *out) {
    unsigned int found = 0, room = *n; int index;
    LOAD();
    index = (int)((gpu_t *)h - gpus);
    for (int i = 0; i < process_count; i++) if (owner[i] == index) { if (out && found < room) out[found] = processes[i]; found++; }
    *n = found;
    return (!out && found) || found > room ? 7 : 0;
}

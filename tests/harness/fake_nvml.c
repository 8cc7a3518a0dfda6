/* A stand-in for libnvidia-ml.so.1: looks at the file named by FAKE_NVML on each call. Lines:
   "error N"                                        every call answers N (15: GPU is lost, 9: no driver)
   "gpu NAME UUID TOTAL USED UTIL [CELSIUS MW]"     a card; UTIL -1: not supported
   "hang"                                           calls do not return until the line is gone
   "lost INDEX", "unknown INDEX"                    calls about this card answer 15, or 999
   "ecc INDEX ERRORS", "remap INDEX PENDING FAILED", "slowed INDEX REASONS", "xid INDEX NUMBER" (told once a look at it)
   "process GPU PID BYTES [UTIL [INSTANCE]]"        BYTES -1: not told; UTIL -1 (default): not supported on this card
   "mig GPU INSTANCE UUID TOTAL USED"               a slice; the card is in MIG mode then */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CARDS 64
#define PROCESSES 1024
#define SLICES 64
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } process_t;
typedef struct { unsigned int pid; unsigned long long stamp; unsigned int sm, mem, enc, dec; } share_t;
typedef struct { char name[64], uuid[64]; unsigned long long total, used; int util, celsius; unsigned int milliwatts; int lost, gpu, instance, ecc, remap_pending, remap_failed, slowed, xid; } card_t;
typedef struct { unsigned int sms, copies, decoders, encoders, jpegs, ofas, gi_slices, ci_slices; unsigned long long megabytes; } attributes_t;
typedef struct { void *device; unsigned long long type, data; unsigned int gi, ci; } event_t;

static card_t cards[CARDS], slices[SLICES];
static process_t processes[PROCESSES];
static int owner[PROCESSES], shares[PROCESSES], card_count, process_count, slice_count, error_code;
static struct stat last;

static int load(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    FILE *file;
    char line[256];
    if (!path || stat(path, &now)) return 9; /* DRIVER_NOT_LOADED */
    if (now.st_mtim.tv_sec == last.st_mtim.tv_sec && now.st_mtim.tv_nsec == last.st_mtim.tv_nsec && now.st_size == last.st_size && now.st_ino == last.st_ino) return error_code;
    if (!(file = fopen(path, "r"))) return 9;
    card_count = process_count = slice_count = error_code = 0;
    memset(cards, 0, sizeof cards);
    while (fgets(line, sizeof line, file)) {
        card_t c; process_t p; int who, share = -1; long long bytes; unsigned int instance = 0xFFFFFFFF;
        memset(&c, 0, sizeof c); memset(&p, 0, sizeof p);
        if (sscanf(line, "error %d", &error_code) == 1) continue;
        if (!strncmp(line, "hang", 4)) { fclose(file); usleep(50000); return load(); }
        if (sscanf(line, "lost %d", &who) == 1) { cards[who].lost = 15; continue; }
        if (sscanf(line, "unknown %d", &who) == 1) { cards[who].lost = 999; continue; }
        if (sscanf(line, "ecc %d %d", &who, &share) == 2) { cards[who].ecc = share; continue; }
        if (sscanf(line, "slowed %d %d", &who, &share) == 2) { cards[who].slowed = share; continue; }
        if (sscanf(line, "xid %d %d", &who, &share) == 2) { cards[who].xid = share; continue; }
        if (sscanf(line, "remap %d %d %d", &who, &share, &c.remap_failed) == 3) { cards[who].remap_pending = share; cards[who].remap_failed = c.remap_failed; continue; }
        if (sscanf(line, "gpu %63s %63s %llu %llu %d %d %u", c.name, c.uuid, &c.total, &c.used, &c.util, &c.celsius, &c.milliwatts) >= 5) { c.gpu = card_count; cards[card_count++] = c; }
        if (sscanf(line, "mig %d %d %63s %llu %llu", &c.gpu, &c.instance, c.uuid, &c.total, &c.used) == 5) slices[slice_count++] = c;
        if (sscanf(line, "process %d %u %lld %d %u", &who, &p.pid, &bytes, &share, &instance) >= 3) {
            p.used = (unsigned long long)bytes; p.gi = instance; p.ci = instance == 0xFFFFFFFF ? instance : 0;
            owner[process_count] = who; shares[process_count] = share; processes[process_count++] = p;
        }
    }
    last = now;
    fclose(file);
    return error_code;
}

#define LOAD() do { int e = load(); if (e) return e; } while (0)
#define CARD() LOAD(); card_t *c = h; if (c->lost) return c->lost
static int index_of(void *h) { return ((card_t *)h)->gpu; }
static int is_slice(void *h) { return (card_t *)h >= slices && (card_t *)h < slices + SLICES; }
static int is_of(void *h, int i) { return owner[i] == index_of(h) && (!is_slice(h) || processes[i].gi == (unsigned)((card_t *)h)->instance); }
static int is_mig(void *h) { for (int i = 0; i < slice_count; i++) if (slices[i].gpu == index_of(h)) return 1; return 0; }

int nvmlInitWithFlags(unsigned int flags) { (void)flags; LOAD(); return 0; }
int nvmlInit_v2(void) { LOAD(); return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : code == 9 ? "Driver Not Loaded" : code == 3 ? "Not Supported" : code == 999 ? "Unknown Error" : "error"; }
int nvmlDeviceGetCount_v2(unsigned int *n) { LOAD(); *n = (unsigned)card_count; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **h) { LOAD(); if ((int)i >= card_count) return 2; *h = &cards[i]; return cards[i].lost; }
int nvmlDeviceGetName(void *h, char *s, unsigned int n) { CARD(); if (is_slice(h)) snprintf(s, n, "%s MIG", cards[c->gpu].name); else snprintf(s, n, "%s", c->name); return 0; }
int nvmlDeviceGetUUID(void *h, char *s, unsigned int n) { CARD(); snprintf(s, n, "%s", c->uuid); return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) { CARD(); m->total = c->total; m->used = c->used; m->free = c->total - c->used; return 0; }
int nvmlDeviceGetUtilizationRates(void *h, utilization_t *u) { CARD(); if (c->util < 0 || is_mig(h)) return 3; u->gpu = (unsigned)c->util; u->memory = 0; return 0; }
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned int *t) { CARD(); (void)sensor; if (!c->celsius) return 3; *t = (unsigned)c->celsius; return 0; }
int nvmlDeviceGetPowerUsage(void *h, unsigned int *p) { CARD(); if (!c->milliwatts) return 3; *p = c->milliwatts; return 0; }
int nvmlDeviceGetMigMode(void *h, unsigned int *now, unsigned int *next) { CARD(); (void)c; *now = *next = (unsigned)is_mig(h); return 0; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned int *n) { CARD(); (void)c; *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned int wanted, void **part) {
    unsigned int found = 0;
    CARD(); (void)c;
    for (int i = 0; i < slice_count; i++) if (slices[i].gpu == index_of(h) && found++ == wanted) { *part = &slices[i]; return 0; }
    return 6; /* NOT_FOUND */
}
int nvmlDeviceGetGpuInstanceId(void *h, unsigned int *n) { CARD(); *n = (unsigned)c->instance; return 0; }
int nvmlDeviceGetAttributes_v2(void *h, attributes_t *a) {
    CARD(); if (!is_slice(h) || c->total < 1 << 30) return 3; /* slices of 1, 2, 3, 4 and 7 have 1, 2, 4, 4 and 8 eighths of the memory */
    unsigned int eighths = (unsigned)((c->total * 8 + cards[c->gpu].total - 1) / cards[c->gpu].total);
    memset(a, 0, sizeof *a); a->megabytes = c->total >> 20; a->gi_slices = a->ci_slices = eighths == 4 ? 3 : eighths == 8 ? 7 : eighths; return 0;
}
int nvmlSystemGetDriverVersion(char *s, unsigned int n) { LOAD(); snprintf(s, n, "999.1"); return 0; }
int nvmlSystemGetCudaDriverVersion_v2(int *v) { LOAD(); *v = 13000; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned int *n, process_t *out) {
    unsigned int found = 0, room = *n;
    CARD(); (void)c;
    for (int i = 0; i < process_count; i++) if (is_of(h, i)) { if (out && found < room) out[found] = processes[i]; found++; }
    *n = found;
    return (!out && found) || found > room ? 7 : 0;
}
int nvmlDeviceGetProcessUtilization(void *h, share_t *out, unsigned int *n, unsigned long long since) {
    unsigned int found = 0, room = *n, told = 0;
    CARD(); (void)c; (void)since;
    for (int i = 0; i < process_count; i++) if (owner[i] == index_of(h)) {
        if (shares[i] < 0) continue;
        told = 1;
        if (!shares[i]) continue;
        if (out && found < room) { memset(&out[found], 0, sizeof *out); out[found].pid = processes[i].pid; out[found].sm = (unsigned)shares[i]; out[found].stamp = 1; }
        found++;
    }
    if (!told) return 3;
    *n = found;
    if (!found) return 6; /* NOT_FOUND: nobody used it */
    return !out || found > room ? 7 : 0;
}
int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, unsigned long long *n) { CARD(); (void)type; (void)counter; *n = (unsigned long long)c->ecc; return 0; }
int nvmlDeviceGetRemappedRows(void *h, unsigned int *corr, unsigned int *unc, unsigned int *pending, unsigned int *failed) {
    CARD(); *corr = *unc = 0; *pending = (unsigned)c->remap_pending; *failed = (unsigned)c->remap_failed; return 0;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *h, unsigned long long *reasons) { CARD(); *reasons = (unsigned long long)c->slowed; return 0; }
int nvmlDeviceGetIndex(void *h, unsigned int *n) { CARD(); *n = (unsigned)c->gpu; return 0; }
int nvmlEventSetCreate(void **set) { LOAD(); *set = cards; return 0; }
int nvmlDeviceRegisterEvents(void *h, unsigned long long types, void *set) { CARD(); (void)c; (void)types; (void)set; return 0; }
int nvmlEventSetWait_v2(void *set, event_t *e, unsigned int ms) {
    LOAD(); (void)set; (void)ms;
    for (int i = 0; i < card_count; i++) if (cards[i].xid) {
        memset(e, 0, sizeof *e); e->device = &cards[i]; e->type = 8; e->data = (unsigned)cards[i].xid; cards[i].xid = 0; return 0;
    }
    return 10; /* TIMEOUT */
}

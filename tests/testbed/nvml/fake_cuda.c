/*
 * libcuda.so.1 without a GPU: the part of the CUDA driver API that copies to GPUs, for the devices of the JSON file that
 * FAKE_NVML_JSON names. Memory is real and the first megabyte of each copy is copied; the copy takes the time that
 * "copies": {"megabytes_per_second": N} of the device wants, however fast or busy the memory of this machine is. A device
 * without "copies" is unknown to CUDA. "errors" and "hang" of a device are as for fake_nvml.c.
 *
 * While a device copies, FAKE_CUDA_BUSY is its bus id, so that fake_nvml.c in the same process shows it as under load.
 */
#include <time.h>

#include "description.h"

typedef int CUresult;
typedef unsigned long long CUdeviceptr;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
};

enum { COPIED = 1 << 20 };

static Value *host;
static Value *current;

/* Copies that were asked for and are not done: the queue of the one stream. */
static struct { void *to; const void *from; size_t size; } queue[64];
static unsigned queued;

static CUresult enter(const char *function) {
    if (!host) return NOT_INITIALIZED;
    if (!current) return INVALID_CONTEXT;
    return injected(current, function);
}

#define ENTER()                                \
    do {                                       \
        CUresult error_ = enter(__func__);     \
        if (error_) return error_;             \
    } while (0)

CUresult cuInit(u32 flags) {
    (void)flags;
    /* As the driver does: devices that the environment hides do not exist. */
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    Value *description = read_description();
    if (!description || (visible && !*visible)) return NO_DEVICE;
    CUresult error = injected(description, __func__);
    if (!error) host = description;
    return error;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    static const struct { CUresult code; const char *name; } names[] = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {100, "CUDA_ERROR_NO_DEVICE"}, {101, "CUDA_ERROR_INVALID_DEVICE"}, {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {719, "CUDA_ERROR_LAUNCH_FAILED"}, {802, "CUDA_ERROR_SYSTEM_NOT_READY"},
        {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"}, {999, "CUDA_ERROR_UNKNOWN"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == error) {
            *name = names[i].name;
            return SUCCESS;
        }
    return INVALID_VALUE;
}

CUresult cuDeviceGetByPCIBusId(int *device, const char *bus_id) {
    u32 wanted[3], found[3];
    if (!host) return NOT_INITIALIZED;
    if (sscanf(bus_id, "%x:%x:%x", &wanted[0], &wanted[1], &wanted[2]) != 3) return INVALID_VALUE;
    *device = 0;
    for (Value *each = item(member(host, "devices"), 0); each; each = each->next, (*device)++) {
        Value *own = member(each, "bus_id");
        if (member(each, "copies") && own && sscanf(own->text, "%x:%x:%x", &found[0], &found[1], &found[2]) == 3 &&
            !memcmp(wanted, found, sizeof found))
            return injected(each, __func__);
    }
    return INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRetain(Value **context, int device) {
    if (!host) return NOT_INITIALIZED;
    *context = item(member(host, "devices"), device);
    return *context ? injected(*context, __func__) : INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRelease(int device) {
    if (!host) return NOT_INITIALIZED;
    return item(member(host, "devices"), device) ? SUCCESS : INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(Value *context) {
    if (!host) return NOT_INITIALIZED;
    current = context;
    return SUCCESS;
}

CUresult cuMemHostAlloc(void **memory, size_t size, u32 flags) {
    (void)flags;
    ENTER();
    *memory = calloc(1, size);
    return *memory ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemFreeHost(void *memory) {
    ENTER();
    free(memory);
    return SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *memory, size_t size) {
    ENTER();
    *memory = (CUdeviceptr)calloc(1, size);
    return *memory ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemFree_v2(CUdeviceptr memory) {
    ENTER();
    free((void *)memory);
    return SUCCESS;
}

CUresult cuStreamCreate(void **stream, u32 flags) {
    (void)flags;
    ENTER();
    *stream = queue;
    return SUCCESS;
}

CUresult cuStreamDestroy_v2(void *stream) {
    ENTER();
    return stream == queue ? SUCCESS : INVALID_VALUE;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, void *stream) {
    ENTER();
    if (stream != queue || queued == sizeof queue / sizeof *queue) return INVALID_VALUE;
    queue[queued].to = (void *)to;
    queue[queued].from = from;
    queue[queued++].size = size;
    setenv("FAKE_CUDA_BUSY", member(current, "bus_id")->text, 1);
    return SUCCESS;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

CUresult cuStreamSynchronize(void *stream) {
    ENTER();
    if (stream != queue) return INVALID_VALUE;
    Value *rate = member(member(current, "copies"), "megabytes_per_second");
    double end = now();
    for (u32 i = 0; i < queued; i++) {
        memcpy(queue[i].to, queue[i].from, queue[i].size < COPIED ? queue[i].size : COPIED);
        end += (double)queue[i].size / ((double)rate->number * 1e6);
    }
    queued = 0;
    for (double rest = end - now(); rest > 0; rest = end - now()) usleep((useconds_t)(rest * 1e6) + 1);
    unsetenv("FAKE_CUDA_BUSY");
    return SUCCESS;
}

/*
 * libnvidia-ml.so.1 without a GPU: answers the NVML ABI from the JSON file named by FAKE_NVML_JSON.
 *
 * A value that is absent in the file is NVML_ERROR_NOT_SUPPORTED, as on a GPU without that feature. "errors" (for the
 * whole library or for one device) maps a function name, or "*", to the error code that it returns; "hang" lists
 * functions that never return, "crash" those that end the program. The file may be replaced while programs run: they see
 * the new one, whose devices must be as many. See hosts/ for the form. Structure layouts follow pynvml's ctypes
 * declarations.
 */
#include "description.h"

#include <sys/stat.h>

typedef int nvmlReturn_t;

enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN = 999,
};

/* ---- state, injected errors and hangs ---- */

static Value *host;
static long long description_time;

/* A description that was replaced counts from the next call on; handles stay: each device keeps its place. */
static void follow_description(void) {
    struct stat found;
    const char *path = getenv("FAKE_NVML_JSON");
    if (!path || stat(path, &found)) return;
    long long modified = found.st_mtim.tv_sec * 1000000000LL + found.st_mtim.tv_nsec;
    if (modified == description_time) return;
    description_time = modified;
    Value *document = read_description();
    if (!document) return;
    for (Value *each = document->first; each; each = each->next)
        if (strcmp(each->key, "devices")) {
            Value *old = member(host, each->key);
            if (old) old->first = each->first, old->number = each->number, old->text = each->text;
        }
    Value *old = item(member(host, "devices"), 0), *new = item(member(document, "devices"), 0);
    for (; old && new; old = old->next, new = new->next) old->first = new->first;
}

static nvmlReturn_t enter(const Value *device, const char *function) {
    if (!host) return UNINITIALIZED;
    follow_description();
    nvmlReturn_t error = injected(host, function);
    return error || !device ? error : injected(device, function);
}

#define ENTER(device)                                    \
    do {                                                 \
        nvmlReturn_t error_ = enter(device, __func__);   \
        if (error_) return error_;                       \
    } while (0)

/* What a device shows: "under_load" of it while fake_cuda.c copies to it in this process, itself otherwise. */
static const Value *shown(const Value *device, const char *key) {
    const char *busy = getenv("FAKE_CUDA_BUSY");
    Value *bus_id = member(device, "bus_id");
    Value *loaded = member(device, "under_load");
    return busy && bus_id && !strcasecmp(busy, bus_id->text) && member(loaded, key) ? loaded : device;
}

static nvmlReturn_t give_u32(const Value *value, u32 *out) {
    if (!out) return INVALID_ARGUMENT;
    if (!value || value->kind != NUMBER) return NOT_SUPPORTED;
    *out = (u32)value->number;
    return SUCCESS;
}

static nvmlReturn_t give_u64(const Value *value, u64 *out) {
    if (!out) return INVALID_ARGUMENT;
    if (!value || value->kind != NUMBER) return NOT_SUPPORTED;
    *out = value->number;
    return SUCCESS;
}

static nvmlReturn_t give_text(const Value *value, char *out, u32 size) {
    if (!value || value->kind != STRING) return NOT_SUPPORTED;
    if (strlen(value->text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, value->text);
    return SUCCESS;
}

static nvmlReturn_t give_pair(const Value *array, u32 *first, u32 *second) {
    nvmlReturn_t result = give_u32(item(array, 0), first);
    return result ? result : give_u32(item(array, 1), second);
}

/* ---- library and system ---- */

nvmlReturn_t nvmlInitWithFlags(u32 flags) {
    (void)flags;
    Value *document = read_description();
    if (!document) return DRIVER_NOT_LOADED;
    nvmlReturn_t error = injected(document, "nvmlInit");
    if (!error) host = document;
    return error;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    ENTER(NULL);
    host = NULL;
    return SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    static const struct { nvmlReturn_t code; const char *text; } errors[] = {
        {0, "Success"}, {1, "Uninitialized"}, {2, "Invalid Argument"}, {3, "Not Supported"},
        {4, "Insufficient Permissions"}, {6, "Not Found"}, {7, "Insufficient Size"}, {9, "Driver Not Loaded"},
        {10, "Timeout"}, {12, "NVML Shared Library Not Found"}, {13, "Function Not Found"},
        {15, "GPU is lost"}, {16, "GPU requires reset"}, {17, "GPU access blocked by the operating system"},
        {18, "Driver/library version mismatch"}, {20, "Insufficient Memory"}, {999, "Unknown Error"}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == result) return errors[i].text;
    return "Unknown Error";
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, u32 size) {
    ENTER(NULL);
    return give_text(member(host, "driver_version"), version, size);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, u32 size) {
    ENTER(NULL);
    return give_text(member(host, "nvml_version"), version, size);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(u32 *version) {
    ENTER(NULL);
    return give_u32(member(host, "cuda_driver_version"), version);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(u32 *version) {
    ENTER(NULL);
    return give_u32(member(host, "cuda_driver_version"), version);
}

nvmlReturn_t nvmlDeviceGetCount_v2(u32 *count) {
    ENTER(NULL);
    *count = length(member(host, "devices"));
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(u32 index, Value **device) {
    ENTER(NULL);
    *device = item(member(host, "devices"), index);
    if (!*device) return INVALID_ARGUMENT;
    return enter(*device, __func__);
}

static nvmlReturn_t find_device(const char *key, const char *text, const char *function, Value **device) {
    for (*device = item(member(host, "devices"), 0); *device; *device = (*device)->next) {
        Value *value = member(*device, key);
        if (value && !strcasecmp(value->text, text)) return enter(*device, function);
    }
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, Value **device) {
    ENTER(NULL);
    return find_device("bus_id", bus_id, __func__, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, Value **device) {
    ENTER(NULL);
    return find_device("uuid", uuid, __func__, device);
}

/* ---- devices ---- */

#define TEXT_GETTER(function, key)                                     \
    nvmlReturn_t function(Value *device, char *text, u32 size) {       \
        ENTER(device);                                                 \
        return give_text(member(device, key), text, size);             \
    }
TEXT_GETTER(nvmlDeviceGetName, "name")
TEXT_GETTER(nvmlDeviceGetUUID, "uuid")
TEXT_GETTER(nvmlDeviceGetSerial, "serial")
TEXT_GETTER(nvmlDeviceGetVbiosVersion, "vbios_version")

#define NUMBER_GETTER(function, key)                                   \
    nvmlReturn_t function(Value *device, u32 *number) {                \
        ENTER(device);                                                 \
        return give_u32(member(device, key), number);                  \
    }
NUMBER_GETTER(nvmlDeviceGetPerformanceState, "performance_state")
NUMBER_GETTER(nvmlDeviceGetPersistenceMode, "persistence_mode")
NUMBER_GETTER(nvmlDeviceGetComputeMode, "compute_mode")
NUMBER_GETTER(nvmlDeviceGetPowerUsage, "power_usage_mw")
NUMBER_GETTER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
NUMBER_GETTER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
NUMBER_GETTER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
NUMBER_GETTER(nvmlDeviceGetArchitecture, "architecture")
NUMBER_GETTER(nvmlDeviceGetBrand, "brand")
NUMBER_GETTER(nvmlDeviceGetVirtualizationMode, "virtualization_mode")
NUMBER_GETTER(nvmlDeviceGetMaxMigDeviceCount, "mig_devices_max")

nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(Value *device, char *version) {
    ENTER(device);
    return give_text(member(device, "gsp_firmware_version"), version, 64);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(Value *device, u32 index, Value **mig_device) {
    ENTER(device);
    *mig_device = item(member(device, "mig_devices"), index);
    return *mig_device ? SUCCESS : NOT_FOUND;
}

#define PCIE_GETTER(function, key)                                     \
    nvmlReturn_t function(Value *device, u32 *number) {                \
        ENTER(device);                                                 \
        return give_u32(member(member(shown(device, "pcie"), "pcie"), key), number);  \
    }
PCIE_GETTER(nvmlDeviceGetCurrPcieLinkGeneration, "generation")
PCIE_GETTER(nvmlDeviceGetMaxPcieLinkGeneration, "generation_max")
PCIE_GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "device_generation_max")
PCIE_GETTER(nvmlDeviceGetCurrPcieLinkWidth, "width")
PCIE_GETTER(nvmlDeviceGetMaxPcieLinkWidth, "width_max")
PCIE_GETTER(nvmlDeviceGetPcieReplayCounter, "replay_counter")

/* counter 0: sent by the GPU, 1: received, in KB/s. The driver measures for 20 ms. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(Value *device, u32 counter, u32 *value) {
    ENTER(device);
    Value *throughput = member(member(device, "pcie"), "throughput_kbps");
    if (counter > 1) return INVALID_ARGUMENT;
    if (throughput) usleep(20000);
    return give_u32(item(throughput, counter), value);
}

nvmlReturn_t nvmlDeviceGetIndex(Value *device, u32 *index) {
    ENTER(device);
    *index = 0;
    for (Value *each = item(member(host, "devices"), 0); each != device; each = each->next) (*index)++;
    return SUCCESS;
}

typedef struct {
    char bus_id_legacy[16];
    u32 domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

static nvmlReturn_t give_pci_info(const Value *bus_id, PciInfo *info) {
    memset(info, 0, sizeof *info);
    if (!bus_id || sscanf(bus_id->text, "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3) return UNKNOWN;
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(Value *device, PciInfo *info) {
    ENTER(device);
    nvmlReturn_t result = give_pci_info(member(device, "bus_id"), info);
    give_u32(member(device, "pci_device_id"), &info->pci_device_id);
    give_u32(member(device, "pci_subsystem_id"), &info->pci_subsystem_id);
    return result;
}

static nvmlReturn_t memory_sizes(const Value *device, u64 *total, u64 *reserved, u64 *used) {
    Value *memory = member(device, "memory");
    nvmlReturn_t result = give_u64(member(memory, "total"), total);
    if (!result) result = give_u64(member(memory, "reserved"), reserved);
    return result ? result : give_u64(member(memory, "used"), used);
}

typedef struct { u64 total, free, used; } Memory;

/* Version 1 counts what the driver reserves as used. */
nvmlReturn_t nvmlDeviceGetMemoryInfo(Value *device, Memory *memory) {
    u64 reserved;
    ENTER(device);
    nvmlReturn_t result = memory_sizes(device, &memory->total, &reserved, &memory->used);
    if (result) return result;
    memory->used += reserved;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

typedef struct { u32 version; u64 total, reserved, free, used; } MemoryV2;

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(Value *device, MemoryV2 *memory) {
    ENTER(device);
    if (memory->version != (sizeof *memory | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = memory_sizes(device, &memory->total, &memory->reserved, &memory->used);
    if (!result) memory->free = memory->total - memory->reserved - memory->used;
    return result;
}

typedef struct { u64 total, free, used; } Bar1Memory;

nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(Value *device, Bar1Memory *memory) {
    ENTER(device);
    Value *bar1 = member(device, "bar1");
    nvmlReturn_t result = give_u64(member(bar1, "total"), &memory->total);
    if (!result) result = give_u64(member(bar1, "used"), &memory->used);
    if (!result) memory->free = memory->total - memory->used;
    return result;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(Value *device, u32 *major, u32 *minor) {
    ENTER(device);
    return give_pair(member(device, "compute_capability"), major, minor);
}

typedef struct { u32 gpu, memory; } Utilization;

nvmlReturn_t nvmlDeviceGetUtilizationRates(Value *device, Utilization *utilization) {
    ENTER(device);
    return give_pair(member(device, "utilization"), &utilization->gpu, &utilization->memory);
}

nvmlReturn_t nvmlDeviceGetTemperature(Value *device, u32 sensor, u32 *temperature) {
    ENTER(device);
    return sensor ? INVALID_ARGUMENT : give_u32(member(device, "temperature"), temperature);
}

typedef struct { u32 version, sensor; int temperature; } TemperatureV1;

nvmlReturn_t nvmlDeviceGetTemperatureV(Value *device, TemperatureV1 *info) {
    ENTER(device);
    if (info->version != (sizeof *info | 1 << 24)) return ARGUMENT_VERSION_MISMATCH;
    return info->sensor ? INVALID_ARGUMENT : give_u32(member(device, "temperature"), (u32 *)&info->temperature);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(Value *device, u32 type, u32 *temperature) {
    static const char *const names[] = {"shutdown", "slowdown", "memory_max", "gpu_max"};
    ENTER(device);
    if (type > 3) return INVALID_ARGUMENT;
    return give_u32(member(member(device, "temperature_thresholds"), names[type]), temperature);
}

nvmlReturn_t nvmlDeviceGetMigMode(Value *device, u32 *current, u32 *pending) {
    ENTER(device);
    return give_pair(member(device, "mig_mode"), current, pending);
}

nvmlReturn_t nvmlDeviceGetEccMode(Value *device, u32 *current, u32 *pending) {
    ENTER(device);
    return give_pair(member(device, "ecc_mode"), current, pending);
}

/* type: 0 corrected, 1 uncorrected. counter: 0 volatile, 1 aggregate. */
nvmlReturn_t nvmlDeviceGetTotalEccErrors(Value *device, u32 type, u32 counter, u64 *count) {
    ENTER(device);
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    return give_u64(member(member(member(device, "ecc_errors"), type ? "uncorrected" : "corrected"),
                           counter ? "aggregate" : "volatile"), count);
}

static nvmlReturn_t retired_pages(const Value *device, u32 cause, u32 *count, u64 *addresses, u64 *timestamps) {
    Value *pages = member(member(device, "retired_pages"), cause ? "double_bit" : "single_bit");
    if (cause > 1) return INVALID_ARGUMENT;
    if (!pages) return NOT_SUPPORTED;
    u32 room = *count;
    *count = length(pages);
    if (room < *count) return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < *count && addresses; i++) {
        addresses[i] = item(pages, i)->number;
        if (timestamps) timestamps[i] = 0;
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRetiredPages(Value *device, u32 cause, u32 *count, u64 *addresses) {
    ENTER(device);
    return retired_pages(device, cause, count, addresses, NULL);
}

nvmlReturn_t nvmlDeviceGetRetiredPages_v2(Value *device, u32 cause, u32 *count, u64 *addresses, u64 *timestamps) {
    ENTER(device);
    return retired_pages(device, cause, count, addresses, timestamps);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(Value *device, u32 *pending) {
    ENTER(device);
    return give_u32(member(member(device, "retired_pages"), "pending"), pending);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(Value *device, u32 *correctable, u32 *uncorrectable, u32 *pending,
                                       u32 *failure) {
    ENTER(device);
    Value *rows = member(device, "remapped_rows");
    nvmlReturn_t result = give_u32(member(rows, "correctable"), correctable);
    if (!result) result = give_u32(member(rows, "uncorrectable"), uncorrectable);
    if (!result) result = give_u32(member(rows, "pending"), pending);
    return result ? result : give_u32(member(rows, "failure"), failure);
}

static const char *const clock_names[] = {"graphics", "sm", "memory", "video"};

nvmlReturn_t nvmlDeviceGetClockInfo(Value *device, u32 type, u32 *clock) {
    ENTER(device);
    return type > 3 ? INVALID_ARGUMENT : give_u32(member(member(device, "clocks"), clock_names[type]), clock);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(Value *device, u32 type, u32 *clock) {
    ENTER(device);
    return type > 3 ? INVALID_ARGUMENT : give_u32(member(member(device, "clocks_max"), clock_names[type]), clock);
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(Value *device, u32 type, u32 *clock) {
    ENTER(device);
    return type > 3 ? INVALID_ARGUMENT
                    : give_u32(member(member(device, "clocks_application"), clock_names[type]), clock);
}

nvmlReturn_t nvmlDeviceGetDefaultApplicationsClock(Value *device, u32 type, u32 *clock) {
    ENTER(device);
    return type > 3 ? INVALID_ARGUMENT
                    : give_u32(member(member(device, "clocks_application_default"), clock_names[type]), clock);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(Value *device, u64 *reasons) {
    ENTER(device);
    return give_u64(member(shown(device, "event_reasons"), "event_reasons"), reasons);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(Value *device, u64 *reasons) {
    ENTER(device);
    return give_u64(member(shown(device, "event_reasons"), "event_reasons"), reasons);
}

typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } ProcessInfo;

static nvmlReturn_t processes(const Value *device, const char *kind, u32 *count, ProcessInfo *infos) {
    Value *running = member(device, kind);
    if (!running) return NOT_SUPPORTED;
    u32 room = *count;
    *count = length(running);
    if (room < *count) return INSUFFICIENT_SIZE;
    for (u32 i = 0; i < *count && infos; i++) {
        Value *process = item(running, i);
        infos[i] = (ProcessInfo){0, ~0ULL, ~0U, ~0U};
        give_u32(member(process, "pid"), &infos[i].pid);
        give_u64(member(process, "memory"), &infos[i].used);
    }
    return SUCCESS;
}

#define PROCESS_GETTER(function, key)                                            \
    nvmlReturn_t function(Value *device, u32 *count, ProcessInfo *infos) {       \
        ENTER(device);                                                           \
        return processes(device, key, count, infos);                             \
    }
PROCESS_GETTER(nvmlDeviceGetComputeRunningProcesses_v2, "processes")
PROCESS_GETTER(nvmlDeviceGetComputeRunningProcesses_v3, "processes")
PROCESS_GETTER(nvmlDeviceGetGraphicsRunningProcesses_v2, "graphics_processes")
PROCESS_GETTER(nvmlDeviceGetGraphicsRunningProcesses_v3, "graphics_processes")
PROCESS_GETTER(nvmlDeviceGetMPSComputeRunningProcesses_v2, "mps_processes")
PROCESS_GETTER(nvmlDeviceGetMPSComputeRunningProcesses_v3, "mps_processes")

/* ---- NVLink, the NVSwitch fabric and pairs of devices ---- */

static nvmlReturn_t nvlink(const Value *device, u32 link, const Value **found) {
    Value *links = member(device, "nvlinks");
    if (!links) return NOT_SUPPORTED;
    *found = item(links, link);
    return *found ? SUCCESS : INVALID_ARGUMENT;
}

static nvmlReturn_t of_nvlink(const Value *device, u32 link, const char *key, u32 *number) {
    const Value *found = NULL;
    nvmlReturn_t result = nvlink(device, link, &found);
    return result ? result : give_u32(member(found, key), number);
}

nvmlReturn_t nvmlDeviceGetNvLinkState(Value *device, u32 link, u32 *active) {
    ENTER(device);
    return of_nvlink(device, link, "active", active);
}

/* 0: switched to another GPU, 1: to an NPU, 2: to an NVSwitch. */
nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(Value *device, u32 link, u32 *type) {
    ENTER(device);
    return of_nvlink(device, link, "remote_type", type);
}

nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(Value *device, u32 link, u32 counter, u64 *count) {
    static const char *const names[] = {"replay_errors", "recovery_errors", "crc_errors"};
    const Value *found = NULL;
    ENTER(device);
    if (counter > 2) return INVALID_ARGUMENT;
    nvmlReturn_t result = nvlink(device, link, &found);
    return result ? result : give_u64(member(found, names[counter]), count);
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(Value *device, u32 link, PciInfo *info) {
    const Value *found = NULL;
    ENTER(device);
    nvmlReturn_t result = nvlink(device, link, &found);
    if (result) return result;
    return member(found, "remote_bus_id") ? give_pci_info(member(found, "remote_bus_id"), info) : NOT_SUPPORTED;
}

typedef struct {
    u32 field, scope;
    long long timestamp, latency;
    u32 type;
    nvmlReturn_t result;
    union { double d; u32 ui; u64 ull; } value;
} FieldValue;

enum { MEMORY_TEMPERATURE = 82, NVLINK_SPEED_L0 = 84, NVLINK_SPEED_L5 = 89, NVLINK_SPEED = 164, TYPE_UNSIGNED = 1 };

nvmlReturn_t nvmlDeviceGetFieldValues(Value *device, int count, FieldValue *values) {
    ENTER(device);
    for (int i = 0; i < count; i++) {
        FieldValue *each = &values[i];
        each->type = TYPE_UNSIGNED;
        if (each->field == MEMORY_TEMPERATURE)
            each->result = give_u32(member(device, "temperature_memory"), &each->value.ui);
        else if (each->field >= NVLINK_SPEED_L0 && each->field <= NVLINK_SPEED_L5)
            each->result = of_nvlink(device, each->field - NVLINK_SPEED_L0, "speed_mbps", &each->value.ui);
        else if (each->field == NVLINK_SPEED && !member(host, "nvlink_speed_by_number_only"))
            each->result = of_nvlink(device, each->scope, "speed_mbps", &each->value.ui);
        else
            each->result = NOT_SUPPORTED;
    }
    return SUCCESS;
}

typedef struct { unsigned char cluster[16]; nvmlReturn_t status; u32 clique, state; } FabricInfo;

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(Value *device, FabricInfo *info) {
    ENTER(device);
    Value *fabric = member(device, "fabric");
    memset(info, 0, sizeof *info);
    give_u32(member(fabric, "status"), (u32 *)&info->status);
    return give_u32(member(fabric, "state"), &info->state);
}

typedef struct { u32 version; unsigned char cluster[16]; nvmlReturn_t status; u32 clique, state, health; } FabricInfoV2;

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(Value *device, FabricInfoV2 *info) {
    ENTER(device);
    Value *fabric = member(device, "fabric");
    if (info->version != (sizeof *info | 2 << 24)) return ARGUMENT_VERSION_MISMATCH;
    give_u32(member(fabric, "status"), (u32 *)&info->status);
    return give_u32(member(fabric, "state"), &info->state);
}

static u32 index_of(const Value *device) {
    u32 index = 0;
    for (Value *each = item(member(host, "devices"), 0); each && each != device; each = each->next) index++;
    return index;
}

/* The entry of "pairs" for two devices: the first whose "devices" are these, or that has none. */
static const Value *pair_of(const Value *one, const Value *other) {
    u32 a = index_of(one), b = index_of(other);
    for (Value *each = item(member(host, "pairs"), 0); each; each = each->next) {
        u32 first, second;
        if (give_pair(member(each, "devices"), &first, &second)) return each;
        if ((first == a && second == b) || (first == b && second == a)) return each;
    }
    return NULL;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(Value *one, Value *other, u32 *level) {
    ENTER(one);
    ENTER(other);
    return give_u32(member(pair_of(one, other), "ancestor"), level);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(Value *one, Value *other, u32 capability, u32 *status) {
    static const char *const names[] = {"read", "write", "nvlink"};
    ENTER(one);
    ENTER(other);
    return capability > 2 ? INVALID_ARGUMENT : give_u32(member(pair_of(one, other), names[capability]), status);
}

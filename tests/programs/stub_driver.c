// Stub of an NVIDIA driver: a libcuda.so.1 for tests of code that queries the driver. It answers queries that need no
// context: version, count, names, attributes. CUDA's runtime requires more before it counts a GPU: private tables
// (cuGetExportTable), and in one of them a proof that the driver is NVIDIA's. So it fails with error 500 here, or
// earlier because of STUB_VERSION and STUB_INIT: with 35 or the error of STUB_INIT.
//
//   STUB_VERSION=12040        result of cuDriverGetVersion [13000]
//   STUB_INIT=999             result of cuInit [0]
//   STUB_CAPABILITIES=90,70   one GPU for each, of compute capability 9.0 and 7.0 [90]; none if empty
//   STUB_TRACE=FILE           logs every call, one per line: the function and its result
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, NOT_FOUND = 500 };

static int initialized;

static int traced(const char *function, const char *detail, int result) {
    const char *path = getenv("STUB_TRACE");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s %s%s%d\n", function, detail, *detail ? " " : "", result);
        fclose(file);
    }
    return result;
}

static int number(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

// Returns the compute capability of GPU `index`, or the number of GPUs if `index` is negative.
static int capability(int index) {
    const char *text = getenv("STUB_CAPABILITIES");
    int count = 0;
    for (const char *place = text ? text : "90"; *place; count++) {
        if (count == index) return atoi(place);
        place += strcspn(place, ",");
        place += *place == ',';
    }
    return index < 0 ? count : 0;
}

#define KNOWN(device, function) \
    if (!initialized) return traced(function, "", NOT_INITIALIZED); \
    if ((device) < 0 || (device) >= capability(-1)) return traced(function, "", INVALID_DEVICE)

int cuInit(unsigned flags) {
    int result = number("STUB_INIT", capability(-1) ? SUCCESS : NO_DEVICE);
    initialized = result == SUCCESS;
    return traced("cuInit", "", flags ? INVALID_VALUE : result);
}

int cuDriverGetVersion(int *version) {
    *version = number("STUB_VERSION", 13000);
    return traced("cuDriverGetVersion", "", SUCCESS);
}

int cuDeviceGetCount(int *count) {
    if (!initialized) return traced("cuDeviceGetCount", "", NOT_INITIALIZED);
    *count = capability(-1);
    return traced("cuDeviceGetCount", "", SUCCESS);
}

int cuDeviceGet(int *device, int index) {
    KNOWN(index, "cuDeviceGet");
    *device = index;
    return traced("cuDeviceGet", "", SUCCESS);
}

int cuDeviceGetName(char *name, int length, int device) {
    KNOWN(device, "cuDeviceGetName");
    snprintf(name, length, "Stub %d.%d", capability(device) / 10, capability(device) % 10);
    return traced("cuDeviceGetName", "", SUCCESS);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    char detail[32];
    KNOWN(device, "cuDeviceGetAttribute");
    switch (attribute) {
        case 75: *value = capability(device) / 10; break;
        case 76: *value = capability(device) % 10; break;
        case 1: *value = 1024; break; // threads per block
        case 10: *value = 32; break; // threads per warp
        case 16: *value = 132; break; // multiprocessors
        case 33: *value = device + 1; break; // PCI bus
        default: *value = 0;
    }
    snprintf(detail, sizeof detail, "%d", attribute);
    return traced("cuDeviceGetAttribute", detail, SUCCESS);
}

int cuModuleGetLoadingMode(int *mode) {
    *mode = 2; // lazy
    return traced("cuModuleGetLoadingMode", "", SUCCESS);
}

int cuGetErrorName(int error, const char **name) {
    switch (error) {
        case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
        case 34: *name = "CUDA_ERROR_STUB_LIBRARY"; break;
        case 803: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
        case 999: *name = "CUDA_ERROR_UNKNOWN"; break;
        default: *name = NULL; return INVALID_VALUE;
    }
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    static char buffer[64];
    snprintf(buffer, sizeof buffer, "stub driver error %d", error);
    *text = buffer;
    return SUCCESS;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status) {
    char name[256];
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    (void)version, (void)flags;
    // As in the real driver, the name without a version stands for the newest.
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = self ? dlsym(self, name) : NULL;
    if (!*function && self) *function = dlsym(self, symbol);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

// The runtime's private functions, which a real driver provides: here the runtime gives up.
int cuGetExportTable(const void **table, const unsigned char *uuid) {
    char number[33];
    for (int index = 0; index < 16; index++) sprintf(number + 2 * index, "%02x", uuid[index]);
    *table = NULL;
    return traced("cuGetExportTable", number, NOT_FOUND);
}

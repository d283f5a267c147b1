// An NVIDIA driver that is not there: a libcuda.so.1 for tests of what asks for one. It answers what is asked before there
// is a context (version, count, names, attributes), and every other function says that it is not supported.
//
//   STUB_VERSION=12040        what cuDriverGetVersion says [13000]
//   STUB_INIT=999             what cuInit returns [0]
//   STUB_CAPABILITIES=90,70   a GPU for each, of compute capability 9.0 and 7.0 [90]; empty: none
//   STUB_TRACE=FILE           every call, a line each: the function and what it returned
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, NOT_FOUND = 500, NOT_SUPPORTED = 801 };

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

// Compute capability of GPU `index`, or how many GPUs there are where `index` is below 0.
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

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    KNOWN(device, "cuDeviceGetUuid_v2");
    memset(uuid, device + 1, 16);
    return traced("cuDeviceGetUuid_v2", "", SUCCESS);
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    KNOWN(device, "cuDeviceTotalMem_v2");
    *bytes = (size_t)80 << 30;
    return traced("cuDeviceTotalMem_v2", "", SUCCESS);
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    char detail[32];
    KNOWN(device, "cuDeviceGetAttribute");
    switch (attribute) {
        case 75: *value = capability(device) / 10; break;
        case 76: *value = capability(device) % 10; break;
        case 1: *value = 1024; break; // threads a block
        case 10: *value = 32; break; // threads a warp
        case 16: *value = 132; break; // multiprocessors
        case 33: *value = device + 1; break; // PCI bus
        default: *value = 0;
    }
    snprintf(detail, sizeof detail, "%d", attribute);
    return traced("cuDeviceGetAttribute", detail, SUCCESS);
}

int cuGetErrorName(int error, const char **name) {
    switch (error) {
        case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
        case NOT_SUPPORTED: *name = "CUDA_ERROR_NOT_SUPPORTED"; break;
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

// Functions that are asked for by name and are not above: each has a place of its own, so that the trace can name it.
enum { PLACES = 1024 };
static const char *missing_names[PLACES];
static int missing(int place) { return traced(missing_names[place], "", NOT_SUPPORTED); }
#define ONE(n) static int missing_##n(void) { return missing(0x##n); }
#define ROW(n) ONE(n##0) ONE(n##1) ONE(n##2) ONE(n##3) ONE(n##4) ONE(n##5) ONE(n##6) ONE(n##7) \
    ONE(n##8) ONE(n##9) ONE(n##a) ONE(n##b) ONE(n##c) ONE(n##d) ONE(n##e) ONE(n##f)
#define BLOCK(n) ROW(n##0) ROW(n##1) ROW(n##2) ROW(n##3) ROW(n##4) ROW(n##5) ROW(n##6) ROW(n##7) \
    ROW(n##8) ROW(n##9) ROW(n##a) ROW(n##b) ROW(n##c) ROW(n##d) ROW(n##e) ROW(n##f)
BLOCK(0) BLOCK(1) BLOCK(2) BLOCK(3)
#undef ONE
#define ONE(n) missing_##n,
static int (*const missing_functions[PLACES])(void) = {BLOCK(0) BLOCK(1) BLOCK(2) BLOCK(3)};

static void *missing_function(const char *name) {
    for (int place = 0; place < PLACES; place++) {
        if (!missing_names[place]) missing_names[place] = strdup(name);
        if (!strcmp(missing_names[place], name)) return (void *)missing_functions[place];
    }
    return NULL;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *status) {
    char name[256];
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    (void)version, (void)flags;
    // As the real one: the name without its version stands for the newest.
    snprintf(name, sizeof name, "%s_v2", symbol);
    *function = self ? dlsym(self, name) : NULL;
    if (!*function && self) *function = dlsym(self, symbol);
    if (!*function) *function = missing_function(symbol);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

int cuGetExportTable(const void **table, const unsigned char *uuid) {
    char detail[33];
    for (int index = 0; index < 16; index++) sprintf(detail + 2 * index, "%02x", uuid[index]);
    *table = NULL;
    return traced("cuGetExportTable", detail, NOT_FOUND);
}

// libnvidia-ml.so.1: the GPU values that ringmark reads during a run, in the formats of driver 580. Every query of a
// counter returns one unit more than the last, at any time, so a test can derive the total from the number of
// readings.

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "settings.h"

namespace {

constexpr int SUCCESS = 0;
constexpr int INVALID_ARGUMENT = 2;
constexpr int NOT_SUPPORTED = 3;
constexpr int NOT_FOUND = 6;

constexpr unsigned ALL_LINKS = 0xffffffffu;
constexpr unsigned NVLINK_SENT = 138, NVLINK_RECEIVED = 139;
constexpr int UNSIGNED_INT = 1, UNSIGNED_LONG_LONG = 3;

struct Device {
  int number;
  std::uint64_t readings_of_energy = 0;
  std::array<std::uint64_t, 256> readings_of_field{};
};

struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, status;
  union {
    double d;
    unsigned u;
    unsigned long ul;
    unsigned long long ull;
    long long ll;
  } value;
};

struct Utilization {
  unsigned gpu, memory;
};

struct Memory {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

std::string fault(const Device* device, const char* name, const char* otherwise) {
  return virtual_cuda::is_faulty(device->number) ? virtual_cuda::text_setting(name, otherwise) : otherwise;
}

}  // namespace

extern "C" {

int nvmlInit_v2() { return SUCCESS; }

int nvmlShutdown() { return SUCCESS; }

const char* nvmlErrorString(int status) { return status == NOT_FOUND ? "Not Found" : "Unknown Error"; }

int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  std::snprintf(text, length, "%s", virtual_cuda::text_setting("VIRTUAL_CUDA_DRIVER", "580.95.05").c_str());
  return SUCCESS;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device** device) {
  const char* bus = std::strchr(bus_id, ':');
  const int number = bus == nullptr ? -1 : static_cast<int>(std::strtol(bus + 1, nullptr, 16)) - virtual_cuda::FIRST_BUS;
  if (number < 0 || number >= virtual_cuda::installed_devices()) {
    return NOT_FOUND;
  }
  *device = new Device{number};  // Never freed: NVML has no call that releases a handle.
  return SUCCESS;
}

int nvmlDeviceGetIndex(Device* device, unsigned* index) {
  *index = static_cast<unsigned>(device->number);
  return SUCCESS;
}

int nvmlDeviceGetClockInfo(Device* device, int type, unsigned* megahertz) {
  constexpr int SM = 1, MEMORY = 2;
  if (type == SM) {
    *megahertz = static_cast<unsigned>(std::stoi(fault(device, "VIRTUAL_CUDA_CLOCK_MHZ", "1980")));
  } else if (type == MEMORY) {
    *megahertz = 2619;
  } else {
    return NOT_SUPPORTED;
  }
  return SUCCESS;
}

int nvmlDeviceGetTemperature(Device*, int, unsigned* degrees) {
  *degrees = 41;
  return SUCCESS;
}

// One joule more.
int nvmlDeviceGetTotalEnergyConsumption(Device* device, unsigned long long* millijoules) {
  *millijoules = 1000 * ++device->readings_of_energy;
  return SUCCESS;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(Device* device, unsigned long long* reasons) {
  *reasons = std::stoull(fault(device, "VIRTUAL_CUDA_CLOCK_REASONS", "0x0"), nullptr, 16);
  return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(Device*, Utilization* rates) {
  *rates = {97, 40};
  return SUCCESS;
}

int nvmlDeviceGetMemoryInfo_v2(Device*, Memory* memory) {
  const unsigned long long total = static_cast<unsigned long long>(virtual_cuda::memory_mib()) << 20;
  memory->total = total;
  memory->used = total / 4;
  memory->free = total - memory->used;
  return SUCCESS;
}

int nvmlDeviceGetTotalEccErrors(Device* device, int type, int, unsigned long long* count) {
  constexpr int UNCORRECTED = 1;
  *count = type == UNCORRECTED ? std::stoull(fault(device, "VIRTUAL_CUDA_ECC_ERRORS", "0")) : 0;
  return SUCCESS;
}

// 2 GB/s to the GPU, 1 GB/s from it.
int nvmlDeviceGetPcieThroughput(Device*, int counter, unsigned* kilobytes_per_second) {
  *kilobytes_per_second = counter == 0 ? 1000000 : 2000000;
  return SUCCESS;
}

// NVLink: one MiB more over all links; single links are not supported. The other fields have 32 bits, as in some
// drivers.
int nvmlDeviceGetFieldValues(Device* device, int count, FieldValue* values) {
  for (FieldValue* value = values; value != values + count; ++value) {
    if (value->field >= device->readings_of_field.size()) {
      value->status = NOT_SUPPORTED;
      continue;
    }
    const std::uint64_t reading = ++device->readings_of_field[value->field];
    if (value->field == NVLINK_SENT || value->field == NVLINK_RECEIVED) {
      value->status = value->scope == ALL_LINKS ? SUCCESS : INVALID_ARGUMENT;
      value->type = UNSIGNED_LONG_LONG;
      value->value.ull = 1024 * reading;
    } else {
      value->status = value->scope == 0 ? SUCCESS : INVALID_ARGUMENT;
      value->type = UNSIGNED_INT;
      value->value.u = static_cast<unsigned>(reading);
    }
  }
  return SUCCESS;
}

}  // extern "C"

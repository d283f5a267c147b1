// libcuda.so.1: the questions that are asked before libtorch is loaded.

#include <cstdio>

#include "settings.h"

namespace {

enum Result { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_DEVICE = 101 };

// CUdevice_attribute.
enum Attribute {
  MULTIPROCESSOR_COUNT = 16,
  PCI_BUS_ID = 33,
  PCI_DEVICE_ID = 34,
  PCI_DOMAIN_ID = 50,
  COMPUTE_CAPABILITY_MAJOR = 75,
  COMPUTE_CAPABILITY_MINOR = 76,
};

bool is_device(int device) { return device >= 0 && device < virtual_cuda::device_count(); }

}  // namespace

extern "C" {

Result cuInit(unsigned) { return virtual_cuda::device_count() > 0 ? SUCCESS : NO_DEVICE; }

Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return SUCCESS;
}

Result cuDeviceGetCount(int* count) {
  *count = virtual_cuda::device_count();
  return SUCCESS;
}

Result cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return is_device(ordinal) ? SUCCESS : INVALID_DEVICE;
}

Result cuDeviceGetName(char* name, int length, int device) {
  std::snprintf(name, length, "%s", virtual_cuda::device_name().c_str());
  return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

Result cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) {
    return INVALID_DEVICE;
  }
  switch (attribute) {
    case COMPUTE_CAPABILITY_MAJOR: *value = 9; return SUCCESS;
    case COMPUTE_CAPABILITY_MINOR: *value = 0; return SUCCESS;
    case MULTIPROCESSOR_COUNT: *value = 1; return SUCCESS;
    case PCI_BUS_ID: *value = virtual_cuda::FIRST_BUS + device; return SUCCESS;
    case PCI_DEVICE_ID:
    case PCI_DOMAIN_ID: *value = 0; return SUCCESS;
    default: return INVALID_VALUE;
  }
}

Result cuDeviceTotalMem_v2(std::size_t* bytes, int device) {
  *bytes = std::size_t(80) << 30;
  return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

Result cuGetErrorString(Result result, const char** text) {
  *text = result == SUCCESS ? "no error" : result == NO_DEVICE ? "no CUDA-capable device is detected" : "invalid argument";
  return SUCCESS;
}

Result cuGetErrorName(Result result, const char** text) {
  *text = result == SUCCESS ? "CUDA_SUCCESS" : result == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_INVALID_VALUE";
  return SUCCESS;
}

}  // extern "C"

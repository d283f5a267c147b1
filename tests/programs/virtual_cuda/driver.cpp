// libcuda.so.1: queries made before libtorch is loaded, and modules, launches, streams, events and memory.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "launch.h"
#include "machine.h"
#include "recording.h"
#include "settings.h"

using virtual_cuda::Event;
using virtual_cuda::Function;
using virtual_cuda::Launch;
using virtual_cuda::LaunchError;
using virtual_cuda::Machine;
using virtual_cuda::Module;
using virtual_cuda::Recording;
using virtual_cuda::Stream;

namespace {

// An int, because newer drivers have results that are not listed here.
using Result = int;
// CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, and its maximum for compute capability 9.0.
constexpr int MAX_DYNAMIC_SHARED_SIZE_BYTES = 8, MOST_SHARED_BYTES = 227 * 1024;

constexpr Result SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, INVALID_DEVICE = 101,
                 INVALID_IMAGE = 200, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
                 ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719;

struct Named {
  Result result;
  const char* name;
  const char* text;
};

constexpr Named NAMES[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
};

const Named* named(Result result) {
  for (const Named& one : NAMES) {
    if (one.result == result) {
      return &one;
    }
  }
  return nullptr;
}

// CUdevice_attribute.
enum Attribute {
  MAX_THREADS_PER_BLOCK = 1,
  MAX_SHARED_MEMORY_PER_BLOCK = 8,
  WARP_SIZE = 10,
  MULTIPROCESSOR_COUNT = 16,
  PCI_BUS_ID = 33,
  PCI_DEVICE_ID = 34,
  PCI_DOMAIN_ID = 50,
  L2_CACHE_BYTES = 38,
  MAX_THREADS_PER_MULTIPROCESSOR = 39,
  COMPUTE_CAPABILITY_MAJOR = 75,
  COMPUTE_CAPABILITY_MINOR = 76,
};

bool is_device(int device) { return device >= 0 && device < virtual_cuda::device_count(); }

// Array of which contexts are addresses: the primary context of each device.
char contexts[64];

int device_of(void* context) { return static_cast<int>(static_cast<char*>(context) - contexts); }

// Runs `body` in a thread with a context. Prints an exception to standard error and converts it to a result.
template <typename Body>
Result guarded(Body body) {
  if (!Machine::get().has_context()) {
    return INVALID_CONTEXT;
  }
  try {
    return body();
  } catch (const LaunchError& error) {
    std::fprintf(stderr, "virtual CUDA: %s\n", error.what());
    return error.result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "virtual CUDA: %s\n", error.what());
    return LAUNCH_FAILED;
  }
}

// The same on a stream.
template <typename Body>
Result guarded(void* handle, Body body) {
  return guarded([&] {
    // 1 is another name of the legacy default stream.
    Stream* const stream = Machine::get().stream_of(reinterpret_cast<std::size_t>(handle) == 1 ? nullptr : handle);
    return stream == nullptr ? INVALID_HANDLE : body(*stream);
  });
}

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
    case MULTIPROCESSOR_COUNT: *value = virtual_cuda::MULTIPROCESSORS; return SUCCESS;
    case MAX_THREADS_PER_BLOCK: *value = 1024; return SUCCESS;
    case MAX_SHARED_MEMORY_PER_BLOCK: *value = 48 << 10; return SUCCESS;
    case WARP_SIZE: *value = 32; return SUCCESS;
    case L2_CACHE_BYTES: *value = 1 << 20; return SUCCESS;
    case MAX_THREADS_PER_MULTIPROCESSOR: *value = 2048; return SUCCESS;
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
  const Named* const one = named(result);
  *text = one == nullptr ? nullptr : one->text;
  return one == nullptr ? INVALID_VALUE : SUCCESS;
}

Result cuGetErrorName(Result result, const char** text) {
  const Named* const one = named(result);
  *text = one == nullptr ? nullptr : one->name;
  return one == nullptr ? INVALID_VALUE : SUCCESS;
}

// --- contexts -------------------------------------------------------------------------------------------------------

Result cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = contexts + device;
  return is_device(device) ? SUCCESS : INVALID_DEVICE;
}

Result cuDevicePrimaryCtxRelease_v2(int device) { return is_device(device) ? SUCCESS : INVALID_DEVICE; }

Result cuCtxGetCurrent(void** context) {
  *context = Machine::get().has_context() ? contexts + Machine::get().device() : nullptr;
  return SUCCESS;
}

Result cuCtxSetCurrent(void* context) {
  if (context == nullptr) {
    Machine::get().drop_context();
    return SUCCESS;
  }
  if (!is_device(device_of(context))) {
    return INVALID_CONTEXT;
  }
  Machine::get().set_device(device_of(context));
  return SUCCESS;
}

Result cuCtxGetDevice(int* device) {
  return guarded([&] {
    *device = Machine::get().device();
    return SUCCESS;
  });
}

Result cuCtxSynchronize() {
  return guarded([&] {
    Machine::get().synchronize_device(Machine::get().device());
    return SUCCESS;
  });
}

// --- modules and launches -------------------------------------------------------------------------------------------

Result cuModuleLoadData(Module** module, const void* image) {
  return guarded([&] {
    *module = new Module(image, Machine::get().device());
    return SUCCESS;
  });
}

Result cuModuleUnload(Module* module) {
  return guarded([&] {
    delete module;
    return SUCCESS;
  });
}

Result cuModuleGetFunction(Function** function, Module* module, const char* name) {
  return guarded([&] {
    *function = module->find(name);
    return *function == nullptr ? NOT_FOUND : SUCCESS;
  });
}

Result cuFuncSetAttribute(Function* function, int attribute, int value) {
  return guarded([&] {
    if (attribute != MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 || value > MOST_SHARED_BYTES) {
      return INVALID_VALUE;
    }
    function->most_shared_bytes = value;
    return SUCCESS;
  });
}

Result cuLaunchKernel(
    const Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
    unsigned block_z, unsigned shared_bytes, void* stream, void** parameters, void** extra) {
  return guarded(stream, [&](Stream& stream) {
    if (function == nullptr) {
      return INVALID_HANDLE;
    }
    if (shared_bytes > function->most_shared_bytes || extra != nullptr) {
      throw LaunchError{INVALID_VALUE, "more dynamic shared memory than the function has, or packed parameters, which are not there"};
    }
    Launch(*function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, parameters).run(stream);
    return SUCCESS;
  });
}

// --- streams and events ---------------------------------------------------------------------------------------------

Result cuStreamCreate(Stream** stream, unsigned) {
  return guarded([&] {
    *stream = &Machine::get().new_stream(Machine::get().device());
    return SUCCESS;
  });
}

// Streams live as long as the process.
Result cuStreamDestroy_v2(void* stream) {
  return guarded(stream, [](Stream&) { return SUCCESS; });
}

Result cuStreamSynchronize(void* stream) {
  return guarded(stream, [](Stream& stream) {
    Machine::get().synchronize(stream);
    return SUCCESS;
  });
}

Result cuStreamWaitEvent(void* stream, const Event* event, unsigned) {
  return guarded(stream, [&](Stream& stream) {
    Machine::get().wait(stream, *event);
    return SUCCESS;
  });
}

Result cuEventCreate(Event** event, unsigned flags) {
  constexpr unsigned DISABLE_TIMING = 2;
  return guarded([&] {
    *event = new Event();
    (*event)->has_timing = (flags & DISABLE_TIMING) == 0;
    return SUCCESS;
  });
}

Result cuEventDestroy_v2(Event* event) {
  return guarded([&] {
    delete event;
    return SUCCESS;
  });
}

Result cuEventRecord(Event* event, void* stream) {
  return guarded(stream, [&](Stream& stream) {
    Machine::get().record(*event, stream);
    return SUCCESS;
  });
}

// --- graphs ---------------------------------------------------------------------------------------------------------

Result cuStreamBeginCapture_v2(void* stream, int) {
  return guarded(stream, [](Stream& stream) {
    (new Recording())->begin(stream);
    return SUCCESS;
  });
}

Result cuStreamEndCapture(void* stream, Recording** graph) {
  return guarded(stream, [&](Stream& stream) {
    *graph = stream.recording;
    if (*graph == nullptr) {
      return INVALID_VALUE;
    }
    (*graph)->end();
    return SUCCESS;
  });
}

Result cuGraphInstantiateWithFlags(Recording** runnable, Recording* graph, unsigned long long) {
  *runnable = graph;
  return SUCCESS;
}

Result cuGraphLaunch(Recording* runnable, void* stream) {
  return guarded(stream, [&](Stream& stream) {
    runnable->replay(stream);
    return SUCCESS;
  });
}

// --- memory ---------------------------------------------------------------------------------------------------------

// A block of memory of the current device, with NaN in every float, and the stream that allocated it.
struct Block {
  Stream* stream;
  alignas(512) char bytes[];
};

Result cuMemAlloc_v2(void** data, std::size_t bytes) {
  return guarded([&] {
    void* memory = nullptr;
    if (bytes == 0 || posix_memalign(&memory, alignof(Block), sizeof(Block) + bytes) != 0) {
      return bytes == 0 ? INVALID_VALUE : OUT_OF_MEMORY;
    }
    auto* const block = static_cast<Block*>(memory);
    std::memset(block->bytes, 0xff, bytes);
    block->stream = &Machine::get().allocated(block->bytes, bytes);
    *data = block->bytes;
    return SUCCESS;
  });
}

Result cuMemFree_v2(char* data) {
  return guarded([&] {
    auto* const block = reinterpret_cast<Block*>(data - offsetof(Block, bytes));
    Machine::get().synchronize_device(block->stream->device);
    Machine::get().freed(data, *block->stream);
    std::free(block);
    return SUCCESS;
  });
}

// From pageable memory: the host waits.
Result cuMemcpyHtoD_v2(char* device, const void* host, std::size_t bytes) {
  return guarded(nullptr, [&](Stream& stream) {
    std::memcpy(device, host, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(device);
    Machine::get().run(stream, "cuMemcpyHtoD", {{begin, begin + bytes, /*writes=*/true}});
    Machine::get().synchronize(stream);
    return SUCCESS;
  });
}

Result cuMemcpyDtoH_v2(void* host, const char* device, std::size_t bytes) {
  return guarded(nullptr, [&](Stream& stream) {
    std::memcpy(host, device, bytes);
    const auto begin = reinterpret_cast<std::uintptr_t>(device);
    Machine::get().run(stream, "cuMemcpyDtoH", {{begin, begin + bytes, /*writes=*/false}});
    Machine::get().synchronize(stream);
    return SUCCESS;
  });
}

}  // extern "C"

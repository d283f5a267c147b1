// Runs kernels through the driver and NVRTC, for C++ tests that tests/virtual_cuda/kernels.rs compiles and runs. That
// file defines KERNELS (folder of the worker's kernels), CHECK_FOLDER (this folder) and KERNEL_CACHE. Every function
// exits with a message if a call fails.
//
// A kernel test is a program that compiles `prelude() + kernel_file("x.cu")`, creates `Kernels` from the cubin and
// `Buffer`s, launches, and compares the values with those in fp64 (norm.cpp, pointwise.cpp);
// tests/virtual_cuda/kernels.rs runs it in every order of threads.

#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
int nvrtcVersion(int*, int*);
int nvrtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int nvrtcCompileProgram(void*, int, const char* const*);
int nvrtcGetProgramLogSize(void*, std::size_t*);
int nvrtcGetProgramLog(void*, char*);
int nvrtcGetCUBINSize(void*, std::size_t*);
int nvrtcGetCUBIN(void*, char*);
int nvrtcDestroyProgram(void**);
const char* nvrtcGetErrorString(int);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxGetCurrent(void**);
int cuCtxSetCurrent(void*);
int cuGetErrorName(int, const char**);
int cuModuleLoadData(void**, const void*);
int cuModuleUnload(void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuFuncSetAttribute(void*, int, int);
int cuLaunchKernel(
    void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
int cuStreamCreate(void**, unsigned);
int cuStreamSynchronize(void*);
int cuStreamWaitEvent(void*, void*, unsigned);
int cuEventCreate(void**, unsigned);
int cuEventRecord(void*, void*);
int cuStreamBeginCapture_v2(void*, int);
int cuStreamEndCapture(void*, void**);
int cuGraphInstantiateWithFlags(void**, void*, unsigned long long);
int cuGraphLaunch(void*, void*);
int cuMemAlloc_v2(void**, std::size_t);
int cuMemFree_v2(void*);
int cuMemcpyHtoD_v2(void*, const void*, std::size_t);
int cuMemcpyDtoH_v2(void*, const void*, std::size_t);
}

namespace harness {

inline void expect(bool holds, const std::string& what) {
  if (!holds) {
    std::fprintf(stderr, "FAILED: %s\n", what.c_str());
    std::exit(1);
  }
}

inline std::string name_of(int result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return name == nullptr ? std::to_string(result) : name;
}

inline void check(int result, const char* call) { expect(result == 0, std::string(call) + ": " + name_of(result)); }

#define CHECK(...) harness::check(__VA_ARGS__, #__VA_ARGS__)

inline std::string contents(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  expect(!text.str().empty(), "cannot read " + path);
  return text.str();
}

inline std::string kernel_file(const std::string& name) { return contents(KERNELS "/" + name); }
inline std::string prelude() { return kernel_file("prelude.cuh"); }

// Returns the cubin, or an empty string and the log.
inline std::string compile(const std::string& source, std::vector<const char*> options, std::string* log = nullptr) {
  options.insert(options.end(), {"--gpu-architecture=sm_90", "--std=c++17", "-default-device"});
  void* program = nullptr;
  CHECK(nvrtcCreateProgram(&program, source.c_str(), "kernels.cu", 0, nullptr, nullptr));
  const int result = nvrtcCompileProgram(program, static_cast<int>(options.size()), options.data());
  std::size_t bytes = 0;
  CHECK(nvrtcGetProgramLogSize(program, &bytes));
  std::string text(bytes, '\0');
  CHECK(nvrtcGetProgramLog(program, text.data()));
  text.resize(bytes - 1);
  CHECK(nvrtcGetCUBINSize(program, &bytes));
  std::string cubin(bytes, '\0');
  CHECK(nvrtcGetCUBIN(program, cubin.data()));
  CHECK(nvrtcDestroyProgram(&program));
  if (log != nullptr) {
    *log = text;
  } else {
    expect(result == 0, std::string(nvrtcGetErrorString(result)) + "\n" + text);
  }
  return result == 0 ? cubin : "";
}

// The same, cached in the folder KERNEL_CACHE: compilation takes seconds, and every case runs in its own process.
inline std::string compile_once(const std::string& source, const std::vector<const char*>& options) {
  int major = 0, minor = 0;
  CHECK(nvrtcVersion(&major, &minor));
  std::string key = source + std::to_string(minor);
  for (const char* option : options) {
    key += option;
  }
  const std::string file = KERNEL_CACHE "/" + std::to_string(std::hash<std::string>()(key)) + ".cubin";
  if (std::ifstream(file).good()) {
    return contents(file);
  }
  const std::string cubin = compile(source, options), unfinished = file + "." + std::to_string(getpid());
  std::ofstream(unfinished, std::ios::binary) << cubin;
  expect(std::rename(unfinished.c_str(), file.c_str()) == 0, "cannot write " + file);
  return cubin;
}

struct Grid {
  unsigned x = 1, y = 1, z = 1;
  // Bytes of dynamic shared memory, for a grid of blocks.
  unsigned shared = 0;
};

// Device memory with the values of a vector. Requires a context, which `Kernels` creates.
template <typename T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& values) : count_(values.size()) {
    CHECK(cuMemAlloc_v2(&data_, count_ * sizeof(T)));
    CHECK(cuMemcpyHtoD_v2(data_, values.data(), count_ * sizeof(T)));
  }
  ~Buffer() { cuMemFree_v2(data_); }

  Buffer(const Buffer&) = delete;

  operator T*() const { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> values(count_);
    CHECK(cuMemcpyDtoH_v2(values.data(), data_, count_ * sizeof(T)));
    return values;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

template <typename T>
const T* in(const Buffer<T>& buffer) {
  return buffer;
}
template <typename T>
T* out(const Buffer<T>& buffer) {
  return buffer;
}

// Device 0 with the kernels of one source.
class Kernels {
 public:
  explicit Kernels(const std::string& cubin) {
    void* context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module_, cubin.data()));
  }

  // Returns the driver's result. Arguments must have exactly the types of the kernel's parameters.
  template <typename... A>
  int launch(const char* name, Grid grid, Grid block, void* stream, A... arguments) const {
    void* function = nullptr;
    CHECK(cuModuleGetFunction(&function, module_, name));
    if (grid.shared > 0) {
      // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
      CHECK(cuFuncSetAttribute(function, 8, static_cast<int>(grid.shared)));
    }
    void* values[] = {&arguments...};
    return cuLaunchKernel(
        function, grid.x, grid.y, grid.z, block.x, block.y, block.z, grid.shared, stream, values, nullptr);
  }

 private:
  void* module_ = nullptr;
};

// Returns the cubin of `source`, from a file in the folder of the second argument if it exists: each order of threads
// is a separate process, and compilation takes longer than the kernels.
inline std::string cached(int count, char** arguments, const std::string& source, const std::string& element) {
  expect(count == 3, "the arguments must be a case and a folder");
  const std::string path = std::string(arguments[2]) + "/" + element;
  if (std::ifstream(path).good()) {
    return contents(path);
  }
  const std::string option = "-DELEMENT_" + element;
  const std::string cubin = compile(source, {option.c_str()});
  std::ofstream(path, std::ios::binary) << cubin;
  return cubin;
}

// Runs the case named by the program's only argument.
inline int run_case(int count, char** arguments, const std::map<std::string, std::function<void()>>& cases) {
  const auto found = count == 2 ? cases.find(arguments[1]) : cases.end();
  expect(found != cases.end(), "the argument must be a case of this program");
  found->second();
  return 0;
}

}  // namespace harness

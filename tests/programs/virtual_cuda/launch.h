// Modules with kernels, and launches of them.

#pragma once

#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "access_log.h"
#include "kernel_image.h"
#include "machine.h"

namespace virtual_cuda {

// An error of the driver, with its number (CUresult).
struct LaunchError : std::runtime_error {
  LaunchError(int result, const std::string& text) : std::runtime_error(text), result(result) {}

  int result;
};

struct Module;

struct Function {
  const Module* module;
  // Lives as long as the process, as the machine wants it.
  const char* name;
  const Kernel* kernel;
  // Limit of a launch's dynamic shared memory: 48 KiB unless cuFuncSetAttribute raises it.
  unsigned most_shared_bytes = 48 * 1024;
};

// A cubin in the context of a device.
struct Module {
  // `image` is what libnvrtc.so.13 made; throws LaunchError.
  Module(const void* image, int device);
  ~Module();
  Module(const Module&) = delete;

  // Null if there is no such kernel.
  Function* find(const std::string& name);

  const int device;
  void* library;
  const Image* image;
  // Open as long as the library: the loader takes two files of the same path for one.
  int descriptor;
  std::map<std::string, Function> functions;
};

// A kernel with its grid and a copy of its parameters' values: can be run now, or kept and run again.
class Launch {
 public:
  // `values` are the addresses of the values, as cuLaunchKernel has them; throws LaunchError.
  Launch(const Function& function, Dim3 grid, Dim3 block, void* const* values);

  const Function& function() const { return function_; }

  // Runs the kernel at once, as one kernel of `stream`; a stream that is captured keeps it instead. Throws LaunchError.
  void run(Stream& stream) const;

 private:
  // Values of the parameters that are pointers.
  std::vector<Pointer> pointers() const;
  // Address of the value of parameter `index`.
  const char* value(int index) const { return values_.data() + offsets_[index]; }

  Function function_;
  Dim3 grid_;
  Dim3 block_;
  std::vector<char> values_;
  std::vector<std::size_t> offsets_;
};

}  // namespace virtual_cuda

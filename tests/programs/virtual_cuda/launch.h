// Modules with kernels, and their launches.

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
  // Must be valid as long as the process lives.
  const char* name;
  const Kernel* kernel;
  // Limit of a launch's dynamic shared memory: 48 KiB unless cuFuncSetAttribute raises it.
  unsigned most_shared_bytes = 48 * 1024;
};

// A cubin in the context of a device.
struct Module {
  // `image` is an output of libnvrtc.so.13; throws LaunchError.
  Module(const void* image, int device);
  ~Module();
  Module(const Module&) = delete;

  // Returns null if there is no such kernel.
  Function* find(const std::string& name);

  const int device;
  void* library;
  const Image* image;
  // Kept open as long as the library: the loader treats two files with the same path as one.
  int descriptor;
  std::map<std::string, Function> functions;
};

// A kernel with its grid and a copy of its parameters' values: can be run now, or stored and run again.
class Launch {
 public:
  // `values` are the addresses of the values, as for cuLaunchKernel; throws LaunchError.
  Launch(const Function& function, Dim3 grid, Dim3 block, void* const* values);

  const Function& function() const { return function_; }

  // Runs the kernel at once, as one kernel of `stream`, or adds it to the stream's capture. Throws LaunchError.
  void run(Stream& stream) const;

 private:
  // Returns the values of pointer parameters.
  std::vector<Pointer> pointers() const;
  // Returns the address of the value of parameter `index`.
  const char* value(int index) const { return values_.data() + offsets_[index]; }

  Function function_;
  Dim3 grid_;
  Dim3 block_;
  std::vector<char> values_;
  std::vector<std::size_t> offsets_;
};

}  // namespace virtual_cuda

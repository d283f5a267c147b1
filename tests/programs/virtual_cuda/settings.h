// Settings of the virtual GPUs: environment variables, which apply to a job, or lines NAME=VALUE in a file in
// /dev/shm, which each host of a test has separately. Used by all libraries and programs built here.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace virtual_cuda {

constexpr const char* SETTINGS_OF_HOST = "/dev/shm/virtual_cuda";

inline std::string text_setting(const char* name, const char* otherwise) {
  if (const char* text = std::getenv(name); text != nullptr && *text != '\0') {
    return text;
  }
  const std::string start = std::string(name) + '=';
  std::ifstream file(SETTINGS_OF_HOST);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, start.size(), start) == 0) {
      return line.substr(start.size());
    }
  }
  return otherwise;
}

inline double setting(const char* name, double otherwise) {
  const std::string text = text_setting(name, "");
  return text.empty() ? otherwise : std::strtod(text.c_str(), nullptr);
}

// PCI bus of the first GPU; the others follow.
constexpr int FIRST_BUS = 16;

inline int installed_devices() { return static_cast<int>(setting("VIRTUAL_CUDA_DEVICES", 8)); }

// Number of GPUs visible to this process: CUDA_VISIBLE_DEVICES may hide some.
inline int device_count() {
  const int all = installed_devices();
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr) {
    return all;
  }
  int count = *visible == '\0' ? 0 : 1;
  for (const char* letter = visible; *letter != '\0'; ++letter) {
    count += *letter == ',';
  }
  return count < all ? count : all;
}

inline std::string device_name() { return text_setting("VIRTUAL_CUDA_NAME", "Virtual GPU"); }

// Returns a whole number; 0 if not set.
inline std::uint64_t count_of(const char* name) { return static_cast<std::uint64_t>(setting(name, 0)); }

// Enough for a kernel to have several blocks.
constexpr int MULTIPROCESSORS = 4;

// Memory of every GPU, the same as that of an H100.
inline int memory_mib() { return static_cast<int>(setting("VIRTUAL_CUDA_MEMORY_MIB", 81559)); }

// Returns true if the simulated faults apply to this GPU; they apply to all unless one is selected.
inline bool is_faulty(int device) {
  static const double named = setting("VIRTUAL_CUDA_FAULTY_DEVICE", -1);
  return named < 0 || named == device;
}

struct Settings {
  // Virtual time of every kernel, and its factor on a faulty GPU.
  std::uint64_t kernel_ns = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_KERNEL_NS", 1000));
  double slow_factor = setting("VIRTUAL_CUDA_SLOW_FACTOR", 1);
  // Virtual time of a collective: a constant, and a time per byte.
  std::uint64_t wire_ns = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_WIRE_NS", 0));
  double wire_ns_per_byte = setting("VIRTUAL_CUDA_WIRE_NS_PER_BYTE", 0.1);
  // One of this many collectives takes ten times as long; 0 is never.
  std::uint64_t long_sum = count_of("VIRTUAL_CUDA_LONG_SUM");
  // Number of times that a query of a completed event returns "not ready".
  int late_answers = static_cast<int>(setting("VIRTUAL_CUDA_LATE_ANSWERS", 1));
  // False if a query orders no later work, to test a wait that is only needed if the host did not query.
  bool queries_order = setting("VIRTUAL_CUDA_QUERIES_ORDER", 1) != 0;
  // True if events are reported done before they are, to test that a host that reads too early is detected.
  bool early_answers = setting("VIRTUAL_CUDA_EARLY_ANSWERS", 0) != 0;
  // Number of the stream wait that is ignored, from 1; 0 is none. Tests that a missing wait is detected.
  std::uint64_t ignored_wait = count_of("VIRTUAL_CUDA_IGNORED_WAIT");
  // Collective after which NCCL detects that another rank is gone, from 1; 0 is never.
  std::uint64_t failing_sum = count_of("VIRTUAL_CUDA_FAILING_SUM");
  // True if ranks are connected by sockets, by which NCCL detects at once that a process has exited.
  bool has_sockets = setting("VIRTUAL_CUDA_SOCKETS", 0) != 0;
  // Collective that never ends on a faulty GPU, from 1; 0 is none.
  std::uint64_t hanging_sum = count_of("VIRTUAL_CUDA_HANGING_SUM");
  // Kernel from which on a faulty GPU only returns errors, from 1; 0 is none.
  std::uint64_t failing_kernel = count_of("VIRTUAL_CUDA_FAILING_KERNEL");
  // Capture from which on captures on a faulty GPU fail, from 1; 0 is none.
  std::uint64_t broken_capture = count_of("VIRTUAL_CUDA_BROKEN_CAPTURE");
  // cuDNN's convolution with ReLU: `kernel`, `none`, or `nan` for one that reads uninitialized output.
  std::string fused_convolution = text_setting("VIRTUAL_CUDA_FUSED_CONVOLUTION", "kernel");
  // Order of a kernel's threads between barriers, and of its blocks: forwards, backwards or shuffled.
  std::string threads = text_setting("VIRTUAL_CUDA_THREADS", "forwards");
  // Bytes of memory of every GPU.
  std::uint64_t memory = static_cast<std::uint64_t>(memory_mib()) << 20;
  // File to which the process writes a line for every call that enqueues or orders work.
  std::string calls = text_setting("VIRTUAL_CUDA_CALLS", "");
  // File to which each process appends a line of JSON when it exits.
  std::string report = text_setting("VIRTUAL_CUDA_REPORT", "");
};

}  // namespace virtual_cuda

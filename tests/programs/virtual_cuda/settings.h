// What a test asks of the virtual GPUs: by environment variables, which hold for a job, or by lines NAME=VALUE in a file of
// the memory that every host of a test has to itself, which hold for that host. Read by all that is built here.

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

// GPUs of this host.
inline int installed_devices() { return static_cast<int>(setting("VIRTUAL_CUDA_DEVICES", 8)); }

// GPUs that this process sees: CUDA_VISIBLE_DEVICES may show fewer.
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

// A whole number; 0 where none is set.
inline std::uint64_t count_of(const char* name) { return static_cast<std::uint64_t>(setting(name, 0)); }

// Enough for a kernel to have several blocks.
constexpr int MULTIPROCESSORS = 4;

// Memory of every GPU; as much as an H100 has.
inline int memory_mib() { return static_cast<int>(setting("VIRTUAL_CUDA_MEMORY_MIB", 81559)); }

// Whether what is wrong with a GPU is wrong with this one; it is with all, unless one is named.
inline bool is_faulty(int device) {
  static const double named = setting("VIRTUAL_CUDA_FAULTY_DEVICE", -1);
  return named < 0 || named == device;
}

struct Settings {
  // Virtual time that every kernel takes, and how much more on a faulty GPU.
  std::uint64_t kernel_ns = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_KERNEL_NS", 1000));
  double slow_factor = setting("VIRTUAL_CUDA_SLOW_FACTOR", 1);
  // Virtual time of a sum over the ranks: of each, and of each byte of it.
  std::uint64_t wire_ns = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_WIRE_NS", 0));
  double wire_ns_per_byte = setting("VIRTUAL_CUDA_WIRE_NS_PER_BYTE", 0.1);
  // Every so many sums one takes ten times as long; 0 is never.
  std::uint64_t long_sum = count_of("VIRTUAL_CUDA_LONG_SUM");
  // How often a question for an event is answered with no, although the work before it is done.
  int late_answers = static_cast<int>(setting("VIRTUAL_CUDA_LATE_ANSWERS", 1));
  // Whether events are said to be done when they are not: to prove that a host that reads too early is found.
  bool early_answers = setting("VIRTUAL_CUDA_EARLY_ANSWERS", 0) != 0;
  // The wait of a stream for an event that is left out, from 1; 0 leaves out none. To prove that leaving it out is found.
  std::uint64_t ignored_wait = count_of("VIRTUAL_CUDA_IGNORED_WAIT");
  // The sum after which NCCL finds, by itself, that another rank is gone, from 1; 0 never.
  std::uint64_t failing_sum = count_of("VIRTUAL_CUDA_FAILING_SUM");
  // Whether ranks talk by sockets, by which NCCL learns at once that another's process is gone.
  bool has_sockets = setting("VIRTUAL_CUDA_SOCKETS", 0) != 0;
  // The sum that never ends on a faulty GPU, from 1; 0 is none.
  std::uint64_t hanging_sum = count_of("VIRTUAL_CUDA_HANGING_SUM");
  // The kernel from which on a faulty GPU answers nothing but an error, from 1; 0 is none.
  std::uint64_t failing_kernel = count_of("VIRTUAL_CUDA_FAILING_KERNEL");
  // The capture from which on captures on a faulty GPU fail, from 1; 0 is none.
  std::uint64_t broken_capture = count_of("VIRTUAL_CUDA_BROKEN_CAPTURE");
  // cuDNN's convolution with ReLU: `kernel`, `none`, or `nan` for one that reads uninitialized output.
  std::string fused_convolution = text_setting("VIRTUAL_CUDA_FUSED_CONVOLUTION", "kernel");
  // Order of a kernel's threads between barriers, and of its blocks: forwards, backwards or shuffled.
  std::string threads = text_setting("VIRTUAL_CUDA_THREADS", "forwards");
  // Bytes of every GPU.
  std::uint64_t memory = static_cast<std::uint64_t>(memory_mib()) << 20;
  // File that the process writes a line to for every call that enqueues something or orders it.
  std::string calls = text_setting("VIRTUAL_CUDA_CALLS", "");
  // File that each process adds a line of JSON to when it ends.
  std::string report = text_setting("VIRTUAL_CUDA_REPORT", "");
};

}  // namespace virtual_cuda

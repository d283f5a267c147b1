// What a test asks of the virtual GPUs, by environment variables. Read by all three libraries.

#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace virtual_cuda {

inline double setting(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtod(text, nullptr);
}

// GPUs of this host; CUDA_VISIBLE_DEVICES may show fewer.
inline int device_count() {
  const int all = static_cast<int>(setting("VIRTUAL_CUDA_DEVICES", 8));
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

struct Settings {
  // Virtual time that every kernel takes.
  std::uint64_t kernel_ns = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_KERNEL_NS", 1000));
  // Virtual time of a sum over the ranks: of each, and of each byte of it.
  std::uint64_t wire_ns = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_WIRE_NS", 0));
  double wire_ns_per_byte = setting("VIRTUAL_CUDA_WIRE_NS_PER_BYTE", 0.1);
  // How often a question for an event is answered with no, although the work before it is done.
  int late_answers = static_cast<int>(setting("VIRTUAL_CUDA_LATE_ANSWERS", 1));
  // Whether events are said to be done when they are not: to prove that a host that reads too early is found.
  bool early_answers = setting("VIRTUAL_CUDA_EARLY_ANSWERS", 0) != 0;
  // The wait of a stream for an event that is left out, from 1; 0 leaves out none. To prove that leaving it out is found.
  std::uint64_t ignored_wait = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_IGNORED_WAIT", 0));
  // The sum after which NCCL finds, by itself, that another rank is gone, from 1; 0 never.
  std::uint64_t failing_sum = static_cast<std::uint64_t>(setting("VIRTUAL_CUDA_FAILING_SUM", 0));
  // File that the process writes a line to for every call that enqueues something or orders it.
  std::string calls = std::getenv("VIRTUAL_CUDA_CALLS") == nullptr ? "" : std::getenv("VIRTUAL_CUDA_CALLS");
  // File that each process adds a line of JSON to when it ends.
  std::string report = std::getenv("VIRTUAL_CUDA_REPORT") == nullptr ? "" : std::getenv("VIRTUAL_CUDA_REPORT");
};

}  // namespace virtual_cuda

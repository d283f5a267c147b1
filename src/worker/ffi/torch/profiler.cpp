// libtorch's profiler: the operators that its dispatcher calls on this thread and on the threads of backward, and on a
// GPU the kernels and copies, which CUPTI times.

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

#include "guarded.h"

namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

torch::profiler::impl::ProfilerConfig profiler_config() {
  return torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO);
}

// libkineto::ActivityType::CPU_OP and GPU_USER_ANNOTATION: its header is not part of libtorch's.
constexpr uint8_t CPU_OPERATOR = 0;
constexpr uint8_t GPU_ANNOTATION = 2;

}  // namespace

extern "C" {

using ProfiledEvent = void (*)(
    void* context, const char* name, size_t length, uint64_t begin_ns, uint64_t end_ns, uint64_t thread, int is_device);

char* ringmark_start_profiler(int has_gpu) {
  return guarded([&] {
    std::set<ActivityType> activities{ActivityType::CPU};
    if (has_gpu) {
      activities.insert(ActivityType::CUDA);
    }
    kineto::prepareProfiler(profiler_config(), activities);
    kineto::enableProfiler(profiler_config(), activities, {at::RecordScope::FUNCTION});
  });
}

// Calls `event` for each operator and kernel since the start, with times in nanoseconds since 1970. Must be called on
// the thread that started the profiler.
char* ringmark_stop_profiler(ProfiledEvent event, void* context) {
  return guarded([&] {
    const auto result = kineto::disableProfiler();
    for (const auto& found : result->events()) {
      const bool is_device = found.deviceType() != c10::DeviceType::CPU;
      const uint8_t kind = found.activityType();
      if (is_device ? kind == GPU_ANNOTATION : kind != CPU_OPERATOR) {
        continue;
      }
      const std::string name = found.name();
      const uint64_t thread = is_device ? static_cast<uint64_t>(found.deviceResourceId()) : found.startThreadId();
      event(context, name.data(), name.size(), found.startNs(), found.endNs(), thread, is_device);
    }
  });
}

}  // extern "C"

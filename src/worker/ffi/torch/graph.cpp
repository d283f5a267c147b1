// C interface to at::cuda::CUDAGraph. Its header requires the CUDA headers, so its members are looked up by name in the
// libtorch_cuda that this process has loaded. CUDAGraph also manages the allocator's private pool, which keeps the addresses
// of a graph's tensors valid, and advances the random number generators on replay.
//
// Functions that return a message return null on success.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "guarded.h"

namespace {

// c10::MempoolId_t, passed in two registers. One of the numbers is 0.
using Pool = std::pair<unsigned long long, unsigned long long>;

// cudaStreamCaptureModeThreadLocal. In the global mode a cudaEventQuery by any other thread would invalidate the capture.
constexpr int THREAD_LOCAL = 1;

// Upper bound of sizeof(CUDAGraph), which is 104 in libtorch 2.11.
constexpr std::size_t GRAPH_BYTES = 1024;

template <typename Function>
Function* find(const char* name) {
  // Already loaded: RTLD_NOLOAD finds it by its soname.
  static void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  TORCH_CHECK(library != nullptr, "libtorch_cuda is not loaded");
  void* const function = dlsym(library, name);
  TORCH_CHECK(function != nullptr, "libtorch_cuda has no ", name, ", which CUDA graphs need");
  return reinterpret_cast<Function*>(function);
}

// Member functions, with the object as the first argument (Itanium C++ ABI).
struct Members {
  void (*construct)(void*, bool keep_graph) = find<void(void*, bool)>("_ZN2at4cuda9CUDAGraphC1Eb");
  void (*destroy)(void*) = find<void(void*)>("_ZN2at4cuda9CUDAGraphD1Ev");
  void (*capture_begin)(void*, Pool, int) =
      find<void(void*, Pool, int)>("_ZN2at4cuda9CUDAGraph13capture_beginESt4pairIyyE21cudaStreamCaptureMode");
  void (*capture_end)(void*) = find<void(void*)>("_ZN2at4cuda9CUDAGraph11capture_endEv");
  void (*replay)(void*) = find<void(void*)>("_ZN2at4cuda9CUDAGraph6replayEv");
};

const Members& members() {
  static const Members all;
  return all;
}

struct Graph {
  Graph() { members().construct(memory, /*keep_graph=*/false); }
  ~Graph() { members().destroy(memory); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  alignas(64) unsigned char memory[GRAPH_BYTES];
};

}  // namespace

extern "C" {

// Creates a pool that graphs can share if they are replayed in the order of their capture.
char* ringmark_graph_pool(uint64_t* first, uint64_t* second) {
  return guarded([&] {
    const Pool pool = find<Pool()>("_ZN2at4cuda17graph_pool_handleEv")();
    *first = pool.first;
    *second = pool.second;
  });
}

// Starts to capture the current stream, which must not be the default stream.
char* ringmark_begin_capture(uint64_t first, uint64_t second, void** graph) {
  return guarded([&] {
    // The graph's pool cannot reuse memory that is cached for other streams.
    c10::getDeviceAllocator(c10::DeviceType::CUDA)->emptyCache();
    auto* const made = new Graph();
    // Leaked on failure: the allocator may keep a callback that refers to the graph.
    members().capture_begin(made->memory, Pool(first, second), THREAD_LOCAL);
    *graph = made;
  });
}

// Ends the capture on the stream where it began. On failure the graph must not be destroyed, for the same reason.
char* ringmark_end_capture(void* graph) {
  return guarded([&] { members().capture_end(static_cast<Graph*>(graph)->memory); });
}

// Launches the graph in the current stream, which may be any stream.
char* ringmark_replay(void* graph) {
  return guarded([&] { members().replay(static_cast<Graph*>(graph)->memory); });
}

// Enqueues a kernel that spins for `cycles` clock cycles.
char* ringmark_hold(int64_t cycles) {
  return guarded([&] { find<void(int64_t)>("_ZN2at4cuda5sleepEl")(cycles); });
}

void ringmark_destroy_graph(void* graph) { delete static_cast<Graph*>(graph); }

}  // extern "C"

// CUDA graphs of libtorch, as C functions: at::cuda::CUDAGraph, whose header wants CUDA's own, so that its members are
// looked up by name in the libtorch_cuda that this process has opened. With it come the allocator's pool for a graph, which
// keeps the addresses of what is computed, and random numbers that go on from replay to replay.
//
// Every function that returns a message returns null where all is well.

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "guarded.h"

namespace {

// c10::MempoolId_t: two numbers in registers, one of them 0.
using Pool = std::pair<unsigned long long, unsigned long long>;

// cudaStreamCaptureModeThreadLocal: other threads may go on to ask for events and memory, as NCCL's and the heartbeat's do.
constexpr int THREAD_LOCAL = 1;

// More than a CUDAGraph has in libtorch 2.11: 104 bytes.
constexpr std::size_t GRAPH_BYTES = 1024;

template <typename Function>
Function* find(const char* name) {
  // Opened already: by whatever path, it is found by its own name.
  static void* const library = dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD);
  TORCH_CHECK(library != nullptr, "libtorch_cuda is not loaded");
  void* const function = dlsym(library, name);
  TORCH_CHECK(function != nullptr, "libtorch_cuda has no ", name, ", which CUDA graphs need");
  return reinterpret_cast<Function*>(function);
}

// The members, the object as their first argument.
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

// Where graphs that are replayed in one order may share memory.
char* ringmark_graph_pool(uint64_t* first, uint64_t* second) {
  return guarded([&] {
    const Pool pool = find<Pool()>("_ZN2at4cuda17graph_pool_handleEv")();
    *first = pool.first;
    *second = pool.second;
  });
}

// From now on the current stream, which is not the default one, keeps what this thread gives it and does not run it.
char* ringmark_begin_capture(uint64_t first, uint64_t second, void** graph) {
  return guarded([&] {
    // What other streams have left over, the graph's own memory may need.
    c10::getDeviceAllocator(c10::DeviceType::CUDA)->emptyCache();
    auto* const made = new Graph();
    // Where it fails the graph stays: the allocator may ask it which stream it captures.
    members().capture_begin(made->memory, Pool(first, second), THREAD_LOCAL);
    *graph = made;
  });
}

// In the stream where it began. The graph of a capture that failed stays too.
char* ringmark_end_capture(void* graph) {
  return guarded([&] { members().capture_end(static_cast<Graph*>(graph)->memory); });
}

// In the current stream, whichever that is.
char* ringmark_replay(void* graph) {
  return guarded([&] { members().replay(static_cast<Graph*>(graph)->memory); });
}

// A kernel of the current stream that ends after so many cycles of its clock.
char* ringmark_hold(int64_t cycles) {
  return guarded([&] { find<void(int64_t)>("_ZN2at4cuda5sleepEl")(cycles); });
}

void ringmark_destroy_graph(void* graph) { delete static_cast<Graph*>(graph); }

}  // extern "C"

// Virtual GPUs of a process: streams and events as vector clocks on virtual time, and the errors detected with them.
//
// The host performs all work when it is enqueued. The clocks show other possible orders on a GPU: streams are ordered
// only by events and by waits of the host, never by duration. The host takes no virtual time, so all times are known
// in advance.
//
// A host that queries an event without waiting for it establishes no order for later work: the answer could have been
// different. It does receive the bytes that were copied to it.

#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "clock.h"
#include "memory.h"
#include "settings.h"

namespace virtual_cuda {

class Recording;
struct CapturedEvent;

struct Stream {
  StreamNumber number;
  int device;
  // Number on its device, as in libtorch; 0 is the default stream.
  std::int64_t id;
  // Virtual time at which its work is done.
  std::uint64_t now_ns;
  Clock clock;
  // Set while the stream is captured.
  Recording* recording = nullptr;
};

struct Event {
  int device = 0;
  // Numbered in the order of creation, from 1.
  std::uint64_t number = 0;
  bool has_timing = false;
  bool is_recorded = false;
  int late_answers = 0;
  std::uint64_t at_ns = 0;
  Clock clock;
  // Set if it was last recorded in a captured stream.
  std::shared_ptr<CapturedEvent> captured;
};

class Machine {
 public:
  // Lives as long as the process.
  static Machine& get();

  const Settings& settings() const { return settings_; }

  // --- devices and streams -----------------------------------------------------------------------------------------
  // Device of this thread.
  int device() const;
  void set_device(int device);
  // Returns true if the driver's functions work in this thread: it set a device, allocated memory or ran a kernel.
  bool has_context() const;
  void drop_context();
  Stream& current_stream(int device);
  void set_current_stream(Stream& stream);
  // Returns the stream with the native handle `handle`, where null is the default stream; null if it does not exist.
  Stream* stream_of(void* handle);

  Stream& stream(int device, std::int64_t id);
  Stream& new_stream(int device);
  std::uint64_t now(const Stream& stream);

  // --- work --------------------------------------------------------------------------------------------------------
  // Runs a kernel with this name in this stream.
  void run(Stream& stream, const char* kernel, const std::vector<Access>& accesses);
  // The same, with a known end time.
  void run_until(Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::uint64_t end_ns);
  // Runs a kernel whose result is copied to the host: `deliver` is called once the host has established that it is
  // done.
  void run_and_deliver(
      Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::function<void()> deliver);
  // The last work of this stream never ends, nor does any work after it.
  void hang(const Stream& stream);
  // Throws if the device is lost, when every CUDA call fails.
  void check(const Stream& stream);
  // Throws if the stream is being captured, and breaks the capture.
  static void expect_no_capture(const Stream& stream);
  // Throws if the event was last recorded in a captured stream.
  static void expect_no_capture(const Event& event);
  // Advances all streams of this process to `time_ns`, unless they are later.
  void go_on_from(std::uint64_t time_ns);

  // --- order -------------------------------------------------------------------------------------------------------
  void record(Event& event, Stream& stream);
  void wait(Stream& stream, const Event& event);
  bool is_done(Event& event);
  double milliseconds(const Event& start, const Event& end);
  // A query on another device than the event's would create a context there: counted as a race.
  void expect_device_of(const Event& event);
  // The host waits: work enqueued later is ordered after this.
  void synchronize(const Stream& stream);
  void synchronize(const Event& event);
  void synchronize_device(int device);

  // Adds a line to the list of calls, if requested.
  void log(const char* format, ...) __attribute__((format(printf, 2, 3)));

  // --- memory ------------------------------------------------------------------------------------------------------
  // Allocated by the current stream of the current device; returns that stream.
  Stream& allocated(const void* data, std::size_t bytes);
  void freed(const void* data, const Stream& allocator);
  // Returns begin and end of the block of device memory that contains `place`; zeros if there is none.
  std::pair<std::uintptr_t, std::uintptr_t> block_of(std::uintptr_t place);
  // Returns true if any device memory is allocated.
  bool has_memory();

  // Adds this process's line to the report.
  void report();

 private:
  Machine() = default;

  Stream& find(int device, std::int64_t id);
  void enqueue(Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::uint64_t end_ns);
  std::uint64_t kernel_ns(const Stream& stream) const;
  bool never_ends(const Clock& clock) const { return endless_.kernel != nullptr && endless_.is_before(clock); }
  void wait_on_host(const Clock& clock);
  // The host has established that everything before `clock` is done.
  void learn(const Clock& clock);
  void found(const Race& race, const char* kernel, const Stream& stream);

  struct Delivery {
    Point point;
    std::function<void()> deliver;
  };

  const Settings settings_;
  // Recursive: a delivery may free memory.
  std::recursive_mutex mutex_;
  // Never removed: libtorch's streams live as long as the process.
  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<std::pair<int, std::int64_t>, Stream*> by_id_;
  Memory memory_;
  // Work that the host has waited for, or that a queried event has shown to be done: later work is ordered after it.
  Clock host_;
  // Work that the host has waited for, or that a queried event has shown to be done.
  Clock known_;
  std::list<Delivery> deliveries_;
  // Without a kernel, all work ends.
  Point endless_;

  // File of the calls; opened at the first call.
  std::FILE* calls_ = nullptr;
  std::uint64_t events_ = 0;
  std::uint64_t kernels_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t synchronizations_ = 0;
  std::uint64_t races_ = 0;
};

}  // namespace virtual_cuda

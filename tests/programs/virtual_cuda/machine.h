// The virtual GPUs of a process: streams and events as vector clocks on virtual time, and what is found out with them.
//
// The host does all work at once, where it is enqueued. What another order of the same program could do on a GPU is told
// from the clocks: streams are ordered by events and by waits of the host alone, never by how long anything takes. The
// host takes no virtual time, so that every time is known beforehand.
//
// A host that asks an event, and does not wait for it, gets no order for what it enqueues later: the answer could have
// been another. It does get the bytes that were copied to it.

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
  // As libtorch counts them on a device; 0 is the default stream.
  std::int64_t id;
  // Virtual time at which its work is done.
  std::uint64_t now_ns;
  Clock clock;
  // Set while the stream is captured.
  Recording* recording = nullptr;
};

struct Event {
  int device = 0;
  // As they were made, from 1.
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
  // Lives until the process is gone.
  static Machine& get();

  const Settings& settings() const { return settings_; }

  // --- devices and streams -----------------------------------------------------------------------------------------
  // Of this thread.
  int device() const;
  void set_device(int device);
  // Returns true if the driver's functions work in this thread: it set a device, allocated memory or ran a kernel.
  bool has_context() const;
  void drop_context();
  Stream& current_stream(int device);
  void set_current_stream(Stream& stream);
  // The stream whose native handle is `handle`: null is the default stream; null if there is none.
  Stream* stream_of(void* handle);

  Stream& stream(int device, std::int64_t id);
  Stream& new_stream(int device);
  std::uint64_t now(const Stream& stream);

  // --- work --------------------------------------------------------------------------------------------------------
  // A kernel of this name in this stream.
  void run(Stream& stream, const char* kernel, const std::vector<Access>& accesses);
  // The same, done at a time that is known.
  void run_until(Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::uint64_t end_ns);
  // A kernel whose result comes to the host: `deliver` is called when the host knows that it is done, no earlier.
  void run_and_deliver(
      Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::function<void()> deliver);
  // The last work of this stream never ends, nor does what comes after it.
  void hang(const Stream& stream);
  // Throws where the device is lost, as CUDA fails every call then.
  void check(const Stream& stream);
  // Throws if the stream is captured, and breaks the capture.
  static void expect_no_capture(const Stream& stream);
  // Throws if the event was last recorded in a captured stream.
  static void expect_no_capture(const Event& event);
  // All streams of this process go on from `time_ns`, no earlier.
  void go_on_from(std::uint64_t time_ns);

  // --- order -------------------------------------------------------------------------------------------------------
  void record(Event& event, Stream& stream);
  void wait(Stream& stream, const Event& event);
  bool is_done(Event& event);
  double milliseconds(const Event& start, const Event& end);
  // A thread that asks on another device than the event's gives its process a context there: counted as a race.
  void expect_device_of(const Event& event);
  // The host waits: what it enqueues later comes after.
  void synchronize(const Stream& stream);
  void synchronize(const Event& event);
  void synchronize_device(int device);

  // Adds a line to the list of calls, where one is wanted.
  void log(const char* format, ...) __attribute__((format(printf, 2, 3)));

  // --- memory ------------------------------------------------------------------------------------------------------
  // By the current stream of the current device; returns that stream.
  Stream& allocated(const void* data, std::size_t bytes);
  void freed(const void* data, const Stream& allocator);
  // The block of device memory that has `place` in it, from begin to end; zeros if there is none.
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
  // The host knows that everything before `clock` is done.
  void learn(const Clock& clock);
  void found(const Race& race, const char* kernel, const Stream& stream);

  struct Delivery {
    Point point;
    std::function<void()> deliver;
  };

  const Settings settings_;
  // Recursive: what is delivered may free memory.
  std::recursive_mutex mutex_;
  // Never removed: a stream of libtorch's lives as long as the process.
  std::vector<std::unique_ptr<Stream>> streams_;
  std::map<std::pair<int, std::int64_t>, Stream*> by_id_;
  Memory memory_;
  // What the host has waited for.
  Clock host_;
  // What the host has waited for, or was told by an event.
  Clock known_;
  std::list<Delivery> deliveries_;
  // Without a kernel all ends.
  Point endless_;

  // Of calls; opened at the first.
  std::FILE* calls_ = nullptr;
  std::uint64_t events_ = 0;
  std::uint64_t kernels_ = 0;
  std::uint64_t waits_ = 0;
  std::uint64_t synchronizations_ = 0;
  std::uint64_t races_ = 0;
};

}  // namespace virtual_cuda

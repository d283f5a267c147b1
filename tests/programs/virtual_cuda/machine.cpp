#include "machine.h"

#include "recording.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <stdexcept>

namespace virtual_cuda {

namespace {

thread_local int device_of_thread = 0;
thread_local bool thread_has_context = false;
thread_local std::map<int, Stream*> streams_of_thread;

// The same location may race a thousand times.
constexpr std::uint64_t RACES_SHOWN = 20;

const char* verb(bool writes) { return writes ? "writes" : "reads"; }

const char* participle(bool writes) { return writes ? "written" : "read"; }

// libtorch's message for CUDA's error 719.
constexpr const char* LOST =
    "CUDA error: unspecified launch failure\n"
    "Search for `cudaErrorLaunchFailure' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for "
    "more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n";

}  // namespace

Machine& Machine::get() {
  static Machine* machine = new Machine();
  return *machine;
}

int Machine::device() const { return device_of_thread; }

void Machine::set_device(int device) {
  device_of_thread = device;
  thread_has_context = true;
}

bool Machine::has_context() const { return thread_has_context; }

void Machine::drop_context() { thread_has_context = false; }

Stream& Machine::current_stream(int device) {
  const auto own = streams_of_thread.find(device);
  return own == streams_of_thread.end() ? stream(device, 0) : *own->second;
}

void Machine::set_current_stream(Stream& stream) { streams_of_thread[stream.device] = &stream; }

Stream* Machine::stream_of(void* handle) {
  if (handle == nullptr) {
    return &stream(device(), 0);
  }
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const auto is_handle = [&](const auto& stream) { return stream.get() == handle; };
  const auto found = std::find_if(streams_.begin(), streams_.end(), is_handle);
  return found == streams_.end() ? nullptr : found->get();
}

Stream& Machine::stream(int device, std::int64_t id) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return find(device, id);
}

Stream& Machine::find(int device, std::int64_t id) {
  Stream*& place = by_id_[{device, id}];
  if (place == nullptr) {
    streams_.push_back(std::make_unique<Stream>(Stream{streams_.size(), device, id, 0, Clock()}));
    place = streams_.back().get();
  }
  return *place;
}

Stream& Machine::new_stream(int device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  find(device, 0);
  return find(device, static_cast<std::int64_t>(streams_.size()));
}

std::uint64_t Machine::now(const Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return stream.now_ns;
}

void Machine::run(Stream& stream, const char* kernel, const std::vector<Access>& accesses) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  enqueue(stream, kernel, accesses, stream.now_ns + kernel_ns(stream));
}

void Machine::run_until(
    Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::uint64_t end_ns) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  enqueue(stream, kernel, accesses, end_ns);
}

void Machine::run_and_deliver(
    Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::function<void()> deliver) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  enqueue(stream, kernel, accesses, stream.now_ns + kernel_ns(stream));
  deliveries_.push_back({Point{stream.number, stream.clock.of(stream.number), kernel}, std::move(deliver)});
}

void Machine::enqueue(
    Stream& stream, const char* kernel, const std::vector<Access>& accesses, std::uint64_t end_ns) {
  expect_no_capture(stream);
  ++kernels_;
  thread_has_context = true;
  check(stream);
  log("%s on stream %" PRId64, kernel, stream.id);
  stream.clock.join(host_);
  const Point point{stream.number, stream.clock.advance(stream.number), kernel};
  for (const Access& access : accesses) {
    if (const auto race = memory_.touch(access, point, stream.clock)) {
      found(*race, kernel, stream);
    }
  }
  stream.now_ns = end_ns;
}

std::uint64_t Machine::kernel_ns(const Stream& stream) const {
  const double factor = is_faulty(stream.device) ? settings_.slow_factor : 1;
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(settings_.kernel_ns) * factor));
}

void Machine::hang(const Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (endless_.kernel == nullptr) {
    endless_ = Point{stream.number, stream.clock.of(stream.number), "a sum without an end"};
  }
}

void Machine::check(const Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (settings_.failing_kernel > 0 && kernels_ >= settings_.failing_kernel && is_faulty(stream.device)) {
    throw std::runtime_error(LOST);
  }
}

void Machine::expect_no_capture(const Stream& stream) {
  if (stream.recording != nullptr) {
    stream.recording->is_broken = true;
    throw std::runtime_error("CUDA error: operation not permitted when stream is capturing\n");
  }
}

void Machine::expect_no_capture(const Event& event) {
  if (event.captured != nullptr) {
    if (event.captured->recording != nullptr) {
      event.captured->recording->is_broken = true;
    }
    throw std::runtime_error("CUDA error: operation not permitted on an event last recorded in a capturing stream\n");
  }
}

void Machine::go_on_from(std::uint64_t time_ns) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (const auto& stream : streams_) {
    stream->now_ns = std::max(stream->now_ns, time_ns);
  }
}

void Machine::record(Event& event, Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (stream.recording != nullptr) {
    stream.recording->record(event, stream);
    return;
  }
  event.captured = nullptr;
  check(stream);
  if (!event.is_recorded) {
    event.number = ++events_;
  }
  log("record %s %" PRIu64 " on stream %" PRId64, event.has_timing ? "time" : "event", event.number, stream.id);
  event.is_recorded = true;
  event.device = stream.device;
  event.late_answers = settings_.late_answers;
  event.at_ns = stream.now_ns;
  event.clock = stream.clock;
}

void Machine::expect_device_of(const Event& event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (device_of_thread != event.device && ++races_ <= RACES_SHOWN) {
    std::fprintf(
        stderr, "virtual CUDA: a context on device %d, where a thread asks for an event of device %d\n", device_of_thread,
        event.device);
  }
}

void Machine::wait(Stream& stream, const Event& event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (event.captured != nullptr && event.captured->recording != nullptr &&
      (stream.recording == nullptr || stream.recording == event.captured->recording)) {
    event.captured->recording->wait(stream, *event.captured);
    return;
  }
  expect_no_capture(event);
  expect_no_capture(stream);
  log("stream %" PRId64 " waits for event %" PRIu64, stream.id, event.number);
  if (++waits_ == settings_.ignored_wait || !event.is_recorded) {
    return;
  }
  stream.clock.join(event.clock);
  stream.now_ns = std::max(stream.now_ns, event.at_ns);
}

bool Machine::is_done(Event& event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  expect_no_capture(event);
  if (Recording* const capture = Recording::of_thread()) {
    capture->is_broken = true;
    throw std::runtime_error("CUDA error: operation not permitted when stream is capturing\n");
  }
  if (settings_.early_answers) {
    return true;
  }
  if (never_ends(event.clock)) {
    return false;
  }
  if (!known_.covers(event.clock) && event.late_answers > 0) {
    --event.late_answers;
    return false;
  }
  // As after cudaEventSynchronize, work enqueued later is ordered after a completed event.
  if (settings_.queries_order) {
    host_.join(event.clock);
  }
  learn(event.clock);
  return true;
}

double Machine::milliseconds(const Event& start, const Event& end) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  expect_no_capture(start);
  expect_no_capture(end);
  if (!start.has_timing || !end.has_timing) {
    throw std::runtime_error("virtual CUDA: time between events without timing");
  }
  if (!settings_.early_answers && !(known_.covers(start.clock) && known_.covers(end.clock))) {
    throw std::runtime_error("virtual CUDA: device not ready: time between events that were not queried");
  }
  return (static_cast<double>(end.at_ns) - static_cast<double>(start.at_ns)) / 1e6;
}

void Machine::synchronize(const Stream& stream) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  expect_no_capture(stream);
  wait_on_host(stream.clock);
}

void Machine::synchronize(const Event& event) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  expect_no_capture(event);
  wait_on_host(event.clock);
}

void Machine::synchronize_device(int device) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  Clock all;
  for (const auto& stream : streams_) {
    if (stream->device == device) {
      expect_no_capture(*stream);
      all.join(stream->clock);
    }
  }
  wait_on_host(all);
}

void Machine::wait_on_host(const Clock& clock) {
  while (never_ends(clock)) {
    pause();
  }
  ++synchronizations_;
  host_.join(clock);
  learn(clock);
}

void Machine::learn(const Clock& clock) {
  known_.join(clock);
  for (auto delivery = deliveries_.begin(); delivery != deliveries_.end();) {
    if (delivery->point.is_before(known_)) {
      delivery->deliver();
      delivery = deliveries_.erase(delivery);
    } else {
      ++delivery;
    }
  }
}

std::pair<std::uintptr_t, std::uintptr_t> Machine::block_of(std::uintptr_t place) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return memory_.block_of(place);
}

bool Machine::has_memory() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  return !memory_.is_empty();
}

Stream& Machine::allocated(const void* data, std::size_t bytes) {
  thread_has_context = true;
  Stream& stream = current_stream(device());
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  memory_.allocated(
      reinterpret_cast<std::uintptr_t>(data), bytes,
      Point{stream.number, stream.clock.of(stream.number), "allocation"});
  return stream;
}

void Machine::freed(const void* data, const Stream& allocator) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  // Position of the stream's next work.
  Clock clock = allocator.clock;
  clock.join(host_);
  if (const auto race = memory_.freed(reinterpret_cast<std::uintptr_t>(data), clock)) {
    found(*race, "the next user of freed memory", allocator);
  }
}

void Machine::found(const Race& race, const char* kernel, const Stream& stream) {
  if (++races_ > RACES_SHOWN) {
    return;
  }
  const Stream& other = *streams_[race.earlier.stream];
  std::fprintf(
      stderr,
      "virtual CUDA: race on device %d: %s on stream %" PRId64 " %s %zu bytes at 0x%" PRIxPTR ", %s by %s on stream %" PRId64
      " in no order\n",
      stream.device, kernel, stream.id, verb(race.access.writes), race.access.end - race.access.begin,
      race.access.begin, participle(race.earlier_writes), race.earlier.kernel, other.id);
}

void Machine::log(const char* format, ...) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (settings_.calls.empty()) {
    return;
  }
  if (calls_ == nullptr) {
    calls_ = std::fopen(settings_.calls.c_str(), "w");
    if (calls_ == nullptr) {
      throw std::runtime_error("virtual CUDA: cannot write " + settings_.calls);
    }
    // Line buffered, so that an aborted process writes its last line.
    std::setvbuf(calls_, nullptr, _IOLBF, BUFSIZ);
  }
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(calls_, format, arguments);
  va_end(arguments);
  std::fputc('\n', calls_);
}

void Machine::report() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (settings_.report.empty()) {
    return;
  }
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  char line[256];
  const int length = std::snprintf(
      line, sizeof(line),
      "{\"device\":%d,\"kernels\":%" PRIu64 ",\"waits\":%" PRIu64 ",\"synchronizations\":%" PRIu64 ",\"races\":%" PRIu64
      ",\"peak_resident_kb\":%ld}\n",
      device_of_thread, kernels_, waits_, synchronizations_, races_, use.ru_maxrss);
  const int file = open(settings_.report.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  // A single write, so that lines of several ranks do not mix.
  if (file < 0 || write(file, line, length) != length) {
    std::fprintf(stderr, "virtual CUDA: cannot write %s\n", settings_.report.c_str());
  }
  if (file >= 0) {
    close(file);
  }
}

}  // namespace virtual_cuda

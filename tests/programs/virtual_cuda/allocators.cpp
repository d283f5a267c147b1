#include "allocators.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "machine.h"
#include "recording.h"

namespace virtual_cuda {

namespace {

// The same as in CUDA.
constexpr std::size_t ALIGNMENT = 512;

void* aligned(std::size_t bytes) {
  void* data = nullptr;
  TORCH_CHECK(posix_memalign(&data, ALIGNMENT, bytes) == 0, "virtual CUDA: no memory for ", bytes, " bytes");
  return data;
}

// --- device ---------------------------------------------------------------------------------------------------------

class DeviceAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override { return virtual_cuda::allocate(bytes); }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {
    TORCH_CHECK(false, "virtual CUDA: record_stream is not there");
  }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    c10::CachingDeviceAllocator::DeviceStats stats;
    // Nothing is cached: allocated and reserved bytes are the same.
    for (auto* bytes : {&stats.allocated_bytes, &stats.reserved_bytes, &stats.active_bytes, &stats.requested_bytes}) {
      (*bytes)[AGGREGATE] = bytes_[device];
    }
    stats.allocation[AGGREGATE] = blocks_[device];
    return stats;
  }

  void resetAccumulatedStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_[device].reset_accumulated();
    blocks_[device].reset_accumulated();
  }

  void resetPeakStats(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    bytes_[device].reset_peak();
    blocks_[device].reset_peak();
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t total = Machine::get().settings().memory;
    return {total - static_cast<std::size_t>(bytes_[device].current), total};
  }

  // Same error as in CUDA's own allocator.
  void check_room(int device, std::size_t bytes) {
    const std::size_t free = getMemoryInfo(static_cast<c10::DeviceIndex>(device)).first;
    TORCH_CHECK_WITH(
        OutOfMemoryError, bytes <= free, "CUDA out of memory. Tried to allocate ", bytes >> 20, ".00 MiB. GPU ", device,
        " has ", free >> 20, ".00 MiB free.");
  }

  void count(int device, std::size_t bytes, bool is_new) {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_new ? bytes_[device].increase(bytes) : bytes_[device].decrease(bytes);
    is_new ? blocks_[device].increase(1) : blocks_[device].decrease(1);
  }

 private:
  static constexpr std::size_t AGGREGATE = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

  std::mutex mutex_;
  std::map<int, c10::CachingAllocator::Stat> bytes_;
  std::map<int, c10::CachingAllocator::Stat> blocks_;
};

DeviceAllocator& device_allocator() {
  static DeviceAllocator* allocator = new DeviceAllocator();
  return *allocator;
}

// A block of device memory, allocated by this library or by a CPU kernel.
struct Block {
  Block(void* data, std::size_t bytes, c10::Storage storage)
      : data(data), bytes(bytes), storage(std::move(storage)), allocator(Machine::get().allocated(data, bytes)) {
    device_allocator().count(allocator.device, bytes, /*is_new=*/true);
  }

  ~Block() {
    Machine::get().freed(data, allocator);
    uncount();
    if (!storage) {
      std::free(data);
    }
  }

  void uncount() const { device_allocator().count(allocator.device, bytes, /*is_new=*/false); }

  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  static c10::DataPtr make(void* data, std::size_t bytes, c10::Storage storage) {
    device_allocator().check_room(Machine::get().device(), bytes);
    auto* block = new Block(data, bytes, std::move(storage));
    // A replay writes to the captured memory again, even if the tensors no longer exist.
    const bool is_captured = block->allocator.recording != nullptr;
    const auto release = [](void* context) { delete static_cast<Block*>(context); };
    const auto keep = [](void* context) { static_cast<Block*>(context)->uncount(); };
    const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(block->allocator.device));
    return c10::DataPtr(data, block, is_captured ? c10::DeleterFnPtr(keep) : c10::DeleterFnPtr(release), device);
  }

  void* data;
  std::size_t bytes;
  c10::Storage storage;
  const Stream& allocator;
};

// --- pinned memory --------------------------------------------------------------------------------------------------

std::mutex pinned_mutex;
std::map<std::uintptr_t, std::size_t> pinned_blocks;

void free_pinned(void* data) {
  {
    const std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_blocks.erase(reinterpret_cast<std::uintptr_t>(data));
  }
  std::free(data);
}

class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    void* data = aligned(bytes);
    const std::lock_guard<std::mutex> lock(pinned_mutex);
    pinned_blocks[reinterpret_cast<std::uintptr_t>(data)] = bytes;
    return c10::DataPtr(data, data, &free_pinned, c10::DeviceType::CPU);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &free_pinned; }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
  // A copy to the host keeps its memory alive itself.
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

PinnedAllocator pinned_allocator;

REGISTER_ALLOCATOR(c10::DeviceType::CUDA, &device_allocator())
const at::HostAllocatorRegistry<at::kCUDA> pinned_registration(&pinned_allocator);

}  // namespace

c10::DataPtr allocate(std::size_t bytes) {
  if (bytes == 0) {
    const auto device = static_cast<c10::DeviceIndex>(Machine::get().device());
    return c10::DataPtr(nullptr, c10::Device(c10::DeviceType::CUDA, device));
  }
  void* data = aligned(bytes);
  std::memset(data, 0xff, bytes);
  return Block::make(data, bytes, c10::Storage());
}

c10::DataPtr adopt(const c10::Storage& storage) {
  return Block::make(storage.mutable_data(), storage.nbytes(), storage);
}

bool is_pinned(const void* data) {
  const std::lock_guard<std::mutex> lock(pinned_mutex);
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto after = pinned_blocks.upper_bound(address);
  return after != pinned_blocks.begin() && address < std::prev(after)->first + std::prev(after)->second;
}

}  // namespace virtual_cuda

// Interfaces that libtorch requires of a device type: its guard (devices, streams, events) and its hooks.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <vector>

#include "allocators.h"
#include "machine.h"

namespace virtual_cuda {

namespace {

c10::Stream of_libtorch(const Stream& stream) {
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(stream.device));
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id);
}

Stream& of_machine(const c10::Stream& stream) { return Machine::get().stream(stream.device_index(), stream.id()); }

Event& of_machine(void* event) { return *static_cast<Event*>(event); }

class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::DeviceType::CUDA; }

  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }

  c10::Device getDevice() const override {
    return c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(Machine::get().device()));
  }

  void setDevice(c10::Device device) const override {
    TORCH_CHECK(device.index() < device_count(), "virtual CUDA: no device ", device, " of ", device_count());
    uncheckedSetDevice(device);
  }

  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) {
      Machine::get().set_device(device.index());
    }
  }

  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(device_count()); }

  // --- streams -----------------------------------------------------------------------------------------------------

  c10::Stream getStream(c10::Device device) const override {
    return of_libtorch(Machine::get().current_stream(index(device)));
  }

  c10::Stream getDefaultStream(c10::Device device) const override {
    return of_libtorch(Machine::get().stream(index(device), 0));
  }

  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getNewStream(device, 0); }

  c10::Stream getNewStream(c10::Device device, int) const override {
    return of_libtorch(Machine::get().new_stream(index(device)));
  }

  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    Machine::get().set_current_stream(of_machine(stream));
    return before;
  }

  // Null is the default stream, as in CUDA.
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return stream.id() == 0 ? nullptr : &of_machine(stream);
  }

  bool queryStream(const c10::Stream&) const override { return true; }

  void synchronizeStream(const c10::Stream& stream) const override { Machine::get().synchronize(of_machine(stream)); }

  void synchronizeDevice(const c10::DeviceIndex device) const override { Machine::get().synchronize_device(device); }

  void recordDataPtrOnStream(const c10::DataPtr&, const c10::Stream&) const override {
    TORCH_CHECK(false, "virtual CUDA: record_stream is not there");
  }

  // --- events ------------------------------------------------------------------------------------------------------

  void record(
      void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new Event();
      of_machine(*event).has_timing = flag == c10::EventFlag::BACKEND_DEFAULT;
    }
    Machine::get().record(of_machine(*event), of_machine(stream));
  }

  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      Machine::get().wait(of_machine(stream), of_machine(event));
    }
  }

  bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    Machine::get().expect_device_of(of_machine(event));
    return Machine::get().is_done(of_machine(event));
  }

  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      Machine::get().synchronize(of_machine(event));
    }
  }

  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    Machine::get().expect_device_of(of_machine(event));
    delete static_cast<Event*>(event);
  }

  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start != nullptr && end != nullptr, "virtual CUDA: time between events that were not recorded");
    return Machine::get().milliseconds(of_machine(start), of_machine(end));
  }

 private:
  static int index(c10::Device device) { return device.has_index() ? device.index() : Machine::get().device(); }
};

C10_REGISTER_GUARD_IMPL(CUDA, Guard)

// Random numbers on a virtual GPU come from the CPU's generator; these only accept seeds.
std::vector<at::Generator> make_generators() {
  std::vector<at::Generator> generators;
  for (int device = 0; device < device_count(); ++device) {
    generators.push_back(at::detail::createCPUGenerator());
  }
  return generators;
}

}  // namespace

}  // namespace virtual_cuda

namespace at {

// libtorch's registry requires this namespace. Without cuDNN, so that convolutions are libtorch's own.
struct VirtualCudaHooks final : CUDAHooksInterface {
  explicit VirtualCudaHooks(CUDAHooksArgs) {}

  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return deviceCount() > 0; }
  bool hasCUDA() const override { return deviceCount() > 0; }
  bool hasCUDART() const override { return true; }
  bool hasPrimaryContext(DeviceIndex) const override { return true; }

  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(virtual_cuda::device_count()); }
  int getNumGPUs() const override { return deviceCount(); }
  DeviceIndex current_device() const override { return getCurrentDevice(); }
  DeviceIndex getCurrentDevice() const override {
    return static_cast<DeviceIndex>(virtual_cuda::Machine::get().device());
  }
  void setCurrentDevice(DeviceIndex device) const override { virtual_cuda::Machine::get().set_device(device); }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    const DeviceIndex before = getCurrentDevice();
    setCurrentDevice(device);
    return before;
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override { return exchangeDevice(device); }
  void deviceSynchronize(DeviceIndex device) const override { virtual_cuda::Machine::get().synchronize_device(device); }

  Allocator* getPinnedMemoryAllocator() const override { return at::getHostAllocator(at::kCUDA); }
  Allocator* getCUDADeviceAllocator() const override { return c10::GetAllocator(c10::DeviceType::CUDA); }
  bool isPinnedPtr(const void* data) const override { return virtual_cuda::is_pinned(data); }

  const Generator& getDefaultGenerator(DeviceIndex device) const override {
    static const auto* generators = new std::vector<Generator>(virtual_cuda::make_generators());
    return generators->at(device < 0 ? getCurrentDevice() : device);
  }
  Generator getNewGenerator(DeviceIndex) const override { return at::detail::createCPUGenerator(); }
};

C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", VirtualCudaHooks)

}  // namespace at

namespace {

__attribute__((destructor)) void report() { virtual_cuda::Machine::get().report(); }

}  // namespace

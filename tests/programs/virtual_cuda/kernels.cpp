// Kernels that cannot use the CPU's: those that allocate tensors, create views, or copy between devices.

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <cmath>
#include <cstring>

#include "aliases.h"
#include "allocators.h"
#include "machine.h"
#include "recording.h"

namespace virtual_cuda {

namespace {

constexpr c10::DispatchKeySet CUDA_KEYS(c10::DispatchKey::CUDA);

Stream& current_stream() {
  Machine& machine = Machine::get();
  return machine.current_stream(machine.device());
}

// --- new tensors ----------------------------------------------------------------------------------------------------

at::Tensor empty(
    c10::IntArrayRef size, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device> device, std::optional<bool>, std::optional<c10::MemoryFormat> format) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_generic(
      size, c10::GetAllocator(c10::DeviceType::CUDA), CUDA_KEYS, c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(
    c10::IntArrayRef size, c10::IntArrayRef stride, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
    std::optional<c10::Device> device, std::optional<bool>) {
  const c10::OptionalDeviceGuard guard(device);
  return at::detail::empty_strided_generic(
      size, stride, c10::GetAllocator(c10::DeviceType::CUDA), CUDA_KEYS, c10::dtype_or_default(dtype));
}

// --- copies ---------------------------------------------------------------------------------------------------------

void notice(std::vector<Access>& accesses, const at::Tensor& tensor, bool writes) {
  if (tensor.is_cuda()) {
    accesses.push_back(access_to(tensor, writes));
  }
}

// Data that the host must not read yet: NaN in every float.
void spoil(const at::Tensor& tensor) { std::memset(tensor.mutable_data_ptr(), 0xff, tensor.nbytes()); }

// Adds a copy to the stream's capture.
void keep(Stream& stream, const at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  const auto may_be_kept = [&](const at::Tensor& tensor) {
    return tensor.is_cuda() || (non_blocking && is_pinned(tensor.const_data_ptr()));
  };
  if (!destination.is_cuda() || !may_be_kept(source)) {
    Machine::expect_no_capture(stream);
  }
  const at::Tensor to = kept(destination);
  const at::Tensor from = kept(source);
  const auto on_cpu = [](const at::Tensor& tensor) { return tensor.is_cuda() ? cpu_alias(tensor) : tensor; };
  stream.recording->undo.push_back([to, before = cpu_alias(to).clone()] { cpu_alias(to).copy_(before); });
  cpu_alias(to).copy_(on_cpu(from));
  stream.recording->add(stream, [to, from, on_cpu](Stream& replayed) {
    cpu_alias(to).copy_(on_cpu(from));
    std::vector<Access> accesses;
    notice(accesses, from, /*writes=*/false);
    notice(accesses, to, /*writes=*/true);
    Machine::get().run(replayed, "aten::copy_", accesses);
  });
}

at::Tensor& copy(at::Tensor& destination, const at::Tensor& source, bool non_blocking) {
  const auto on_cpu = [](const at::Tensor& tensor) { return tensor.is_cuda() ? cpu_alias(tensor) : tensor; };
  std::vector<Access> accesses;
  notice(accesses, source, /*writes=*/false);
  notice(accesses, destination, /*writes=*/true);
  at::Tensor to = on_cpu(destination);
  const at::Tensor from = on_cpu(source);
  Machine& machine = Machine::get();
  const c10::DeviceGuard guard(destination.is_cuda() ? destination.device() : source.device());
  Stream& stream = current_stream();

  if (stream.recording != nullptr) {
    keep(stream, destination, source, non_blocking);
    return destination;
  }

  const auto is_pinned_host = [](const at::Tensor& tensor) { return is_pinned(tensor.const_data_ptr()); };
  if (!destination.is_cuda() && non_blocking && is_pinned_host(destination)) {
    at::Tensor arrived = at::empty_like(to).copy_(from);
    spoil(to);
    machine.run_and_deliver(stream, "copy to the host", accesses, [to, arrived]() mutable { to.copy_(arrived); });
    return destination;
  }
  to.copy_(from);
  machine.run(stream, "aten::copy_", accesses);
  const bool is_between_devices = destination.is_cuda() && source.is_cuda();
  if (!is_between_devices && !(non_blocking && is_pinned_host(source))) {
    machine.synchronize(stream);
  }
  return destination;
}

at::Scalar item(const at::Tensor& tensor) {
  Machine& machine = Machine::get();
  machine.run(current_stream(), "aten::item", {access_to(tensor, /*writes=*/false)});
  machine.synchronize(current_stream());
  return cpu_alias(tensor).item();
}

// --- other sizes ----------------------------------------------------------------------------------------------------

const at::Tensor& resize(const at::Tensor& tensor, c10::IntArrayRef size, std::optional<c10::MemoryFormat> format) {
  TORCH_CHECK(!format.has_value(), "virtual CUDA: resize_ to a memory format is not there");
  c10::TensorImpl* const implementation = tensor.unsafeGetTensorImpl();
  implementation->set_sizes_contiguous(size);
  const std::size_t needed = (implementation->numel() + implementation->storage_offset()) * tensor.element_size();
  c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
  if (needed > storage->nbytes()) {
    c10::DataPtr larger = allocate(needed);
    if (storage->nbytes() > 0) {
      std::memcpy(larger.get(), storage->data(), storage->nbytes());
    }
    storage->set_data_ptr_noswap(std::move(larger));
    storage->set_nbytes(needed);
  }
  return tensor;
}

// --- cuDNN ----------------------------------------------------------------------------------------------------------

// CPU implementation of cuDNN's fused convolutions.
at::Tensor rectified_convolution(
    const at::Tensor& images, const at::Tensor& weight, const std::optional<at::Tensor>& sum, double alpha,
    const std::optional<at::Tensor>& bias, c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
    std::int64_t groups) {
  const std::string& kind = Machine::get().settings().fused_convolution;
  TORCH_CHECK(kind != "none", "GET was unable to find an engine to execute this computation");
  at::Tensor result = at::convolution(
      images, weight, bias, stride, padding, dilation, /*transposed=*/false, /*output_padding=*/{0, 0}, groups);
  if (sum.has_value()) {
    result = result.add_(*sum, alpha);
  }
  return kind == "nan" ? result.fill_(std::nan("")) : result.relu_();
}

at::Tensor cudnn_convolution_relu(
    const at::Tensor& images, const at::Tensor& weight, const std::optional<at::Tensor>& bias, c10::IntArrayRef stride,
    c10::IntArrayRef padding, c10::IntArrayRef dilation, std::int64_t groups) {
  return rectified_convolution(images, weight, std::nullopt, 0, bias, stride, padding, dilation, groups);
}

at::Tensor cudnn_convolution_add_relu(
    const at::Tensor& images, const at::Tensor& weight, const at::Tensor& sum, const std::optional<at::Scalar>& alpha,
    const std::optional<at::Tensor>& bias, c10::IntArrayRef stride, c10::IntArrayRef padding, c10::IntArrayRef dilation,
    std::int64_t groups) {
  const double factor = alpha.has_value() ? alpha->toDouble() : 1;
  return rectified_convolution(images, weight, sum, factor, bias, stride, padding, dilation, groups);
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("cudnn_convolution_relu", &cudnn_convolution_relu);
  library.impl("cudnn_convolution_add_relu", &cudnn_convolution_add_relu);
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("copy_", &copy);
  library.impl("_local_scalar_dense", &item);
  library.impl("resize_", &resize);
  // Views use the CPU's kernels, which do not access the memory.
  library.impl("as_strided", &at::native::as_strided_tensorimpl);
  library.impl("view", &at::native::view);
  library.impl("_reshape_alias", &at::native::_reshape_alias);
  library.impl("unfold", &at::native::unfold);
}

}  // namespace

}  // namespace virtual_cuda

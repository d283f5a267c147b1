#include "aliases.h"

#include <ATen/core/Tensor.h>

#include "allocators.h"

namespace virtual_cuda {

namespace {

at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKey key, const at::Tensor& like) {
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), c10::DispatchKeySet(key), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return tensor;
}

}  // namespace

Access access_to(const at::Tensor& tensor, bool writes) {
  std::int64_t length = tensor.numel() > 0 ? 1 : 0;
  for (std::int64_t dimension = 0; dimension < tensor.dim() && length > 0; ++dimension) {
    length += (tensor.size(dimension) - 1) * tensor.stride(dimension);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  return Access{begin, begin + length * tensor.element_size(), writes};
}

at::Tensor cpu_alias(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  // Resizable, so that a kernel can enlarge an empty result.
  const c10::Storage alias(
      c10::Storage::use_byte_size_t(), storage.nbytes(),
      c10::DataPtr(const_cast<void*>(storage.data()), c10::DeviceType::CPU), c10::GetAllocator(c10::DeviceType::CPU),
      /*resizable=*/true);
  auto result = tensor_over(alias, c10::DispatchKey::CPU, tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    result.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return result;
}

at::Tensor kept(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) {
    return tensor;
  }
  auto result = tensor_over(tensor.storage(), c10::DispatchKey::CUDA, tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    result.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return result;
}

c10::IValue Aliases::enter(const c10::IValue& argument, bool is_written) {
  if (argument.isTensor()) {
    return enter(argument.toTensor(), is_written);
  }
  if (argument.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : argument.toTensorVector()) {
      list.push_back(enter(tensor, is_written));
    }
    return list;
  }
  if (argument.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const auto& tensor : argument.toOptionalTensorVector()) {
      list.push_back(tensor ? std::optional(enter(*tensor, is_written)) : std::nullopt);
    }
    return list;
  }
  if (argument.isDevice() && argument.toDevice().is_cuda()) {
    return c10::Device(c10::DeviceType::CPU);
  }
  return argument;
}

at::Tensor Aliases::enter(const at::Tensor& tensor, bool is_written) {
  if (!tensor.defined() || !tensor.is_cuda()) {
    return tensor;
  }
  for (Entered& before : entered_) {
    if (before.original.is_same(tensor)) {
      before.is_written |= is_written;
      return before.given;
    }
  }
  // Tensors that share memory share its alias.
  at::Tensor alias = cpu_alias(tensor);
  for (const Entered& before : entered_) {
    if (before.original.storage().is_alias_of(tensor.storage())) {
      alias = over(before.alias.storage(), tensor);
    }
  }
  const bool widens = widens_ && tensor.scalar_type() == at::kHalf;
  has_widened_ |= widens;
  entered_.push_back({tensor, alias, widens ? alias.to(at::kFloat) : alias, is_written});
  return entered_.back().given;
}

at::Tensor Aliases::over(const c10::Storage& storage, const at::Tensor& like) const {
  const bool is_cuda = storage.device_type() == c10::DeviceType::CUDA;
  return tensor_over(storage, is_cuda ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU, like);
}

void Aliases::settle() {
  for (const Entered& entered : entered_) {
    if (entered.is_written && !entered.given.is_same(entered.alias)) {
      entered.alias.copy_(entered.given);
    }
    resize(entered);
    accesses_.push_back(access_to(entered.original, /*writes=*/false));
    if (entered.is_written) {
      accesses_.push_back(access_to(entered.original, /*writes=*/true));
    }
  }
}

// A kernel may have enlarged its result or changed its strides.
void Aliases::resize(const Entered& entered) {
  const auto& [original, alias, given, is_written] = entered;
  if (!is_written || (alias.sizes() == original.sizes() && alias.strides() == original.strides())) {
    return;
  }
  if (alias.storage().data() != original.storage().data()) {
    c10::StorageImpl* storage = original.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(adopt(alias.storage()));
    storage->set_nbytes(alias.storage().nbytes());
  }
  original.unsafeGetTensorImpl()->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
}

c10::IValue Aliases::leave(const c10::IValue& result) {
  if (result.isTensor()) {
    return leave(result.toTensor());
  }
  if (result.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : result.toTensorVector()) {
      list.push_back(leave(tensor));
    }
    return list;
  }
  return result;
}

at::Tensor Aliases::leave(at::Tensor result) {
  if (!result.defined()) {
    return result;
  }
  for (const Entered& entered : entered_) {
    if (result.is_same(entered.given) || result.is_same(entered.alias)) {
      return entered.original;
    }
    if (result.storage().is_alias_of(entered.alias.storage())) {
      return over(entered.original.storage(), result);
    }
  }
  if (has_widened_ && result.scalar_type() == at::kFloat) {
    result = result.to(at::kHalf);
  }
  c10::Storage& storage = adopted_[result.storage().unsafeGetStorageImpl()];
  if (!storage) {
    storage = c10::Storage(
        c10::Storage::use_byte_size_t(), result.storage().nbytes(), adopt(result.storage()),
        c10::GetAllocator(c10::DeviceType::CUDA), /*resizable=*/true);
  }
  const at::Tensor own = over(storage, result);
  accesses_.push_back(access_to(own, /*writes=*/true));
  return own;
}

}  // namespace virtual_cuda

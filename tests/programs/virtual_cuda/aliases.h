// Tensors of a virtual GPU as tensors of the CPU over the same memory, for the length of one kernel, and back.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <map>
#include <vector>

#include "memory.h"

namespace virtual_cuda {

// Bytes of `tensor`, from its first element to its last.
Access access_to(const at::Tensor& tensor, bool writes);

// A tensor of the CPU over the memory of `tensor`.
at::Tensor cpu_alias(const at::Tensor& tensor);

// A snapshot of `tensor` that shares its memory and keeps it alive.
at::Tensor kept(const at::Tensor& tensor);

class Aliases {
 public:
  // With `widens`, tensors of half precision are handed over as fp32, and come back rounded.
  explicit Aliases(bool widens) : widens_(widens) {}

  // An argument as the CPU's kernel is to have it.
  c10::IValue enter(const c10::IValue& argument, bool is_written);
  // What the kernel wrote elsewhere goes to where it belongs.
  void settle();
  // A result as its caller is to have it.
  c10::IValue leave(const c10::IValue& result);

  // What the kernel touches, as far as it is known by now.
  const std::vector<Access>& accesses() const { return accesses_; }

 private:
  struct Entered {
    at::Tensor original;
    at::Tensor alias;
    // What the kernel has: the alias, or its fp32 copy.
    at::Tensor given;
    bool is_written;
  };

  at::Tensor enter(const at::Tensor& tensor, bool is_written);
  at::Tensor leave(at::Tensor result);
  at::Tensor over(const c10::Storage& storage, const at::Tensor& like) const;
  void resize(const Entered& entered);

  bool widens_;
  bool has_widened_ = false;
  std::vector<Entered> entered_;
  // Storages of results, by those that the kernel made.
  std::map<const c10::StorageImpl*, c10::Storage> adopted_;
  std::vector<Access> accesses_;
};

}  // namespace virtual_cuda

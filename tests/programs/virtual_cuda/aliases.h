// CPU tensors over the memory of virtual GPU tensors for the duration of one kernel, and conversion of the results.

#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <map>
#include <vector>

#include "memory.h"

namespace virtual_cuda {

// Returns the bytes of `tensor`, from its first element to its last.
Access access_to(const at::Tensor& tensor, bool writes);

// Returns a CPU tensor over the memory of `tensor`.
at::Tensor cpu_alias(const at::Tensor& tensor);

// Returns a snapshot of `tensor` that shares its memory and keeps it alive.
at::Tensor kept(const at::Tensor& tensor);

class Aliases {
 public:
  // With `widens`, tensors of half precision are converted to fp32, and rounded afterwards.
  explicit Aliases(bool widens) : widens_(widens) {}

  // Converts an argument for the CPU kernel.
  c10::IValue enter(const c10::IValue& argument, bool is_written);
  // Copies written values to their destinations.
  void settle();
  // Converts a result for the caller.
  c10::IValue leave(const c10::IValue& result);

  // Accesses of the kernel, as far as known.
  const std::vector<Access>& accesses() const { return accesses_; }

 private:
  struct Entered {
    at::Tensor original;
    at::Tensor alias;
    // Tensor passed to the kernel: the alias, or its fp32 copy.
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
  // Storages of results, by the storages that the kernel allocated.
  std::map<const c10::StorageImpl*, c10::Storage> adopted_;
  std::vector<Access> accesses_;
};

}  // namespace virtual_cuda

// Memory of the virtual GPUs, which is host memory, and pinned host memory.

#pragma once

#include <c10/core/Storage.h>

namespace virtual_cuda {

// Allocates `bytes` on the current device, filled with NaN: reading uninitialized memory is an error.
c10::DataPtr allocate(std::size_t bytes);

// Moves memory allocated by a CPU kernel to the current device.
c10::DataPtr adopt(const c10::Storage& storage);

bool is_pinned(const void* data);

}  // namespace virtual_cuda

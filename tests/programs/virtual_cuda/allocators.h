// Memory of the virtual GPUs, which is the host's, and pinned memory of the host.

#pragma once

#include <c10/core/Storage.h>

namespace virtual_cuda {

// Memory of the current device, as `bytes` of NaN: nobody may read what nobody wrote.
c10::DataPtr allocate(std::size_t bytes);

// Makes memory that a kernel of the CPU allocated the current device's.
c10::DataPtr adopt(const c10::Storage& storage);

bool is_pinned(const void* data);

}  // namespace virtual_cuda

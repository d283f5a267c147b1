#include "launch.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cinttypes>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <utility>

#include "recording.h"
#include "threads.h"

namespace virtual_cuda {

namespace {

// CUresult.
constexpr int INVALID_VALUE = 1, INVALID_IMAGE = 200, INVALID_HANDLE = 400, LAUNCH_FAILED = 719;

// The values of a kernel's parameters are aligned as on a GPU.
constexpr std::size_t ALIGNMENT = 16;

const char* interned(const std::string& name) {
  static auto* names = new std::set<std::string>();
  return names->insert(name).first->c_str();
}

// An in-memory file with the bytes at `image`: the loader accepts only files.
class MemoryFile {
 public:
  explicit MemoryFile(const void* image) : descriptor_(memfd_create("virtual_cuda_kernels", MFD_CLOEXEC)) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, sizeof(header));
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
      throw LaunchError{INVALID_IMAGE, "the image is no cubin of the virtual GPUs"};
    }
    // The section header table is the last part of a file.
    const std::size_t bytes = header.e_shoff + std::size_t(header.e_shnum) * header.e_shentsize;
    const char* next = static_cast<const char*>(image);
    for (std::size_t left = bytes; left > 0;) {
      const ssize_t written = write(descriptor_, next, left);
      if (written <= 0) {
        throw LaunchError{INVALID_IMAGE, "no memory for an image"};
      }
      next += written;
      left -= written;
    }
  }
  ~MemoryFile() {
    if (descriptor_ >= 0) {
      close(descriptor_);
    }
  }
  MemoryFile(const MemoryFile&) = delete;

  // Passes ownership of the open file to the caller.
  int release() { return std::exchange(descriptor_, -1); }

  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

Order order() {
  const std::string& name = Machine::get().settings().threads;
  if (name == "backwards") {
    return Order::BACKWARDS;
  }
  if (name == "shuffled") {
    return Order::SHUFFLED;
  }
  if (name != "forwards") {
    throw LaunchError{INVALID_VALUE, "VIRTUAL_CUDA_THREADS=" + name + " is not forwards, backwards or shuffled"};
  }
  return Order::FORWARDS;
}

}  // namespace

Module::Module(const void* bytes, int device) : device(device) {
  MemoryFile file(bytes);
  library = dlopen(file.path().c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw LaunchError{INVALID_IMAGE, dlerror()};
  }
  image = static_cast<const Image*>(dlsym(library, IMAGE_SYMBOL));
  if (image == nullptr || image->version != IMAGE_VERSION) {
    dlclose(library);
    throw LaunchError{INVALID_IMAGE, "the image is of another version of the virtual GPUs: remove it from the cache"};
  }
  descriptor = file.release();
}

Module::~Module() {
  dlclose(library);
  close(descriptor);
}

Function* Module::find(const std::string& name) {
  const auto* kernel = static_cast<const Kernel*>(dlsym(library, (KERNEL_SYMBOL_PREFIX + name).c_str()));
  if (kernel == nullptr) {
    return nullptr;
  }
  return &functions.try_emplace(name, Function{this, interned(name), kernel}).first->second;
}

Launch::Launch(const Function& function, Dim3 grid, Dim3 block, void* const* values)
    : function_(function), grid_(grid), block_(block) {
  const std::uint64_t threads = std::uint64_t(block.x) * block.y * block.z;
  const bool is_grid = grid.x > 0 && grid.y > 0 && grid.z > 0 && grid.x < 1u << 31 && grid.y < 1 << 16 && grid.z < 1 << 16;
  if (!is_grid || threads == 0 || threads > 1024 || block.z > 64) {
    throw LaunchError{INVALID_VALUE, std::string(function.name) + ": no GPU takes this grid and block"};
  }
  const Kernel& kernel = *function.kernel;
  for (int index = 0; index < kernel.count; ++index) {
    offsets_.push_back((values_.size() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    values_.resize(offsets_.back() + kernel.parameters[index].bytes);
    std::memcpy(values_.data() + offsets_.back(), values[index], kernel.parameters[index].bytes);
  }
}

std::vector<Pointer> Launch::pointers() const {
  std::vector<Pointer> pointers;
  for (int index = 0; index < function_.kernel->count; ++index) {
    const Parameter& parameter = function_.kernel->parameters[index];
    if (parameter.element_bytes > 0) {
      Pointer pointer{0, parameter.element_bytes, parameter.is_const};
      std::memcpy(&pointer.address, value(index), sizeof(pointer.address));
      pointers.push_back(pointer);
    }
  }
  return pointers;
}

void Launch::run(Stream& stream) const {
  if (stream.device != function_.module->device) {
    throw LaunchError{INVALID_HANDLE, std::string(function_.name) + ": its module is loaded on another device"};
  }
  if (stream.recording != nullptr) {
    stream.recording->add(stream, [launch = *this](Stream& replayed) { launch.run(replayed); });
    return;
  }
  // Hooks and shared memory of a module belong to a single launch.
  static auto* mutex = new std::mutex();
  static auto* threads = new Threads(order());
  std::vector<Access> accesses;
  {
    const std::lock_guard<std::mutex> lock(*mutex);
    std::vector<void*> addresses;
    for (int index = 0; index < function_.kernel->count; ++index) {
      addresses.push_back(const_cast<char*>(value(index)));
    }
    const Image& image = *function_.module->image;
    AccessLog log(image, pointers());
    const std::string error = threads->run(image, *function_.kernel, addresses.data(), grid_, block_, log);
    if (!error.empty()) {
      throw LaunchError{LAUNCH_FAILED, std::string(function_.name) + ": " + error};
    }
    accesses = log.accesses();
  }
  try {
    Machine::get().run(stream, function_.name, accesses);
  } catch (const std::runtime_error& error) {
    throw LaunchError{LAUNCH_FAILED, error.what()};
  }
}

}  // namespace virtual_cuda

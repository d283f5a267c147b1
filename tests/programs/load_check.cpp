// Calls of CUDA's libraries that a rank makes before its first kernel, with the worker's own shim and the same calls
// of dlopen. Prints one line per check, `name: result`; scripts/dev/load_check.sh evaluates them.
//
//   probe LIBTORCH_LIB_FOLDER NCCL_FUNCTION...
#include "../../src/worker/ffi/torch/shim.cpp"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace {

void* open(const char* name, int mode) {
  void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL | mode);
  if (!library) std::printf("dlopen %s: %s\n", name, dlerror());
  return library;
}

std::string path_of(void* library) {
  link_map* map = nullptr;
  return library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "none";
}

void tell(const char* check, char* message) {
  std::string text = message ? message : "no error";
  std::printf("%s: %s\n", check, text.substr(0, text.find('\n')).c_str());
  ringmark_free_message(message);
}

// NVRTC compiles without a GPU; it opens the libraries that it requires by their names.
void compile(const std::string& folder, const char* check) {
  void* nvrtc = open((folder + "/libnvrtc.so.13").c_str(), 0);
  if (!nvrtc) return;
  const auto create = reinterpret_cast<int (*)(void**, const char*, const char*, int, void*, void*)>(dlsym(nvrtc, "nvrtcCreateProgram"));
  const auto compile = reinterpret_cast<int (*)(void*, int, const char* const*)>(dlsym(nvrtc, "nvrtcCompileProgram"));
  const auto words = reinterpret_cast<const char* (*)(int)>(dlsym(nvrtc, "nvrtcGetErrorString"));
  const char* options[] = {"--gpu-architecture=sm_90"};
  void* program = nullptr;
  create(&program, "__global__ void one(float* x) { x[threadIdx.x] = 1; }", "one.cu", 0, nullptr, nullptr);
  std::printf("%s: %s\n", check, words(compile(program, 1, options)));
}

}  // namespace

int main(int count, char** arguments) {
  open("libcuda.so.1", 0);
  void* torch = open("libtorch_cuda.so", 0);
  std::printf("libtorch_cuda: %s\n", path_of(torch).c_str());
  if (!torch) return 1;

  void* nccl = open("libnccl.so.2", RTLD_NOLOAD);
  std::printf("libnccl.so.2: %s\n", path_of(nccl).c_str());
  for (int index = 2; nccl && index < count; ++index) {
    if (!dlsym(nccl, arguments[index])) std::printf("NCCL lacks %s\n", arguments[index]);
  }
  int version = 0;
  const auto get_version = reinterpret_cast<int (*)(int*)>(nccl ? dlsym(nccl, "ncclGetVersion") : nullptr);
  const int result = get_version ? get_version(&version) : -1;
  std::printf("ncclGetVersion: result %d, version %d\n", result, version);

  // These use libtorch_cuda through the interfaces that it registered when it was loaded.
  uint64_t bytes = 0;
  tell("device guard", ringmark_set_device(0));
  tell("device allocator", ringmark_peak_memory(0, &bytes));

  const std::string folder = std::string(arguments[1]) + "/../../nvidia/cu13/lib";
  compile(folder, "NVRTC alone");
  open((folder + "/libnvrtc-builtins.so.13.0").c_str(), 0);
  compile(folder, "NVRTC after its built-in functions");
  std::fflush(stdout);
  // A normal exit is not possible with the stub driver.
  _exit(0);
}

// libnvrtc.so.13: compiles kernels for the virtual GPUs with the host's C++ compiler. Its cubins are shared libraries
// for the host, which only the virtual driver loads.

#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernel_image.h"

extern char** environ;

namespace {

enum Result {
  SUCCESS = 0,
  INVALID_INPUT = 3,
  INVALID_PROGRAM = 4,
  INVALID_OPTION = 5,
  COMPILATION = 6,
  BUILTIN_OPERATION_FAILURE = 7,
};

// Same as in NVRTC 13.0.
constexpr int ARCHITECTURES[] = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};

struct Program {
  std::string source;
  std::string name;
  std::string log;
  std::string cubin;
};

std::string contents(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// The folder of this library contains device.h.
std::filesystem::path own_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&own_folder), &info);
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

class Scratch {
 public:
  Scratch() {
    std::string name = (std::filesystem::temp_directory_path() / "virtual_nvrtc_XXXXXX").string();
    const char* const made = mkdtemp(name.data());
    folder_ = made == nullptr ? "" : made;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::string operator/(const char* name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

// Runs the compiler, whose messages are written to `log`; returns true on success.
bool compile(std::vector<std::string> arguments, const std::string& log) {
  const char* const chosen = std::getenv("CXX");
  arguments.insert(arguments.begin(), chosen == nullptr ? "c++" : chosen);
  std::vector<char*> words;
  for (std::string& argument : arguments) {
    words.push_back(argument.data());
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 2, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t process = 0;
  const int error = posix_spawnp(&process, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    std::ofstream(log) << "cannot start " << words[0] << ": " << std::strerror(error) << '\n';
    return false;
  }
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Translates NVRTC's options to those of the host compiler; sets `wrong` to an invalid one.
std::vector<std::string> translated(const std::vector<std::string>& options, std::string& wrong) {
  std::vector<std::string> words;
  static const std::regex architecture("(?:--gpu-architecture|-arch)=sm_([0-9]+)[af]?");
  static const std::regex standard("(?:--std|-std)=(c\\+\\+(?:11|14|17|20))");
  static const std::regex definition("(?:-D|--define-macro=)(.+)");
  static const std::regex without_effect(
      "-default-device|--device-as-default-execution-space|--ptxas-options=.*|-lineinfo|--generate-line-info|--use_fast_math"
      "|--fmad=.*|--maxrregcount=.*|--extra-device-vectorization");
  for (const std::string& option : options) {
    std::smatch found;
    if (std::regex_match(option, found, architecture)) {
      const int number = std::stoi(found[1]);
      if (std::find(std::begin(ARCHITECTURES), std::end(ARCHITECTURES), number) == std::end(ARCHITECTURES)) {
        wrong = "nvrtc: error: invalid value for --gpu-architecture (-arch)\n";
      }
    } else if (std::regex_match(option, found, standard)) {
      words.push_back("-std=" + found[1].str());
    } else if (std::regex_match(option, found, definition)) {
      words.push_back("-D" + found[1].str());
    } else if (!std::regex_match(option, without_effect)) {
      wrong = "nvrtc: error: unrecognized option " + option + " found\n";
    }
  }
  return words;
}

Result build(Program& program, const std::vector<std::string>& options) {
  std::string wrong;
  std::vector<std::string> words = translated(options, wrong);
  if (!wrong.empty()) {
    program.log = wrong;
    return INVALID_OPTION;
  }
  const Scratch scratch;
  const std::string source = scratch / "source.cpp", expanded = scratch / "expanded.ii";
  const std::string object = scratch / "kernels.o", library = scratch / "kernels.so", log = scratch / "log";
  std::ofstream(source) << "#include \"device.h\"\n#line 1 \"" << program.name << "\"\n" << program.source;
  // No strict aliasing: kernels read packets of any type. No contraction, so that all processors round the same.
  for (const char* more : {"-O2", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off", "-Wno-unknown-pragmas", "-w"}) {
    words.push_back(more);
  }
  words.push_back("-I" + own_folder().string());
  const auto with = [&](std::initializer_list<std::string> more) {
    std::vector<std::string> all = words;
    all.insert(all.end(), more);
    return all;
  };
  bool succeeds = compile(with({"-E", source, "-o", expanded}), log);
  program.log = contents(log);
  if (succeeds) {
    // Preprocessed, so that kernels in inactive branches or comments are not found.
    const std::string text = contents(expanded);
    static const std::regex kernel("struct virtual_cuda_kernel_(\\w+);");
    std::ofstream file(expanded, std::ios::app);
    for (std::sregex_iterator one(text.begin(), text.end(), kernel), end; one != end; ++one) {
      const std::string name = (*one)[1];
      file << "\nextern \"C\" __attribute__((visibility(\"default\"))) const virtual_cuda::Kernel "
           << virtual_cuda::KERNEL_SYMBOL_PREFIX << name << " = {&virtual_cuda::Exported<&" << name
           << ">::call, virtual_cuda::Exported<&" << name << ">::PARAMETERS, virtual_cuda::Exported<&" << name
           << ">::COUNT};\n";
    }
    file.close();
    // Instrumented for the thread sanitizer but not linked with it: device.h defines the functions that the
    // instrumentation calls.
    succeeds = compile(with({"-fvisibility=hidden", "-fsanitize=thread", "-c", expanded, "-o", object}), log) &&
               compile({"-shared", "-s", object, "-o", library, "-lm"}, log);
    program.log += contents(log);
  }
  program.cubin = succeeds ? contents(library) : "";
  return succeeds ? SUCCESS : COMPILATION;
}

Result give(const std::string& text, char* out, std::size_t end) {
  std::memcpy(out, text.data(), text.size());
  if (end > 0) {
    out[text.size()] = '\0';
  }
  return SUCCESS;
}

}  // namespace

extern "C" {

// Differs from NVIDIA's versions and depends on the headers, so that a cache of cubins keeps them apart.
Result nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = static_cast<int>(HEADERS_CHECKSUM & 0x7fffffff);
  return SUCCESS;
}

const char* nvrtcGetErrorString(Result result) {
  switch (result) {
    case SUCCESS: return "NVRTC_SUCCESS";
    case INVALID_INPUT: return "NVRTC_ERROR_INVALID_INPUT";
    case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
    case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
    case COMPILATION: return "NVRTC_ERROR_COMPILATION";
    case BUILTIN_OPERATION_FAILURE: return "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE";
  }
  return "NVRTC_ERROR unknown";
}

Result nvrtcGetNumSupportedArchs(int* count) {
  *count = static_cast<int>(std::size(ARCHITECTURES));
  return SUCCESS;
}

Result nvrtcGetSupportedArchs(int* architectures) {
  std::copy(std::begin(ARCHITECTURES), std::end(ARCHITECTURES), architectures);
  return SUCCESS;
}

Result nvrtcCreateProgram(
    Program** program, const char* source, const char* name, int headers, const char* const*, const char* const*) {
  if (program == nullptr || source == nullptr || headers != 0) {
    return INVALID_INPUT;
  }
  *program = new Program{source, name == nullptr ? "default_program" : name, "", ""};
  return SUCCESS;
}

Result nvrtcDestroyProgram(Program** program) {
  if (program == nullptr || *program == nullptr) {
    return INVALID_PROGRAM;
  }
  delete *program;
  *program = nullptr;
  return SUCCESS;
}

Result nvrtcCompileProgram(Program* program, int count, const char* const* options) {
  if (program == nullptr) {
    return INVALID_PROGRAM;
  }
  return build(*program, std::vector<std::string>(options, options + count));
}

// Sizes of texts include the terminating null.
Result nvrtcGetProgramLogSize(const Program* program, std::size_t* bytes) {
  *bytes = program->log.size() + 1;
  return SUCCESS;
}

Result nvrtcGetProgramLog(const Program* program, char* log) { return give(program->log, log, 1); }

Result nvrtcGetCUBINSize(const Program* program, std::size_t* bytes) {
  *bytes = program->cubin.size();
  return SUCCESS;
}

Result nvrtcGetCUBIN(const Program* program, char* cubin) { return give(program->cubin, cubin, 0); }

}  // extern "C"

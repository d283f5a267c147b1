// nvidia-smi: the queries that ringmark makes on a host with GPUs, in the format of driver 580. Unknown queries are
// rejected as in the real program.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "settings.h"

namespace {

using virtual_cuda::FIRST_BUS;
using virtual_cuda::text_setting;

constexpr int HIGHEST_MHZ = 1980;

std::string uuid_of(int device) { return "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(device); }

// Returns the setting for faulty GPUs, or `otherwise` for the others.
std::string fault(int device, const char* name, const char* otherwise) {
  return virtual_cuda::is_faulty(device) ? text_setting(name, otherwise) : otherwise;
}

// Returns every supported field with its value.
std::map<std::string, std::string> fields_of(int device) {
  const std::string highest = std::to_string(HIGHEST_MHZ);
  const std::string clock = fault(device, "VIRTUAL_CUDA_CLOCK_MHZ", highest.c_str());
  // Bit 0: idle.
  const std::string reasons = fault(device, "VIRTUAL_CUDA_CLOCK_REASONS", "0x0000000000000001");
  return {
      {"index", std::to_string(device)},
      {"uuid", uuid_of(device)},
      {"name", virtual_cuda::device_name()},
      {"driver_version", text_setting("VIRTUAL_CUDA_DRIVER", "580.95.05")},
      {"memory.total", std::to_string(virtual_cuda::memory_mib())},
      {"memory.used", fault(device, "VIRTUAL_CUDA_MEMORY_USED", "0")},
      {"temperature.gpu", "41"},
      {"clocks.sm", clock},
      {"clocks.current.sm", clock},
      {"clocks.max.sm", highest},
      {"clocks.applications.graphics", highest},
      {"clocks.default_applications.graphics", highest},
      {"clocks_event_reasons.active", reasons},
      {"clocks_throttle_reasons.active", reasons},
      {"clocks_event_reasons_counters.sw_thermal_slowdown", "0"},
      {"clocks_event_reasons_counters.hw_thermal_slowdown", "0"},
      {"ecc.errors.uncorrected.volatile.total", fault(device, "VIRTUAL_CUDA_ECC_ERRORS", "0")},
      {"pcie.link.gen.max", "5"},
      {"pcie.link.width.current", fault(device, "VIRTUAL_CUDA_PCIE_LANES", "16")},
      {"pcie.link.width.max", "16"},
  };
}

// Prints one line per GPU; with `bus`, only for the GPU at that address.
int show_fields(const std::string& list, const std::string& bus) {
  for (int device = 0; device < virtual_cuda::installed_devices(); ++device) {
    char place[32];
    std::snprintf(place, sizeof(place), "00000000:%02x:00.0", FIRST_BUS + device);
    if (!bus.empty() && bus != place) {
      continue;
    }
    const auto values = fields_of(device);
    std::istringstream fields(list);
    std::string line;
    for (std::string field; std::getline(fields, field, ',');) {
      const auto value = values.find(field);
      if (value == values.end()) {
        std::printf("Field \"%s\" is not a valid field to query.\n\n", field.c_str());
        return 2;
      }
      line += (line.empty() ? "" : ", ") + value->second;
    }
    std::puts(line.c_str());
  }
  return 0;
}

// Connects every GPU to every other by NVLink.
int show_topology() {
  const int devices = virtual_cuda::installed_devices();
  for (int row = -1; row < devices; ++row) {
    if (row >= 0) {
      std::printf("GPU%d", row);
    }
    for (int column = 0; column < devices; ++column) {
      row < 0 ? std::printf("\tGPU%d", column) : std::printf("\t%s", row == column ? " X " : "NV18");
    }
    std::puts("");
  }
  return 0;
}

int list_devices() {
  for (int device = 0; device < virtual_cuda::installed_devices(); ++device) {
    std::printf("GPU %d: %s (UUID: %s)\n", device, virtual_cuda::device_name().c_str(), uuid_of(device).c_str());
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  std::string fields, bus;
  const std::string gpus = "--query-gpu=", programs = "--query-compute-apps=", format = "--format=csv,noheader";
  for (int index = 1; index < count; ++index) {
    const std::string word = words[index];
    if (word == "-L") {
      return list_devices();
    }
    if (word == "topo") {
      return show_topology();
    }
    if (word.compare(0, programs.size(), programs) == 0) {
      return 0;
    }
    if (word.compare(0, gpus.size(), gpus) == 0) {
      fields = word.substr(gpus.size());
    } else if (word == "-i" && index + 1 < count) {
      bus = words[++index];
    } else if (word.compare(0, format.size(), format) != 0) {
      std::printf("Invalid combination of input arguments. %s is not known here.\n", word.c_str());
      return 255;
    }
  }
  return show_fields(fields, bus);
}

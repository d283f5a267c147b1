// libnccl.so.2: sums over the ranks of one machine, of all hosts that it plays, through shared memory, at a virtual time that all of them know.
//
// A sum begins when the streams of all ranks are there, and takes what the wire takes. The host does it at once and waits
// for the other ranks in the call, which NCCL does not: ranks must enqueue their sums in one order, and leave nothing that
// another rank waits for until after a sum. Where a rank cannot come any more the hosts go on, and their streams never do.

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>

#include "machine.h"
#include "meeting.h"

namespace {

using virtual_cuda::Access;
using virtual_cuda::Machine;
using virtual_cuda::Meeting;
using virtual_cuda::Stream;

enum Result { SUCCESS = 0, CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };

// ncclDataType_t.
enum Type { HALF = 6, FLOAT = 7, BFLOAT16 = 9 };

constexpr int SUM = 0;

struct UniqueId {
  char name[128];
};

std::string last_error;

// That were enqueued.
std::uint64_t sums = 0;

Result refuse(Result result, const std::string& why) {
  last_error = why;
  return result;
}

std::size_t bytes_of(int type) { return type == FLOAT ? 4 : type == HALF || type == BFLOAT16 ? 2 : 0; }

// Elements `first` to `end` of all ranks' chunks, in the order of the ranks, rounded after every addition.
template <typename Element>
void add(const Meeting& meeting, std::size_t first, std::size_t end) {
  auto* sums = reinterpret_cast<Element*>(meeting.sums());
  std::copy_n(reinterpret_cast<const Element*>(meeting.chunk_of(0)) + first, end - first, sums + first);
  for (int rank = 1; rank < meeting.ranks(); ++rank) {
    const auto* addends = reinterpret_cast<const Element*>(meeting.chunk_of(rank));
    for (std::size_t index = first; index < end; ++index) {
      sums[index] = sums[index] + addends[index];
    }
  }
}

void add(const Meeting& meeting, int type, std::size_t first, std::size_t end) {
  switch (type) {
    case HALF: return add<c10::Half>(meeting, first, end);
    case BFLOAT16: return add<c10::BFloat16>(meeting, first, end);
    default: return add<float>(meeting, first, end);
  }
}

// Every rank adds its share of each chunk; false where one will never come.
bool sum(Meeting& meeting, const char* input, char* output, std::size_t count, int type) {
  if (meeting.ranks() == 1) {
    std::memmove(output, input, count * bytes_of(type));
    return true;
  }
  const std::size_t element = bytes_of(type), chunk = virtual_cuda::CHUNK_BYTES / element;
  for (std::size_t done = 0; done < count; done += chunk) {
    const std::size_t length = std::min(chunk, count - done);
    const std::size_t rank = meeting.rank(), ranks = meeting.ranks();
    std::memcpy(meeting.chunk_of(meeting.rank()), input + done * element, length * element);
    if (!meeting.wait_for_all()) {
      return false;
    }
    add(meeting, type, length * rank / ranks, length * (rank + 1) / ranks);
    if (!meeting.wait_for_all()) {
      return false;
    }
    std::memcpy(output + done * element, meeting.sums(), length * element);
  }
  // No rank writes its next chunk's sums where another still reads these.
  return meeting.wait_for_all();
}

// As rank 0 of NCCL 2.28 writes down what it chose; here what it is asked for, otherwise by size.
void write_choice(const Meeting& meeting, std::size_t bytes) {
  const char* path = std::getenv("NCCL_DEBUG_FILE");
  if (path == nullptr || meeting.rank() != 0 || meeting.ranks() == 1) {
    return;
  }
  const bool is_small = bytes < (1 << 16);
  const char* asked = std::getenv("NCCL_ALGO");
  std::string algorithm = asked != nullptr ? asked : is_small ? "Tree" : "Ring";
  for (char& letter : algorithm) {
    letter = static_cast<char>(std::toupper(letter));
  }
  std::ofstream(path, std::ios::app) << "host:" << getpid() << ":1 [0] NCCL INFO AllReduce: " << bytes << " Bytes -> Algo "
                                     << algorithm << " proto " << (is_small ? "LL" : "SIMPLE")
                                     << " channel{Lo..Hi}={0.." << (is_small ? 0 : 23) << "}\n";
}

std::uint64_t hash_of_host() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return std::hash<std::string>()(name);
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* version) {
  *version = static_cast<int>(virtual_cuda::setting("VIRTUAL_CUDA_NCCL", 22809));
  return SUCCESS;
}

Result ncclGetUniqueId(UniqueId* id) {
  const auto now = static_cast<unsigned long long>(time(nullptr));
  std::snprintf(id->name, sizeof(id->name), "/virtual-nccl-%d-%llu", getpid(), now);
  return SUCCESS;
}

Result ncclCommInitRank(Meeting** communicator, int ranks, UniqueId id, int rank) {
  *communicator = nullptr;
  auto* meeting = new Meeting();
  if (!meeting->join(id.name, rank, ranks)) {
    delete meeting;
    return refuse(SYSTEM_ERROR, "no shared memory for " + std::to_string(ranks) + " ranks");
  }
  Machine& machine = Machine::get();
  const int device = machine.device();
  // Of all hosts: those of a test share their memory, and each has a name of its own.
  const std::uint64_t place = hash_of_host() * 64 + static_cast<std::uint64_t>(device);
  std::string duplicate;
  bool are_there = meeting->exchange(place, [&](int other, std::uint64_t its_place) {
    if (other != rank && its_place == place) {
      duplicate = "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " + std::to_string(other) +
                  " both on CUDA device " + std::to_string(device);
    }
  });
  if (!duplicate.empty()) {
    return refuse(INVALID_USAGE, duplicate);
  }
  // Ranks begin together, whatever each did before.
  std::uint64_t latest = 0;
  are_there &= meeting->exchange(machine.now(machine.current_stream(device)), [&](int, std::uint64_t now) {
    latest = std::max(latest, now);
  });
  if (!are_there) {
    return refuse(REMOTE_ERROR, "a rank left while the others met");
  }
  machine.go_on_from(latest);
  *communicator = meeting;
  return SUCCESS;
}

Result ncclAllReduce(
    const void* input, void* output, std::size_t count, int type, int operation, Meeting* meeting, Stream* stream) {
  if (bytes_of(type) == 0 || operation != SUM) {
    return refuse(INVALID_ARGUMENT, "virtual NCCL sums fp32, fp16 and bf16");
  }
  Machine& machine = Machine::get();
  try {
    machine.check(*stream);
  } catch (const std::exception& error) {
    return refuse(CUDA_ERROR, "Cuda failure 719 'unspecified launch failure'");
  }
  machine.log(
      "sum %zu elements of type %d %s", count, type, input == output ? "in place" : "to another place");
  ++sums;
  const std::size_t bytes = count * bytes_of(type);
  write_choice(*meeting, bytes);
  std::uint64_t begin = 0;
  const bool ends =
      meeting->exchange(machine.now(*stream), [&](int, std::uint64_t now) { begin = std::max(begin, now); }) &&
      sum(*meeting, static_cast<const char*>(input), static_cast<char*>(output), count, type);

  const auto access = [&](const void* data, bool writes) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return Access{address, address + bytes, writes};
  };
  const auto& settings = machine.settings();
  auto wire = settings.wire_ns + static_cast<std::uint64_t>(std::llround(bytes * settings.wire_ns_per_byte));
  if (settings.long_sum > 0 && sums % settings.long_sum == 0) {
    wire *= 10;
  }
  machine.run_until(*stream, "ncclAllReduce", {access(input, false), access(output, true)}, begin + wire);
  const bool hangs = sums == settings.hanging_sum && virtual_cuda::is_faulty(stream->device);
  if (hangs) {
    // The others have what they need of this sum, and wait for ever in the next.
    meeting->end();
  }
  if (hangs || !ends) {
    machine.hang(*stream);
  }
  return SUCCESS;
}

Result ncclCommGetAsyncError(Meeting*, Result* error) {
  const auto failing = Machine::get().settings().failing_sum;
  const bool has_failed = failing > 0 && sums >= failing;
  *error = has_failed ? refuse(REMOTE_ERROR, "rank 1 closed its connection") : SUCCESS;
  return SUCCESS;
}

Result ncclCommAbort(Meeting* meeting) {
  Machine::get().log("abort");
  meeting->leave();
  delete meeting;
  return SUCCESS;
}

const char* ncclGetErrorString(Result result) {
  switch (result) {
    case SUCCESS: return "no error";
    case CUDA_ERROR: return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case SYSTEM_ERROR: return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case REMOTE_ERROR: return "remote process exited or there was a network error";
    case INVALID_USAGE: return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    default: return "invalid argument (run with NCCL_DEBUG=WARN for details)";
  }
}

const char* ncclGetLastError(Meeting*) { return last_error.c_str(); }

}  // extern "C"

// libnccl.so.2: collectives and messages between the ranks of one machine, including simulated hosts, through shared
// memory, on a virtual time shared by all ranks.
//
// A collective begins when the streams of all ranks have reached it, and takes the time of the wire. The host
// performs it immediately and waits for the other ranks within the call, unlike NCCL: ranks must enqueue their
// collectives in the same order, and must not postpone anything that another rank waits for until after a collective.
// If a rank can no longer arrive, the hosts continue, but their streams never do.

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
#include <vector>

#include "machine.h"
#include "meeting.h"
#include "recording.h"

namespace {

using virtual_cuda::Access;
using virtual_cuda::Machine;
using virtual_cuda::Meeting;
using virtual_cuda::Stream;

enum Result { SUCCESS = 0, CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };

// ncclDataType_t.
enum Type { HALF = 6, FLOAT = 7, BFLOAT16 = 9 };

// ncclRedOp_t.
enum Operation { SUM = 0, MAX = 2, AVG = 4 };

struct UniqueId {
  char name[128];
};

std::string last_error;

// Number of enqueued collectives.
std::uint64_t sums = 0;

// Collective in which a faulty GPU gets one wrong element, from 1; 0 is none.
const std::uint64_t wrong_sum = virtual_cuda::count_of("VIRTUAL_CUDA_WRONG_SUM");

Result refuse(Result result, const std::string& why) {
  last_error = why;
  return result;
}

std::size_t bytes_of(int type) { return type == FLOAT ? 4 : type == HALF || type == BFLOAT16 ? 2 : 0; }

// Combines elements `first` to `end` of all ranks' chunks in rank order, rounding after every operation, into the
// same elements of `result`.
template <typename Element>
void combine(const Meeting& meeting, int operation, std::size_t first, std::size_t end, Element* result) {
  std::copy_n(reinterpret_cast<const Element*>(meeting.chunk_of(0)) + first, end - first, result + first);
  for (int rank = 1; rank < meeting.ranks(); ++rank) {
    const auto* others = reinterpret_cast<const Element*>(meeting.chunk_of(rank));
    for (std::size_t index = first; index < end; ++index) {
      result[index] = operation == MAX ? std::max(result[index], others[index]) : Element(result[index] + others[index]);
    }
  }
  if (operation == AVG) {
    for (std::size_t index = first; index < end; ++index) {
      result[index] = Element(float(result[index]) / static_cast<float>(meeting.ranks()));
    }
  }
}

void combine(const Meeting& meeting, int type, int operation, std::size_t first, std::size_t end, char* result) {
  switch (type) {
    case HALF: return combine(meeting, operation, first, end, reinterpret_cast<c10::Half*>(result));
    case BFLOAT16: return combine(meeting, operation, first, end, reinterpret_cast<c10::BFloat16*>(result));
    default: return combine(meeting, operation, first, end, reinterpret_cast<float*>(result));
  }
}

// Passes `bytes` between ranks chunk by chunk: each rank with input writes its own, and `take` receives the offset
// and the length of the available bytes. Returns false if a rank will never arrive.
template <typename Take>
bool pass(Meeting& meeting, const char* own, std::size_t bytes, Take take) {
  for (std::size_t done = 0; done < bytes; done += virtual_cuda::CHUNK_BYTES) {
    const std::size_t length = std::min(virtual_cuda::CHUNK_BYTES, bytes - done);
    if (own != nullptr) {
      std::memcpy(meeting.chunk_of(meeting.rank()), own + done, length);
    }
    if (!meeting.wait_for_all()) {
      return false;
    }
    take(done, length);
    // No rank writes its next chunk while another still reads this one.
    if (!meeting.wait_for_all()) {
      return false;
    }
  }
  return true;
}

// Every rank adds its share of each chunk; returns false if one will never arrive.
bool all_reduce(Meeting& meeting, const char* input, char* output, std::size_t count, int type, int operation) {
  const std::size_t element = bytes_of(type), rank = meeting.rank(), ranks = meeting.ranks();
  if (ranks == 1) {
    std::memmove(output, input, count * element);
    return true;
  }
  bool ends = true;
  return pass(meeting, input, count * element, [&](std::size_t done, std::size_t length) {
    const std::size_t elements = length / element;
    combine(meeting, type, operation, elements * rank / ranks, elements * (rank + 1) / ranks, meeting.sums());
    ends &= meeting.wait_for_all();
    std::memcpy(output + done, meeting.sums(), length);
  }) && ends;
}

// Like all_reduce, on the root only.
bool reduce(
    Meeting& meeting, const char* input, char* output, std::size_t count, int type, int operation, int root) {
  return pass(meeting, input, count * bytes_of(type), [&](std::size_t done, std::size_t length) {
    if (meeting.rank() == root) {
      combine(meeting, type, operation, 0, length / bytes_of(type), output + done);
    }
  });
}

bool broadcast(Meeting& meeting, const char* input, char* output, std::size_t bytes, int root) {
  return pass(meeting, meeting.rank() == root ? input : nullptr, bytes, [&](std::size_t done, std::size_t length) {
    std::memmove(output + done, meeting.chunk_of(root), length);
  });
}

// A pending send or receive of a group, with its size in bytes.
struct Message {
  int peer;
  const char* input;
  char* output;
  std::size_t bytes;
};

int open_groups = 0;
std::vector<Message> sent, received;
Meeting* group_meeting = nullptr;
void* group_stream = nullptr;

// Exchanges one message after the other, from each rank to each.
bool exchange_messages(Meeting& meeting) {
  for (int from = 0; from < meeting.ranks(); ++from) {
    for (int to = 0; to < meeting.ranks(); ++to) {
      const auto of = [](std::vector<Message>& messages, int peer) {
        return std::find_if(messages.begin(), messages.end(), [&](const Message& one) { return one.peer == peer; });
      };
      const auto out = meeting.rank() == from ? of(sent, to) : sent.end();
      const auto in = meeting.rank() == to ? of(received, from) : received.end();
      std::uint64_t bytes = 0;
      const std::uint64_t own = out == sent.end() ? 0 : out->bytes;
      if (!meeting.exchange(own, [&](int rank, std::uint64_t its) { bytes = rank == from ? its : bytes; })) {
        return false;
      }
      if (bytes == 0 && in == received.end()) {
        continue;
      }
      if (meeting.rank() == to && (in == received.end() || in->bytes != bytes)) {
        // The peer does not expect it, or expects another length: NCCL would wait forever.
        meeting.end();
        return false;
      }
      const bool ends = pass(
          meeting, out == sent.end() ? nullptr : out->input, bytes, [&](std::size_t done, std::size_t length) {
            if (meeting.rank() == to) {
              std::memcpy(in->output + done, meeting.chunk_of(from), length);
            }
          });
      if (!ends) {
        return false;
      }
    }
  }
  return true;
}

// Writes the choice of algorithm in the format of rank 0 in NCCL 2.28; here it is the requested one, or depends on
// the size.
void write_choice(const Meeting& meeting, const char* function, std::size_t bytes) {
  const char* path = std::getenv("NCCL_DEBUG_FILE");
  if (path == nullptr || meeting.rank() != 0 || meeting.ranks() == 1) {
    return;
  }
  const bool is_small = bytes < (1 << 16);
  const char* asked = std::getenv("NCCL_ALGO");
  std::string algorithm = asked != nullptr ? asked : is_small ? "Tree" : "Ring";
  const auto to_upper = [](std::string text) {
    for (char& letter : text) {
      letter = static_cast<char>(std::toupper(letter));
    }
    return text;
  };
  // `allreduce:tree` applies only to that function; the others use rings.
  if (const std::size_t colon = algorithm.find(':'); colon != std::string::npos) {
    algorithm = to_upper(algorithm.substr(0, colon)) == to_upper(function) ? algorithm.substr(colon + 1) : "Ring";
  }
  algorithm = to_upper(algorithm);
  std::ofstream(path, std::ios::app) << "host:" << getpid() << ":1 [0] NCCL INFO " << function << ": " << bytes << " Bytes -> Algo "
                                     << algorithm << " proto " << (is_small ? "LL" : "SIMPLE")
                                     << " channel{Lo..Hi}={0.." << (is_small ? 0 : 23) << "}\n";
}

// Memory that an NCCL kernel accesses.
struct Place {
  const void* data;
  std::size_t bytes;
  bool writes;
};

// Enqueues `body`, which runs immediately: it begins when the streams of all ranks have reached it, and takes the
// time of the wire for `bytes`.
template <typename Body>
Result enqueue(
    const char* name, const std::vector<Place>& places, std::size_t bytes, Meeting* meeting, void* handle, Body body) {
  Machine& machine = Machine::get();
  Stream* const stream = machine.stream_of(handle);
  if (stream == nullptr) {
    return refuse(INVALID_ARGUMENT, "virtual NCCL: not a stream");
  }
  try {
    machine.check(*stream);
  } catch (const std::exception& error) {
    return refuse(CUDA_ERROR, "Cuda failure 719 'unspecified launch failure'");
  }
  ++sums;
  // NCCL writes no choice for messages between ranks.
  if (std::strcmp(name, "ncclSendRecv") != 0) {
    write_choice(*meeting, name + std::strlen("nccl"), bytes);
  }
  std::uint64_t begin = 0;
  const bool ends =
      meeting->exchange(machine.now(*stream), [&](int, std::uint64_t now) { begin = std::max(begin, now); }) && body();

  const auto& settings = machine.settings();
  if (sums == wrong_sum && virtual_cuda::is_faulty(stream->device)) {
    const auto written =
        std::find_if(places.begin(), places.end(), [](const Place& place) { return place.writes && place.bytes > 0; });
    if (written != places.end()) {
      // The lowest bit of its first element.
      *static_cast<char*>(const_cast<void*>(written->data)) ^= 1;
    }
  }

  std::vector<Access> accesses;
  for (const Place& place : places) {
    const auto address = reinterpret_cast<std::uintptr_t>(place.data);
    accesses.push_back(Access{address, address + place.bytes, place.writes});
  }
  auto wire = settings.wire_ns + static_cast<std::uint64_t>(std::llround(bytes * settings.wire_ns_per_byte));
  if (settings.long_sum > 0 && sums % settings.long_sum == 0) {
    wire *= 10;
  }
  machine.run_until(*stream, name, accesses, begin + wire);
  const bool hangs = sums == settings.hanging_sum && virtual_cuda::is_faulty(stream->device);
  if (hangs) {
    // The other ranks have completed this collective, and wait forever in the next one.
    meeting->end();
  }
  if (hangs || !ends) {
    machine.hang(*stream);
  }
  return SUCCESS;
}

bool is_known(int type, int operation) {
  return bytes_of(type) > 0 && (operation == SUM || operation == MAX || operation == AVG);
}

Result unknown() { return refuse(INVALID_ARGUMENT, "virtual NCCL sums fp32, fp16 and bf16"); }

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
  // Unique across hosts: those of a test share memory, but each has its own name.
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
  // Ranks start at the same virtual time, regardless of their previous work.
  std::uint64_t latest = 0;
  are_there &= meeting->exchange(machine.now(machine.current_stream(device)), [&](int, std::uint64_t now) {
    latest = std::max(latest, now);
  });
  if (!are_there) {
    return refuse(REMOTE_ERROR, "a rank exited during initialization");
  }
  machine.go_on_from(latest);
  *communicator = meeting;
  return SUCCESS;
}

Result ncclAllReduce(
    const char* input, char* output, std::size_t count, int type, int operation, Meeting* meeting, void* stream) {
  if (!is_known(type, operation)) {
    return unknown();
  }
  Stream* const captured = Machine::get().stream_of(stream);
  if (captured != nullptr && captured->recording != nullptr) {
    captured->recording->add(*captured, [=](Stream& replayed) {
      ncclAllReduce(input, output, count, type, operation, meeting, &replayed);
    });
    return SUCCESS;
  }
  Machine::get().log("sum %zu elements of type %d %s", count, type, input == output ? "in place" : "to another place");
  const std::size_t bytes = count * bytes_of(type);
  return enqueue("ncclAllReduce", {{input, bytes, false}, {output, bytes, true}}, bytes, meeting, stream, [&] {
    return all_reduce(*meeting, input, output, count, type, operation);
  });
}

Result ncclReduce(
    const char* input, char* output, std::size_t count, int type, int operation, int root, Meeting* meeting,
    void* stream) {
  if (!is_known(type, operation)) {
    return unknown();
  }
  const std::size_t bytes = count * bytes_of(type);
  std::vector<Place> places = {{input, bytes, false}};
  if (meeting->rank() == root) {
    places.push_back({output, bytes, true});
  }
  return enqueue("ncclReduce", places, bytes, meeting, stream, [&] {
    return reduce(*meeting, input, output, count, type, operation, root);
  });
}

Result ncclReduceScatter(
    const char* input, char* output, std::size_t count, int type, int operation, Meeting* meeting, void* stream) {
  if (!is_known(type, operation)) {
    return unknown();
  }
  const std::size_t part = count * bytes_of(type), bytes = part * meeting->ranks();
  return enqueue("ncclReduceScatter", {{input, bytes, false}, {output, part, true}}, bytes, meeting, stream, [&] {
    for (int rank = 0; rank < meeting->ranks(); ++rank) {
      if (!reduce(*meeting, input + rank * part, output, count, type, operation, rank)) {
        return false;
      }
    }
    return true;
  });
}

Result ncclBroadcast(
    const char* input, char* output, std::size_t count, int type, int root, Meeting* meeting, void* stream) {
  const std::size_t bytes = count * bytes_of(type);
  std::vector<Place> places = {{output, bytes, true}};
  if (meeting->rank() == root) {
    places.push_back({input, bytes, false});
  }
  return enqueue("ncclBroadcast", places, bytes, meeting, stream, [&] {
    return broadcast(*meeting, input, output, bytes, root);
  });
}

Result ncclAllGather(
    const char* input, char* output, std::size_t count, int type, Meeting* meeting, void* stream) {
  const std::size_t part = count * bytes_of(type), bytes = part * meeting->ranks();
  return enqueue("ncclAllGather", {{input, part, false}, {output, bytes, true}}, bytes, meeting, stream, [&] {
    for (int rank = 0; rank < meeting->ranks(); ++rank) {
      if (!broadcast(*meeting, input, output + rank * part, part, rank)) {
        return false;
      }
    }
    return true;
  });
}

Result ncclGroupStart() {
  ++open_groups;
  return SUCCESS;
}

Result ncclGroupEnd() {
  if (open_groups == 0) {
    return refuse(INVALID_USAGE, "ncclGroupEnd: not in a group call.");
  }
  if (--open_groups > 0 || (sent.empty() && received.empty())) {
    return SUCCESS;
  }
  std::vector<Place> places;
  std::size_t bytes = 0;
  for (const Message& message : sent) {
    places.push_back({message.input, message.bytes, false});
    bytes += message.bytes;
  }
  for (const Message& message : received) {
    places.push_back({message.output, message.bytes, true});
  }
  const Result result = enqueue("ncclSendRecv", places, bytes, group_meeting, group_stream, [&] {
    return exchange_messages(*group_meeting);
  });
  sent.clear();
  received.clear();
  return result;
}

Result ncclSend(const char* input, std::size_t count, int type, int peer, Meeting* meeting, void* stream) {
  if (open_groups == 0) {
    return refuse(INVALID_USAGE, "virtual NCCL sends and receives in groups");
  }
  sent.push_back({peer, input, nullptr, count * bytes_of(type)});
  group_meeting = meeting;
  group_stream = stream;
  return SUCCESS;
}

Result ncclRecv(char* output, std::size_t count, int type, int peer, Meeting* meeting, void* stream) {
  if (open_groups == 0) {
    return refuse(INVALID_USAGE, "virtual NCCL sends and receives in groups");
  }
  received.push_back({peer, nullptr, output, count * bytes_of(type)});
  group_meeting = meeting;
  group_stream = stream;
  return SUCCESS;
}

Result ncclCommGetAsyncError(Meeting* meeting, Result* error) {
  const auto& settings = Machine::get().settings();
  const bool has_failed = settings.failing_sum > 0 && sums >= settings.failing_sum;
  const bool is_cut = settings.has_sockets && meeting->has_lost_a_process();
  *error = has_failed || is_cut ? refuse(REMOTE_ERROR, "a rank closed its connection") : SUCCESS;
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

// Shared memory of the ranks of one machine, and their barriers.

#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <string>

namespace virtual_cuda {

constexpr int MOST_RANKS = 64;
// Size of each rank's chunk, and of the sum's.
constexpr std::size_t CHUNK_BYTES = 1 << 20;

// Interval between checks of the other ranks' processes.
constexpr timespec LOOK = {0, 100'000'000};

// Barriers return false if a rank's process has exited or is stopped: on a GPU the hosts would continue, and only the
// all-reduce would never end.
class Meeting {
 public:
  // Returns when all `ranks` have joined; false if there is no memory.
  bool join(const std::string& name, int rank, int ranks) {
    rank_ = rank;
    ranks_ = ranks;
    // The hosts of a test share this folder, but each has its own /dev/shm.
    const std::string path = P_tmpdir + name;
    const int file = ranks > MOST_RANKS ? -1 : open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, length()) != 0) {
      return false;
    }
    void* memory = mmap(nullptr, length(), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) {
      return false;
    }
    head_ = static_cast<Head*>(memory);
    head_->processes[rank] = getpid();
    if (!wait_for_all()) {
      return false;
    }
    if (rank == 0) {
      unlink(path.c_str());
    }
    return true;
  }

  void leave() { munmap(head_, length()); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  char* chunk_of(int rank) const { return reinterpret_cast<char*>(head_ + 1) + rank * CHUNK_BYTES; }
  char* sums() const { return chunk_of(ranks_); }

  // Returns false if one of them will never arrive, now or later.
  bool wait_for_all() {
    const std::uint32_t round = head_->round.load();
    if (head_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks_)) {
      head_->arrived.store(0);
      head_->round.store(round + 1);
      syscall(SYS_futex, &head_->round, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    while (head_->round.load() == round) {
      if (head_->is_over.load() && head_->round.load() == round) {
        return false;
      }
      const bool is_late = syscall(SYS_futex, &head_->round, FUTEX_WAIT, round, &LOOK, nullptr, 0) != 0 && errno == ETIMEDOUT;
      for (int rank = 0; is_late && rank < ranks_; ++rank) {
        const pid_t process = head_->processes[rank].load();
        if (process != 0 && is_in("ZXxTt", process) && head_->round.load() == round) {
          end();
        }
      }
    }
    return true;
  }

  // Returns true if a rank's process has exited.
  bool has_lost_a_process() const {
    const auto is_gone = [](pid_t process) { return process != 0 && is_in("ZXx", process); };
    return std::any_of(head_->processes, head_->processes + ranks_, is_gone);
  }

  // Makes every later wait fail, for all ranks.
  void end() { head_->is_over.store(true); }

  // Passes every rank's number to `body`, by rank; returns false if one will never arrive.
  template <typename Body>
  bool exchange(std::uint64_t own, Body body) {
    head_->numbers[rank_] = own;
    if (!wait_for_all()) {
      return false;
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      body(rank, head_->numbers[rank]);
    }
    return wait_for_all();
  }

 private:
  // Initially zero, like all new shared memory.
  struct Head {
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> round;
    std::atomic<bool> is_over;
    std::atomic<pid_t> processes[MOST_RANKS];
    std::uint64_t numbers[MOST_RANKS];
  };

  // Returns true if the process has one of these kernel states: Z, X and x are dead (as is a missing process), T and
  // t stopped.
  static bool is_in(const char* states, pid_t process) {
    std::ifstream file("/proc/" + std::to_string(process) + "/stat");
    std::string line;
    std::getline(file, line);
    // After the program's name, which may contain any character.
    const std::size_t name_end = line.rfind(") ");
    const char state = name_end == std::string::npos ? 'X' : line[name_end + 2];
    return std::strchr(states, state) != nullptr;
  }

  std::size_t length() const { return sizeof(Head) + (ranks_ + 1) * CHUNK_BYTES; }

  Head* head_ = nullptr;
  int rank_ = 0;
  int ranks_ = 0;
};

}  // namespace virtual_cuda

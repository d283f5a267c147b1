// Memory that the ranks of one host share, and where they wait for each other. Not for what they sum.

#pragma once

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdint>
#include <string>

namespace virtual_cuda {

constexpr int MOST_RANKS = 64;
// Each rank's, and the sums'.
constexpr std::size_t CHUNK_BYTES = 1 << 20;

class Meeting {
 public:
  // Returns when all `ranks` are there; false where there is no memory.
  bool join(const std::string& name, int rank, int ranks) {
    rank_ = rank;
    ranks_ = ranks;
    // The hosts of a test have this folder together, and /dev/shm each its own.
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
    wait_for_all();
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

  void wait_for_all() {
    const std::uint32_t round = head_->round.load();
    if (head_->arrived.fetch_add(1) + 1 == static_cast<std::uint32_t>(ranks_)) {
      head_->arrived.store(0);
      head_->round.store(round + 1);
      syscall(SYS_futex, &head_->round, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    while (head_->round.load() == round) {
      syscall(SYS_futex, &head_->round, FUTEX_WAIT, round, nullptr, nullptr, 0);
    }
  }

  // Every rank's number, by rank.
  template <typename Body>
  void exchange(std::uint64_t own, Body body) {
    head_->numbers[rank_] = own;
    wait_for_all();
    for (int rank = 0; rank < ranks_; ++rank) {
      body(rank, head_->numbers[rank]);
    }
    wait_for_all();
  }

 private:
  // Zero at first, as new shared memory is.
  struct Head {
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> round;
    std::uint64_t numbers[MOST_RANKS];
  };

  std::size_t length() const { return sizeof(Head) + (ranks_ + 1) * CHUNK_BYTES; }

  Head* head_ = nullptr;
  int rank_ = 0;
  int ranks_ = 0;
};

}  // namespace virtual_cuda

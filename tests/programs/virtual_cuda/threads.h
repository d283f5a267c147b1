// Runs the threads of a kernel on one core.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "access_log.h"
#include "kernel_image.h"

namespace virtual_cuda {

// Order in which the threads of a block run between two barriers, and the blocks of a grid. A kernel whose result
// depends on it lacks a barrier.
enum class Order { FORWARDS, BACKWARDS, SHUFFLED };

// Runs kernels, one at a time. A thread runs until it ends or waits at a barrier. Only waiting threads need their own
// stacks, so a kernel without barriers is a loop.
class Threads {
 public:
  explicit Threads(Order order);
  ~Threads();

  // Calls `kernel` for every thread of the grid; returns the kernel's error, or an empty string.
  std::string run(
      const Image& image, const Kernel& kernel, void* const* values, Dim3 grid, Dim3 block, AccessLog& log);

 private:
  struct Fiber;
  struct Waiting {
    Fiber* fiber;
    unsigned thread;
    int line;
  };

  static Threads* running_;

  static void enter();
  static void wait_at(int line);
  static void fence();
  static void touch(const void* address, unsigned long bytes, Touch touch);

  void loop();
  std::string run_block(unsigned threads);
  void resume(Fiber* fiber);
  void select(unsigned thread);
  template <typename T>
  void arrange(std::vector<T>& items);
  template <typename T>
  void shuffle(std::vector<T>& items);

  const Order order_;
  std::mt19937 random_{1};
  std::vector<std::unique_ptr<Fiber>> fibers_;
  // Fibers without a thread.
  std::vector<Fiber*> idle_;
  Fiber* current_ = nullptr;
  // Stack position at which `run_block` continues.
  void* scheduler_ = nullptr;

  // State of the launch.
  const Image* image_ = nullptr;
  const Kernel* kernel_ = nullptr;
  AccessLog* log_ = nullptr;
  std::string error_;
  void* const* values_ = nullptr;
  Dim3 block_size_;

  // State of the block: threads in the order in which they start, and how many have started and ended.
  std::vector<unsigned> to_begin_;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
  unsigned thread_ = 0;
  std::vector<Waiting> waiting_;
};

}  // namespace virtual_cuda

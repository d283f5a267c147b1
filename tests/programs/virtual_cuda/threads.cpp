#include "threads.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace virtual_cuda {

namespace {

constexpr std::size_t STACK_BYTES = 64 << 10;
// At the end of each stack, so that an overflow causes a fault.
constexpr std::size_t GUARD_BYTES = 4 << 10;

}  // namespace

#ifdef __x86_64__
// Saves the current stack position in `*from` and continues at `to`, as if returning from a call there. ucontext does
// the same with a system call for the signal mask and is ten times slower.
extern "C" void virtual_cuda_switch(void** from, void* to);
asm(R"(
.text
.globl virtual_cuda_switch
.hidden virtual_cuda_switch
.type virtual_cuda_switch, @function
virtual_cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size virtual_cuda_switch, . - virtual_cuda_switch
)");

void* place_on(char* stack, std::size_t bytes, void (*entry)()) {
  // Popped by the first switch: six registers and the entry point, which finds the stack as after a call.
  void** place = reinterpret_cast<void**>(stack + bytes) - 8;
  std::memset(place, 0, 8 * sizeof(void*));
  place[6] = reinterpret_cast<void*>(entry);
  return place;
}
#else
void virtual_cuda_switch(void** from, void* to) {
  ucontext_t here;
  *from = &here;
  swapcontext(&here, static_cast<ucontext_t*>(to));
}

void* place_on(char* stack, std::size_t bytes, void (*entry)()) {
  auto* context = new (stack) ucontext_t;
  getcontext(context);
  context->uc_stack.ss_sp = stack + sizeof(ucontext_t);
  context->uc_stack.ss_size = bytes - sizeof(ucontext_t);
  makecontext(context, entry, 0);
  return context;
}
#endif

struct Threads::Fiber {
  Fiber() {
    void* const memory =
        mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, GUARD_BYTES, PROT_NONE) != 0) {
      throw std::runtime_error("virtual CUDA: no memory for a thread's stack");
    }
    stack = static_cast<char*>(memory);
    place = place_on(stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES, &Threads::enter);
  }
  ~Fiber() { munmap(stack, STACK_BYTES); }

  char* stack;
  void* place;
};

Threads* Threads::running_ = nullptr;

Threads::Threads(Order order) : order_(order) {}

Threads::~Threads() = default;

template <typename T>
void Threads::arrange(std::vector<T>& items) {
  if (order_ == Order::BACKWARDS) {
    std::reverse(items.begin(), items.end());
  }
  shuffle(items);
}

template <typename T>
void Threads::shuffle(std::vector<T>& items) {
  if (order_ == Order::SHUFFLED) {
    std::shuffle(items.begin(), items.end(), random_);
  }
}

std::string Threads::run(
    const Image& image, const Kernel& kernel, void* const* values, Dim3 grid, Dim3 block, AccessLog& log) {
  running_ = this;
  log_ = &log;
  error_.clear();
  image_ = &image;
  kernel_ = &kernel;
  values_ = values;
  block_size_ = block;
  *image.hooks->grid_size = grid;
  *image.hooks->block_size = block;
  image.hooks->barrier = &Threads::wait_at;
  image.hooks->fence = &Threads::fence;
  image.hooks->touch = &Threads::touch;
  std::vector<Dim3> blocks;
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        blocks.push_back({x, y, z});
      }
    }
  }
  arrange(blocks);
  for (const Dim3& place : blocks) {
    *image.hooks->block = place;
    if (image.shared_begin != nullptr) {
      // NaN in every float: reading values that this block has not written is an error.
      std::memset(image.shared_begin, 0xff, image.shared_end - image.shared_begin);
    }
    log.begin_block(block.x * block.y * block.z);
    error_ = run_block(block.x * block.y * block.z);
    if (!error_.empty()) {
      const auto number = [](unsigned value) { return std::to_string(value); };
      error_ = "block (" + number(place.x) + ", " + number(place.y) + ", " + number(place.z) + "): " + error_;
      break;
    }
  }
  running_ = nullptr;
  return error_;
}

std::string Threads::run_block(unsigned threads) {
  to_begin_.resize(threads);
  std::iota(to_begin_.begin(), to_begin_.end(), 0u);
  arrange(to_begin_);
  begun_ = ended_ = 0;
  waiting_.clear();
  while (begun_ < threads) {
    if (idle_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      idle_.push_back(fibers_.back().get());
    }
    Fiber* const fiber = idle_.back();
    idle_.pop_back();
    resume(fiber);
    if (!error_.empty()) {
      return error_;
    }
  }
  while (!waiting_.empty()) {
    std::vector<Waiting> arrived;
    arrived.swap(waiting_);
    const auto elsewhere = std::find_if(
        arrived.begin(), arrived.end(), [&](const Waiting& one) { return one.line != arrived.front().line; });
    if (ended_ > 0 || elsewhere != arrived.end()) {
      const std::string line = "line " + std::to_string(arrived.front().line);
      return ended_ > 0 ? std::to_string(ended_) + " of " + std::to_string(threads) +
                              " threads end while others wait at the barrier of " + line
                        : "threads of one block wait at the barriers of " + line + " and line " +
                              std::to_string(elsewhere->line);
    }
    log_->pass_barrier(arrived.front().line);
    // Otherwise they arrived in the requested order.
    shuffle(arrived);
    for (const Waiting& one : arrived) {
      select(one.thread);
      resume(one.fiber);
      if (!error_.empty()) {
        return error_;
      }
    }
  }
  return "";
}

void Threads::resume(Fiber* fiber) {
  current_ = fiber;
  virtual_cuda_switch(&scheduler_, fiber->place);
}

void Threads::select(unsigned thread) {
  thread_ = thread;
  const unsigned row = thread / block_size_.x;
  *image_->hooks->thread = {thread % block_size_.x, row % block_size_.y, row / block_size_.y};
}

void Threads::enter() { running_->loop(); }

void Threads::loop() {
  while (true) {
    while (begun_ < to_begin_.size()) {
      select(to_begin_[begun_++]);
      kernel_->call(values_);
      ++ended_;
    }
    idle_.push_back(current_);
    virtual_cuda_switch(&current_->place, scheduler_);
  }
}

void Threads::fence() { running_->log_->fence(running_->thread_); }

void Threads::touch(const void* address, unsigned long bytes, Touch touch) {
  Threads& threads = *running_;
  Fiber* const fiber = threads.current_;
  const auto place = reinterpret_cast<std::uintptr_t>(address);
  if (place - reinterpret_cast<std::uintptr_t>(fiber->stack) < STACK_BYTES) {
    return;
  }
  if (!threads.log_->touch(place, bytes, touch, threads.thread_)) {
    threads.error_ = threads.log_->error();
    // Never resumed: the launch has failed.
    virtual_cuda_switch(&fiber->place, threads.scheduler_);
  }
}

void Threads::wait_at(int line) {
  Threads& threads = *running_;
  Fiber* const fiber = threads.current_;
  threads.waiting_.push_back({fiber, threads.thread_, line});
  virtual_cuda_switch(&fiber->place, threads.scheduler_);
}

}  // namespace virtual_cuda

// C functions for libtorch calls that tch lacks. Compiled against the headers of the linked libtorch; requires only
// torch_cpu and c10: CUDA is accessed through the device guard that libtorch_cuda registers when it is loaded.
//
// Functions that return a message return null on success.

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "guarded.h"
#include "update.h"

namespace {

using GradientCallback = void (*)(void* context, size_t parameter);
using UnitCallback = void (*)(void* context, size_t unit);

struct GradientHook final : torch::autograd::PostAccumulateGradHook {
  GradientHook(GradientCallback callback, void* context, size_t parameter)
      : callback(callback), context(context), parameter(parameter) {}

  void operator()(const torch::autograd::Variable&) override { callback(context, parameter); }

  GradientCallback callback;
  void* context;
  size_t parameter;
};

struct UnitHook final : torch::autograd::FunctionPreHook {
  UnitHook(UnitCallback callback, void* context, size_t unit) : callback(callback), context(context), unit(unit) {}

  torch::autograd::variable_list operator()(const torch::autograd::variable_list& gradients) override {
    callback(context, unit);
    return gradients;
  }

  UnitCallback callback;
  void* context;
  size_t unit;
};

using NodeCallback = void (*)(uint64_t node, int is_end);

NodeCallback on_node = nullptr;

struct NodeObserved final : at::ObserverContext {};

std::unique_ptr<at::ObserverContext> node_begins(const at::RecordFunction& node) {
  on_node(static_cast<uint64_t>(node.seqNr()), 0);
  return std::make_unique<NodeObserved>();
}

void node_ends(const at::RecordFunction& node, at::ObserverContext*) {
  on_node(static_cast<uint64_t>(node.seqNr()), 1);
}

const c10::impl::DeviceGuardImplInterface* cuda() {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::CUDA);
}

std::optional<at::Tensor> optional(const at::Tensor* tensor) {
  return tensor == nullptr ? std::nullopt : std::optional<at::Tensor>(*tensor);
}

std::vector<at::Tensor> list(at::Tensor* const* tensors, size_t count) {
  std::vector<at::Tensor> all;
  all.reserve(count);
  for (size_t index = 0; index < count; ++index) {
    all.push_back(*tensors[index]);
  }
  return all;
}

c10::Stream stream_of(int64_t id, int64_t device) {
  return c10::Stream::unpack3(id, static_cast<c10::DeviceIndex>(device), c10::DeviceType::CUDA);
}

}  // namespace

extern "C" {

void ringmark_free_message(char* message) { std::free(message); }

const char* ringmark_libtorch_version() { return TORCH_VERSION; }

// --- autograd ---------------------------------------------------------------------------------------------------

char* ringmark_on_gradient(at::Tensor* parameter, GradientCallback callback, void* context, size_t index) {
  return guarded([&] {
    torch::autograd::impl::set_post_acc_grad_hooks(
        *parameter, std::make_unique<GradientHook>(callback, context, index));
  });
}

// Calls `callback` before each backward through the function that computed `output`, if there is one.
char* ringmark_before_backward(at::Tensor* output, UnitCallback callback, void* context, size_t unit) {
  return guarded([&] {
    if (const auto& function = output->grad_fn()) {
      function->add_pre_hook(std::make_unique<UnitHook>(callback, context, unit));
    }
  });
}

char* ringmark_backward(at::Tensor* loss, at::Tensor* gradient) {
  return guarded([&] {
    std::vector<at::Tensor> gradients;
    if (gradient != nullptr) {
      gradients.push_back(*gradient);
    }
    torch::autograd::backward({*loss}, gradients);
  });
}

// Copies the gradients of `parameters` into `destinations`, converting their type, or adds them, and drops them.
char* ringmark_take_gradients(at::Tensor* const* parameters, at::Tensor* const* destinations, size_t count, bool add) {
  return guarded([&] {
    at::NoGradGuard no_gradient;
    // Grouped by type: on CUDA a list with several types is copied tensor by tensor, with one kernel each.
    std::map<at::ScalarType, std::pair<std::vector<at::Tensor>, std::vector<at::Tensor>>> by_type;
    for (size_t index = 0; index < count; ++index) {
      at::Tensor& gradient = parameters[index]->mutable_grad();
      TORCH_CHECK(gradient.defined(), "parameter ", index, " of the bucket has no gradient");
      auto& [to, from] = by_type[gradient.scalar_type()];
      to.push_back(*destinations[index]);
      from.push_back(std::move(gradient));
      gradient = at::Tensor();
    }
    for (auto& [type, lists] : by_type) {
      if (add) {
        at::_foreach_add_(lists.first, lists.second);
      } else {
        at::_foreach_copy_(lists.first, lists.second);
      }
    }
  });
}

// Drops the gradients of all parameters.
char* ringmark_drop_gradients(at::Tensor* const* parameters, size_t count) {
  return guarded([&] {
    for (size_t index = 0; index < count; ++index) {
      parameters[index]->mutable_grad() = at::Tensor();
    }
  });
}

// Returns the sequence number of the next node that forward creates in this thread for backward.
uint64_t ringmark_next_node() { return at::sequence_number::peek(); }

// Calls `callback` when each node of backward begins and ends, until `handle` is passed to
// ringmark_stop_observing_nodes.
char* ringmark_observe_nodes(NodeCallback callback, uint64_t* handle) {
  return guarded([&] {
    on_node = callback;
    *handle = at::addGlobalCallback(
        at::RecordFunctionCallback(node_begins, node_ends).scopes({at::RecordScope::BACKWARD_FUNCTION}));
  });
}

char* ringmark_stop_observing_nodes(uint64_t handle) {
  return guarded([&] { at::removeCallback(handle); });
}

void* ringmark_begin_inference() { return new c10::InferenceMode(); }

void ringmark_end_inference(void* mode) { delete static_cast<c10::InferenceMode*>(mode); }

// --- arithmetic -------------------------------------------------------------------------------------------------

// `momenta` and `found_inf` may be null.
char* ringmark_sgd(
    at::Tensor* const* weights, at::Tensor* const* gradients, at::Tensor* const* momenta, size_t count, SgdStep step,
    at::Tensor* divisor, at::Tensor* found_inf) {
  return guarded([&] {
    at::NoGradGuard no_gradient;
    // Without momentum libtorch rejects momentum buffers.
    const auto buffers = momenta != nullptr ? list(momenta, count) : std::vector<at::Tensor>{};
    at::_fused_sgd_(
        list(weights, count), list(gradients, count), buffers, step.weight_decay, step.momentum, step.learning_rate,
        /*dampening=*/0.0, /*nesterov=*/step.is_nesterov && momenta != nullptr, /*maximize=*/false,
        /*is_first_step=*/false, optional(divisor), optional(found_inf));
  });
}

char* ringmark_adam(
    at::Tensor* const* weights, at::Tensor* const* gradients, at::Tensor* const* first_moments,
    at::Tensor* const* second_moments, size_t count, at::Tensor* updates, AdamStep step, at::Tensor* divisor,
    at::Tensor* found_inf) {
  return guarded([&] {
    at::NoGradGuard no_gradient;
    const auto update = step.is_decoupled ? at::_ops::_fused_adamw_::call : at::_ops::_fused_adam_::call;
    update(
        list(weights, count), list(gradients, count), list(first_moments, count), list(second_moments, count),
        /*max_exp_avg_sqs=*/{}, std::vector<at::Tensor>(count, *updates), step.learning_rate, step.betas[0],
        step.betas[1], step.weight_decay, step.epsilon, /*amsgrad=*/false, /*maximize=*/false, optional(divisor),
        optional(found_inf));
  });
}

char* ringmark_unscale(at::Tensor* gradients, at::Tensor* found_inf, at::Tensor* inverse_scale) {
  return guarded([&] {
    at::NoGradGuard no_gradient;
    at::_amp_foreach_non_finite_check_and_unscale_({*gradients}, *found_inf, *inverse_scale);
  });
}

// Sets `sum` to the sum of `words[i] * base^i` modulo 2^64, for 32-bit words in host memory.
char* ringmark_power_sum(at::Tensor* words, int64_t base, int64_t* sum) {
  return guarded([&] {
    TORCH_CHECK(words->is_cpu() && words->is_contiguous() && words->scalar_type() == at::kInt, "no words of the host");
    // Independent sums, so that a multiplication need not wait for the one before.
    constexpr size_t LANES = 8;
    uint64_t lanes[LANES] = {}, step = 1, power = 1, all = 0;
    for (size_t lane = 0; lane < LANES; ++lane) {
      step *= static_cast<uint64_t>(base);
    }
    const int32_t* word = words->const_data_ptr<int32_t>();
    const size_t count = static_cast<size_t>(words->numel()), whole = count - count % LANES;
    for (size_t index = 0; index < whole; index += LANES, power *= step) {
      for (size_t lane = 0; lane < LANES; ++lane) {
        lanes[lane] += static_cast<uint64_t>(static_cast<int64_t>(word[index + lane])) * power;
      }
    }
    for (size_t index = whole; index < count; ++index, power *= static_cast<uint64_t>(base)) {
      all += static_cast<uint64_t>(static_cast<int64_t>(word[index])) * power;
    }
    power = 1;
    for (size_t lane = 0; lane < LANES; ++lane, power *= static_cast<uint64_t>(base)) {
      all += lanes[lane] * power;
    }
    *sum = static_cast<int64_t>(all);
  });
}

// Returns pinned host memory. tch's pin_memory takes a device, about which libtorch warns at every call.
char* ringmark_pinned_floats(size_t count, at::Tensor** result) {
  return guarded([&] {
    const auto options = at::TensorOptions().dtype(at::kFloat).pinned_memory(true);
    *result = new at::Tensor(at::empty({static_cast<int64_t>(count)}, options));
  });
}

char* ringmark_copy_without_waiting(at::Tensor* destination, at::Tensor* source) {
  return guarded([&] { destination->copy_(*source, /*non_blocking=*/true); });
}

// --- modes ------------------------------------------------------------------------------------------------------

char* ringmark_autocast(int is_cuda, int enabled, int is_half) {
  return guarded([&] {
    const auto device = is_cuda ? at::kCUDA : at::kCPU;
    if (!enabled) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_dtype(device, is_half ? at::kHalf : at::kBFloat16);
    at::autocast::set_autocast_cache_enabled(enabled);
    at::autocast::set_autocast_enabled(device, enabled);
  });
}

int ringmark_allows_tf32() { return at::globalContext().allowTF32CuBLAS(); }

char* ringmark_allow_tf32(int allowed) {
  return guarded([&] {
    // These setters keep libtorch's older and newer switches consistent; if only the newer is set, readers of the
    // older throw.
    at::globalContext().setAllowTF32CuBLAS(allowed != 0);
    at::globalContext().setAllowTF32CuDNN(allowed != 0);
  });
}

// The fastest algorithm may differ between two runs, and some add with atomic operations, in any order.
void ringmark_use_deterministic_convolutions() {
  at::globalContext().setBenchmarkCuDNN(false);
  at::globalContext().setDeterministicCuDNN(true);
}

// --- CUDA streams, events and memory ----------------------------------------------------------------------------

char* ringmark_set_device(int64_t device) {
  return guarded([&] { cuda()->setDevice(c10::Device(c10::DeviceType::CUDA, device)); });
}

// Returns a stream from libtorch's pool; these do not wait for the legacy default stream.
char* ringmark_new_stream(int64_t device, int priority, int64_t* id, void** handle) {
  return guarded([&] {
    const auto stream = cuda()->getNewStream(c10::Device(c10::DeviceType::CUDA, device), priority);
    *id = stream.pack3().stream_id;
    *handle = cuda()->getStreamNativeHandle(stream);
  });
}

char* ringmark_current_stream(int64_t device, int64_t* id) {
  return guarded([&] { *id = cuda()->getStream(c10::Device(c10::DeviceType::CUDA, device)).pack3().stream_id; });
}

// Sets this thread's current stream and returns the previous one.
char* ringmark_exchange_stream(int64_t device, int64_t stream, int64_t* before) {
  return guarded([&] { *before = cuda()->exchangeStream(stream_of(stream, device)).pack3().stream_id; });
}

// `event` is created when it is first recorded.
char* ringmark_core_event(void** event, int64_t stream, int64_t device, int timing) {
  return guarded([&] {
    cuda()->record(
        event, stream_of(stream, device), static_cast<c10::DeviceIndex>(device),
        timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
  });
}

char* ringmark_stream_wait_event(void* event, int64_t stream, int64_t device) {
  return guarded([&] { cuda()->block(event, stream_of(stream, device)); });
}

// A thread's initial device is 0. A query there would create a context on device 0, which takes half a gigabyte of
// another rank's memory.
char* ringmark_query_event(void* event, int64_t device, int* done) {
  return guarded([&] {
    cuda()->setDevice(c10::Device(c10::DeviceType::CUDA, device));
    *done = cuda()->queryEvent(event) ? 1 : 0;
  });
}

char* ringmark_elapsed_milliseconds(void* start, void* end, int64_t device, double* milliseconds) {
  return guarded([&] { *milliseconds = cuda()->elapsedTime(start, end, static_cast<c10::DeviceIndex>(device)); });
}

// Sets the device for the same reason as in ringmark_query_event.
void ringmark_destroy_event(void* event, int64_t device) {
  cuda()->uncheckedSetDevice(c10::Device(c10::DeviceType::CUDA, device));
  cuda()->destroyEvent(event, static_cast<c10::DeviceIndex>(device));
}

// Peak memory of tensors, without the allocator's cache.
char* ringmark_peak_memory(int64_t device, uint64_t* bytes) {
  return guarded([&] {
    const auto stats = c10::getDeviceAllocator(c10::DeviceType::CUDA)->getDeviceStats(static_cast<c10::DeviceIndex>(device));
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    *bytes = static_cast<uint64_t>(stats.allocated_bytes[all].peak);
  });
}

char* ringmark_reset_peak_memory(int64_t device) {
  return guarded([&] {
    c10::getDeviceAllocator(c10::DeviceType::CUDA)->resetPeakStats(static_cast<c10::DeviceIndex>(device));
  });
}

char* ringmark_device_memory(int64_t device, uint64_t* free, uint64_t* total) {
  return guarded([&] {
    std::tie(*free, *total) =
        c10::getDeviceAllocator(c10::DeviceType::CUDA)->getMemoryInfo(static_cast<c10::DeviceIndex>(device));
  });
}

}  // extern "C"

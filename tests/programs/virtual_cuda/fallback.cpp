// Runs every operation without its own kernel here on the CPU, over the same memory, as a kernel of the current
// stream.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstring>

#include "aliases.h"
#include "machine.h"
#include "recording.h"

namespace virtual_cuda {

namespace {

// Products in half precision are summed in fp32, as on GPUs. The CPU's own kernels take minutes.
bool is_product(const char* name) {
  for (const char* product : {"aten::convolution", "aten::convolution_backward", "aten::cudnn_convolution_relu",
                              "aten::cudnn_convolution_add_relu", "aten::addmm", "aten::mm"}) {
    if (std::strcmp(name, product) == 0) {
      return true;
    }
  }
  return false;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

// Replaces the arguments on the stack by the results of the CPU kernel; returns the memory accesses.
std::vector<Access> compute(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  Aliases aliases(is_product(schema.name().c_str()));
  const std::size_t first = stack->size() - schema.arguments().size();
  for (std::size_t index = 0; index < schema.arguments().size(); ++index) {
    c10::IValue& value = (*stack)[first + index];
    value = aliases.enter(value, is_written(schema.arguments()[index]));
  }
  {
    // Autograd and autocast have already run.
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
    operation.callBoxed(stack);
    aliases.settle();
    for (std::size_t index = stack->size() - schema.returns().size(); index < stack->size(); ++index) {
      (*stack)[index] = aliases.leave((*stack)[index]);
    }
  }
  return aliases.accesses();
}

std::vector<at::Tensor> tensors_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return {value.toTensor()};
  }
  return value.isTensorList() ? value.toTensorVector() : std::vector<at::Tensor>();
}

bool is_of_device(const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda() && tensor.numel() > 0; }

c10::IValue kept_value(const c10::IValue& value) {
  if (value.isTensor()) {
    return kept(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      list.push_back(kept(tensor));
    }
    return list;
  }
  return value;
}

// Returns the results that do not share memory with an argument.
std::vector<at::Tensor> made(const torch::jit::Stack& stack, std::size_t results, const torch::jit::Stack& arguments) {
  std::vector<at::Tensor> all;
  for (std::size_t index = stack.size() - results; index < stack.size(); ++index) {
    for (const at::Tensor& result : tensors_of(stack[index])) {
      bool is_new = is_of_device(result);
      for (const c10::IValue& argument : arguments) {
        for (const at::Tensor& given : tensors_of(argument)) {
          is_new = is_new && !(given.defined() && given.storage().is_alias_of(result.storage()));
        }
      }
      if (is_new) {
        all.push_back(result);
      }
    }
  }
  return all;
}

// Adds the operation to the stream's capture. A replay writes its results to the memory of the captured results.
void keep(Stream& stream, const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  Recording& recording = *stream.recording;
  const c10::FunctionSchema& schema = operation.schema();
  const std::size_t results = schema.returns().size();
  const std::size_t first = stack->size() - schema.arguments().size();
  torch::jit::Stack arguments;
  for (std::size_t index = 0; index < schema.arguments().size(); ++index) {
    arguments.push_back(kept_value((*stack)[first + index]));
    for (const at::Tensor& tensor : tensors_of(arguments.back())) {
      // Schemas of batch normalization do not declare that running statistics are written.
      const bool is_statistic = schema.arguments()[index].name().rfind("running_", 0) == 0;
      if ((is_statistic || is_written(schema.arguments()[index])) && is_of_device(tensor)) {
        recording.undo.push_back([tensor, before = cpu_alias(tensor).clone()] { cpu_alias(tensor).copy_(before); });
      }
    }
  }
  compute(operation, stack);
  std::vector<at::Tensor> places;
  for (const at::Tensor& result : made(*stack, results, arguments)) {
    places.push_back(kept(result));
    recording.undo.push_back(
        [place = places.back()] { std::memset(place.storage().mutable_data(), 0xff, place.storage().nbytes()); });
  }
  recording.add(stream, [operation, results, arguments, places](Stream& replayed) {
    torch::jit::Stack again = arguments;
    std::vector<Access> accesses = compute(operation, &again);
    const std::vector<at::Tensor> fresh = made(again, results, arguments);
    for (std::size_t index = 0; index < places.size(); ++index) {
      cpu_alias(places[index]).copy_(cpu_alias(fresh[index]));
      accesses.push_back(access_to(places[index], /*writes=*/true));
    }
    Machine::get().run(replayed, operation.schema().name().c_str(), accesses);
  });
}

void fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  Machine& machine = Machine::get();
  Stream& stream = machine.current_stream(machine.device());
  if (stream.recording != nullptr) {
    keep(stream, operation, stack);
    return;
  }
  const std::vector<Access> accesses = compute(operation, stack);
  machine.run(stream, operation.schema().name().c_str(), accesses);
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// libtorch selects libraries by device, and a kernel for each tensor of a list, before this fallback is called.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const char* name : {"convolution", "convolution_backward", "_foreach_copy_"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace

}  // namespace virtual_cuda

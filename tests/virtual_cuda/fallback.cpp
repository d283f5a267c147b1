// Every operation that has no kernel of its own here runs the CPU's, over the same memory, as a kernel of the current
// stream.

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstring>

#include "aliases.h"
#include "machine.h"

namespace virtual_cuda {

namespace {

// Products of half precision are summed in fp32, as GPUs do. The CPU's own take minutes.
bool is_product(const char* name) {
  for (const char* product : {"aten::convolution", "aten::convolution_backward", "aten::addmm", "aten::mm"}) {
    if (std::strcmp(name, product) == 0) {
      return true;
    }
  }
  return false;
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

void fallback(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = operation.schema();
  const char* name = schema.name().c_str();
  Aliases aliases(is_product(name));
  const std::size_t first = stack->size() - schema.arguments().size();
  for (std::size_t index = 0; index < schema.arguments().size(); ++index) {
    c10::IValue& value = (*stack)[first + index];
    value = aliases.enter(value, is_written(schema.arguments()[index]));
  }
  {
    // Autograd and autocast have done their part.
    const c10::impl::ExcludeDispatchKeyGuard below(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset);
    operation.callBoxed(stack);
    aliases.settle();
    for (std::size_t index = stack->size() - schema.returns().size(); index < stack->size(); ++index) {
      (*stack)[index] = aliases.leave((*stack)[index]);
    }
  }
  Machine& machine = Machine::get();
  machine.run(machine.current_stream(machine.device()), name, aliases.accesses());
}

TORCH_LIBRARY_IMPL(_, CUDA, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Libtorch chooses by device among libraries, and a kernel for each tensor of a list, before it comes here.
TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  for (const char* name : {"convolution", "convolution_backward", "_foreach_copy_"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&fallback>());
  }
}

}  // namespace

}  // namespace virtual_cuda

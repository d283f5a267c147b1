// Autograd functions of transformers: rotary positions, a loss that computes the logits in chunks, and
// recomputation of activations in backward. They use libtorch's operators, so they run on every device.

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

#include "guarded.h"

namespace transformer {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using WithoutAutocast = c10::impl::ExcludeDispatchKeyGuard;

// Rotates each pair of features (i, i + width / 2) of `x`, [.., tokens, heads, width], by the angle of its token and
// pair. The tables are [tokens, 1, width / 2].
at::Tensor rotated(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines, double direction) {
  const WithoutAutocast without_autocast(c10::autocast_dispatch_keyset);
  const auto half = x.size(-1) / 2;
  const auto first = x.narrow(-1, 0, half), second = x.narrow(-1, half, half);
  const auto result = at::empty(x.sizes(), cosines.options());
  auto to_first = result.narrow(-1, 0, half), to_second = result.narrow(-1, half, half);
  at::mul_out(to_first, first, cosines).addcmul_(second, sines, -direction);
  at::mul_out(to_second, second, cosines).addcmul_(first, sines, direction);
  return result.to(x.scalar_type());
}

struct Rotation : torch::autograd::Function<Rotation> {
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
    context->save_for_backward({cosines, sines});
    return rotated(x, cosines, sines, 1.0);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto tables = context->get_saved_variables();
    return {rotated(gradients[0], tables[0], tables[1], -1.0), at::Tensor(), at::Tensor()};
  }
};

// Mean cross entropy of `x` W^T, a chunk of rows at a time. Forward also computes the gradients, because the logits of
// a chunk are not kept.
struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static at::Tensor forward(
      AutogradContext* context, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
      int64_t chunk_bytes, bool has_gradients) {
    const auto device = x.device().type();
    const auto type = at::autocast::is_autocast_enabled(device) ? at::autocast::get_autocast_dtype(device) : x.scalar_type();
    const auto exact = c10::isReducedFloatingType(type) ? at::kFloat : type;
    const WithoutAutocast without_autocast(c10::autocast_dispatch_keyset);
    const auto rounded = x.to(type), matrix = weight.to(type);
    const int64_t rows = x.size(0);
    const int64_t row_bytes = weight.size(0) * static_cast<int64_t>(c10::elementSize(exact));
    const int64_t chunks = (rows - 1) / std::max<int64_t>(1, chunk_bytes / row_bytes) + 1;
    const int64_t chunk = (rows - 1) / chunks + 1;
    // The gradient of the sum is divided by the rows here, or in backward in half precision: fp16 would underflow.
    const double factor = type == exact ? 1.0 / static_cast<double>(rows) : 1.0;
    auto loss = at::zeros({}, x.options().dtype(exact));
    at::Tensor dx, dweight;
    if (has_gradients) {
      dx = at::empty_like(rounded);
      dweight = at::empty(matrix.sizes(), matrix.options().dtype(chunks > 1 ? exact : type));
    }
    for (int64_t begin = 0; begin < rows; begin += chunk) {
      const auto count = std::min(chunk, rows - begin);
      const auto part = rounded.narrow(0, begin, count);
      const auto labels = targets.narrow(0, begin, count).unsqueeze(1);
      auto scores = at::log_softmax(at::mm(part, matrix.t()), 1, exact);
      loss.sub_(scores.gather(1, labels).sum());
      if (!has_gradients) continue;
      scores.exp_().scatter_(1, labels, -1.0, "add");
      const auto dscores = scores.to(type);
      auto to_x = dx.narrow(0, begin, count);
      at::addmm_out(to_x, to_x, dscores, matrix, /*beta=*/0.0, factor);
      if (dweight.scalar_type() == type) {
        at::addmm_out(dweight, dweight, dscores.t(), part, /*beta=*/begin == 0 ? 0.0 : 1.0, factor);
      } else {
        const auto product = at::mm(dscores.t(), part);
        if (begin == 0) dweight.copy_(product); else dweight.add_(product);
      }
    }
    context->save_for_backward({dx, dweight});
    context->saved_data["factor"] = factor == 1.0 ? 1.0 / static_cast<double>(rows) : 1.0;
    context->saved_data["types"] = std::vector<int64_t>{
        static_cast<int64_t>(x.scalar_type()), static_cast<int64_t>(weight.scalar_type())};
    return loss.div_(static_cast<double>(rows));
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    TORCH_CHECK(context->saved_data.count("is_used") == 0, "backward through a fused loss runs once per forward");
    context->saved_data["is_used"] = true;
    const auto saved = context->get_saved_variables();
    const auto types = context->saved_data["types"].toIntVector();
    const auto factor = gradients[0] * context->saved_data["factor"].toDouble();
    const bool is_one = factor.is_cpu() && factor.item<double>() == 1.0;
    const auto scaled = [&](size_t index) {
      auto gradient = saved[index].to(static_cast<at::ScalarType>(types[index]));
      return is_one ? gradient : gradient.mul_(factor);
    };
    return {scaled(0), scaled(1), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

// A function supplied by the caller. It returns null, or an error message that is freed here.
struct Body final : torch::CustomClassHolder {
  using Run = char* (*)(void* context, at::Tensor* input, at::Tensor** output);
  using Drop = void (*)(void* context);

  Body(Run run, Drop drop, void* context) : run(run), drop(drop), context(context) {}
  ~Body() override { drop(context); }

  at::Tensor operator()(at::Tensor input) const {
    at::Tensor* output = nullptr;
    if (char* message = run(context, &input, &output)) {
      const std::string text(message);
      std::free(message);
      throw std::runtime_error(text);
    }
    return *std::unique_ptr<at::Tensor>(output);
  }

  Run run;
  Drop drop;
  void* context;
};

// Sets this thread's autocast state for its lifetime. Its cache stays off: its entries would outlive the backward pass.
struct Autocast {
  Autocast(c10::DeviceType device, bool is_enabled, at::ScalarType type)
      : device(device),
        was_enabled(at::autocast::is_autocast_enabled(device)),
        had_cache(at::autocast::is_autocast_cache_enabled()),
        type_before(at::autocast::get_autocast_dtype(device)) {
    set(is_enabled, false, type);
  }
  ~Autocast() { set(was_enabled, had_cache, type_before); }

  void set(bool is_enabled, bool has_cache, at::ScalarType type) const {
    at::autocast::set_autocast_enabled(device, is_enabled);
    at::autocast::set_autocast_cache_enabled(has_cache);
    at::autocast::set_autocast_dtype(device, type);
  }

  c10::DeviceType device;
  bool was_enabled, had_cache;
  at::ScalarType type_before;
};

// Runs `body` without storing its activations, and again in backward.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const c10::intrusive_ptr<Body>& body) {
    const auto device = x.device().type();
    context->save_for_backward({x});
    context->saved_data["body"] = c10::IValue::make_capsule(body);
    context->saved_data["is_autocast"] = at::autocast::is_autocast_enabled(device);
    context->saved_data["type"] = static_cast<int64_t>(at::autocast::get_autocast_dtype(device));
    return (*body)(x.detach());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto x = context->get_saved_variables()[0].detach().requires_grad_();
    const auto body = context->saved_data["body"].toCapsule();
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      const Autocast autocast(
          x.device().type(), context->saved_data["is_autocast"].toBool(),
          static_cast<at::ScalarType>(context->saved_data["type"].toInt()));
      y = static_cast<const Body&>(*body)(x);
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace transformer

extern "C" {

char* ringmark_rotated(at::Tensor* x, at::Tensor* cosines, at::Tensor* sines, at::Tensor** result) {
  return guarded([&] { *result = new at::Tensor(transformer::Rotation::apply(*x, *cosines, *sines)); });
}

char* ringmark_head_loss(
    at::Tensor* x, at::Tensor* weight, at::Tensor* targets, int64_t chunk_bytes, at::Tensor** result) {
  return guarded([&] {
    TORCH_CHECK(
        x->dim() == 2 && targets->dim() == 1 && targets->size(0) == x->size(0) && x->size(0) > 0,
        "the loss needs one target per row of features");
    const bool has_gradients = at::GradMode::is_enabled() && (x->requires_grad() || weight->requires_grad());
    *result = new at::Tensor(transformer::HeadLoss::apply(*x, *weight, *targets, chunk_bytes, has_gradients));
  });
}

// `drop` is called exactly once.
char* ringmark_recomputed(
    at::Tensor* x, transformer::Body::Run run, transformer::Body::Drop drop, void* context, at::Tensor** result) {
  return guarded([&] {
    const auto body = c10::make_intrusive<transformer::Body>(run, drop, context);
    *result = new at::Tensor(transformer::Recomputed::apply(*x, body));
  });
}

}  // extern "C"

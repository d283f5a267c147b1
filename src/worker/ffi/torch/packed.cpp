// Convolutions and linear layers for inference with oneDNN: the weight is packed for the kernel, and the following
// operations are fused. These are the operators that torch.compile substitutes for the layers; they have no C++
// header and are looked up by name. On CUDA, cuDNN's fused convolutions.

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "guarded.h"

namespace {

using Sizes = at::IntArrayRef;
using Scalars = c10::List<std::optional<at::Scalar>>;
using Text = std::optional<std::string_view>;
using Bias = std::optional<at::Tensor>;

// ConvolutionArguments of packed.rs.
struct Geometry {
  int64_t padding[2], stride, groups;

  Sizes paddings() const { return {padding, 2}; }
};

Bias optional(at::Tensor* bias) { return bias == nullptr ? Bias() : Bias(*bias); }

template <typename Signature>
auto operation(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<Signature>();
}

}  // namespace

extern "C" {

// Sets `*result` to 1 if libtorch allows oneDNN to compute in bf16 on this processor.
char* ringmark_computes_bf16(int* result) {
  return guarded([&] { *result = operation<bool()>("mkldnn::_is_mkldnn_bf16_supported").call(); });
}

// Packs a weight for images of the shape of `images`, on which the packing depends.
char* ringmark_pack_convolution(
    at::Tensor* weight, at::Tensor* images, Geometry geometry, at::Tensor** result) {
  return guarded([&] {
    static const auto pack =
        operation<at::Tensor(const at::Tensor&, Sizes, Sizes, Sizes, int64_t, at::OptionalIntArrayRef)>(
            "mkldnn::_reorder_convolution_weight");
    *result = new at::Tensor(
        pack.call(
            *weight, geometry.paddings(), {geometry.stride, geometry.stride}, {1, 1}, geometry.groups,
            at::OptionalIntArrayRef(images->sizes())));
  });
}

// With `sum`, the result is added to it in place.
char* ringmark_packed_convolution(
    at::Tensor* images, at::Tensor* weight, at::Tensor* bias, Geometry geometry, at::Tensor* sum, bool relu,
    at::Tensor** result) {
  return guarded([&] {
    static const auto alone = operation<at::Tensor(
        const at::Tensor&, const at::Tensor&, const Bias&, Sizes, Sizes, Sizes, int64_t, std::string_view, Scalars, Text)>(
        "mkldnn::_convolution_pointwise");
    static const auto added = operation<at::Tensor&(
        at::Tensor&, const at::Tensor&, const at::Tensor&, const Bias&, Sizes, Sizes, Sizes, int64_t, std::string_view,
        std::optional<at::Scalar>, Text, Scalars, Text)>("mkldnn::_convolution_pointwise_", "binary");
    const int64_t stride = geometry.stride, groups = geometry.groups;
    if (sum == nullptr) {
      *result = new at::Tensor(alone.call(
          *images, *weight, optional(bias), geometry.paddings(), {stride, stride}, {1, 1}, groups, relu ? "relu" : "none",
          Scalars(), ""));
    } else {
      const Text after = relu ? Text("relu") : Text();
      *result = new at::Tensor(added.call(
          *sum, *images, *weight, optional(bias), geometry.paddings(), {stride, stride}, {1, 1}, groups, "add", 1.0, after,
          Scalars(), ""));
    }
  });
}

// Convolution, bias, optional sum and ReLU in one cuDNN kernel. Fails if cuDNN has no such kernel.
char* ringmark_rectified_convolution(
    at::Tensor* images, at::Tensor* weight, at::Tensor* bias, Geometry geometry, at::Tensor* sum, at::Tensor** result) {
  return guarded([&] {
    const Sizes paddings = geometry.paddings();
    const int64_t stride = geometry.stride, groups = geometry.groups;
    *result = new at::Tensor(
        sum == nullptr
            ? at::cudnn_convolution_relu(*images, *weight, optional(bias), {stride, stride}, paddings, {1, 1}, groups)
            : at::cudnn_convolution_add_relu(
                  *images, *weight, *sum, 1.0, optional(bias), {stride, stride}, paddings, {1, 1}, groups));
  });
}

// Packs a weight for this number of rows of features, on which the packing depends.
char* ringmark_pack_linear(at::Tensor* weight, int64_t rows, at::Tensor** result) {
  return guarded([&] {
    static const auto pack =
        operation<at::Tensor(const at::Tensor&, std::optional<int64_t>)>("mkldnn::_reorder_linear_weight");
    *result = new at::Tensor(pack.call(*weight, rows));
  });
}

// With `sum`, it is added; otherwise GELU is applied if `gelu` is 1, and its approximation by tanh if it is 2.
char* ringmark_packed_linear(
    at::Tensor* features, at::Tensor* weight, at::Tensor* bias, at::Tensor* sum, int gelu, at::Tensor** result) {
  return guarded([&] {
    static const auto alone = operation<at::Tensor(
        const at::Tensor&, const at::Tensor&, const Bias&, std::string_view, Scalars, Text)>(
        "mkldnn::_linear_pointwise");
    static const auto added = operation<at::Tensor(
        const at::Tensor&, const at::Tensor&, const at::Tensor&, const Bias&, std::string_view)>(
        "mkldnn::_linear_pointwise", "binary");
    *result = new at::Tensor(
        sum == nullptr ? alone.call(*features, *weight, optional(bias), gelu != 0 ? "gelu" : "none", Scalars(), gelu == 2 ? "tanh" : "none")
                       : added.call(*features, *sum, *weight, optional(bias), "add"));
  });
}

}  // extern "C"

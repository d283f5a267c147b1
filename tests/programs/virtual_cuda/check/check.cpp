// Tests that the virtual GPUs run kernels like a GPU in every order of threads, and detect errors in kernels.
//
// usage: check CASE, one of the cases at the end

#include <algorithm>
#include <cmath>
#include <cstring>

#include "harness.h"

using namespace harness;

namespace {

constexpr unsigned THREADS = 256;

std::vector<float> numbers(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 7919) % 1000) / 8.0f - 60.0f;
  }
  return values;
}


struct Step {
  int first, count;
};

void copy(const Kernels& kernels) {
  const std::vector<float> in = numbers(10000);
  const Buffer<float> from(in), to(std::vector<float>(in.size()));
  CHECK(kernels.launch<const float*, float*>("copy", {40}, {THREADS}, nullptr, from, to, Step{0, 10000}));
  expect(to.values() == in, "copy");
  std::puts("copied");
}

// Identical bits in every order.
void sum(const Kernels& kernels) {
  const std::vector<float> in = numbers(54321);
  const Buffer<float> from(in), partial(std::vector<float>(7));
  const Buffer<unsigned> ticket(std::vector<unsigned>{0});
  const Buffer<double> out(std::vector<double>{0.0});
  double expected = 0.0;
  for (const float value : in) {
    expected += value;
  }
  for (int again = 0; again < 2; ++again) {
    CHECK((kernels.launch<const float*, float*, unsigned*, double*>(
        "sum", {7}, {THREADS}, nullptr, from, partial, ticket, out, 54321)));
    expect(std::fabs(out.values()[0] - expected) < 1e-5 * std::fabs(expected), "sum");
    expect(ticket.values()[0] == 0, "ticket");
  }
  std::printf("sum %a\n", out.values()[0]);
}

// Converts every half to fp32 and back, and floats at and between halves, comparing with the rounding formula.
void halves(const Kernels& kernels) {
  std::vector<unsigned short> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<unsigned short>(i);
  }
  const Buffer<unsigned short> in(all), back(all), bfloat16(all);
  const Buffer<float> floats(std::vector<float>(all.size()));
  const auto to_halves = [&](const Buffer<float>& from) {
    CHECK((kernels.launch<const float*, unsigned short*, unsigned short*>(
        "floats_to_halves", {256}, {THREADS}, nullptr, from, back, bfloat16, 65536)));
    return back.values();
  };
  CHECK((kernels.launch<const unsigned short*, float*>(
      "halves_to_floats", {256}, {THREADS}, nullptr, in, floats, 65536)));
  const std::vector<float> values = floats.values();
  const std::vector<unsigned short> returned = to_halves(floats);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const int exponent = i >> 10 & 31, fraction = i & 1023;
    const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    const bool is_number = exponent < 31;
    expect(!is_number || values[i] == (i >> 15 ? -size : size), "half " + std::to_string(i));
    expect(exponent < 31 || fraction > 0 || std::isinf(values[i]), "infinity");
    expect(exponent < 31 || fraction == 0 || std::isnan(values[i]), "NaN");
    expect(returned[i] == (std::isnan(values[i]) ? 0x7fff : all[i]), "back to half " + std::to_string(i));
  }
  // Between two halves, and on either side of the midpoint; above the largest, 65504, up to infinity.
  std::vector<float> between(65536, 0.0f);
  std::vector<unsigned short> expected(65536, 0);
  for (unsigned i = 0; i < 0x7c00; ++i) {
    const float low = values[i], high = i == 0x7bff ? 65536.0f : values[i + 1], middle = low + (high - low) / 2;
    between[2 * i] = middle;
    expected[2 * i] = static_cast<unsigned short>(i + (i & 1));
    between[2 * i + 1] = std::nextafter(middle, i % 3 == 0 ? 0.0f : 1e9f);
    expected[2 * i + 1] = static_cast<unsigned short>(i % 3 == 0 ? i : i + 1);
  }
  expect(to_halves(Buffer<float>(between)) == expected, "rounding to half");
  // bfloat16: the upper half of a float, ties rounded to even.
  std::vector<float> floats_near(65536, 0.0f);
  for (unsigned i = 0; i < 0x7f80; ++i) {
    for (unsigned side = 0; side < 2; ++side) {
      const unsigned bits = i << 16 | (side == 0 ? 0x8000 : 0x8001);
      std::memcpy(&floats_near[2 * i + side], &bits, sizeof(bits));
    }
  }
  to_halves(Buffer<float>(floats_near));
  const std::vector<unsigned short> rounded = bfloat16.values();
  for (unsigned i = 0; i < 0x7f80; ++i) {
    expect(rounded[2 * i] == i + (i & 1) && rounded[2 * i + 1] == i + 1, "rounding to bfloat16 of " + std::to_string(i));
  }
  std::puts("converted");
}

void reverse(const Kernels& kernels, const char* kernel) {
  const std::vector<float> in = numbers(THREADS);
  const Buffer<float> from(in), to(in);
  const int result = kernels.launch<const float*, float*>(kernel, {1}, {THREADS}, nullptr, from, to);
  std::printf("%s\n", result != 0 ? name_of(result).c_str() : to.values() == std::vector<float>(in.rbegin(), in.rend()) ? "reversed" : "wrong");
}

void write_in_turns(const Kernels& kernels) {
  const Buffer<float> values(numbers(THREADS));
  CHECK(kernels.launch<float*>("write_in_turns", {1}, {THREADS}, nullptr, values));
  double sum = 0.0;
  for (const float value : values.values()) {
    sum += value;
  }
  std::printf("%a\n", sum);
}

void add_parts(const Kernels& kernels, const char* kernel) {
  const Buffer<float> parts(numbers(4 * THREADS)), out(numbers(1));
  const Buffer<unsigned> ticket(std::vector<unsigned>{0});
  const int result = kernels.launch<float*, unsigned*, float*>(kernel, {4}, {THREADS}, nullptr, parts, ticket, out);
  std::printf("%s %g\n", name_of(result).c_str(), result == 0 ? out.values()[0] : 0.0f);
}

void fails(const Kernels& kernels, const char* kernel) {
  const Buffer<float> values(numbers(THREADS));
  std::printf("%s\n", name_of(kernels.launch<float*>(kernel, {1}, {THREADS}, nullptr, values)).c_str());
}

void past_the_end(const Kernels& kernels) {
  const Buffer<float> values(numbers(THREADS)), other(numbers(THREADS));
  const auto write_at = [&](int place) {
    return name_of(kernels.launch<float*>("write_past_the_end", {1}, {1}, nullptr, values, place));
  };
  std::printf("%s %s\n", write_at(THREADS - 1).c_str(), write_at(THREADS).c_str());
}

void unwritten(const Kernels& kernels) {
  const Buffer<float> out(numbers(2));
  CHECK(kernels.launch<float*>("read_what_no_thread_wrote", {2}, {1}, nullptr, out));
  const std::vector<float> values = out.values();
  std::printf("%f %f\n", std::fabs(values[0]), std::fabs(values[1]));
}

// One stream writes what another reads; separate parts of a buffer do not conflict.
void streams(const Kernels& kernels, bool waits) {
  const Buffer<float> from(numbers(512)), between(numbers(512)), to(numbers(512));
  void *first = nullptr, *second = nullptr, *event = nullptr;
  CHECK(cuStreamCreate(&first, 1));
  CHECK(cuStreamCreate(&second, 1));
  CHECK(cuEventCreate(&event, 2));
  CHECK(kernels.launch<const float*, float*>("copy", {1}, {THREADS}, first, from, between, Step{0, 256}));
  CHECK(cuEventRecord(event, first));
  CHECK(kernels.launch<const float*, float*>("copy", {1}, {THREADS}, second, from, between, Step{256, 256}));
  if (waits) {
    CHECK(cuStreamWaitEvent(second, event, 0));
  }
  CHECK(kernels.launch<const float*, float*>("copy", {1}, {THREADS}, second, between, to, Step{0, 256}));
  CHECK(cuStreamSynchronize(second));
  CHECK(cuStreamSynchronize(first));
  std::puts("launched");
}

// A capture runs nothing; each replay runs the launch with the parameter values at capture time.
void graph(const Kernels& kernels) {
  const Buffer<float> from(numbers(512)), to(std::vector<float>(512));
  void *stream = nullptr, *captured = nullptr, *runnable = nullptr;
  CHECK(cuStreamCreate(&stream, 1));
  CHECK(cuStreamBeginCapture_v2(stream, 0));
  CHECK(kernels.launch<const float*, float*>("copy", {1}, {THREADS}, stream, from, to, Step{256, 256}));
  CHECK(cuStreamEndCapture(stream, &captured));
  CHECK(cuGraphInstantiateWithFlags(&runnable, captured, 0));
  expect(to.values() == std::vector<float>(512), "a capture runs nothing");
  for (int again = 0; again < 2; ++again) {
    std::vector<float> expected = numbers(512);
    std::fill_n(expected.begin(), 256, 0.0f);
    const std::vector<float> zeros(512);
    CHECK(cuMemcpyHtoD_v2(to, zeros.data(), zeros.size() * sizeof(float)));
    CHECK(cuGraphLaunch(runnable, stream));
    CHECK(cuStreamSynchronize(stream));
    expect(to.values() == expected, "a replay");
  }
  std::puts("replayed");
}

// Errors reported by the driver.
void refusals(const Kernels& kernels, const std::string& cubin) {
  const Buffer<float> values(numbers(THREADS));
  const auto launch = [&](Grid grid, Grid block, void* stream) {
    return name_of(kernels.launch<float*>("read_what_no_thread_wrote", grid, block, stream, values));
  };
  std::printf("%s %s %s\n", launch({1}, {1025}, nullptr).c_str(), launch({0}, {1}, nullptr).c_str(),
              launch({1}, {1}, const_cast<char*>("no stream")).c_str());
  void *module = nullptr, *function = nullptr;
  CHECK(cuModuleLoadData(&module, cubin.data()));
  std::printf("%s\n", name_of(cuModuleGetFunction(&function, module, "in_a_comment")).c_str());
  CHECK(cuModuleUnload(module));
  const std::string no_image(256, 'x');
  std::printf("%s\n", name_of(cuModuleLoadData(&module, no_image.data())).c_str());
  // An autograd thread starts without a context.
  void *context = nullptr, *out = values;
  void* parameters[] = {&out};
  CHECK(cuModuleLoadData(&module, cubin.data()));
  CHECK(cuModuleGetFunction(&function, module, "read_what_no_thread_wrote"));
  CHECK(cuCtxSetCurrent(nullptr));
  CHECK(cuCtxGetCurrent(&context));
  expect(context == nullptr, "a context");
  std::printf("%s\n", name_of(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr)).c_str());
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr));
}

void compile_errors(const std::string& source) {
  std::string log;
  expect(compile(source + "\nKERNEL(wrong)(float* out) { *out = no_such_name; }\n", {}, &log).empty(), "a cubin");
  std::fputs(log.c_str(), stdout);
  expect(compile(source, {"--gpu-architecture=sm_70"}, &log).empty(), "a cubin for sm_70");
  std::fputs(log.c_str(), stdout);
  expect(compile(source, {"--no-such-option"}, &log).empty(), "a cubin of an unknown option");
  std::fputs(log.c_str(), stdout);
}

}  // namespace

int main(int count, char** arguments) {
  const std::string source = prelude() + contents(CHECK_FOLDER "/check.cu");
  const std::string cubin = compile_once(source, {"-DELEMENT_HALF"});
  const Kernels kernels(cubin);
  return run_case(count, arguments, {
      {"copy", [&] { copy(kernels); }},
      {"sum", [&] { sum(kernels); }},
      {"halves", [&] { halves(kernels); }},
      {"reverse", [&] { reverse(kernels, "reverse"); }},
      {"reverse_by_copy", [&] { reverse(kernels, "reverse_by_copy"); }},
      {"reverse_without_wait", [&] { reverse(kernels, "reverse_without_wait"); }},
      {"reverse_without_barrier", [&] { reverse(kernels, "reverse_without_barrier"); }},
      {"rotate_without_barrier", [&] { fails(kernels, "rotate_without_barrier"); }},
      {"write_in_turns", [&] { write_in_turns(kernels); }},
      {"add_parts_of_blocks", [&] { add_parts(kernels, "add_parts_of_blocks"); }},
      {"add_parts_without_fence", [&] { add_parts(kernels, "add_parts_without_fence"); }},
      {"add_parts_without_barrier", [&] { add_parts(kernels, "add_parts_without_barrier"); }},
      {"add_parts_without_ticket", [&] { add_parts(kernels, "add_parts_without_ticket"); }},
      {"barrier_of_half_the_threads", [&] { fails(kernels, "barrier_of_half_the_threads"); }},
      {"barriers_at_two_places", [&] { fails(kernels, "barriers_at_two_places"); }},
      {"write_past_the_end", [&] { past_the_end(kernels); }},
      {"read_what_no_thread_wrote", [&] { unwritten(kernels); }},
      {"streams", [&] { streams(kernels, /*waits=*/true); }},
      {"streams_without_wait", [&] { streams(kernels, /*waits=*/false); }},
      {"graph", [&] { graph(kernels); }},
      {"refusals", [&] { refusals(kernels, cubin); }},
      {"compile_errors", [&] { compile_errors(source); }},
  });
}

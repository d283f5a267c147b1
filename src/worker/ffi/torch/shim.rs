//! Safe wrappers of the functions in `shim.cpp`: they check arguments and convert messages to errors.

use crate::ffi::memory::element::Element;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{NonNull, null_mut};

use anyhow::{Result, anyhow};
use tch::Tensor;

pub(super) type RawTensor = *mut c_void;

unsafe extern "C" {
    fn ringmark_free_message(message: *mut c_char);
    fn ringmark_libtorch_version() -> *const c_char;
    fn ringmark_on_gradient(
        parameter: RawTensor,
        callback: extern "C" fn(*mut c_void, usize),
        context: *mut c_void,
        index: usize,
    ) -> *mut c_char;
    fn ringmark_backward(loss: RawTensor, gradient: RawTensor) -> *mut c_char;
    fn ringmark_take_gradients(
        parameters: *const RawTensor,
        destinations: *const RawTensor,
        count: usize,
    ) -> *mut c_char;
    fn ringmark_drop_gradients(parameters: *const RawTensor, count: usize) -> *mut c_char;
    fn ringmark_sgd(
        weights: RawTensor,
        gradients: RawTensor,
        momenta: RawTensor,
        learning_rate: f64,
        momentum: f64,
        is_nesterov: c_int,
        weight_decay: f64,
        found_inf: RawTensor,
    ) -> *mut c_char;
    fn ringmark_adam(
        weights: RawTensor,
        gradients: RawTensor,
        first_moments: RawTensor,
        second_moments: RawTensor,
        updates: RawTensor,
        learning_rate: f64,
        beta1: f64,
        beta2: f64,
        epsilon: f64,
        weight_decay: f64,
        is_decoupled: c_int,
        found_inf: RawTensor,
    ) -> *mut c_char;
    fn ringmark_has_update_kernel(
        weights: RawTensor,
        gradients: RawTensor,
        momenta: RawTensor,
        rounded: RawTensor,
    ) -> c_int;
    fn ringmark_update(
        weights: RawTensor,
        gradients: RawTensor,
        momenta: RawTensor,
        rounded: RawTensor,
        scale: RawTensor,
        found_inf: RawTensor,
        rate: f64,
        momentum: f64,
        decay: f64,
    ) -> *mut c_char;
    fn ringmark_unscale(gradients: RawTensor, found_inf: RawTensor, inverse_scale: RawTensor) -> *mut c_char;
    fn ringmark_batch_norm(
        images: RawTensor,
        shortcut: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        running_mean: RawTensor,
        running_variance: RawTensor,
        relu: c_int,
        momentum: f64,
        epsilon: f64,
        first: *mut RawTensor,
        second: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_batch_norm_max_pool(
        images: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        running_mean: RawTensor,
        running_variance: RawTensor,
        momentum: f64,
        epsilon: f64,
        kernel: i64,
        stride: i64,
        padding: i64,
        first: *mut RawTensor,
        second: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_has_pointwise_kernels(images: RawTensor, weight: RawTensor, has_shortcut: c_int) -> c_int;
    fn ringmark_pointwise_norm(
        images: RawTensor,
        convolution: RawTensor,
        shortcut: RawTensor,
        weight: RawTensor,
        bias: RawTensor,
        running_mean: RawTensor,
        running_variance: RawTensor,
        momentum: f64,
        epsilon: f64,
        first: *mut RawTensor,
        second: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_max_pool(
        images: RawTensor,
        kernel: i64,
        stride: i64,
        padding: i64,
        result: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_has_kernels(images: RawTensor) -> c_int;
    fn ringmark_are_kernels_loaded(images: RawTensor) -> c_int;
    fn ringmark_pinned_floats(count: usize, result: *mut RawTensor) -> *mut c_char;
    fn ringmark_copy_without_waiting(destination: RawTensor, source: RawTensor) -> *mut c_char;
    fn ringmark_autocast(is_cuda: c_int, enabled: c_int, is_half: c_int) -> *mut c_char;
    fn ringmark_allow_tf32(allowed: c_int) -> *mut c_char;
    fn ringmark_allows_tf32() -> c_int;
    fn ringmark_set_device(device: i64) -> *mut c_char;
    fn ringmark_new_stream(device: i64, priority: c_int, id: *mut i64, handle: *mut *mut c_void) -> *mut c_char;
    fn ringmark_current_stream(device: i64, id: *mut i64) -> *mut c_char;
    fn ringmark_exchange_stream(device: i64, stream: i64, before: *mut i64) -> *mut c_char;
    fn ringmark_core_event(event: *mut *mut c_void, stream: i64, device: i64, timing: c_int) -> *mut c_char;
    fn ringmark_stream_wait_event(event: *mut c_void, stream: i64, device: i64) -> *mut c_char;
    fn ringmark_query_event(event: *mut c_void, device: i64, done: *mut c_int) -> *mut c_char;
    fn ringmark_elapsed_milliseconds(
        start: *mut c_void,
        end: *mut c_void,
        device: i64,
        milliseconds: *mut f64,
    ) -> *mut c_char;
    fn ringmark_destroy_event(event: *mut c_void, device: i64);
    fn ringmark_peak_memory(device: i64, bytes: *mut u64) -> *mut c_char;
    fn ringmark_reset_peak_memory(device: i64) -> *mut c_char;
    fn ringmark_begin_inference() -> *mut c_void;
    fn ringmark_end_inference(mode: *mut c_void);
    fn ringmark_device_memory(device: i64, free: *mut u64, total: *mut u64) -> *mut c_char;
}

pub(in crate::ffi) fn check(message: *mut c_char) -> Result<()> {
    let Some(message) = NonNull::new(message) else {
        return Ok(());
    };
    // SAFETY: the shim returns a NUL-terminated string, which is freed here once.
    let text = unsafe {
        let text = CStr::from_ptr(message.as_ptr()).to_string_lossy().into_owned();
        ringmark_free_message(message.as_ptr());
        text
    };
    Err(anyhow!("libtorch: {}", text.trim_end()))
}

/// Returns the version of libtorch that this program was built with.
pub fn libtorch_version() -> String {
    // SAFETY: a string constant of the shim.
    unsafe { CStr::from_ptr(ringmark_libtorch_version()) }.to_string_lossy().into_owned()
}

/// Returns the tensor that `call` creates unless it returns a message.
pub(super) fn new_tensor(call: impl FnOnce(*mut RawTensor) -> *mut c_char) -> Result<Tensor> {
    let mut result = null_mut();
    check(call(&mut result))?;
    // SAFETY: a tensor on the heap with no other owner.
    Ok(unsafe { Tensor::from_ptr(result.cast()) })
}

pub(super) fn raw(tensor: &Tensor) -> RawTensor {
    tensor.as_ptr().cast_mut().cast()
}

fn raw_list(tensors: &[Tensor]) -> Vec<RawTensor> {
    tensors.iter().map(raw).collect()
}

pub trait GradientObserver: Sync {
    /// Called when the gradient of parameter `parameter` is complete. Must not panic: libtorch's frames are below.
    ///
    /// Runs on the thread that called [`backward`] on the CPU, on libtorch's autograd thread on CUDA.
    fn gradient_ready(&self, parameter: usize);
}

/// Calls `observer` whenever backward completes the gradient of one of `parameters`, by its index.
pub fn observe_gradients<O: GradientObserver + 'static>(parameters: &[Tensor], observer: &'static O) -> Result<()> {
    extern "C" fn forward<O: GradientObserver>(context: *mut c_void, parameter: usize) {
        // SAFETY: `context` is the `&'static O` below.
        let observer = unsafe { &*context.cast_const().cast::<O>() };
        observer.gradient_ready(parameter);
    }
    let context = std::ptr::from_ref(observer).cast_mut().cast();
    for (index, parameter) in parameters.iter().enumerate() {
        // SAFETY: the tensor is alive, the observer is static, and `forward` takes this context.
        check(unsafe { ringmark_on_gradient(raw(parameter), forward::<O>, context, index) })?;
    }
    Ok(())
}

/// Runs backward from `loss`, whose gradient is `gradient`, by default 1.
pub fn backward(loss: &Tensor, gradient: Option<&Tensor>) -> Result<()> {
    // SAFETY: both tensors are alive; null means no gradient.
    check(unsafe { ringmark_backward(raw(loss), gradient.map_or(null_mut(), raw)) })
}

/// Copies the gradients of `parameters` into `destinations` (same shapes, any float type) and drops them.
pub fn take_gradients(parameters: &[Tensor], destinations: &[Tensor]) -> Result<()> {
    assert_eq!(parameters.len(), destinations.len(), "one destination per parameter");
    let (from, to) = (raw_list(parameters), raw_list(destinations));
    // SAFETY: the lists contain that many live tensors.
    check(unsafe { ringmark_take_gradients(from.as_ptr(), to.as_ptr(), from.len()) })
}

pub fn drop_gradients(parameters: &[Tensor]) -> Result<()> {
    let parameters = raw_list(parameters);
    // SAFETY: the list contains that many live tensors.
    check(unsafe { ringmark_drop_gradients(parameters.as_ptr(), parameters.len()) })
}

/// Constants of one step of gradient descent with momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdStep {
    pub learning_rate: f64,
    /// Factor of the momenta; 0 needs none.
    pub momentum: f64,
    pub is_nesterov: bool,
    /// L2 penalty.
    pub weight_decay: f64,
}

/// Runs one fused step over flat tensors of equal length. Nothing changes if `found_inf` is not zero.
pub fn sgd(
    [weights, gradients]: [&Tensor; 2],
    momenta: Option<&Tensor>,
    step: SgdStep,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    // SAFETY: all tensors are alive; null means no momenta and no found_inf.
    check(unsafe {
        ringmark_sgd(
            raw(weights),
            raw(gradients),
            momenta.map_or(null_mut(), raw),
            step.learning_rate,
            step.momentum,
            step.is_nesterov.into(),
            step.weight_decay,
            found_inf.map_or(null_mut(), raw),
        )
    })
}

/// Constants of one step of Adam.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStep {
    pub learning_rate: f64,
    /// Decay rates of the moments.
    pub betas: [f64; 2],
    /// Added to the square root of the corrected second moment.
    pub epsilon: f64,
    pub weight_decay: f64,
    /// True if the weights decay directly (AdamW), false if the decay is an L2 penalty in the gradient.
    pub is_decoupled: bool,
}

/// Runs one fused step over flat tensors of equal length. `updates` is the number of updates including this one, an
/// fp32 tensor of one element on their device. Nothing changes if `found_inf` is not zero.
pub fn adam(
    [weights, gradients]: [&Tensor; 2],
    [first_moments, second_moments]: [&Tensor; 2],
    updates: &Tensor,
    step: AdamStep,
    found_inf: Option<&Tensor>,
) -> Result<()> {
    // SAFETY: all tensors are alive; null means no found_inf.
    check(unsafe {
        ringmark_adam(
            raw(weights),
            raw(gradients),
            raw(first_moments),
            raw(second_moments),
            raw(updates),
            step.learning_rate,
            step.betas[0],
            step.betas[1],
            step.epsilon,
            step.weight_decay,
            step.is_decoupled.into(),
            found_inf.map_or(null_mut(), raw),
        )
    })
}

/// Flat tensors of a Nesterov update on a GPU. They have equal length and are fp32 except for the copy.
pub struct FlatUpdate<'a> {
    pub weights: &'a Tensor,
    pub gradients: &'a Tensor,
    pub momenta: &'a Tensor,
    /// Copy of the weights in the type of convolutions and matrix products, if that is not fp32.
    pub rounded: Option<&'a Tensor>,
}

impl FlatUpdate<'_> {
    pub fn has_kernel(&self) -> bool {
        let rounded = self.rounded.map_or(null_mut(), raw);
        // SAFETY: all tensors are alive; null means no copy.
        unsafe { ringmark_has_update_kernel(raw(self.weights), raw(self.gradients), raw(self.momenta), rounded) != 0 }
    }

    /// Runs one step of weights, momenta and copy in one pass. With a loss `scale`, sets `found_inf` to 1 and
    /// changes nothing else if a gradient is not finite.
    pub fn run(&self, step: SgdStep, scale_and_found_inf: Option<(&Tensor, &Tensor)>) -> Result<()> {
        let (scale, found_inf) = scale_and_found_inf.map_or((null_mut(), null_mut()), |(a, b)| (raw(a), raw(b)));
        // SAFETY: all tensors are alive and compatible, see `has_kernel`; null means no copy and no loss scaling.
        check(unsafe {
            ringmark_update(
                raw(self.weights),
                raw(self.gradients),
                raw(self.momenta),
                self.rounded.map_or(null_mut(), raw),
                scale,
                found_inf,
                step.learning_rate,
                step.momentum,
                step.weight_decay,
            )
        })
    }
}

/// Multiplies `gradients` by `inverse_scale` and sets `found_inf` to 1 if one of them is not finite.
pub fn unscale(gradients: &Tensor, found_inf: &Tensor, inverse_scale: &Tensor) -> Result<()> {
    // SAFETY: all tensors are alive.
    check(unsafe { ringmark_unscale(raw(gradients), raw(found_inf), raw(inverse_scale)) })
}

/// Vectors of one batch normalization, fp32, one value per channel, and its constants.
pub struct BatchNormVectors<'a> {
    pub weight: &'a Tensor,
    pub bias: &'a Tensor,
    pub running_mean: &'a Tensor,
    pub running_variance: &'a Tensor,
    /// Weight of the batch's statistics in the update.
    pub momentum: f64,
    /// Added to the variance.
    pub epsilon: f64,
}

/// An activation with two consumers. Autograd passes both gradients to its producer separately, and one kernel adds
/// them in the pass that it runs anyway; on the CPU autograd adds them.
pub struct Fork {
    pub first: Tensor,
    pub second: Tensor,
}

/// Returns the tensors that `call` creates unless it returns a message: two if `is_fork`, otherwise one.
fn new_fork(is_fork: bool, call: impl FnOnce(*mut RawTensor, *mut RawTensor) -> *mut c_char) -> Result<Fork> {
    let (mut first, mut second) = (null_mut(), null_mut());
    check(call(&raw mut first, if is_fork { &raw mut second } else { null_mut() }))?;
    // SAFETY: tensors on the heap, owned by the caller alone; the second is created only for a fork.
    let (first, second) = unsafe {
        let first = Tensor::from_ptr(first.cast());
        let second = if is_fork { Tensor::from_ptr(second.cast()) } else { first.shallow_clone() };
        (first, second)
    };
    Ok(Fork { first, second })
}

/// Returns true if `tensor` is channels_last and on a GPU with active kernels for its type.
pub fn are_kernels_loaded(tensor: &Tensor) -> bool {
    // SAFETY: the tensor is alive.
    unsafe { ringmark_are_kernels_loaded(raw(tensor)) != 0 }
}

/// Returns true if `images` are on a GPU with active kernels for their type, layout and channels.
pub fn has_kernels(images: &Tensor) -> bool {
    // SAFETY: the tensor is alive.
    unsafe { ringmark_has_kernels(raw(images)) != 0 }
}

/// Computes batch normalization with the batch's statistics, the sum with `shortcut` and ReLU, fused and
/// differentiable. Supports channels_last fp32 or bf16 images on the CPU, and images for which [`has_kernels`] is true.
pub fn batch_norm(
    images: &Tensor,
    vectors: &BatchNormVectors,
    shortcut: Option<&Tensor>,
    relu: bool,
    is_fork: bool,
) -> Result<Fork> {
    // SAFETY: all tensors are alive, null means no shortcut, and the results are written unless there is a message.
    new_fork(is_fork, |first, second| unsafe {
        ringmark_batch_norm(
            raw(images),
            shortcut.map_or(null_mut(), raw),
            raw(vectors.weight),
            raw(vectors.bias),
            raw(vectors.running_mean),
            raw(vectors.running_variance),
            relu.into(),
            vectors.momentum,
            vectors.epsilon,
            first,
            second,
        )
    })
}

/// Square window of a pooling layer; kernels support a width of at most 15.
#[derive(Debug, Clone, Copy)]
pub struct PoolWindow {
    pub kernel: i64,
    pub stride: i64,
    pub padding: i64,
}

/// Computes batch normalization, ReLU and max pooling in one pass. [`has_kernels`] must be true for the images.
pub fn batch_norm_max_pool(
    images: &Tensor,
    vectors: &BatchNormVectors,
    window: PoolWindow,
    is_fork: bool,
) -> Result<Fork> {
    // SAFETY: all tensors are alive, and the results are written unless there is a message.
    new_fork(is_fork, |first, second| unsafe {
        ringmark_batch_norm_max_pool(
            raw(images),
            raw(vectors.weight),
            raw(vectors.bias),
            raw(vectors.running_mean),
            raw(vectors.running_variance),
            vectors.momentum,
            vectors.epsilon,
            window.kernel,
            window.stride,
            window.padding,
            first,
            second,
        )
    })
}

/// Returns true if there are active kernels for a 1x1 convolution of `images` by `weight` with its normalization and,
/// if `has_shortcut`, its sum and ReLU.
pub fn has_pointwise_kernels(images: &Tensor, weight: &Tensor, has_shortcut: bool) -> bool {
    // SAFETY: both tensors are alive.
    unsafe { ringmark_has_pointwise_kernels(raw(images), raw(weight), has_shortcut.into()) != 0 }
}

/// Computes a 1x1 convolution and batch normalization with the batch's statistics; with `shortcut` also the sum and
/// ReLU. [`has_pointwise_kernels`] must be true for the arguments.
pub fn pointwise_norm(
    images: &Tensor,
    convolution: &Tensor,
    vectors: &BatchNormVectors,
    shortcut: Option<&Tensor>,
    is_fork: bool,
) -> Result<Fork> {
    // SAFETY: all tensors are alive, null means no shortcut, and the results are written unless there is a message.
    new_fork(is_fork, |first, second| unsafe {
        ringmark_pointwise_norm(
            raw(images),
            raw(convolution),
            shortcut.map_or(null_mut(), raw),
            raw(vectors.weight),
            raw(vectors.bias),
            raw(vectors.running_mean),
            raw(vectors.running_variance),
            vectors.momentum,
            vectors.epsilon,
            first,
            second,
        )
    })
}

/// Computes max pooling. [`has_kernels`] must be true for the images.
pub fn max_pool(images: &Tensor, window: PoolWindow) -> Result<Tensor> {
    // SAFETY: the tensor is alive, and the result is written unless there is a message.
    new_tensor(|result| unsafe { ringmark_max_pool(raw(images), window.kernel, window.stride, window.padding, result) })
}

/// Allocates `count` uninitialized fp32 values in pinned host memory.
pub fn pinned_floats(count: usize) -> Result<Tensor> {
    // SAFETY: the result is written unless there is a message.
    new_tensor(|result| unsafe { ringmark_pinned_floats(count, result) })
}

/// Enqueues a copy without waiting for the device. The data is in pinned host memory once a later event is complete.
pub fn copy_without_waiting(destination: &Tensor, source: &Tensor) -> Result<()> {
    // SAFETY: both tensors are alive.
    check(unsafe { ringmark_copy_without_waiting(raw(destination), raw(source)) })
}

/// Guard for PyTorch's `inference_mode`: operations on this thread record nothing for gradients and no tensor versions.
pub struct InferenceMode(*mut c_void);

impl InferenceMode {
    pub fn begin() -> InferenceMode {
        // SAFETY: saves and changes this thread's state; the pointer keeps the guard on this thread.
        InferenceMode(unsafe { ringmark_begin_inference() })
    }
}

impl Drop for InferenceMode {
    fn drop(&mut self) {
        // SAFETY: created by `begin` on this thread and ended once.
        unsafe { ringmark_end_inference(self.0) }
    }
}

/// Runs `body` under autocast on this thread and drops the cast weights afterwards; without a type just runs it.
pub fn with_autocast<R>(is_cuda: bool, element: Option<Element>, body: impl FnOnce() -> Result<R>) -> Result<R> {
    let Some(element) = element else {
        return body();
    };
    let switch = |enabled: bool| {
        // SAFETY: plain numbers.
        check(unsafe { ringmark_autocast(is_cuda.into(), enabled.into(), (element == Element::Half).into()) })
    };
    switch(true)?;
    let result = body();
    switch(false)?;
    result
}

/// Sets the use of TensorFloat-32 in fp32 convolutions and matrix products on CUDA; libtorch's defaults for the two
/// differ.
pub fn allow_tf32(allowed: bool) -> Result<()> {
    // SAFETY: a plain number.
    check(unsafe { ringmark_allow_tf32(allowed.into()) })
}

/// Returns true if TensorFloat-32 is allowed.
pub fn allows_tf32() -> bool {
    // SAFETY: reads a setting of libtorch.
    unsafe { ringmark_allows_tf32() != 0 }
}

/// Makes `device` this thread's current CUDA device. Must precede the first allocation; otherwise every rank uses
/// device 0.
pub fn set_device(device: usize) -> Result<()> {
    // SAFETY: a plain number; libtorch checks its range.
    check(unsafe { ringmark_set_device(device as i64) })
}

/// Returns the peak number of bytes of tensors on CUDA device `device` since the last [`reset_peak_memory`].
pub fn peak_memory(device: usize) -> Result<u64> {
    let mut bytes = 0;
    // SAFETY: the pointer is to a live u64.
    check(unsafe { ringmark_peak_memory(device as i64, &mut bytes) })?;
    Ok(bytes)
}

/// Resets the peak of [`peak_memory`] on CUDA device `device`.
pub fn reset_peak_memory(device: usize) -> Result<()> {
    // SAFETY: a plain number.
    check(unsafe { ringmark_reset_peak_memory(device as i64) })
}

/// Memory of a CUDA device in bytes.
pub struct DeviceMemory {
    pub free: u64,
    pub total: u64,
}

pub fn device_memory(device: usize) -> Result<DeviceMemory> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are to live u64.
    check(unsafe { ringmark_device_memory(device as i64, &mut free, &mut total) })?;
    Ok(DeviceMemory { free, total })
}

#[derive(Debug, Clone, Copy)]
pub struct Stream {
    device: i64,
    id: i64,
}

impl Stream {
    /// Returns the stream of this thread's libtorch calls.
    pub fn current(device: usize) -> Result<Stream> {
        let mut stream = Stream { device: device as i64, id: 0 };
        // SAFETY: the pointer is to a live i64.
        check(unsafe { ringmark_current_stream(stream.device, &mut stream.id) })?;
        Ok(stream)
    }

    /// Creates a high-priority stream that does not synchronize with the default stream; also returns its
    /// `cudaStream_t`.
    pub fn new(device: usize) -> Result<(Stream, *mut c_void)> {
        Stream::with_priority(device, -1)
    }

    /// Creates a stream; CUDA runs kernels with a lower `priority` number first.
    fn with_priority(device: usize, priority: c_int) -> Result<(Stream, *mut c_void)> {
        let mut stream = Stream { device: device as i64, id: 0 };
        let mut handle = null_mut();
        // SAFETY: the pointers are to live variables.
        check(unsafe { ringmark_new_stream(stream.device, priority, &mut stream.id, &mut handle) })?;
        Ok((stream, handle))
    }

    pub fn run<R>(self, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let switch = |to: i64| {
            let mut before = 0;
            // SAFETY: the pointer is to a live i64.
            check(unsafe { ringmark_exchange_stream(self.device, to, &mut before) })?;
            anyhow::Ok(before)
        };
        let before = switch(self.id)?;
        let result = body();
        switch(before)?;
        result
    }

    /// Runs `body` on a new stream of `device`, after the earlier and before the later work of the current stream. The
    /// stream has the default stream's priority: NCCL's streams have a higher one.
    pub fn run_on_side_stream<R>(device: usize, body: impl FnOnce() -> Result<R>) -> Result<R> {
        let current = Stream::current(device)?;
        let (own, _) = Stream::with_priority(device, 0)?;
        own.wait_for(&current.record_event()?)?;
        let result = own.run(body)?;
        current.wait_for(&own.record_event()?)?;
        Ok(result)
    }

    /// Records an event after all work enqueued so far.
    pub fn record_event(self) -> Result<Event> {
        let mut event = Event::new(self.device as usize);
        event.record(self)?;
        Ok(event)
    }

    /// Makes later work on this stream wait for `event`; the host does not wait.
    pub fn wait_for(self, event: &Event) -> Result<()> {
        // SAFETY: the event was recorded, or is null, which libtorch checks.
        check(unsafe { ringmark_stream_wait_event(event.handle, self.id, self.device) })
    }
}

#[derive(Debug)]
pub struct Event {
    handle: *mut c_void,
    device: i64,
    timing: bool,
}

// SAFETY: CUDA events may be used from any thread.
unsafe impl Send for Event {}

impl Event {
    /// Creates an event without timing, for synchronization.
    pub fn new(device: usize) -> Event {
        Event { handle: null_mut(), device: device as i64, timing: false }
    }

    pub fn with_timing(device: usize) -> Event {
        Event { timing: true, ..Event::new(device) }
    }

    /// Records the event after all work enqueued on `stream` so far.
    pub fn record(&mut self, stream: Stream) -> Result<()> {
        // SAFETY: null or an event of this device; the shim creates it at the first call.
        check(unsafe { ringmark_core_event(&mut self.handle, stream.id, self.device, self.timing.into()) })
    }

    pub fn is_done(&self) -> Result<bool> {
        let mut done = 0;
        // SAFETY: a recorded event or null; the pointer is to a live int.
        check(unsafe { ringmark_query_event(self.handle, self.device, &mut done) })?;
        Ok(done != 0)
    }

    /// Returns the device time from `earlier` to this event. Both must be complete and created by
    /// [`with_timing`](Event::with_timing).
    pub fn seconds_since(&self, earlier: &Event) -> Result<f64> {
        let mut milliseconds = 0.0;
        // SAFETY: both handles are recorded events; the shim rejects null.
        check(unsafe { ringmark_elapsed_milliseconds(earlier.handle, self.handle, self.device, &mut milliseconds) })?;
        Ok(milliseconds / 1e3)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: created by the shim, destroyed once.
            unsafe { ringmark_destroy_event(self.handle, self.device) };
        }
    }
}

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
    fn ringmark_before_backward(
        output: RawTensor,
        callback: extern "C" fn(*mut c_void, usize),
        context: *mut c_void,
        unit: usize,
    ) -> *mut c_char;
    fn ringmark_backward(loss: RawTensor, gradient: RawTensor) -> *mut c_char;
    fn ringmark_take_gradients(
        parameters: *const RawTensor,
        destinations: *const RawTensor,
        count: usize,
        add: bool,
    ) -> *mut c_char;
    fn ringmark_drop_gradients(parameters: *const RawTensor, count: usize) -> *mut c_char;
    fn ringmark_power_sum(words: RawTensor, base: i64, sum: *mut i64) -> *mut c_char;
    fn ringmark_pinned_floats(count: usize, result: *mut RawTensor) -> *mut c_char;
    fn ringmark_copy_without_waiting(destination: RawTensor, source: RawTensor) -> *mut c_char;
    fn ringmark_autocast(is_cuda: c_int, enabled: c_int, is_half: c_int) -> *mut c_char;
    fn ringmark_allow_tf32(allowed: c_int) -> *mut c_char;
    fn ringmark_allows_tf32() -> c_int;
    fn ringmark_use_deterministic_convolutions();
    fn ringmark_set_device(device: i64) -> *mut c_char;
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

pub(super) fn raw_or_null(tensor: Option<&Tensor>) -> RawTensor {
    tensor.map_or(null_mut(), raw)
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

/// Provides the weights of a network's units, on the threads that compute forward and backward.
pub trait WeightProvider: Sync {
    /// Provides the weights of `unit` until [`after_forward`](WeightProvider::after_forward).
    fn before_forward(&self, unit: usize) -> Result<()>;

    fn after_forward(&self, unit: usize);

    /// Provides the weights of `unit` until all their gradients are complete. Must not panic: libtorch's frames are
    /// below.
    fn before_backward(&self, unit: usize);
}

/// Calls `provider` whenever backward reaches `unit`, whose output is `output`.
pub fn observe_backward(output: &Tensor, unit: usize, provider: &'static &'static dyn WeightProvider) -> Result<()> {
    extern "C" fn forward(context: *mut c_void, unit: usize) {
        // SAFETY: `context` is the static reference below.
        let provider = unsafe { &*context.cast_const().cast::<&'static dyn WeightProvider>() };
        provider.before_backward(unit);
    }
    let context = std::ptr::from_ref(provider).cast_mut().cast();
    // SAFETY: the tensor is alive, the provider is static, and `forward` takes this context.
    check(unsafe { ringmark_before_backward(raw(output), forward, context, unit) })
}

/// Runs backward from `loss`, whose gradient is `gradient`, by default 1.
pub fn backward(loss: &Tensor, gradient: Option<&Tensor>) -> Result<()> {
    // SAFETY: both tensors are alive; null means no gradient.
    check(unsafe { ringmark_backward(raw(loss), raw_or_null(gradient)) })
}

/// Copies the gradients of `parameters` into `destinations` (same shapes, any float type), or with `add` adds them to
/// the values there, and drops them.
pub fn take_gradients(parameters: &[Tensor], destinations: &[Tensor], add: bool) -> Result<()> {
    assert_eq!(parameters.len(), destinations.len(), "one destination per parameter");
    let (from, to) = (raw_list(parameters), raw_list(destinations));
    // SAFETY: the lists contain that many live tensors.
    check(unsafe { ringmark_take_gradients(from.as_ptr(), to.as_ptr(), from.len(), add) })
}

pub fn drop_gradients(parameters: &[Tensor]) -> Result<()> {
    let parameters = raw_list(parameters);
    // SAFETY: the list contains that many live tensors.
    check(unsafe { ringmark_drop_gradients(parameters.as_ptr(), parameters.len()) })
}

/// Returns the sum of `words[i] * base^i`, which wraps, for 32-bit integers in host memory.
pub fn power_sum(words: &Tensor, base: i64) -> Result<i64> {
    let mut sum = 0;
    // SAFETY: the tensor is alive, and the pointer is to a live i64.
    check(unsafe { ringmark_power_sum(raw(words), base, &mut sum) })?;
    Ok(sum)
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

/// Uses algorithms of cuDNN that repeat to the bit, chosen without timing them.
pub fn use_deterministic_convolutions() {
    // SAFETY: two settings of libtorch.
    unsafe { ringmark_use_deterministic_convolutions() }
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

//! Autograd functions of transformers: `transformer.cpp`.

use std::ffi::{CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;

use anyhow::Result;
use tch::Tensor;

use crate::ffi::torch::shim::{RawTensor, new_tensor, raw};

unsafe extern "C" {
    fn ringmark_rotated(x: RawTensor, cosines: RawTensor, sines: RawTensor, result: *mut RawTensor) -> *mut c_char;
    fn ringmark_head_loss(
        x: RawTensor,
        weight: RawTensor,
        targets: RawTensor,
        chunk_bytes: i64,
        result: *mut RawTensor,
    ) -> *mut c_char;
    fn ringmark_recomputed(
        x: RawTensor,
        run: extern "C" fn(*mut c_void, RawTensor, *mut RawTensor) -> *mut c_char,
        drop: extern "C" fn(*mut c_void),
        context: *mut c_void,
        result: *mut RawTensor,
    ) -> *mut c_char;
}

/// Rotates the pairs of features (i, i + width / 2) of `features`, `[.., tokens, heads, width]`, by angles with these
/// cosines and sines, `[tokens, 1, width / 2]`, computed in the tables' type; the result has the type of `features`.
pub fn rotated(features: &Tensor, [cosines, sines]: [&Tensor; 2]) -> Result<Tensor> {
    // SAFETY: all tensors are alive, and the result is written unless there is a message.
    new_tensor(|result| unsafe { ringmark_rotated(raw(features), raw(cosines), raw(sines), result) })
}

/// Returns the mean cross entropy of `targets`, `[rows]`, with the scores `features weight^T` of `features`,
/// `[rows, width]`. At most `chunk_bytes` of scores, but at least one row, are computed at once; a few tensors of that
/// size exist at a time. Forward computes the gradients, so backward can run only once.
pub fn head_loss(features: &Tensor, weight: &Tensor, targets: &Tensor, chunk_bytes: i64) -> Result<Tensor> {
    // SAFETY: all tensors are alive, and the result is written unless there is a message.
    new_tensor(|result| unsafe { ringmark_head_loss(raw(features), raw(weight), raw(targets), chunk_bytes, result) })
}

type Body = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// Computes `body` of `features` without keeping its activations: backward computes them again, under the same
/// autocast. `features` must require a gradient. `body` must be deterministic; on CUDA it also runs on libtorch's
/// autograd thread, while the thread that called backward waits.
pub fn recomputed(features: &Tensor, body: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Result<Tensor> {
    extern "C" fn run(context: *mut c_void, features: RawTensor, output: *mut RawTensor) -> *mut c_char {
        // SAFETY: `context` is the box below, which lives until `drop_body`; the tensor belongs to the caller.
        let (body, features) =
            unsafe { (&*context.cast::<Body>(), ManuallyDrop::new(Tensor::from_ptr(features.cast()))) };
        match body(&features) {
            Ok(tensor) => {
                // SAFETY: the pointer is to a live pointer; the caller becomes the owner of the tensor.
                unsafe { *output = raw(&ManuallyDrop::new(tensor)) };
                null_mut()
            }
            Err(error) => {
                let text = CString::new(format!("{error:#}").replace('\0', "")).unwrap_or_default();
                // SAFETY: a string with an end; the caller frees the copy.
                unsafe { libc::strdup(text.as_ptr()) }
            }
        }
    }
    extern "C" fn drop_body(context: *mut c_void) {
        // SAFETY: the box below, dropped once.
        drop(unsafe { Box::from_raw(context.cast::<Body>()) });
    }
    let body: Body = Box::new(body);
    let context = Box::into_raw(Box::new(body)).cast();
    // SAFETY: the tensor is alive, and the functions take this context.
    new_tensor(|result| unsafe { ringmark_recomputed(raw(features), run, drop_body, context, result) })
}

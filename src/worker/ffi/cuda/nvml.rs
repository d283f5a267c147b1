//! NVML's counters that have to be asked for a link, or for all of them, which nvml-wrapper does not do.

use std::ffi::c_int;

use libloading::os::unix::Library;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
};

type GetFieldValues = unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> nvmlReturn_t;

/// `nvmlDeviceGetFieldValues`.
pub struct Fields {
    get: GetFieldValues,
    /// Holds the function.
    _library: Library,
}

impl Fields {
    /// The scope that stands for the sum over all NVLinks.
    pub const ALL_LINKS: u32 = u32::MAX;

    /// Of the library that is loaded under this name; `None` where it is not there, or too old.
    pub fn new(library: &str) -> Option<Fields> {
        // SAFETY: the library is loaded already, so that nothing of it runs now.
        let library = unsafe { Library::new(library) }.ok()?;
        // SAFETY: nvml.h declares the function with this type.
        let get = unsafe { library.get::<GetFieldValues>(b"nvmlDeviceGetFieldValues\0") }.ok().map(|symbol| *symbol)?;
        Some(Fields { get, _library: library })
    }

    /// The counters of these numbers and scopes (0 where a number has none); `None` where the driver has none, or one of 32
    /// bits, which begins anew within a second.
    pub fn counters<const N: usize>(&self, device: &Device, fields: [(u32, u32); N]) -> [Option<u64>; N] {
        let mut values = fields.map(|(id, scope)| {
            // SAFETY: integers and a union of numbers, for all of which zero is a value.
            let mut value: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
            value.fieldId = id;
            value.scopeId = scope;
            value
        });
        // SAFETY: the handle is of a device of the same library, which lives; the array has N elements.
        let status = unsafe { (self.get)(device.handle(), N as c_int, values.as_mut_ptr()) };
        values.map(|value| {
            let has_value = status == nvmlReturn_enum_NVML_SUCCESS && value.nvmlReturn == nvmlReturn_enum_NVML_SUCCESS;
            let is_long = [
                nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG,
                nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
            ]
            .contains(&value.valueType);
            // SAFETY: a union of numbers, each of which any bits are; its type says that it is one of 64 bits.
            (has_value && is_long).then_some(unsafe { value.value.ullVal })
        })
    }
}

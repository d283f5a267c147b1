//! NVML field values, such as counters per link or over all links, which nvml-wrapper lacks.

use std::ffi::c_int;

use libloading::os::unix::Library;
use nvml_wrapper::Device;
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlFieldValue_t, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
    nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG, nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
};

type GetFieldValues = unsafe extern "C" fn(nvmlDevice_t, c_int, *mut nvmlFieldValue_t) -> nvmlReturn_t;

/// NVML's `nvmlDeviceGetFieldValues`.
pub struct Fields {
    get: GetFieldValues,
    /// Keeps the function loaded.
    _library: Library,
}

impl Fields {
    /// Scope of the sum over all NVLinks.
    pub const ALL_LINKS: u32 = u32::MAX;

    /// Finds the function in the library that is loaded under this name; `None` if the library is missing or too old.
    pub fn new(library: &str) -> Option<Fields> {
        // SAFETY: the library is already loaded, so that no initializer runs.
        let library = unsafe { Library::new(library) }.ok()?;
        // SAFETY: nvml.h declares the function with this type.
        let get = unsafe { library.get::<GetFieldValues>(b"nvmlDeviceGetFieldValues\0") }.ok().map(|symbol| *symbol)?;
        Some(Fields { get, _library: library })
    }

    /// Returns the counters with these field IDs and scopes (0 for a field without scopes). `None` if the driver lacks
    /// the counter or has only 32 bits of it, which wrap within a second.
    pub fn counters<const N: usize>(&self, device: &Device, fields: [(u32, u32); N]) -> [Option<u64>; N] {
        let mut values = fields.map(|(id, scope)| {
            // SAFETY: integers and a union of numbers, for all of which zero is valid.
            let mut value: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
            value.fieldId = id;
            value.scopeId = scope;
            value
        });
        // SAFETY: the handle belongs to a live device of the same library; the array has N elements.
        let status = unsafe { (self.get)(device.handle(), N as c_int, values.as_mut_ptr()) };
        values.map(|value| {
            let has_value = status == nvmlReturn_enum_NVML_SUCCESS && value.nvmlReturn == nvmlReturn_enum_NVML_SUCCESS;
            let is_long = [
                nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG,
                nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG,
            ]
            .contains(&value.valueType);
            // SAFETY: a union of numbers, all of which are valid for any bits; the type is one of 64 bits.
            (has_value && is_long).then_some(unsafe { value.value.ullVal })
        })
    }
}

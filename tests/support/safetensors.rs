//! Weights without torch: safetensors files, and weights by the rule of `golden/ten_steps.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

/// The tensors of a file by name.
pub type Tensors = BTreeMap<String, Stored>;

/// One tensor as it lies in a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// `F32`, `I64`.
    pub kind: String,
    /// Sizes; empty for a single number.
    pub shape: Vec<usize>,
    /// Little-endian numbers, the last dimension together.
    pub bytes: Vec<u8>,
}

impl Stored {
    /// A tensor of fp32.
    pub fn floats(shape: &[usize], values: impl Iterator<Item = f32>) -> Stored {
        let mut bytes = Vec::with_capacity(4 * shape.iter().product::<usize>());
        values.for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        Stored { kind: "F32".to_owned(), shape: shape.to_vec(), bytes }
    }

    /// A tensor of integers.
    pub fn integers(shape: &[usize], values: &[i64]) -> Stored {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Stored { kind: "I64".to_owned(), shape: shape.to_vec(), bytes }
    }

    /// Every `step`th number of a tensor of fp32.
    pub fn every(&self, step: usize) -> impl Iterator<Item = f32> {
        assert_eq!(self.kind, "F32");
        self.bytes.chunks_exact(4).step_by(step).map(|bytes| f32::from_le_bytes(bytes.try_into().expect("4 bytes")))
    }
}

/// Reads a file whole.
pub fn read(path: &Path) -> Tensors {
    let file = fs::read(path).expect("a file");
    let length = u64::from_le_bytes(file[..8].try_into().expect("8 bytes")) as usize;
    let (header, data) = file[8..].split_at(length);
    let header: BTreeMap<String, Value> = serde_json::from_slice(header).expect("a header of JSON");
    let numbers = |value: &Value| -> Vec<usize> {
        value.as_array().expect("a list").iter().map(|number| number.as_u64().expect("a size") as usize).collect()
    };
    let tensor = |(name, value): (String, Value)| {
        let place = numbers(&value["data_offsets"]);
        let stored = Stored {
            kind: value["dtype"].as_str().expect("a type").to_owned(),
            shape: numbers(&value["shape"]),
            bytes: data[place[0]..place[1]].to_vec(),
        };
        (name, stored)
    };
    header.into_iter().filter(|(name, _)| name != "__metadata__").map(tensor).collect()
}

/// Writes a file.
pub fn write(path: &Path, tensors: &Tensors) {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, Stored { kind, shape, bytes }) in tensors {
        let place = [end, end + bytes.len()];
        header.insert(name.clone(), json!({ "dtype": kind, "shape": shape, "data_offsets": place }));
        end = place[1];
    }
    let mut header = serde_json::to_vec(&header).expect("JSON");
    header.resize(header.len().next_multiple_of(8), b' ');
    let data = tensors.values().map(|tensor| &tensor.bytes[..]);
    let parts = [&(header.len() as u64).to_le_bytes()[..], &header[..]];
    fs::write(path, parts.into_iter().chain(data).collect::<Vec<_>>().concat()).expect("written");
}

/// Every tensor of torchvision's resnet50, weights as `hashed` of `golden/ten_steps.py` makes them.
pub fn hashed(names: &[(String, Vec<usize>)]) -> Tensors {
    let mut first = 0;
    let mut tensor = |(name, shape): &(String, Vec<usize>)| {
        let length = shape.iter().product();
        let constant = |value| Stored::floats(shape, std::iter::repeat_n(value, length));
        let stored = match name.rsplit('.').next() {
            Some("num_batches_tracked") => Stored::integers(&[], &[0]),
            Some("running_mean") => constant(0.0),
            Some("running_var") => constant(1.0),
            last => {
                let (bound, mean) = match shape[..] {
                    [output, _, height, width] => ((6.0 / (output * height * width) as f64).sqrt() as f32, 0.0),
                    _ if name.starts_with("fc.") => (1.0 / 64.0, 0.0),
                    _ if last == Some("bias") => (1.0 / 8.0, 2.0),
                    _ if name.ends_with("bn3.weight") => (1.0 / 8.0, 0.25),
                    _ => (1.0 / 8.0, 1.0),
                };
                first += length as u64;
                let numbers = first - length as u64..first;
                Stored::floats(shape, numbers.map(|number| mean + bound * unit(number)))
            }
        };
        (name.clone(), stored)
    };
    names.iter().map(&mut tensor).collect()
}

/// 24 bits of a hash of `number` (splitmix64), in -1 to 1.
pub fn unit(number: u64) -> f32 {
    let mut value = (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((value ^ (value >> 31)) >> 40) as f32 / 8_388_608.0 - 1.0
}

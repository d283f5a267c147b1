//! Peak floating-point rates of NVIDIA GPUs as published, by precision.

use crate::dimension::{Bytes, Dtype, TeraflopsPerSecond};

/// Peak rates of one GPU in 1e12 operations per second, at its boost clock, without sparsity; `None` if its tensor
/// cores lack the precision. If a data sheet gives rates with sparsity only, the values are half of them.
struct Published {
    /// Prefix of the driver's name of the device, without the vendor.
    name: &'static str,
    fp32: f64,
    tf32: Option<f64>,
    fp16: Option<f64>,
    bf16: Option<f64>,
}

const fn ampere(name: &'static str, fp32: f64, tf32: f64, half: f64) -> Published {
    Published { name, fp32, tf32: Some(tf32), fp16: Some(half), bf16: Some(half) }
}

const fn volta(name: &'static str, fp32: f64, fp16: f64) -> Published {
    Published { name, fp32, tf32: None, fp16: Some(fp16), bf16: None }
}

/// Rates from NVIDIA's data sheets. If two names match a device, the longer one is used.
const PUBLISHED: [Published; 27] = [
    volta("P100-PCIE", 9.3, 18.7),
    volta("P100-SXM2", 10.6, 21.2),
    volta("V100-PCIE", 14.0, 112.0),
    volta("V100-SXM2", 15.7, 125.0),
    volta("T4", 8.1, 65.0),
    ampere("A100", 19.5, 156.0, 312.0),
    ampere("A30", 10.3, 82.0, 165.0),
    ampere("A10", 31.2, 62.5, 125.0),
    ampere("A40", 37.4, 74.8, 149.7),
    ampere("L4", 30.3, 60.0, 121.0),
    ampere("L40", 90.5, 90.5, 181.0),
    ampere("L40S", 91.6, 183.0, 362.0),
    ampere("RTX 6000 Ada Generation", 91.1, 182.1, 364.2),
    // Versions for China; rates of the A800 and H800 are those of the A100 and H100.
    ampere("A800", 19.5, 156.0, 312.0),
    ampere("H800", 67.0, 494.5, 989.5),
    ampere("H800 PCIe", 51.0, 378.0, 756.0),
    ampere("H20", 44.0, 74.0, 148.0),
    ampere("H100 80GB HBM3", 67.0, 494.5, 989.5),
    ampere("H100 PCIe", 51.0, 378.0, 756.0),
    ampere("H100 NVL", 60.0, 417.5, 835.5),
    ampere("H200", 67.0, 494.5, 989.5),
    ampere("H200 NVL", 60.0, 417.5, 835.5),
    ampere("GH200", 67.0, 494.5, 989.5),
    // Half of HGX B200 and B300, and of the superchips GB200 and GB300, whose data sheets give rates with sparsity.
    ampere("B200", 75.0, 1125.0, 2250.0),
    ampere("B300", 75.0, 1125.0, 2250.0),
    ampere("GB200", 80.0, 1250.0, 2500.0),
    ampere("GB300", 80.0, 1250.0, 2500.0),
];

/// Returns the published peak of the GPU that its driver calls `device`; `None` if it is not in the table, which has no
/// CPUs.
pub fn published(device: &str, dtype: Dtype) -> Option<TeraflopsPerSecond> {
    let name = device.trim_start_matches("NVIDIA ").trim_start_matches("Tesla ");
    let is_of = |published: &&Published| {
        let rest = name.strip_prefix(published.name);
        rest.is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_alphanumeric()))
    };
    let published = PUBLISHED.iter().filter(is_of).max_by_key(|published| published.name.len())?;
    let rate = match dtype {
        Dtype::Fp32 => Some(published.fp32),
        Dtype::Tf32 => published.tf32,
        Dtype::Fp16 => published.fp16,
        Dtype::Bf16 => published.bf16,
    };
    rate.map(TeraflopsPerSecond)
}

/// Returns the memory of the GPU that its driver calls `device`; `None` if neither its name nor the table contains it.
///
/// The memory of an `A100-SXM4-40GB` is part of its name, that of an `H200` is not.
pub fn memory(device: &str) -> Option<Bytes> {
    const OTHERS: [(&str, u64); 4] = [("H200", 141), ("H100 NVL", 94), ("H100 PCIe", 80), ("T4", 16)];
    let words = || device.split([' ', '-']);
    let in_name = words().find_map(|word| word.strip_suffix("GB")?.parse::<u64>().ok());
    let of_table = || OTHERS.iter().find(|(name, _)| format!(" {device} ").contains(&format!(" {name} ")));
    let gigabytes = in_name.or_else(|| of_table().map(|(_, gigabytes)| *gigabytes))?;
    Some(Bytes(gigabytes * 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_in_the_name_or_the_table() {
        let gigabytes = |device: &str| memory(device).map(|memory| memory.gigabytes());
        assert_eq!(gigabytes("Tesla V100-SXM2-16GB"), Some(16.0));
        assert_eq!(gigabytes("NVIDIA A100 80GB PCIe"), Some(80.0));
        assert_eq!(gigabytes("NVIDIA H100 80GB HBM3"), Some(80.0));
        assert_eq!(gigabytes("NVIDIA H200"), Some(141.0));
        assert_eq!(gigabytes("NVIDIA H100 NVL"), Some(94.0));
        assert_eq!(gigabytes("NVIDIA GH200"), None);
    }

    #[test]
    fn driver_name_selects_published_peaks() {
        let peak = |device: &str, dtype| published(device, dtype).map(|rate| rate.0);
        assert_eq!(peak("Tesla V100-SXM2-16GB", Dtype::Fp16), Some(125.0));
        assert_eq!(peak("Tesla V100-SXM2-16GB", Dtype::Bf16), None);
        assert_eq!(peak("NVIDIA A100-SXM4-80GB", Dtype::Tf32), Some(156.0));
        assert_eq!(peak("NVIDIA A100 80GB PCIe", Dtype::Fp32), Some(19.5));
        assert_eq!(peak("NVIDIA H100 80GB HBM3", Dtype::Bf16), Some(989.5));
        assert_eq!(peak("NVIDIA H100 PCIe", Dtype::Bf16), Some(756.0));
        assert_eq!(peak("NVIDIA H200", Dtype::Fp32), Some(67.0));
        assert_eq!(peak("NVIDIA H200 NVL", Dtype::Fp32), Some(60.0));
        assert_eq!(peak("NVIDIA L40S", Dtype::Fp32), Some(91.6));
        assert_eq!(peak("NVIDIA A800-SXM4-80GB", Dtype::Bf16), Some(312.0));
        assert_eq!(peak("NVIDIA H800", Dtype::Fp16), Some(989.5));
        assert_eq!(peak("NVIDIA H20", Dtype::Tf32), Some(74.0));
        assert_eq!(peak("NVIDIA L40", Dtype::Fp16), Some(181.0));
        assert_eq!(peak("NVIDIA RTX 6000 Ada Generation", Dtype::Bf16), Some(364.2));
        assert_eq!(peak("NVIDIA B300 SXM6 AC", Dtype::Bf16), Some(2250.0));
        assert_eq!(peak("NVIDIA GB300", Dtype::Bf16), Some(2500.0));
        for unknown in ["NVIDIA L4000", "NVIDIA A1000", "AMD EPYC", "Virtual GPU", ""] {
            assert_eq!(peak(unknown, Dtype::Fp32), None, "{unknown}");
        }
    }
}

//! GPUs through NVML: clocks, temperature, power, throttle reasons, memory, errors and link traffic.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Instant;

use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::sys_exports::field_id::{
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_PCIE_COUNT_RX_BYTES,
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES,
};
use nvml_wrapper::{Device, Nvml};
use ringmark_core::host::Quantity;

use crate::ffi::cuda::nvml::Fields;
use crate::host::telemetry::reading::{Reading, Source, Value};

/// Library name of the driver itself: few installations have `libnvidia-ml.so`.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

/// Unit of NVML's NVLink counters.
const KIBIBYTE: f64 = 1024.0;

/// Loads NVML. The error is the reason why it cannot be used.
pub fn load() -> Result<Nvml, String> {
    Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().map_err(|error| format!("GPUs: {LIBRARY}: {error}"))
}

pub struct Gpus<'nvml> {
    gpus: Vec<Gpu<'nvml>>,
}

struct Gpu<'nvml> {
    name: String,
    device: Device<'nvml>,
    fields: Option<Fields>,
    /// Energy in joules, integrated from power if the driver does not count it.
    joules: f64,
    last: Option<(f64, Instant)>,
}

impl Gpus<'_> {
    /// Finds GPUs by PCI address; also returns the reasons why some are missing.
    pub fn find<'nvml>(nvml: Option<&'nvml Result<Nvml, String>>, bus_ids: &[String]) -> (Gpus<'nvml>, Vec<String>) {
        let (mut gpus, mut missing) = (Vec::new(), Vec::new());
        match nvml {
            None => {}
            Some(Err(why)) => missing.push(why.clone()),
            Some(Ok(nvml)) => {
                // Deduplicated: several ranks may use the same GPU.
                for bus_id in BTreeSet::from_iter(bus_ids) {
                    match nvml.device_by_pci_bus_id(bus_id.as_str()).and_then(|device| Ok((device.index()?, device))) {
                        Ok((index, device)) => gpus.push(Gpu {
                            name: format!("GPU {index}"),
                            device,
                            fields: Fields::new(LIBRARY),
                            joules: 0.0,
                            last: None,
                        }),
                        Err(error) => missing.push(format!("GPU {bus_id}: {error}")),
                    }
                }
            }
        }
        (Gpus { gpus }, missing)
    }
}

impl Gpu<'_> {
    /// Returns the energy in joules since the driver was loaded, or since the first reading.
    fn energy(&mut self) -> Option<f64> {
        if let Ok(millijoules) = self.device.total_energy_consumption() {
            return Some(millijoules as f64 / 1e3);
        }
        let watts = f64::from(self.device.power_usage().ok()?) / 1e3;
        if let Some((before, then)) = self.last.replace((watts, Instant::now())) {
            self.joules += (before + watts) / 2.0 * then.elapsed().as_secs_f64();
        }
        Some(self.joules)
    }

    /// Returns the bytes sent and received over all NVLinks, then over PCIe: totals if the driver counts them,
    /// otherwise the current rate of PCIe.
    fn links(&self) -> [Option<Value>; 4] {
        let fields = [
            (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, Fields::ALL_LINKS),
            (NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, Fields::ALL_LINKS),
            (NVML_FI_DEV_PCIE_COUNT_TX_BYTES, 0),
            (NVML_FI_DEV_PCIE_COUNT_RX_BYTES, 0),
        ];
        let counts = self.fields.as_ref().map_or([None; 4], |known| known.counters(&self.device, fields));
        let total = |index: usize, unit: f64| counts[index].map(|count| Value::Counter(count as f64 * unit));
        // The driver samples the slot for 20 ms and returns KB/s.
        let now = |counter: PcieUtilCounter| {
            let kilobytes = self.device.pcie_throughput(counter).ok()?;
            Some(Value::Gauge(f64::from(kilobytes) * 1e3))
        };
        [
            total(0, KIBIBYTE),
            total(1, KIBIBYTE),
            total(2, 1.0).or_else(|| now(PcieUtilCounter::Send)),
            total(3, 1.0).or_else(|| now(PcieUtilCounter::Receive)),
        ]
    }

    fn read(&mut self, readings: &mut Vec<Reading>) {
        let energy = self.energy();
        let device = &self.device;
        let now = |value: Option<f64>| value.map(Value::Gauge);
        let errors = |kind: MemoryError| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
        let own = [
            (Quantity::Clock, now(device.clock_info(Clock::SM).ok().map(f64::from))),
            (Quantity::MemoryClock, now(device.clock_info(Clock::Memory).ok().map(f64::from))),
            (Quantity::Temperature, now(device.temperature(TemperatureSensor::Gpu).ok().map(f64::from))),
            (Quantity::Power, energy.map(Value::Joules)),
            (
                Quantity::ThrottleReasons,
                now(device.current_throttle_reasons().ok().map(|reasons| reasons.bits() as f64)),
            ),
            (Quantity::Utilization, now(device.utilization_rates().ok().map(|rates| f64::from(rates.gpu) / 100.0))),
            (Quantity::Memory, now(device.memory_info().ok().map(|memory| memory.used as f64))),
            (Quantity::CorrectedErrors, errors(MemoryError::Corrected).map(|count| Value::Counter(count as f64))),
            (Quantity::UncorrectedErrors, errors(MemoryError::Uncorrected).map(|count| Value::Counter(count as f64))),
        ];
        let links =
            [Quantity::Sent, Quantity::Received, Quantity::Sent, Quantity::Received].into_iter().zip(self.links());
        let names = ["NVLink", "NVLink", "PCIe", "PCIe"].map(|link| format!("{} {link}", self.name));
        let own = own.into_iter().map(|(quantity, value)| (quantity, self.name.clone(), value));
        let link_values = names.into_iter().zip(links).map(|(name, (quantity, value))| (quantity, name, value));
        readings.extend(
            own.chain(link_values)
                .filter_map(|(quantity, instance, value)| Some(Reading { quantity, instance, value: value? })),
        );
    }
}

impl Source for Gpus<'_> {
    fn read(&mut self, readings: &mut Vec<Reading>) {
        self.gpus.iter_mut().for_each(|gpu| gpu.read(readings));
    }
}

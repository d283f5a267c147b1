//! State of one GPU according to nvidia-smi.

use ringmark_core::dimension::Seconds;
use ringmark_core::host::GpuUse;

use crate::host::facts::output;

/// Clock, temperature and throttle reasons.
pub struct GpuState {
    clock_mhz: f64,
    highest_clock_mhz: f64,
    temperature: f64,
    reasons: u64,
    /// Seconds of thermal throttling since the driver started; `None` if the driver does not count them.
    slowed_for_heat: Option<f64>,
}

impl GpuState {
    /// Queries nvidia-smi. `None` if it is missing, does not reply, or cannot find the GPU.
    pub fn read(bus_id: &str) -> Option<GpuState> {
        let ask = |fields: &str| -> Option<String> {
            let query = [format!("--query-gpu={fields}"), "--format=csv,noheader,nounits".to_owned()];
            // With a broken GPU, nvidia-smi hangs for minutes.
            let arguments = ["20", "nvidia-smi", "-i", bus_id, &query[0], &query[1]];
            output("timeout", &arguments)?.into_iter().next()
        };
        // A driver rejects the whole query if one field is unknown. Since release 535 the reasons have the first name.
        let reasons = ["clocks_event_reasons.active", "clocks_throttle_reasons.active"];
        let ask_all = |reasons: &&str| ask(&format!("clocks.sm,clocks.max.sm,temperature.gpu,{reasons}"));
        let state = GpuState::parse(&reasons.iter().find_map(ask_all)?)?;
        let counters =
            "clocks_event_reasons_counters.sw_thermal_slowdown,clocks_event_reasons_counters.hw_thermal_slowdown";
        Some(GpuState { slowed_for_heat: ask(counters).and_then(|line| sum_of_microseconds(&line)), ..state })
    }

    /// Parses `1980, 1980, 41, 0x0000000000000001`.
    fn parse(line: &str) -> Option<GpuState> {
        let mut fields = line.split(',').map(str::trim);
        let mut number = || fields.next()?.parse::<f64>().ok();
        let (clock_mhz, highest_clock_mhz, temperature) = (number()?, number()?, number()?);
        let reasons = u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok()?;
        Some(GpuState { clock_mhz, highest_clock_mhz, temperature, reasons, slowed_for_heat: None })
    }

    /// Returns the differences from here to `later`.
    pub fn until(&self, later: &GpuState) -> GpuUse {
        let slowed = self.slowed_for_heat.zip(later.slowed_for_heat);
        GpuUse {
            clock_mhz: [self.clock_mhz, later.clock_mhz],
            highest_clock_mhz: later.highest_clock_mhz,
            temperature: [self.temperature, later.temperature],
            reasons: [self.reasons, later.reasons],
            slowed_for_heat: slowed.map(|(before, after)| Seconds((after - before).max(0.0))),
        }
    }
}

/// Parses `120, 3000000`, with or without the unit; returns the sum in seconds.
fn sum_of_microseconds(line: &str) -> Option<f64> {
    let number = |text: &str| text.trim().trim_end_matches(" us").parse::<f64>().ok();
    Some(line.split(',').map(number).collect::<Option<Vec<f64>>>()?.iter().sum::<f64>() / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvidia_smi_output_is_parsed() {
        let state = GpuState::parse("1755, 1980, 71, 0x0000000000000024").expect("a line");
        assert_eq!(
            (state.clock_mhz, state.highest_clock_mhz, state.temperature, state.reasons),
            (1755.0, 1980.0, 71.0, 0x24)
        );
        assert!(GpuState::parse("[N/A], 1980, 71, 0x0").is_none());
        assert!(GpuState::parse("").is_none());
        assert_eq!(sum_of_microseconds("120, 3000000"), Some(3.00012));
        assert_eq!(sum_of_microseconds("120 us, 80 us"), Some(0.0002));
        assert_eq!(sum_of_microseconds("[N/A], 80"), None);
    }
}

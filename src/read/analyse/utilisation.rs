//! How much of a device a network's arithmetic takes: the operations of the network in a second, of what the device does of
//! plain matrix products in the same runs, and of the peak that its maker publishes. The last is model FLOPs utilization
//! (MFU; PaLM, Chowdhery et al., 2022, appendix B). Pure.

use ringmark_core::dimension::{ImagesPerSecond, Model, PASSES_OF_TRAINING, TeraflopsPerSecond};
use ringmark_core::number_text::percent;
use ringmark_core::stats::run_values::RunValues;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyse::figures::{Group, TrainedCase};
use crate::read::load::record::DeviceRates;

/// Of all ranks of a case. ResNet50-v1b has 4.089 GMAC forward, 24.5 GFLOP an image trained: 100 images/s are 2.45 TFLOP/s,
/// and where two ranks do 1.5 TFLOP/s of matrix products each, 82 % of these.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilisation {
    /// `images/s x passes x 2 x MACs of an image's forward pass`: 1 pass of inference, 3 of training.
    pub teraflops_per_second: TeraflopsPerSecond,
    /// Of plain matrix products in the same precision, all ranks at once, after the last iteration: the sum over ranks, the
    /// median over runs; `null` in older records.
    pub matrix_product_teraflops_per_second: Option<TeraflopsPerSecond>,
    /// The first over the second.
    pub share_of_matrix_product: Option<f64>,
    /// Of all ranks' devices; `null` where the maker publishes none that is known here, and on CPUs.
    pub published_peak_teraflops_per_second: Option<TeraflopsPerSecond>,
    /// The first over that: model FLOPs utilization.
    pub share_of_published_peak: Option<f64>,
}

impl Utilisation {
    /// Of images of this size, each worth so many forward `passes`, at this speed, on what these runs ran on.
    pub fn new(
        (model, image_size): (Model, u32),
        passes: f64,
        speed: ImagesPerSecond,
        runs: &[DeviceRates],
    ) -> Utilisation {
        let rate = speed.0 * model.facts().teraflops_at(image_size, passes);
        let over_runs = |of: fn(&DeviceRates) -> Option<TeraflopsPerSecond>| {
            let rates: Option<RunValues> = runs.iter().map(|run| of(run).map(|rate| rate.0)).collect();
            rates?.median().filter(|rate| *rate > 0.0)
        };
        let (product, peak) = (over_runs(|run| run.matrix_product), over_runs(|run| run.published_peak));
        Utilisation {
            teraflops_per_second: TeraflopsPerSecond(rate),
            matrix_product_teraflops_per_second: product.map(TeraflopsPerSecond),
            share_of_matrix_product: product.map(|product| rate / product),
            published_peak_teraflops_per_second: peak.map(TeraflopsPerSecond),
            share_of_published_peak: peak.map(|peak| rate / peak),
        }
    }

    /// `38.5 % of the matrix-product rate`, or of the published peak where there is one.
    pub fn share_text(&self) -> Option<String> {
        let text = |share: f64, of: &str| format!("{} of {of}", percent(share));
        let of_peak = self.share_of_published_peak.map(|share| text(share, "the published peak"));
        of_peak.or(self.share_of_matrix_product.map(|share| text(share, "the matrix-product rate")))
    }
}

/// Of a case of training; `None` where no run counts or no record says how large the images are.
pub fn of_training(group: &Group, case: &TrainedCase) -> Option<Utilisation> {
    let image_size = group.conditions.recorded.as_ref()?.config.image_size();
    let runs: Vec<DeviceRates> = case.counted().map(|run| run.device_rates).collect();
    let speed = case.figures.as_ref()?.speed;
    Some(Utilisation::new((group.conditions.model, image_size), PASSES_OF_TRAINING, speed, &runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worked_numbers_are_right() {
        let rates = |product| DeviceRates { matrix_product: Some(TeraflopsPerSecond(product)), published_peak: None };
        let runs = [rates(3.0), rates(2.0), rates(4.0)];
        let of = |runs: &[DeviceRates]| Utilisation::new((Model::Resnet50V1b, 224), 3.0, ImagesPerSecond(100.0), runs);
        let utilisation = of(&runs);
        assert!((utilisation.teraflops_per_second.0 - 2.4534).abs() < 1e-9, "{utilisation:?}");
        assert!(utilisation.share_of_matrix_product.is_some_and(|share| (share - 0.8178).abs() < 1e-9));
        assert_eq!(utilisation.share_text().as_deref(), Some("81.8 % of the matrix-product rate"));
        // One run that does not say it leaves the others without.
        let partly = of(&[rates(3.0), DeviceRates::default()]);
        assert_eq!((partly.share_of_matrix_product, partly.share_text()), (None, None));
        let peak = DeviceRates { published_peak: Some(TeraflopsPerSecond(24.534)), ..rates(3.0) };
        assert_eq!(of(&[peak]).share_text().as_deref(), Some("10.0 % of the published peak"));
        // Half the pixels a side are a quarter of the arithmetic.
        let small = Utilisation::new((Model::Resnet50V1b, 112), 3.0, ImagesPerSecond(400.0), &runs);
        assert!((small.teraflops_per_second.0 - 2.4534).abs() < 1e-9, "{small:?}");
    }
}

//! Utilization of a device by a network's arithmetic: operations per second relative to the rate of plain matrix
//! products in the same runs, and to the vendor's published peak. The latter is model FLOPs utilization (MFU; PaLM,
//! Chowdhery et al., 2022, appendix B). No I/O.

use ringmark_core::benchmark::train::Recompute;
use ringmark_core::dimension::{MfuFormula, Model, PASSES_OF_TRAINING, SampleSize, TeraflopsPerSecond, UnitsPerSecond};
use ringmark_core::number_text::share_of_limit;
use ringmark_core::stats::run_values::RunValues;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::load::device_rates::DeviceRates;

/// Utilization over all ranks of a case. For example, ResNet50-v1b has 4.089 GMAC per forward pass, so training takes
/// 24.5 GFLOP per image: 100 images/s are 2.45 TFLOP/s, and if each of two ranks reaches 1.5 TFLOP/s with matrix
/// products, 82 % of their rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilization {
    /// `speed x passes x 2 x MACs of the forward pass of an image or token`, with 1 pass for inference and 3 for
    /// training. The MACs of a token are those of matrix products and of attention, which is not halved for the causal
    /// mask.
    pub teraflops_per_second: TeraflopsPerSecond,
    /// Rate of plain matrix products in the same precision, measured on all ranks at once after the last iteration: sum
    /// over ranks, median over runs. `null` in older records.
    pub matrix_product_teraflops_per_second: Option<TeraflopsPerSecond>,
    /// `teraflops_per_second / matrix_product_teraflops_per_second`.
    pub share_of_matrix_product: Option<f64>,
    /// Published peak of all ranks' devices; `null` on CPUs, and for devices without a known published peak.
    pub published_peak_teraflops_per_second: Option<TeraflopsPerSecond>,
    /// `teraflops_per_second / published_peak_teraflops_per_second`: model FLOPs utilization.
    pub share_of_published_peak: Option<f64>,
    /// Rate of a language model by the formulas of other programs; absent for networks of images. That of Megatron-LM
    /// equals `teraflops_per_second`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_formula: Option<ByFormula>,
    /// Rate that also counts the operations that `--recompute` repeats, and its share of the peak: hardware FLOPs
    /// utilization (HFU). Absent without recomputation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<FormulaRate>,
}

/// Rates of a language model by the formulas of [`MfuFormula`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(missing_docs, reason = "the fields are the formulas")]
pub struct ByFormula {
    pub palm: FormulaRate,
    pub torchtitan: FormulaRate,
    pub megatron: FormulaRate,
}

/// Rate by one formula.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FormulaRate {
    /// `tokens/s x operations per token`.
    pub teraflops_per_second: TeraflopsPerSecond,
    /// `teraflops_per_second / published_peak_teraflops_per_second`.
    pub share_of_published_peak: Option<f64>,
}

impl Utilization {
    /// Computes the utilization for samples of this size, with the given number of forward `passes` per sample, at this
    /// speed on the devices of these runs.
    pub fn new(
        (model, size): (Model, SampleSize),
        passes: f64,
        speed: UnitsPerSecond,
        runs: &[DeviceRates],
        recompute: Recompute,
    ) -> Utilization {
        let rate = speed.0 * model.facts().teraflops_of_unit(size, passes);
        let over_runs = |of: fn(&DeviceRates) -> Option<TeraflopsPerSecond>| {
            let rates: Option<RunValues> = runs.iter().map(|run| of(run).map(|rate| rate.0)).collect();
            rates?.median().filter(|rate| *rate > 0.0)
        };
        let (product, peak) = (over_runs(|run| run.matrix_product), over_runs(|run| run.published_peak));
        let formula_rate = |operations: f64| {
            let rate = speed.0 * operations / 1e12;
            let share_of_published_peak = peak.map(|peak| rate / peak);
            FormulaRate { teraflops_per_second: TeraflopsPerSecond(rate), share_of_published_peak }
        };
        let decoder = match size {
            SampleSize::Tokens(length) => model.facts().decoder_shape().map(|shape| (shape, length)),
            SampleSize::Pixels(_) => None,
        };
        let by_formula = decoder.map(|(shape, length)| {
            let rate =
                |formula| formula_rate(shape.training_operations(formula, length) as f64 * passes / PASSES_OF_TRAINING);
            let [palm, torchtitan, megatron] =
                [MfuFormula::Palm, MfuFormula::Torchtitan, MfuFormula::Megatron].map(rate);
            ByFormula { palm, torchtitan, megatron }
        });
        let hardware = decoder.filter(|_| recompute == Recompute::Block).map(|(shape, length)| {
            let counted = shape.training_operations(MfuFormula::Megatron, length);
            formula_rate((counted + shape.recomputed_operations(length)) as f64)
        });
        Utilization {
            by_formula,
            hardware,
            teraflops_per_second: TeraflopsPerSecond(rate),
            matrix_product_teraflops_per_second: product.map(TeraflopsPerSecond),
            share_of_matrix_product: product.map(|product| rate / product),
            published_peak_teraflops_per_second: peak.map(TeraflopsPerSecond),
            share_of_published_peak: peak.map(|peak| rate / peak),
        }
    }

    /// Returns true if a share is above 100 %.
    pub fn is_over_limit(&self) -> bool {
        [self.share_of_matrix_product, self.share_of_published_peak].iter().flatten().any(|share| *share > 1.0)
    }

    /// Returns a text such as `38.5 % of the matmul rate`, or the share of the published peak if there is one.
    pub fn share_text(&self) -> Option<String> {
        let text = |share: f64, of: &str| format!("{} % of {of}", share_of_limit(share));
        let of_peak = self.share_of_published_peak.map(|share| text(share, "the published peak"));
        of_peak.or(self.share_of_matrix_product.map(|share| text(share, "the matmul rate")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_example_is_correct() {
        let rates = |product| DeviceRates { matrix_product: Some(TeraflopsPerSecond(product)), published_peak: None };
        let runs = [rates(3.0), rates(2.0), rates(4.0)];
        let of = |runs: &[DeviceRates]| {
            Utilization::new(
                (Model::Resnet50V1b, SampleSize::Pixels(224)),
                3.0,
                UnitsPerSecond(100.0),
                runs,
                Recompute::None,
            )
        };
        let utilization = of(&runs);
        assert!((utilization.teraflops_per_second.0 - 2.4534).abs() < 1e-9, "{utilization:?}");
        assert!(utilization.share_of_matrix_product.is_some_and(|share| (share - 0.8178).abs() < 1e-9));
        assert_eq!(utilization.share_text().as_deref(), Some("81.8 % of the matmul rate"));
        // A single run without the rate makes the result unknown.
        let partly = of(&[rates(3.0), DeviceRates::default()]);
        assert_eq!((partly.share_of_matrix_product, partly.share_text()), (None, None));
        let peak = DeviceRates { published_peak: Some(TeraflopsPerSecond(24.534)), ..rates(3.0) };
        assert_eq!(of(&[peak]).share_text().as_deref(), Some("10.0 % of the published peak"));
        // Halving the edge of an image quarters the arithmetic.
        let small = Utilization::new(
            (Model::Resnet50V1b, SampleSize::Pixels(112)),
            3.0,
            UnitsPerSecond(400.0),
            &runs,
            Recompute::None,
        );
        assert!((small.teraflops_per_second.0 - 2.4534).abs() < 1e-9, "{small:?}");
    }
}

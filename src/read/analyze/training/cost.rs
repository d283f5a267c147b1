//! Training cost at the speed of a case: time of an ImageNet epoch times a price.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, Result};
use ringmark_core::dimension::{Case, Seconds, UnitsPerSecond, WorkUnit};
use ringmark_core::keyword_enum;
use ringmark_core::options::keyword_enum::KeywordEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::read::analyze::training::figures::{TrainingCase, TrainingGroup};

/// Epochs of ImageNet for training ResNet-50 (Goyal et al., 2017, Accurate, Large Minibatch SGD).
pub const EPOCHS: f64 = 90.0;

keyword_enum!(
    /// Unit of an hourly price.
    PriceUnit {
        /// A GPU, or a rank if there are no GPUs.
        Gpu = "gpu-hour" | "rank-hour",
        /// A whole host.
        Host = "host-hour" | "node-hour",
    }
);

/// Price per hour: `2.49/gpu-hour`, `$98.32/host-hour`.
#[derive(Debug, Clone, PartialEq)]
pub struct Price {
    /// Text before the number, as typed; may be empty.
    pub currency: String,
    /// Price of one unit for an hour.
    pub amount: f64,
    /// Unit that is billed.
    pub unit: PriceUnit,
}

impl FromStr for Price {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Price> {
        let parts = text.split_once('/').and_then(|(amount, unit)| {
            let digits = amount.find(|sign: char| sign.is_ascii_digit() || sign == '.')?;
            let (currency, number) = amount.split_at(digits);
            Some((currency.trim().to_owned(), number.trim().parse::<f64>().ok()?, unit.trim().parse().ok()?))
        });
        let price = parts.map(|(currency, amount, unit)| Price { currency, amount, unit });
        let price = price.filter(|price| {
            price.amount > 0.0
                && price.amount < 1e9
                && price.currency.chars().all(|sign| !sign.is_control() && sign != '-')
        });
        price.with_context(|| {
            let units = PriceUnit::KEYWORDS.join(" or ");
            format!(
                "{text:?} is not a price: write a number above 0 and {units}, such as 2.49/gpu-hour or $98.32/host-hour"
            )
        })
    }
}

impl fmt::Display for Price {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}/{}", self.currency, self.amount, self.unit)
    }
}

/// Cost of a case. At 20,000 images/s an epoch of 1,281,167 images takes 64.1 s: on 8 GPUs at 2.49 an hour, an epoch
/// costs 0.354 and 90 epochs cost 31.9.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cost {
    /// Price as given.
    pub price: String,
    /// `1281167 / (images/s)`: training images of ImageNet-1k (ILSVRC 2012), without validation; `1e9 / (tokens/s)` for
    /// language models, whose epoch is 1e9 tokens.
    pub seconds_per_epoch: Seconds,
    /// Cost of an epoch: `seconds / 3600 x price x GPUs (or hosts)`.
    pub of_epoch: f64,
    /// Cost of 90 epochs.
    pub of_90_epochs: f64,
    /// Extra cost of an epoch relative to the base case, as a fraction: the cost of scaling. For a price per GPU this
    /// is `1 / efficiency - 1`.
    pub over_base: f64,
}

impl Price {
    /// Returns the hourly price of a case.
    pub fn per_hour(&self, case: Case) -> f64 {
        let units = match self.unit {
            PriceUnit::Gpu => case.ranks(),
            PriceUnit::Host => case.nodes,
        };
        self.amount * f64::from(units)
    }

    /// Returns the cost of an epoch of ImageNet, or of 1e9 tokens, on a case at this speed.
    pub fn epoch_cost(&self, case: Case, speed: UnitsPerSecond, unit: WorkUnit) -> f64 {
        seconds_per_epoch(speed, unit).0 / 3600.0 * self.per_hour(case)
    }

    /// Returns the cost of a case, or `None` if it has no counted runs.
    pub fn case_cost(&self, group: &TrainingGroup, case: &TrainingCase) -> Option<Cost> {
        let figures = case.figures.as_ref()?;
        let base = UnitsPerSecond(figures.speed.0 / figures.speedup);
        Some(self.cost((case.case, figures.speed), (group.base?, base), group.conditions.point.batch.unit()))
    }

    fn cost(&self, (case, speed): (Case, UnitsPerSecond), base: (Case, UnitsPerSecond), unit: WorkUnit) -> Cost {
        let of_epoch = self.epoch_cost(case, speed, unit);
        Cost {
            price: self.to_string(),
            seconds_per_epoch: seconds_per_epoch(speed, unit),
            of_epoch,
            of_90_epochs: EPOCHS * of_epoch,
            over_base: of_epoch / self.epoch_cost(base.0, base.1, unit) - 1.0,
        }
    }
}

fn seconds_per_epoch(speed: UnitsPerSecond, unit: WorkUnit) -> Seconds {
    Seconds(unit.priced() / speed.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(text: &str) -> Case {
        text.parse().expect("a case")
    }

    #[test]
    fn worked_example_is_correct() {
        let price: Price = "2.49/gpu-hour".parse().expect("a price");
        let base = (case("1n1g"), UnitsPerSecond(3125.0));
        let cost = price.cost((case("1n8g"), UnitsPerSecond(20_000.0)), base, WorkUnit::Image);
        assert!((cost.seconds_per_epoch.0 - 64.058).abs() < 1e-3, "{cost:?}");
        assert!((cost.of_epoch - 0.3545).abs() < 1e-4 && (cost.of_90_epochs - 31.90).abs() < 1e-2, "{cost:?}");
        // An efficiency of 0.8 costs a quarter more.
        assert!((cost.over_base - 0.25).abs() < 1e-12, "{cost:?}");
        // Hosts are billed as a whole: eight GPUs of a host cost as much as one.
        let price: Price = "€20/host-hour".parse().expect("a price");
        let cost = price.cost((case("1n8g"), UnitsPerSecond(20_000.0)), base, WorkUnit::Image);
        assert!((cost.over_base - (3125.0 / 20_000.0 - 1.0)).abs() < 1e-12, "{cost:?}");
        assert_eq!(cost.price, "€20/host-hour");
    }

    #[test]
    fn invalid_prices_are_rejected() {
        for text in [
            "2.49",
            "gpu-hour",
            "0/gpu-hour",
            "-1/gpu-hour",
            "nan/gpu-hour",
            "2/year",
            "1e12/gpu-hour",
            "2..3/gpu-hour",
        ] {
            let error = text.parse::<Price>().expect_err(text).to_string();
            assert!(
                error.contains(&format!("{text:?} is not a price")) && error.contains("gpu-hour or host-hour"),
                "{error}"
            );
        }
        assert_eq!("EUR 3/node-hour".parse::<Price>().expect("a price").to_string(), "EUR3/host-hour");
    }
}

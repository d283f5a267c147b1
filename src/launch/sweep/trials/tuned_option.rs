//! Options that `--autotune-over` tunes, and their values, in command-line form. Pure.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use ringmark_core::benchmark::compression::GradientCompression;
use ringmark_core::benchmark::train::TrainConfig;
use ringmark_core::dimension::{Strategy, Wire};
use ringmark_core::options::option_table;

const STRATEGY: &str = "strategy";

const WIRE: &str = "wire";

const GRADIENT_COMPRESSION: &str = "gradient-compression";

/// Options that affect only how gradients are exchanged, not the work.
pub const TUNED: [&str; 9] =
    [STRATEGY, "hierarchical", WIRE, GRADIENT_COMPRESSION, "overlap", "bucket-mb", "tail-mb", "chunk-kb", "nccl-algo"];

/// A tuned option, with the values tried in addition to the requested one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunedOption {
    name: &'static str,
    values: Vec<String>,
}

impl FromStr for TunedOption {
    type Err = anyhow::Error;

    /// Parses `strategy=all-reduce,device`.
    fn from_str(text: &str) -> anyhow::Result<TunedOption> {
        let names = || TUNED.join(", ");
        let Some((name, values)) = text.split_once('=') else {
            bail!("{text:?} is not NAME=VALUE,..: write it as strategy=all-reduce,device; NAME is one of {}", names())
        };
        let name = match name.trim_start_matches('-') {
            "kv-store" => STRATEGY,
            name => name,
        };
        let Some(name) = TUNED.into_iter().find(|known| *known == name) else {
            bail!("{name:?} cannot be tuned: choose one of {}", names())
        };
        let values: Vec<String> = values.split(',').map(str::to_owned).collect();
        let tuned = TunedOption { name, values };
        for (index, value) in tuned.values.iter().enumerate() {
            ensure!(!value.is_empty(), "{text:?} has an empty value: write it as {name}=VALUE,VALUE");
            ensure!(!tuned.values[..index].contains(value), "{text:?} lists {value} twice: list it once");
            tuned.apply(&TrainConfig::default(), value)?;
        }
        Ok(tuned)
    }
}

impl fmt::Display for TunedOption {
    /// Formats the option as given on the command line.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}={}", self.name, self.values.join(","))
    }
}

impl TunedOption {
    /// Returns the name without dashes.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the values to try.
    pub fn values(&self) -> &[String] {
        &self.values
    }

    /// Returns `base` with this value. Compression and wire type exclude each other: setting one resets the other.
    pub fn apply(&self, base: &TrainConfig, value: &str) -> anyhow::Result<TrainConfig> {
        let mut config = base.clone();
        match self.name {
            GRADIENT_COMPRESSION if value == "none" => config.gradient_compression = GradientCompression::None,
            GRADIENT_COMPRESSION => config.exchange.wire = Wire::Fp32,
            WIRE => config.gradient_compression = GradientCompression::None,
            _ => {}
        }
        if (self.name, value) != (GRADIENT_COMPRESSION, "none") {
            option_table::set(&mut config, self.name, value)?;
        }
        Ok(config)
    }

    /// Returns its value in `config`; empty if the backend decides, and for the wire type if compression is on. Without
    /// compression, the value of the compression option is the wire type.
    pub fn value_in(&self, config: &TrainConfig) -> String {
        let (code, wire) = (config.gradient_compression, config.exchange.wire);
        match self.name {
            GRADIENT_COMPRESSION if !code.is_none() => code.to_string(),
            GRADIENT_COMPRESSION if wire == Wire::Fp32 => GradientCompression::None.to_string(),
            GRADIENT_COMPRESSION => wire.to_string(),
            WIRE if !code.is_none() => String::new(),
            name => {
                let mut settings = option_table::settings(config).into_iter();
                settings.find(|(of, _)| *of == name).map(|(_, value)| value).unwrap_or_default()
            }
        }
    }
}

/// Returns every strategy among the values of `tuned`.
pub fn strategies(tuned: &[TunedOption]) -> Vec<Strategy> {
    let options = tuned.iter().filter(|option| option.name == STRATEGY);
    options.flat_map(|option| &option.values).filter_map(|value| value.parse().ok()).collect()
}

/// Describes the options' values in `config`: `strategy device, wire fp32`.
pub fn describe(tuned: &[TunedOption], config: &TrainConfig) -> String {
    let each = tuned.iter().map(|option| (option.name, option.value_in(config)));
    let each = each.map(|(name, value)| match value.as_str() {
        "" => format!("{name} not given"),
        value => format!("{name} {value}"),
    });
    each.collect::<Vec<String>>().join(", ")
}

/// Returns the values in the manifest's form, without those that the backend decides: `strategy=device wire=fp32`.
pub fn chosen_text(tuned: &[TunedOption], config: &TrainConfig) -> String {
    let each = tuned.iter().map(|option| (option.name, option.value_in(config))).filter(|(_, value)| !value.is_empty());
    each.map(|(name, value)| format!("{name}={value}")).collect::<Vec<String>>().join(" ")
}

/// Returns `requested` with the settings that an earlier session chose, given in the manifest's form.
pub fn with_chosen(requested: &TrainConfig, text: &str) -> anyhow::Result<TrainConfig> {
    text.split_whitespace().try_fold(requested.clone(), |config, one| {
        let option: TunedOption = one.parse().context("manifest is damaged: cannot parse its strategy")?;
        option.apply(&config, &option.values.concat())
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn option(text: &str) -> TunedOption {
        text.parse().expect(text)
    }

    #[test]
    fn tuned_option_round_trips_and_rejects_bad_values() {
        for text in ["strategy=all-reduce,dist_sync", "bucket-mb=1,25", "gradient-compression=none,2bit:0.5,topk:0.01"]
        {
            assert_eq!(option(text).to_string(), text);
        }
        assert_eq!(option("--wire=fp16").to_string(), "wire=fp16");
        let errors = [
            "strategy",
            "batch-size=8,16",
            "backend=none",
            "wire=fp16,fp16",
            "wire=fp16,",
            "wire=fp8",
            "gradient-compression=2bit:0",
        ]
        .map(|text| format!("{:#}", text.parse::<TunedOption>().expect_err(text)));
        expect![[r#"
            "strategy" is not NAME=VALUE,..: write it as strategy=all-reduce,device; NAME is one of strategy, hierarchical, wire, gradient-compression, overlap, bucket-mb, tail-mb, chunk-kb, nccl-algo
            "batch-size" cannot be tuned: choose one of strategy, hierarchical, wire, gradient-compression, overlap, bucket-mb, tail-mb, chunk-kb, nccl-algo
            "backend" cannot be tuned: choose one of strategy, hierarchical, wire, gradient-compression, overlap, bucket-mb, tail-mb, chunk-kb, nccl-algo
            "wire=fp16,fp16" lists fp16 twice: list it once
            "wire=fp16," has an empty value: write it as wire=VALUE,VALUE
            --wire fp8: "fp8" is not one of fp32, fp16, bf16
            --gradient-compression 2bit:0: 2bit threshold "0" is not a number above 0: use a threshold such as 0.5"#]].assert_eq(&errors.join("\n"));
    }

    #[test]
    fn compression_and_wire_type_replace_each_other() {
        let [wire, code] = [option("wire=bf16"), option("gradient-compression=none,2bit")];
        let halved = wire.apply(&TrainConfig::default(), "bf16").expect("a type");
        let coded = code.apply(&halved, "2bit").expect("a code");
        assert_eq!((coded.exchange.wire, coded.gradient_compression.is_none()), (Wire::Fp32, false));
        assert_eq!(wire.apply(&coded, "bf16").expect("a type"), halved);
        assert_eq!(code.apply(&halved, "none").expect("no code"), halved);
    }

    #[test]
    fn chosen_settings_round_trip_through_the_manifest() {
        let tuned =
            ["strategy=all-reduce,dist_sync", "hierarchical=on,off", "gradient-compression=none,2bit"].map(option);
        let requested = TrainConfig::default();
        let chosen = |values: [(usize, &str); 2]| {
            let apply = |config, (index, value): (usize, &str)| tuned[index].apply(&config, value).expect("a value");
            values.into_iter().fold(requested.clone(), apply)
        };
        for config in [requested.clone(), chosen([(0, "dist_sync"), (2, "2bit")]), chosen([(1, "off"), (2, "none")])] {
            let text = chosen_text(&tuned, &config);
            assert_eq!(with_chosen(&requested, &text).expect(&text), config, "{text}");
        }
        // Compression and wire type, in either order of tuning, and with either requested.
        let both = ["gradient-compression=none,fp16,2bit", "wire=fp32,bf16"].map(option);
        let turned = both.clone().into_iter().rev().collect::<Vec<_>>();
        for order in [&both[..], &turned, &both[..1], &both[1..]] {
            for requested in [requested.clone(), both[0].apply(&requested, "2bit").expect("a code")] {
                for (tried, value) in
                    order.iter().flat_map(|tuned| tuned.values.iter().map(move |value| (tuned, value)))
                {
                    let config = tried.apply(&requested, value).expect(value);
                    let text = chosen_text(order, &config);
                    assert_eq!(with_chosen(&requested, &text).expect(&text), config, "{text}");
                }
                assert_eq!(
                    with_chosen(&requested, &chosen_text(order, &requested)).expect(
                        "nothing \
                         changes"
                    ),
                    requested
                );
            }
        }
        assert_eq!(chosen_text(&tuned, &requested), "strategy=all-reduce gradient-compression=none");
        expect!["strategy all-reduce, hierarchical not given, gradient-compression none"]
            .assert_eq(&describe(&tuned, &requested));
        assert!(with_chosen(&requested, "strategy").is_err());
        assert_eq!(strategies(&tuned), [Strategy::AllReduce, Strategy::DistSync]);
    }
}

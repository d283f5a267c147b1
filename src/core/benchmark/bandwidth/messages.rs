//! Messages of a bandwidth run (growing array sizes or a network's gradients) and their options.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::benchmark::typed_size::TypedSize;
use crate::dimension::{Bytes, Model};
use crate::options::option_table::OptionSpec;
use crate::options::usage::usage;
use crate::options::value::OptionValue;

/// Size options, which conflict with `--model`.
const SIZE_OPTIONS: &[&str] = &["begin", "end", "factor", "increment"];

/// Options that `--network` excludes.
const NETWORK_OPTIONS: &[&str] = &["model", "begin", "end", "factor", "increment"];

/// Maximum number of sizes in a run, far more than a readable table has.
pub(super) const MAXIMUM_SIZES: u64 = 10_000;

/// Step from one message size to the next.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Growth {
    /// Multiplier.
    Factor(u64),
    /// Bytes added.
    Increment(Bytes),
}

/// Data exchanged by a bandwidth run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Messages {
    /// Arrays of growing size, each out of place and in place, as in nccl-tests.
    Sizes {
        /// First size.
        begin: Bytes,
        /// Upper bound, and the last size if the steps reach it exactly.
        end: Bytes,
        /// Step between sizes.
        growth: Growth,
    },
    /// Gradients of a network, in buckets.
    Gradients(Model),
}

impl Default for Messages {
    fn default() -> Messages {
        Messages::Sizes { begin: Bytes(8), end: Bytes(128 << 20), growth: Growth::Factor(2) }
    }
}

impl Messages {
    /// Returns the options; the short forms are those of nccl-tests.
    pub fn options() -> Vec<OptionSpec<Messages>> {
        let begin = "Smallest message, in bytes or as 64K, 1M, 1G (steps of 1024)";
        let (factor, increment) =
            ("Factor from each size to the next", "Difference from each size to the next, instead of a factor");
        let model = "Exchange this network's gradients, instead of increasing sizes";
        let network = "Network for --model by MXNet's name, as in measure.py: resnet, inception-bn, ..";
        vec![
            OptionSpec::for_value("begin", "SIZE", begin, |it| Some(TypedSize(it.sizes()?.0)), Messages::set_begin)
                .short('b')
                .aliases(&["minbytes"]),
            OptionSpec::for_value(
                "end",
                "SIZE",
                "Largest message",
                |it| Some(TypedSize(it.sizes()?.1)),
                Messages::set_end,
            )
            .default_is("128M")
            .short('e')
            .aliases(&["maxbytes"]),
            OptionSpec::for_value("factor", "N", factor, Messages::factor, |it, factor| {
                it.set_growth(Growth::Factor(factor))
            })
            .short('f')
            .aliases(&["stepfactor"])
            .range(2u64..=1 << 40)
            .conflicts_with(&["increment"]),
            OptionSpec::for_value("increment", "SIZE", increment, Messages::increment, Messages::set_increment)
                .short('i')
                .aliases(&["stepbytes"]),
            OptionSpec::for_value("model", "NAME", model, Messages::model, |it, model| {
                *it = Messages::Gradients(model)
            })
            .conflicts_with(SIZE_OPTIONS),
            OptionSpec::new("network", "NAME", network, |_| String::new(), Messages::set_network)
                .conflicts_with(NETWORK_OPTIONS),
            OptionSpec::new(
                "num-layers",
                "N",
                "Number of layers of --network",
                |_| String::new(),
                Messages::set_layers,
            )
            .range(1u32..=1000)
            .requires("network"),
        ]
    }

    /// Returns the network whose gradients are exchanged, if any.
    pub fn model(&self) -> Option<Model> {
        match self {
            Messages::Gradients(model) => Some(*model),
            Messages::Sizes { .. } => None,
        }
    }

    /// Returns the first size, the last size and the step.
    pub(super) fn sizes(&self) -> Option<(Bytes, Bytes, Growth)> {
        match *self {
            Messages::Sizes { begin, end, growth } => Some((begin, end, growth)),
            Messages::Gradients(_) => None,
        }
    }

    fn factor(&self) -> Option<u64> {
        match self.sizes()?.2 {
            Growth::Factor(factor) => Some(factor),
            Growth::Increment(_) => None,
        }
    }

    fn increment(&self) -> Option<TypedSize> {
        match self.sizes()?.2 {
            Growth::Increment(increment) => Some(TypedSize(increment)),
            Growth::Factor(_) => None,
        }
    }

    fn set_begin(&mut self, TypedSize(size): TypedSize) {
        if let Messages::Sizes { begin, end, .. } = self {
            *begin = size;
            // A begin beyond the default end selects a single size unless an end is given.
            *end = Bytes(end.0.max(size.0));
        }
    }

    fn set_end(&mut self, TypedSize(size): TypedSize) {
        if let Messages::Sizes { end, .. } = self {
            *end = size;
        }
    }

    fn set_increment(&mut self, TypedSize(size): TypedSize) {
        self.set_growth(Growth::Increment(size));
    }

    fn set_growth(&mut self, new: Growth) {
        if let Messages::Sizes { growth, .. } = self {
            *growth = new;
        }
    }

    fn set_network(&mut self, text: &str) -> anyhow::Result<()> {
        *self = Messages::Gradients(Model::from_mxnet_name(text)?);
        Ok(())
    }

    fn set_layers(&mut self, text: &str) -> anyhow::Result<()> {
        let layers = u32::parse(text)?;
        // The option is also validated alone, before a network is set.
        if let Messages::Gradients(model) = self {
            *model = model.with_layers(layers).map_err(usage)?;
        }
        Ok(())
    }
}

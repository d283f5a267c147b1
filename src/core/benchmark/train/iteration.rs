//! One iteration of a run record and its serialization. It is written by hand because most of the time spent on a
//! record goes there, and derived code would parse the flattened phases twice.

use std::borrow::Cow;
use std::fmt;

use anyhow::{bail, ensure};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::dimension::{Phase, Phases, Seconds};
use crate::options::keyword_enum::KeywordEnum;

/// Measurements of one iteration; every list has one value per rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Iteration {
    /// Iteration number, from 1.
    pub iteration: u32,
    /// Time from the start of this iteration to the start of the next.
    pub step: Vec<Seconds>,
    /// Time of each phase, stored under the phase's own key.
    pub phases: Phases<Vec<Seconds>>,
    /// Own compute time: from the start of the iteration until the rank joins its first all-reduce, without any wait
    /// for other ranks. Without overlap this is the end of backward. Empty in records written before it was measured.
    pub before_allreduce: Vec<Seconds>,
    /// Mean cross entropy of each rank's batch; `null` in the file if not finite.
    pub loss: Vec<f64>,
    /// Loss scale of the iteration; 1 without loss scaling, `null` in the file if not finite.
    pub loss_scale: f64,
    /// True if the update was skipped because a gradient was not finite.
    pub skipped: bool,
}

impl Iteration {
    /// Refuses lists whose length is not `ranks`, times that are not durations, and an iteration number other than
    /// `expected`.
    pub(super) fn check(&self, expected: usize, ranks: usize) -> anyhow::Result<()> {
        ensure!(self.iteration as usize == expected, "iteration {}, expected {expected}", self.iteration);
        let phases = self.phases.iter().map(|(phase, list)| (phase.keyword(), list));
        let before = Some(("before_allreduce", &self.before_allreduce)).filter(|(_, list)| !list.is_empty());
        for (name, list) in [("step", &self.step)].into_iter().chain(phases).chain(before) {
            ensure!(list.len() == ranks, "{name} has {} values for {ranks} ranks", list.len());
            if let Some(time) = list.iter().find(|time| !time.is_duration()) {
                bail!("{name} has an invalid time: {time}");
            }
        }
        ensure!(self.loss.len() == ranks, "loss has {} values for {ranks} ranks", self.loss.len());
        Ok(())
    }
}

impl Serialize for Iteration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("iteration", &self.iteration)?;
        map.serialize_entry("step", &self.step)?;
        for (phase, times) in self.phases.iter() {
            if phase.is_always() || times.iter().any(|time| time.0 != 0.0) {
                map.serialize_entry(phase.keyword(), times)?;
            }
        }
        if !self.before_allreduce.is_empty() {
            map.serialize_entry("before_allreduce", &self.before_allreduce)?;
        }
        // JSON has no NaN: non-finite values are written as `null` and read as NaN.
        let loss: Vec<Option<f64>> = self.loss.iter().map(|loss| loss.is_finite().then_some(*loss)).collect();
        map.serialize_entry("loss", &loss)?;
        map.serialize_entry("loss_scale", &self.loss_scale.is_finite().then_some(self.loss_scale))?;
        map.serialize_entry("skipped", &self.skipped)?;
        map.end()
    }
}

enum Key {
    Iteration,
    Step,
    Phase(Phase),
    BeforeAllreduce,
    Loss,
    LossScale,
    Skipped,
    Unknown,
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
        struct Name;
        impl Visitor<'_> for Name {
            type Value = Key;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a key of an iteration")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Key, E> {
                Ok(match name {
                    "iteration" => Key::Iteration,
                    "step" => Key::Step,
                    "before_allreduce" => Key::BeforeAllreduce,
                    "loss" => Key::Loss,
                    "loss_scale" => Key::LossScale,
                    "skipped" => Key::Skipped,
                    _ => Phase::ALL
                        .iter()
                        .find(|phase| phase.keyword() == name)
                        .map_or(Key::Unknown, |phase| Key::Phase(*phase)),
                })
            }
        }
        deserializer.deserialize_identifier(Name)
    }
}

impl<'de> Deserialize<'de> for Iteration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Iteration, D::Error> {
        struct IterationVisitor;
        impl<'de> Visitor<'de> for IterationVisitor {
            type Value = Iteration;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an iteration")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Iteration, A::Error> {
                let (mut iteration, mut step, mut loss, mut loss_scale, mut skipped) = (None, None, None, None, None);
                let mut phases: Phases<Option<Vec<Seconds>>> = Phases::default();
                let mut before_allreduce = Vec::new();
                while let Some(key) = map.next_key()? {
                    match key {
                        Key::Iteration => iteration = Some(map.next_value()?),
                        Key::Step => step = Some(map.next_value()?),
                        Key::Phase(phase) => phases[phase] = Some(map.next_value()?),
                        Key::BeforeAllreduce => before_allreduce = map.next_value()?,
                        Key::Loss => loss = Some(map.next_value::<Vec<Option<f64>>>()?),
                        Key::LossScale => loss_scale = Some(map.next_value::<Option<f64>>()?),
                        Key::Skipped => skipped = Some(map.next_value()?),
                        Key::Unknown => drop(map.next_value::<IgnoredAny>()?),
                    }
                }
                let missing = |name: &'static str| move || de::Error::missing_field(name);
                let step: Vec<Seconds> = step.ok_or_else(missing("step"))?;
                for (_, times) in phases.iter_mut().filter(|(phase, _)| !phase.is_always()) {
                    times.get_or_insert_with(|| vec![Seconds(0.0); step.len()]);
                }
                let missing_phase =
                    phases.iter().find(|(_, times)| times.is_none()).map_or("", |(phase, _)| phase.keyword());
                Ok(Iteration {
                    iteration: iteration.ok_or_else(missing("iteration"))?,
                    step,
                    phases: phases.all().ok_or_else(missing(missing_phase))?,
                    before_allreduce,
                    loss: loss.ok_or_else(missing("loss"))?.into_iter().map(|loss| loss.unwrap_or(f64::NAN)).collect(),
                    loss_scale: loss_scale.ok_or_else(missing("loss_scale"))?.unwrap_or(f64::NAN),
                    skipped: skipped.ok_or_else(missing("skipped"))?,
                })
            }
        }
        deserializer.deserialize_map(IterationVisitor)
    }
}

/// Serialized form of [`Iteration`], used only for the schema.
#[derive(JsonSchema)]
#[schemars(rename = "Iteration")]
#[expect(dead_code, reason = "it is only described")]
struct IterationLine {
    /// Iteration number, from 1.
    iteration: u32,
    /// Time from the start of this iteration to the start of the next, in seconds, for each rank.
    step: Vec<Seconds>,
    /// Time of each phase, in seconds, for each rank; `input` is missing if no images were read.
    #[schemars(flatten)]
    phases: Phases<Vec<Seconds>>,
    /// Time from the start of the iteration until the rank joins its first all-reduce, in seconds, for each rank.
    #[schemars(default)]
    before_allreduce: Vec<Seconds>,
    /// Mean cross entropy of each rank's batch; `null` if not finite.
    loss: Vec<Option<f64>>,
    /// Loss scale of the iteration; 1 without loss scaling, `null` if not finite.
    loss_scale: Option<f64>,
    /// True if the update was skipped because a gradient was not finite.
    skipped: bool,
}

impl JsonSchema for Iteration {
    fn schema_name() -> Cow<'static, str> {
        IterationLine::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        IterationLine::json_schema(generator)
    }
}
